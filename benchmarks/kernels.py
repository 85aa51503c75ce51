"""How fast are layers of quantized weights on this CPU, beside `F.linear` of the bfloat16 weight?

A figure is bfloat16's time over that of the contestant: the median over rounds in which all take
turns, on copies of the weight that together are larger than any cache. The contestants are ours,
`F.linear(x, weight.dequantize())`, and, where it is installed, torchao 0.18 with the same weight.
"""

from __future__ import annotations

import os
import statistics
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from aoserial import Float8Tensor, Int4Tensor, Int8Tensor, NVFP4Tensor
from aoserial.kernels import ActivationSpec, DeviceInfo, Weight, dequantize
from aoserial.kernels.cpu import Cpu

SHAPES = {"4096 × 4096": (4096, 4096), "14336 × 4096": (14336, 4096)}  # the second: Llama-8B's MLP
ROUNDS = {1: 15, 16: 9, 256: 5}  # by rows of the activation
COPIES = 3  # at least
BARS = {  # contestant: the least figure, by rows
    "int4 g128": {1: 3.0},
    "int8 dynamic": {1: 1.5, 16: 1.5, 256: 1.5},
    "fp8 row": {1: 0.4, 16: 0.4, 256: 0.4},
}
OVER_NAIVE = 10.0  # fp8 row at one row, over F.linear(x, qdata.to(bfloat16) * scale)
OVERHEAD_US = 15.0
_SLOW = ("dequantize", "torchao")  # they run in the first round alone

Layer = Callable[[torch.Tensor], torch.Tensor]


def main() -> None:
    torch.set_grad_enabled(False)
    features = ", ".join(sorted(DeviceInfo.of(torch.device("cpu")).features)) or "none"
    threads = torch.get_num_threads()
    load = os.getloadavg()[0]
    print(f"CPU features: {features}; {threads} threads; load {load:.1f}", flush=True)
    overhead()
    for name, (n, k) in SHAPES.items():
        contestants = layers(torch.randn(n, k, dtype=torch.bfloat16))
        for rows, rounds in ROUNDS.items():
            race(f"{name}, M = {rows}", rows, rounds, contestants, k)


def race(
    title: str, rows: int, rounds: int, contestants: dict[str, list[Layer]], columns: int
) -> None:
    x = torch.randn(rows, columns, dtype=torch.bfloat16)
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, copies in contestants.items():
            if turn > 1 and name.startswith(_SLOW):
                continue
            layer = copies[turn % len(copies)]
            start = perf_counter()
            layer(x)
            if turn:  # the first warms up
                times[name].append(perf_counter() - start)
    print(title, flush=True)
    for name, mine in times.items():
        print(f"  {name:<34}{statistics.median(mine) * 1e3:9.2f} ms", end="")
        print(f"{_ratio(times['bf16'], mine):8.2f} × bf16", end="")
        ours = name.removeprefix("aoserial: ")
        if ours != name and rows in BARS.get(ours, {}):
            bar = BARS[ours][rows]
            print(f"   bar ≥ {bar:g}: {_verdict(_ratio(times['bf16'], mine) >= bar)}", end="")
        if ours == "fp8 row" and ours != name and rows == 1:
            ratio = _ratio(times["fp8 row, cast by torch"], mine)
            print(f"   {ratio:.0f} × the cast, bar ≥ {OVER_NAIVE:g}: ", end="")
            print(_verdict(ratio >= OVER_NAIVE), end="")
        print(flush=True)


def layers(w: torch.Tensor) -> dict[str, list[Layer]]:
    """The contestants for a bfloat16 weight [N, K], some copies of each."""
    fp8 = Float8Tensor.from_float(w)
    int8 = Int8Tensor.from_float(w).kernel_weight()
    asks = ActivationSpec(static=False, dtype="int8", granularity="row")
    weights = {
        "fp8 row": fp8.kernel_weight(),
        "fp8 128×128": Float8Tensor.from_float(w, granularity=(128, 128)).kernel_weight(),
        "int8": int8,
        "int8 dynamic": Weight(spec=replace(int8.spec, activation=asks), parts=int8.parts),
        "int4 g128": Int4Tensor.from_float(w, group_size=128).kernel_weight(),
        "nvfp4": NVFP4Tensor.from_float(w).kernel_weight(),
    }
    found: dict[str, list[Layer]] = {"bf16": [_plain(w.clone()) for _ in range(_copies(w))]}
    scale = fp8.scale.to(torch.bfloat16)
    found["fp8 row, cast by torch"] = [
        lambda x: F.linear(x, fp8.qdata.to(torch.bfloat16) * scale),
    ]
    for name, weight in weights.items():
        copies = _copies(weight.parts["qdata"])
        found[f"aoserial: {name}"] = [_packed(_copy(weight)) for _ in range(copies)]
        found[f"dequantize: {name}"] = [_dequantized(weight)]
    found.update(_of_torchao(w))
    return found


def overhead() -> None:
    """What it costs to come to the kernel of a weight: one that does nothing, and one that does.

    The second is the difference of two that take turns, and larger, since caches of a processor's
    instructions are shared with what the kernel does.
    """
    weight = Int8Tensor.from_float(torch.randn(16, 32, dtype=torch.bfloat16))
    x = torch.randn(1, 32, dtype=torch.bfloat16)
    direct = _packed(weight.kernel_weight())
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    pairs = [(_timed(lambda: F.linear(x, weight)), _timed(lambda: direct(x))) for _ in range(5000)]
    torch.set_num_threads(threads)
    beside = statistics.median(whole - inner for whole, inner in pairs) * 1e6
    remembered, y = weight._remembered, torch.empty(1, 16, dtype=torch.bfloat16)
    assert remembered is not None, "it has been multiplied by"
    remembered.prepared.run = lambda *_: y
    alone = statistics.median(_timed(lambda: F.linear(x, weight)) for _ in range(5000)) * 1e6
    alone -= statistics.median(_timed(lambda: y) for _ in range(5000)) * 1e6
    print("dispatch of F.linear(x, weight), µs a layer", flush=True)
    for name, extra in (("to a kernel that does nothing", alone), ("beside the kernel", beside)):
        bar = f"bar ≤ {OVERHEAD_US:g}: {_verdict(extra <= OVERHEAD_US)}"
        print(f"  {name:<34}{extra:9.1f}   {bar}", flush=True)


def _timed(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def _plain(w: torch.Tensor) -> Layer:
    return lambda x: F.linear(x, w)


def _copies(weight: torch.Tensor) -> int:
    """How many are together larger than any cache of this machine."""
    return max(COPIES, -(-5 * _largest_cache() // (4 * weight.nbytes)))


@cache
def _largest_cache() -> int:
    """Bytes, as Linux says them; 0 elsewhere."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    return max((int(size.read_text().strip().removesuffix("K")) << 10 for size in sizes), default=0)


def _packed(weight: Weight) -> Layer:
    backend = Cpu()
    run = backend.bind(backend.pack(weight, DeviceInfo.of(torch.device("cpu"))))
    return lambda x: run(x, None)


def _dequantized(weight: Weight) -> Layer:
    return lambda x: F.linear(x, dequantize(weight))


def _copy(weight: Weight) -> Weight:
    parts = {name: part.clone() for name, part in weight.parts.items()}
    return Weight(spec=weight.spec, parts=parts)


def _of_torchao(w: torch.Tensor) -> dict[str, list[Layer]]:
    if find_spec("torchao") is None:
        print("torchao: SKIPPED, it is not installed")
        return {}
    from torchao import quantization as q

    configs = {
        "fp8 row": q.Float8WeightOnlyConfig,
        "int8": q.Int8WeightOnlyConfig,
        "int8 dynamic": q.Int8DynamicActivationInt8WeightConfig,
        "int4 g128": partial(q.Int4WeightOnlyConfig, 128, int4_packing_format="opaque"),
    }
    found: dict[str, list[Layer]] = {}
    for name, config in configs.items():
        layer = nn.Linear(w.shape[1], w.shape[0], bias=False, dtype=w.dtype, device="meta")
        layer.weight = nn.Parameter(w.clone(), requires_grad=False)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                q.quantize_(layer, config())
            layer(w[:1])
        except Exception as error:  # a path of torchao's that this machine does not have
            print(f"torchao: {name}: {type(error).__name__}: {str(error)[:90]}")
            continue
        found[f"torchao: {name}"] = [layer]
    return found


def _ratio(peer: list[float], mine: list[float]) -> float:
    return statistics.median(theirs / ours for theirs, ours in zip(peer, mine, strict=False))


def _verdict(meets: bool) -> str:
    return "meets" if meets else "MISSES"


if __name__ == "__main__":
    main()
