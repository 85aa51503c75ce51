"""What types look like in a file: fields, schemas, documents, the registry, resolution.

Importing this registers the declarations of every type that ships.
"""

from aoserial.schema import builtin
from aoserial.schema.document import from_document, to_document
from aoserial.schema.fields import (
    Field,
    attribute,
    optional_attribute,
    optional_tensor,
    tensor,
)
from aoserial.schema.fingerprint import fingerprint
from aoserial.schema.registry import REGISTRY, Registry, Type
from aoserial.schema.resolve import Resolution, check_members, resolve, without_defaults
from aoserial.schema.schema import FLOATING, EnumSchema, Schema
from aoserial.schema.shapes import BLOCKS
from aoserial.schema.values import MISSING, FrozenMap, Missing, Nested, Symbol, Value

__all__ = [
    "BLOCKS",
    "FLOATING",
    "MISSING",
    "REGISTRY",
    "EnumSchema",
    "Field",
    "FrozenMap",
    "Missing",
    "Nested",
    "Registry",
    "Resolution",
    "Schema",
    "Symbol",
    "Type",
    "Value",
    "attribute",
    "builtin",
    "check_members",
    "fingerprint",
    "from_document",
    "optional_attribute",
    "optional_tensor",
    "resolve",
    "tensor",
    "to_document",
    "without_defaults",
]
