"""Declaration of `aoserial.UnquantizedTensor`."""

from __future__ import annotations

from aoserial.schema.builtin.domains import FLOATS
from aoserial.schema.fields import optional_attribute, optional_tensor, tensor
from aoserial.schema.schema import Schema

UNQUANTIZED_TENSOR = Schema(
    type="aoserial.UnquantizedTensor",
    version=1,
    dims=("...", "N", "K"),
    fields=(
        tensor("weight", *FLOATS, shape=("...", "N", "K")),
        optional_tensor("precomputed_scale", *FLOATS, doc="of the next cast, computed beforehand"),
        optional_tensor("last_amax", *FLOATS, doc="max|w| as last seen"),
        optional_tensor("amax_history", *FLOATS, doc="those before it"),
        optional_attribute(
            "settings", "any", None, doc="how to quantize: pairs of the writer's names and values"
        ),
    ),
    doc="A plain weight that its writer quantized on the fly, with the settings to do so.",
)
