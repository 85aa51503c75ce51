"""Which backend takes which format on which device, and what has been seen of it.

PYTHONPATH=.:tests python -m support.selection     prints the tables of README.md and docs
"""

from __future__ import annotations

from functools import cache

from aoserial.kernels import BACKENDS, DEVICES, DeviceInfo, Spec
from support.kernel_weights import FORMATS, weight_of

# Devices for which tests/gpu/compiled.py compiles Triton's kernels.
COMPILED = ("sm80", "sm89", "sm90", "sm100", "sm120", "gfx942", "gfx950")
# Devices on which layers have run.
RUN = ("cpu-avx2", "cpu-avx512")


@cache
def spec_of(name: str) -> Spec:
    return weight_of(name).spec


def chosen(name: str, device: str) -> str:
    """The backend that takes a format on a device where Triton is installed."""
    answers = BACKENDS.refusals(spec_of(name), DeviceInfo.named(device))
    return next(backend.name for backend, refusal in answers if refusal is None)


def seen(backend: str, device: str) -> str:
    """`run`, `compiled` or `not tested`."""
    if device in RUN:
        return "run"
    return "compiled" if backend == "triton" and device in COMPILED else "not tested"


def backends() -> str:
    """The table of docs/kernels.md: the backend of each format and device."""
    return _table(chosen)


def support() -> str:
    """The table of README.md: what has been seen of that backend there."""
    return _table(lambda name, device: seen(chosen(name, device), device))


def _table(cell: object) -> str:
    lines = ["| " + " | ".join(["weight", *DEVICES]) + " |", "|" + "---|" * (len(DEVICES) + 1)]
    for name in FORMATS:
        cells = [cell(name, device) for device in DEVICES]  # type: ignore[operator]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(support(), backends(), sep="\n\n")
