"""The header's digest of itself, and the checksums of the tensors. Torch-free.

A header that is half old and half new can still be valid JSON, so it carries the SHA-256 of its
own bytes, taken with the digest's 64 digits as zeros. Checksums are CRC-32 (zlib), four bytes
little endian a tensor in data order, in base64. Both have a fixed width: a header is laid out with
zeros in their places and sealed when the data is written.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Sequence

from aoserial.errors import EnvelopeError, IntegrityError

ZERO_DIGEST = "0" * 64


def zero_checksums(count: int) -> str:
    return encode_checksums([0] * count)


def encode_checksums(crcs: Sequence[int]) -> str:
    return base64.b64encode(struct.pack(f"<{len(crcs)}I", *crcs)).decode("ascii")


def decode_checksums(text: str, count: int) -> tuple[int, ...]:
    """The CRC-32 of each of `count` tensors, in data order."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise EnvelopeError(f"'crc32' is not base64: {error}") from None
    if len(raw) != 4 * count:
        raise EnvelopeError(
            f"'crc32' holds {len(raw) // 4} checksums, but the file has {count} tensors"
        )
    return struct.unpack(f"<{count}I", raw)


def seal(header: bytes, crcs: Sequence[int]) -> bytes:
    """The header with checksums and its own digest in the places laid out for them."""
    checksums = encode_checksums(crcs)
    header = _replace(header, "crc32", zero_checksums(len(crcs)), checksums)
    digest = hashlib.sha256(header).hexdigest()
    header = _replace(header, "header_digest", ZERO_DIGEST, digest)
    check_seal(header, digest)
    return header


def check_seal(header: bytes, digest: str) -> None:
    """Raises IntegrityError unless `digest` is that of `header`."""
    if len(digest) != len(ZERO_DIGEST):
        raise EnvelopeError(f"'header_digest' is not a SHA-256: {digest!r:.80}")
    found = hashlib.sha256(_replace(header, "header_digest", digest, ZERO_DIGEST)).hexdigest()
    if found != digest:
        raise IntegrityError(
            f"the header does not match its own digest (it says {digest[:12]}…, its bytes give "
            f"{found[:12]}…): it was torn, damaged or edited by another program"
        )


def _replace(header: bytes, key: str, old: str, new: str) -> bytes:
    # the envelope is a JSON string inside JSON, so its own quotes are escaped once; a quote within
    # one of its strings is escaped twice and cannot look like these
    prefix = rf"\"{key}\":\"".encode()
    place = header.find(prefix + old.encode() + rb"\"", header.find(b'"aoserial":"'))
    if place < 0:
        raise IntegrityError(f"the header does not hold {key!r} as this format writes it")
    place += len(prefix)
    return header[:place] + new.encode() + header[place + len(old) :]
