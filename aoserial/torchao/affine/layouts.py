"""The layouts of AffineQuantizedTensor: settings of how its codes lie. Torch-free.

They were `XxxLayoutType` under `layout_type` up to 0.6, `XxxLayout` under `_layout` from 0.7 on.
"""

from __future__ import annotations

from dataclasses import dataclass

from aoserial.schema import Field, attribute, optional_attribute

OLD = "torchao.dtypes.affine_quantized_tensor"  # where all of 0.3 to 0.6 were, or nearly
UTILS = "torchao.dtypes.utils"
UINTX = "torchao.dtypes.uintx"
FLOATX = "torchao.dtypes.floatx"
PROTOTYPE = "torchao.prototype.dtypes"  # from 0.15 on
EXPERIMENTAL = "torchao.experimental"

PACKED_LINEAR = "packed_linear_int8_dynamic_activation_intx_weight_layout"
DA8W4 = "dyn_int8_act_int4_wei_cpu_layout"
XBIT = f"{EXPERIMENTAL}._linear_8bit_act_xbit_weight_layout"


@dataclass(frozen=True)
class Layout:
    """A layout's name since 0.7, every path of it, and its fields."""

    name: str
    paths: tuple[str, ...]
    fields: tuple[Field, ...] = ()

    @property
    def type(self) -> str:
        return f"torchao.{self.name}"


_UINTX_FIELDS = (
    attribute("dtype", "dtype", doc="uint1 to uint7"),
    optional_attribute("pack_dim", "int", -1, doc="along which codes share bytes"),
)
_FLOATX_FIELDS = (attribute("ebits", "int"), attribute("mbits", "int"))

LAYOUTS = (
    Layout("PlainLayout", (f"{UTILS}.PlainLayoutType", f"{UTILS}.PlainLayout")),
    Layout(
        "TensorCoreTiledLayout",
        (
            f"{OLD}.TensorCoreTiledLayoutType",
            f"{UINTX}.tensor_core_tiled_layout.TensorCoreTiledLayout",
        ),
        (optional_attribute("inner_k_tiles", "int", 8),),
    ),
    Layout(
        "SemiSparseLayout",
        (f"{OLD}.SemiSparseLayoutType", f"{UINTX}.semi_sparse_layout.SemiSparseLayout"),
    ),
    Layout(
        "Float8Layout",
        (f"{OLD}.Float8LayoutType", f"{FLOATX}.float8_layout.Float8Layout"),
        (optional_attribute("mm_config", "object:torchao.Float8MMConfig?", None),),
    ),
    Layout(
        "MarlinSparseLayout",
        (f"{OLD}.MarlinSparseLayoutType", f"{UINTX}.marlin_sparse_layout.MarlinSparseLayout"),
    ),
    Layout(
        "MarlinQQQLayout",
        (
            f"{UINTX}.marlin_qqq_layout.MarlinQQQLayout",
            f"{UINTX}.marlin_qqq_tensor.MarlinQQQLayout",
            f"{PROTOTYPE}.uintx.marlin_qqq_tensor.MarlinQQQLayout",
        ),
    ),
    Layout(
        "UintxLayout",
        (
            f"{UINTX}.Uintx.UintxLayoutType",  # 0.5
            f"{UINTX}.uintx.UintxLayoutType",  # 0.6
            f"{UINTX}.uintx_layout.UintxLayout",
            f"{PROTOTYPE}.uintx.uintx_layout.UintxLayout",
            f"{PROTOTYPE}.uintx.uintx_utils.UintxLayout",  # 0.17
        ),
        _UINTX_FIELDS,
    ),
    Layout(
        "FloatxTensorCoreLayout",
        (
            "torchao.dtypes.fpx.fpx.FpxTensorCoreLayoutType",  # 0.5
            f"{FLOATX}.floatx.FloatxTensorCoreLayoutType",  # 0.6
            f"{FLOATX}.floatx_tensor_core_layout.FloatxTensorCoreLayout",
            f"{PROTOTYPE}.floatx.floatx_tensor_core_layout.FloatxTensorCoreLayout",
        ),
        _FLOATX_FIELDS,
    ),
    Layout(
        "BlockSparseLayout",
        (
            f"{OLD}.BlockSparseLayoutType",
            f"{UINTX}.block_sparse_layout.BlockSparseLayout",
            f"{PROTOTYPE}.uintx.block_sparse_layout.BlockSparseLayout",
        ),
        (optional_attribute("blocksize", "int", 64),),
    ),
    Layout(
        "Int4CPULayout",
        (
            f"{UINTX}.tensor_core_tiled_layout.Int4CPULayout",  # 0.7
            f"{UINTX}.int4_cpu_layout.Int4CPULayout",
        ),
    ),
    Layout("Int4XPULayout", (f"{UINTX}.int4_xpu_layout.Int4XPULayout",)),
    Layout(
        "CutlassInt4PackedLayout",
        (
            f"{UINTX}.cutlass_int4_packed_layout.CutlassInt4PackedLayout",
            f"{PROTOTYPE}.uintx.cutlass_int4_packed_layout.CutlassInt4PackedLayout",
        ),
    ),
    Layout(
        "CutlassSemiSparseLayout",
        (f"{FLOATX}.cutlass_semi_sparse_layout.CutlassSemiSparseLayout",),
    ),
    Layout(
        "GemlitePackedLayout",
        (
            f"{UINTX}.gemlite_layout.GemlitePackedLayout",
            f"{PROTOTYPE}.uintx.gemlite_layout.GemlitePackedLayout",
        ),
        (
            optional_attribute("group_size", "int?", None),
            optional_attribute("bit_width", "int", 4),
            optional_attribute("packing_bitwidth", "int?", None),
            optional_attribute("contiguous", "bool?", None, doc="up to 0.11"),
            optional_attribute("mode", "str?", None, doc="0.12 and later"),
        ),
    ),
    Layout(
        "QDQLayout",
        (f"{EXPERIMENTAL}.q_dq_layout.QDQLayout", f"{UINTX}.q_dq_layout.QDQLayout"),
    ),
    Layout(
        "Linear8BitActXBitWeightLayout",
        (f"{XBIT}.Linear8BitActXBitWeightLayout",),
        (
            attribute("nbit", "int"),
            attribute("group_size", "int"),
            optional_attribute("target", "any", None, doc="which kernel"),
        ),
    ),
    Layout(
        "PackedLinearInt8DynamicActivationIntxWeightLayout",
        tuple(
            f"{module}.{PACKED_LINEAR}.PackedLinearInt8DynamicActivationIntxWeightLayout"
            for module in (EXPERIMENTAL, UINTX)
        ),
        (
            optional_attribute("bit_width", "int?", None),
            optional_attribute("group_size", "int?", None),
            optional_attribute("has_weight_zeros", "bool?", None),
            optional_attribute("has_bias", "bool?", None, doc="0.10 and later"),
            optional_attribute("target", "any", None, doc="which kernel"),
        ),
    ),
    Layout(
        "Int8DynamicActInt4WeightCPULayout",
        (
            f"{UINTX}.{DA8W4}.Int8DynamicActInt4WeightCPULayout",
            f"{PROTOTYPE}.uintx.{DA8W4}.Int8DynamicActInt4WeightCPULayout",
        ),
    ),
)
