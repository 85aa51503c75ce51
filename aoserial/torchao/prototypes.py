"""Formats of torchao's prototypes, as it pickled them, and where it had them. Torch-free.

Sources: class bodies of each release, and fixtures/torchao-<release>/{codebook_coreml_constructed,
codebook_uint4,gguf_q4_k,fpx_fp5_e2m2,block_sparse}.
"""

from __future__ import annotations

from aoserial.record import Record
from aoserial.schema import (
    Nested,
    Schema,
    attribute,
    optional_attribute,
    optional_tensor,
    tensor,
)
from aoserial.torchao.forms import Form, PickledType

_CODEBOOKS = "torchao.prototype.quantization"
_GROUPWISE = "codebook_groupwise.codebook_quantized_tensor"

CODEBOOK_TENSOR = Schema(
    type="torchao.CodebookQuantizedTensor",
    version=1,
    fields=(
        optional_tensor("codes", "uint8", "int32", "int64", shape=("N", "K"), doc="of 8 bits"),
        *(
            optional_tensor(f"codes.int{bits}_shard", "uint8", doc="bits of narrower codes")
            for bits in (1, 2, 4)
        ),
        optional_attribute("codes.bit_width", "int?", None, doc="of a UintxTensor"),
        optional_attribute("codes.packed_shape", "list[int]?", None, doc="of the codes in it"),
        optional_attribute("codes.pack_dim", "int?", None, doc="along which they share bytes"),
        tensor("codebook", shape=("C", "R", "V")),
        tensor("scales", shape=("H", "G", "1"), doc="G groups in each row"),
        attribute("block_size", "list[int]", doc="elements that a code stands for"),
        optional_attribute("_dtype", "dtype?", None, doc="nothing ever looked at it"),
    ),
    doc="torchao 0.8 to 0.18: one table for all",
)

COREML_CODEBOOK_TENSOR = Schema(
    type="torchao.CoreMLCodebookQuantizedTensor",
    version=1,
    fields=(
        tensor("codes", "uint8", shape=("N", "K"), doc="one a byte"),
        tensor("codebook", shape=("T", "U", "C", "1"), doc="a table for each block of the weight"),
        attribute("code_dtype", "dtype", doc="uint1 to uint8: its range is the length of a table"),
        attribute("block_size", "list[int]", doc="elements that share a table; -1 for all"),
    ),
    doc="codebook_coreml's CodebookQuantizedTensor, torchao 0.12 to 0.18",
)

PACKED_CODEBOOK_TENSOR = Schema(
    type="torchao.CodebookQuantizedPackedTensor",
    version=1,
    fields=(
        tensor("packed_weight", doc="codes, tables and scales in the order of one kernel"),
        attribute("bit_width", "int"),
        attribute("lut_block_size", "list[int]", doc="elements that share a table; -1 for all"),
        attribute("scale_block_size", "list[int]?", doc="elements that share a scale"),
    ),
    doc="torchao 0.13 to 0.18, for Arm",
)

GGUF_TENSOR = Schema(
    type="torchao.GGUFQuantizedTensor",
    version=1,
    fields=(
        attribute("n_blocks_per_superblock", "int", doc="of 256 elements"),
        tensor("super_block_scale_scale", doc="one for each 256 elements, in their order"),
        tensor("super_block_min_scale", doc="likewise"),
        tensor("quantized_block_scale", doc="one for each block, in their order"),
        tensor("quantized_block_min", doc="likewise"),
        tensor("int_data", shape=("N", "K"), doc="codes 0 to 15 in the dtype of the weight"),
    ),
    doc="torchao 0.11 to 0.18",
)

FPX_TENSOR = Schema(
    type="torchao.QuantLlmLinearWeight",
    version=1,
    fields=(
        tensor("fpx_data", "uint8", doc="[N, K bits / 8], in the order of tensor cores"),
        tensor("scale", shape=("N",)),
        attribute("ebits", "int"),
        attribute("mbits", "int"),
    ),
    doc="torchao 0.4; from 0.5 on a layout of AffineQuantizedTensor",
)

BLOCK_SPARSE_TENSOR = Schema(
    type="torchao.BlockSparseTensor",
    version=1,
    fields=(
        tensor("bsr_crow_indices", shape=("R",)),
        tensor("bsr_col_indices", shape=("Z",)),
        tensor("bsr_values", shape=("Z", "B", "B")),
        optional_attribute("blocksize", "int?", None, doc="0.9 and later; the values' shape"),
    ),
    doc="torchao 0.5 to 0.18",
)

SCHEMAS = (
    *(CODEBOOK_TENSOR, COREML_CODEBOOK_TENSOR, PACKED_CODEBOOK_TENSOR, GGUF_TENSOR),
    *(FPX_TENSOR, BLOCK_SPARSE_TENSOR),
)


def _codes_of_uintx(record: Record) -> Record:
    """Codes of less than 8 bits are a UintxTensor, whose fields are named as its parts are."""
    codes = record.attributes.get("codes")
    if not isinstance(codes, Nested):
        return record
    inside = {
        f"codes.{name}": value for name, value in codes.fields.items() if not name.startswith("(")
    }
    return record.drop("codes").set(**inside)


CLASSES = (
    PickledType(
        type=CODEBOOK_TENSOR.type,
        paths=(f"{_CODEBOOKS}.codebook.codebook_quantized_tensor.CodebookQuantizedTensor",),
        forms=(
            Form(
                version=1,
                releases="0.8 and later",
                has=("codebook", "scales", "block_size"),
                adapt=_codes_of_uintx,
            ),
        ),
    ),
    PickledType(
        type=COREML_CODEBOOK_TENSOR.type,
        paths=(f"{_CODEBOOKS}.codebook_coreml.codebook_quantized_tensor.CodebookQuantizedTensor",),
        forms=(Form(version=1, releases="0.12 and later", has=("codebook", "code_dtype")),),
    ),
    PickledType(
        type=PACKED_CODEBOOK_TENSOR.type,
        paths=(f"{_CODEBOOKS}.{_GROUPWISE}.CodebookQuantizedPackedTensor",),
        forms=(Form(version=1, releases="0.13 and later", has=("packed_weight",)),),
    ),
    PickledType(
        type=GGUF_TENSOR.type,
        paths=(f"{_CODEBOOKS}.gguf.gguf_quantized_tensor.GGUFQuantizedTensor",),
        forms=(Form(version=1, releases="0.11 and later", has=("super_block_scale_scale",)),),
    ),
    PickledType(
        type=FPX_TENSOR.type,
        paths=("torchao.prototype.quant_llm.quant_llm.QuantLlmLinearWeight",),
        forms=(Form(version=1, releases="0.4", has=("fpx_data", "ebits", "mbits")),),
    ),
    PickledType(
        type=BLOCK_SPARSE_TENSOR.type,
        paths=tuple(
            f"torchao.{module}.BlockSparseTensor"
            for module in (
                "sparsity.prototype.superblock.blocksparse",  # 0.5 and 0.6
                "prototype.sparsity.superblock.blocksparse",  # 0.7 and 0.8
                "sparsity.blocksparse",  # 0.9 and later
            )
        ),
        forms=(Form(version=1, releases="0.5 and later", has=("bsr_values",)),),
    ),
)
