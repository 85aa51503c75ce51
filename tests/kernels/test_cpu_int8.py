"""int8 weights that meet int8 activations on a CPU, against exact products of the codes."""

from __future__ import annotations

import pytest
import torch
from support.kernel_weights import int8_activation, weight_of, with_activation, with_part
from support.products import check

from aoserial.kernels import ActivationSpec, DeviceInfo, Weight
from aoserial.kernels.cpu import Cpu, int8products
from aoserial.kernels.cpu.int8products import ByTiles

pytestmark = pytest.mark.usefixtures("either")

CPU = DeviceInfo.of(torch.device("cpu"))
VNNI = DeviceInfo(type="cpu", features=frozenset({"avx2", "vnni"}))
SETTINGS = {
    "row": int8_activation("row"),
    "token": int8_activation("token", mapping="asymmetric"),
    "tensor": int8_activation("tensor"),
    "half range": int8_activation("row", reduce_range=True),
    "least scale": int8_activation("row", least_scale=0.5),
    "no decode": int8_activation("row", skip_decode=True),
    "axis": int8_activation("axis", dim=0),
    "group": int8_activation("group", group_size=32),
}


def int8_weight(activation: ActivationSpec, largest: int = 128) -> Weight:
    """All codes to the largest, rows of the lowest and of the highest among them."""
    weight = with_activation(weight_of("int8 row", (48, 64)), activation)
    codes = weight.parts["qdata"].clamp(-largest, largest - 1).clone()
    codes[0], codes[1] = -largest, largest - 1
    return Weight(spec=weight.spec, parts={**weight.parts, "qdata": codes})


def activations(dtype: torch.dtype, rows: int) -> torch.Tensor:
    """Rows of one sign, whose codes are the largest throughout, and random ones."""
    x = torch.randn(rows, 64)
    x[: rows // 3] = 3.0
    x[rows // 3 : rows // 2] = -3.0
    return x.to(dtype)


@pytest.mark.parametrize("settings", SETTINGS)
def test_products_are_within_the_bound(settings: str) -> None:
    weight = int8_weight(SETTINGS[settings])
    packed = Cpu().pack(weight, CPU)
    for rows in (0, 1, 3, 33, 256):
        for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
            x = activations(dtype, rows)
            check(Cpu().linear(x, packed), x, weight, None)


def test_a_static_activation_has_its_stored_scale_and_zero_point() -> None:
    activation = int8_activation("tensor", static=True, mapping="asymmetric")
    weight = with_part(int8_weight(activation), "act_scale", torch.tensor([[0.02]]))
    weight = with_part(weight, "act_zero_point", torch.tensor([[-17]], dtype=torch.int8))
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.randn(2, 5, 64, dtype=dtype)
        check(Cpu().linear(x, Cpu().pack(weight, CPU)), x, weight, None)


def test_the_largest_codes_do_not_saturate() -> None:
    weight = int8_weight(int8_activation("token", mapping="asymmetric"))
    for dtype in (torch.bfloat16, torch.float32):
        for x in (torch.full((1, 64), 1.0), torch.full((40, 64), -1.0), torch.eye(64) * 2 - 1):
            check(Cpu().linear(x.to(dtype), Cpu().pack(weight, CPU)), x.to(dtype), weight, None)


@pytest.mark.skipif("avx2" not in CPU.features, reason="another processor than x86")
def test_what_onednn_multiplies_without_vnni_is_found_out() -> None:
    assert int8products.is_exact() == ("vnni" in CPU.features)


@pytest.mark.parametrize("settings", SETTINGS)
def test_onednn_products_are_within_the_bound(
    settings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of 6 bits, with which 2 · 255 · 64 does not saturate on any processor."""
    monkeypatch.setattr(int8products, "is_exact", lambda: True)
    monkeypatch.setattr(ByTiles, "pack", lambda *_: None)
    weight = int8_weight(SETTINGS[settings], largest=64)
    packed = Cpu().pack(weight, VNNI)
    assert ("onednn_codes" in packed.parts) == (settings not in ("axis", "group"))
    for rows in (0, 1, 3, 33):
        for dtype in (torch.bfloat16, torch.float32):
            x = activations(dtype, rows)
            check(Cpu().linear(x, packed), x, weight, None)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("rows", [20, 40])
def test_activations_that_are_not_contiguous(dtype: torch.dtype, rows: int) -> None:
    stored = int8_activation("tensor", static=True)
    narrow = with_part(int8_weight(stored), "act_scale", torch.tensor([[0.02]]).bfloat16())
    for weight in (int8_weight(SETTINGS["row"]), int8_weight(SETTINGS["token"]), narrow):
        packed, x = Cpu().pack(weight, CPU), torch.randn(64, rows, dtype=dtype).t()
        check(Cpu().linear(x, packed), x, weight, None)
        assert torch.equal(Cpu().linear(x, packed), Cpu().linear(x.contiguous(), packed))
