"""An envelope held against the file it is in → the file's catalog. Torch-free.

Every declared part must be there, none may belong to two records, and no key may lie in a record's
namespace without being declared. All that is wrong comes in one error, before anything is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from aoserial.errors import (
    AoserialError,
    CollisionError,
    EnvelopeError,
    LeftoverError,
    MissingPartError,
    each_of,
    raise_all,
)
from aoserial.record.catalog import Catalog, Group, Signature, template
from aoserial.record.envelope.decode import Envelope, Row, parse_envelope
from aoserial.record.envelope.digest import check_seal, decode_checksums
from aoserial.record.envelope.encode import ENVELOPE_KEY
from aoserial.record.keys import strays
from aoserial.storage.safetensors import Entry


def decode_envelope(
    metadata: Mapping[str, str],
    entries: Mapping[str, Entry],
    header: bytes | None,
    *,
    partial: bool = False,
    faults: list[AoserialError] | None = None,
) -> Catalog:
    """The catalog of tensors that an envelope describes.

    Args:
        metadata: of the file, with the envelope under `aoserial`.
        entries: the tensors by key, in data order.
        header: the header's bytes, to check its digest; None when they are not at hand.
        partial: records that lack parts go to `Catalog.pending` instead of being an error.
        faults: takes what does not add up, which is not raised then: the catalog has the rest.

    Raises:
        VersionError: an envelope or feature that this reader does not know.
        IntegrityError: the header is not the one that was written.
        EnvelopeError, MissingPartError, LeftoverError, CollisionError: what does not add up;
            `Faults` when several things do not.
    """
    envelope, sealed = open_envelope(metadata, header, faults)
    crcs: tuple[int, ...] = ()
    if envelope.crc32:
        with _noting(faults):
            crcs = decode_checksums(envelope.crc32, len(entries))
    catalog = reconcile(envelope, entries, partial=partial, faults=faults)
    catalog.sealed, catalog.crcs = sealed, crcs
    catalog.metadata = {key: text for key, text in metadata.items() if key != ENVELOPE_KEY}
    return catalog


def open_envelope(
    metadata: Mapping[str, str], header: bytes | None, faults: list[AoserialError] | None = None
) -> tuple[Envelope, bool]:
    """The envelope in a file's metadata, and whether the header has a digest of itself.

    Args:
        header, faults: as of `decode_envelope`; a digest that does not fit is one of the faults.
    """
    envelope = parse_envelope(metadata[ENVELOPE_KEY])
    sealed = header is not None and envelope.header_digest != ""
    if header is not None and sealed:
        with _noting(faults):  # raised at once: whatever else is wrong comes of that
            check_seal(header, envelope.header_digest)
    return envelope, sealed


def reconcile(
    envelope: Envelope,
    entries: Mapping[str, Entry],
    *,
    partial: bool = False,
    faults: list[AoserialError] | None = None,
) -> Catalog:
    """The catalog of tensors that an envelope describes, without what only a file has.

    Args, Raises: as `decode_envelope`.
    """
    catalog = Catalog(
        layout="aoserial",
        ties=dict(envelope.ties),
        writer=envelope.writer,
        trail=list(envelope.trail),
        objects=list(envelope.objects),
        extra=dict(envelope.extra),
    )
    wrong: list[AoserialError] = []
    for row in envelope.rows:
        _add_row(row, catalog, entries)
    if not partial:
        wrong += _missing(envelope, catalog)
    claimed = _claim(catalog, wrong)
    catalog.plain = {key: key for key in entries if key not in claimed}
    complete = {name for group in catalog.groups for name in group.members}
    wrong += _collisions(envelope, catalog, complete)
    if not partial:
        wrong += _broken_promises(envelope, catalog, complete)
    if faults is None:
        raise_all(f"the envelope and the file disagree in {len(wrong)} places", wrong)
    else:
        faults += wrong
    return catalog


@contextmanager
def _noting(faults: list[AoserialError] | None) -> Iterator[None]:
    """Adds an error to `faults` instead of letting it through, if there is such a list."""
    try:
        yield
    except AoserialError as fault:
        if faults is None:
            raise
        faults += each_of(fault)


def _add_row(row: Row, catalog: Catalog, entries: Mapping[str, Entry]) -> None:
    """Files the records of one row: one group, unless dtypes or shapes of their parts differ."""
    groups: dict[Signature, dict[str, tuple[str, ...]]] = {}
    for name in row.names:
        keys = row.keys_of(name)
        try:
            signature = tuple([entries[key][:2] for key in keys])
        except KeyError:
            catalog.pending[name] = tuple(key for key in keys if key in entries)
        else:
            groups.setdefault(signature, {})[name] = keys
    for signature, members in groups.items():
        record = template(
            type=row.head.type,
            version=row.head.version,
            shape=row.shape,
            dtype=row.dtype,
            attributes=row.attributes,
            parts=dict(zip(row.parts, signature, strict=True)),
        )
        group = Group(template=record, fingerprint=row.head.fingerprint, members=members)
        catalog.groups.append(group)


def _missing(envelope: Envelope, catalog: Catalog) -> Iterator[AoserialError]:
    """A fault for each part that a record declares and the file lacks."""
    for row in envelope.rows if catalog.pending else ():
        for name in row.names:
            if name not in catalog.pending:
                continue
            present = set(catalog.pending[name])
            for part, key in zip(row.parts, row.keys_of(name), strict=True):
                if key not in present:
                    fault = MissingPartError(
                        f"the record declares this part, but the file has no {key!r:.200}"
                    )
                    yield fault.locate(name=name, field=part)


def _claim(catalog: Catalog, faults: list[AoserialError]) -> set[str]:
    """All keys that belong to records; a name or a key claimed twice is a fault."""
    names = [name for group in catalog.groups for name in group.members] + list(catalog.pending)
    keys = [
        key for group in catalog.groups for member in group.members.values() for key in member
    ] + [key for member in catalog.pending.values() for key in member]
    claimed = set(keys)
    if len(set(names)) != len(names):
        faults += [
            EnvelopeError("two records have this name").locate(name=name)
            for name, count in Counter(names).items()
            if count > 1
        ]
    if len(claimed) != len(keys):
        faults += [
            EnvelopeError(f"the part {key!r:.200} is claimed by two records")
            for key, count in Counter(keys).items()
            if count > 1
        ]
    return claimed


def _collisions(envelope: Envelope, catalog: Catalog, names: set[str]) -> Iterator[AoserialError]:
    """Faults for names that two tensors have; `names` are those of records with all their parts."""
    for name in names & catalog.plain.keys():
        yield CollisionError("is both a record and a tensor of the file").locate(name=name)
    for name in catalog.ties:
        if name in names or name in catalog.plain:
            yield CollisionError("is both a tensor and tied to another").locate(name=name)
    allowed = set(envelope.plain)
    for key, name in strays(catalog.plain, names | catalog.pending.keys()):
        if key not in allowed:
            yield LeftoverError(
                f"looks like a part of {name!r:.200}, whose record does not declare it"
            ).locate(name=key)


def _broken_promises(
    envelope: Envelope, catalog: Catalog, names: set[str]
) -> Iterator[AoserialError]:
    """Faults for tensors that are spoken of and not there; `names` as of `_collisions`."""
    for name in envelope.plain:
        if name not in catalog.plain:
            fault = MissingPartError("the envelope lists this plain tensor, the file lacks it")
            yield fault.locate(name=name)
    for name, target in catalog.ties.items():
        if target not in names and target not in catalog.plain:
            fault = MissingPartError(f"is tied to {target!r:.200}, which the file does not have")
            yield fault.locate(name=name)
