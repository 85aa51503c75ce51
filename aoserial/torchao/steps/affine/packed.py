"""Layouts of AffineQuantizedTensor for kernels of int4 and float8, undone. Torch-free."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aoserial.errors import FieldError
from aoserial.record import Record
from aoserial.storage import Part, Shape, compute, describe
from aoserial.torchao.steps.affine.view import Affine, zero_domain
from aoserial.torchao.steps.int4 import split_scale_and_zero, transposed, untiled
from aoserial.torchao.steps.int4_cpu import unpack_int4_cpu
from aoserial.torchao.steps.marlin import marlin_scales, unpack_marlin
from aoserial.torchao.steps.settings import kernel_hint

if TYPE_CHECKING:
    import torch


def read_float8(tensor: Affine) -> Record:
    """Float8AQTTensorImpl of torchao 0.5 to 0.16: same bytes.

    `transposed` is flipped by each t() and moves no code, so it says nothing of them.
    Proved by fixtures/torchao-0.5.0/float8da_float8w and torchao-0.13.0/float8wo_e5m2_v1.
    """
    parts = {"qdata": tensor.of_codes("float8_data"), "scale": tensor.of_blocks("scale")}
    square = len(set(tensor.shape)) == 1 and len(set(tensor.block_size)) == 1
    if tensor.impl.fields.get("transposed") and square:
        raise FieldError("is set, and nothing else tells rows from columns").locate(
            field="transposed"
        )
    hint = kernel_hint(None, tensor.layout.get("mm_config"))
    return tensor.become("Float8Tensor", parts, kernel=hint)


def read_tiles(tensor: Affine, *, int4_cpu_isa: str | None) -> Record:
    """TensorCoreTiledAQTTensorImpl of torchao 0.3 to 0.17: tinygemm's tiles, any inner_k_tiles.

    `transposed` is flipped by each t(), in place; the block size says how the weight lies. What is
    no tile but [N, K/2] was packed for a CPU.
    Proved by fixtures/torchao-0.3.1/int4wo_tinygemm_ikt2 and torchao-0.12.0/int4wo_hqq.
    """
    packed = tensor.parts["packed_weight"]
    if len(packed.shape) == 2:
        return read_int4_cpu(tensor, int4_cpu_isa=int4_cpu_isa)
    return _tinygemm(tensor, untiled(packed, _even(tensor)))


def read_int4_cpu(tensor: Affine, *, int4_cpu_isa: str | None) -> Record:
    """Int4CPUAQTTensorImpl of torchao 0.7 to 0.16, in the order of the machine that packed.

    Proved by fixtures/torchao-0.7.0/int4wo_cpu_n64_avx2, torchao-0.12.0/int4wo_cpu_n64_default and
    torchao-0.15.0/int4wo_cpu_n64_v1.
    """
    packed = tensor.parts["packed_weight"]
    # where the order of all machines is one, nobody was asked
    return _tinygemm(tensor, unpack_int4_cpu(packed, tensor.shape, int4_cpu_isa or "default"))


def read_int4_xpu(tensor: Affine) -> Record:
    """Int4XPUAQTTensorImpl of torchao 0.11 to 0.16: [N, K/8] int32, even k in the low nibble.

    Zero points are tinygemm's, or int8 in codes. No file of it is at hand; the order is that of
    Int4PlainInt32Tensor, which the same operator packed (torchao 0.14, int4_plain_int32_tensor.py).
    """
    *lead, columns = _even(tensor)
    packed = tensor.parts["packed_weight"]
    if packed.nbytes * 2 != math.prod(tensor.shape):
        raise FieldError(f"{describe(packed)} is not {list(tensor.shape)} codes").locate(
            field="tensor_impl.packed_weight"
        )
    codes = packed.view("uint8", (*lead, columns // 2))
    if "scale_and_zero" in tensor.parts:
        return _tinygemm(tensor, codes)
    if {"scale", "zero"} - tensor.parts.keys() or tensor.domain == "FLOAT":
        raise FieldError("lacks scales or zero points in codes").locate(field="tensor_impl")
    parts = {
        "qdata": codes,
        "scale": transposed(tensor.parts["scale"]),
        "zero_point": transposed(tensor.parts["zero"]),
    }
    return tensor.become("Int4Tensor", parts, zero_domain=zero_domain("int"))


def read_cutlass_int4(tensor: Affine) -> Record:
    """Int4PackedTensorImpl of torchao 0.8 to 0.15: signed codes, even k in the low nibble.

    Proved by fixtures/torchao-0.8.0/int8da_int4w_cutlass and torchao-0.10.0/int4da_int4w_cutlass.
    """
    *lead, columns = _even(tensor)
    codes = tensor.parts["int_data"]
    if codes.dtype != "int8" or codes.shape != (*lead, columns // 2):
        raise FieldError(
            f"is {describe(codes)}, expected int8 with half of the columns of {list(tensor.shape)}"
        ).locate(field="tensor_impl.int_data")
    parts = {
        "qdata": compute(_unsigned, codes, dtype="uint8", shape=codes.shape, by_rows=1),
        "scale": tensor.of_blocks("scale"),
    }
    return tensor.become("Int4Tensor", parts, zero_domain=zero_domain("none"))


def read_marlin_sparse(tensor: Affine) -> Record:
    """MarlinSparseAQTTensorImpl of torchao 0.5 to 0.15: codes of which half were pruned, to 8.

    Proved by fixtures/torchao-0.5.0/int4wo_marlin_sparse and torchao-0.12.0/int4wo_marlin_sparse.
    """
    rows, columns = tensor.matrix
    given, group = tensor.impl.fields, tensor.group_size
    if (given["num_bits"], given["original_shape"]) != (4, (columns, rows)):
        raise FieldError(f"is not of 4 bits and {[columns, rows]}").locate(field="tensor_impl")
    if given["group_size"] not in (-1, group):
        raise FieldError(f"is {given['group_size']}, but blocks are of {group}").locate(
            field="group_size"
        )
    parts = {
        "qdata": unpack_marlin(tensor.parts["int_data"], tensor.parts["meta"], (rows, columns)),
        "scale": marlin_scales(tensor.parts["scale"], (rows, columns), group),
        "zero_point": tensor.of_blocks("zero"),
    }
    return tensor.become("Int4Tensor", parts, zero_domain=zero_domain("int"))


def _tinygemm(tensor: Affine, codes: Part) -> Record:
    """w = (q - 8) s + z, rounded at each step, as AffineQuantizedTensor's own dequantize does.

    That of 0.3 had none, so there each value is what its kernel computes in float32.
    """
    if tensor.domain != "FLOAT":
        raise FieldError(f"is {tensor.domain}, but tinygemm's zero points are in weights").locate(
            field="zero_point_domain"
        )
    if tensor.limits((0, 15)) != (0, 15):
        raise FieldError("are not 0 and 15").locate(field="quant_min and quant_max")
    tensor.group_size  # noqa: B018 - checks that scales are of groups in rows
    scale, zero_point = split_scale_and_zero(tensor.parts["scale_and_zero"], tensor.blocks)
    return tensor.become(
        "Int4Tensor",
        {"qdata": codes, "scale": scale, "zero_point": zero_point},
        zero_domain=zero_domain("float"),
        narrow_arithmetic=not tensor.record.attributes["kernel_arithmetic"],
    )


def _even(tensor: Affine) -> Shape:
    """The shape, of two dimensions or more, its last length even."""
    if len(tensor.shape) < 2 or tensor.shape[-1] % 2:
        raise FieldError(
            f"is {list(tensor.shape)}, expected [..., N, K] with even K, as two codes share a byte"
        ).locate(field="shape")
    return tensor.shape


def _unsigned(packed: torch.Tensor) -> torch.Tensor:
    """Adds 8 to both codes of each byte, which flips the top bit of each nibble."""
    import torch  # torch-free module

    return packed.view(torch.uint8) ^ 0x88
