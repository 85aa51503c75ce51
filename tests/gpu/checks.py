"""A layer by a backend, held against the same layer in float64.

How far they may be apart, with u(dtype) half the distance of neighbours, relative: 2^-8 of
bfloat16, 2^-11 of float16, 2^-24 of float32; and with T the sum over K of |x| |w|, where |w| is the
sum of what makes up the weight:

* each weight may be rounded to its own dtype, twice where its arithmetic is narrow, and, like a
  scale, to that of the activation: (2 u(weight) + 2 u(x)) T. Where the activation is quantized,
  operands are codes, and only scales are rounded, in float32;
* K products are added in float32, in any order: (K + 4) u(float32) T; of float8 products tensor
  cores keep about 14 bits until float32 takes over (DeepSeek-V3, 3.3.2): 2^-13 T;
* the product, and its sum with the bias, are rounded or cut to the dtype of the result: 2 u(x).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from support.kernel_weights import weight_of

from aoserial.errors import PackingError
from aoserial.kernels import Backend, DeviceInfo, Packed, Spec, Weight, dequantize
from aoserial.kernels.activation import fake_quantize, prescaled
from aoserial.storage.dtypes import torch_dtype

U = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-24}
TENSOR_CORE_FLOAT8 = 2.0**-13
ROWS = (0, 1, 3, 33, 256)


@dataclass(frozen=True)
class Check:
    """What came of a layer: how far off, as a part of what is allowed."""

    backend: str
    format: str
    shape: tuple[int, int]
    rows: int
    dtype: torch.dtype
    part_of_bound: float

    @property
    def holds(self) -> bool:
        return self.part_of_bound <= 1

    def __str__(self) -> str:
        n, k = self.shape
        dtype = str(self.dtype).removeprefix("torch.")
        verdict = "ok" if self.holds else "FAILED"
        return (
            f"{verdict:6} {self.backend:10} {self.format:30} N={n:<5} K={k:<5} M={self.rows:<4} "
            f"{dtype:9} {self.part_of_bound:6.1%} of the bound"
        )


@dataclass(frozen=True)
class Layer:
    """A weight packed for a backend, and in float64: `w`, and `terms`, of which each is the sum."""

    backend: Backend
    format: str
    weight: Weight
    packed: Packed
    w: torch.Tensor
    terms: torch.Tensor

    @classmethod
    def of(
        cls,
        backend: Backend,
        name: str,
        shape: tuple[int, int],
        dtype: torch.dtype,
        *,
        device: torch.device,
        info: DeviceInfo,
    ) -> Layer | None:
        """One of `FORMATS` on a device; None if the backend does not take it.

        Also that it comes back byte for byte of what was packed.

        Args:
            dtype: that the weight stands for.
        """
        weight = weight_of(name, shape, dtype)
        if not takes(backend, weight.spec, info):
            return None
        moved = {part: tensor.to(device) for part, tensor in weight.parts.items()}
        weight = Weight(spec=weight.spec, parts=moved)
        try:
            packed = backend.pack(weight, info)
        except PackingError as error:
            print(f"left to others: {name}, by {backend.name}: {error}")
            return None
        back = backend.unpack(packed).parts
        for part, tensor in weight.parts.items():
            assert torch.equal(back[part].view(torch.uint8), tensor.view(torch.uint8)), part
        w = dequantize(weight, torch.float64)
        return cls(backend, name, weight, packed, w, _terms(weight, w))

    def check(self, rows: int, dtype: torch.dtype) -> Check:
        """Runs it on an activation of so many rows, with a bias."""
        shape: tuple[int, int] = self.weight.spec.shape  # type: ignore[assignment]
        generator = torch.Generator().manual_seed(rows)
        x = torch.randn(rows, shape[1], generator=generator).to(self.w.device, dtype)
        bias = torch.randn(shape[0], generator=generator).to(self.w.device, dtype)
        found = self.backend.linear(x, self.packed, bias)
        assert (found.dtype, found.shape) == (dtype, (rows, shape[0]))
        y, bound = self._allowed(x, bias)
        off = (found.to(torch.float64) - y).abs() / bound
        worst = off.max().item() if off.numel() else 0.0
        if off.isnan().any():
            worst = float("inf")
        return Check(self.backend.name, self.format, shape, rows, dtype, worst)

    def _allowed(self, x: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The layer in float64, and how far from it a result may be."""
        spec, parts = self.weight.spec, self.weight.parts
        entering = prescaled(x, spec, parts)
        relative = (x.shape[-1] + 4) * U[torch.float32]
        if spec.activation is not None:
            entering = fake_quantize(entering, spec.activation, parts.get("act_scale"))
            relative += TENSOR_CORE_FLOAT8 if spec.kind == "float8" else 0.0
        else:
            relative += 2 * U[torch_dtype(spec.dtype)] + 2 * U[x.dtype]
        wide, bias = entering.to(torch.float64), bias.to(torch.float64)
        product = wide @ self.w.t()
        sums = wide.abs() @ self.terms.t()
        rounded = 2 * U[x.dtype] * (2 * product.abs() + bias.abs())
        return product + bias, relative * sums + rounded + torch.finfo(torch.float32).tiny


def _terms(weight: Weight, w: torch.Tensor) -> torch.Tensor:
    spec, parts = weight.spec, weight.parts
    if spec.zero_domain not in ("float", "offset") or "zero_point" not in parts:
        return w.abs()
    zero = parts["zero_point"].to(torch.float64).repeat_interleave(spec.block_size[-1], -1)
    return (w - zero).abs() + zero.abs()


def takes(backend: Backend, spec: Spec, info: DeviceInfo) -> bool:
    made_for_it = backend.devices is None or info.type in backend.devices
    return made_for_it and backend.supports(spec, info) is None
