"""torchao's AffineQuantizedTensor as it pickled it, 0.2 to 0.17: tables. Torch-free."""

from aoserial.torchao.affine.classes import CLASSES, ENUM_SCHEMAS, ENUMS
from aoserial.torchao.affine.impls import IMPLS, Impl
from aoserial.torchao.affine.layouts import LAYOUTS
from aoserial.torchao.affine.objects import OBJECT_SCHEMAS, OBJECTS
from aoserial.torchao.affine.schemas import OLDER, SCHEMAS

__all__ = [
    "CLASSES",
    "ENUMS",
    "ENUM_SCHEMAS",
    "IMPLS",
    "LAYOUTS",
    "OBJECTS",
    "OBJECT_SCHEMAS",
    "OLDER",
    "SCHEMAS",
    "Impl",
]
