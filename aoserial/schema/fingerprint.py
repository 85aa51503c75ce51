"""Fingerprints: the proof of what a record was written against. Torch-free.

SHA-256 over the canonical form of what a file relies on, which is the required fields and those
optional ones it uses. So an optional field added later changes no old file's fingerprint, while a
changed meaning of a used field is noticed. Names are taken as the file has them, so a file that
uses a field's older name still proves the schema it was written with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection

from aoserial.schema.fields import Field
from aoserial.schema.keywords import encode_default
from aoserial.schema.schema import FLOATING, Schema
from aoserial.schema.values import Json

FINGERPRINT_LENGTH = 16  # hex digits: 64 bits against accident; it is no defence against malice


def fingerprint(schema: Schema, used: Collection[str]) -> str:
    """Proof of what a record of `schema` that holds the fields `used` was written against.

    Args:
        used: the names of the fields present in the record, as the file has them.

    Returns:
        16 hex digits.
    """
    fields: dict[str, Json] = {}
    for field in schema.live_fields:
        aliases = [name for name in field.renamed_from if name in used]
        name = aliases[0] if aliases else field.name
        if field.required or name in used:
            fields[name] = _canonical_field(field)
    canonical = {
        "type": schema.type,
        "version": schema.version,
        "kind": schema.kind,
        "dims": schema.dims,
        "fields": fields,
    }
    if schema.logical_dtypes != FLOATING:
        canonical["logical_dtypes"] = schema.logical_dtypes
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_LENGTH]


def _canonical_field(field: Field) -> Json:
    """What of a field decides how a file is read: no doc, aliases, history, new-object default."""
    canonical = {
        "kind": field.kind,
        "type": field.type,
        "dtypes": sorted(field.dtypes),
        "shape": field.shape,
        "required": field.required,
        "absent": encode_default(field.absent),
    }
    return canonical | ({"when": field.when} if field.when else {})
