"""The decoder of int8, intx and int4."""

from __future__ import annotations

import torch

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

# By kind and zero domain: what is taken from each code before it is scaled, the middle code or the
# zero point; and whether the zero point is added after. See `arithmetic.affine`.
MEANINGS = {
    ("int8", "none"): ("zero", False),
    ("intx", "none"): ("zero", False),
    ("intx", "int"): ("zero", False),
    ("intx", "float"): ("nothing", True),
    ("intx", "offset"): ("nothing", True),
    ("int4", "none"): ("middle", False),
    ("int4", "int"): ("zero", False),
    ("int4", "float"): ("middle", True),
    ("int4", "offset"): ("nothing", True),
}
MIDDLE = 8  # of the codes of int4


class Integers(Decoder):
    """Codes of a byte each, and those of int4, two a byte, of which the even columns come first."""

    def pack(self, weight: Weight) -> Parts | None:
        spec, parts = weight.spec, weight.parts
        meaning = MEANINGS.get((spec.kind, spec.zero_domain))
        if meaning is None or "group_index" in parts or not are_whole_blocks(spec):
            return None
        if spec.kind == "int4" and spec.block_size[-1] % 2:
            return None
        taken, adds = meaning
        scale, packed = exact(parts["scale"]), {}
        if "zero_point" in parts and (adds or taken == "zero"):
            zero = exact(parts["zero_point"])
            if zero is None:
                return None
            packed["added" if adds else "taken"] = zero
        if scale is None:
            return None
        if same_along_k(spec) and not adds:
            return {**packed, "row_scale": of_outputs(scale, spec)}
        return {**packed, "block_scale": scale}

    def columns(self, x: torch.Tensor, spec: Spec) -> torch.Tensor:
        if spec.kind != "int4":
            return x
        return x.view(len(x), spec.shape[1] // 2, 2).transpose(1, 2).reshape(x.shape)

    def decode(self, spec: Spec, parts: Parts, start: int, stop: int, out: torch.Tensor) -> None:
        codes, halves = parts["qdata"][start:stop], 1
        if spec.kind == "int4":
            halves = 2
            _write_nibbles(codes, out)
            if MEANINGS["int4", spec.zero_domain][0] == "middle":
                out.sub_(MIDDLE)
        else:
            out.copy_(codes)
        for name, apply in (
            ("taken", torch.Tensor.sub_),
            ("block_scale", torch.Tensor.mul_),
            ("added", torch.Tensor.add_),
        ):
            if name in parts:
                apply(*by_blocks(out, of_rows(parts[name], spec, start, stop), halves))


def _write_nibbles(codes: torch.Tensor, out: torch.Tensor) -> None:
    """uint8 [R, K/2] → float32 [R, K], the low nibbles of a row and then the high ones."""
    halves = out.view(len(codes), 2, codes.shape[1])
    nibbles = SCRATCH.of(torch.uint8, *codes.shape)
    halves[:, 0].copy_(torch.bitwise_and(codes, 15, out=nibbles))
    halves[:, 1].copy_(torch.bitwise_right_shift(codes, 4, out=nibbles))
