"""The safetensors format: strict reader, planner and writer. Torch-free to import."""

from aoserial.storage.safetensors.grammar import Limits
from aoserial.storage.safetensors.header import Entry, Header, parse_header, read_header
from aoserial.storage.safetensors.in_place import header_in_place, rewrite_header
from aoserial.storage.safetensors.journal import drop_journal
from aoserial.storage.safetensors.layout import order, render_header
from aoserial.storage.safetensors.reader import FilePart, SafetensorsFile
from aoserial.storage.safetensors.writer import (
    Finish,
    Planned,
    Saved,
    plan_safetensors,
    write_planned,
    write_safetensors,
)

__all__ = [
    "SafetensorsFile",
    "FilePart",
    "Header",
    "Entry",
    "Limits",
    "parse_header",
    "read_header",
    "order",
    "render_header",
    "plan_safetensors",
    "Planned",
    "write_planned",
    "write_safetensors",
    "Finish",
    "Saved",
    "header_in_place",
    "rewrite_header",
    "drop_journal",
]
