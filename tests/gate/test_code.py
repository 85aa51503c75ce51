"""Which declarations a check is about."""

import sys
from importlib import metadata

import pytest

from aoserial.gate import check, code_of, freeze, our_code
from aoserial.schema import REGISTRY

MODULE = """
from pathlib import Path
from aoserial.schema import REGISTRY, EnumSchema, Schema, attribute

FOLDER = Path(__file__).parent / "schemas"
REGISTRY.add_enum(EnumSchema(type="{name}.Mode", symbols={{"a": "", "b": ""}}))
REGISTRY.add(
    Schema(
        type="{name}.Options",
        version=1,
        kind="object",
        fields=(
            attribute("mode", "list[enum:{name}.Mode?]"),
            attribute("domain", "enum:aoserial.ZeroDomain"),
        ),
    ),
    owner="{name}.Options",
    frozen=FOLDER,
)
"""


@pytest.fixture
def team(tmp_path, monkeypatch):
    """A torch-free module of a team, importable, and forgotten afterwards."""
    name = "gated_team"
    (tmp_path / f"{name}.py").write_text(MODULE.format(name=name))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(REGISTRY, "types", dict(REGISTRY.types))
    monkeypatch.setattr(REGISTRY, "enums", dict(REGISTRY.enums))
    yield name
    sys.modules.pop(name, None)


def test_ours_are_those_of_this_package_and_of_torchao(team):
    code_of([team])
    ours = our_code()
    assert all(name.startswith(("aoserial.", "torchao.")) for name in (*ours.types, *ours.enums))
    assert "aoserial.Int4Tensor" in ours.types
    assert "torchao.MXTensor" in ours.types


def test_a_modules_types_are_checked_in_their_own_folder_with_the_enums_they_name(team, tmp_path):
    (code,), faults = code_of([team])
    assert not faults
    assert code.types == (f"{team}.Options",)
    assert code.enums == (f"{team}.Mode",)
    assert code.foreign == ("aoserial.ZeroDomain",)
    assert code.folder == tmp_path / "schemas"
    freeze(code, [*code.types, *code.enums])
    assert (tmp_path / "schemas/aoserial.ZeroDomain/enum.json").exists()  # what $ref points to
    assert not check([code], mode="full").findings


def test_a_module_that_was_imported_before_is_checked_all_the_same(team):
    code_of([team])
    (code,), _ = code_of([team])
    assert code.types == (f"{team}.Options",)


def test_another_folder_may_be_named(team, tmp_path):
    (code,), _ = code_of([team], schemas=tmp_path / "elsewhere")
    assert code.folder == tmp_path / "elsewhere"


def test_installed_packages_are_found_by_their_entry_points(team, monkeypatch):
    point = metadata.EntryPoint(name="team", value=team, group="aoserial.types")
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point])
    (code,), faults = code_of([], entry_points=True)
    assert not faults
    assert code.types == (f"{team}.Options",)
