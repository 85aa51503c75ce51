"""Multiplying by a weight decoded some rows at a time, into memory that stays in cache.

Decoding into a buffer of the whole weight would write and read it in main memory, several times the
bytes of the codes.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812

from aoserial.kernels.cpu.decoder import Decoder, Parts, Rows
from aoserial.kernels.cpu.floats import Bytes, Nibbles
from aoserial.kernels.cpu.integers import Integers
from aoserial.kernels.cpu.scratch import SCRATCH
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.spec import Spec

DECODERS: dict[str, Decoder] = {
    "bytes": Bytes(),
    "nibbles": Nibbles(),
    "integers": Integers(),
    "rows": Rows(),
}
# Of the float32 buffer, for each thread: what a core's own cache holds. Larger chunks go through
# main memory; smaller ones are more parallel regions, each of which waits for all threads.
_BYTES_A_THREAD, _LEAST_BYTES = 1 << 20, 2 << 20
_FEW = 16  # rows of an activation, from which on a GEMM gains more by bfloat16 than a cast costs


def linear(x: torch.Tensor, decoder: Decoder, spec: Spec, parts: Parts) -> torch.Tensor:
    """x [M, K] times the weight, [M, N] in float32; in float64 for such an x.

    Multiplied and added up in float32, so that nothing is rounded to the dtype of `x` but the
    result; in bfloat16 where that is of `x`, the CPU multiplies it natively, and M is not small.
    """
    if x.dtype == torch.float64:
        decoder = DECODERS["rows"]
    wide = torch.promote_types(x.dtype, torch.float32)
    row_scale = None if x.dtype == torch.float64 else parts.get("row_scale")
    narrow = x.dtype == torch.bfloat16 and len(x) >= _FEW and multiplies_bfloat16()
    x = decoder.columns(x.contiguous(), spec).to(torch.bfloat16 if narrow else wide)
    y = x.new_empty((len(x), spec.shape[0]), dtype=wide)
    for start, stop in _chunks(spec):
        w = SCRATCH.of(wide, stop - start, spec.shape[1])
        decoder.decode(spec, parts, start, stop, w)
        if narrow:
            w = SCRATCH.of(torch.bfloat16, *w.shape).copy_(w)
        if len(x) == 1:
            torch.mv(w, x[0], out=y[0, start:stop])  # half the time of F.linear
        else:
            y[:, start:stop] = F.linear(x, w)
    return y if row_scale is None else y.mul_(row_scale)


def multiplies_bfloat16() -> bool:
    """Whether this CPU has instructions for it, without which float32 is several times faster."""
    return "bf16" in DeviceInfo.of(torch.device("cpu")).features


def _chunks(spec: Spec) -> Iterator[tuple[int, int]]:
    """The rows of each chunk, from and before, in whole blocks."""
    (rows, columns), block = spec.shape, spec.block_size[0]
    chunk = max(_LEAST_BYTES, _BYTES_A_THREAD * torch.get_num_threads())
    step = max(1, chunk // 4 // max(1, columns) // block) * block
    for start in range(0, rows, step):
        yield start, min(start + step, rows)
