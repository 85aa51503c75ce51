"""acme 2.0: nibbles in the order that the new kernel wants. Version 2, with a migration."""

from pathlib import Path

import torch

import aoserial

SCHEMAS = Path(__file__).parent.parent / "schemas"


@aoserial.register("acme.Int4Tensor", version=2, schemas=SCHEMAS)
class Int4Tensor(aoserial.VersionedTensor):
    """Unsigned 4-bit codes, even k in the high nibble: w = (q - zero_point) * scales * gain."""

    qdata: torch.Tensor
    scales: torch.Tensor = aoserial.field(renamed_from="scale")
    group_size: int
    zero_point: torch.Tensor | None = None
    gain: float = aoserial.field(absent=1.0, default=2.0)

    def dequantize(self, dtype=None):
        codes = torch.stack([self.qdata >> 4, self.qdata & 15], dim=-1).flatten(-2).float()
        scales = self.scales.repeat_interleave(self.group_size, -1)
        zero = 8
        if self.zero_point is not None:
            zero = self.zero_point.repeat_interleave(self.group_size, -1)
        return ((codes - zero) * scales * self.gain).to(dtype or self.dtype)


@aoserial.migration("acme.Int4Tensor", 1, 2, repairs="nibble order: even k was in the low nibble")
def swap_nibbles(record):
    """The same codes, each byte's two the other way round."""
    codes = record.parts["qdata"]
    swapped = aoserial.compute(
        lambda q: ((q & 15) << 4) | (q >> 4), codes, dtype=codes.dtype, shape=codes.shape
    )
    return record.at(2).put(qdata=swapped)
