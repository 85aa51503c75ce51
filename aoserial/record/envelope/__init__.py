"""The envelope: aoserial's JSON inside a safetensors file's metadata."""

from aoserial.record.envelope.digest import check_seal, decode_checksums, seal
from aoserial.record.envelope.encode import (
    ENVELOPE_KEY,
    WRITER,
    Contents,
    Sheet,
    Stored,
    collect_objects,
    lay_out,
)
from aoserial.record.envelope.reconcile import decode_envelope

__all__ = [
    "ENVELOPE_KEY",
    "WRITER",
    "Contents",
    "Sheet",
    "Stored",
    "check_seal",
    "collect_objects",
    "decode_checksums",
    "decode_envelope",
    "lay_out",
    "seal",
]
