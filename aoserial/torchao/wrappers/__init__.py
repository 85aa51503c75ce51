"""What torchao wrapped around a quantized weight, and its first classes of one: tables."""

from aoserial.torchao.wrappers.classes import CLASSES
from aoserial.torchao.wrappers.schemas import OBJECT_SCHEMAS, OLDER, SCHEMAS

__all__ = ["CLASSES", "OBJECT_SCHEMAS", "OLDER", "SCHEMAS"]
