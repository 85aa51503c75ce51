"""What a reader does with what a writer wrote: the design's resolution table, a test a row.

Every test goes through a real file: one is saved, edited as a newer, older or broken writer would
have it, and loaded.
"""

from __future__ import annotations

import json
import warnings

import pytest
import torch
from support.files import add_tensor, drop_tensor, edit_envelope, envelope_of

import aoserial
from aoserial.errors import (
    DriftError,
    EnvelopeError,
    FieldError,
    LeftoverError,
    MissingFieldError,
    MissingPartError,
    ReservedFieldError,
    UnknownFieldError,
    UnknownTypeError,
    VersionError,
)


@aoserial.register("table.Plain", version=1)
class Plain(aoserial.VersionedTensor):
    """Two required tensors, two required attributes, optional ones, an ignorable group."""

    dims = ("N", "K")
    ignorable = ("hint_",)
    removed = {"old_scale": 1}

    qdata: torch.Tensor = aoserial.field(dtypes=("int8",), shape=("N", "K"))
    scale: torch.Tensor = aoserial.field(
        dtypes=("float32",), shape=("blocks",), renamed_from="scales"
    )
    block_size: tuple[int, ...]
    bits: int
    zero_point: torch.Tensor | None = aoserial.field(default=None, shape=("blocks",))
    variant: str = aoserial.field(absent="old", default="new")

    def dequantize(self, dtype=None):
        return (self.qdata * self.scale).to(dtype or self.dtype)


@aoserial.register("table.Moved", version=3)
class Moved(aoserial.VersionedTensor):
    qdata: torch.Tensor
    steps: str


@aoserial.migration("table.Moved", 1, 2)
def first(record):
    return record.at(2).set(steps="first")


@aoserial.migration("table.Moved", 2, 3)
def second(record):
    return record.at(3).set(steps=record.attributes["steps"] + ", second")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.safetensors"


def save(path, **more):
    weight = Plain(
        torch.arange(32, dtype=torch.int8).view(4, 8), torch.ones(4, 1), (1, 8), 8, **more
    )
    aoserial.save({"m.weight": weight, "m.bias": torch.ones(4)}, path)
    return weight


def save_moved(path, version):
    aoserial.save({"w": Moved(torch.ones(2), steps="kept")}, path)

    def change(envelope):
        envelope["schemas"][0] = {"type": "table.Moved", "version": version}
        if version == 1:
            del envelope["records"][0]["attributes"]["steps"]

    edit_envelope(path, change)


def attributes(envelope):
    return envelope["records"][0]["attributes"]


def test_an_envelope_newer_than_known_is_refused_with_what_would_read_it(path):
    save(path)
    edit_envelope(path, lambda e: e.update(envelope=2, writer="aoserial 7.1"))
    with pytest.raises(
        VersionError, match="version 2, written by aoserial 7.1.*knows up to 1.*newer"
    ):
        aoserial.load(path)


def test_an_unknown_name_in_requires_is_refused(path):
    save(path)
    edit_envelope(path, lambda e: e.update(requires=["holes"]))
    with pytest.raises(VersionError, match="requires 'holes'"):
        aoserial.load(path)


def test_a_version_above_the_head_is_refused_with_found_and_supported(path):
    save(path)
    edit_envelope(path, lambda e: e["schemas"][0].update(version=4))
    with pytest.raises(VersionError, match="table.Plain@4 is newer.*up to version 1") as caught:
        aoserial.load(path)
    assert (caught.value.found, caught.value.supported) == (4, 1)
    assert caught.value.location.name == "m.weight"


@pytest.mark.parametrize(
    ("version", "steps"), [(1, "first, second"), (2, "kept, second"), (3, "kept")]
)
def test_a_version_below_the_head_runs_the_chain_of_steps(path, version, steps):
    save_moved(path, version)
    assert aoserial.load(path)["w"].steps == steps


def test_the_same_version_with_another_fingerprint_is_refused_as_drift(path):
    save(path)
    edit_envelope(path, lambda e: e["schemas"][0].update(fingerprint="0" * 16))
    with pytest.raises(DriftError, match="another schema of the same version"):
        aoserial.load(path)


def test_an_unknown_type_is_inert_and_all_such_tensors_come_in_one_error_when_strict(path):
    save(path)
    edit_envelope(path, lambda e: e["schemas"][0].update(type="gone.Tensor"))
    with pytest.raises(UnknownTypeError, match="m.weight: no type 'gone.Tensor' is registered"):
        aoserial.load(path)
    state = aoserial.load(path, strict=False)
    assert isinstance(state["m.weight"], aoserial.InertTensor)
    assert torch.equal(state["m.bias"], torch.ones(4))


@pytest.mark.parametrize("strict", [True, False])
def test_a_missing_required_attribute_is_always_an_error(path, strict):
    save(path)
    edit_envelope(path, lambda e: attributes(e).pop("bits"))
    with pytest.raises(MissingFieldError, match="m.weight: bits: required attribute"):
        aoserial.load(path, strict=strict)


@pytest.mark.parametrize("strict", [True, False])
def test_a_missing_required_part_is_always_an_error(path, strict):
    save(path)
    edit_envelope(
        path,
        lambda e: (e["records"][0].update(parts=["qdata"]), e.update(plain=["m._weight_scale"])),
    )
    with pytest.raises(MissingFieldError, match="m.weight: scale: required tensor"):
        aoserial.load(path, strict=strict)


def test_an_optional_field_the_record_does_not_declare_takes_its_absence_default_and_is_noted(path):
    save(path, variant="old")  # as its absence means, so it is not written
    assert "variant" not in attributes(envelope_of(path))
    with aoserial.open(path) as checkpoint:
        weight = checkpoint["m.weight"]
        assert (weight.variant, weight.zero_point) == ("old", None)
        assert checkpoint.report.defaulted == {
            "table.Plain@1.variant": 1,
            "table.Plain@1.zero_point": 1,
        }


def test_new_objects_get_the_default_for_new_objects(path):
    assert save(path).variant == "new"
    assert aoserial.load(path)["m.weight"].variant == "new"


@pytest.mark.parametrize("strict", [True, False])
def test_a_part_that_is_declared_and_not_in_the_file_is_always_an_error(path, strict):
    save(path)
    drop_tensor(path, "m._weight_scale")
    edit_envelope(path, lambda e: e.pop("crc32"))
    with pytest.raises(MissingPartError, match="m.weight: scale: the record declares this part"):
        aoserial.load(path, strict=strict)


def test_an_unknown_attribute_is_an_error(path):
    save(path)
    edit_envelope(path, lambda e: attributes(e).update(rotation=3))
    with pytest.raises(
        UnknownFieldError, match="m.weight: rotation: table.Plain@1 has no attribute"
    ):
        aoserial.load(path)


def test_an_unknown_part_is_an_error(path):
    save(path)
    add_tensor(path, "m._weight_rotation", "F32", [1], b"\0" * 4)
    edit_envelope(path, lambda e: (e["records"][0]["parts"].append("rotation"), e.pop("crc32")))
    with pytest.raises(UnknownFieldError, match="m.weight: rotation: table.Plain@1 has no tensor"):
        aoserial.load(path)


def test_an_unknown_field_of_an_ignorable_group_is_kept_through_load_and_save_with_a_warning(path):
    save(path)
    add_tensor(path, "m._weight_hint_order", "F32", [1], b"\0\0\x80?")

    def change(envelope):
        envelope["records"][0]["parts"].append("hint_order")
        attributes(envelope).update(hint_tile=[16, 32])
        del envelope["crc32"]

    edit_envelope(path, change)
    with pytest.warns(aoserial.AoserialWarning, match=r"table.Plain@1.hint_\w+: kept") as told:
        state = aoserial.load(path)
    assert {warning.filename for warning in told} == {__file__}
    aoserial.save(state, path)
    record = envelope_of(path)["records"][0]
    assert record["attributes"]["hint_tile"] == [16, 32]
    assert "hint_order" in record["parts"]
    with aoserial.open(path) as checkpoint:
        assert checkpoint.record("m.weight").parts["hint_order"].read().tolist() == [1.0]


@pytest.mark.parametrize(
    ("dtype", "shape", "raw", "match"),
    [
        ("F16", [4, 1], b"\0" * 8, "scale: dtype is float16, expected float32"),
        ("F32", [4], b"\0" * 16, r"scale: shape is \[4\], expected \[4, 1\]"),
        ("F32", [1, 1], b"\0" * 4, r"scale: shape is \[1, 1\], expected \[4, 1\]"),
        ("F32", [2, 1], b"\0" * 8, r"scale: shape is \[2, 1\], expected \[4, 1\]"),
    ],
    ids=["dtype", "rank", "broadcastable", "rows"],
)
def test_a_dtype_rank_or_shape_outside_the_schema_is_an_error_and_never_cast(
    path, dtype, shape, raw, match
):
    save(path)
    drop_tensor(path, "m._weight_scale")
    add_tensor(path, "m._weight_scale", dtype, shape, raw)
    edit_envelope(path, lambda e: e.pop("crc32"))
    with pytest.raises(FieldError, match=match):
        aoserial.load(path)


def test_codes_cut_to_fewer_rows_than_the_record_says_are_an_error(path):
    save(path)
    drop_tensor(path, "m._weight_qdata")
    add_tensor(path, "m._weight_qdata", "I8", [2, 8], b"\0" * 16)
    edit_envelope(path, lambda e: e.pop("crc32"))
    with pytest.raises(FieldError, match=r"qdata: shape is \[2, 8\].*N = 4, not 2"):
        aoserial.load(path)


def test_an_attribute_of_another_type_is_an_error(path):
    save(path)
    for value in ("8", 8.0, True, None, [8]):
        edit_envelope(
            path,
            lambda e, value=value: (attributes(e).update(bits=value), e.update(header_digest="")),
        )
        with pytest.raises(FieldError, match="bits: expected int, found"):
            aoserial.load(path)


@pytest.mark.parametrize("dtype", ["int8", "bool", "float8_e4m3fn", "complex64"])
def test_a_logical_dtype_that_would_cut_values_is_an_error(path, dtype):
    save(path)
    edit_envelope(path, lambda e: e["records"][0].update(dtype=dtype))
    with pytest.raises(FieldError, match=f"m.weight: dtype: is {dtype}, but a quantized tensor"):
        aoserial.load(path)


def test_a_leftover_in_a_records_namespace_is_an_error(path):
    save(path)
    add_tensor(path, "m._weight_zero_point", "F32", [4, 1], b"\0" * 16)
    edit_envelope(path, lambda e: e.pop("crc32"))
    with pytest.raises(
        LeftoverError, match="m._weight_zero_point: looks like a part of 'm.weight'"
    ):
        aoserial.load(path)


def test_a_removed_name_that_comes_back_is_an_error(path):
    save(path)
    edit_envelope(path, lambda e: attributes(e).update(old_scale=1))
    with pytest.raises(
        ReservedFieldError, match="removed in version 1 of table.Plain; its name is reserved"
    ):
        aoserial.load(path)


def test_a_fields_older_name_is_read_as_the_field(path):
    save(path)

    def change(envelope):
        envelope["records"][0]["parts"] = ["qdata", "scales"]
        envelope["records"][0]["keys"] = {"m.weight": {"scales": "m._weight_scale"}}
        del envelope["schemas"][0]["fingerprint"]

    edit_envelope(path, change)
    with aoserial.open(path) as checkpoint:
        assert torch.equal(checkpoint["m.weight"].scale, torch.ones(4, 1))
        assert checkpoint.report.renamed == {"table.Plain@1.scales → scale": 1}


def test_a_fields_older_and_new_name_together_are_an_error(path):
    save(path)
    add_tensor(path, "m._weight_scales", "F32", [4, 1], b"\0" * 16)
    edit_envelope(path, lambda e: (e["records"][0]["parts"].append("scales"), e.pop("crc32")))
    with pytest.raises(ReservedFieldError, match="both present"):
        aoserial.load(path)


def test_several_faults_of_one_file_come_in_one_error_each_with_its_place(path):
    save(path)
    edit_envelope(path, lambda e: (attributes(e).pop("bits"), attributes(e).update(rotation=1)))
    with pytest.raises(aoserial.Faults) as caught:
        aoserial.load(path)
    assert {fault.location.field for fault in caught.value.exceptions} == {"bits", "rotation"}
    assert {fault.location.file for fault in caught.value.exceptions} == {str(path)}


def test_version_numbers_that_are_none_are_refused(path):
    for version in (-1, 2**31, "1"):
        save(path)
        edit_envelope(path, lambda e, version=version: e["schemas"][0].update(version=version))
        with pytest.raises(EnvelopeError, match="schema version must be an integer"):
            aoserial.load(path)


def test_a_file_with_nothing_unusual_loads_without_a_warning(path):
    save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        aoserial.load(path)
    assert json.loads(json.dumps(envelope_of(path)))["requires"] == []
