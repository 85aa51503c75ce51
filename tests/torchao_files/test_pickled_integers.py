"""Int4 and intx weights that torchao only ever pickled, and the packings of kernels among them."""

from __future__ import annotations

import pytest
import torch
from support.raw import member, raw, upgraded

from aoserial.errors import EraError, FieldError, OpaqueBytesError
from aoserial.storage import TensorPart
from aoserial.torchao.steps.int4_cpu import unpack_int4_cpu
from aoserial.torchao.steps.marlin import marlin_scales, unpack_marlin

OPAQUE = "torchao.prototype.quantization.int4.Int4OpaqueTensor"


def both_nibbles(packed: torch.Tensor) -> torch.Tensor:
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)


# -- torch's packing for CPUs -------------------------------------------------------------------


def packed_by_hand(codes: torch.Tensor, rows: int, *, apart: bool) -> torch.Tensor:
    """One pair after the other, as int4mm_kernel.cpp has it."""
    data = []
    for start in range(0, len(codes), rows):
        block = codes[start : start + rows].tolist()
        half = len(block) // 2
        whole = apart and len(block) == rows
        pairs = [(n, n + half) if whole else (2 * n, 2 * n + 1) for n in range(half)]
        for k in range(codes.shape[1]):
            data += [block[low][k] | block[high][k] << 4 for low, high in pairs]
    return torch.tensor(data, dtype=torch.uint8).reshape(codes.shape[0], -1)


ORDERS = {"avx512": (64, True), "avx2": (32, True), "default": (32, False), "neon": (16, False)}


@pytest.mark.parametrize("isa", ORDERS)
@pytest.mark.parametrize("rows", [16, 32, 48, 80, 160])
def test_every_order_of_a_cpu_is_undone(isa, rows):
    codes = torch.randint(0, 16, (rows, 6), dtype=torch.uint8)
    block, apart = ORDERS[isa]
    part = TensorPart(packed_by_hand(codes, block, apart=apart))
    assert torch.equal(both_nibbles(unpack_int4_cpu(part, (rows, 6), isa).read()), codes)


def test_what_torch_packs_on_this_machine_is_undone():
    capability = torch.backends.cpu.get_cpu_capability().lower()
    if capability not in ORDERS:
        pytest.skip(f"torch says nothing of its order on {capability}")
    codes = torch.randint(0, 16, (96, 64), dtype=torch.int32)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
    unpacked = unpack_int4_cpu(TensorPart(packed), (96, 64), capability).read()
    assert torch.equal(both_nibbles(unpacked), codes.to(torch.uint8))


def opaque(rows: int, **more):
    return raw(
        OPAQUE,
        (rows, 64),
        qdata=torch.randint(0, 256, (rows, 32), dtype=torch.uint8),
        scale_and_zero=torch.randn(2, rows, 2).to(torch.bfloat16),
        block_size=(1, 32),
        act_pre_scale=None,
        **more,
    )


def test_an_opaque_weight_is_refused_until_someone_says_which_machine_packed_it():
    with pytest.raises(EraError, match="int4_cpu_isa") as caught:
        upgraded(opaque(32))
    assert "avx2" in caught.value.candidates
    made = {isa: upgraded(opaque(32), {"int4_cpu_isa": isa}).record.type for isa in ORDERS}
    assert set(made.values()) == {"aoserial.Int4Tensor"}


def test_scale_and_zero_of_an_opaque_weight_are_told_apart():
    given = opaque(32)
    record = upgraded(given, {"int4_cpu_isa": "avx512"}).record
    both = given.parts["scale_and_zero"].read()
    assert torch.equal(record.parts["scale"].read(), both[..., 0].t())
    assert torch.equal(record.parts["zero_point"].read(), both[..., 1].t())
    assert record.attributes["zero_domain"].name == "float"


def test_an_opaque_weight_for_int8_activations_stays_inert():
    more = {"qzeros": None, "compensation": None, "act_mapping_type": "asymmetric"}
    with pytest.raises(OpaqueBytesError, match="depend on the CPU"):
        upgraded(opaque(32, **more))


# -- Marlin's sparse layout ---------------------------------------------------------------------


def sparse_codes(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes of which two of each four are kept, and where those are: [N, K/4, 2]."""
    kept = torch.rand(rows, columns // 4, 4).argsort(-1)[..., :2].sort(-1).values
    codes = torch.full((rows, columns // 4, 4), 8, dtype=torch.uint8)
    codes.scatter_(2, kept, torch.randint(0, 16, kept.shape, dtype=torch.uint8))
    return codes.reshape(rows, columns), kept


def packed_for_marlin(codes: torch.Tensor, kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Place by place, as the kernel's threads and CUTLASS's metadata have it."""
    rows, columns = codes.shape
    held = codes.reshape(rows, -1, 4).gather(2, kept).reshape(rows, columns // 2)
    data = []
    for across in range(0, columns // 2, 16):
        for down in range(0, rows, 64):
            for thread in range(32):
                for column in range(4):
                    eight = []
                    for turn in (0, 2, 4, 6, 1, 3, 5, 7):
                        k = across + 2 * (thread % 4) + (0, 1, 8, 9)[turn % 4]
                        n = down + thread // 8 * 16 + thread // 4 % 2 * 8 + turn // 4 * 4 + column
                        eight.append(int(held[n, k]))
                    data.append(sum(code << 4 * at for at, code in enumerate(eight)))
    packed = torch.tensor(data).to(torch.int32).reshape(columns // 32, 2 * rows)
    bits = (kept[..., 0] | kept[..., 1] << 2).reshape(rows, -1, 4)
    words = sum(bits[..., at] << 4 * at for at in range(4))
    meta = torch.empty(rows * columns // 16, dtype=torch.int64)
    for n in range(rows):
        for word in range(columns // 16):
            row = n // 64 * 64 + n % 2 * 2 + n % 8 // 4 + n % 4 // 2 * 32 + n % 64 // 8 * 4
            at = word
            if row % 2 == 0 and word % 2 == 1:
                row, at = row + 1, word - 1
            elif row % 2 == 1 and word % 2 == 0:
                row, at = row - 1, word + 1
            meta[at // 2 * rows * 2 + row * 2 + at % 2] = words[n, word]
    return packed, meta.to(torch.int16).reshape(columns // 32, 2 * rows)


def test_marlins_tiles_and_metadata_are_undone():
    codes, kept = sparse_codes(128, 64)
    packed, meta = packed_for_marlin(codes, kept)
    made = unpack_marlin(TensorPart(packed), TensorPart(meta), (128, 64)).read()
    assert torch.equal(both_nibbles(made), codes)


def test_marlins_scales_of_groups_lie_in_the_order_of_its_threads():
    scales = torch.randn(64, 2)
    order = [8 * eight + place for eight in range(8) for place in (0, 4, 1, 5, 2, 6, 3, 7)]
    laid = scales.t()[:, order].contiguous()
    assert torch.equal(marlin_scales(TensorPart(laid), (64, 256), 128).read(), scales)


def test_marlins_scales_of_whole_rows_lie_in_order():
    scales = torch.randn(64, 1)
    for group in (-1, 256):
        part = TensorPart(scales.t().contiguous())
        assert torch.equal(marlin_scales(part, (64, 256), group).read(), scales)


def test_a_shape_that_marlin_does_not_take_is_refused():
    packed, meta = torch.zeros(8, dtype=torch.int32), torch.zeros(8, dtype=torch.int16)
    with pytest.raises(FieldError, match="no shape of Marlin's"):
        unpack_marlin(TensorPart(packed), TensorPart(meta), (32, 64))
    with pytest.raises(FieldError, match="expected 256 int32"):
        unpack_marlin(TensorPart(packed), TensorPart(meta), (64, 64))


# -- the others ---------------------------------------------------------------------------------


def test_fbgemm_int4_becomes_what_int4_tensor_would_have():
    fields = {
        "qdata": torch.randint(-128, 128, (2, 32, 32), dtype=torch.int8),
        "scale": torch.randn(2, 2, 32),
        "zero_point": torch.randn(2, 2, 32),
    }
    old = dict(zip(("packed_weight", "scale", "zero_point"), fields.values(), strict=True))
    path = "torchao.dtypes.fbgemm_int4_tensor.FbgemmInt4Tensor"
    shape = (2, 32, 64)
    left = upgraded(raw(path, shape, group_size=32, **old)).record
    new = raw("torchao.quantization.Int4Tensor", shape, block_size=(1, 1, 32), **fields)
    right = upgraded(new).record
    assert left.attributes == right.attributes
    for name, part in right.parts.items():
        assert torch.equal(left.parts[name].read(), part.read())


@pytest.mark.parametrize("zeros", [torch.int8, torch.bfloat16])
def test_int32_codes_are_xpus_or_an_npus_as_the_zero_points_dtype_says(zeros):
    given = raw(
        "torchao.quantization.Int4PlainInt32Tensor",
        (32, 64),
        qdata=torch.zeros(32, 8, dtype=torch.int32),
        scale=torch.ones(2, 32),
        zero_point=torch.zeros(2, 32, dtype=zeros),
        block_size=(1, 32),
        act_pre_scale=None,
    )
    if zeros is torch.int8:
        assert upgraded(given).record.type == "aoserial.Int4Tensor"
    else:
        with pytest.raises(OpaqueBytesError, match="order of an NPU"):
            upgraded(given)


def test_the_activation_of_an_intx_weight_may_be_the_enums_member():
    path = "torchao.quantization.quantize_.workflows.intx.intx_unpacked_to_int8_tensor"
    quantization = f"{path}.IntxUnpackedToInt8TensorActivationQuantization"
    for given in ("int8_asym_per_token", member(quantization, "int8_asym_per_token")):
        record = raw(
            f"{path}.IntxUnpackedToInt8Tensor",
            (2, 32),
            qdata=torch.zeros(2, 32, dtype=torch.int8),
            scale=torch.ones(2, 1),
            zero_point=torch.zeros(2, 1, dtype=torch.int8),
            target_dtype="int4",
            block_size=(1, 32),
            activation_quantization=given,
        )
        assert upgraded(record).record.attributes["activation"]["mapping"].name == "asymmetric"
