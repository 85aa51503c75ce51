"""torchao's metadata, both layouts, and what is done with metadata that does not add up."""

from __future__ import annotations

import json

import pytest

from aoserial.checkpoint.contents import upgrader_for
from aoserial.errors import (
    AoserialError,
    EnvelopeError,
    EraError,
    FieldError,
    LeftoverError,
    MissingFieldError,
    MissingPartError,
    OptionError,
    UnknownFieldError,
)
from aoserial.migrations import is_header_only
from aoserial.torchao import decode_layout, is_torchao

DTYPE = {"_type": "torch.dtype", "_data": "bfloat16"}
FLOAT8 = {
    "_type": "Float8Tensor",
    "_data": {
        "block_size": [1, 64],
        "mm_config": None,
        "act_quant_kwargs": None,
        "kernel_preference": {"_type": "KernelPreference", "_data": "AUTO"},
        "dtype": DTYPE,
    },
    "_tensor_data_names": ["qdata", "scale"],
}
PARTS = {"qdata": ("float8_e4m3fn", (32, 64)), "scale": ("float32", (32, 1))}


def file_of(described=FLOAT8, parts=PARTS, *, name="m.weight", prefix="m._weight_"):
    """The metadata and entries of a file that holds one quantized and one plain tensor."""
    metadata = {
        "tensor_names": json.dumps([name, "m.bias"]),
        name: json.dumps(described),
        "m.bias": json.dumps({"_type": "Tensor"}),
        "format": "pt",
    }
    entries = {prefix + part: (*kind, 0, 0) for part, kind in parts.items()}
    return metadata, entries | {"m.bias": ("bfloat16", (32,), 0, 0)}


def changed(**attributes):
    return FLOAT8 | {"_data": FLOAT8["_data"] | attributes}


def upgraded(metadata, entries, assume=None):
    (group,) = decode_layout(metadata, entries).groups
    return upgrader_for(assume).upgrade(group.template)


def test_a_file_is_torchaos_if_its_metadata_describes_the_names_it_lists():
    metadata, _ = file_of()
    assert is_torchao(metadata)
    assert not is_torchao({"format": "pt"})
    assert not is_torchao({"tensor_names": "mine, and nothing of torchao's"})


def test_names_types_shapes_and_other_metadata_are_read():
    catalog = decode_layout(*file_of())
    (group,) = catalog.groups
    assert (group.template.type, group.template.version) == ("torchao.Float8Tensor", 2)
    assert (group.template.shape, group.template.dtype) == ((32, 64), "bfloat16")
    assert group.members == {"m.weight": ("m._weight_qdata", "m._weight_scale")}
    assert catalog.plain == {"m.bias": "m.bias"}
    assert catalog.metadata == {"format": "pt"}


def test_the_layout_of_0_14_is_read():
    described = {key: value for key, value in FLOAT8.items() if key != "_tensor_data_names"}
    metadata, entries = file_of(described, prefix="m.weight:")
    entries["m.bias:_data"] = entries.pop("m.bias")
    catalog = decode_layout(metadata, entries)
    assert str(catalog.groups[0].era) == "torchao 0.14"
    assert catalog.groups[0].members == {"m.weight": ("m.weight:qdata", "m.weight:scale")}
    assert catalog.plain == {"m.bias": "m.bias:_data"}


@pytest.mark.parametrize("name", ["weight", "m.a:b", ".x", "a.b.c"])
def test_names_that_torchao_itself_stumbles_over_are_read(name):
    parent, dot, leaf = name.rpartition(".")
    catalog = decode_layout(*file_of(name=name, prefix=f"{parent}{dot}_{leaf}_"))
    assert list(catalog.groups[0].members) == [name]


def test_an_unknown_class_is_inert_and_keeps_its_fields():
    catalog = decode_layout(*file_of(FLOAT8 | {"_type": "Int3Tensor"}))
    assert catalog.groups[0].template.type == "torchao.Int3Tensor"
    assert upgrader_for(None).registry.find("torchao.Int3Tensor") is None


@pytest.mark.parametrize(
    ("described", "error", "match"),
    [
        (changed(block_size=[1, 32]), FieldError, "scale: shape is"),
        (changed(block_size=[1, 64, 1]), FieldError, "one length for each"),
        (changed(block_size=None), FieldError, "block_size: is not recorded"),
        (changed(block_size="1,64"), FieldError, "block_size: expected"),
        (changed(kernel_preference={"_type": "KernelPreference", "_data": 3}), EnvelopeError, "3"),
        (
            changed(kernel_preference={"_type": "Magic", "_data": "AUTO"}),
            FieldError,
            "expected enum",
        ),
        (changed(dtype={"_type": "torch.dtype", "_data": "load"}), AoserialError, "load"),
        (changed(surprise=1), UnknownFieldError, "surprise: .*has no attribute"),
        (
            changed(act_quant_kwargs={"_type": "QuantizeTensorToFloat8Kwargs", "_data": {}}),
            MissingFieldError,
            "granularity",
        ),
        (
            changed(
                act_quant_kwargs={
                    "_type": "QuantizeTensorToFloat8Kwargs",
                    "_data": {"granularity": {"_type": "PerGalaxy", "_data": {}}},
                }
            ),
            FieldError,
            "PerGalaxy",
        ),
        (changed(mm_config={"_type": "os.system", "_data": {}}), FieldError, "mm_config: expected"),
        (FLOAT8 | {"_tensor_data_names": []}, EnvelopeError, "lists no tensors"),
        (FLOAT8 | {"_tensor_data_names": ["qdata", "qdata"]}, EnvelopeError, "twice"),
        (
            FLOAT8 | {"_tensor_data_names": ["qdata", "scale", "x"]},
            MissingPartError,
            "'m._weight_x'",
        ),
        ({"_type": "Float8Tensor"}, EnvelopeError, "_data"),
        ({"_data": {}}, EnvelopeError, "_type"),
        ([], EnvelopeError, "object"),
    ],
)
def test_metadata_that_does_not_add_up_is_one_clear_error(described, error, match):
    with pytest.raises(error) as caught:
        upgraded(*file_of(described))
    import re

    assert re.search(match, str(caught.value))


def test_an_unknown_kernel_preference_of_a_newer_release_is_a_hint_that_falls_back():
    newer = changed(kernel_preference={"_type": "KernelPreference", "_data": "QUANTUM"})
    outcome = upgraded(*file_of(newer))
    assert outcome.record.type == "aoserial.Float8Tensor"
    assert outcome.resolutions[0][1].replaced == ["torchao.KernelPreference.QUANTUM → AUTO"]


def test_a_missing_scale_is_an_error_where_torchao_drops_the_weight():
    metadata, entries = file_of()
    del entries["m._weight_scale"]
    with pytest.raises(MissingPartError, match=r"m.weight: torchao's metadata declares"):
        decode_layout(metadata, entries)


def test_a_tensor_the_metadata_does_not_speak_of_is_an_error():
    metadata, entries = file_of()
    entries["m._weight_scale_2"] = ("float32", (1,), 0, 0)
    with pytest.raises(LeftoverError, match="m._weight_scale_2"):
        decode_layout(metadata, entries)


def test_codes_cut_to_fewer_rows_than_scales_are_an_error():
    parts = PARTS | {"qdata": ("float8_e4m3fn", (16, 64))}
    with pytest.raises(FieldError, match="scale: shape is"):
        upgraded(*file_of(parts=parts))


def test_migrating_float8_moves_no_byte():
    (group,) = decode_layout(*file_of()).groups
    assert is_header_only(group.template, upgrader_for(None).upgrade(group.template).record)


# -- what a file cannot tell -----------------------------------------------------------------------

NVFP4 = {
    "_type": "NVFP4Tensor",
    "_data": {
        "block_size": 16,
        "orig_dtype": DTYPE,
        "is_swizzled_scales": False,
        "use_triton_kernel": False,
        "act_quant_kwargs": None,
    },
    "_tensor_data_names": ["per_tensor_scale", "qdata", "scale"],
}
NVFP4_PARTS = {
    "qdata": ("uint8", (32, 32)),
    "scale": ("float8_e4m3fn", (32, 4)),
    "per_tensor_scale": ("float32", ()),
}


def test_the_newer_releases_arithmetic_is_assumed_and_reported():
    outcome = upgraded(*file_of(NVFP4, NVFP4_PARTS))
    assert outcome.record.attributes["scale_product_dtype"] == "float32"
    assert outcome.assumed == ("scale_product_dtype=float32",)


def test_the_older_releases_arithmetic_can_be_asked_for():
    outcome = upgraded(*file_of(NVFP4, NVFP4_PARTS), {"scale_product_dtype": "bfloat16"})
    assert outcome.record.attributes["scale_product_dtype"] == "bfloat16"
    assert outcome.assumed == ()


def test_nothing_is_assumed_where_it_makes_no_difference():
    described = NVFP4 | {"_tensor_data_names": ["qdata", "scale"]}
    parts = {name: kind for name, kind in NVFP4_PARTS.items() if name != "per_tensor_scale"}
    assert upgraded(*file_of(described, parts)).assumed == ()


def test_an_answer_that_is_none_or_to_nothing_is_refused():
    with pytest.raises(OptionError, match="expected 'float32' or"):
        upgraded(*file_of(NVFP4, NVFP4_PARTS), {"scale_product_dtype": "int8"})
    with pytest.raises(OptionError, match="there is .*scale_product_dtype"):
        upgrader_for({"colour": "blue"})


def test_a_question_without_a_default_refuses_the_record_and_names_the_option():
    from aoserial.migrations import Question, Steps, Upgrader, migration
    from aoserial.record import template
    from aoserial.schema import FrozenMap, Registry, Schema, tensor

    registry, steps = Registry(), Steps()
    registry.add(Schema(type="acme.T", version=2, fields=(tensor("qdata"),)), owner="test")
    asked = Question(name="isa", answers=("a", "b"), default=None, why="the file does not say")

    @migration("acme.T", 1, 2, asks=(asked,), steps=steps)
    def told(record, *, isa):
        return record.at(2)

    record = template(
        type="acme.T", version=1, shape=(1,), dtype="float32", attributes=FrozenMap(),
        parts={"qdata": ("uint8", (1,))},
    )  # fmt: skip
    with pytest.raises(
        EraError, match=r"does not say; say which with assume=\{'isa': …\}, 'a' or 'b'"
    ):
        Upgrader(registry=registry, steps=steps).upgrade(record)
    assert Upgrader(registry=registry, steps=steps, assume={"isa": "a"}).upgrade(record)
