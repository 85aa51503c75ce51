"""Our records as what constructors of torchao's classes take. Torch-free.

Types that torchao's safetensors layout has go the way of `converting`; those that torchao only ever
pickled are here. What comes out is a record whose fields are arguments of a constructor, by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from aoserial.errors import UnsupportedTensorError
from aoserial.record import Record
from aoserial.schema import FrozenMap, Nested, Symbol, Value
from aoserial.storage import Part
from aoserial.torchao.converting import IN_LAYOUT, to_torchao


def counterpart(record: Record) -> Record:
    """A record at the head of one of our types as the arguments of a constructor of torchao's.

    Raises:
        UnsupportedTensorError: torchao has no class that holds the same values and settings.
    """
    convert = _COUNTERPARTS.get(record.type, to_torchao)
    if convert is to_torchao and record.type not in IN_LAYOUT:
        raise UnsupportedTensorError(f"torchao has no class for {record.type}")
    return convert(record)


def _intx(record: Record) -> Record:
    """The layout writes the member of an enum by its value; a live tensor holds the member."""
    theirs = to_torchao(record)
    name = theirs.attributes["activation_quantization"]
    if not isinstance(name, str):
        return theirs
    kind = "torchao.IntxUnpackedToInt8TensorActivationQuantization"
    return theirs.set(activation_quantization=Symbol(kind, name.upper()))


def _nvfp4(record: Record) -> Record:
    """As in the layout; the arithmetic is the installed release's, whichever the record's was."""
    return to_torchao(record.set(scale_product_dtype="float32"))


def _nf4(record: Record) -> Record:
    size = record.attributes["block_size"]
    assert isinstance(size, int)
    return _become(record, "NF4Tensor", n_blocks=math.prod(record.shape) // size)


def _optimizer_state(record: Record) -> Record:
    """It shows the dtype of its parameter, or float32; its block size follows from its parts."""
    kind = record.type.removeprefix("aoserial.")
    given = record.attributes
    size, shown = given["block_size"], given["shown_dtype"] or "float32"
    assert isinstance(size, int)
    assert isinstance(shown, str)
    if math.prod(record.shape) != size * record.parts["scale"].shape[0]:
        raise UnsupportedTensorError(f"torchao's {kind} has whole blocks, of {size} these are not")
    more: dict[str, Value] = {"shape": record.shape} if kind == "OptimState4bit" else {}
    bare = replace(record.drop("block_size", "shown_dtype"), dtype=shown)
    return _become(bare, kind, dtype=shown, **more)


def _gguf(record: Record) -> Record:
    size, superblock = record.attributes["block_size"], record.attributes["superblock_size"]
    if superblock != 256 or not isinstance(size, tuple) or any(n != 1 for n in size[:-1]):
        raise UnsupportedTensorError("torchao's GGUF tensors have superblocks of 256 in rows")
    width = size[-1]
    assert isinstance(width, int)
    scale, offset = record.parts["super_scale"], record.parts["super_offset"]
    renamed = record.drop("block_size", "superblock_size").rename(
        qdata="int_data",
        scale="quantized_block_scale",
        offset="quantized_block_min",
        super_scale="super_block_scale_scale",
        super_offset="super_block_min_scale",
    )
    flat = {
        "super_block_scale_scale": _flat(scale),
        "super_block_min_scale": _flat(offset),
    }
    return _become(
        renamed.put(**flat),
        "GGUFQuantizedTensor",
        n_blocks_per_superblock=256 // width,
        shape=record.shape,
        dtype=record.dtype,
    )


def _flat(part: Part) -> Part:
    return part.view(part.dtype, (math.prod(part.shape),))


def _codebook(record: Record) -> Record:
    """One table with scales, or, for codes of single elements, a table a block as CoreML has it."""
    given = record.attributes
    table = record.parts["codebook"]
    tall, wide, entries, rows, columns = table.shape[-5:]
    bare = record.drop(*given)
    if "scale" in record.parts and len(table.shape) == 5 and (tall, wide) == (1, 1):
        scale = record.parts["scale"]
        return _become(
            bare.drop("scale").put(
                codebook=table.view(table.dtype, (entries, rows, columns)),
                scales=scale.view(scale.dtype, (*scale.shape, 1)),
            ),
            "CodebookQuantizedTensor",
            block_size=(rows, columns),
            shape=record.shape,
            dtype=record.dtype,
        )
    power = entries.bit_length() - 1
    if "scale" in record.parts or (rows, columns) != (1, 1) or entries != 2**power or power > 8:
        raise UnsupportedTensorError(
            "torchao's codebook classes have one table with scales, or a table a block for codes "
            "of single elements"
        )
    return _become(
        bare.put(codebook=table.view(table.dtype, (*table.shape[:-2], 1))),
        "CoreMLCodebookQuantizedTensor",
        code_dtype=f"uint{power}",
        block_size=(given["rows_per_table"], given["columns_per_table"]),
        shape=record.shape,
        dtype=record.dtype,
    )


def _block_sparse(record: Record) -> Record:
    values = record.parts["block_values"]
    if "scale" in record.parts or values.dtype != record.dtype or record.attributes["activation"]:
        raise UnsupportedTensorError("torchao's BlockSparseTensor is of plain values, not of codes")
    return _become(
        record.drop("block_size", "activation").rename(
            row_starts="bsr_crow_indices",
            block_columns="bsr_col_indices",
            block_values="bsr_values",
        ),
        "BlockSparseTensor",
        blocksize=values.shape[-1],
        shape=record.shape,
    )


def _float8_training(record: Record) -> Record:
    settings = record.attributes["settings"]
    told: dict[str, Value] = dict(settings) if isinstance(settings, tuple) else {}  # type: ignore[arg-type]
    role = str(told.get("gemm_input_role", "GemmInputRole.input")).rpartition(".")[2]
    return _become(
        record.drop("settings").rename(qdata="data"),
        "Float8TrainingTensor",
        orig_dtype=record.dtype,
        linear_mm_config=_mm_config(told.get("linear_mm_config")),
        gemm_input_role=Symbol("torchao.GemmInputRole", role.upper()),
        axiswise_dim=told.get("axiswise_dim"),
    )


def _mm_config(value: Value) -> Value:
    """`("LinearMMConfig", ((name, value), …))`, as pickled settings are kept, as an object."""
    match value:
        case (("LinearMMConfig" | "ScaledMMConfig") as kind, tuple() as pairs):
            held = {str(name): _mm_config(item) for name, item in pairs}
            return Nested(f"torchao.{kind}", 1, FrozenMap(held))
        case _:
            return value


_COUNTERPARTS: dict[str, Callable[[Record], Record]] = {
    "aoserial.IntxTensor": _intx,
    "aoserial.NVFP4Tensor": _nvfp4,
    "aoserial.NF4Tensor": _nf4,
    "aoserial.OptimState8bit": _optimizer_state,
    "aoserial.OptimState4bit": _optimizer_state,
    "aoserial.OptimStateFp8": _optimizer_state,
    "aoserial.GGUFTensor": _gguf,
    "aoserial.CodebookTensor": _codebook,
    "aoserial.BlockSparseTensor": _block_sparse,
    "aoserial.Float8TrainingTensor": _float8_training,
}


def _become(record: Record, kind: str, **attributes: Value) -> Record:
    return record.at(1, type=f"torchao.{kind}").set(**attributes)
