"""acme 1.0: int4 weights, two codes a byte."""

import torch

import aoserial


@aoserial.register("acme.Int4Tensor", version=1)
class Int4Tensor(aoserial.VersionedTensor):
    """Unsigned 4-bit codes, even k in the low nibble: w = (q - 8) * scale."""

    qdata: torch.Tensor
    scale: torch.Tensor
    group_size: int

    def dequantize(self, dtype=None):
        codes = torch.stack([self.qdata & 15, self.qdata >> 4], dim=-1).flatten(-2).float()
        scale = self.scale.repeat_interleave(self.group_size, -1)
        return ((codes - 8) * scale).to(dtype or self.dtype)
