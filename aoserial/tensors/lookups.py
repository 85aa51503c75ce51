"""Tables of embeddings: what is looked up is dequantized, and nothing else where rows lie apart."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from aoserial.errors import UnsupportedOperationError
from aoserial.tensors import geometry
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.operators import operator, plain, torch_function

aten = torch.ops.aten


@torch_function(F.embedding)
def _embedding(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    *args: Any,
    **kwargs: Any,
) -> torch.Tensor:
    if max_norm is not None:
        raise UnsupportedOperationError("max_norm changes the weight; a quantized one cannot be")
    found = _looked_up(weight, input)
    if found is not None:
        return found
    return F.embedding(input, plain(weight), padding_idx, None, *args, **kwargs)


@operator(aten.embedding.default)  # reached in inference mode, below torch functions
def _aten_embedding(weight: torch.Tensor, indices: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    found = _looked_up(weight, indices)
    return (
        aten.embedding.default(plain(weight), indices, *args, **kwargs) if found is None else found
    )


def _looked_up(table: torch.Tensor, indices: torch.Tensor) -> torch.Tensor | None:
    """The rows of a table, [*indices.shape, K]; None where it has to be dequantized whole."""
    count = indices.numel()
    if not isinstance(table, VersionedTensor) or isinstance(indices, VersionedTensor):
        return None
    if torch.compiler.is_compiling() or table.dim() != 2 or not 0 < count < table.shape[0]:
        return None
    picked = geometry.pick(table.part_layout(), count)
    if picked is None:
        return None
    flat = indices.reshape(count)
    parts = {name: getattr(table, name) for name in table.part_names()}
    for name, dim in picked.parts.items():
        parts[name] = parts[name].index_select(dim, flat)
    shape = (count, table.shape[1])
    rows = table.with_parts(parts, shape=shape, attributes=picked.attributes).dequantize()
    return rows.view(*indices.shape, table.shape[1])
