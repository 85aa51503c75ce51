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
from aoserial.kernels.cpu.workers import WORKERS
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.spec import Spec

DECODERS: dict[str, Decoder] = {
    "bytes": Bytes(),
    "nibbles": Nibbles(),
    "integers": Integers(),
    "rows": Rows(),
}
_CHUNK_BYTES = 2 << 20  # of a thread's float32 buffer: near what a core's own cache holds
_SMALL = 1 << 18  # elements of a weight below which threads cost more than they save
_RANGES = 4  # a thread, so that one that is held up has less to do than the others
_FEW = 16  # rows of an activation, from which on a GEMM gains more by bfloat16 than a cast costs


def linear(x: torch.Tensor, decoder: Decoder, spec: Spec, parts: Parts) -> torch.Tensor:
    """x [M, K] times the weight, [M, N] in float32; in float64 for such an x.

    Multiplied and added up in float32, so that nothing is rounded to the dtype of `x` but the
    result; in bfloat16 where that is of `x`, the CPU multiplies it natively, and the weight is
    decoded to it as well, or M is not small.
    """
    if x.dtype == torch.float64:
        decoder = DECODERS["rows"]
    wide = torch.promote_types(x.dtype, torch.float32)
    row_scale = None if x.dtype == torch.float64 else parts.get("row_scale")
    native = x.dtype == torch.bfloat16 and multiplies_bfloat16()
    direct = native and decoder.narrows(parts)
    narrow = direct or (native and len(x) >= _FEW)
    x = decoder.columns(x.contiguous(), spec).to(torch.bfloat16 if narrow else wide)
    y = x.new_empty((len(x), spec.shape[0]), dtype=wide)

    def work(start: int, stop: int) -> None:
        for first, last in _cut(start, stop, _CHUNK_BYTES // 4 // max(1, spec.shape[1]), spec):
            w = SCRATCH.of(torch.bfloat16 if direct else wide, last - first, spec.shape[1])
            decoder.decode(spec, parts, first, last, w)
            if narrow and not direct:
                w = SCRATCH.of(torch.bfloat16, *w.shape).copy_(w)
            if len(x) == 1 and not narrow:
                y[0, first:last] = torch.mv(w, x[0])  # half the time of F.linear
            else:
                y[:, first:last] = F.linear(x, w)

    rows, threads = spec.shape[0], torch.get_num_threads()
    if threads == 1 or rows * spec.shape[1] < _SMALL:
        work(0, rows)
    else:
        WORKERS.run(work, _cut(0, rows, rows // (threads * _RANGES), spec))
    return y if row_scale is None else y.mul_(row_scale)


def multiplies_bfloat16() -> bool:
    """Whether this CPU has instructions for it, without which float32 is several times faster."""
    return "bf16" in DeviceInfo.of(torch.device("cpu")).features


def _cut(start: int, stop: int, rows: int, spec: Spec) -> Iterator[tuple[int, int]]:
    """From `start` to before `stop`, some rows at a time, whole blocks unless one has all."""
    block = spec.block_size[0] if spec.block_size[0] < spec.shape[0] else 1
    step = max(1, rows // block) * block
    for first in range(start, stop, step):
        yield first, min(first + step, stop)
