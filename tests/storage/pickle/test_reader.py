"""PickleFile and scan: what they give, what they cost, and what they say of other files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support import containers
from support.pickle_assembler import (
    NONE,
    call,
    dict_,
    global_,
    list_,
    stream,
    tensor,
    text,
    tuple_,
)
from support.timing import seconds

from aoserial.errors import (
    ChangedWhileReadingError,
    ContainerError,
    LimitError,
    MissingFileError,
    PathError,
    PickleError,
)
from aoserial.storage.pickle import Limits, ParameterValue, PickleFile, Risk, named_tensors, scan
from aoserial.storage.pickle.paths import check_depth

ROOT = Path(__file__).parents[3]


def write(path: Path, body: bytes) -> Path:
    path.write_bytes(containers.zipped(stream(body)))
    return path


# -- the file -----------------------------------------------------------------------------------


def test_tensors_come_by_dotted_name_in_the_order_of_the_file(tmp_path):
    state = {"b": torch.ones(1), "a": [torch.ones(2), {"x.y": torch.ones(3)}], 3: (torch.ones(4),)}
    torch.save(state, tmp_path / "x.pt")
    with PickleFile.open(tmp_path / "x.pt") as file:
        names = [(name, part.shape) for name, part in file.tensors()]
        assert names == [("b", (1,)), ("a.0", (2,)), ("a.1.x.y", (3,)), ("3.0", (4,))]


def test_tensors_outlive_the_file(tmp_path):
    torch.save(torch.ones(1000), tmp_path / "x.pt")
    file = PickleFile.open(tmp_path / "x.pt")
    part = file.tree
    found = part.read()
    file.close()
    assert found.sum() == 1000
    with pytest.raises(PathError, match="has been closed"):
        part.read()


@pytest.mark.parametrize("mapped", [True, False])
def test_nothing_is_read_before_it_is_asked_for(tmp_path, mapped):
    path = tmp_path / "x.pt"
    torch.save({"a": torch.ones(1000), "b": torch.ones(1000)}, path)
    with PickleFile.open(path, mapped=mapped) as file:
        data = bytearray(path.read_bytes())
        start = file.tree["b"].storage.start
        data[start : start + 4] = b"\0\0\0\x40"  # 2.0
        path.write_bytes(data)
        assert file.tree["b"].read()[0] == 2


def test_a_file_that_becomes_shorter_is_an_error(tmp_path):
    path = tmp_path / "x.pt"
    torch.save(torch.ones(100_000), path)
    with PickleFile.open(path, mapped=False) as file:
        os.truncate(path, 1000)
        with pytest.raises(ChangedWhileReadingError):
            file.tree.read()


def test_what_is_no_file_is_said_to_be_none(tmp_path):
    with pytest.raises(MissingFileError):
        PickleFile.open(tmp_path / "missing.pt")
    with pytest.raises(PathError, match="a folder"):
        PickleFile.open(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(PathError, match="a FIFO"):
        PickleFile.open(tmp_path / "fifo")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git-LFS pointer"),
        (b"<!DOCTYPE html>", "HTML"),
        (b"\x1f\x8b\x08\0", "gzip"),
        (b"GGUF\3\0\0\0", "GGUF"),
        (b"\x93NUMPY\1\0", "NumPy"),
        (b"7z\xbc\xaf\x27\x1c", "7z"),
        ((2).to_bytes(8, "little") + b"{}", "no kind"),
        (stream(NONE), "a pickle, but not one that torch.save wrote"),
    ],
)
def test_files_of_other_kinds_are_named(tmp_path, content, words):
    (tmp_path / "x.pt").write_bytes(content)
    with pytest.raises(ContainerError, match=words):
        PickleFile.open(tmp_path / "x.pt")


def test_opening_and_scanning_load_no_torch(tmp_path):
    path = write(tmp_path / "x.pt", dict_(text("a"), tensor()))
    code = (
        "import sys; from aoserial.storage.pickle import PickleFile, scan\n"
        f"with PickleFile.open({str(path)!r}) as file:\n"
        "    names = list(file.tensors()); file.verify()\n"
        f"scan({str(path)!r})\n"
        "print(len(names), [name for name in ('torch', 'numpy', 'pickle') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=ROOT,
    )
    assert result.stdout == "1 []\n"


def test_an_error_names_the_file_and_the_tensor(tmp_path):
    state = dict_(text("model"), dict_(text("w"), tensor(), text("b"), tensor(size=(9,))))
    with pytest.raises(ValueError, match=r"x\.pt: model\.b: has the shape \[9\]"):
        PickleFile.open(write(tmp_path / "x.pt", state))


def test_reprs_are_short_and_show_no_control_characters(tmp_path):
    held = call(global_("acme\x1b[0m", "x" * 10_000), NONE)
    with PickleFile.open(write(tmp_path / "x.pt", list_(held, tensor()))) as file:
        assert "\x1b" not in repr(file.tree)
        assert len(repr(file.tree)) < 1000
        assert "1 storages" in repr(file)


# -- the tree -----------------------------------------------------------------------------------


def test_a_container_that_is_there_twice_is_listed_twice(tmp_path):
    layer = {"w": torch.ones(1)}
    torch.save({"a": layer, "b": layer}, tmp_path / "x.pt")
    with PickleFile.open(tmp_path / "x.pt") as file:
        found = dict(file.tensors())
        assert list(found) == ["a.w", "b.w"]
        assert found["a.w"] is found["b.w"]


def test_a_container_in_itself_ends_there():
    loop: dict = {"a": 1}
    loop["self"] = loop
    loop["list"] = [loop]
    assert list(named_tensors(loop, Limits())) == []
    check_depth(loop, Limits(depth=3))


def test_a_tree_that_explodes_but_has_no_tensors_takes_no_time():
    bomb: list = []
    for _ in range(40):
        bomb = [bomb, bomb]
    check_depth(bomb, Limits())
    assert list(named_tensors(bomb, Limits())) == []


def test_a_tree_with_more_names_than_anybody_wants_is_limited(tmp_path):
    torch.save(torch.ones(1), tmp_path / "x.pt")
    with PickleFile.open(tmp_path / "x.pt") as file:
        bomb = [file.tree]
        for _ in range(40):
            bomb = [bomb, bomb]
        with pytest.raises(LimitError) as caught:
            list(named_tensors(bomb, Limits(tensors=10_000)))
        assert caught.value.limit == "tensors"


def test_tensors_behind_a_loop_are_all_found(tmp_path):
    torch.save(torch.ones(1), tmp_path / "x.pt")
    with PickleFile.open(tmp_path / "x.pt") as file:
        loop: list = [file.tree]
        back = [loop]  # nothing but the way back, as long as one comes from there
        loop.append(back)
        names = [name for name, _ in named_tensors({"loop": loop, "back": back}, Limits())]
        assert names == ["loop.0", "back.0.0"]


def test_depth_is_that_of_the_longest_way():
    deep: list = []
    for _ in range(50):
        deep = [deep]
    tree = {"shallow": deep, "list": [[deep]]}
    check_depth(tree, Limits(depth=54))
    with pytest.raises(LimitError) as caught:
        check_depth(tree, Limits(depth=53))
    assert caught.value.limit == "depth"


@pytest.mark.parametrize(
    "wrap",
    [
        tuple_,
        list_,
        lambda inner: dict_(text("k"), inner),
        lambda inner: dict_(tuple_(inner), NONE),
        lambda inner: call(global_("a", "b"), inner),
        lambda inner: inner + b"Q",
        lambda inner: b"(" + inner + b"\x91",
        lambda inner: call(global_("builtins", "set"), list_(inner)),
        lambda inner: call(global_("a", "b")) + inner + b"b",
        lambda inner: call(global_("torch._utils", "_rebuild_parameter"), inner, NONE, NONE),
    ],
)
def test_depth_counts_in_everything(tmp_path, wrap):
    body = NONE
    for _ in range(1200):
        body = wrap(body)
    with pytest.raises(LimitError) as caught:
        PickleFile.open(write(tmp_path / "x.pt", body))
    assert caught.value.limit == "depth"


def test_a_million_tuples_inside_each_other_used_as_a_key(tmp_path):
    """Plain pickle, and torch.load with weights_only, crash the process on this."""
    body = b"}" + b")" + b"\x85" * 1_000_000 + NONE + b"s"
    with pytest.raises(LimitError):
        PickleFile.open(write(tmp_path / "x.pt", body))


def test_a_million_rebuilds_inside_each_other(tmp_path):
    arguments = NONE
    for _ in range(3000):
        arguments = tuple_(
            global_("torch._tensor", "_rebuild_from_type_v2"), global_("a", "b"), arguments, NONE
        )
    body = global_("torch._tensor", "_rebuild_from_type_v2") + arguments + b"R"
    with pytest.raises(LimitError) as caught:
        PickleFile.open(write(tmp_path / "x.pt", body))
    assert caught.value.limit == "depth"


def test_a_parameter_of_a_parameter_is_an_object(tmp_path):
    inner = call(global_("torch._utils", "_rebuild_parameter"), tensor(), b"\x88", NONE)
    with PickleFile.open(write(tmp_path / "x.pt", inner)) as file:
        assert isinstance(file.tree, ParameterValue)


# -- scan ---------------------------------------------------------------------------------------


def test_a_plain_checkpoint_runs_nothing(tmp_path):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    torch.save({"m": model.state_dict(), "o": optimizer.state_dict()}, tmp_path / "x.pt")
    report = scan(tmp_path / "x.pt")
    assert (report.container, report.runs_code, report.fault) == ("zip", False, None)
    assert {finding.risk for finding in report.findings} == {Risk.KNOWN}


@pytest.mark.parametrize("container", containers.CONTAINERS)
def test_what_would_run_is_listed_with_its_place(tmp_path, container):
    body = list_(call(global_("os", "system"), text("id")), call(global_("os", "system"), NONE))
    path = tmp_path / "x.pt"
    path.write_bytes(containers.CONTAINERS[container](stream(body)))
    report = scan(path)
    assert report.container == container
    assert report.runs_code
    found = [finding for finding in report.findings if finding.risk is Risk.DANGEROUS]
    assert [(each.what, each.path, each.count) for each in found] == [
        ("import", "os.system", 1),
        ("call", "os.system", 2),
    ]
    assert found[0].at == stream(body).index(b"cos\n")


def test_a_class_of_a_library_is_unknown_unless_it_is_said_to_be_known(tmp_path):
    path = write(tmp_path / "x.pt", call(global_("acme", "Box")) + NONE + b"b")
    report = scan(path)
    assert [(each.what, each.risk) for each in report.findings] == [
        ("import", Risk.UNKNOWN),
        ("call", Risk.UNKNOWN),
        ("state", Risk.UNKNOWN),
    ]
    assert report.runs_code
    assert not scan(path, known=lambda name: name.module == "acme").runs_code


def test_a_call_of_what_a_call_makes_is_one_of_the_first_function(tmp_path):
    body = call(global_("acme", "Box")) + b")R" * 5
    findings = scan(write(tmp_path / "x.pt", body)).findings
    assert [(each.what, each.path, each.count) for each in findings] == [
        ("import", "acme.Box", 1),
        ("call", "acme.Box", 6),
    ]


def test_a_scan_of_such_calls_takes_time_in_proportion_to_their_number(tmp_path):
    few, many = (
        write(tmp_path / f"{count}.pt", call(global_("acme", "Box")) + b")R" * count)
        for count in (5_000, 20_000)
    )
    # four times as many: linear is 4, quadratic 16
    assert seconds(lambda: scan(many)) < 8 * seconds(lambda: scan(few))


def test_odd_persistent_ids_and_extension_codes_are_listed(tmp_path):
    report = scan(write(tmp_path / "x.pt", list_(b"\x82\x05", text("x") + b"Q")))
    assert [(each.what, each.path) for each in report.findings] == [
        ("extension", "copyreg._inverted_registry.5"),
        ("reference", "persistent_load.str"),
    ]


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_legacy_pickle_of_any_size_is_counted_once(tmp_path, size):
    body = list_(text("x" * size), call(global_("os", "system"), NONE))
    (tmp_path / "x.pt").write_bytes(containers.legacy(stream(body)))
    report = scan(tmp_path / "x.pt")
    assert [(each.path, each.count, each.stream) for each in report.findings] == [
        ("os.system", 1, 3),
        ("os.system", 1, 3),
    ]


def test_a_fault_after_the_payload_does_not_hide_it(tmp_path):
    (tmp_path / "x.pt").write_bytes(
        containers.legacy(stream(call(global_("os", "system"), NONE))) + b"more"
    )
    report = scan(tmp_path / "x.pt")
    assert report.runs_code
    assert isinstance(report.fault, ContainerError)


def test_a_tensor_out_of_bounds_does_not_hide_a_payload_before_it(tmp_path):
    body = list_(call(global_("os", "system"), NONE), tensor(size=(99,)))
    report = scan(write(tmp_path / "x.pt", body))
    assert report.runs_code
    assert report.fault is not None


def test_what_has_no_pickle_in_it_is_an_error(tmp_path):
    (tmp_path / "x.pt").write_bytes(b"GGUF and more")
    with pytest.raises(ContainerError, match="GGUF"):
        scan(tmp_path / "x.pt")
    (tmp_path / "x.pt").write_bytes(b"PK\3\4" + bytes(100))
    with pytest.raises(ContainerError, match="does not end like a zip archive"):
        scan(tmp_path / "x.pt")


def test_a_bare_pickle_is_scanned_and_not_opened(tmp_path):
    (tmp_path / "x.pkl").write_bytes(stream(dict_(text("a"), NONE)))
    assert scan(tmp_path / "x.pkl").container == "pickle"
    assert not scan(tmp_path / "x.pkl").runs_code
    with pytest.raises((ContainerError, PickleError)):
        PickleFile.open(tmp_path / "x.pkl")
