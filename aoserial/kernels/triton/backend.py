"""The backend: which weights the kernels take, in which form, and what each layer calls."""

from __future__ import annotations

import warnings

import torch

from aoserial.errors import PackingError
from aoserial.kernels.activation import prescaled, quantize
from aoserial.kernels.backend import Backend, Packed
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.operands import exactly, in_rows
from aoserial.kernels.reference import Reference
from aoserial.kernels.settings import extent, format_of, weight_extent
from aoserial.kernels.spec import Spec, Weight
from aoserial.kernels.triton.launch import CODES, float8_by_float8, weight_only

_ARCHES = ("gfx942", "gfx950")  # of AMD's, those for which the kernels are compiled in the tests
_KINDS = ("float8", "int8", "int4", "intx")
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_SCALES = {("tensor", "tensor"), ("tensor", "row"), ("row", "tensor"), ("row", "row")}
_BLOCKS = ("128x128", "1x128")

# Bytes of a float8 code that stand for NaN and would be decoded to a number.
_NAN_CODES = {"float8_e4m3fn": (0x7F, 0xFF), "float8_e4m3fnuz": (0x80,)}


class Triton(Backend):
    """Weights alone in 4 or 8 bits, and float8 by float8 with scales a tensor, a row or 128x128.

    Layouts: `weight_only`; `native` or `decoded`, whether operands meet as float8 or as float16,
    and that with `_blocks`.
    """

    name = "triton"
    devices = frozenset({"cuda"})

    def supports(self, spec: Spec, device: DeviceInfo) -> str | None:
        """None, or a sentence on what no kernel does."""
        refusal = Reference().supports(spec, device)
        if refusal is not None:
            return refusal
        activation, new_enough = spec.activation, (device.capability or (0, 0)) >= (8, 0)
        refused = {
            "triton is not installed": "triton" not in device.packages,
            "its kernels run from sm80 on, and on gfx942 and gfx950": (
                not new_enough and device.arch not in _ARCHES
            ),
            f"there is no kernel for {spec.kind} weights": spec.kind not in _KINDS,
            f"there is no kernel for codes in {spec.data_dtype}": spec.data_dtype not in CODES,
            "no kernel takes columns in another order (group_index)": "group_index" in spec.parts,
        }
        if activation is not None:
            extents = (weight_extent(spec), extent(activation))
            refused |= {
                "its kernels quantize no activation but float8 of float8 weights": (
                    spec.kind != "float8" or format_of(activation) != "float8"
                ),
                f"there is no kernel for activations in {activation.dtype}": (
                    activation.dtype not in CODES
                ),
                f"there is no kernel for scales of {extents[0]} by {extents[1] or 'another axis'} "
                f"of the activation": extents not in _SCALES and extents != _BLOCKS,
                "a static scale must be of the whole activation": (
                    activation.static and extents[1] != "tensor"
                ),
            }
        return next((sentence for sentence, holds in refused.items() if holds), None)

    def pack(self, weight: Weight, device: DeviceInfo) -> Packed:
        """The weight with its scales and zero points in float32, on the side that they enter.

        Raises:
            PackingError: codes that stand for NaN, or scales that float32 does not hold.
        """
        spec, parts = weight.spec, weight.parts
        _check_codes(parts["qdata"], spec.data_dtype)
        scale = exactly(parts["scale"], torch.float32, "scale").contiguous()
        extra = {"kernel_scale": scale, "kernel_codes": in_rows(parts["qdata"])}
        layout = "weight_only"
        if spec.activation is not None:
            layout = "native" if _is_native(spec, device) else "decoded"
            if weight_extent(spec) in ("tensor", "row"):
                extra["kernel_scale"] = scale.reshape(-1).expand(spec.shape[0]).contiguous()
            else:
                layout += "_blocks"
        side = _side(spec)
        if side is not None:
            stored = exactly(parts["zero_point"], torch.float32, "zero_point")
            extra[side] = stored.contiguous()
        return Packed(spec=spec, parts={**parts, **extra}, layout=layout)

    def linear(
        self, x: torch.Tensor, packed: Packed, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        spec, parts = packed.spec, packed.parts
        n, k = spec.shape
        if x.dtype not in _DTYPES:
            warnings.warn(f"no kernel takes {x.dtype}; the layer goes the slow way", stacklevel=2)
            return Reference().linear(x, packed, bias)
        entering = prescaled(x, spec, parts)
        if entering.numel() == 0:
            return x.new_zeros((*x.shape[:-1], n))
        if spec.activation is None:
            rows = entering.to(x.dtype).reshape(-1, k).contiguous()
            y = weight_only(rows, packed, bias).launch()
        else:
            found = quantize(entering, spec.activation, parts.get("act_scale"))
            codes, scale = found.codes.reshape(-1, k), found.scale.to(torch.float32)
            if not packed.layout.endswith("blocks"):
                scale = scale.reshape(-1).expand(codes.shape[0])
            y = float8_by_float8(codes, scale.contiguous(), packed, bias, x.dtype).launch()
        return y.reshape(*x.shape[:-1], n)


def _side(spec: Spec) -> str | None:
    """Whether zero points are taken from the codes or added to the weight; None without."""
    if "zero_point" not in spec.parts:
        return None
    if spec.kind == "int8" or spec.zero_domain == "int":
        return "kernel_shift"
    if spec.zero_domain == "none":
        return "kernel_shift" if spec.kind == "intx" else None
    return "kernel_added"


def _is_native(spec: Spec, device: DeviceInfo) -> bool:
    """Whether the device multiplies these codes as they are."""
    assert spec.activation is not None
    if (spec.data_dtype, spec.activation.dtype) != ("float8_e4m3fn", "float8_e4m3fn"):
        return False
    return device.arch == "gfx950" or (device.capability or (0, 0)) >= (8, 9)


def _check_codes(qdata: torch.Tensor, dtype: str) -> None:
    if dtype not in _NAN_CODES:
        return
    bytes_ = qdata.view(torch.uint8)
    if any(bool((bytes_ == code).any()) for code in _NAN_CODES[dtype]):
        raise PackingError("qdata holds NaN, which the kernel would decode to a number")
