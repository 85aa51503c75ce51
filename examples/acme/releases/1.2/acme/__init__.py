"""acme 1.2: `scale` is called `scales`. No new version."""

import torch

import aoserial


@aoserial.register("acme.Int4Tensor", version=1)
class Int4Tensor(aoserial.VersionedTensor):
    """Unsigned 4-bit codes, even k in the low nibble: w = (q - zero_point) * scales * gain."""

    qdata: torch.Tensor
    scales: torch.Tensor = aoserial.field(renamed_from="scale")
    group_size: int
    zero_point: torch.Tensor | None = None
    gain: float = aoserial.field(absent=1.0, default=2.0)

    def dequantize(self, dtype=None):
        codes = torch.stack([self.qdata & 15, self.qdata >> 4], dim=-1).flatten(-2).float()
        scales = self.scales.repeat_interleave(self.group_size, -1)
        zero = 8
        if self.zero_point is not None:
            zero = self.zero_point.repeat_interleave(self.group_size, -1)
        return ((codes - zero) * scales * self.gain).to(dtype or self.dtype)
