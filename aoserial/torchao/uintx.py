"""torchao's UintxTensor by itself: integers of few bits, with no scale. Torch-free.

Inside other tensors it is an object of theirs: see `affine.objects` and `prototypes`. Sources:
class bodies of each release, and fixtures/torchao-<release>/uintx_tensor_uint3.
"""

from __future__ import annotations

from aoserial.schema import Schema, attribute, optional_tensor
from aoserial.torchao import affine
from aoserial.torchao.forms import Form, PickledType

SHARDS = ("int4_shard", "int2_shard", "int1_shard")

UINTX_TENSOR = Schema(
    type="torchao.UintxTensor",
    version=1,
    dims=("...", "K"),
    logical_dtypes=("uint8",),
    fields=(
        *(optional_tensor(name, "uint8", doc="those bits of all codes") for name in SHARDS),
        attribute("bit_width", "int", doc="1 to 7: the shards that there are"),
        attribute("pack_dim", "int", doc="along which codes share bytes"),
        attribute("packed_shape", "list[int]", doc="of the codes"),
    ),
    doc="torchao 0.5 to 0.18",
)

SCHEMAS = (UINTX_TENSOR,)

CLASSES = (
    PickledType(
        type=UINTX_TENSOR.type,
        paths=next(row.paths for row in affine.OBJECTS if row.type == "torchao.UintxCodes"),
        forms=(Form(version=1, releases="0.5 to 0.18", has=("bit_width", "packed_shape")),),
    ),
)
