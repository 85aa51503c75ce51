"""torchao's weights whose bytes lie in the order of one kernel, which no public arithmetic reads.

They are known, so that their fields have names, and stay inert. Torch-free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aoserial.record import Record
from aoserial.schema import (
    EnumSchema,
    Nested,
    Schema,
    Value,
    attribute,
    optional_attribute,
    optional_tensor,
    tensor,
)
from aoserial.schema.fields import Field
from aoserial.torchao.forms import Form, PickledEnum, PickledType

_PUBLIC = "torchao.quantization"
_WORKFLOWS = f"{_PUBLIC}.quantize_.workflows"
_SPARSE = f"{_WORKFLOWS}.float8.float8_sparse_2x4"
_PROTOTYPES = "torchao.prototype"
_DYNAMIC_SPARSE = "torchao.sparsity.prototype.dynamic_quant_sparse"

_BLOCK_SIZE = optional_attribute("block_size", "list[int]?", None)
_FLOAT8_KWARGS = optional_attribute(
    "act_quant_kwargs", "object:torchao.QuantizeTensorToFloat8Kwargs?", None
)

ENUM_SCHEMAS = (
    EnumSchema(
        type="torchao.IntxPackingFormat",
        symbols={
            "UNPACKED_TO_INT8": "0.14 and later",
            "OPAQUE_ATEN_KLEIDIAI": "0.14 and later: torch's, through KleidiAI",
            "OPAQUE_TORCHAO_AUTO": "0.14 and later",
            "OPAQUE_TORCHAO_KLEIDIAI": "0.14 and later",
            "OPAQUE_TORCHAO_LOWBIT": "0.14 and later",
        },
    ),
)

ENUMS = (
    PickledEnum(
        type="torchao.IntxPackingFormat",
        paths=(f"{_WORKFLOWS}.intx.intx_packing_format.IntxPackingFormat",),
        members={name.lower(): name for name in ENUM_SCHEMAS[0].symbols},
    ),
)


@dataclass(frozen=True, kw_only=True)
class Opaque:
    """A type of which no weights come.

    Attributes:
        name: of the type, without `torchao.`.
        releases: of torchao that wrote it.
        paths: as in `PickledType`; none where another class has a form that is this type.
        fields: as in `Schema`; the tensors that are required tell the type's records.
        whose: a sentence on the order of its bytes.
        adapt: as in `Form`.
    """

    name: str
    releases: str
    paths: tuple[str, ...]
    fields: tuple[Field, ...]
    whose: str
    adapt: Callable[[Record], Record] = lambda record: record

    @property
    def schema(self) -> Schema:
        doc = f"torchao {self.releases}"
        return Schema(type=f"torchao.{self.name}", version=1, fields=self.fields, doc=doc)

    @property
    def row(self) -> PickledType:
        has = tuple(field.name for field in self.schema.tensors if field.required)
        form = Form(version=1, releases=self.releases, has=has, adapt=self.adapt)
        return PickledType(type=self.schema.type, paths=self.paths, forms=(form,))


def _settings_as_pairs(record: Record) -> Record:
    """gemlite's settings, a dict, as names and texts."""
    given = record.attributes["gemlite_kwargs"]
    pairs: Value = given
    if isinstance(given, Nested):
        pairs = tuple((name, repr(value)) for name, value in given.fields.items())
    return record.set(gemlite_kwargs=pairs)


INT4_OF_DA8W4 = "torchao.Int4OpaqueTensorOfDA8W4"

OPAQUE = (
    Opaque(
        name="Int8DynamicallyQuantizedSemiStructuredSparseLinearWeight",
        releases="0.2 and 0.3",
        paths=(f"{_DYNAMIC_SPARSE}.Int8DynamicallyQuantizedSemiStructuredSparseLinearWeight",),
        fields=(
            tensor("int_data", "int8"),
            tensor("mask_meta"),
            tensor("q_scales"),
            attribute("transposed", "bool"),
        ),
        whose="its codes and metadata are in the order of cuSPARSELt or CUTLASS",
    ),
    Opaque(
        name="Float8Sparse2x4_2DData2DMetadataTensor",
        releases="0.16 and later",
        paths=(
            # 0.16 and 0.17
            f"{_WORKFLOWS}.float8.sparse_2x4_cutlass_float8_tensor.Sparse2x4CUTLASSFloat8Tensor",
            f"{_SPARSE}_2d_data_2d_metadata_tensor.Float8Sparse2x4_2DData2DMetadataTensor",
            f"{_PUBLIC}.Sparse2x4CUTLASSFloat8Tensor",
            f"{_PUBLIC}.Float8Sparse2x4_2DData2DMetadataTensor",
        ),
        fields=(
            tensor("qdata"),
            tensor("sparse_metadata"),
            tensor("scale"),
            _BLOCK_SIZE,
            _FLOAT8_KWARGS,
            optional_attribute("dtype", "dtype?", None),
        ),
        whose="its codes and metadata are in the order of CUTLASS's sparse kernels",
    ),
    Opaque(
        name="Float8Sparse2x4_1DData1DMetadataTensor",
        releases="0.18 and later",
        paths=(
            f"{_SPARSE}_1d_data_1d_metadata_tensor.Float8Sparse2x4_1DData1DMetadataTensor",
            f"{_PUBLIC}.Float8Sparse2x4_1DData1DMetadataTensor",
        ),
        fields=(
            tensor("qdata_and_metadata"),
            tensor("scale"),
            _BLOCK_SIZE,
            optional_attribute("original_shape", "list[int]?", None),
            _FLOAT8_KWARGS,
            optional_attribute("dtype", "dtype?", None),
            optional_attribute("alg_id", "int?", 0),
        ),
        whose="its bytes are cuSPARSELt's or hipSPARSELt's own",
    ),
    Opaque(
        name="Float8OpaqueTensor",
        releases="0.15 and later",
        paths=(
            f"{_PROTOTYPES}.float8_opaque_tensor.Float8OpaqueTensor",
            f"{_PROTOTYPES}.float8_opaque_tensor.float8_opaque_tensor.Float8OpaqueTensor",
        ),
        fields=(tensor("qdata"), tensor("scale"), _BLOCK_SIZE, _FLOAT8_KWARGS),
        whose="its codes are in blocks that depend on the CPU that packed them",
    ),
    Opaque(
        name="Int4PreshuffledTensor",
        releases="0.13 and later",
        paths=(
            f"{_PUBLIC}.Int4PreshuffledTensor",
            f"{_WORKFLOWS}.int4.int4_preshuffled_tensor.Int4PreshuffledTensor",
        ),
        fields=(
            tensor("qdata"),
            tensor("group_scale"),
            optional_tensor("group_zero"),
            optional_tensor("row_scale"),
            _BLOCK_SIZE,
        ),
        whose="its codes are in the order of FBGEMM's, later MSLK's, mixed-precision kernels",
    ),
    Opaque(
        name="Int4GroupwisePreshuffleTensor",
        releases="0.12",
        paths=(
            f"{_PUBLIC}.Int4GroupwisePreshuffleTensor",
            f"{_PUBLIC}.quantize_.int4_groupwise_preshuffle_tensor.Int4GroupwisePreshuffleTensor",
        ),
        fields=(
            tensor("packed_weight"),
            tensor("group_scale"),
            optional_tensor("group_zero"),
            attribute("group_size", "int"),
            attribute("shape_multiplier", "any"),
        ),
        whose="its codes are in the order of FBGEMM's mixed-precision kernels",
    ),
    Opaque(
        name=INT4_OF_DA8W4.removeprefix("torchao."),
        releases="0.17 and later",
        paths=(),
        fields=(
            tensor("qdata"),
            tensor("scale_and_zero", doc="scales alone"),
            optional_tensor("qzeros"),
            optional_tensor("compensation"),
            optional_tensor("act_pre_scale"),
            _BLOCK_SIZE,
            attribute("act_mapping_type", "str"),
        ),
        whose="its codes are in blocks that depend on the CPU that packed them",
    ),
    Opaque(
        name="IntxOpaqueTensor",
        releases="0.14 and later",
        paths=(
            f"{_PUBLIC}.IntxOpaqueTensor",
            f"{_WORKFLOWS}.intx.intx_opaque_tensor.IntxOpaqueTensor",
        ),
        fields=(
            tensor("packed_weights"),
            attribute("bit_width", "int"),
            _BLOCK_SIZE,
            attribute("packed_weights_has_zeros", "bool"),
            attribute("packed_weights_has_bias", "bool"),
            attribute("intx_packing_format", "any", doc="IntxPackingFormat or its value"),
        ),
        whose="its bytes are in the order of KleidiAI's or torchao's kernels for Arm",
    ),
    Opaque(
        name="Int8LutTensor",
        releases="0.14 and later",
        paths=(f"{_PROTOTYPES}.quantization.int8_lut_tensor.int8_lut_tensor.Int8LutTensor",),
        fields=(
            tensor("packed_weights"),
            attribute("bit_width", "int"),
            _BLOCK_SIZE,
            attribute("packed_weights_has_bias", "bool"),
        ),
        whose="its bytes are in the order of torchao's kernels for Arm",
    ),
    Opaque(
        name="UIntxBitPackedTensor",
        releases="0.17 and later",
        paths=(f"{_PROTOTYPES}.quantization.uintx.uintx_bit_packed_tensor.UIntxBitPackedTensor",),
        fields=(
            tensor("qdata"),
            tensor("scale"),
            tensor("zero_point"),
            attribute("gemlite_kwargs", "any", doc="gemlite's settings, names and texts"),
            attribute("bit_width", "int"),
            attribute("group_size", "int?"),
        ),
        whose="its codes are packed as gemlite's settings say, which this release does not follow",
        adapt=_settings_as_pairs,
    ),
)

SCHEMAS = tuple(opaque.schema for opaque in OPAQUE)
CLASSES = tuple(opaque.row for opaque in OPAQUE if opaque.paths)
