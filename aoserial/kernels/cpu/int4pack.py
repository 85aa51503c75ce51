"""int4 in groups by torch's `_weight_int4pack_mm_for_cpu`: w = (q - 8) s + z."""

from __future__ import annotations

from functools import lru_cache, partial

import torch

from aoserial.kernels.arithmetic import pack_nibbles, unpack_nibbles
from aoserial.kernels.cpu.decoder import Parts
from aoserial.kernels.cpu.kernel import Attempt, Kernel, finished, rows
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.spec import Spec, Weight

aten = torch.ops.aten

_GROUPS = (32, 64, 128, 256)  # that it has code for
_ROWS = 16  # of which the number of outputs must be a multiple
_BLOCK = 64  # rows that are packed by themselves
# Of its vector code for AVX2. In float16 it takes 27 times as long, in float32 100 times.
_DTYPE = torch.bfloat16
_MANY = 32  # rows of an activation above which decoding once for all of them is faster
_MIDDLE = 8


class Int4Pack(Kernel):
    """Few rows of bfloat16, and scales in it.

    Scales enter the kernel in the dtype of the activation: others would be rounded. It adds what
    the zero points come to, in the same dtype:

        int     (q - z) s = (q - 8) s + (8 - z) s
        offset  q s + z   = (q - 8) s + (8 s + z)

    What that dtype rounds off is a second product, in float32, with the sums of the activation over
    each group. All of it there would be simpler, but the kernel's own result is rounded, which
    where both are large and cancel is all that would be left. Where a sum is not finite, the
    stream takes over: infinities could cancel to NaN.

    Without the weight's own codes it takes many rows as well, since the stream would have to unpack
    them first.
    """

    holds_codes = True

    def pack(self, weight: Weight, device: DeviceInfo) -> Parts | None:
        spec, scale = weight.spec, weight.parts["scale"]
        if "avx2" not in device.features or not _fits(spec) or scale.dtype != _DTYPE:
            return None
        codes = unpack_nibbles(weight.parts["qdata"])
        added: dict[str, torch.Tensor] = {}
        if "group_index" in weight.parts:
            order = _order(weight.parts["group_index"], spec)
            if order is None:
                return None
            codes, added["order"] = codes[:, order], order
        zero, shift = _zero(weight)
        if shift is not None:
            added["shift"] = shift
        pairs = torch.stack([scale.t(), zero.t()], dim=-1)
        added["scales_and_zeros"] = pairs.contiguous()
        added["int4"] = aten._convert_weight_to_int4pack_for_cpu(codes.to(torch.int32), 1)
        return added

    def bind(self, weight: Weight) -> Attempt:
        return partial(_linear, weight)

    def codes(self, spec: Spec, parts: Parts) -> torch.Tensor:
        """The nibbles back in their places, and the columns in their order."""
        n, k = spec.shape
        packed = _nibbles(parts["int4"]).view(n, k)
        whole = n // _BLOCK * _BLOCK
        codes = torch.cat([_in_place(packed[:whole], _BLOCK), _in_place(packed[whole:], n - whole)])
        if "order" in parts:
            codes[:, parts["order"]] = codes.clone()
        return pack_nibbles(codes)


def _linear(weight: Weight, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor | None:
    parts, columns = weight.parts, x.shape[-1]
    many = x.numel() > _MANY * columns and "qdata" in parts
    if many or x.dtype != _DTYPE:
        return None
    met = rows(x, weight)
    if "order" in parts:
        met = met.index_select(1, parts["order"])
    size = weight.spec.block_size[-1]
    y: torch.Tensor = aten._weight_int4pack_mm_for_cpu(
        met, parts["int4"], size, parts["scales_and_zeros"]
    )
    if "shift" not in parts:
        return finished(y, x, bias)
    sums = met.view(len(met), columns // size, size).sum(dim=-1, dtype=torch.float32)
    if not sums.isfinite().all():
        return None
    y = torch.addmm(y.to(torch.float32), sums, parts["shift"].t())
    return finished(y, x, bias)


def _fits(spec: Spec) -> bool:
    n, k = spec.shape
    block, size = spec.block_size
    return spec.kind == "int4" and (
        spec.activation is None
        and (block == 1 and size in _GROUPS and k > 0 and k % size == 0)
        and (n > 0 and n % _ROWS == 0)
    )


def _in_place(packed: torch.Tensor, block: int) -> torch.Tensor:
    """Blocks of packed codes, each row a row of the weight's."""
    rows, columns = packed.shape
    if rows == 0:
        return packed
    blocks = packed.view(rows // block, block * columns)
    return blocks[:, _origins(block, columns)].view(rows, columns)


@lru_cache(maxsize=8)
def _origins(rows: int, columns: int) -> torch.Tensor:
    """Which nibble of a packed block holds each of its codes.

    The order depends on the CPU, so torch is asked: what it makes of the digits of each index,
    digit by digit, tells where that index went.
    """
    index = torch.arange(rows * columns).view(rows, columns)
    held = torch.zeros(rows * columns, dtype=torch.int64)
    for shift in range(0, (rows * columns - 1).bit_length(), 4):
        digits = (index >> shift & 15).to(torch.int32)
        packed = aten._convert_weight_to_int4pack_for_cpu(digits, 1)
        held |= _nibbles(packed).to(torch.int64) << shift
    return held.argsort()


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    return torch.stack([packed & 15, packed >> 4], dim=-1).flatten()


def _order(group_index: torch.Tensor, spec: Spec) -> torch.Tensor | None:
    """The columns, those of the first group first; None where groups are not of one size."""
    size = spec.block_size[-1]
    counts = torch.bincount(group_index, minlength=spec.shape[1] // size)
    return group_index.argsort(stable=True) if bool((counts == size).all()) else None


def _zero(weight: Weight) -> tuple[torch.Tensor, torch.Tensor | None]:
    """What the kernel adds, [N, K/G] in the dtype of the scale; and what the sums are times.

    The latter is float32, None where there is nothing left for it.
    """
    scale, zero = weight.parts["scale"], weight.parts.get("zero_point")
    nothing, domain = torch.zeros_like(scale), weight.spec.zero_domain
    if domain == "none":
        return nothing, None
    wide = scale.to(torch.float32)
    value = torch.zeros_like(wide) if zero is None else zero.to(torch.float32)
    whole = {"int": (_MIDDLE - value) * wide, "float": value, "offset": _MIDDLE * wide + value}
    rounded = whole[domain].to(scale.dtype)
    left = whole[domain] - rounded.to(torch.float32)
    return rounded, left if bool((left != 0).any()) else None
