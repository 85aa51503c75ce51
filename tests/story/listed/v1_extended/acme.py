"""The second release: an optional tensor and an optional attribute, defaults in the signature."""

import torch

import aoserial


@aoserial.register("acme.Int4Tensor", version=1)
class Int4Tensor(aoserial.VersionedTensor):
    tensor_data_names = ["qdata", "scale"]
    tensor_attribute_names = ["group_size", "shape"]
    optional_tensor_data_names = ["zero_point"]
    optional_tensor_attribute_names = ["gain"]

    def __new__(cls, qdata, scale, group_size, shape, zero_point=None, gain=1.0):
        kwargs = {"device": qdata.device, "dtype": scale.dtype, "requires_grad": False}
        return torch.Tensor._make_wrapper_subclass(cls, shape, **kwargs)

    def __init__(self, qdata, scale, group_size, shape, zero_point=None, gain=1.0):
        super().__init__()
        self.qdata = qdata
        self.scale = scale
        self.group_size = group_size
        self.zero_point = zero_point
        self.gain = gain

    def dequantize(self):
        codes = torch.stack([self.qdata & 15, self.qdata >> 4], dim=-1).flatten(-2).float()
        scale = self.scale.repeat_interleave(self.group_size, -1)
        zero = (
            8 if self.zero_point is None else self.zero_point.repeat_interleave(self.group_size, -1)
        )
        return (codes - zero) * scale * self.gain
