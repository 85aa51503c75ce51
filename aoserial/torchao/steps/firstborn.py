"""From torchao's first tensors of few bits to ours. Torch-free."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.schema import Symbol
from aoserial.storage import Part, compute
from aoserial.torchao.steps.int4 import nibbles_swapped
from aoserial.torchao.steps.settings import activation, granularity, mapping

if TYPE_CHECKING:
    import torch


@migration("torchao.UInt4Tensor", 1, 1, becomes="aoserial.UIntTensor")
def unpack_uint4(record: Record) -> Record:
    """UInt4Tensor of torchao 0.1 to 0.15: integers with no scale, which stay integers.

    Proved by fixtures/torchao-0.1/uint4_tensor and fixtures/torchao-0.15.0/uint4_tensor.
    """
    return _integers(record, bits=4)


@migration("torchao.UInt2Tensor", 1, 1, becomes="aoserial.UIntTensor")
def unpack_uint2(record: Record) -> Record:
    """UInt2Tensor of torchao 0.3 to 0.9, likewise.

    Proved by fixtures/torchao-0.8.0/uint2_tensor.
    """
    return _integers(record, bits=2)


@migration("torchao.BitnetTensor", 1, 1, becomes="aoserial.UIntTensor")
def unpack_bitnet(record: Record) -> Record:
    """BitnetTensor of torchao 0.3 to 0.9: signs plus 1, with no scale.

    What it was meant to multiply by is the code less 1, so `zero_code` says that; no release could
    run such a layer.
    Proved by fixtures/torchao-0.8.0/bitnet_uint2_tensor.
    """
    return _integers(record, bits=2).set(zero_code=1)


@migration("torchao.PerChannelSymmetricWeightUInt4Tensor", 1, 1, becomes="aoserial.Int4Tensor")
def leave_per_channel_uint4(record: Record) -> Record:
    """PerChannelSymmetricWeightUInt4Tensor of torchao 0.1 to 0.15: w = code * scale, nothing less.

    Symmetric by name alone: negative weights were clamped to code 0. So the zero point is 0.
    Proved by fixtures/torchao-0.4.0/uint4_perchannel and fixtures/torchao-0.15.0/uint4_perchannel.
    """
    rows, columns = record.shape
    codes, scales = record.parts["elem"], record.parts["scales"]
    ours = (
        record.at(1, type="aoserial.Int4Tensor")
        .drop("elem", "scales")
        .put(
            qdata=nibbles_swapped(codes),
            scale=scales.view(scales.dtype, (rows, 1)),
            zero_point=compute(_zeros_for, scales, dtype="int8", shape=(rows, 1)),
        )
        .set(block_size=(1, columns), zero_domain=Symbol("aoserial.ZeroDomain", "int"))
    )
    return replace(ours, dtype=scales.dtype)


@migration("torchao.BitNetPacked2bitLinearWeight", 1, 1, becomes="aoserial.IntxTensor")
def unpack_packed_bitnet(record: Record) -> Record:
    """BitNetPacked2bitLinearWeight of torchao 0.6 to 0.18: signed codes with one scale.

    Its layer quantizes each row of the activation to max|x| / 127, scales below 1e-5 raised to it.
    Proved by fixtures/torchao-0.7.0/bitnet_packed2bit.
    """
    scale = record.parts["scale"]
    return (
        record.at(1, type="aoserial.IntxTensor")
        .drop("int_data", "scale")
        .put(
            qdata=compute(
                _unpack_signed,
                record.parts["int_data"],
                dtype="int8",
                shape=record.shape,
                by_rows=1,
            ),
            scale=scale.view(scale.dtype, (1, 1)),
        )
        .set(
            bit_width=2,
            block_size=record.shape,
            zero_domain=Symbol("aoserial.ZeroDomain", "none"),
            activation=activation(
                kind="dynamic",
                dtype="int8",
                granularity=granularity("token"),
                mapping=mapping("symmetric"),
                narrow_range=True,
                least_scale=1e-5,
            ),
        )
    )


def _integers(record: Record, *, bits: int) -> Record:
    ours = (
        record.at(1, type="aoserial.UIntTensor")
        .drop("elem")
        .put(qdata=_unpacked(record.parts["elem"], bits, record.shape))
        .set(bit_width=bits)
    )
    return replace(ours, dtype="uint8")


def _unpacked(packed: Part, bits: int, shape: tuple[int, ...]) -> Part:
    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        return _codes(tensor, bits)

    return compute(unpack, packed, dtype="uint8", shape=shape, by_rows=1 if shape[1:] else None)


def _codes(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """uint8 [..., K], one code a byte; the first of a byte was in its high bits."""
    import torch  # torch-free module

    shifts = range(8 - bits, -1, -bits)
    return torch.stack([packed >> shift & 2**bits - 1 for shift in shifts], dim=-1).flatten(-2)


def _unpack_signed(packed: torch.Tensor) -> torch.Tensor:
    """int8 [N, K], -2 to 1, of the two's complement of two bits."""
    import torch  # torch-free module

    codes = _codes(packed.view(torch.uint8), 2).to(torch.int8)
    return (codes ^ 2) - 2


def _zeros_for(scales: torch.Tensor) -> torch.Tensor:
    import torch  # torch-free module

    return torch.zeros(len(scales), 1, dtype=torch.int8)
