"""From torchao's codebook and GGUF tensors to ours. Torch-free."""

from __future__ import annotations

import math

from aoserial.errors import FieldError, OpaqueBytesError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.storage import Part
from aoserial.torchao.steps.uintx import unsharded

_SHARDS = ("int4_shard", "int2_shard", "int1_shard")
_SUPERBLOCK = 256  # QK_K of GGUF's K-quants, which torchao has as a constant


@migration("torchao.CodebookQuantizedTensor", 1, 1, becomes="aoserial.CodebookTensor")
def leave_torchao_codebook(record: Record) -> Record:
    """CodebookQuantizedTensor of torchao 0.8 to 0.18: one table, groups of columns with a scale.

    `_dtype` is what its maker called the dtype; dequantize asks the wrapper's. Codes of 8 bits lie
    one a byte; narrower ones are a UintxTensor, of which `codes.packed_shape` is the shape.
    Proved by the tensors inside of fixtures/torchao-0.17.0/codebook_uint4; torchao itself saved
    such weights dequantized.
    """
    rows, columns = _matrix(record)
    entries, tall, wide = record.parts["codebook"].shape
    height, groups, _ = record.parts["scales"].shape
    if record.attributes["block_size"] != (tall, wide):
        raise FieldError(
            f"is {record.attributes['block_size']!r:.60}, but the entries are {[tall, wide]}"
        ).locate(field="block_size")
    if height != rows or groups < 1 or columns % groups:
        raise FieldError(
            f"shape is {[height, groups, 1]}, which does not scale {[rows, columns]}"
        ).locate(field="scales")
    codebook, scales = record.parts["codebook"], record.parts["scales"]
    codes = _codes(record)
    gone = [name for name in record.parts if name.startswith("codes.")]
    return (
        record.at(1, type="aoserial.CodebookTensor")
        .drop("block_size", "_dtype", "scales", "codes.bit_width", "codes.packed_shape")
        .drop("codes.pack_dim", *gone)
        .put(
            codes=codes,
            codebook=codebook.view(codebook.dtype, (1, 1, entries, tall, wide)),
            scale=scales.view(scales.dtype, (rows, groups)),
        )
        .set(
            rows_per_code=tall,
            columns_per_code=wide,
            rows_per_table=rows,
            columns_per_table=columns,
            columns_per_scale=columns // groups,
        )
    )


@migration("torchao.CoreMLCodebookQuantizedTensor", 1, 1, becomes="aoserial.CodebookTensor")
def leave_coreml_codebook(record: Record) -> Record:
    """codebook_coreml's CodebookQuantizedTensor of torchao 0.12 to 0.18: a table for each block.

    `code_dtype` says how long the tables are, which their shape says too.
    Proved by fixtures/torchao-0.17.0/codebook_coreml_constructed.
    """
    shape = _matrix(record)
    codebook = record.parts["codebook"]
    given = record.attributes["block_size"]
    blocks = [size if share == -1 else share for size, share in zip(shape, given, strict=True)]  # type: ignore[arg-type]
    tall, wide, entries, _ = codebook.shape
    if not all(type(size) is int and size > 0 for size in blocks):
        raise FieldError(f"is {given!r:.60}, expected lengths or -1").locate(field="block_size")
    if record.attributes["code_dtype"] != f"uint{entries.bit_length() - 1}":
        raise FieldError(
            f"is {record.attributes['code_dtype']}, but the tables have {entries} entries"
        ).locate(field="code_dtype")
    return (
        record.at(1, type="aoserial.CodebookTensor")
        .drop("block_size", "code_dtype")
        .put(codebook=codebook.view(codebook.dtype, (tall, wide, entries, 1, 1)))
        .set(
            rows_per_code=1,
            columns_per_code=1,
            rows_per_table=blocks[0],
            columns_per_table=blocks[1],
        )
    )


@migration("torchao.CodebookQuantizedPackedTensor", 1, 1, becomes="aoserial.CodebookTensor")
def leave_packed_codebook(record: Record) -> Record:
    """CodebookQuantizedPackedTensor of torchao 0.13 to 0.18.

    Raises:
        OpaqueBytesError: always. Its bytes are for the kernel that packed them, on Arm.
    """
    raise OpaqueBytesError(f"the bytes of {record.type} are in the order of torchao's Arm kernels")


@migration("torchao.GGUFQuantizedTensor", 1, 1, becomes="aoserial.GGUFTensor")
def leave_torchao_gguf(record: Record) -> Record:
    """GGUFQuantizedTensor of torchao 0.11 to 0.18: same bytes, scales in rows.

    Proved by fixtures/torchao-0.18.0/gguf_q4_k.
    """
    blocks = record.attributes["n_blocks_per_superblock"]
    if not isinstance(blocks, int) or blocks < 1 or _SUPERBLOCK % blocks:
        raise FieldError(f"is {blocks!r:.60}, expected a divisor of {_SUPERBLOCK}").locate(
            field="n_blocks_per_superblock"
        )
    size = _SUPERBLOCK // blocks
    names = {
        "quantized_block_scale": ("scale", size),
        "quantized_block_min": ("offset", size),
        "super_block_scale_scale": ("super_scale", _SUPERBLOCK),
        "super_block_min_scale": ("super_offset", _SUPERBLOCK),
    }
    parts = {new: _in_rows(record, old, share) for old, (new, share) in names.items()}
    return (
        record.at(1, type="aoserial.GGUFTensor")
        .drop("n_blocks_per_superblock", *names)
        .rename(int_data="qdata")
        .put(**parts)
        .set(block_size=(1, size), superblock_size=_SUPERBLOCK)
    )


def _codes(record: Record) -> Part:
    """The codes one a byte, whichever way they were held."""
    given = record.attributes
    shards = {
        name: record.parts[f"codes.{name}"] for name in _SHARDS if f"codes.{name}" in record.parts
    }
    if ("codes" in record.parts) == bool(shards):
        raise FieldError("has to be one plain tensor, or shards of one").locate(field="codes")
    if not shards:
        return record.parts["codes"]
    bits, shape, dim = (
        given[f"codes.{name}"] for name in ("bit_width", "packed_shape", "pack_dim")
    )
    if not isinstance(bits, int) or not isinstance(shape, tuple) or not isinstance(dim, int):
        raise FieldError("is of shards, but their width, shape or dimension is missing").locate(
            field="codes"
        )
    return unsharded(shards, bits=bits, shape=shape, dim=dim)  # type: ignore[arg-type]


def _in_rows(record: Record, name: str, share: int) -> Part:
    """One for each `share` elements of the weight, [N, K / share]."""
    rows, columns = _matrix(record)
    part = record.parts[name]
    if columns % share or math.prod(part.shape) != rows * columns // share:
        raise FieldError(
            f"shape is {list(part.shape)}, expected one for each {share} of {[rows, columns]}"
        ).locate(field=name)
    return part.view(part.dtype, (rows, columns // share))


def _matrix(record: Record) -> tuple[int, int]:
    if len(record.shape) != 2:
        raise FieldError(f"shape is {list(record.shape)}, expected [N, K]")
    return record.shape[0], record.shape[1]
