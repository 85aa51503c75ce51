"""From torchao's MXTensor and NVFP4Tensor to ours, whose scales lie in rows. Torch-free."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aoserial.errors import FieldError
from aoserial.migrations import Question, migration
from aoserial.record import Record
from aoserial.schema import Nested, Value
from aoserial.storage import Part, Shape, compute
from aoserial.torchao.steps.settings import activation, granularity, kernel_hint, translate

if TYPE_CHECKING:
    import torch

# torchao's own names of the fp6 formats → the dtype's
_ELEMENTS = {
    "fp6_e2m3": "float6_e2m3fn",
    "fp6_e3m2": "float6_e3m2fn",
    "fp4_e2m1": "float4_e2m1fn_x2",
}

SCALE_PRODUCT = Question(
    name="scale_product_dtype",
    answers=("float32", "bfloat16", "float16"),
    default="float32",
    why="torchao 0.18 multiplies an NVFP4 weight's two scales in float32, earlier releases in the "
    "weight's dtype, and their files are the same",
    concerns=lambda record: "per_tensor_scale" in record.parts,
)


@migration("torchao.MXTensor", 4, 1, becomes="aoserial.MXTensor")
def leave_torchao_mx(record: Record) -> Record:
    """MXTensor of torchao 0.16 to 0.18: scales as bytes, in rows.

    Proved by fixtures/torchao-0.18.0/mx_config_fp4.
    """
    given = record.attributes
    element = _element(given["elem_dtype"])
    block = _length(given["block_size"])
    return (
        record.at(1, type="aoserial.MXTensor")
        .drop(
            *("elem_dtype", "orig_dtype", "kernel_preference"),
            *("act_quant_kwargs", "is_swizzled_scales"),
        )
        .put(scale=_in_rows(record, block, bool(given["is_swizzled_scales"]), "uint8"))
        .set(
            element=element,
            codes_per_byte=2 if element == "float4_e2m1fn_x2" else 1,
            block_size=(*(1 for _ in record.shape[:-1]), block),
            activation=_mx_activation(given["act_quant_kwargs"]),
            kernel=kernel_hint(
                given["kernel_preference"], swizzled_scales=given["is_swizzled_scales"] is True
            ),
        )
    )


@migration(
    "torchao.NVFP4Tensor",
    4,
    1,
    becomes="aoserial.NVFP4Tensor",
    asks=(SCALE_PRODUCT,),
    repairs="scale product: 0.18 multiplies the two scales in float32, releases before it in the "
    "weight's dtype, which changes last bits of the same file",
)
def leave_torchao_nvfp4(record: Record, *, scale_product_dtype: str) -> Record:
    """NVFP4Tensor of torchao 0.16 to 0.18: scales in rows.

    Proved by fixtures/torchao-0.18.0/nvfp4_config.
    """
    return to_our_nvfp4(record, scale_product_dtype=scale_product_dtype)


def to_our_nvfp4(record: Record, *, scale_product_dtype: str) -> Record:
    """A record of torchao's newest fields as ours, given what no field says."""
    given = record.attributes
    block = _length(given["block_size"])
    return (
        record.at(1, type="aoserial.NVFP4Tensor")
        .drop("orig_dtype", "act_quant_kwargs", "is_swizzled_scales", "use_triton_kernel")
        .put(scale=_in_rows(record, block, bool(given["is_swizzled_scales"]), "float8_e4m3fn"))
        .set(
            block_size=(*(1 for _ in record.shape[:-1]), block),
            scale_product_dtype=scale_product_dtype,
            activation=_nvfp4_activation(given["act_quant_kwargs"]),
            kernel=kernel_hint(
                None,
                swizzled_scales=given["is_swizzled_scales"] is True,
                triton=given["use_triton_kernel"] is True,
            ),
        )
    )


def _mx_activation(kwargs: Value) -> Nested | None:
    if not isinstance(kwargs, Nested):
        return None
    return activation(
        kind="dynamic",
        dtype=_element(kwargs["elem_dtype"]),
        granularity=granularity("group", group_size=kwargs["block_size"]),
        scale_mode=translate(kwargs["scaling_mode"], "aoserial.ScaleMode"),
        kernel=kernel_hint(
            kwargs["kernel_preference"], swizzled_scales=kwargs["is_swizzled_scales"] is True
        ),
    )


def _nvfp4_activation(kwargs: Value) -> Nested | None:
    if not isinstance(kwargs, Nested):
        return None
    return activation(
        kind="dynamic",
        dtype="float4_e2m1fn_x2",
        granularity=granularity("group", group_size=kwargs["block_size"]),
        tensor_scale=kwargs["use_dynamic_per_tensor_scale"],
        kernel=kernel_hint(
            None,
            swizzled_scales=kwargs["is_swizzled_scales"] is True,
            triton=kwargs["use_triton_kernel"] is True,
        ),
    )


def _in_rows(record: Record, block: int, swizzled: bool, dtype: str) -> Part:
    """The scales as [..., N, K / block], in `dtype`."""
    scale = record.parts["scale"]
    *lead, columns = record.shape
    shape: Shape = (*lead, -(-columns // block))
    if not lead:
        raise FieldError(f"is {list(record.shape)}, expected [..., N, K]").locate(field="shape")
    if not swizzled:
        flat = len(scale.shape) == 1 and scale.shape[0] == math.prod(shape)
        return scale.view(dtype, shape if flat else scale.shape)
    rows = math.prod(lead)
    tiles = -(-rows // 128) * -(-shape[-1] // 4)
    # flat in 0.12 and 0.13; a transposed weight has its scales the other way round
    tiled: Shape = (*lead[:-1], -(-lead[-1] // 128) * 32, -(-shape[-1] // 4) * 16)
    if math.prod(scale.shape) != tiles * 512 or scale.shape not in ((tiles * 512,), tiled):
        raise FieldError(
            f"{list(scale.shape)} are not the {tiles} tiles of 128 x 4 that the shape needs"
        ).locate(field="scale")

    def unswizzle(tiled: torch.Tensor) -> torch.Tensor:
        return _unswizzle(tiled, rows, shape[-1]).reshape(shape)

    return compute(unswizzle, scale.view("uint8", scale.shape), dtype="uint8", shape=shape).view(
        dtype, shape
    )


def _unswizzle(tiled: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """[rows, columns] of scales in tiles of 128 rows and 4 columns.

    A tile's 512 bytes hold row r, column c at 16 (r mod 32) + 4 (r div 32) + c (cuBLAS, "1D block
    scaling factors layout"); tiles follow one another along the columns first.
    """
    down, across = -(-rows // 128), -(-columns // 4)
    tiles = tiled.reshape(down, across, 32, 4, 4)  # [., ., r mod 32, r div 32, c]
    whole = tiles.permute(0, 3, 2, 1, 4).reshape(down * 128, across * 4)
    return whole[:rows, :columns].contiguous()


def _element(given: Value) -> str:
    name = _ELEMENTS.get(str(given), str(given))
    known = ("float8_e4m3fn", "float8_e5m2", *_ELEMENTS.values())
    if name not in known:
        raise FieldError(f"is {given!r:.60}, expected one of {', '.join(known)}").locate(
            field="elem_dtype"
        )
    return name


def _length(given: Value) -> int:
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return given
    raise FieldError(f"is {given!r:.60}, expected a positive length").locate(field="block_size")
