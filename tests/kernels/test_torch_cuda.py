"""torch's GPU operators: what is asked of them, and on CPU tensors what they compute.

`_scaled_mm` and `_int_mm` of the CPU follow the same contracts; FakeTensorMode holds shapes,
strides and scales against the rules of the CUDA ones. tests/gpu runs them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.kernel_weights import (
    BLOCK_ACTIVATION,
    float8_activation,
    int8_activation,
    weight_of,
    with_activation,
    with_part,
)
from torch._subclasses.fake_tensor import FakeTensorMode

from aoserial.errors import PackingError
from aoserial.kernels import DeviceInfo, Packed, Reference, Weight
from aoserial.kernels.arithmetic import tile, untile
from aoserial.kernels.torch_cuda import TorchCuda

SM89, SM90 = DeviceInfo.named("sm89"), DeviceInfo.named("sm90")
BACKEND = TorchCuda()
HALF_ULP = 2.0**-24  # of float32, relative


def reference(x: torch.Tensor, weight: Weight, bias: torch.Tensor | None = None) -> torch.Tensor:
    return Reference().linear(x, Packed(spec=weight.spec, parts=weight.parts), bias)


def assert_same_but_for_sums(x: torch.Tensor, weight: Weight, device: DeviceInfo) -> None:
    """Holds a layer against the reference, which multiplies the same codes.

    Both sum K products in float32, in some order, and here the scales enter after the sum. So each
    is off by at most K + 3 roundings of Σ |x| |w|, of which there is no more than K max|x| max|w|.
    """
    assert BACKEND.supports(weight.spec, device) is None
    bias = torch.randn(weight.spec.shape[0])
    packed = BACKEND.pack(weight, device)
    found, expected = BACKEND.linear(x, packed, bias), reference(x, weight, bias)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    columns = weight.spec.shape[1]
    absolute = replace(weight.spec, activation=None)
    w = Reference().linear(torch.eye(columns), Packed(spec=absolute, parts=weight.parts))
    terms = columns * (1 + x.abs().max().item() if x.numel() else 0) * w.abs().max().item()
    bound = 2 * (columns + 3) * HALF_ULP * terms
    assert (found.double() - expected.double()).abs().le(bound).all()


@pytest.mark.parametrize("rows", [0, 1, 3, 33, 256])
@pytest.mark.parametrize("device", [SM89, SM90], ids=["scales after", "scales in the operator"])
@pytest.mark.parametrize("of_x", ["tensor", "row"])
@pytest.mark.parametrize("of_w", ["tensor", "row"])
def test_float8_layers_are_the_references_but_for_the_order_of_sums(
    of_w: str, of_x: str, device: DeviceInfo, rows: int
) -> None:
    weight = with_activation(weight_of(f"float8 {of_w}", (48, 80)), float8_activation(of_x))
    assert_same_but_for_sums(torch.randn(rows, 80), weight, device)


def test_a_float8_layer_takes_a_stored_scale_a_pre_scale_and_any_rank() -> None:
    activation = float8_activation("tensor", static=True)
    weight = with_activation(weight_of("float8 tensor", (32, 64)), activation)
    weight = with_part(weight, "act_scale", torch.tensor(0.01))
    weight = with_part(weight, "act_pre_scale", torch.rand(64) + 0.5)
    for x in (torch.randn(64), torch.randn(2, 3, 64)):
        assert_same_but_for_sums(x, weight, SM90)


def test_bounds_of_an_activation_bound_its_scale() -> None:
    activation = float8_activation("row", lower_bound=0.5, upper_bound=1.0)
    weight = with_activation(weight_of("float8 row", (32, 64)), activation)
    assert_same_but_for_sums(torch.randn(5, 64) * 3, weight, SM90)


def test_nan_in_activation_or_codes_comes_out_where_it_should() -> None:
    weight = with_activation(weight_of("float8 row", (32, 64)), float8_activation("row"))
    weight.parts["qdata"].view(torch.uint8)[3, 5] = 0x7F
    x = torch.randn(4, 64)
    x[1, 2], x[2, 7] = torch.nan, torch.inf
    found = BACKEND.linear(x, BACKEND.pack(weight, SM90))
    assert torch.equal(found.isnan(), reference(x, weight).isnan())


@pytest.mark.parametrize("rows", [0, 1, 3, 33])
@pytest.mark.parametrize(
    "activation",
    [
        int8_activation("tensor"),
        int8_activation("token", narrow_range=True, least_scale=1e-5),
        int8_activation("row", mapping="asymmetric"),
        int8_activation("row", reduce_range=True),
    ],
    ids=lambda spec: f"{spec.granularity}-{spec.mapping}",
)
def test_int8_layers_sum_codes_exactly(activation: object, rows: int) -> None:
    weight = with_activation(weight_of("int8 row", (24, 40)), activation)
    x = torch.randn(rows, 40, dtype=torch.float64).float() + 0.3
    assert_same_but_for_sums(x, weight, SM90)


def test_int8_takes_a_zero_point_of_zeros_and_no_other() -> None:
    weight = with_activation(weight_of("int8 row", (24, 40)), int8_activation("row"))
    zeros = with_part(weight, "zero_point", torch.zeros(24, 1, dtype=torch.int64))
    x = torch.randn(5, 40)
    assert torch.equal(
        BACKEND.linear(x, BACKEND.pack(zeros, SM90)), BACKEND.linear(x, BACKEND.pack(weight, SM90))
    )
    with pytest.raises(PackingError, match="zero_point is not all 0"):
        BACKEND.pack(with_part(weight, "zero_point", torch.ones(24, 1, dtype=torch.int8)), SM90)


def on_fake_cuda(packed: Packed) -> Packed:
    parts = {
        name: torch.empty_strided(part.shape, part.stride(), dtype=part.dtype, device="cuda")
        for name, part in packed.parts.items()
    }
    return replace(packed, parts=parts)


@pytest.mark.parametrize("rows", [0, 1, 17, 256])
@pytest.mark.parametrize(
    ("name", "activation", "device"),
    [
        ("float8 tensor", float8_activation("tensor"), SM89),
        ("float8 row", float8_activation("row"), SM89),
        ("float8 row", float8_activation("row"), SM90),
        ("float8 128x128", BLOCK_ACTIVATION, SM90),
        ("int8 row", int8_activation("row", mapping="asymmetric"), SM90),
        ("int4 g128, float zero point", None, SM90),
    ],
)
def test_cuda_operators_are_called_as_their_rules_want(
    name: str, activation: object, device: DeviceInfo, rows: int
) -> None:
    weight = with_activation(weight_of(name, (384, 640)), activation)
    assert BACKEND.supports(weight.spec, device) is None
    packed = BACKEND.pack(weight, device)
    with FakeTensorMode():
        x = torch.empty(rows, 640, dtype=torch.bfloat16, device="cuda")
        bias = torch.empty(384, dtype=torch.bfloat16, device="cuda")
        y = BACKEND.linear(x, on_fake_cuda(packed), bias)
    assert (y.shape, y.dtype, y.device.type) == ((rows, 384), torch.bfloat16, "cuda")


def test_block_scales_are_padded_along_k_to_a_multiple_of_four() -> None:
    weight = with_activation(weight_of("float8 128x128", (384, 640)), BLOCK_ACTIVATION)
    scale = BACKEND.pack(weight, SM90).parts["operator_scale"]
    assert (scale.shape, scale.stride()) == ((8, 3), (1, 8))
    assert torch.equal(scale[:5], weight.parts["scale"].t())
    assert scale[5:].eq(0).all()


@pytest.mark.parametrize("inner", [2, 4, 8])
def test_tiles_are_in_the_order_that_torch_documents(inner: int) -> None:
    columns, rows = 3 * 16 * inner, 16
    bytes_ = torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8)
    tiles = tile(bytes_, inner)
    assert tiles.shape == (rows // 8, 3, 32, inner // 2)
    codes = [[(int(b) & 15, int(b) >> 4) for b in row] for row in bytes_]
    for n, k, lane, j in [(0, 0, 0, 0), (1, 2, 31, inner // 2 - 1), (1, 1, 13, 0)]:
        first = k * 8 * inner + j * 16 + lane % 4
        four = [codes[n * 8 + lane // 4][first + 4 * i] for i in range(4)]
        nibbles = [even for even, _ in four] + [odd for _, odd in four]
        expected = sum(nibble << 4 * place for place, nibble in enumerate(nibbles))
        assert int(tiles[n, k, lane, j]) % 2**32 == expected
    assert torch.equal(untile(tiles), bytes_)


@pytest.mark.parametrize("columns", [128, 192, 160], ids=["eight", "four", "two"])
def test_a_packed_int4_weight_comes_back_byte_for_byte(columns: int) -> None:
    weight = weight_of("int4 g128, float zero point", (16, 128))
    weight = Weight(
        spec=replace(weight.spec, shape=(16, columns), block_size=(1, 32)),
        parts={
            "qdata": torch.randint(0, 256, (16, columns // 2), dtype=torch.uint8),
            "scale": torch.rand(16, columns // 32).bfloat16(),
            "zero_point": torch.randn(16, columns // 32).bfloat16(),
        },
    )
    assert BACKEND.supports(weight.spec, SM90) is None
    packed = BACKEND.pack(weight, SM90)
    assert "qdata" not in packed.parts
    pairs = packed.parts["scales_and_zeros"]
    assert torch.equal(
        pairs[1, 3], torch.stack([weight.parts[n][3, 1] for n in ("scale", "zero_point")])
    )
    back = BACKEND.unpack(packed)
    assert tuple(back.parts) == weight.spec.parts
    assert all(torch.equal(back.parts[name], weight.parts[name]) for name in weight.parts)


@pytest.mark.parametrize(
    ("domain", "scale", "zero_point", "expected"),
    [
        ("none", 0.3, 5.0, 0.0),  # which takes no zero point
        ("float", 0.3, 0.7, 0.7),
        ("int", 0.25, 3.0, 1.25),
        ("int", 0.3, 3.0, None),  # 5 times 0.3 has more digits than bfloat16
        ("offset", 0.25, -2.0, 0.0),
        ("offset", 0.3, -0.01, None),
    ],
)
def test_zero_points_go_into_tinygemm_as_they_are_or_not_at_all(
    domain: str, scale: float, zero_point: float, expected: float | None
) -> None:
    weight = weight_of("int4 g128, float zero point", (8, 128))
    parts = {
        "qdata": weight.parts["qdata"],
        "scale": torch.full((8, 1), scale).bfloat16(),
        "zero_point": torch.full((8, 1), zero_point).bfloat16(),
    }
    weight = Weight(spec=replace(weight.spec, zero_domain=domain), parts=parts)
    if expected is None:
        with pytest.raises(PackingError, match="not all bfloat16"):
            BACKEND.pack(weight, SM90)
    else:
        zeros = BACKEND.pack(weight, SM90).parts["scales_and_zeros"][..., 1]
        assert zeros.eq(torch.tensor(expected).bfloat16()).all()


def test_scales_beyond_bfloat16_are_refused_by_tinygemm() -> None:
    weight = weight_of("int4 g128", (8, 128))
    parts = {**weight.parts, "scale": torch.full((8, 1), 1.0 + 2**-12)}
    with pytest.raises(PackingError, match="scale is float32"):
        BACKEND.pack(Weight(spec=weight.spec, parts=parts), SM90)


def test_an_activation_that_is_not_bfloat16_meets_int4_the_slow_way_and_is_told_so() -> None:
    weight = weight_of("int4 g128", (8, 128))
    x = torch.randn(3, 128)
    with pytest.warns(UserWarning, match="packed for bfloat16"):
        found = BACKEND.linear(x, BACKEND.pack(weight, SM90))
    assert torch.equal(found, reference(x, weight))


E5M2 = replace(float8_activation("row"), dtype="float8_e5m2")
ROW = with_activation(weight_of("float8 row"), float8_activation("row")).spec
INT8 = weight_of("int8 row, dynamic").spec
INT4 = weight_of("int4 g128").spec


@pytest.mark.parametrize(
    ("spec", "device", "sentence"),
    [
        (replace(ROW, activation=None), "sm90", "float8 activations alone"),
        (ROW, "sm80", "from sm89 on"),
        (ROW, "gfx942", "multiplies float8_e4m3fnuz"),
        (replace(ROW, data_dtype="float8_e5m2", activation=E5M2), "sm90", "e5m2 by e5m2"),
        (replace(ROW, shape=(120, 256)), "sm90", "multiples of 16, not 120 and 256"),
        (replace(ROW, shape=(128, 264)), "sm90", "multiples of 16, not 128 and 264"),
        (replace(ROW, block_size=(1, 32)), "sm90", "no scales of 1x32"),
        (
            replace(ROW, activation=float8_activation("axis", dim=0)),
            "sm90",
            "row by another axis of the activation",
        ),
        (weight_of("float8 128x128, dynamic").spec, "sm100", "on sm90 alone"),
        (
            replace(weight_of("float8 128x128, dynamic").spec, shape=(128, 272)),
            "sm90",
            "multiples of 128",
        ),
        (replace(INT8, activation=None), "sm90", "int8 activations alone"),
        (INT8, "xpu", "from sm80 on"),
        (replace(INT8, shape=(124, 256)), "sm90", "multiples of 8"),
        (replace(INT8, shape=(8, 65544), block_size=(1, 65544)), "sm90", "may pass int32"),
        (replace(INT8, block_size=(1, 32)), "sm90", "before the sum"),
        (replace(INT8, activation=int8_activation("axis", dim=0)), "sm90", "of its rows"),
        (replace(INT8, activation=int8_activation("row", skip_decode=True)), "sm90", "another"),
        (INT4, "gfx942", "another order"),
        (replace(INT4, dtype="float16"), "sm90", "stand for bfloat16"),
        (replace(INT4, block_size=(1, 16)), "sm90", "groups of 32"),
        (replace(INT4, shape=(124, 256)), "sm90", "N of 8"),
        (replace(INT4, shape=(128, 272), block_size=(1, 32)), "sm90", "K must be a multiple"),
        (replace(INT4, parts=("qdata", "scale", "group_index")), "sm90", "order of columns"),
        (replace(INT4, activation=float8_activation("row")), "sm90", "leaves the activation"),
        (weight_of("mx fp8").spec, "sm100", "MX"),
        (weight_of("intx 4 bits").spec, "sm90", "no operator for intx"),
    ],
)
def test_what_the_operators_do_not_check_is_refused_in_a_sentence(
    spec: object, device: str, sentence: str
) -> None:
    refusal = BACKEND.supports(spec, DeviceInfo.named(device))
    assert refusal is not None
    assert sentence in refusal


def test_misaligned_or_strided_codes_are_copied_for_the_operator() -> None:
    weight = with_activation(weight_of("float8 row", (32, 64)), float8_activation("row"))
    wide = torch.zeros(32 * 64 + 1, dtype=torch.uint8).view(torch.float8_e4m3fn)
    odd = wide[1:].view(32, 64)
    odd.copy_(weight.parts["qdata"])
    for codes in (odd, weight.parts["qdata"].t().contiguous().t()):
        moved = Weight(spec=weight.spec, parts={**weight.parts, "qdata": codes})
        packed = BACKEND.pack(moved, SM90)
        operand = packed.parts["operator_codes"]
        assert operand.data_ptr() % 16 == 0
        assert operand.is_contiguous()
        assert BACKEND.unpack(packed).parts["qdata"] is codes


def test_a_layer_is_rounded_once_after_the_bias() -> None:
    activation = float8_activation("tensor", static=True)
    weight = with_activation(weight_of("float8 row", (32, 64)), activation)
    weight = with_part(weight, "act_scale", torch.tensor(0.01))
    x, bias = torch.randn(3, 64).bfloat16(), torch.randn(32).bfloat16()
    packed = BACKEND.pack(weight, SM90)
    wide = BACKEND.linear(x.float(), packed) + bias.float()
    assert torch.equal(BACKEND.linear(x, packed, bias), wide.bfloat16())
