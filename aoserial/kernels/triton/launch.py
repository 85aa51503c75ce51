"""Calls of the kernels as plain data: they can be launched, or compiled for a device not here."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import torch

from aoserial.kernels.backend import Packed
from aoserial.kernels.triton.tiling import (
    FLOAT8_BY_FLOAT8,
    WEIGHT_ONLY,
    WEIGHT_ONLY_FLOAT32,
    Tiling,
    tiling,
)
from aoserial.storage.dtypes import dtype_name

# The name in `device_code` of what the codes of a dtype are; int4's are bytes of two.
CODES = {
    "uint8": "INT4",
    "int8": "INT8",
    "float8_e4m3fn": "E4M3",
    "float8_e5m2": "E5M2",
    "float8_e4m3fnuz": "E4M3FNUZ",
}
_INT4_MID = 8.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A kernel by name, what it is called with, and in what pieces.

    Attributes:
        arguments: tensors, integers, and None for a tensor that is not there.
        constants: what the kernel is compiled for; dtypes and codes by their names.
        shape: of the result, [M, N].
    """

    kernel: str
    arguments: dict[str, Any]
    constants: dict[str, Any]
    tiling: Tiling
    shape: tuple[int, int]

    def resolved(self) -> dict[str, Any]:
        """The constants with Triton's objects in place of names, and the tile."""
        import triton  # optional, and slow to import
        from triton import language

        from aoserial.kernels.triton import device_code

        # its interpreter multiplies the bits of bfloat16 as if they were integers
        stand_ins = {"bfloat16": "float32"} if triton.knobs.runtime.interpret else {}
        found = dict(self.constants)
        for name, value in self.constants.items():
            if isinstance(value, str):
                home = device_code if value in CODES.values() else language
                found[name] = getattr(home, stand_ins.get(value, value))
        return {**found, "BM": self.tiling.bm, "BN": self.tiling.bn, "BK": self.tiling.bk}

    def launch(self) -> torch.Tensor:
        """Runs it, and gives its `y`."""
        from aoserial.kernels.triton import device_code

        kernel = getattr(device_code, self.kernel)[self.tiling.grid(*self.shape)]
        options = {"num_warps": self.tiling.warps, "num_stages": self.tiling.stages}
        y: torch.Tensor = self.arguments["y"]
        # the current device is the one that is launched on
        with torch.cuda.device(y.device if y.is_cuda else -1):
            kernel(**self.arguments, **self.resolved(), **options)
        return y


def weight_only(x: torch.Tensor, packed: Packed, bias: torch.Tensor | None) -> Call:
    """The call for an activation [M, K] that stays as it is: y in its dtype.

    Args:
        packed: with `kernel_codes`, `kernel_scale`, and perhaps `kernel_shift` and `kernel_added`.
    """
    spec, parts = packed.spec, packed.parts
    (n, k), (rows, group) = spec.shape, spec.block_size
    shift, added = parts.get("kernel_shift"), parts.get("kernel_added")
    scale_last = group >= k and spec.kind in ("float8", "int8")
    dot = dtype_name(x.dtype)
    pieces = tiling(WEIGHT_ONLY_FLOAT32 if dot == "float32" else WEIGHT_ONLY, x.shape[0])
    return Call(
        kernel="weight_only",
        arguments={
            "x": x,
            "codes": parts["kernel_codes"].view(torch.uint8),
            "scale": parts["kernel_scale"],
            "shift": shift,
            "added": added,
            "bias": None if bias is None else bias.contiguous(),
            "y": x.new_empty((x.shape[0], n)),
            "M": x.shape[0],
            "N": n,
            "K": k,
            "ROWS": rows,
            "GROUP": group,
            "GROUPS": -(-k // group),
        },
        constants={
            "CODES": CODES[spec.data_dtype],
            "MID": _INT4_MID if _is_centred(packed) else 0.0,
            "HAS_SHIFT": shift is not None,
            "HAS_ADDED": added is not None,
            "HAS_BIAS": bias is not None,
            "SCALE_LAST": scale_last,
            "NARROW": spec.narrow_arithmetic,
            "ROUND": spec.dtype,
            "DOT": dot,
            "SPAN": pieces.bk if group >= k else gcd(group, pieces.bk),
        },
        tiling=pieces,
        shape=(x.shape[0], n),
    )


def _is_centred(packed: Packed) -> bool:
    return packed.spec.kind == "int4" and packed.spec.zero_domain in ("none", "float")


def float8_by_float8(
    codes: torch.Tensor,
    scale: torch.Tensor,
    packed: Packed,
    bias: torch.Tensor | None,
    dtype: torch.dtype,
) -> Call:
    """The call for a float8 activation [M, K]: y in `dtype`.

    Args:
        scale: float32, contiguous: [M], or [M, K/128] of blocks.
        packed: its layout says whether the scales are `in_blocks`, and whether the operands meet as
            float8 (`native`).
    """
    spec, parts = packed.spec, packed.parts
    m, (n, k) = codes.shape[0], spec.shape
    native = packed.layout.startswith("native")
    carrier = codes.dtype if native else torch.uint8
    w_carrier = parts["kernel_codes"].dtype if native else torch.uint8
    return Call(
        kernel="float8_by_float8",
        arguments={
            "a": codes.contiguous().view(carrier),
            "codes": parts["kernel_codes"].view(w_carrier),
            "a_scale": scale,
            "scale": parts["kernel_scale"],
            "bias": None if bias is None else bias.contiguous(),
            "y": codes.new_empty((m, n), dtype=dtype),
            "M": m,
            "N": n,
            "K": k,
            "ROWS": spec.block_size[0],
        },
        constants={
            "A_CODES": CODES[dtype_name(codes.dtype)],
            "CODES": CODES[spec.data_dtype],
            "NATIVE": native,
            "IN_BLOCKS": packed.layout.endswith("blocks"),
            "HAS_BIAS": bias is not None,
        },
        tiling=tiling(FLOAT8_BY_FLOAT8, m),
        shape=(m, n),
    )
