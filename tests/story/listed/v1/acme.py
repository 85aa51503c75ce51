"""The first release of a class written for torchao's base class; only the base is changed."""

import torch

import aoserial


@aoserial.register("acme.Int4Tensor", version=1)
class Int4Tensor(aoserial.VersionedTensor):
    tensor_data_names = ["qdata", "scale"]
    tensor_attribute_names = ["group_size", "shape"]

    def __new__(cls, qdata, scale, group_size, shape):
        kwargs = {"device": qdata.device, "dtype": scale.dtype, "requires_grad": False}
        return torch.Tensor._make_wrapper_subclass(cls, shape, **kwargs)

    def __init__(self, qdata, scale, group_size, shape):
        super().__init__()
        self.qdata = qdata
        self.scale = scale
        self.group_size = group_size

    def dequantize(self):
        codes = torch.stack([self.qdata & 15, self.qdata >> 4], dim=-1).flatten(-2).float()
        return (codes - 8) * self.scale.repeat_interleave(self.group_size, -1)
