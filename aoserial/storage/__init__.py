"""Bytes and named lazy parts: reading and writing files. Torch-free to import."""

from aoserial.storage.atomic import AtomicFile, Durability
from aoserial.storage.closing import Closing
from aoserial.storage.computed import ComputedPart, Slabs, compute
from aoserial.storage.disk import room_for
from aoserial.storage.dtypes import BY_CODE, BY_NAME, DTYPES, Dtype, dtype_name, torch_dtype
from aoserial.storage.part import (
    LeafPart,
    Part,
    Shape,
    SlotPart,
    TensorPart,
    ViewPart,
    describe,
    nbytes,
)
from aoserial.storage.sniff import detect, looks_like
from aoserial.storage.source import Source

__all__ = [
    "Part",
    "LeafPart",
    "SlotPart",
    "Slabs",
    "TensorPart",
    "ViewPart",
    "ComputedPart",
    "Shape",
    "compute",
    "describe",
    "nbytes",
    "Dtype",
    "DTYPES",
    "BY_CODE",
    "BY_NAME",
    "dtype_name",
    "torch_dtype",
    "Source",
    "Closing",
    "detect",
    "looks_like",
    "AtomicFile",
    "Durability",
    "room_for",
]
