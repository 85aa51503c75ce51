"""Small weights of every kind, as kernels see them, and what a layer by one gives exactly."""

from __future__ import annotations

from dataclasses import replace

import torch

from aoserial.kernels import ActivationSpec, Weight
from aoserial.tensors import (
    Float8Tensor,
    Int4Tensor,
    Int8Tensor,
    IntxTensor,
    MXTensor,
    NVFP4Tensor,
)


def float8_activation(granularity: str, **settings: object) -> ActivationSpec:
    facts = {"static": False, "dtype": "float8_e4m3fn", "granularity": granularity, **settings}
    return ActivationSpec(**facts)  # type: ignore[arg-type]


def int8_activation(granularity: str, **settings: object) -> ActivationSpec:
    facts = {"static": False, "dtype": "int8", "granularity": granularity, **settings}
    return ActivationSpec(**facts)  # type: ignore[arg-type]


def with_activation(weight: Weight, activation: ActivationSpec | None) -> Weight:
    return Weight(spec=replace(weight.spec, activation=activation), parts=weight.parts)


def with_part(weight: Weight, name: str, part: torch.Tensor) -> Weight:
    parts = {**weight.parts, name: part}
    return Weight(spec=replace(weight.spec, parts=tuple(parts)), parts=parts)


BLOCK_ACTIVATION = float8_activation("block", block_size=(1, 128))

# Each format that people load: a class, what makes it, and what quantizes its activation.
FORMATS = {
    "float8 tensor": (Float8Tensor, {"granularity": "tensor"}, None),
    "float8 row": (Float8Tensor, {"granularity": "row"}, None),
    "float8 128x128": (Float8Tensor, {"granularity": (128, 128)}, None),
    "float8 tensor, dynamic": (
        Float8Tensor,
        {"granularity": "tensor"},
        float8_activation("tensor"),
    ),
    "float8 row, dynamic": (Float8Tensor, {"granularity": "row"}, float8_activation("row")),
    "float8 128x128, dynamic": (Float8Tensor, {"granularity": (128, 128)}, BLOCK_ACTIVATION),
    "float8 e5m2 row": (Float8Tensor, {"granularity": "row", "dtype": torch.float8_e5m2}, None),
    "int8 row": (Int8Tensor, {"granularity": "row"}, None),
    "int8 row, dynamic": (Int8Tensor, {"granularity": "row"}, int8_activation("row")),
    "int4 g128": (Int4Tensor, {"group_size": 128}, None),
    "int4 g128, float zero point": (
        Int4Tensor,
        {"group_size": 128, "zero_domain": "float"},
        None,
    ),
    "int4 g128, int zero point": (Int4Tensor, {"group_size": 128, "zero_domain": "int"}, None),
    "int4 g32, offset zero point": (
        Int4Tensor,
        {"group_size": 32, "zero_domain": "offset"},
        None,
    ),
    "int8 g32": (Int8Tensor, {"granularity": (1, 32)}, None),
    "intx 4 bits": (IntxTensor, {"bit_width": 4, "group_size": 32, "zero_domain": "int"}, None),
    "mx fp8": (MXTensor, {}, None),
    "nvfp4": (NVFP4Tensor, {}, None),
}


def weight_of(
    name: str, shape: tuple[int, int] = (128, 256), dtype: torch.dtype = torch.bfloat16
) -> Weight:
    """A weight of one of `FORMATS`, of normal values."""
    cls, settings, activation = FORMATS[name]
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    w = torch.randn(shape, generator=generator).to(dtype)
    return with_activation(cls.from_float(w, **settings).kernel_weight(), activation)
