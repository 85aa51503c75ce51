"""What an AffineQuantizedTensor holds its codes in, by layout. Torch-free.

They were `XxxAQTLayout` under `layout_tensor` up to 0.6, `XxxAQTTensorImpl` or `XxxTensorImpl`
under `tensor_impl` from 0.7 on. Each is a tensor of its own to torch; here it is an object, whose
tensors are parts of the tensor that holds it.
"""

from __future__ import annotations

from dataclasses import dataclass

from aoserial.schema import Field, attribute, optional_attribute
from aoserial.torchao.affine.layouts import (
    DA8W4,
    EXPERIMENTAL,
    FLOATX,
    OLD,
    PACKED_LINEAR,
    PROTOTYPE,
    UINTX,
    XBIT,
)


@dataclass(frozen=True)
class Impl:
    """One of them.

    Attributes:
        name: its class since 0.7.
        paths: of it in all releases.
        tensors: it always has.
        optional: tensors that it may have.
        fields: its other fields beside the layout.
    """

    name: str
    paths: tuple[str, ...]
    tensors: tuple[str, ...]
    optional: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()

    @property
    def type(self) -> str:
        return f"torchao.{self.name}"


_TRANSPOSED = optional_attribute("transposed", "bool?", False, doc="flipped by every t(), in place")
_MARLIN = (
    attribute("original_shape", "list[int]", doc="[K, N]"),
    attribute("group_size", "int", doc="-1 for all of K"),
    attribute("num_bits", "int"),
)
_SHARDS = tuple(f"int_data.int{bits}_shard" for bits in (4, 2, 1))

IMPLS = (
    Impl(
        "PlainAQTTensorImpl",
        (f"{OLD}.PlainAQTLayout", f"{UINTX}.plain_layout.PlainAQTTensorImpl"),
        ("int_data", "scale"),
        ("zero_point",),
    ),
    Impl(
        "QDQTensorImpl",
        (
            f"{EXPERIMENTAL}.q_dq_layout._Impl",  # 0.9
            f"{UINTX}.q_dq_layout._Impl",  # 0.10
            f"{UINTX}.q_dq_layout.QDQTensorImpl",
        ),
        ("int_data", "scale"),
        ("zero_point",),
    ),
    Impl(
        "TensorCoreTiledAQTTensorImpl",
        (
            f"{OLD}.TensorCoreTiledAQTLayout",
            f"{UINTX}.tensor_core_tiled_layout.TensorCoreTiledAQTTensorImpl",
        ),
        ("packed_weight", "scale_and_zero"),
        fields=(_TRANSPOSED,),
    ),
    Impl(
        "Float8AQTTensorImpl",
        (f"{OLD}.Float8AQTLayout", f"{FLOATX}.float8_layout.Float8AQTTensorImpl"),
        ("float8_data", "scale"),
        fields=(_TRANSPOSED,),
    ),
    Impl(
        "UintxAQTTensorImpl",
        (
            f"{UINTX}.Uintx.UintxAQTLayout",  # 0.5
            f"{UINTX}.uintx.UintxAQTLayout",  # 0.6
            f"{UINTX}.uintx_layout.UintxAQTTensorImpl",
            f"{PROTOTYPE}.uintx.uintx_layout.UintxAQTTensorImpl",
            f"{PROTOTYPE}.uintx.uintx_utils.UintxAQTTensorImpl",  # 0.17
        ),
        ("scale",),
        ("zero_point", *_SHARDS),
        (attribute("int_data", "object:torchao.UintxCodes"),),
    ),
    Impl(
        "Int4CPUAQTTensorImpl",
        (
            f"{UINTX}.tensor_core_tiled_layout.Int4CPUAQTTensorImpl",  # 0.7
            f"{UINTX}.int4_cpu_layout.Int4CPUAQTTensorImpl",
        ),
        ("packed_weight", "scale_and_zero"),
        fields=(_TRANSPOSED,),
    ),
    Impl(
        "Int4XPUAQTTensorImpl",
        (f"{UINTX}.int4_xpu_layout.Int4XPUAQTTensorImpl",),
        ("packed_weight",),
        ("scale_and_zero", "scale", "zero"),
        (_TRANSPOSED,),
    ),
    Impl(
        "Int4PackedTensorImpl",
        (
            f"{UINTX}.cutlass_int4_packed_layout.Int4PackedTensorImpl",
            f"{PROTOTYPE}.uintx.cutlass_int4_packed_layout.Int4PackedTensorImpl",
        ),
        ("int_data", "scale"),
    ),
    Impl(
        "MarlinSparseAQTTensorImpl",
        (
            f"{OLD}.MarlinSparseAQTLayout",
            f"{UINTX}.marlin_sparse_layout.MarlinSparseAQTTensorImpl",
        ),
        ("int_data", "scale", "meta"),
        ("zero_point", "zero", "scale_and_zero"),
        _MARLIN,
    ),
    Impl(
        "MarlinQQQAQTTensorImpl",
        (
            f"{UINTX}.marlin_qqq_layout.MarlinQQQAQTTensorImpl",  # 0.7
            f"{UINTX}.marlin_qqq_tensor.MarlinQQQAQTTensorImpl",
            f"{PROTOTYPE}.uintx.marlin_qqq_tensor.MarlinQQQAQTTensorImpl",
        ),
        ("int_data", "s_group", "s_channel"),
        fields=_MARLIN,
    ),
    Impl(
        "FloatxTensorCoreAQTTensorImpl",
        (
            "torchao.dtypes.fpx.fpx.FpxTensorCoreAQTLayout",  # 0.5
            f"{FLOATX}.floatx.FloatxTensorCoreAQTLayout",  # 0.6
            f"{FLOATX}.floatx_tensor_core_layout.FloatxTensorCoreAQTTensorImpl",
            f"{PROTOTYPE}.floatx.floatx_tensor_core_layout.FloatxTensorCoreAQTTensorImpl",
        ),
        ("scale",),
        ("packed_floatx_data", "packed_fpx_data"),
    ),
    Impl(
        "BlockSparseAQTTensorImpl",
        (
            f"{OLD}.BlockSparseAQTLayout",
            f"{UINTX}.block_sparse_layout.BlockSparseAQTTensorImpl",
            f"{PROTOTYPE}.uintx.block_sparse_layout.BlockSparseAQTTensorImpl",
        ),
        ("bsr_crow_indices", "bsr_col_indices", "bsr_values", "scale"),
        ("zero_point",),
    ),
    Impl(
        "SemiSparseAQTTensorImpl",
        (f"{OLD}.SemiSparseAQTLayout", f"{UINTX}.semi_sparse_layout.SemiSparseAQTTensorImpl"),
        ("int_data", "scale"),
        ("zero_point",),
    ),
    Impl(
        "CutlassSemiSparseTensorImpl",
        (f"{FLOATX}.cutlass_semi_sparse_layout.CutlassSemiSparseTensorImpl",),
        ("sparse", "meta", "scale"),
    ),
    Impl(
        "GemliteAQTTensorImpl",
        (
            f"{UINTX}.gemlite_layout.GemliteAQTTensorImpl",
            f"{PROTOTYPE}.uintx.gemlite_layout.GemliteAQTTensorImpl",
        ),
        ("packed_weight", "scale", "zero_point"),
        fields=(attribute("gemlite_kwargs", "any"),),
    ),
    Impl(
        "Linear8BitActXBitWeightAQTTensorImpl",
        (f"{XBIT}.Linear8BitActXBitWeightAQTTensorImpl",),
        ("packed_weight",),
        ("scale", "zero_point"),
    ),
    Impl(
        "PackedLinearInt8DynamicActivationIntxWeightAQTTensorImpl",
        tuple(
            f"{module}.{PACKED_LINEAR}.PackedLinearInt8DynamicActivationIntxWeightAQTTensorImpl"
            for module in (EXPERIMENTAL, UINTX)
        ),
        ("packed_weight",),
        ("group_size_tensor", "n_tensor", "k_tensor"),
    ),
    Impl(
        "DA8W4CPUAQTTensorImpl",
        (
            f"{UINTX}.{DA8W4}.DA8W4CPUAQTTensorImpl",
            f"{PROTOTYPE}.uintx.{DA8W4}.DA8W4CPUAQTTensorImpl",
        ),
        ("packed_weight", "scales", "qzeros", "compensation"),
        fields=(_TRANSPOSED,),
    ),
)

BY_TYPE = {impl.type: impl for impl in IMPLS}
