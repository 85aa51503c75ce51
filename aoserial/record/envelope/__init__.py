"""The envelope: aoserial's JSON inside a safetensors file's metadata."""

from aoserial.record.envelope.decode import Envelope, Row
from aoserial.record.envelope.digest import check_seal, decode_checksums, seal
from aoserial.record.envelope.encode import (
    ENVELOPE_KEY,
    WRITER,
    Contents,
    Sheet,
    Stored,
    collect_objects,
    lay_out,
    lay_out_shards,
)
from aoserial.record.envelope.joining import agreed, join_envelopes
from aoserial.record.envelope.reconcile import decode_envelope, open_envelope, reconcile

__all__ = [
    "ENVELOPE_KEY",
    "WRITER",
    "Contents",
    "Envelope",
    "Row",
    "Sheet",
    "Stored",
    "agreed",
    "check_seal",
    "collect_objects",
    "decode_checksums",
    "decode_envelope",
    "join_envelopes",
    "lay_out",
    "lay_out_shards",
    "open_envelope",
    "reconcile",
    "seal",
]
