"""Weights packed once, ahead of the first run or on it, freed and restored."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from support.tensors import same_bytes
from torch import nn

import aoserial
from aoserial.errors import ActivationError, AoserialError, PackingError, UnsupportedOperationError
from aoserial.kernels import (
    BACKENDS,
    Backend,
    DeviceInfo,
    Packed,
    PackedWeight,
    Spec,
    Weight,
    linear,
    prepare,
    restore,
)
from aoserial.testing.expectations import quiet


class Turned(Backend):
    """A backend for tests: keeps int8 codes transposed, and counts how often it has packed."""

    name = "turned"

    def __init__(self) -> None:
        self.packings = 0

    def supports(self, spec: Spec, device: DeviceInfo) -> str | None:
        if device.type != "cpu" or spec.kind != "int8" or len(spec.shape) != 2:
            return "takes matrices of int8 on a CPU"
        return None

    def pack(self, weight: Weight, device: DeviceInfo) -> Packed:
        del device
        if weight.parts["scale"].isnan().any():
            raise PackingError("a scale is NaN")
        self.packings += 1
        parts = {"turned": weight.parts["qdata"].t().contiguous(), "s": weight.parts["scale"] * 1}
        return Packed(spec=weight.spec, parts=parts, layout="turned")

    def unpack(self, packed: Packed) -> Weight:
        turned, scale = packed.parts["turned"], packed.parts["s"]
        return Weight(
            spec=packed.spec, parts={"qdata": turned.t().contiguous(), "scale": scale.clone()}
        )

    def linear(
        self, x: torch.Tensor, packed: Packed, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        w = packed.parts["turned"].float() * packed.parts["s"].float().t()
        y = (x.float() @ w).to(x.dtype)
        return y if bias is None else y + bias


@pytest.fixture
def turned(monkeypatch: pytest.MonkeyPatch) -> Iterator[Turned]:
    backend = Turned()
    monkeypatch.setattr(BACKENDS, "backends", [backend, *BACKENDS.backends])
    monkeypatch.setattr(BACKENDS, "_warned", set())
    return backend


def layer(rows: int = 6, columns: int = 8) -> nn.Linear:
    made = nn.Linear(columns, rows)
    weight = aoserial.Int8Tensor.from_float(made.weight.detach())
    made.weight = nn.Parameter(weight, requires_grad=False)
    made.bias.requires_grad_(False)
    return made


def test_a_weight_is_packed_once(turned: Turned) -> None:
    made, x = layer(), torch.randn(3, 8)
    first = made(x)
    assert torch.equal(made(x), first)
    with torch.no_grad():
        assert torch.equal(F.linear(x, made.weight, made.bias), first)
    assert turned.packings == 1


def test_a_compiled_graph_packs_once_and_uses_what_is_packed(turned: Turned) -> None:
    made, x = layer(), torch.randn(3, 8)
    expected = made(x)
    torch.compiler.reset()
    compiled = torch.compile(made, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (3, 2, 1):
        assert torch.equal(compiled(x[:rows]), expected[:rows])
    assert turned.packings == 1


def test_a_weight_that_was_written_to_is_packed_again(turned: Turned) -> None:
    made, x = layer(), torch.randn(3, 8)
    before = made(x)
    with torch.no_grad():
        made.weight.narrow(0, 0, 3).copy_(layer().weight.narrow(0, 0, 3))
    after = made(x)
    assert torch.equal(after, linear(x, made.weight.kernel_weight(), made.bias, backend="turned"))
    assert not torch.equal(after[:, :3], before[:, :3])
    assert torch.equal(after[:, 3:], before[:, 3:])
    made.weight.scale = made.weight.scale * 2
    torch.testing.assert_close(made(x) - made.bias, 2 * (after - made.bias))
    assert turned.packings == 4  # one of them in the call that names the backend


def test_codes_that_a_caller_lets_go_are_not_kept(turned: Turned) -> None:
    import gc
    import weakref

    weight = aoserial.Int8Tensor.from_float(torch.randn(6, 8))
    F.linear(torch.randn(2, 8), weight)
    codes = weakref.ref(weight.qdata)
    del weight
    gc.collect()
    assert codes() is None
    assert turned.packings == 1


def test_tensors_made_in_inference_mode_are_not_packed_unless_prepared(turned: Turned) -> None:
    with torch.inference_mode():
        made, x = layer(), torch.randn(3, 8)
        with pytest.warns(UserWarning, match="keep no count of writes"):
            made(x)
        assert turned.packings == 0
        assert prepare(made) == {"weight": "turned"}
        made(x)
    assert turned.packings == 1


def test_prepare_packs_ahead_and_tells_of_it(turned: Turned) -> None:
    model = nn.Sequential(layer(), nn.ReLU(), layer(4, 6))
    told: list[tuple[int, int]] = []
    assert prepare(model, progress=lambda done, total: told.append((done, total))) == {
        "0.weight": "turned",
        "2.weight": "turned",
    }
    model(torch.randn(3, 8))
    assert turned.packings == 2
    assert told == [(48 + 24, 112), (112, 112)]


def test_a_backend_can_be_named(turned: Turned) -> None:
    made, x = layer(), torch.randn(3, 8)
    assert prepare(made, backend="reference") == {"weight": "reference"}
    expected = linear(x, made.weight.kernel_weight(), made.bias, backend="reference")
    assert torch.equal(made(x), expected)
    with pytest.raises(UnsupportedOperationError, match="no kernel backend 'fastest'; there are"):
        prepare(made, backend="fastest")
    assert turned.packings == 0


def test_values_that_a_kernel_cannot_take_go_to_the_next_with_a_warning(turned: Turned) -> None:
    made, x = layer(), torch.randn(3, 8)
    made.weight.scale[0] = float("nan")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert made(x)[:, 0].isnan().all()
    with pytest.raises(PackingError, match="a scale is NaN"):
        prepare(made, backend="turned")
    assert turned.packings == 0


def test_a_freed_weight_is_multiplied_by_and_restored_to_the_same_bytes(turned: Turned) -> None:
    model = nn.Sequential(layer(), nn.ReLU(), layer(4, 6))
    model[2].weight = nn.Parameter(model[2].weight, requires_grad=False)
    before = copy.deepcopy(model.state_dict())
    x = torch.randn(3, 8)
    expected = model(x)
    assert prepare(model, free=True) == {
        "0.weight": "turned (freed)",
        "2.weight": "turned (freed)",
    }
    assert isinstance(model[0].weight, PackedWeight)
    assert torch.equal(model(x), expected)
    with torch.inference_mode():
        assert torch.equal(model(x), expected)
    restore(model)
    for name, tensor in model.state_dict().items():
        if name.endswith("weight"):
            assert same_bytes(tensor.qdata, before[name].qdata)
            assert same_bytes(tensor.scale, before[name].scale)
            assert tensor.block_size == before[name].block_size
    assert torch.equal(model(x), expected)


def test_a_freed_model_is_compiled_and_exported_but_not_saved(turned: Turned) -> None:
    made, x = layer(), torch.randn(3, 8)
    expected = made(x)
    prepare(made, free=True)
    torch.compiler.reset()
    with quiet():
        for backend in ("aot_eager", "inductor"):
            compiled = torch.compile(made, fullgraph=True, backend=backend, dynamic=True)
            assert torch.equal(compiled(x), expected)
            assert torch.equal(compiled(x[:2]), expected[:2])
        dim = torch.export.Dim("m")
        program = torch.export.export(made, (x,), dynamic_shapes={"input": {0: dim}})
        assert torch.equal(program.module()(x), expected)
        with pytest.raises(UnsupportedOperationError, match="never saved: unpack first"):
            torch.export.save(program, io.BytesIO())
    assert turned.packings == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda w: w[:3],
        lambda w: w.clone(),
        lambda w: w + 1,
        lambda w: w.to(torch.float16),
        lambda w: w.narrow(0, 0, 2),
        copy.deepcopy,
        lambda w: torch.save(w, io.BytesIO()),
    ],
)
def test_whatever_is_no_product_says_to_unpack_first(turned: Turned, use: object) -> None:
    made = layer()
    prepare(made, free=True)
    with pytest.raises(UnsupportedOperationError, match="unpack first"):
        use(made.weight.data)  # type: ignore[operator]
    assert turned.packings == 1


def test_a_freed_model_is_not_saved(turned: Turned, tmp_path: Path) -> None:
    made = layer()
    prepare(made, free=True)
    with pytest.raises(AoserialError, match="unpack first"):
        aoserial.save(made.state_dict(), tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())
    restore(made)
    aoserial.save(made.state_dict(), tmp_path / "x.safetensors")
    assert turned.packings == 1


def test_the_gradient_of_a_freed_layer_is_that_of_its_weight(turned: Turned) -> None:
    made = layer()
    made.bias.requires_grad_(True)
    expected = made.weight.dequantize().sum(0)
    for free in (False, True):
        prepare(made, free=free)
        x = torch.randn(2, 3, 8, requires_grad=True)
        made.bias.grad = None
        made(x).sum().backward()
        torch.testing.assert_close(x.grad, expected.expand(2, 3, 8))
        assert torch.equal(made.bias.grad, torch.full((6,), 6.0))


def test_a_weight_that_is_looked_up_as_well_keeps_its_canonical_form(turned: Turned) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(6, 8), layer()
            self.embedding.weight = self.head.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.embedding(tokens))

    model, tokens = Tied(), torch.tensor([1, 5])
    expected = model(tokens)
    assert set(prepare(model, free=True).values()) == {"turned"}
    assert torch.equal(model(tokens), expected)
    alone = nn.Embedding(6, 8)
    alone.weight = nn.Parameter(model.head.weight.clone(), requires_grad=False)
    assert prepare(alone) == {}


def test_a_stack_is_packed_matrix_by_matrix(turned: Turned) -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            stack = aoserial.Int8Tensor.from_float(torch.randn(3, 6, 8))
            self.w = nn.Parameter(stack, requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.bmm(x, self.w.mT)

    model, x = Experts(), torch.randn(3, 2, 8)
    assert prepare(model, free=True) == {"w": "turned"}
    with torch.no_grad():
        first = model(x)
        assert torch.equal(model(x), first)
    assert turned.packings == 3
    assert isinstance(model.w, aoserial.Int8Tensor)


def test_a_model_built_on_the_meta_device_is_loaded_prepared_and_run(
    turned: Turned, tmp_path: Path
) -> None:
    made, x = layer(), torch.randn(3, 8)
    aoserial.save(made.state_dict(), tmp_path / "layer.safetensors")
    with torch.device("meta"):
        model = nn.Linear(8, 6)
    aoserial.load_into(model, tmp_path / "layer.safetensors")
    assert prepare(model) == {"weight": "turned"}
    assert torch.equal(model(x), made(x))


@pytest.mark.parametrize(
    ("x", "bias", "sentence"),
    [
        (torch.zeros(2, 8, dtype=torch.int64), None, "a layer takes bfloat16, float16"),
        (torch.zeros(2, 8, dtype=torch.float8_e4m3fn), None, "a layer takes bfloat16, float16"),
        (torch.zeros(2, 7), None, r"is \[2, 7\], expected \[..., 8\]"),
        (torch.zeros(()), None, r"is \[\], expected \[..., 8\]"),
        (torch.zeros(2, 8), torch.zeros(7), r"the bias is \[7\], expected \[6\]"),
        (torch.zeros(2, 8, device="meta"), None, "is on meta, the weight on cpu"),
    ],
)
def test_an_activation_that_does_not_fit_is_refused_by_a_sentence(
    x: torch.Tensor, bias: torch.Tensor | None, sentence: str
) -> None:
    weight = layer().weight
    for _ in range(2):  # packed by then
        with pytest.raises(ActivationError, match=sentence):
            F.linear(x, weight, bias)
        F.linear(torch.randn(1, 8), weight)


def test_a_convolution_by_a_quantized_weight_is_refused() -> None:
    weight = aoserial.Int8Tensor.from_float(torch.randn(4, 2, 3))
    with pytest.raises(UnsupportedOperationError, match="convolution"):
        F.conv1d(torch.randn(1, 2, 8), weight)
