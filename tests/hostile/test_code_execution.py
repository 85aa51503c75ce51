"""Malicious pickles: none runs, none imports, none touches anything but its own file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import containers
from support.pickle_assembler import (
    BUILD,
    EMPTY_TUPLE,
    NEWOBJ,
    NONE,
    binary,
    call,
    dict_,
    ext,
    global_,
    list_,
    persid,
    stream,
    text,
    tuple_,
    wrapper,
)

from aoserial.storage.pickle import (
    ExtensionCode,
    Name,
    ObjectValue,
    PickleFile,
    Reference,
    Risk,
    scan,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=["", "alive"])
def outcome(tmp_path_factory, request) -> dict:
    """What happened while thousands of malicious files were opened in a process of their own."""
    script = str(Path(__file__).parent / "run_gadgets.py")
    folder = str(tmp_path_factory.mktemp("gadgets"))
    # `make fuzz` puts every payload into every container
    amount = ["all"] if "AOSERIAL_FUZZ" in os.environ else []
    amount += [request.param] if request.param else []
    result = subprocess.run(
        [sys.executable, "-W", "error", script, folder, *amount],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_thousands_were_tried(outcome):
    assert outcome["count"] >= 2500
    assert sum(outcome["outcomes"].values()) == outcome["count"]


def test_nearly_all_load_as_inert_values_and_the_rest_is_malformed(outcome):
    assert set(outcome["outcomes"]) <= {"inert", "PickleError"}
    assert outcome["outcomes"]["inert"] > 0.95 * outcome["count"]


def test_none_left_a_trace(outcome):
    assert not outcome["executed"]


def test_no_module_was_imported(outcome):
    assert outcome["modules"] == []


def test_nothing_was_opened_started_looked_up_or_connected(outcome):
    assert outcome["events"] == []


def test_scan_tells_of_every_one(outcome):
    # partial() alone calls nothing, and a class in this place is not called either
    assert [name for name in outcome["unflagged"] if "as the class of a module" not in name] == []


# -- single techniques, and what becomes of them --------------------------------------------------


def opened(tmp_path, body: bytes, *, protocol: int = 2):
    path = tmp_path / "x.pt"
    path.write_bytes(containers.zipped(stream(body, protocol=protocol)))
    return PickleFile.open(path)


def test_a_call_keeps_its_function_and_arguments(tmp_path):
    value = opened(tmp_path, call(global_("os", "system"), text("id"), NONE)).tree
    assert isinstance(value, ObjectValue)
    assert (value.kind, value.path, value.arguments) == ("reduce", "os.system", ("id", None))


def test_an_instance_keeps_its_class_and_state(tmp_path):
    body = global_("acme", "Config") + EMPTY_TUPLE + NEWOBJ + dict_(text("lr"), NONE) + BUILD
    value = opened(tmp_path, body).tree
    assert (value.kind, value.path, value.fields) == ("newobj", "acme.Config", {"lr": None})


def test_a_pickle_inside_a_pickle_stays_bytes(tmp_path):
    inner = stream(call(global_("os", "system"), text("id")))
    assert opened(tmp_path, list_(binary(inner))).tree == [inner]


@pytest.mark.parametrize(("code", "width"), [(1, 1), (255, 1), (999, 2), (2**31 - 1, 4)])
def test_an_extension_code_is_not_looked_up(tmp_path, code, width):
    assert opened(tmp_path, ext(code, width)).tree == ExtensionCode(code)
    assert scan(tmp_path / "x.pt").runs_code


@pytest.mark.parametrize(
    "held",
    [
        persid("7"),
        tuple_(text("module"), global_("os", "system")) + b"Q",
        tuple_(text("storage"), global_("os", "system"), text("0"), text("cpu"), b"K\x04") + b"Q",
        tuple_(tuple_(text("storage"))) + b"Q",
        dict_(text("storage"), NONE) + b"Q",
        b"K\x07Q",
        NONE + b"Q",
    ],
    ids=["text", "module", "class of a storage", "nested", "dict", "int", "none"],
)
def test_a_persistent_id_that_is_no_storage_is_a_reference(tmp_path, held):
    assert isinstance(opened(tmp_path, held).tree, Reference)


def test_the_source_of_a_module_is_not_looked_at(tmp_path):
    body = tuple_(text("module"), global_("acme", "Net"), text("/etc/passwd"), text("x")) + b"Q"
    assert opened(tmp_path, body).tree == Name("acme", "Net")


def test_a_name_dotted_through_other_modules_stays_a_name(tmp_path):
    body = text("torch") + text("serialization.os.system") + b"\x93"
    assert opened(tmp_path, body, protocol=4).tree == Name("torch", "serialization.os.system")


def test_the_class_of_a_subclass_is_a_name(tmp_path):
    value = opened(tmp_path, wrapper(("os", "system"), text("a"), NONE)).tree
    assert value.cls == Name("os", "system")


def test_what_comes_before_an_error_in_the_stream_is_reported(tmp_path):
    path = tmp_path / "x.bin"
    path.write_bytes(stream(call(global_("os", "system"), text("id")) + b"\xff"))
    report = scan(path)
    assert report.runs_code
    assert "0xff" in str(report.fault)
    assert [(f.what, f.path, f.risk) for f in report.findings] == [
        ("import", "os.system", Risk.DANGEROUS),
        ("call", "os.system", Risk.DANGEROUS),
    ]


def test_a_payload_before_a_clean_pickle_is_reported(tmp_path):
    path = tmp_path / "x.safetensors"  # whatever the name says
    path.write_bytes(stream(call(global_("os", "system"), text("id"))) + stream(NONE))
    assert scan(path).runs_code
