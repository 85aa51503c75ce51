"""Declaration of `aoserial.CodebookTensor`."""

from __future__ import annotations

from aoserial.schema.builtin.domains import FLOATS
from aoserial.schema.fields import attribute, optional_attribute, optional_tensor, tensor
from aoserial.schema.schema import Schema

CODEBOOK_TENSOR = Schema(
    type="aoserial.CodebookTensor",
    version=1,
    dims=("...", "N", "K"),
    fields=(
        tensor(
            "codes",
            *("uint8", "int32", "int64"),
            shape=("...", "N/rows_per_code", "K/columns_per_code"),
            doc="index into the table of the code's place",
        ),
        tensor(
            "codebook",
            *FLOATS,
            shape=("...", "N/rows_per_table", "K/columns_per_table", "C", "R", "V"),
            doc="tables of C entries, each the R rows and V columns that a code stands for",
        ),
        attribute("rows_per_code", "int"),
        attribute("columns_per_code", "int"),
        attribute("rows_per_table", "int", doc="a multiple of rows_per_code"),
        attribute("columns_per_table", "int", doc="a multiple of columns_per_code"),
        optional_tensor("scale", *FLOATS, shape=("...", "N", "K/columns_per_scale")),
        optional_attribute("columns_per_scale", "int?", None, doc="there with the scale"),
    ),
    doc="Codes that stand for the entries of tables, perhaps scaled along each row.",
)
