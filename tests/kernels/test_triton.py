"""Triton's kernels: what is asked of them here; where Triton is, its interpreter and its compiler.

The interpreter multiplies CPU tensors in a process of its own, since it replaces the compiler.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from support.kernel_weights import (
    float8_activation,
    int8_activation,
    weight_of,
    with_activation,
    with_part,
)

from aoserial.errors import PackingError
from aoserial.kernels import DeviceInfo, Packed, Reference, Weight
from aoserial.kernels.cpu import Cpu
from aoserial.kernels.triton import Triton
from aoserial.kernels.triton.launch import weight_only

ROOT = Path(__file__).parents[2]
SM80, SM90 = DeviceInfo.named("sm80"), DeviceInfo.named("sm90")
BACKEND = Triton()
PYTHON = sys.executable if find_spec("triton") else os.environ.get("AOSERIAL_TRITON_PYTHON")
needs_triton = pytest.mark.skipif(
    PYTHON is None,
    reason="Triton is NOT installed: its kernels are neither run nor compiled; `make kernels-aot`",
)


def run(script: str, *arguments: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [str(PYTHON), str(ROOT / "tests/gpu" / script), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.splitlines()


@needs_triton
def test_the_kernels_are_right_in_the_interpreter() -> None:
    options = ("--device", "cpu", "--as", "sm90,sm80", "--only", "triton", "--small")
    lines = run("run.py", *options, TRITON_INTERPRET="1")
    assert lines[-1].endswith("layers, 0 failures")
    assert int(lines[-1].split()[0]) > 100
    assert sum("every code of" in line for line in lines) == 4
    assert sum("NaN and infinity" in line for line in lines) == 4


@needs_triton
@pytest.mark.parametrize("target", ["sm80", "sm90", "gfx942"])
def test_the_kernels_compile_for_devices_that_are_not_here(target: str) -> None:
    lines = run("compiled.py", target, "--quick")
    assert lines[-1] == "0 failures"
    assert len(lines) == 5


RUN = runpy.run_path(str(ROOT / "tests/gpu/run.py"))["main"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here: run tests/gpu/run.py")
def test_without_a_gpu_the_script_says_so_and_is_content(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert RUN([]) == 0
    assert capsys.readouterr().out.startswith("There is no GPU here: nothing was run.")


def test_the_script_holds_the_backends_of_a_cpu_to_the_same_bounds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert RUN(["--device", "cpu", "--small"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith("layers, 0 failures")
    assert int(lines[-1].split()[0]) > 100


def test_the_script_fails_when_nothing_was_run_or_a_backend_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert RUN(["--device", "cpu", "--small", "--only", "torch_cuda"]) == 1
    linear = Cpu.linear
    monkeypatch.setattr(Cpu, "linear", lambda *given: linear(*given) * 1.001)
    assert RUN(["--device", "cpu", "--small", "--only", "cpu"]) == 1
    assert "FAILED" in capsys.readouterr().out


ROW = weight_of("float8 row, dynamic").spec


@pytest.mark.parametrize(
    ("spec", "device", "sentence"),
    [
        (ROW, DeviceInfo.named("sm90", packages=frozenset()), "triton is not installed"),
        (ROW, replace(SM90, capability=(7, 5)), "from sm80 on"),
        (ROW, DeviceInfo(type="cuda", vendor="amd", arch="gfx90a", packages=SM90.packages), "gfx"),
        (weight_of("mx fp8").spec, SM90, "no kernel for mx weights"),
        (replace(ROW, data_dtype="float8_e5m2fnuz"), SM90, "codes in float8_e5m2fnuz"),
        (
            replace(weight_of("int4 g128").spec, parts=("qdata", "scale", "group_index")),
            SM90,
            "another order",
        ),
        (weight_of("int8 row, dynamic").spec, SM90, "no activation but float8"),
        (replace(ROW, activation=int8_activation("row")), SM90, "no activation but float8"),
        (
            replace(ROW, activation=replace(float8_activation("row"), dtype="float8_e5m2fnuz")),
            SM90,
            "activations in float8_e5m2fnuz",
        ),
        (replace(ROW, block_size=(1, 32)), SM90, "scales of 1x32 by row"),
        (replace(ROW, activation=float8_activation("axis", dim=0)), SM90, "by another axis"),
        (
            replace(
                ROW,
                activation=float8_activation("row", static=True),
                parts=("qdata", "scale", "act_scale"),
            ),
            SM90,
            "of the whole activation",
        ),
        (replace(ROW, shape=(2, 128, 256)), SM90, "two dimensions"),
    ],
)
def test_what_no_kernel_does_is_refused_in_a_sentence(
    spec: object, device: DeviceInfo, sentence: str
) -> None:
    refusal = BACKEND.supports(spec, device)
    assert refusal is not None
    assert sentence in refusal


@pytest.mark.parametrize(
    ("name", "domain", "side"),
    [
        ("int4 g128", "none", None),
        ("int4 g128, int zero point", "int", "kernel_shift"),
        ("int4 g128, float zero point", "float", "kernel_added"),
        ("int4 g32, offset zero point", "offset", "kernel_added"),
        ("int4 g128, float zero point", "none", None),  # which takes no zero point
        ("intx 4 bits", "none", "kernel_shift"),
    ],
)
def test_zero_points_enter_on_the_side_that_their_domain_says(
    name: str, domain: str, side: str | None
) -> None:
    weight = weight_of(name)
    weight = Weight(spec=replace(weight.spec, zero_domain=domain), parts=weight.parts)
    packed = BACKEND.pack(weight, SM90)
    extra = set(packed.parts) - set(weight.parts)
    assert extra == {"kernel_codes", "kernel_scale"} | ({side} if side else set())
    call = weight_only(torch.zeros(1, 256), packed, None)
    centred = name.startswith("int4") and domain in ("none", "float")
    assert call.constants["MID"] == (8.0 if centred else 0.0)
    assert (call.constants["HAS_SHIFT"], call.constants["HAS_ADDED"]) == (
        side == "kernel_shift",
        side == "kernel_added",
    )


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e4m3fnuz])
def test_nan_codes_are_refused_when_packing(dtype: torch.dtype) -> None:
    weight = weight_of("float8 row")
    codes = (weight.parts["qdata"].to(torch.float32) / 2).to(dtype)
    spec = replace(weight.spec, data_dtype=str(dtype).removeprefix("torch."))
    parts = {**weight.parts, "qdata": codes}
    BACKEND.pack(Weight(spec=spec, parts=parts), SM90)
    codes[3, 5] = torch.nan
    with pytest.raises(PackingError, match="qdata holds NaN"):
        BACKEND.pack(Weight(spec=spec, parts=parts), SM90)


@pytest.mark.parametrize(
    ("device", "dtype", "layout"),
    [
        ("sm80", "float8_e4m3fn", "decoded"),
        ("sm89", "float8_e4m3fn", "native"),
        ("sm90", "float8_e5m2", "decoded"),
        ("gfx942", "float8_e4m3fn", "decoded"),
        ("gfx950", "float8_e4m3fn", "native"),
    ],
)
def test_float8_meets_as_float8_where_the_device_has_it(
    device: str, dtype: str, layout: str
) -> None:
    weight = with_activation(
        weight_of("float8 row"), replace(float8_activation("row"), dtype=dtype)
    )
    assert BACKEND.pack(weight, DeviceInfo.named(device)).layout == layout


def test_every_format_comes_back_as_it_was_packed() -> None:
    for name in ("float8 row", "float8 128x128, dynamic", "int8 g32", "int4 g128, int zero point"):
        weight = weight_of(name)
        back = BACKEND.unpack(BACKEND.pack(weight, SM80))
        assert back.spec == weight.spec
        assert all(back.parts[part] is weight.parts[part] for part in weight.parts)
        assert len(back.parts) == len(weight.parts)


def test_float64_goes_the_slow_way_and_is_told_so() -> None:
    weight = with_part(weight_of("float8 row"), "act_pre_scale", torch.rand(256))
    x = torch.randn(3, 256, dtype=torch.float64)
    with pytest.warns(UserWarning, match="no kernel takes torch.float64"):
        found = BACKEND.linear(x, BACKEND.pack(weight, SM90))
    plain = Packed(spec=weight.spec, parts=weight.parts)
    assert torch.equal(found, Reference().linear(x, plain))


@pytest.mark.parametrize("shape", [(0, 256), (2, 0, 256)])
def test_no_rows_need_no_kernel(shape: tuple[int, ...]) -> None:
    packed = BACKEND.pack(weight_of("float8 row"), SM90)
    assert BACKEND.linear(torch.zeros(shape), packed).shape == (*shape[:-1], 128)
