"""The fourth release: the zero point moves to the float domain, which is version 2."""

import torch

import aoserial


@aoserial.register("acme.Int4Tensor", version=2)
class Int4Tensor(aoserial.VersionedTensor):
    """Unsigned 4-bit codes: w = q * scales + zeros."""

    qdata: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    group_size: int

    def dequantize(self, dtype=None):
        codes = torch.stack([self.qdata & 15, self.qdata >> 4], dim=-1).flatten(-2).float()
        scale, zero = (t.repeat_interleave(self.group_size, -1) for t in (self.scales, self.zeros))
        return (codes * scale + zero).to(dtype or self.dtype)


@aoserial.migration("acme.Int4Tensor", 1, 2)
def zero_point_to_float_domain(record):
    """w = (q - z) s g becomes w = q s' + z' with s' = s g and z' = -z s g."""
    name = "scales" if "scales" in record.parts else "scale"
    scale, gain = record.parts[name], record.attributes.get("gain", 1.0)
    like = {"dtype": scale.dtype, "shape": scale.shape}
    zero_point = record.parts.get("zero_point")
    if zero_point is None:
        zeros = aoserial.compute(lambda s: -8 * s * gain, scale, **like)
    else:
        zeros = aoserial.compute(lambda s, z: -z * s * gain, scale, zero_point, **like)
    scales = aoserial.compute(lambda s: s * gain, scale, **like)
    gone = {name, "gain", "zero_point"} & {*record.parts, *record.attributes}
    return record.at(2).drop(*gone).put(scales=scales, zeros=zeros)
