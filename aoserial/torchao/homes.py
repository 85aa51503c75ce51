"""Where torchao 0.16 and later have the classes that we make instances of. Torch-free.

Fixed names of ours: what a file says is never imported.
"""

from __future__ import annotations

from collections.abc import Mapping

_QUANTIZATION = ("torchao.quantization",)
_GRANULARITY = ("torchao.quantization.granularity",)
_WORKFLOWS = "torchao.quantization.quantize_.workflows"
_MX = ("torchao.prototype.mx_formats.mx_tensor",)
_NVFP4 = ("torchao.prototype.mx_formats.nvfp4_tensor",)
_TRAINING = ("torchao.float8.float8_training_tensor",)
_NF4 = (f"{_WORKFLOWS}.nf4.nf4_tensor", "torchao.dtypes.nf4tensor")  # 0.18 moved it

# id → where releases from 0.16 on have it, the newest first
HOMES: Mapping[str, tuple[str, ...]] = {
    "torchao.Float8Tensor": _QUANTIZATION,
    "torchao.Int8Tensor": _QUANTIZATION,
    "torchao.Int4Tensor": _QUANTIZATION,
    "torchao.Int4PlainInt32Tensor": _QUANTIZATION,
    "torchao.IntxUnpackedToInt8Tensor": _QUANTIZATION,
    "torchao.MXTensor": _MX,
    "torchao.NVFP4Tensor": _NVFP4,
    "torchao.NF4Tensor": _NF4,
    "torchao.SubclassTensorArgs": _NF4,
    "torchao.OptimState8bit": ("torchao.optim.subclass_8bit",),
    "torchao.OptimState4bit": ("torchao.optim.subclass_4bit",),
    "torchao.OptimStateFp8": ("torchao.optim.subclass_fp8",),
    "torchao.GGUFQuantizedTensor": ("torchao.prototype.quantization.gguf.gguf_quantized_tensor",),
    "torchao.CodebookQuantizedTensor": (
        "torchao.prototype.quantization.codebook.codebook_quantized_tensor",
    ),
    "torchao.CoreMLCodebookQuantizedTensor": (
        "torchao.prototype.quantization.codebook_coreml.codebook_quantized_tensor",
    ),
    "torchao.BlockSparseTensor": ("torchao.sparsity.blocksparse",),
    "torchao.Float8TrainingTensor": _TRAINING,
    "torchao.LinearMMConfig": _TRAINING,
    "torchao.ScaledMMConfig": _TRAINING,
    "torchao.GemmInputRole": _TRAINING,
    "torchao.Float8MMConfig": ("torchao.float8.inference",),
    "torchao.PerTensor": _GRANULARITY,
    "torchao.PerRow": _GRANULARITY,
    "torchao.PerToken": _GRANULARITY,
    "torchao.PerAxis": _GRANULARITY,
    "torchao.PerGroup": _GRANULARITY,
    "torchao.PerBlock": _GRANULARITY,
    "torchao.QuantizeTensorToFloat8Kwargs": (f"{_WORKFLOWS}.float8.float8_tensor",),
    "torchao.QuantizeTensorToInt8Kwargs": (f"{_WORKFLOWS}.int8.int8_tensor",),
    "torchao.QuantizeTensorToMXKwargs": _MX,
    "torchao.QuantizeTensorToNVFP4Kwargs": _NVFP4,
    "torchao.KernelPreference": ("torchao.quantization.quantize_.common.kernel_preference",),
    "torchao.MappingType": ("torchao.quantization.quant_primitives",),
    "torchao.ScaleCalculationMode": ("torchao.prototype.mx_formats.config",),
    "torchao.IntxUnpackedToInt8TensorActivationQuantization": (
        f"{_WORKFLOWS}.intx.intx_unpacked_to_int8_tensor",
    ),
}
RENAMED = {"torchao.CoreMLCodebookQuantizedTensor": "CodebookQuantizedTensor"}
