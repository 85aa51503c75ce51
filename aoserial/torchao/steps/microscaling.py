"""The older forms of torchao's MXTensor and NVFP4Tensor, one change at a time. Torch-free."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aoserial.errors import FieldError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.schema import FrozenMap, Nested, Symbol, Value
from aoserial.storage import Part, compute
from aoserial.torchao.mx import MX_KWARGS_0_13
from aoserial.torchao.steps.fp4 import to_our_nvfp4
from aoserial.torchao.steps.int4 import nibbles_swapped

if TYPE_CHECKING:
    import torch

_FP4, _FP6 = "float4_e2m1fn_x2", ("fp6_e2m3", "fp6_e3m2")

_NIBBLES = (
    "FP4 nibble order: up to 0.14 the even element is in the high half of a byte, since 0.15 in "
    "the low one, in tensors that look the same"
)
_FLAG = (
    "swizzle flag: 0.16 and later look for it under a name without underscore, miss it, and take "
    "swizzled scales for rows of them"
)


@migration("torchao.MXTensor", 1, 2)
def lay_scales_in_rows(record: Record) -> Record:
    """MXTensor of torchao 0.3 to 0.12: scales were flat (up to 0.11), and uint8 (up to 0.9).

    fp4 had a name of its own. Activations were quantized by a wrapper, if at all: see
    `with_mx_activation`. `_use_fp4_custom_triton_dequant_kernel` chose between two kernels that
    give the same numbers, and means nothing any more.
    Proved by torchao-0.3.1/mx_fp8_e4m3, torchao-0.10.0/mx_fp4 and torchao-0.12.0/mx_fp6_e2m3.
    """
    element = record.attributes["_elem_dtype"]
    return (
        record.at(2)
        .drop("_use_fp4_custom_triton_dequant_kernel")
        .rename(_data="qdata")
        .put(_scale_e8m0=_rows_of_flat(record))
        .set(_elem_dtype=_FP4 if element == "fp4_e2m1" else element, act_quant_kwargs=None)
    )


@migration("torchao.MXTensor", 2, 3, repairs=_NIBBLES)
def put_even_elements_low(record: Record) -> Record:
    """MXTensor of torchao 0.13 and 0.14: fp4 had even k in the high nibble, fp6 could be packed.

    Of the kernels, CUTLASS and CUBLAS became AUTO (torchao 0.15, `KernelPreference`). Scales were
    never swizzled.
    Proved by torchao-0.13.0/mx_config_fp4 and torchao-0.14.1/mx_fp6_e3m2.
    """
    given = record.attributes
    codes = record.parts["qdata"]
    if given["_elem_dtype"] == _FP4:
        codes = nibbles_swapped(codes)
    elif given["_elem_dtype"] in _FP6 and given["_pack_fp6"]:
        codes = _unpack_fp6(codes, given["_block_size"])
    return (
        record.at(3)
        .drop("_gemm_kernel_choice", "_pack_fp6")
        .rename(_scale_e8m0="scale", _block_size="block_size")
        .put(qdata=codes)
        .set(
            kernel_preference=_preference(given["_gemm_kernel_choice"]),
            act_quant_kwargs=_kwargs(given["act_quant_kwargs"]),
            _is_swizzled_scales=False,
        )
    )


@migration("torchao.MXTensor", 3, 4, repairs=_FLAG)
def make_mx_names_public(record: Record) -> Record:
    """MXTensor of torchao 0.15: three names began with an underscore.

    Proved by torchao-0.15.0/mx_fp8_swizzled, whose flag newer torchao does not see.
    """
    names = {f"_{name}": name for name in ("elem_dtype", "orig_dtype", "is_swizzled_scales")}
    return record.at(4).rename(**names)


@migration("torchao.NVFP4Tensor", 1, 2)
def tell_activation_from_mm_config(record: Record) -> Record:
    """NVFP4Tensor of torchao 0.12: mm_config said whether the activation is quantized.

    Proved by torchao-0.12.0/nvfp4_per_tensor.
    """
    dynamic = record.attributes["mm_config"] == Symbol("torchao.NVFP4MMConfig", "DYNAMIC")
    kwargs = None
    if dynamic:
        fields = FrozenMap(use_triton_kernel=record.attributes["use_triton_kernel"] is True)
        kwargs = Nested("torchao.QuantizeTensorToNVFP4Kwargs", 1, fields)
    return record.at(2).drop("mm_config").rename(_data="qdata").set(act_quant_kwargs=kwargs)


@migration("torchao.NVFP4Tensor", 2, 3, repairs=_NIBBLES)
def put_even_codes_low(record: Record) -> Record:
    """NVFP4Tensor of torchao 0.13 and 0.14: even k was in the high nibble.

    Proved by torchao-0.13.0/nvfp4_swizzled and torchao-0.14.1/nvfp4_config.
    """
    codes = record.parts["qdata"]
    names = {
        "_scale_e4m3": "scale",
        "_block_size": "block_size",
        "_per_tensor_scale": "per_tensor_scale",
        "_act_per_tensor_scale": "act_per_tensor_scale",
    }
    held = {*record.attributes, *record.parts}
    return (
        record.at(3)
        .rename(**{old: new for old, new in names.items() if old in held})
        .put(qdata=nibbles_swapped(codes))
    )


@migration("torchao.NVFP4Tensor", 3, 1, becomes="aoserial.NVFP4Tensor", repairs=_FLAG)
def leave_torchao_nvfp4_of_0_15(record: Record) -> Record:
    """NVFP4Tensor of torchao 0.12 to 0.15, whose scales were multiplied in the weight's dtype.

    From 0.16 on two names are others, and a file no longer tells by which release's arithmetic it
    is meant.
    Proved by torchao-0.15.0/nvfp4_per_tensor.
    """
    public = record.rename(_orig_dtype="orig_dtype", _is_swizzled_scales="is_swizzled_scales")
    return to_our_nvfp4(public, scale_product_dtype=record.dtype)


def with_mx_activation(weight: Record, settings: Nested) -> Record:
    """The weight of torchao 0.12 that a LinearActivationQuantizedTensor held, as 0.13 has it.

    Args:
        weight: `torchao.MXTensor` of version 1, resolved.
        settings: the wrapper's `quant_kwargs` for `_input_activation_quant_func_mxfp`: block_size,
            activation_dtype, and scale, which was always None.

    Returns:
        `torchao.MXTensor` of version 2.

    Proved by torchao-0.12.0/mx_config_fp8.
    """
    kwargs = FrozenMap(
        elem_dtype=settings["activation_dtype"],
        block_size=settings["block_size"],
        gemm_kernel_choice=weight.attributes["_gemm_kernel_choice"],
    )
    return lay_scales_in_rows(weight).set(act_quant_kwargs=Nested(MX_KWARGS_0_13, 1, kwargs))


def _rows_of_flat(record: Record) -> Part:
    """The scales as float8_e8m0fnu, [..., N, K / block] where they were flat."""
    scale, block = record.parts["_scale_e8m0"], record.attributes["_block_size"]
    assert isinstance(block, int)  # resolution checked the field's type
    shape = scale.shape
    if len(shape) == 1 and record.shape and block > 0:
        shape = (*record.shape[:-1], -(-record.shape[-1] // block))
    if math.prod(shape) != math.prod(scale.shape):
        raise FieldError(
            f"{list(scale.shape)} are not one for each block of {block} along the rows of "
            f"{list(record.shape)}"
        ).locate(field="_scale_e8m0")
    return scale.view("float8_e8m0fnu", shape)


def _preference(choice: Value) -> Symbol | None:
    if not isinstance(choice, Symbol):
        return None
    name = "EMULATED" if choice.name == "EMULATED" else "AUTO"
    return Symbol("torchao.KernelPreference", name)


def _kwargs(given: Value) -> Nested | None:
    """QuantizeTensorToMXKwargs as 0.15 has it; how fp6 would be packed does not change a number."""
    if not isinstance(given, Nested):
        return None
    kept = given.fields.without("gemm_kernel_choice", "pack_fp6")
    preference = _preference(given["gemm_kernel_choice"])
    fields = kept.replace(kernel_preference=preference)
    return Nested("torchao.QuantizeTensorToMXKwargs", 1, fields)


def _unpack_fp6(packed: Part, block: Value) -> Part:
    """One code a byte, of four in three bytes (torchao 0.10 to 0.14, `triton_pack_uint6_kernel`).

    The codes of a block are in three runs of bytes: for each four codes, the upper four bits of the
    first two, those of the last two, and the lower two bits of all. Earlier codes have the higher
    bits.
    """
    *lead, width = packed.shape
    if not isinstance(block, int) or block < 4 or block % 4 or width % (block * 3 // 4):
        raise FieldError(f"{width} bytes are no blocks of {block!r} codes of fp6").locate(
            field="qdata"
        )
    codes = width * 4 // 3
    quarter = block // 4

    def unpack(data: torch.Tensor) -> torch.Tensor:
        import torch  # torch-free module

        first, last, low = data.reshape(-1, 3, quarter).unbind(1)
        four = (
            first >> 4 << 2 | low >> 6,
            (first & 15) << 2 | low >> 4 & 3,
            last >> 4 << 2 | low >> 2 & 3,
            (last & 15) << 2 | low & 3,
        )
        return torch.stack(four, dim=-1).reshape(*data.shape[:-1], codes)

    return compute(unpack, packed, dtype="uint8", shape=(*lead, codes), by_rows=1 if lead else None)
