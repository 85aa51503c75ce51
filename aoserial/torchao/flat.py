"""torchao's NF4 weights and states of low-bit optimizers, as it pickled them. Torch-free.

Their parts lie flat, elements in their order. Their fields never changed; the classes moved.

Sources: class bodies of each release, and
fixtures/torchao-<release>/{nf4_bf16,nf4_fp32,nf4_config,optim_adamw8bit,optim_adam8bit_bf16,
optim_adamw4bit,optim_adamwfp8}.
"""

from __future__ import annotations

from aoserial.schema import FLOATING, Field, Schema, attribute, tensor
from aoserial.torchao.forms import Form, PickledType

# what 0.1 gave the wrapper, for want of a dtype of four bits
UNSAID_DTYPE = "float8_e5m2fnuz"

NF4_TENSOR = Schema(
    type="torchao.NF4Tensor",
    version=1,
    logical_dtypes=(*FLOATING, UNSAID_DTYPE),
    fields=(
        tensor(
            "quantized_data", "uint8", shape=("numel/2",), doc="the first code in the high bits"
        ),
        tensor("quantized_scalers", "int8", shape=("numel/block_size",)),
        tensor("quantization_factor", shape=("numel/block_size/scaler_block_size",)),
        tensor("scaler_mean", shape=()),
        tensor("nf4", shape=("16",), doc="what the codes stand for"),
        attribute("block_size", "int"),
        attribute("scaler_block_size", "int"),
        attribute("n_blocks", "int", doc="numel / block_size of the tensor it was cut from"),
    ),
    doc="torchao 0.1 to 0.18",
)


def _state(name: str, *fields: Field) -> Schema:
    return Schema(
        type=f"torchao.OptimState{name}",
        version=1,
        fields=(
            *fields,
            tensor("scale", "float32", shape=("numel/block_size",)),
            attribute("block_size", "int", doc="2048 at first, 256 from 0.6 on; 128 of 4 bits"),
        ),
        doc="torchao 0.4 to 0.18",
    )


_SIGNED = attribute("signed", "bool")

STATES = (
    _state(
        "8bit",
        tensor("codes", "uint8", shape=("...", "K")),
        tensor("qmap", "float32", shape=("256",)),
        _SIGNED,
    ),
    _state(
        "4bit",
        tensor("codes", "uint8", shape=("numel/2",), doc="the first code in the high bits"),
        tensor("qmap", "float32", shape=("16",)),
        _SIGNED,
        attribute("_shape", "list[int]", doc="the logical shape"),
    ),
    _state("Fp8", tensor("codes", "float8_e4m3fn", shape=("...", "K"))),
)

SCHEMAS = (NF4_TENSOR, *STATES)

CLASSES = (
    PickledType(
        type="torchao.NF4Tensor",
        paths=(
            "torchao.dtypes.nf4tensor.NF4Tensor",
            "torchao.dtypes.NF4Tensor",
            "torchao.quantization.quantize_.workflows.nf4.nf4_tensor.NF4Tensor",
            "torchao.quantization.quantize_.workflows.NF4Tensor",
            "torchao.quantization.NF4Tensor",
        ),
        forms=(Form(version=1, releases="0.1 to 0.18", has=("quantized_scalers", "nf4")),),
    ),
    *(
        PickledType(
            type=f"torchao.OptimState{name}",
            paths=(
                f"torchao.prototype.low_bit_optim.subclass_{name.lower()}.OptimState{name}",
                f"torchao.optim.subclass_{name.lower()}.OptimState{name}",
            ),
            forms=(Form(version=1, releases="0.4 to 0.18", has=("codes", "scale")),),
        )
        for name in ("8bit", "4bit", "Fp8")
    ),
)
