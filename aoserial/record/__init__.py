"""Quantized tensors as plain data, and the envelope that describes them in a file."""

from aoserial.record.catalog import Catalog, Group, Head, Signature, template
from aoserial.record.era import Era, shared, spanned
from aoserial.record.keys import key_prefix, part_key, strays
from aoserial.record.record import Record

__all__ = [
    "Catalog",
    "Era",
    "Group",
    "Head",
    "Record",
    "Signature",
    "key_prefix",
    "part_key",
    "shared",
    "spanned",
    "strays",
    "template",
]
