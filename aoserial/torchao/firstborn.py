"""torchao's first tensors of few bits, before there was one class for all: uint4, uint2, BitNet.

All put the first code of a byte into its high bits. Torch-free.

Sources: class bodies of each release, and fixtures/torchao-<release>/{uint4_tensor,
uint4_perchannel,uint2_tensor,bitnet_uint2_tensor,bitnet_packed2bit}.
"""

from __future__ import annotations

from aoserial.schema import Schema, tensor
from aoserial.torchao.forms import Form, PickledType

_UINT4 = tensor("elem", "uint8", shape=("...", "K/2"), doc="two codes a byte")
_UINT2 = tensor("elem", "uint8", shape=("...", "K/4"), doc="four codes a byte")

SCHEMAS = (
    Schema(
        type="torchao.UInt4Tensor",
        version=1,
        dims=("...", "K"),
        logical_dtypes=("uint4",),
        fields=(_UINT4,),
        doc="torchao 0.1 to 0.15: integers",
    ),
    Schema(
        type="torchao.PerChannelSymmetricWeightUInt4Tensor",
        version=1,
        dims=("N", "K"),
        logical_dtypes=("uint4",),
        fields=(_UINT4, tensor("scales", shape=("N",))),
        doc="torchao 0.1 to 0.15: w = code * scale",
    ),
    Schema(
        type="torchao.UInt2Tensor",
        version=1,
        dims=("...", "K"),
        logical_dtypes=("uint2", "uint8"),
        fields=(_UINT2,),
        doc="torchao 0.3 to 0.9: integers",
    ),
    Schema(
        type="torchao.BitnetTensor",
        version=1,
        dims=("...", "K"),
        logical_dtypes=("uint2", "uint8"),
        fields=(_UINT2,),
        doc="torchao 0.3 to 0.9: signs, plus 1",
    ),
    Schema(
        type="torchao.BitNetPacked2bitLinearWeight",
        version=1,
        dims=("N", "K"),
        fields=(
            tensor("int_data", "int8", shape=("N", "K/4"), doc="four signed codes a byte"),
            tensor("scale", shape=()),
        ),
        doc="torchao 0.6 to 0.18: w = code * scale",
    ),
)


def _class(name: str, releases: str, has: str, *modules: str) -> PickledType:
    return PickledType(
        type=f"torchao.{name}",
        paths=tuple(f"torchao.{module}.{name}" for module in modules),
        forms=(Form(version=1, releases=releases, has=(has,)),),
    )


_UINT4_MODULES = ("dtypes", "dtypes.uint4", "dtypes.uintx", "dtypes.uintx.uint4_layout")
_UINT2_MODULES = ("prototype.dtypes", "prototype.dtypes.uint2")
_BITNET_MODULES = ("prototype.dtypes", "prototype.dtypes.bitnet")
_TRAINING_MODULES = ("prototype.quantized_training.bitnet",)

CLASSES = (
    _class("UInt4Tensor", "0.1 to 0.15", "elem", *_UINT4_MODULES),
    _class("PerChannelSymmetricWeightUInt4Tensor", "0.1 to 0.15", "scales", *_UINT4_MODULES),
    _class("UInt2Tensor", "0.3 to 0.9", "elem", *_UINT2_MODULES),
    _class("BitnetTensor", "0.3 to 0.9", "elem", *_BITNET_MODULES),
    _class("BitNetPacked2bitLinearWeight", "0.6 to 0.18", "int_data", *_TRAINING_MODULES),
)
