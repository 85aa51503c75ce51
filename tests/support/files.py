"""Safetensors files taken apart and put together, for tests that need a file nobody writes."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any


def split(path: Path) -> tuple[dict[str, Any], bytes]:
    """A file's header as JSON, and its data."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def join(path: Path, header: dict[str, Any], data: bytes) -> Path:
    """Writes a file of that header and data, whatever they are."""
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def envelope_of(path: Path) -> dict[str, Any]:
    header, _ = split(path)
    return json.loads(header["__metadata__"]["aoserial"])


def edit_envelope(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Lets `change` edit the envelope; its digest is taken out, as it would betray the edit."""
    header, data = split(path)
    envelope = json.loads(header["__metadata__"]["aoserial"])
    envelope.pop("header_digest", None)
    change(envelope)
    header["__metadata__"]["aoserial"] = json.dumps(envelope, ensure_ascii=False)
    return join(path, header, data)


def drop_tensor(path: Path, key: str) -> Path:
    """Takes one tensor and its bytes out of a file, as a bad tool would."""
    header, data = split(path)
    begin, end = header.pop(key)["data_offsets"]
    for name, entry in header.items():
        if name != "__metadata__" and entry["data_offsets"][0] >= end:
            entry["data_offsets"] = [offset - (end - begin) for offset in entry["data_offsets"]]
    return join(path, header, data[:begin] + data[end:])


def add_tensor(path: Path, key: str, dtype: str, shape: list[int], raw: bytes) -> Path:
    """Puts one more tensor at the end of a file."""
    header, data = split(path)
    header[key] = {
        "dtype": dtype,
        "shape": shape,
        "data_offsets": [len(data), len(data) + len(raw)],
    }
    return join(path, header, data + raw)
