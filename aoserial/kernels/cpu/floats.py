"""Decoders of float8, MX and NVFP4."""

from __future__ import annotations

import torch

from aoserial.kernels.arithmetic import e8m0, nvfp4_scale
from aoserial.kernels.cpu.bits import FORMATS, has_other_codes
from aoserial.kernels.cpu.decoder import Decoder, Parts
from aoserial.kernels.cpu.scales import (
    are_whole_blocks,
    by_blocks,
    exact,
    of_outputs,
    of_rows,
    same_along_k,
)
from aoserial.kernels.cpu.scratch import SCRATCH
from aoserial.kernels.spec import Spec, Weight
from aoserial.storage.dtypes import torch_dtype

FP4 = "float4_e2m1fn_x2"


class Bytes(Decoder):
    """float8, and MX of fp8 and fp6: a code a byte, none of them an infinity or NaN."""

    def pack(self, weight: Weight) -> Parts | None:
        spec, parts = weight.spec, weight.parts
        name = format_name(spec)
        if name == FP4 or name not in FORMATS or not are_whole_blocks(spec):
            return None
        if has_other_codes(parts["qdata"], name):
            return None
        scale = exact(scale_of(weight), FORMATS[name].factor)
        if scale is None:
            return None
        if same_along_k(spec):
            return {"row_scale": of_outputs(scale, spec)}
        return {"block_scale": scale}

    def narrows(self, parts: Parts) -> bool:
        return "block_scale" not in parts

    def decode(self, spec: Spec, parts: Parts, start: int, stop: int, out: torch.Tensor) -> None:
        form = FORMATS[format_name(spec)]
        codes = parts["qdata"][start:stop].view(torch.int8)
        if form.unused:
            high = SCRATCH.of(torch.int8, *codes.shape)
            codes = torch.mul(codes, 1 << form.unused, out=high)
        form.decode(codes, out)
        if "block_scale" in parts:
            w, scale = by_blocks(out, of_rows(parts["block_scale"], spec, start, stop))
            w.mul_(scale)


class Nibbles(Decoder):
    """MX of fp4 and NVFP4: two codes a byte, blocks within a row of an even number of columns.

    Decoded columns are [those of low nibbles, those of high ones]; within each come the first
    of all blocks, then the second of all, and so on. So scales that are neighbours multiply columns
    that are neighbours: a block's own half, of 8 or 16 columns, is too short a loop.
    """

    def pack(self, weight: Weight) -> Parts | None:
        spec = weight.spec
        (rows, columns), size = spec.shape, spec.block_size[-1]
        if format_name(spec) != FP4 or spec.block_size[0] != 1 or size % 2 or columns % size:
            return None
        scale = exact(scale_of(weight), FORMATS[FP4].factor)
        if scale is None:
            return None
        blocks = weight.parts["qdata"].view(torch.int8).reshape(rows, columns // size, size // 2)
        return {"planes": blocks.transpose(1, 2).contiguous(), "block_scale": scale}

    def columns(self, x: torch.Tensor, spec: Spec) -> torch.Tensor:
        size = spec.block_size[-1]
        pairs = x.view(len(x), spec.shape[1] // size, size // 2, 2)
        return pairs.permute(0, 3, 2, 1).reshape(x.shape)

    def decode(self, spec: Spec, parts: Parts, start: int, stop: int, out: torch.Tensor) -> None:
        del spec
        high = parts["planes"][start:stop]
        low = torch.mul(high, 16, out=SCRATCH.of(torch.int8, *high.shape))
        values = out.view(len(high), 2, *high.shape[1:])
        for half, codes in enumerate((low, high)):
            FORMATS[FP4].decode(codes, values[:, half])
        values.mul_(parts["block_scale"][start:stop, None, None])


def format_name(spec: Spec) -> str:
    """The name of the codes' format, empty for those of integers."""
    if spec.kind == "nvfp4":
        return FP4
    return {"float8": spec.data_dtype, "mx": spec.element or ""}.get(spec.kind, "")


def scale_of(weight: Weight) -> torch.Tensor:
    """What the values of the codes are times, a number a block."""
    spec, scale = weight.spec, weight.parts["scale"]
    match spec.kind:
        case "mx":
            return e8m0(scale)
        case "nvfp4":
            return nvfp4_scale(
                scale,
                weight.parts.get("per_tensor_scale"),
                scale_op=spec.scale_op,
                scale_dtype=torch_dtype(spec.scale_dtype),
            )
        case _:
            return scale
