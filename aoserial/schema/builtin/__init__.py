"""The declarations of every type that ships, registered on import. Torch-free."""

from aoserial.schema.builtin.activation import ENUMS, OBJECTS
from aoserial.schema.builtin.float8 import FLOAT8_TENSOR
from aoserial.schema.builtin.int8 import INT8_TENSOR
from aoserial.schema.registry import REGISTRY, builtin_documents

__all__ = ["FLOAT8_TENSOR", "INT8_TENSOR", "OBJECTS", "OWNER", "TENSORS"]

OWNER = "aoserial"
TENSORS = (FLOAT8_TENSOR, INT8_TENSOR)

for _enum in ENUMS:
    REGISTRY.add_enum(_enum)
for _schema in (*OBJECTS, *TENSORS):
    REGISTRY.add(_schema, owner=OWNER, frozen=builtin_documents())
