"""torchao's int4 weights as it wrote them, but for those of AffineQuantizedTensor. Torch-free."""

from __future__ import annotations

from aoserial.record import Record
from aoserial.schema import Schema, attribute, optional_attribute, optional_tensor, tensor
from aoserial.torchao.forms import Form, PickledType
from aoserial.torchao.opaque import INT4_OF_DA8W4

_PUBLIC = "torchao.quantization"  # most classes' __module__, whatever file they are in
_INT4 = f"{_PUBLIC}.quantize_.workflows.int4"

_ZERO_IN_WEIGHTS = "in weights: w = q * scale + zero"

_INT4_FIELDS = (
    attribute("block_size", "list[int]"),
    attribute("shape", "list[int]"),
    optional_tensor("act_pre_scale", doc="0.14 and later"),
)

INT4_TENSOR = Schema(
    type="torchao.Int4Tensor",
    version=1,
    fields=(
        tensor("qdata", "int8", shape=("...", "N", "K/2")),
        tensor("scale", shape=("...", "G", "N"), doc="groups first"),
        tensor("zero_point", shape=("...", "G", "N"), doc=_ZERO_IN_WEIGHTS),
        *_INT4_FIELDS,
        optional_attribute("activation_dtype", "dtype?", "bfloat16", doc="0.17 and later"),
    ),
    doc="torchao 0.13 and later: signed codes, two a byte, even k in the low nibble",
)

INT4_TILE_PACKED_TENSOR = Schema(
    type="torchao.Int4TilePackedTo4dTensor",
    version=1,
    fields=(
        tensor("qdata", "int32", shape=("T", "S", "32", "4"), doc="tinygemm's tiles, 8 inner"),
        tensor("scale_and_zero", shape=("G", "P", "2"), doc="padded as qdata is"),
        *_INT4_FIELDS,
    ),
    doc="torchao 0.14 and later: w = (q - 8) * scale + zero",
)

INT4_PLAIN_INT32_TENSOR = Schema(
    type="torchao.Int4PlainInt32Tensor",
    version=1,
    fields=(
        tensor("qdata", "int32", shape=("N", "K/8")),
        tensor("scale", shape=("G", "N"), doc="groups first"),
        tensor("zero_point", shape=("G", "N"), doc="int8 on XPU; floating point on NPU"),
        *_INT4_FIELDS,
    ),
    doc="torchao 0.14 and later: w = (q - zero) * scale on XPU",
)

# those that were only ever pickled
SCHEMAS = (
    Schema(
        type="torchao.FbgemmInt4Tensor",
        version=1,
        fields=(
            tensor("packed_weight", "int8", shape=("...", "N", "K/2")),
            tensor("scale", shape=("...", "G", "N"), doc="groups first"),
            tensor("zero_point", shape=("...", "G", "N"), doc=_ZERO_IN_WEIGHTS),
            attribute("group_size", "int"),
        ),
        doc="torchao 0.12: signed codes, two a byte, even k in the low nibble",
    ),
    Schema(
        type="torchao.Int4OpaqueTensor",
        version=1,
        fields=(
            tensor("qdata", "uint8", shape=("N", "K/2"), doc="in the order of the machine"),
            tensor("scale_and_zero", shape=("G", "N", "2"), doc=_ZERO_IN_WEIGHTS),
            attribute("block_size", "list[int]"),
            optional_tensor("act_pre_scale"),
            optional_tensor("qzeros", doc="0.17 and later; absent here"),
            optional_tensor("compensation", doc="0.17 and later; absent here"),
            optional_attribute("act_mapping_type", "str?", None, doc="0.17 and later; None here"),
        ),
        doc="torchao 0.14 and later: w = (q - 8) * scale + zero",
    ),
    Schema(
        type="torchao.Int4MarlinSparseTensor",
        version=1,
        fields=(
            tensor("qdata", "int32", doc="half of the codes, in the order of Marlin's threads"),
            tensor("scale", "float16", shape=("G", "N")),
            tensor("zero_point", doc="unused: the middle code is zero"),
            tensor("meta", "int16", doc="which two of each four codes these are"),
            attribute("block_size", "int", doc="codes of a row that share a scale"),
            attribute("num_bits", "int"),
        ),
        doc="torchao 0.13 to 0.15: the logical shape is that of the transposed weight, [K, N]",
    ),
)


def _quantizes_activation(raw: Record) -> bool:
    return raw.attributes.get("act_mapping_type") is not None


CLASSES = (
    PickledType(
        type="torchao.Int4Tensor",
        paths=(f"{_PUBLIC}.Int4Tensor", f"{_INT4}.int4_tensor.Int4Tensor"),
        forms=(Form(version=1, releases="0.13 and later", has=("qdata", "zero_point")),),
    ),
    PickledType(
        type="torchao.FbgemmInt4Tensor",
        paths=("torchao.dtypes.fbgemm_int4_tensor.FbgemmInt4Tensor",),
        forms=(Form(version=1, releases="0.12", has=("packed_weight", "zero_point")),),
    ),
    PickledType(
        type="torchao.Int4TilePackedTo4dTensor",
        paths=(
            f"{_PUBLIC}.Int4TilePackedTo4dTensor",
            f"{_INT4}.int4_tile_packed_to_4d_tensor.Int4TilePackedTo4dTensor",
        ),
        forms=(Form(version=1, releases="0.14 and later", has=("qdata", "scale_and_zero")),),
    ),
    PickledType(
        type="torchao.Int4PlainInt32Tensor",
        paths=(
            f"{_PUBLIC}.Int4PlainInt32Tensor",
            f"{_INT4}.int4_plain_int32_tensor.Int4PlainInt32Tensor",
        ),
        forms=(Form(version=1, releases="0.14 and later", has=("qdata", "zero_point")),),
    ),
    PickledType(
        type="torchao.Int4OpaqueTensor",
        paths=(
            f"{_PUBLIC}.Int4OpaqueTensor",  # 0.14
            f"{_INT4}.int4_opaque_tensor.Int4OpaqueTensor",
            "torchao.prototype.int4_opaque_tensor.Int4OpaqueTensor",  # 0.15 and 0.16
            "torchao.prototype.int4_opaque_tensor.int4_opaque_tensor.Int4OpaqueTensor",
            "torchao.prototype.quantization.int4.Int4OpaqueTensor",  # 0.17 and later
            "torchao.prototype.quantization.int4.int4_opaque_tensor.Int4OpaqueTensor",
        ),
        forms=(
            Form(
                version=1,
                releases="0.14 and later",
                has=("qdata", "scale_and_zero"),
                test=lambda raw: not _quantizes_activation(raw),
                note="act_mapping_type is None or not there",
            ),
            Form(
                version=1,
                type=INT4_OF_DA8W4,
                releases="0.17 and later",
                has=("qdata", "scale_and_zero"),
                test=_quantizes_activation,
                note="act_mapping_type is set",
            ),
        ),
    ),
    PickledType(
        type="torchao.Int4MarlinSparseTensor",
        paths=(
            f"{_PUBLIC}.Int4MarlinSparseTensor",
            f"{_INT4}.int4_marlin_sparse_tensor.Int4MarlinSparseTensor",
        ),
        forms=(Form(version=1, releases="0.13 to 0.15", has=("qdata", "meta")),),
    ),
)
