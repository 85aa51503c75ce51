"""Declaration of `aoserial.Float8TrainingTensor`."""

from __future__ import annotations

from aoserial.schema.fields import optional_attribute, tensor
from aoserial.schema.schema import Schema

FLOAT8_TRAINING_TENSOR = Schema(
    type="aoserial.Float8TrainingTensor",
    version=1,
    dims=("...", "N", "K"),
    fields=(
        tensor(
            "qdata",
            *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
            shape=("...", "N", "K"),
        ),
        tensor("scale", "float32", doc="one number, or of the rank of qdata and broadcast over it"),
        optional_attribute("settings", "any", None, doc="the writer's, of products with it"),
    ),
    doc="fp8 codes that were multiplied by a scale: w = qdata / scale, which is not qdata * (1/s).",
)
