"""Choosing a backend, and what the reference one computes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from aoserial.errors import UnsupportedOperationError
from aoserial.kernels import (
    ActivationSpec,
    Backend,
    Backends,
    DeviceInfo,
    Packed,
    Reference,
    Spec,
    Weight,
    dequantize,
    explain,
    linear,
    quantize_float8,
    quantize_int8,
)

CPU = DeviceInfo(type="cpu")


def int8_weight(rows: int = 6, columns: int = 8, block: tuple[int, int] = (1, 8)) -> Weight:
    w = torch.randn(rows, columns, dtype=torch.bfloat16)
    qdata, scale = quantize_int8(w, block_size=block)
    spec = Spec(
        kind="int8",
        data_dtype="int8",
        shape=(rows, columns),
        dtype="bfloat16",
        block_size=block,
    )
    return Weight(spec=spec, parts={"qdata": qdata, "scale": scale})


class Fast(Backend):
    """A backend for tests: takes CUDA devices from a capability on, and gives zeros."""

    name = "fast"

    def __init__(self, capability: tuple[int, int] = (9, 0)) -> None:
        self.capability = capability

    def supports(self, spec: Spec, device: DeviceInfo) -> str | None:
        if device.capability is None or device.capability < self.capability:
            return f"needs capability {self.capability}"
        return None if spec.kind == "int8" else f"cannot multiply {spec.kind}"

    def linear(
        self, x: torch.Tensor, packed: Packed, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        del bias
        return torch.zeros(*x.shape[:-1], packed.spec.shape[0], dtype=x.dtype)


@pytest.mark.parametrize(
    ("device", "kind", "expected"),
    [
        (CPU, "int8", "reference"),
        (DeviceInfo(type="cuda", capability=(8, 0)), "int8", "reference"),
        (DeviceInfo(type="cuda", capability=(9, 0)), "int8", "fast"),
        (DeviceInfo(type="cuda", capability=(10, 0)), "int8", "fast"),
        (DeviceInfo(type="cuda", capability=(10, 0)), "float8", "reference"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*reference kernel")
def test_the_first_backend_that_takes_the_weight_is_chosen(
    device: DeviceInfo, kind: str, expected: str
) -> None:
    backends = Backends()
    backends.add(Fast())
    weight = int8_weight()
    chosen, _ = backends.pack(replace(weight, spec=replace(weight.spec, kind=kind)), device)
    assert chosen.name == expected


def test_falling_to_the_reference_warns_once() -> None:
    backends = Backends()
    backends.add(Fast())
    weight = int8_weight()
    with pytest.warns(UserWarning, match="fast: needs capability"):
        linear(torch.randn(2, 8), weight, backends=backends)
    linear(torch.randn(2, 8), weight, backends=backends)


class Elsewhere(Fast):
    """One that is made for other devices than these tests run on."""

    devices = frozenset({"cuda"})


def test_a_backend_for_other_devices_is_not_asked_and_not_missed() -> None:
    backends = Backends()
    backends.add(Elsewhere())
    weight = int8_weight()
    linear(torch.randn(2, 8), weight, backends=backends)  # without a warning
    assert explain(weight, backends=backends).startswith("fast: is not for cpu devices\n")


def test_a_backend_of_the_same_name_gives_way() -> None:
    backends = Backends()
    backends.add(Fast((9, 0)))
    backends.add(Fast((7, 0)))
    assert [backend.name for backend in backends.backends] == ["fast", "reference"]


def test_explain_has_a_line_for_each_backend() -> None:
    backends = Backends()
    backends.add(Fast())
    assert explain(int8_weight(), backends=backends).splitlines() == [
        "fast: needs capability (9, 0)",
        "reference: takes it",
    ]


def test_a_weight_that_nobody_takes_names_every_refusal() -> None:
    weight = int8_weight()
    odd = Weight(spec=replace(weight.spec, kind="nf4"), parts=weight.parts)
    with pytest.raises(UnsupportedOperationError, match="reference: a weight of kind nf4"):
        linear(torch.randn(2, 8), odd)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"shape": (2, 6, 8)}, "two dimensions"),
        ({"parts": ("qdata", "scale", "act_scale")}, "does not say how to quantize"),
        (
            {"activation": ActivationSpec(static=True, dtype="int8", granularity="row")},
            "no act_scale",
        ),
    ],
)
def test_the_reference_refuses_what_it_cannot_honour(
    change: dict[str, object], sentence: str
) -> None:
    refusal = Reference().supports(replace(int8_weight().spec, **change), CPU)
    assert refusal is not None
    assert sentence in refusal


@pytest.mark.parametrize("block", [(1, 8), (6, 8), (1, 4), (4, 3)])
@pytest.mark.parametrize("shape", [(8,), (3, 8), (2, 3, 8), (0, 8)])
def test_the_reference_agrees_with_a_plain_layer(
    block: tuple[int, int], shape: tuple[int, ...]
) -> None:
    weight = int8_weight(block=block)
    x, bias = torch.randn(shape), torch.randn(6)
    expected = F.linear(x, dequantize(weight, torch.float32), bias)
    # the bfloat16 weight has been rounded once more than the scaled product
    torch.testing.assert_close(linear(x, weight, bias), expected, rtol=1e-2, atol=5e-2)


def test_a_float8_weight_only_layer_is_dequantize_then_linear() -> None:
    w = torch.randn(6, 8)
    qdata, scale = quantize_float8(w, block_size=(4, 4), dtype=torch.float8_e4m3fn)
    spec = Spec(
        kind="float8",
        data_dtype="float8_e4m3fn",
        shape=(6, 8),
        dtype="float32",
        block_size=(4, 4),
    )
    weight = Weight(spec=spec, parts={"qdata": qdata, "scale": scale})
    x = torch.randn(3, 8)
    assert torch.equal(linear(x, weight), F.linear(x, dequantize(weight)))


def test_the_pre_scale_multiplies_the_activation() -> None:
    weight = int8_weight()
    pre_scale = torch.rand(8)
    spec = replace(weight.spec, parts=("qdata", "scale", "act_pre_scale"))
    scaled = Weight(spec=spec, parts={**weight.parts, "act_pre_scale": pre_scale})
    x = torch.randn(3, 8)
    assert torch.equal(linear(x, scaled), linear(x * pre_scale, weight))


def test_a_pre_scale_that_divides_is_not_turned_into_its_reciprocal() -> None:
    weight = int8_weight()
    pre_scale = torch.rand(8) + 0.5
    parts = {**weight.parts, "act_pre_scale": pre_scale}
    spec = replace(weight.spec, parts=tuple(parts), act_pre_scale_op="divide")
    x = torch.randn(3, 8)
    assert torch.equal(linear(x, Weight(spec=spec, parts=parts)), linear(x / pre_scale, weight))


def test_an_activation_that_is_left_alone_meets_the_weight_as_it_is() -> None:
    weight = int8_weight()
    activation = ActivationSpec(
        static=False, dtype="int8", granularity="row", dim=-1, skip_decode=True
    )
    skipping = Weight(spec=replace(weight.spec, activation=activation), parts=weight.parts)
    decoding, longer = torch.randn(2, 1, 8), torch.randn(2, 3, 8)
    assert torch.equal(linear(decoding, skipping), linear(decoding, weight))
    assert not torch.equal(linear(longer, skipping), linear(longer, weight))


def test_a_quantized_activation_is_multiplied_in_float32() -> None:
    weight = int8_weight()
    activation = ActivationSpec(static=False, dtype="int8", granularity="row", dim=-1)
    spec = replace(weight.spec, activation=activation)
    x = torch.randn(3, 8, dtype=torch.bfloat16)
    found = linear(x, Weight(spec=spec, parts=weight.parts))
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, linear(x, weight), rtol=5e-2, atol=5e-2)


def test_gradients_reach_the_activation() -> None:
    x = torch.randn(3, 8, requires_grad=True)
    weight = int8_weight(block=(1, 4))
    linear(x, weight).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad[0], dequantize(weight).float().sum(0))


def test_device_info_of_the_cpu_is_plain() -> None:
    found = DeviceInfo.of(torch.device("cpu"))
    assert replace(found, features=frozenset()) == CPU
    assert found.features <= {"avx2", "avx512", "vnni", "bf16", "amx"}


PLUGIN = """
from aoserial.kernels import Backend
class Zeros(Backend):
    name = "zeros"
    def supports(self, spec, device):
        return None
    def linear(self, x, packed, bias=None):
        return x.new_zeros(*x.shape[:-1], packed.spec.shape[0])
"""


def test_a_plug_in_is_found_when_first_needed_even_inside_a_compiled_function(
    tmp_path: Path,
) -> None:
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[aoserial.kernels]\nzeros = acme_zeros:Zeros\n")
    (tmp_path / "acme_zeros.py").write_text(PLUGIN)
    program = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(Path.cwd())!r}]\n"
        "import torch, torch.nn.functional as F\n"
        "from aoserial.tensors import Float8Tensor\n"
        "assert 'acme_zeros' not in sys.modules\n"
        "w = Float8Tensor.from_float(torch.randn(4, 8))\n"
        "layer = torch.compile(lambda x: F.linear(x, w), fullgraph=True, backend='eager')\n"
        "assert layer(torch.randn(2, 8)).abs().max() == 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
