"""The tables of what torchao pickled: paths, forms, helpers."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from support.raw import identify, instance, member, raw, upgraded

from aoserial.errors import EraError, OpaqueBytesError
from aoserial.migrations import STEPS
from aoserial.schema import REGISTRY
from aoserial.torchao import float8, integers, mx, nvfp4, settings
from aoserial.torchao.classes import CLASSES, ENUMS, OBJECTS
from aoserial.torchao.opaque import OPAQUE

FLOAT8 = "torchao.quantization.quantize_.workflows.float8.float8_tensor"
PREFERENCE = "torchao.quantization.quantize_.common.kernel_preference.KernelPreference"


def float8_fields(**more):
    return {
        "qdata": torch.zeros(32, 64).to(torch.float8_e4m3fn),
        "scale": torch.ones(32, 1),
        "block_size": (1, 64),
        "mm_config": None,
        "act_quant_kwargs": None,
        "kernel_preference": member(PREFERENCE, "auto"),
        **more,
    }


@pytest.mark.parametrize("table", [CLASSES, OBJECTS, ENUMS])
def test_no_path_stands_for_two_things(table):
    counts = Counter(path for row in table for path in row.paths)
    assert [path for path, count in counts.items() if count > 1] == []


def test_every_form_that_the_tables_name_is_declared_and_has_a_step():
    for row in CLASSES:
        for form in row.forms:
            type_id = form.type or row.type
            assert REGISTRY.schema(type_id, form.version) is not None, type_id
            assert STEPS.find(type_id, form.version), type_id


def test_every_helper_of_an_inference_weight_is_declared():
    rows = [row for family in (float8, integers, mx, nvfp4, settings) for row in family.OBJECTS]
    names = {name for row in rows for name in (row.type, *row.older.values())}
    assert names <= REGISTRY.types.keys()
    assert {row.type for row in ENUMS} <= REGISTRY.enums.keys()
    for row in ENUMS:
        assert set(row.members.values()) <= REGISTRY.enums[row.type].symbols.keys()


@pytest.mark.parametrize("module", ["torchao.quantization", FLOAT8])
def test_a_class_is_known_by_its_file_and_by_where_it_said_it_was(module):
    record = upgraded(raw(f"{module}.Float8Tensor", (32, 64), **float8_fields())).record
    assert record.type == "aoserial.Float8Tensor"


def test_bounds_on_a_float8_weight_of_0_13_are_dropped_and_those_of_the_activation_kept():
    kwargs = instance(
        f"{FLOAT8}.QuantizeTensorToFloat8Kwargs",
        float8_dtype="float8_e4m3fn",
        granularity=instance("torchao.quantization.granularity.PerRow"),
        mm_config=instance(
            "torchao.float8.inference.Float8MMConfig", **{"0": False, "1": True, "2": False}
        ),
        hp_value_lb=0.5,
        hp_value_ub=None,
        kernel_preference=member(PREFERENCE, "fbgemm"),
    )
    fields = float8_fields(act_quant_kwargs=kwargs, hp_value_lb=0.5, hp_value_ub=None)
    outcome = upgraded(raw("torchao.quantization.Float8Tensor", (32, 64), **fields))
    assert [step.name for step in outcome.steps] == [
        "drop_bounds_of_the_weight",
        "leave_torchao_float8",
    ]
    activation = outcome.record.attributes["activation"]
    assert activation["lower_bound"] == 0.5
    assert activation["kernel"]["preference"].name == "fbgemm"
    assert activation["kernel"]["matmul"]["fast_accumulation"]
    assert activation["granularity"]["dim"] == -1


def test_a_kernel_preference_that_is_not_known_yet_falls_back():
    fields = float8_fields(kernel_preference=member(PREFERENCE, "quantum"))
    outcome = upgraded(raw("torchao.quantization.Float8Tensor", (32, 64), **fields))
    assert outcome.record.attributes["kernel"] is None
    assert outcome.resolutions[0][1].replaced


def test_a_weight_whose_output_is_quantized_is_read_with_a_loss():
    module = "torchao.prototype.quantization.float8_static_quant.prototype_float8_tensor"
    fields = float8_fields(output_act_quant_kwargs=None, act_quant_scale=None)
    for scale, lossy in ((None, False), (torch.ones(1, 1), True)):
        given = fields | {"output_act_quant_scale": scale}
        outcome = upgraded(raw(f"{module}.PrototypeFloat8Tensor", (32, 64), **given))
        assert bool(outcome.lossy) is lossy


SAMPLES = {"int": 4, "int?": None, "bool": False, "str": "symmetric", "any": "x", "list[int]?": ()}


@pytest.mark.parametrize("opaque", [row for row in OPAQUE if row.paths], ids=lambda row: row.name)
def test_bytes_in_the_order_of_one_kernel_say_whose_it_is(opaque):
    fields = {
        field.name: SAMPLES[field.type]
        if field.kind == "attribute"
        else torch.zeros(1, dtype=getattr(torch, next(iter(field.dtypes), "float32")))
        for field in opaque.fields
        if field.required
    }
    for path in opaque.paths:
        with pytest.raises(OpaqueBytesError, match=opaque.whose):
            upgraded(raw(path, (4, 8), **fields))


def test_the_settings_of_gemlite_are_kept_as_texts():
    path = "torchao.prototype.quantization.uintx.uintx_bit_packed_tensor.UIntxBitPackedTensor"
    settings = instance("builtins.dict", in_features=8, meta_args=(1, 2))
    fields = {name: torch.zeros(1) for name in ("qdata", "scale", "zero_point")}
    given = raw(path, (4, 8), gemlite_kwargs=settings, bit_width=4, group_size=None, **fields)
    kept = identify(given).attributes["gemlite_kwargs"]
    assert kept == (("in_features", "8"), ("meta_args", "(1, 2)"))


def test_fields_of_no_form_name_the_candidates():
    with pytest.raises(EraError, match=r"fits none .* 0\.13") as caught:
        identify(raw("torchao.quantization.Float8Tensor", (32, 64), _data=torch.ones(1)))
    assert caught.value.candidates == ("0.13", "0.14 and later")


def test_a_field_that_torchao_never_had_is_refused():
    with pytest.raises(Exception, match="'secret'"):
        upgraded(raw("torchao.quantization.Float8Tensor", (32, 64), **float8_fields(secret=1)))
