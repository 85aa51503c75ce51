"""From AffineQuantizedTensor to our types, by its layout. Torch-free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aoserial.errors import OpaqueBytesError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.schema import Nested
from aoserial.torchao.affine.schemas import TYPE
from aoserial.torchao.steps.affine import packed, plain
from aoserial.torchao.steps.affine.view import Affine
from aoserial.torchao.steps.blocksparse import block_sparse_of_affine
from aoserial.torchao.steps.floatx import floatx_of_affine
from aoserial.torchao.steps.int4_cpu import INT4_CPU_ISA, REPAIRS_INT4_CPU
from aoserial.torchao.wrapping import carried

Reader = Callable[[Affine], Record]


def _whole(read: Callable[[Record], Record]) -> Reader:
    """A reader of whole records, which knows nothing of wrappers."""
    return lambda tensor: carried(tensor.record, read(tensor.record))


READERS: dict[str, Reader] = {
    "torchao.PlainAQTTensorImpl": plain.read_plain,
    "torchao.QDQTensorImpl": plain.read_qdq,
    "torchao.UintxAQTTensorImpl": plain.read_uintx,
    "torchao.Float8AQTTensorImpl": packed.read_float8,
    "torchao.Int4XPUAQTTensorImpl": packed.read_int4_xpu,
    "torchao.Int4PackedTensorImpl": packed.read_cutlass_int4,
    "torchao.MarlinSparseAQTTensorImpl": packed.read_marlin_sparse,
    "torchao.FloatxTensorCoreAQTTensorImpl": _whole(floatx_of_affine),
    "torchao.BlockSparseAQTTensorImpl": _whole(block_sparse_of_affine),
}

# those whose order of codes depends on the machine that packed, where a file does not say it
READERS_BY_MACHINE: dict[str, Callable[..., Record]] = {
    "torchao.TensorCoreTiledAQTTensorImpl": packed.read_tiles,
    "torchao.Int4CPUAQTTensorImpl": packed.read_int4_cpu,
}

OPAQUE: dict[str, str] = {
    "torchao.SemiSparseAQTTensorImpl": "its 2:4 sparse codes are compressed by cuSPARSELt",
    "torchao.CutlassSemiSparseTensorImpl": "its 2:4 sparse codes are in the order of CUTLASS's "
    "sm90 kernel",
    "torchao.GemliteAQTTensorImpl": "gemlite packed it for kernels that it chose on that machine",
    "torchao.Linear8BitActXBitWeightAQTTensorImpl": "torchao's kernels for Arm packed it",
    "torchao.PackedLinearInt8DynamicActivationIntxWeightAQTTensorImpl": "torchao's kernels for "
    "Arm, or KleidiAI's, packed it",
    "torchao.DA8W4CPUAQTTensorImpl": "da8w4_linear_prepack_cpu packed it in blocks that depend on "
    "the machine",
}


def _depends_on_machine(record: Record) -> bool:
    impl = record.attributes.get("tensor_impl")
    packed_weight = record.parts.get("tensor_impl.packed_weight")
    return (
        isinstance(impl, Nested)
        and impl.type in READERS_BY_MACHINE
        and packed_weight is not None
        and len(packed_weight.shape) == 2
        and INT4_CPU_ISA.concerns(record)
    )


_ISA = replace(INT4_CPU_ISA, concerns=_depends_on_machine)

_OURS = ("Int8Tensor", "IntxTensor", "Int4Tensor", "Float8Tensor", "FloatxTensor")


@migration(
    TYPE,
    5,
    1,
    becomes=(*(f"aoserial.{name}" for name in _OURS), "aoserial.BlockSparseTensor"),
    asks=(_ISA,),
    repairs=REPAIRS_INT4_CPU,
)
def leave_affine_quantized_tensor(record: Record, *, int4_cpu_isa: str | None) -> Record:
    """AffineQuantizedTensor of torchao 0.12 to 0.17: each layout has its reader.

    Raises:
        OpaqueBytesError: a layout of a vendor's kernel, which no public arithmetic reads.
    """
    tensor = Affine(record)
    kind = tensor.impl.type
    if kind in OPAQUE:
        raise OpaqueBytesError(OPAQUE[kind])
    tensor.parts  # noqa: B018 - those that the layout has, before any is looked at
    options: dict[str, Any] = {}
    read: Callable[..., Record] | None = READERS.get(kind)
    if read is None:
        read, options = READERS_BY_MACHINE[kind], {"int4_cpu_isa": int4_cpu_isa}
    return read(tensor, **options)
