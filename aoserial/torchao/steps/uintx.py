"""The codes of torchao's UintxTensor, which lie in shards of 4, 2 and 1 bits. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from aoserial.errors import FieldError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.storage import Part, Shape, compute
from aoserial.torchao.uintx import SHARDS

if TYPE_CHECKING:
    import torch

_WIDTHS = (4, 2, 1)


@migration("torchao.UintxTensor", 1, 1, becomes="aoserial.UIntTensor")
def join_shards(record: Record) -> Record:
    """UintxTensor of torchao 0.5 to 0.18 by itself: integers with no scale, which stay integers.

    `packed_shape` is the logical shape, whatever its name says.
    Proved by fixtures/torchao-0.7.0/uintx_tensor_uint3.
    """
    given = record.attributes
    bits, dim = given["bit_width"], given["pack_dim"]
    assert isinstance(bits, int)  # resolution checked the fields' types
    assert isinstance(dim, int)
    if given["packed_shape"] != record.shape:
        raise FieldError(f"is not the shape, {list(record.shape)}").locate(field="packed_shape")
    shards = {name: record.parts[name] for name in SHARDS if name in record.parts}
    codes = unsharded(shards, bits=bits, shape=record.shape, dim=dim)
    return replace(
        record.at(1, type="aoserial.UIntTensor")
        .drop("pack_dim", "packed_shape", *shards)
        .put(qdata=codes),
        dtype="uint8",
    )


def unsharded(shards: Mapping[str, Part], *, bits: int, shape: Shape, dim: int) -> Part:
    """Codes of 1 to 7 bits, one a byte, of UintxTensor of torchao 0.5 to 0.18.

    Its widest shard has the lowest bits of all codes. Along `dim`, a shard of s bits is cut into
    8 / s equal pieces that share bytes, the first in the lowest bits.

    Args:
        shards: by name, `int4_shard`, `int2_shard` and `int1_shard`; those that `bits` are made of.
        shape: of the codes.
        dim: along which codes share bytes.

    Raises:
        FieldError: other shards, or of other shapes.
    """
    widths = tuple(width for width in _WIDTHS if bits & width)
    names = [f"int{width}_shard" for width in widths]
    if not 1 <= bits <= 7 or not -len(shape) <= dim < len(shape) or set(names) != set(shards):
        raise FieldError(
            f"codes of {bits} bits along dimension {dim} cannot be of the shards {sorted(shards)}"
        )
    for name, width in zip(names, widths, strict=True):
        expected = list(shape)
        expected[dim] = expected[dim] * width // 8
        if list(shards[name].shape) != expected or shape[dim] % 8:
            raise FieldError(
                f"shape is {list(shards[name].shape)}, which is not {width} bits of {list(shape)}"
            ).locate(field=name)

    def join(*held: torch.Tensor) -> torch.Tensor:
        return _join(held, widths, dim)

    across = dim % len(shape) == 0  # then a row's codes share bytes with those of others
    return compute(
        join,
        *(shards[name] for name in names),
        dtype="uint8",
        shape=shape,
        by_rows=None if across else 1,
    )


def _join(shards: tuple[torch.Tensor, ...], widths: tuple[int, ...], dim: int) -> torch.Tensor:
    import torch  # torch-free module

    codes, below = torch.zeros((), dtype=torch.uint8), 0
    for shard, width in zip(shards, widths, strict=True):
        pieces = [shard >> start & (1 << width) - 1 for start in range(0, 8, width)]
        codes = codes | torch.cat(pieces, dim) << below
        below += width
    return codes
