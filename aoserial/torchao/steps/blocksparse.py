"""From torchao's block-sparse tensors to ours. Torch-free."""

from __future__ import annotations

from aoserial.errors import FieldError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.schema import Symbol
from aoserial.schema.shapes import blocks

_NAMES = {
    "bsr_crow_indices": "row_starts",
    "bsr_col_indices": "block_columns",
    "bsr_values": "block_values",
}


@migration("torchao.BlockSparseTensor", 1, 1, becomes="aoserial.BlockSparseTensor")
def leave_torchao_block_sparse(record: Record) -> Record:
    """BlockSparseTensor of torchao 0.5 to 0.18: same bytes.

    Proved by fixtures/torchao-0.18.0/block_sparse.
    """
    side, given = record.parts["bsr_values"].shape[-1], record.attributes["blocksize"]
    if given not in (None, side):
        raise FieldError(f"is {given!r:.20}, but the blocks are of {side}").locate(
            field="blocksize"
        )
    return record.at(1, type="aoserial.BlockSparseTensor").drop("blocksize").rename(**_NAMES)


def block_sparse_of_affine(record: Record) -> Record:
    """AffineQuantizedTensor with the layout BlockSparse, torchao 0.6 to 0.16: int8 codes.

    The codes' range says nothing more, and the layout's block size is that of the values. A zero
    point of integers is kept, as in the plain layout. From torchao's class bodies: no file is at
    hand.

    Args:
        record: of torchao's AffineQuantizedTensor as it was from 0.7 on.
    """
    given = record.attributes
    held = {name.removeprefix("tensor_impl."): part for name, part in record.parts.items()}
    missing = [name for name in (*_NAMES, "scale") if name not in held]
    if missing or held["bsr_values"].dtype != "int8":
        raise FieldError(f"lacks {', '.join(missing) or 'codes of int8'}").locate(
            field="tensor_impl"
        )
    domain = given["zero_point_domain"]
    if isinstance(domain, Symbol) and domain.name == "FLOAT":
        raise FieldError("is FLOAT, which this layout never had").locate(field="zero_point_domain")
    block_size = given["block_size"]
    grid = blocks(record.shape, {"block_size": block_size})
    parts = {ours: held[theirs] for theirs, ours in _NAMES.items()}
    for name in ("scale", "zero_point"):
        if name in held:
            parts[name] = held[name].view(held[name].dtype, grid)
    bare = record.drop(*given, *record.parts).at(1, type="aoserial.BlockSparseTensor")
    return bare.put(**parts).set(block_size=block_size)
