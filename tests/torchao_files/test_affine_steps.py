"""Forms of AffineQuantizedTensor and of wrappers that no file at hand has, made by hand."""

from __future__ import annotations

import pytest
import torch
from support.raw import identify

from aoserial.errors import EraError, FieldError, OpaqueBytesError
from aoserial.kernels.arithmetic import pack_nibbles
from aoserial.migrations import Upgrader
from aoserial.record import Record
from aoserial.schema import FrozenMap, Nested, Symbol
from aoserial.storage import TensorPart
from aoserial.tensors import from_record

AQT = "torchao.dtypes.affine_quantized_tensor.AffineQuantizedTensor"
OLD = "torchao.dtypes.affine_quantized_tensor"
UINTX = "torchao.dtypes.uintx"
DOMAIN = "pickle.torchao.quantization.quant_primitives.ZeroPointDomain"
QUANT_API = "torchao.quantization.quant_api"


def raw(path: str, parts: dict, *, shape=(4, 8), dtype="float32", **attributes) -> Record:
    return Record(
        type=f"pickle.{path}",
        version=1,
        shape=shape,
        dtype=dtype,
        attributes=FrozenMap(attributes),
        parts={name: TensorPart(tensor) for name, tensor in parts.items()},
    )


def objekt(path: str, **fields) -> Nested:
    return Nested(f"pickle.{path}", 1, FrozenMap(fields))


def within(record: Record) -> Nested:
    """A raw record as a field of another."""
    inside = {"(shape)": record.shape, "(dtype)": record.dtype}
    return Nested(record.type, 1, FrozenMap(inside | dict(record.attributes)))


def plain(zero: str = "1", *, codes: torch.Tensor | None = None, **changes) -> Record:
    """int8 in rows, as 0.7 to 0.17 had it; with codes, scales and zero points that tell."""
    impl = objekt(f"{UINTX}.plain_layout.PlainAQTTensorImpl", **{"(shape)": (4, 8)})
    fields = {"block_size": (1, 8), "quant_min": None, "quant_max": None} | changes
    parts = {
        "tensor_impl.int_data": CODES if codes is None else codes,
        "tensor_impl.scale": SCALE,
        "tensor_impl.zero_point": ZERO,
    }
    return raw(AQT, parts, tensor_impl=impl, zero_point_domain=Symbol(DOMAIN, zero), **fields)


CODES = torch.arange(-16, 16, dtype=torch.int8).reshape(4, 8)
SCALE = torch.tensor([0.5, 0.25, 2.0, 1.0])
ZERO = torch.tensor([1, -2, 0, 3])
VALUES = (CODES.float() - ZERO[:, None]) * SCALE[:, None]


def upgraded(record: Record, **assume: str) -> Record:
    found = identify(record)
    assert found is not None
    return Upgrader(assume=assume).upgrade(found).record


def values(record: Record, **assume: str) -> torch.Tensor:
    return from_record(upgraded(record, **assume)).dequantize()


def wrapped(path: str, weight: Record, parts: dict | None = None, **attributes) -> Record:
    held = {f"original_weight_tensor.{name}": part.tensor for name, part in weight.parts.items()}
    return raw(path, held | (parts or {}), original_weight_tensor=within(weight), **attributes)


DYNAMIC = "torchao.quantization.linear_activation_quantized_tensor.LinearActivationQuantizedTensor"
STATIC = (
    "torchao.quantization.weight_tensor_linear_activation_quantization."
    "WeightTensorWithLinearActivationQuantizationMetadata"
)
SCALED = (
    "torchao.quantization.linear_activation_scale.WeightTensorWithLinearActivationScaleMetadata"
)
EMPTY = objekt("builtins.dict")


def function(name: str) -> Symbol:
    return Symbol("pickle.name", name)


def test_the_first_form_has_its_codes_itself():
    parts = {"int_data": CODES, "scale": SCALE, "zero_point": ZERO}
    first = raw(
        "torchao.quantization.subclass.AffineQuantizedTensor",
        parts,
        block_size=(1, 8),
        quant_min=None,
        quant_max=None,
        zero_point_domain=Symbol(DOMAIN, "0"),
    )
    assert torch.equal(values(first), VALUES)


def test_the_number_of_a_zero_point_domain_depends_on_the_era():
    parts = {"int_data": CODES.int() + 16, "scale": SCALE, "zero_point": SCALE}
    fields = {"block_size": (1, 8), "quant_min": 0, "quant_max": 31}
    path = "torchao.quantization.subclass.AffineQuantizedTensor"
    old = raw(path, parts, zero_point_domain=Symbol(DOMAIN, "1"), **fields)
    assert upgraded(old).attributes["zero_domain"].name == "float"
    assert torch.equal(values(old), CODES * SCALE[:, None] + SCALE[:, None])


@pytest.mark.parametrize(
    ("limits", "kind", "bits"),
    [
        ((None, None), "aoserial.Int8Tensor", None),
        ((-127, 127), "aoserial.Int8Tensor", None),
        ((-64, 63), "aoserial.IntxTensor", 7),
        ((-16, 15), "aoserial.IntxTensor", 5),
        ((-15, 15), "aoserial.IntxTensor", 5),
    ],
)
def test_the_range_of_codes_decides_what_they_become(limits, kind, bits):
    made = upgraded(plain(quant_min=limits[0], quant_max=limits[1]))
    assert (made.type, made.attributes.get("bit_width")) == (kind, bits)
    assert torch.equal(from_record(made).dequantize(), VALUES)


def test_unsigned_codes_are_moved_down_with_their_zero_points():
    codes = (CODES.int() + 16).to(torch.uint8)
    record = plain(codes=codes, quant_min=0, quant_max=31)
    made = upgraded(record)
    assert made.attributes["bit_width"] == 5
    expected = (codes.float() - ZERO[:, None]) * SCALE[:, None]
    assert torch.equal(from_record(made).dequantize(), expected)


def test_a_zero_point_in_a_domain_that_has_none_is_refused():
    with pytest.raises(FieldError, match="domain is NONE"):
        upgraded(plain(zero="3"))


def test_codes_of_a_range_that_no_type_has_are_refused():
    with pytest.raises(FieldError, match="256 codes"):
        upgraded(plain(codes=CODES.int()))


def test_a_transposed_plain_weight_is_what_its_shape_says():
    impl = objekt(f"{UINTX}.plain_layout.PlainAQTTensorImpl")
    parts = {"int_data": CODES.t(), "scale": SCALE, "zero_point": ZERO}
    turned = raw(
        AQT,
        {f"tensor_impl.{name}": tensor for name, tensor in parts.items()},
        shape=(8, 4),
        tensor_impl=impl,
        block_size=(8, 1),
        quant_min=None,
        quant_max=None,
        zero_point_domain=Symbol(DOMAIN, "1"),
    )
    assert torch.equal(values(turned), VALUES.t())


def float8(data: torch.Tensor, scale: torch.Tensor, *, transposed: bool, **fields) -> Record:
    impl = objekt(
        f"{OLD}.Float8AQTLayout",
        transposed=transposed,
        layout_type=objekt(f"{OLD}.Float8LayoutType", mm_config=None),
    )
    parts = {"layout_tensor.float8_data": data, "layout_tensor.scale": scale}
    limits = {"quant_min": -448, "quant_max": 448, "zero_point_domain": None}
    return raw(AQT, parts, layout_tensor=impl, **limits, **fields)


def test_a_flipped_flag_moves_no_float8_code():
    data = torch.randn(4, 8).to(torch.float8_e4m3fn)
    record = float8(data, SCALE, transposed=True, block_size=(1, 8))
    assert torch.equal(values(record), data.float() * SCALE[:, None])


def test_a_square_float8_weight_that_may_lie_either_way_is_refused():
    data, scale = torch.randn(8, 8).to(torch.float8_e4m3fn), torch.tensor(0.5)
    fields = {"shape": (8, 8), "block_size": (8, 8)}
    assert values(float8(data, scale, transposed=False, **fields)).shape == (8, 8)
    with pytest.raises(FieldError, match="rows from columns"):
        values(float8(data, scale, transposed=True, **fields))


def xpu(parts: dict, zero: str) -> Record:
    impl = objekt(
        f"{UINTX}.int4_xpu_layout.Int4XPUAQTTensorImpl",
        transposed=False,
        scale_and_zero=None,
        _layout=objekt(f"{UINTX}.int4_xpu_layout.Int4XPULayout"),
    )
    return raw(
        AQT,
        {f"tensor_impl.{name}": tensor for name, tensor in parts.items()},
        tensor_impl=impl,
        block_size=(1, 4),
        quant_min=0,
        quant_max=15,
        zero_point_domain=Symbol(DOMAIN, zero),
    )


def test_both_zero_points_of_xpu_are_read():
    codes = torch.arange(32, dtype=torch.uint8).reshape(4, 8) % 16
    packed = pack_nibbles(codes).view(torch.int32)
    scale, zero = torch.rand(2, 4), torch.arange(8, dtype=torch.int8).reshape(2, 4)
    found = values(xpu({"packed_weight": packed, "scale": scale, "zero": zero}, "1"))
    wide = [tensor.t().repeat_interleave(4, 1) for tensor in (scale, zero)]
    assert torch.equal(found, (codes - wide[1]) * wide[0])
    both = torch.stack([scale, scale + 1], dim=-1)
    found = values(xpu({"packed_weight": packed, "scale_and_zero": both}, "2"))
    assert torch.equal(found, (codes.float() - 8) * wide[0] + (wide[0] + 1))


def test_a_layout_of_a_vendor_stays_inert_and_says_why():
    impl = objekt(f"{UINTX}.gemlite_layout.GemliteAQTTensorImpl", gemlite_kwargs=EMPTY)
    parts = {"packed_weight": CODES, "scale": SCALE, "zero_point": SCALE}
    record = raw(
        AQT,
        {f"tensor_impl.{name}": tensor for name, tensor in parts.items()},
        tensor_impl=impl,
        block_size=(1, 8),
        quant_min=0,
        quant_max=15,
        zero_point_domain=Symbol(DOMAIN, "1"),
    )
    with pytest.raises(OpaqueBytesError, match="gemlite packed"):
        upgraded(record)


def test_parts_that_a_layout_does_not_have_are_refused():
    record = plain()
    with pytest.raises(FieldError, match="PlainAQTTensorImpl has int_data, scale"):
        upgraded(record.put(**{"tensor_impl.meta": TensorPart(SCALE)}))


def test_fields_of_no_form_are_refused():
    with pytest.raises(EraError, match="none of the forms"):
        identify(raw(AQT, {"scale": SCALE}, block_size=(1, 8)))


@pytest.mark.parametrize("module", ["__builtin__", "builtins"])
def test_the_bound_method_of_smoothquant_is_known(module):
    quantizer = objekt(
        "torchao.prototype.smoothquant.api._ActQuantizer", target_dtype="int8", quant_min=-127
    )
    bound = objekt(f"{module}.getattr", **{"0": quantizer, "1": "dynamic_quantize"})
    tensor = from_record(
        upgraded(wrapped(DYNAMIC, plain(), input_quant_func=bound, quant_kwargs=EMPTY))
    )
    assert torch.equal(tensor.dequantize(), VALUES)
    assert tensor.activation.narrow_range
    assert tensor.activation.granularity.kind.name == "token"


def test_static_scales_and_zero_points_come_along():
    bound = objekt(
        "builtins.getattr",
        **{
            "0": objekt(
                "torchao.prototype.smoothquant.api._ActQuantizer",
                target_dtype="int8",
                quant_min=-127,
            ),
            "1": "static_quantize",
        },
    )
    parts = {"scale": torch.tensor(0.1), "zero_point": torch.tensor(3)}
    static = wrapped(STATIC, plain(), parts, input_quant_func_static=bound, quant_kwargs=EMPTY)
    scaled = wrapped(SCALED, static, {"scale": torch.arange(1.0, 9.0)})
    tensor = from_record(upgraded(scaled))
    assert torch.equal(tensor.dequantize(), VALUES)
    assert (tensor.act_scale, tensor.act_zero_point) == (parts["scale"], parts["zero_point"])
    assert tensor.activation.kind.name == "static"
    assert torch.equal(tensor.act_pre_scale, torch.arange(1.0, 9.0))
    assert tensor.act_pre_scale_op.name == "divide"


def test_a_cast_of_the_activation_is_kept():
    name = function("torchao.quantization.autoquant._to_bfloat16")
    path = "torchao.quantization.autoquant.AQInt4G32WeightOnlyQuantizedLinearWeight"
    tensor = from_record(
        upgraded(wrapped(path, plain(), input_quant_func=name, quant_kwargs=EMPTY))
    )
    assert (tensor.activation.kind.name, tensor.activation.dtype) == ("cast", torch.bfloat16)


def test_a_function_that_is_not_known_leaves_the_weight_inert():
    record = wrapped(
        DYNAMIC, plain(), input_quant_func=function("__main__.mine"), quant_kwargs=EMPTY
    )
    with pytest.raises(OpaqueBytesError, match="__main__.mine"):
        upgraded(record)


def test_a_wrapper_around_a_tensor_that_is_not_known_is_not_known():
    inner = raw("acme.Tensor", {"codes": CODES})
    assert identify(wrapped(SCALED, inner, {"scale": SCALE})) is None


def test_a_weight_cannot_have_two_scales_of_its_activation():
    once = wrapped(SCALED, plain(), {"scale": torch.ones(8)})
    with pytest.raises(FieldError, match="wrapped in no release"):
        upgraded(wrapped(SCALED, once, {"scale": torch.ones(8)}))


def chain(*weights: Record) -> Record:
    head, *rest = weights
    parts = {f"head_tensor.{name}": part.tensor for name, part in head.parts.items()}
    tail = None
    if rest:
        behind = chain(*rest)
        parts |= {f"tensor_tail.{name}": part.tensor for name, part in behind.parts.items()}
        tail = within(behind)
    return raw(
        "torchao.prototype.moe_quant.utils.FakeExtraDimTensor",
        parts,
        shape=(len(weights), *head.shape),
        num_tensors=len(weights),
        tensor_list=(),
        head_tensor=within(head),
        tensor_tail=tail,
    )


def test_experts_become_one_weight():
    other = plain(codes=-CODES)
    made = values(chain(plain(), other, plain()))
    assert torch.equal(made[0], VALUES)
    assert torch.equal(made[1], (-CODES.float() - ZERO[:, None]) * SCALE[:, None])
    assert torch.equal(made[2], VALUES)


def test_experts_of_several_kinds_are_refused():
    with pytest.raises(FieldError, match="several kinds"):
        upgraded(chain(plain(), plain(quant_min=-16, quant_max=15)))


def test_a_watched_weight_is_the_weight_and_its_settings():
    weight = torch.randn(4, 8)
    record = raw(
        "torchao.quantization.qat.affine_fake_quantized_tensor.AffineFakeQuantizedTensor",
        {"original_tensor": weight},
        apply_fake_quant_fn=function("torchao.mine"),
        fake_quant_enabled=True,
    )
    found = identify(record)
    outcome = Upgrader().upgrade(found)
    assert not outcome.lossy
    assert torch.equal(outcome.record.parts["weight"].read(), weight)
    assert ("apply_fake_quant_fn", "torchao.mine") in outcome.record.attributes["settings"]


def test_what_was_observed_is_lost_and_said_to_be():
    record = raw(
        "torchao.quantization.linear_activation_weight_observed_tensor."
        "LinearActivationWeightObservedTensor",
        {"original_weight_tensor": SCALE.expand(8, 4).t(), "input_observer.min_val": SCALE},
        input_observer=objekt("torchao.quantization.observer.AffineQuantizedMinMaxObserver"),
        weight_observer=None,
    )
    outcome = Upgrader().upgrade(identify(record))
    assert [step.lossy for step in outcome.lossy] == ["what was observed so far"]
    assert list(outcome.record.parts) == ["weight"]


def test_codes_that_stand_for_odd_halves_are_read():
    codes = torch.arange(32, dtype=torch.int8).reshape(4, 8) % 4 - 2
    parts = {"int_data": codes, "scale": SCALE, "zero_point": torch.full((4,), -0.5)}
    record = raw(
        "torchao.prototype.parq.quant.quant_api.StretchedAffineQuantizedTensor",
        {f"tensor_impl.{name}": tensor for name, tensor in parts.items()},
        tensor_impl=objekt(f"{UINTX}.q_dq_layout.QDQTensorImpl"),
        block_size=(1, 8),
        quant_min=-1.5,
        quant_max=1.5,
        zero_point_domain=Symbol(DOMAIN, "2"),
    )
    assert upgraded(record).attributes["bit_width"] == 2
    assert torch.equal(values(record), (codes + 0.5) * SCALE[:, None])


def test_tiles_of_experts_are_undone_one_by_one():
    torch.manual_seed(0)
    packed = torch.randint(-(2**31), 2**31 - 1, (2, 1, 2, 32, 2), dtype=torch.int32)
    both = torch.rand(2, 4, 8, 2)

    def tiles(packed, both, *lead):
        impl = objekt(
            f"{UINTX}.tensor_core_tiled_layout.TensorCoreTiledAQTTensorImpl",
            transposed=False,
            _layout=objekt(f"{UINTX}.tensor_core_tiled_layout.TensorCoreTiledLayout"),
        )
        return raw(
            AQT,
            {"tensor_impl.packed_weight": packed, "tensor_impl.scale_and_zero": both},
            shape=(*lead, 6, 128),
            tensor_impl=impl,
            block_size=(*(1 for _ in lead), 1, 32),
            quant_min=0,
            quant_max=15,
            zero_point_domain=Symbol(DOMAIN, "2"),
        )

    together = values(tiles(packed, both, 2))
    for expert in range(2):
        assert torch.equal(together[expert], values(tiles(packed[expert], both[expert])))
