"""Medians of layers at M = 1, 16, 256, against bf16 `F.linear` and, where it is, torchao."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from checks import takes
from support.kernel_weights import FORMATS, weight_of

from aoserial.errors import PackingError
from aoserial.kernels import BACKENDS, DeviceInfo, Weight

SIDE = 4096
ROWS = (1, 16, 256)
REPEATS, WARM_UP = 30, 5
Layer = Callable[[torch.Tensor], torch.Tensor]


def report(device: torch.device) -> None:
    """Prints milliseconds of a square layer by every backend and format that it takes."""
    side = SIDE if device.type == "cuda" else SIDE // 8
    print(
        f"\nmedian milliseconds, bfloat16, N = K = {side}"
        + " " * 9
        + "".join(f"{m:>9}" for m in ROWS)
    )
    for name, layer in layers(device, side):
        times = []
        for m in ROWS:
            x = torch.randn(m, side, dtype=torch.bfloat16, device=device)
            times.append(median_ms(layer, x))
        print(f"{name:54}" + "".join(f"{ms:9.3f}" for ms in times), flush=True)


def layers(device: torch.device, side: int) -> list[tuple[str, Layer]]:
    w = torch.randn(side, side, dtype=torch.bfloat16, device=device)
    found: list[tuple[str, Layer]] = [("bf16 F.linear", lambda x: F.linear(x, w))]
    info = DeviceInfo.of(device)
    for name in FORMATS:
        made = weight_of(name, (side, side))
        weight = Weight(spec=made.spec, parts={k: v.to(device) for k, v in made.parts.items()})
        for backend in BACKENDS.backends:
            if backend.name != "reference" and takes(backend, weight.spec, info):
                try:
                    packed = backend.pack(weight, info)
                except PackingError:  # its values are for the next backend
                    continue
                found.append((f"{backend.name}: {name}", _layer(backend, packed)))
    return found + torchao_layers(w)


def _layer(backend: object, packed: object) -> Layer:
    return lambda x: backend.linear(x, packed)  # type: ignore[attr-defined]


def torchao_layers(w: torch.Tensor) -> list[tuple[str, Layer]]:
    try:
        from torchao import quantization as theirs
    except ImportError:
        print("torchao is not installed: no layer of its own beside ours")
        return []
    configurations = {
        "float8 row, dynamic": theirs.Float8DynamicActivationFloat8WeightConfig(
            granularity=theirs.PerRow()
        ),
        "int8 row, dynamic": theirs.Int8DynamicActivationInt8WeightConfig(),
        "int4 g128": theirs.Int4WeightOnlyConfig(group_size=128),
    }
    found: list[tuple[str, Layer]] = []
    for name, configuration in configurations.items():
        layer = torch.nn.Linear(*w.shape, bias=False, dtype=w.dtype, device=w.device)
        try:
            theirs.quantize_(layer, configuration)
            layer(w[:1])
        except Exception as error:  # whatever it lacks on this device
            print(f"torchao: {name}: {type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        found.append((f"torchao: {name}", layer))
    return found


def median_ms(layer: Layer, x: torch.Tensor) -> float:
    with torch.inference_mode():
        for _ in range(WARM_UP):
            layer(x)
        times = []
        for _ in range(REPEATS):
            _wait(x.device)
            begin = time.perf_counter()
            layer(x)
            _wait(x.device)
            times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1000


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
