"""What a file is, from its first bytes alone: never from its name, never by trying. Torch-free.

`detect` chooses the container. A file that is none we read is refused there and then, with a phrase
that says what it looks like: the usual cases are a git-LFS pointer and an error page saved as a
checkpoint. No reader falls through to another format, so a polyglot is what its first bytes say.
"""

from __future__ import annotations

import re

from aoserial.errors import ContainerError, HeaderError, locating
from aoserial.storage.source import Source

# enough for tar's mark at byte 257, and for a look at text
SNIFF_BYTES = 512

# The reference's own bound (MAX_HEADER_SIZE in safetensors 0.8.0)
MAX_HEADER_BYTES = 100_000_000

UNKNOWN = "of no kind this version knows"

# (pattern at the very start, what such a file is); the first that matches counts
_KINDS: tuple[tuple[re.Pattern[bytes], str], ...] = tuple(
    (re.compile(pattern, re.DOTALL), phrase)
    for pattern, phrase in (
        (rb"\Z", "empty"),
        (rb"\0+\Z", "all zero bytes, as an interrupted download or copy leaves them"),
        (
            rb"version https://git-lfs\.github\.com/spec/",
            "a git-LFS pointer: the file itself was not fetched (`git lfs pull`)",
        ),
        (rb"(?i:(?:\xef\xbb\xbf)?\s*<(?:!doctype|html|head|body|!--))", "an HTML page"),
        (rb"(?:\xef\xbb\xbf)?\s*<\?xml", "an XML document"),
        (rb"PK(?:\x03\x04|\x05\x06|\x07\x08)", "a zip archive, as torch.save writes"),
        (rb"\x1f\x8b", "gzip-compressed"),
        (rb"\xfd7zXZ\0", "xz-compressed"),
        (rb"\x28\xb5\x2f\xfd", "zstd-compressed"),
        (rb"BZh[1-9]", "bzip2-compressed"),
        (rb"\x04\x22\x4d\x18", "lz4-compressed"),
        (rb"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        (rb".{257}ustar", "a tar archive"),
        (rb"GGUF", "a GGUF model"),
        (rb"GG(?:ML|MF|JT|LA)|(?:lmg|fmg|tjg|alg)g", "a GGML model"),
        (rb"\x93NUMPY", "a NumPy array"),
        (rb"\x89HDF\r\n\x1a\n", "an HDF5 file"),
        (rb"%PDF-", "a PDF"),
        (rb"PAR1", "a Parquet file"),
        (rb"\x7fELF", "an ELF program"),
        (rb"\x89PNG|\xff\xd8\xff|GIF8", "a picture"),
        # protocol 2 up starts with PROTO n; torch's legacy magic number is a LONG1 of ten bytes
        (rb"\x80[\x02-\x05]", "a pickle, as torch.save wrote before 1.6"),
        (rb"\xff\xfe|\xfe\xff", "UTF-16 text"),
        (rb"\xef\xbb\xbf", "text with a byte order mark"),
        (rb"\s*[{\[]\s*(?:[\"{}\[\]]|\Z)", "JSON"),
        (rb"[\t\n\r -~]+\Z", "plain text"),
    )
)

# torch's magic number, pickled by each protocol; the first pickle of a legacy file is that alone
_MAGIC = rb"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19\."
_LEGACY = re.compile(
    rb"(?:\x80[\x02\x03]|\x80[\x04\x05]\x95\x0d\0{7})"
    + _MAGIC
    + rb"|L119547037146038801333356L\n\."
)

_PICKLES = ("a zip archive", "a pickle", "a tar archive")


def looks_like(first_bytes: bytes) -> str:
    """A phrase that completes "this file is …", from up to `SNIFF_BYTES` first bytes.

    >>> looks_like(b"version https://git-lfs.github.com/spec/v1")
    'a git-LFS pointer: the file itself was not fetched (`git lfs pull`)'
    >>> looks_like(b"<!DOCTYPE html>")
    'an HTML page'
    """
    head = first_bytes[:SNIFF_BYTES]
    return next((phrase for pattern, phrase in _KINDS if pattern.match(head)), UNKNOWN)


def detect(source: Source) -> str:
    """The container format of an opened file: `"safetensors"`.

    Raises:
        HeaderError: it is another one; the message says what it looks like.
    """
    with locating(file=source.path):
        return container(source.pread(0, min(SNIFF_BYTES, source.size)))


def container(head: bytes) -> str:
    """`detect`, given the first `SNIFF_BYTES` of a file (all of it, if it is shorter)."""
    if is_safetensors(head):
        return "safetensors"
    phrase = looks_like(head)
    if phrase != UNKNOWN:
        raise HeaderError(f"not a safetensors file: it is {phrase}")
    if len(head) <= 8:
        raise HeaderError(f"not a safetensors file: {len(head)} bytes are too few for one")
    raise HeaderError(
        f"not a safetensors file: its header must start with '{{', byte 8 is 0x{head[8]:02x}"
    )


def is_pickle(head: bytes) -> bool:
    """Whether the first `SNIFF_BYTES` of a file are those of a pickle or of an archive with one."""
    if is_safetensors(head):
        return False  # its length may have the bytes of any magic number
    return bool(_LEGACY.match(head)) or looks_like(head).startswith(_PICKLES)


def is_json(head: bytes) -> bool:
    """Whether the first `SNIFF_BYTES` of a file are those of JSON, as an index of shards is."""
    return not is_safetensors(head) and looks_like(head) == "JSON"


def is_safetensors(head: bytes) -> bool:
    """Whether the first `SNIFF_BYTES` of a file are those of a safetensors file."""
    # Text or another magic number in the place of the length makes it huge. A huge length before a
    # brace that is nothing else is a hostile or torn header, and the header's reader says so.
    length = int.from_bytes(head[:8], "little")
    return head[8:9] == b"{" and (length <= MAX_HEADER_BYTES or looks_like(head) == UNKNOWN)


def pickle_container(head: bytes) -> str:
    """The container of a pickled checkpoint, from its first `SNIFF_BYTES`.

    Returns:
        `"zip"` (torch.save since 1.6), `"legacy"` (before) or `"tar"` (before 0.2).

    Raises:
        ContainerError: it is none of these; the message says what it looks like.
    """
    if _LEGACY.match(head):
        return "legacy"
    phrase = looks_like(head)
    if phrase.startswith("a zip archive"):
        return "zip"
    if phrase == "a tar archive":
        return "tar"
    if phrase.startswith("a pickle"):
        phrase = "a pickle, but not one that torch.save wrote"
    raise ContainerError(f"not a file of torch.save: it is {phrase}")
