"""int4 weights in groups: tinygemm, `_weight_int4pack_mm`.

It computes w = (q - 8) s + z, with s, z and the activation in bfloat16, and sums in float32. Scales
and zero points of another domain or dtype go in where they come out exactly so, and are refused
where they would be rounded.

Source: torch 2.13, `int4mm.cu`.
"""

from __future__ import annotations

import warnings

import torch

from aoserial.errors import PackingError
from aoserial.kernels.activation import prescaled
from aoserial.kernels.arithmetic import tile, untile
from aoserial.kernels.backend import Backend, Packed
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.operands import exactly
from aoserial.kernels.reference import Reference
from aoserial.kernels.spec import Spec, Weight

_GROUPS = (32, 64, 128, 256)
_INNER_K_TILES = (8, 4, 2)  # the first that divides K: more of them are read at once
_K_TILE, _N_TILE = 16, 8
_MID = 8


class Tinygemm(Backend):
    """Packs the codes into tiles, and scales with zero points into pairs [K/G, N, 2]."""

    name = "torch_cuda"

    def supports(self, spec: Spec, device: DeviceInfo) -> str | None:
        rows, columns = spec.shape
        group = spec.block_size[-1]
        refused = {
            "tinygemm runs from sm80 on; on AMD devices its tiles have another order": (
                device.capability is None or device.capability < (8, 0)
            ),
            "tinygemm leaves the activation as it is": spec.activation is not None,
            f"tinygemm takes weights that stand for bfloat16, not {spec.dtype}": (
                spec.dtype != "bfloat16"
            ),
            "tinygemm has no order of columns (group_index)": "group_index" in spec.parts,
            f"tinygemm has groups of 32, 64, 128 and 256 in a row, not {list(spec.block_size)}": (
                spec.block_size[0] != 1 or group not in _GROUPS
            ),
            f"K must be a multiple of 32 and of the group, and N of 8, not {columns} and {rows}": (
                bool(columns % (2 * _K_TILE) or columns % group or rows % _N_TILE)
            ),
        }
        return next((sentence for sentence, holds in refused.items() if holds), None)

    def pack(self, weight: Weight, device: DeviceInfo) -> Packed:
        del device
        spec, parts = weight.spec, dict(weight.parts)
        qdata = parts.pop("qdata")
        parts["scales_and_zeros"] = _scales_and_zeros(weight)
        parts["tiles"] = _tiles(qdata, spec)
        return Packed(spec=spec, parts=parts, layout="tinygemm")

    def unpack(self, packed: Packed) -> Weight:
        held = {**packed.parts, "qdata": untile(packed.parts["tiles"])}
        return Weight(spec=packed.spec, parts={name: held[name] for name in packed.spec.parts})

    def linear(
        self, x: torch.Tensor, packed: Packed, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        spec, parts = packed.spec, packed.parts
        if x.dtype != torch.bfloat16:
            warnings.warn(
                f"an activation in {x.dtype} meets an int4 weight that is packed for bfloat16, "
                f"and goes the slow way",
                stacklevel=2,
            )
            plain = self.unpack(packed)
            return Reference().linear(x, Packed(spec=spec, parts=plain.parts), bias)
        rows = prescaled(x, spec, parts).to(x.dtype).reshape(-1, spec.shape[1]).contiguous()
        if rows.shape[0] == 0:
            return x.new_zeros((*x.shape[:-1], spec.shape[0]))
        y = torch._weight_int4pack_mm(
            rows, parts["tiles"], spec.block_size[-1], parts["scales_and_zeros"]
        ).reshape(*x.shape[:-1], spec.shape[0])
        return y if bias is None else (y + bias).to(x.dtype)


def _tiles(qdata: torch.Tensor, spec: Spec) -> torch.Tensor:
    """The codes in tiles, by torch's own operator on a device that has it.

    Raises:
        PackingError: its tiles are not in the order that `untile` reads.
    """
    inner = next(inner for inner in _INNER_K_TILES if spec.shape[1] % (inner * _K_TILE) == 0)
    if qdata.device.type != "cuda":
        return tile(qdata, inner)
    high_first = (qdata << 4 | qdata >> 4).contiguous()
    tiles = torch._convert_weight_to_int4pack(high_first, inner)
    if not torch.equal(untile(tiles), qdata):
        raise PackingError("this torch packs int4 in an order that cannot be unpacked again")
    return tiles


def _scales_and_zeros(weight: Weight) -> torch.Tensor:
    """bfloat16 [K/G, N, 2].

    Raises:
        PackingError: they are not all in bfloat16.
    """
    scale = exactly(weight.parts["scale"], torch.bfloat16, "scale")
    wide = scale.to(torch.float64)
    stored = weight.parts.get("zero_point")
    zero_point = torch.zeros_like(wide) if stored is None else stored.to(torch.float64)
    match weight.spec.zero_domain:
        case "float":
            zero = zero_point
        case "int":
            zero = (_MID - zero_point) * wide
        case "offset":
            zero = _MID * wide + zero_point
        case _:
            zero = torch.zeros_like(wide)
    pair = torch.stack([scale, exactly(zero, torch.bfloat16, "zero_point, times scale,")], dim=-1)
    return pair.transpose(0, 1).contiguous()
