"""float8 weights that meet a float8 activation: `torch._scaled_mm` and `F.scaled_mm`.

Codes multiply exactly; sums are float32, or what the tensor cores keep of it. The result is asked
for in float32, so that the bias is added before the one rounding to the dtype of the activation.

Source: torch 2.13, `ScaledBlas.cpp`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812

from aoserial.kernels.activation import prescaled, quantize
from aoserial.kernels.backend import Backend, Packed
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.operands import exactly, finish, in_rows
from aoserial.kernels.settings import extent, format_of, weight_extent
from aoserial.kernels.spec import ActivationSpec, Spec, Weight

_BLOCK = 128
_BLOCKS = ("128x128", "1x128")  # of weight and activation, as DeepSeek-V3 was trained
_WHOLE = ("tensor", "row")
_L4 = 4  # F.scaled_mm wants the scales of 128x128 blocks padded along K to a multiple of this

# The float8 dtypes whose codes a device multiplies: gfx942 has those without a negative zero.
_OCP = ("float8_e4m3fn", "float8_e5m2")
_FNUZ = ("float8_e4m3fnuz", "float8_e5m2fnuz")
_AMD_DTYPES = {"gfx942": _FNUZ, "gfx950": _OCP}


class ScaledMM(Backend):
    """Scales a tensor or a row anywhere, 128x128 blocks on sm90.

    Layouts: `tensor` and `row` leave the scales to the operator, `after` multiplies the product by
    them, where the operator has scales a row for bfloat16 results alone. `block` has them padded.
    """

    name = "torch_cuda"

    def supports(self, spec: Spec, device: DeviceInfo) -> str | None:
        activation = spec.activation
        if activation is None or format_of(activation) != "float8":
            return "torch multiplies float8 weights by float8 activations alone"
        dtypes = _dtypes(device)
        if dtypes is None:
            return "torch multiplies float8 from sm89 on, and on gfx942 and gfx950"
        rows, columns = spec.shape
        extents = (weight_extent(spec), extent(activation))
        in_blocks = extents == _BLOCKS
        e5m2 = (spec.data_dtype, activation.dtype) == ("float8_e5m2", "float8_e5m2")
        refused = {
            f"this device multiplies {' and '.join(dtypes)}, not {spec.data_dtype} by "
            f"{activation.dtype}": spec.data_dtype not in dtypes or activation.dtype not in dtypes,
            "torch does not multiply e5m2 by e5m2": e5m2 and device.vendor == "nvidia",
            f"N and K must be multiples of 16, not {rows} and {columns}": bool(
                rows % 16 or columns % 16
            ),
            f"torch has no scales of {extents[0]} by {extents[1] or 'another axis'} "
            f"of the activation": (
                not in_blocks and not (extents[0] in _WHOLE and extents[1] in _WHOLE)
            ),
            "torch multiplies blocks of 128x128 on sm90 alone, with CUDA 12.9 or newer": (
                in_blocks and not _scales_anyhow(device)
            ),
            f"N and K must be multiples of 128 for blocks of it, not {rows} and {columns}": (
                in_blocks and bool(rows % _BLOCK or columns % _BLOCK)
            ),
            "a static scale must be of the whole activation": (
                activation.static and extents[1] != "tensor"
            ),
        }
        return next((sentence for sentence, holds in refused.items() if holds), None)

    def pack(self, weight: Weight, device: DeviceInfo) -> Packed:
        spec, parts = weight.spec, weight.parts
        scale = exactly(parts["scale"], torch.float32, "scale")
        layout = _layout(spec, device)
        if layout == "block":
            scale = _padded(scale)
        elif layout != "tensor":
            scale = scale.reshape(1, -1).expand(1, spec.shape[0]).contiguous()
        extra = {"operator_codes": in_rows(parts["qdata"]), "operator_scale": scale}
        return Packed(spec=spec, parts={**parts, **extra}, layout=layout)

    def linear(
        self, x: torch.Tensor, packed: Packed, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        spec, parts = packed.spec, packed.parts
        activation = _of(spec)
        found = quantize(prescaled(x, spec, parts), activation, parts.get("act_scale"))
        codes, scale = found.codes.reshape(-1, spec.shape[1]), found.scale.to(torch.float32)
        w, w_scale = parts["operator_codes"].t(), parts["operator_scale"]
        count = codes.shape[0]
        if count == 0:
            return x.new_zeros((*x.shape[:-1], spec.shape[0]))
        match packed.layout:
            case "tensor":
                y = _multiply(codes, w, scale.reshape(()), w_scale.reshape(()))
            case "block":
                y = F.scaled_mm(
                    codes,
                    w,
                    _outer_major(scale.reshape(count, -1)),
                    F.ScalingType.BlockWise1x128,
                    w_scale,
                    F.ScalingType.BlockWise128x128,
                    output_dtype=torch.float32,
                )
            case "row":
                y = _multiply(codes, w, _by_row(scale, count), w_scale)
            case _:
                one = torch.ones((), device=x.device)
                y = _multiply(codes, w, one, one) * _by_row(scale, count) * w_scale
        return finish(y, x, bias)


def _of(spec: Spec) -> ActivationSpec:
    assert spec.activation is not None  # supports() has asked for one
    return spec.activation


def _dtypes(device: DeviceInfo) -> tuple[str, ...] | None:
    """The float8 dtypes that a device multiplies; None if it has no float8."""
    if device.vendor == "amd":
        return _AMD_DTYPES.get(device.arch)
    return _OCP if device.capability is not None and device.capability >= (8, 9) else None


def _layout(spec: Spec, device: DeviceInfo) -> str:
    extents = (weight_extent(spec), extent(_of(spec)))
    if extents == _BLOCKS:
        return "block"
    if extents == ("tensor", "tensor"):
        return "tensor"
    # elsewhere some releases of torch have scales a row for bfloat16 results alone
    return "row" if _scales_anyhow(device) else "after"


def _scales_anyhow(device: DeviceInfo) -> bool:
    """Whether torch has scales a row for float32 results, and scales a block."""
    return device.capability == (9, 0) and "scaled_mm_v2" in device.features


def _multiply(
    codes: torch.Tensor, w: torch.Tensor, scale: torch.Tensor, w_scale: torch.Tensor
) -> torch.Tensor:
    return torch._scaled_mm(codes, w, scale, w_scale, out_dtype=torch.float32)


def _by_row(scale: torch.Tensor, count: int) -> torch.Tensor:
    """[M, 1] of a scale a row, or of one for all."""
    return scale.reshape(-1, 1).expand(count, 1).contiguous()


def _outer_major(scale: torch.Tensor) -> torch.Tensor:
    """[M, K/128] with stride (1, M)."""
    return scale.t().clone(memory_format=torch.contiguous_format).t()


def _padded(scale: torch.Tensor) -> torch.Tensor:
    """Scales [N/128, K/128] as [L, N/128], stride (1, L), L the next multiple of 4."""
    blocks, across = scale.shape
    padded = scale.new_zeros(blocks, -(-across // _L4) * _L4)
    padded[:, :across] = scale
    return padded.t()
