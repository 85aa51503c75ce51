"""Faults that only values show: one change a type and part that its rules must notice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support.prototypes import PROTOTYPES
from support.weights import FULL

from aoserial.storage import ComputedPart
from aoserial.tensors import (
    Float8Tensor,
    Int4Tensor,
    Int8Tensor,
    IntxTensor,
    MXTensor,
    NF4Tensor,
    NVFP4Tensor,
    OptimState4bit,
    OptimState8bit,
    OptimStateFp8,
    UIntTensor,
    VersionedTensor,
    to_record,
)
from aoserial.tensors.rules import finite
from aoserial.tensors.values import attribute_faults, value_faults

NAN, INF = float("nan"), float("inf")
W = torch.randn(8, 16)

WEIGHTS: dict[str, Callable[[], VersionedTensor]] = {
    "float8": lambda: Float8Tensor.from_float(W),
    "int8": lambda: Int8Tensor.from_float(W),
    "int4": lambda: Int4Tensor.from_float(W, group_size=4, zero_domain="int"),
    "intx": lambda: IntxTensor.from_float(W, bit_width=3, zero_domain="int"),
    "mx-fp8": lambda: MXTensor.from_float(W, block_size=4),
    "mx-fp4": lambda: MXTensor.from_float(W, element=torch.float4_e2m1fn_x2, block_size=4),
    "nvfp4": lambda: NVFP4Tensor.from_float(W),
    "nf4": lambda: NF4Tensor.from_float(W, block_size=4, scaler_block_size=8),
    "state-8": lambda: OptimState8bit.from_float(W, block_size=16),
    "state-4": lambda: OptimState4bit.from_float(W, block_size=16),
    "state-fp8": lambda: OptimStateFp8.from_float(W, block_size=16),
    "uint": lambda: UIntTensor(
        torch.randint(0, 8, (4, 4), dtype=torch.uint8), 3, dtype=torch.float32
    ),
    **PROTOTYPES,
    **FULL,
}


def faults_of(tensor) -> list[tuple[str | None, str]]:
    return [(fault.location.field, fault.message) for fault in value_faults(to_record(tensor))]


@pytest.mark.parametrize("make", WEIGHTS.values(), ids=WEIGHTS)
def test_what_our_own_quantizers_make_has_no_faults(make):
    record = to_record(make())
    assert list(attribute_faults(record)) == []
    assert list(value_faults(record)) == []


@pytest.mark.parametrize(
    ("kind", "part", "value", "told"),
    [
        ("float8", "qdata", NAN, "infinite or NaN"),
        ("float8", "scale", -1.0, "negative"),
        ("int8", "scale", INF, "infinite or NaN"),
        ("int4", "scale", NAN, "infinite or NaN"),
        ("int4", "zero_point", 17, "not from 0 to 16"),
        ("int4", "zero_point", -1, "not from 0 to 16"),
        ("intx", "qdata", 4, "not from -4 to 3"),
        ("intx", "zero_point", -5, "not from -4 to 4"),
        ("mx-fp8", "qdata", NAN, "infinite or NaN"),
        ("mx-fp8", "scale", 255, "e8m0 code 255"),
        ("mx-fp4", "scale", 255, "e8m0 code 255"),
        ("mx-fp6", "qdata", 64, "not from 0 to 63"),
        ("nvfp4", "scale", NAN, "infinite or NaN"),
        ("nvfp4", "scale", -1.0, "negative"),
        ("nvfp4-full", "per_tensor_scale", INF, "infinite or NaN"),
        ("nvfp4-full", "per_tensor_scale", 0.0, "zero, and divide"),
        ("nf4", "nf4", NAN, "infinite or NaN"),
        ("nf4", "scaler_mean", INF, "infinite or NaN"),
        ("nf4", "quantization_factor", 0.0, "zero or NaN"),
        ("state-8", "scale", NAN, "infinite or NaN"),
        ("state-8", "qmap", 2.0, "followed by a smaller one"),
        ("state-4", "qmap", NAN, "infinite or NaN"),
        ("state-fp8", "codes", NAN, "infinite or NaN"),
        ("uint", "qdata", 8, "not from 0 to 7"),
        ("codebook", "codes", 8, "stand for no entry of 8"),
        ("codebook-stack", "codes", -1, "stand for no entry of 16"),
        ("codebook", "codebook", INF, "infinite or NaN"),
        ("codebook", "scale", -1.0, "negative"),
        ("gguf", "qdata", 16, "not from 0 to 15"),
        ("gguf", "super_scale", NAN, "infinite or NaN"),
        ("floatx", "qdata", 64, "not from 0 to 63"),
        ("block-sparse", "row_starts", 1, "does not rise from 0 to 3"),
        ("block-sparse", "block_columns", -1, "not among the 4 columns"),
        ("block-sparse", "block_columns", 3, "do not rise within their row"),
        ("block-sparse", "block_values", NAN, "infinite or NaN"),
        ("block-sparse-int8", "scale", -1.0, "negative"),
        ("float8-training", "scale", 0.0, "zero, and divide"),
        ("unquantized", "precomputed_scale", NAN, "infinite or NaN"),
    ],
)
def test_a_value_that_a_part_may_not_have_is_told_with_its_place(kind, part, value, told):
    tensor = WEIGHTS[kind]()
    if part == "zero_point":  # those that are whole numbers have a range
        tensor.zero_point = tensor.zero_point.to(torch.int32)
    held = getattr(tensor, part)
    held.detach().reshape(-1)[:1] = torch.tensor(value).to(held.dtype)
    ((field, message),) = faults_of(tensor)
    assert field == part
    assert told in message


def test_a_group_that_is_none_is_told():
    tensor = FULL["int4-full"]()
    tensor.group_index = torch.arange(16) // 4
    assert faults_of(tensor) == []
    tensor.group_index[5] = 4
    assert faults_of(tensor) == [
        ("group_index", "1 of 16 values name no group of 4, the first at 5")
    ]


def test_codes_of_a_reduced_range_leave_out_the_outer_half():
    tensor = WEIGHTS["int8"]()
    tensor.qdata[0, 0] = 64
    assert faults_of(tensor) == []
    tensor.reduce_range = True
    ((field, message),) = faults_of(tensor)
    assert field == "qdata"
    assert "not from -64 to 63" in message


@pytest.mark.parametrize("bits", [0, 9, -3])
@pytest.mark.parametrize("kind", ["intx", "uint"])
def test_a_width_that_codes_cannot_have_is_told_and_nothing_else_is_done_with_it(kind, bits):
    tensor = WEIGHTS[kind]()
    tensor.bit_width = bits
    assert ("qdata", f"has codes of {bits} bits, expected 1 to 8") in faults_of(tensor)


def test_several_faults_of_a_record_are_all_told():
    tensor = WEIGHTS["intx"]()
    tensor.qdata[0, 0] = 100
    tensor.scale[0, 0], tensor.scale[1, 0] = -1, NAN
    assert [field for field, _ in faults_of(tensor)] == ["qdata", "scale", "scale"]


def test_a_part_that_cannot_be_read_does_not_keep_the_others_from_being_looked_at():
    def fail(_):
        raise RuntimeError("no memory")

    tensor = WEIGHTS["intx"]()
    tensor.scale[0, 0] = NAN
    record = to_record(tensor)
    codes = record.parts["qdata"]
    record = record.put(qdata=ComputedPart(fail, (codes,), codes.dtype, codes.shape))
    faults = list(value_faults(record))
    assert [fault.location.field for fault in faults] == ["qdata", "scale"]
    assert "no memory" in faults[0].message


def test_large_parts_are_gone_through_in_pieces():
    large = torch.zeros((1 << 20) + 5)
    large[7], large[-1] = NAN, INF
    (message,) = finite(to_record(WEIGHTS["int8"]()), large)
    assert message == f"2 of {large.numel()} values are infinite or NaN, the first at 7"
