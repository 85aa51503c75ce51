"""The next version: the zero point moves to the float domain."""

import torch

import aoserial


@aoserial.register("acme.Int4Tensor", version=2)
class Int4Tensor(aoserial.VersionedTensor):
    tensor_data_names = ["qdata", "scale", "zeros"]
    tensor_attribute_names = ["group_size", "shape"]

    def __new__(cls, qdata, scale, zeros, group_size, shape):
        kwargs = {"device": qdata.device, "dtype": scale.dtype, "requires_grad": False}
        return torch.Tensor._make_wrapper_subclass(cls, shape, **kwargs)

    def __init__(self, qdata, scale, zeros, group_size, shape):
        super().__init__()
        self.qdata = qdata
        self.scale = scale
        self.zeros = zeros
        self.group_size = group_size

    def dequantize(self):
        codes = torch.stack([self.qdata & 15, self.qdata >> 4], dim=-1).flatten(-2).float()
        scale, zero = (t.repeat_interleave(self.group_size, -1) for t in (self.scale, self.zeros))
        return codes * scale + zero


@aoserial.migration("acme.Int4Tensor", 1, 2)
def zero_point_to_float_domain(record):
    scale, gain = record.parts["scale"], record.attributes.get("gain", 1.0)
    like = {"dtype": scale.dtype, "shape": scale.shape}
    zero_point = record.parts.get("zero_point")
    if zero_point is None:
        zeros = aoserial.compute(lambda s: -8 * s * gain, scale, **like)
    else:
        zeros = aoserial.compute(lambda s, z: -z * s * gain, scale, zero_point, **like)
    new_scale = aoserial.compute(lambda s: s * gain, scale, **like)
    gone = {"gain", "zero_point"} & {*record.parts, *record.attributes}
    return record.at(2).drop(*gone).put(scale=new_scale, zeros=zeros)
