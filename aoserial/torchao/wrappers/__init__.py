"""What torchao wrapped around a quantized weight, and its first classes of one: tables."""

from aoserial.torchao.wrappers import observers, schemas
from aoserial.torchao.wrappers.classes import CLASSES as WRAPPERS
from aoserial.torchao.wrappers.schemas import OBJECT_SCHEMAS, OLDER

CLASSES = (*WRAPPERS, *observers.CLASSES)
SCHEMAS = (*schemas.SCHEMAS, *observers.SCHEMAS)

__all__ = ["CLASSES", "OBJECT_SCHEMAS", "OLDER", "SCHEMAS"]
