"""Every kernel backend on a device of this machine: right, and how fast.

    python tests/gpu/run.py                   on the GPU
    python tests/gpu/run.py --device cpu      the same checks over the backends of a CPU
    TRITON_INTERPRET=1 python tests/gpu/run.py --device cpu --as sm90,sm80 --only triton --small
                                              Triton's kernels in its interpreter, on CPU tensors

Exit status: 0 if all holds, or there is no GPU; 1 if something does not.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import torch

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[2]), str(HERE.parents[1]), str(HERE.parent)]

import speed  # noqa: E402
from checks import ROWS, Check, Layer, takes  # noqa: E402
from support.kernel_weights import FORMATS  # noqa: E402

from aoserial.kernels import BACKENDS, DeviceInfo, Packed, Reference, Spec, Weight  # noqa: E402
from aoserial.kernels.arithmetic import tile  # noqa: E402
from aoserial.storage.dtypes import dtype_name  # noqa: E402

# N and K, from square to what no tile divides; a format takes those that its groups divide.
SHAPES = [(384, 1280), (1000, 640), (72, 96), (33, 1152)]
SMALL = [(36, 160), (128, 256)]
DTYPES = [torch.bfloat16, torch.float16, torch.float32]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--as", dest="names", default="", help="devices to take this one for")
    parser.add_argument("--only", default="", help="one backend")
    parser.add_argument("--small", action="store_true", help="few and small layers, no speed")
    given = parser.parse_args(arguments)
    if given.device == "cuda" and not torch.cuda.is_available():
        print("There is no GPU here: nothing was run. --device cpu checks the backends of a CPU.")
        return 0
    device = torch.device(given.device)
    named = [DeviceInfo.named(name) for name in given.names.split(",") if name]
    infos = named or [DeviceInfo.of(device)]
    print(*infos, sep="\n")
    failed = seen = 0
    for done in checks(device, infos, given):
        seen += 1
        failed += not done.holds
        if not done.holds or given.small or done.rows == ROWS[-1]:
            print(done, flush=True)
    failed += not every_code_comes_out(device, infos[0], given.only)
    failed += not no_number_stays_none(device, infos[0], given.only)
    if device.type == "cuda":
        failed += not tiles_are_ours(device)
    print(f"{seen} layers, {failed} failures")
    if not given.small:
        speed.report(device)
    return int(failed > 0 or seen == 0)


def checks(
    device: torch.device, infos: list[DeviceInfo], given: argparse.Namespace
) -> Iterator[Check]:
    """All combinations; of small layers few, and for a second device what it may do otherwise."""
    faster = [held for held in BACKENDS.backends if held.name != "reference"]
    backends = [held for held in faster if given.only in ("", held.name)]
    rows, shapes, of = (0, 3, 17), SMALL, torch.float32
    if not given.small:
        rows, shapes, of = ROWS, SHAPES, torch.bfloat16
    for info, backend, name, shape in product(infos, backends, FORMATS, shapes):
        again = given.small and info is not infos[0] and FORMATS[name][2] is None
        if again or not divides(name, shape):
            continue
        layer = Layer.of(backend, name, shape, of, device=device, info=info)
        for dtype, count in product(DTYPES, rows):
            # Triton's interpreter has no bfloat16
            if given.small and (dtype == torch.bfloat16 or (dtype == torch.float16 and count != 3)):
                continue
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*goes the slow way")
                if layer is not None:
                    yield layer.check(count, dtype)


def divides(name: str, shape: tuple[int, int]) -> bool:
    """Whether the groups of a format fill rows of K."""
    _, settings, activation = FORMATS[name]
    granularity = settings.get("granularity")
    group = granularity[-1] if isinstance(granularity, tuple) else settings.get("group_size", 1)
    needs_whole = not isinstance(granularity, tuple) or activation is not None
    return shape[1] % {"mx fp8": 32, "nvfp4": 16}.get(name, group if needs_whole else 1) == 0


def every_code_comes_out(device: torch.device, info: DeviceInfo, only: str) -> bool:
    """Whether the identity times a weight of all its finite codes is that weight, bit for bit."""
    right = True
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.int8):
        codes = torch.arange(256, dtype=torch.uint8).view(dtype)
        finite = codes.to(torch.float32).isfinite()
        codes = torch.where(finite, codes.view(torch.uint8), 0).view(dtype).expand(16, 256)
        spec = Spec(
            kind="int8" if dtype == torch.int8 else "float8",
            data_dtype=dtype_name(dtype),
            shape=(16, 256),
            dtype="float32",
            block_size=(1, 256),
        )
        parts = {"qdata": codes.contiguous().to(device), "scale": torch.ones(16, 1, device=device)}
        x = torch.eye(256, device=device)
        for backend in BACKENDS.backends:
            if only in ("", backend.name) and takes(backend, spec, info):
                packed = backend.pack(Weight(spec=spec, parts=parts), info)
                same = torch.equal(backend.linear(x, packed).t().cpu(), codes.to(torch.float32))
                print(f"{'ok' if same else 'FAILED':6} {backend.name:10} every code of {dtype}")
                right &= same
    return right


def no_number_stays_none(device: torch.device, info: DeviceInfo, only: str) -> bool:
    """Whether NaN and infinity in an activation come out where they do by the reference."""
    right = True
    for name in ("float8 row", "float8 128x128", "int8 row", "int4 g32, offset zero point"):
        for backend in BACKENDS.backends:
            dtype = torch.bfloat16 if backend.name == "torch_cuda" else torch.float32
            layer = Layer.of(backend, name, (32, 128), dtype, device=device, info=info)
            if only not in ("", backend.name) or layer is None:
                continue
            x = torch.ones(4, 128, device=device, dtype=dtype)
            x[0, 3], x[1, 5], x[2, 127] = torch.nan, torch.inf, -torch.inf
            plain = Packed(spec=layer.weight.spec, parts=layer.weight.parts)
            found, expected = backend.linear(x, layer.packed), Reference().linear(x, plain)
            kinds = (torch.isnan, torch.isposinf, torch.isneginf)
            same = all(torch.equal(kind(found), kind(expected)) for kind in kinds)
            print(f"{'ok' if same else 'FAILED':6} {backend.name:10} {name:30} NaN and infinity")
            right &= same
    return right


def tiles_are_ours(device: torch.device) -> bool:
    """Whether torch packs int4 tiles byte for byte as `tile` does."""
    same = True
    for inner in (2, 4, 8):
        codes = torch.randint(0, 256, (64, 256), dtype=torch.uint8, device=device)
        theirs = torch._convert_weight_to_int4pack((codes << 4 | codes >> 4).contiguous(), inner)
        equal = torch.equal(theirs, tile(codes, inner))
        print(f"{'ok' if equal else 'FAILED'}: int4 tiles, inner_k_tiles = {inner}")
        same &= equal
    return same


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
