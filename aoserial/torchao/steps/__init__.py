"""The steps that leave torchao's own types for ours, registered on import. Torch-free."""

from aoserial.torchao.steps import (
    affine,
    blocksparse,
    codebook,
    firstborn,
    flat,
    float8,
    floatx,
    fp4,
    int4,
    int8,
    integers,
    microscaling,
    opaque,
    training,
    uintx,
    wrappers,
)

__all__ = [
    "affine",
    "blocksparse",
    "codebook",
    "firstborn",
    "flat",
    "float8",
    "floatx",
    "fp4",
    "int4",
    "int8",
    "integers",
    "microscaling",
    "opaque",
    "training",
    "uintx",
    "wrappers",
]
