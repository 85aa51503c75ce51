"""From torchao's block-sparse tensors to ours. Torch-free."""

from __future__ import annotations

from aoserial.errors import FieldError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.schema.shapes import blocks
from aoserial.storage import Part

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
    inside = "tensor_impl."
    held = {
        name.removeprefix(inside): part
        for name, part in record.parts.items()
        if name.startswith(inside)
    }
    block_size = record.attributes["block_size"]
    bare = record.drop(*record.attributes, *record.parts).at(1, type="aoserial.BlockSparseTensor")
    grid = blocks(record.shape, {"block_size": block_size})

    def in_grid(part: Part) -> Part:
        return part.view(part.dtype, grid)

    return bare.put(
        **{ours: held[theirs] for theirs, ours in _NAMES.items()},
        **{name: in_grid(held[name]) for name in ("scale", "zero_point") if name in held},
    ).set(block_size=block_size)
