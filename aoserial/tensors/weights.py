"""A quantized tensor as kernels see it."""

from __future__ import annotations

from typing import Any

from aoserial.kernels import Spec, Weight
from aoserial.storage.dtypes import dtype_name
from aoserial.tensors.activation import Activation
from aoserial.tensors.base import VersionedTensor


def shown(
    tensor: VersionedTensor,
    kind: str,
    *,
    block_size: tuple[int, ...],
    activation: Activation | None,
    **facts: Any,
) -> Weight:
    """The weight that a tensor with these attributes is to kernels.

    Args:
        kind, facts: what its codes mean, as `Spec` has it.
    """
    names = (*tensor.tensor_data_names, *tensor.optional_tensor_data_names)
    held = {name: getattr(tensor, name) for name in names}
    parts = {name: part for name, part in held.items() if part is not None}
    spec = Spec(
        kind=kind,
        data_dtype=dtype_name(parts["qdata"].dtype),
        shape=tuple(tensor.shape),
        dtype=dtype_name(tensor.dtype),
        block_size=block_size,
        activation=None if activation is None else activation.spec(),
        parts=tuple(parts),
        **facts,
    )
    return Weight(spec=spec, parts=parts)
