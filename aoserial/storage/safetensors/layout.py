"""Where every byte of a new safetensors file will lie, and the text of its header. Torch-free.

Everything depends on names, dtypes, shapes and metadata alone, so the same input gives the same
bytes in every process, and every error of the caller shows before a byte is written.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Mapping

from aoserial.errors import LimitError, OptionError, TensorNameError, UnsupportedTensorError
from aoserial.storage.dtypes import BY_NAME
from aoserial.storage.part import Part, Shape
from aoserial.storage.safetensors.grammar import Limits, check_name, has_control, quoted
from aoserial.storage.sniff import MAX_HEADER_BYTES

# The data begins on a page: a kernel can map it, a file system can share it with another file.
PAGE = 4096

# What torch's allocator aligns to, and the widest load of any kernel we know.
ALIGNMENT = 64


def order(parts: Mapping[str, Part]) -> list[str]:
    """The names in the order their data will have.

    A safetensors file has no holes, so alignment comes from order alone: first, by name, the parts
    whose length is a multiple of 64 bytes (the empty ones with them, which may lie only between
    others); then the rest by falling itemsize, so that each begins at a multiple of its own.
    """

    def place(name: str) -> tuple[bool, int, str]:
        part = parts[name]
        odd = part.nbytes % ALIGNMENT != 0
        return odd, -BY_NAME[part.dtype].itemsize if odd else 0, name

    return sorted(parts, key=place)


def render_header(
    parts: Mapping[str, Part], metadata: Mapping[str, str], *, slack: int | None = None
) -> bytes:
    """The header's text, padded with spaces so that the data begins on a page.

    Args:
        parts: in data order.
        metadata: the free text map; left out when empty.
        slack: at least so many bytes of padding, for a header that grows later without moving the
            data. By default 1/8 of the text, and 1 KiB at least.

    Raises:
        TensorNameError: a name that may not be stored, or two that only Unicode normal forms tell
            apart: some file systems and editors would make them one.
        UnsupportedTensorError: a dtype or shape the format cannot hold.
        LimitError: the header is longer than readers accept.
    """
    limits = Limits()
    limits.check("tensors", len(parts))
    check_names(parts)
    check_metadata(metadata)
    items = []
    if metadata:
        items.append(f'"__metadata__":{_json(dict(sorted(metadata.items())))}')
    begin = 0
    for name, part in parts.items():
        end = begin + part.nbytes
        code, shape = file_kind(name, part)
        limits.check("rank", len(shape))
        dims = ",".join(map(str, shape))
        items.append(
            f'{_json(name)}:{{"dtype":"{code}","shape":[{dims}],"data_offsets":[{begin},{end}]}}'
        )
        begin = end
    text = f"{{{','.join(items)}}}".encode()
    if slack is None:
        slack = max(1024, len(text) // 8)
    length = len(text) + slack
    length += -(8 + length) % PAGE
    if length > MAX_HEADER_BYTES:
        raise LimitError(
            f"the header would have {length} bytes, readers accept {MAX_HEADER_BYTES}: save fewer "
            f"tensors in one file, or shorter metadata",
            limit="header_bytes",
            allowed=MAX_HEADER_BYTES,
            found=length,
        )
    return text.ljust(length)


def check_names(names: Collection[str]) -> None:
    """Raises `TensorNameError` unless a file may have tensors of just these names."""
    known = set(names)
    normal: dict[str, str] = {}
    for name in names:
        check_name(name)
        if name.isascii():
            continue
        form = unicodedata.normalize("NFC", name)
        other = form if form in known else normal.setdefault(form, name)
        if other != name:
            raise TensorNameError(
                f"the tensor names {quoted(other)} and {quoted(name)} look the same: they differ "
                f"only in how characters are composed ({_points(other)}; {_points(name)})"
            )


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Raises unless our own reader would accept the map."""
    limits = Limits()
    limits.check("metadata_keys", len(metadata))
    spent = 0
    for key, value in metadata.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise OptionError(f"metadata must be strings, not {type(key)} to {type(value)}")
        try:
            spent += len(f"{_json(key)}:{_json(value)}".encode())
        except UnicodeEncodeError:
            raise OptionError(
                f"the metadata of {quoted(key)} has a lone surrogate, which UTF-8 cannot store"
            ) from None
        if has_control(key):
            raise OptionError(f"the metadata key {quoted(key)} contains a control character")
    limits.check("metadata_bytes", spent)


def file_kind(name: str, part: Part) -> tuple[str, Shape]:
    """The dtype's code and the shape as the file has them."""
    row = BY_NAME[part.dtype]
    if row.code != "F4":
        return row.code, part.shape
    # torch's element is two codes; the file counts codes
    if not part.shape:
        raise UnsupportedTensorError(
            "a float4 tensor without dimensions cannot be stored: the format counts its codes "
            "along the last one"
        ).locate(name=name)
    return row.code, (*part.shape[:-1], part.shape[-1] * 2)


def _json(value: str | dict[str, str]) -> str:
    # Raw UTF-8, for good: the reference reader takes it, and escapes would be a second spelling.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _points(name: str) -> str:
    return " ".join(f"U+{ord(char):04X}" for char in name if not char.isascii())
