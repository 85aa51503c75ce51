"""The index of a sharded checkpoint, `*.index.json`: strict JSON to data, and back. Torch-free.

`weight_map` says in which file each tensor lies, `metadata` how large they are together. What we
write also has, under `metadata.aoserial`, the size and digests of every shard, which tell whether
a file is the one that the index was written for; other readers pass over it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aoserial.errors import LimitError, ShardIndexError
from aoserial.storage.safetensors.grammar import quoted
from aoserial.storage.source import Source

FACTS_KEY = "aoserial"

MAX_INDEX_BYTES = 64 << 20
MAX_ENTRIES = 1_000_000
MAX_SHARDS = 4096

# What json makes of brackets costs 20 times their own bytes; a real index has a handful, and one
# for each shard. What stands in strings costs nothing.
_MAX_BRACKETS = 4 * MAX_SHARDS
# A string that does not end goes on to the end of all, so that nothing is looked at twice.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[{,]', re.DOTALL)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardFacts:
    """What the writer of a set knew of a shard.

    Attributes:
        nbytes: length of the file.
        sha256: of the file.
        header_sha256: of its header's text, padding included.
    """

    nbytes: int
    sha256: str
    header_sha256: str


@dataclass(frozen=True, kw_only=True)
class Index:
    """An index.

    Attributes:
        weight_map: key of a tensor → name of the file it lies in.
        total_bytes: of all tensors, as the index says; None when it does not.
        metadata: its other metadata, as far as it is strings.
        facts: of the shards, where aoserial wrote them; empty otherwise.
    """

    weight_map: dict[str, str]
    total_bytes: int | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    facts: dict[str, ShardFacts] = field(default_factory=dict)

    @property
    def shards(self) -> dict[str, list[str]]:
        """File → keys, by the names of the files."""
        shards: dict[str, list[str]] = {name: [] for name in sorted(set(self.weight_map.values()))}
        for key, name in self.weight_map.items():
            shards[name].append(key)
        return shards


def read_index(source: Source) -> Index:
    """The index in an opened file; raises as `parse_index`."""
    _check("index_bytes", source.size, MAX_INDEX_BYTES)
    return parse_index(source.pread(0, source.size))


def parse_index(raw: bytes) -> Index:
    """The index in the bytes of a file.

    Raises:
        ShardIndexError: it is not JSON, not an index, or malformed.
        LimitError: it is larger than any index is.
    """
    data = _parse(raw)
    if "weight_map" not in data:
        raise ShardIndexError("this is JSON without a 'weight_map': no index of a checkpoint")
    names: dict[str, str] = {}
    weight_map: dict[str, str] = {}
    for key, name in _object(data["weight_map"], "'weight_map'").items():
        if type(name) is not str:
            raise ShardIndexError(f"the file of {quoted(key)} must be a string, found {name!r:.60}")
        weight_map[key] = names.setdefault(name, name)
    _check("entries", len(weight_map), MAX_ENTRIES)
    _check("shards", len(names), MAX_SHARDS)
    metadata = _object(data.get("metadata", {}), "'metadata'")
    facts = metadata.get(FACTS_KEY, {})
    return Index(
        weight_map=weight_map,
        total_bytes=_total(metadata.get("total_size")),
        metadata={key: text for key, text in metadata.items() if type(text) is str},
        # a string there is the envelope of a state dict that was flattened and then split
        facts={} if type(facts) is str else _facts(facts),
    )


def render_index(index: Index, *, writer: str) -> bytes:
    """The index as huggingface_hub writes it, with what we know of the shards in its metadata."""
    metadata: dict[str, Any] = {**index.metadata, "total_size": index.total_bytes}
    if index.facts:
        shards = {
            name: {"size": one.nbytes, "sha256": one.sha256, "header_sha256": one.header_sha256}
            for name, one in index.facts.items()
        }
        metadata[FACTS_KEY] = {"writer": writer, "shards": shards}
    raw = json.dumps({"metadata": metadata, "weight_map": index.weight_map}, indent=2).encode()
    _check("index_bytes", len(raw), MAX_INDEX_BYTES)
    return raw + b"\n"


def check_count(shards: int) -> None:
    """Raises `LimitError` for a set of more shards than are read."""
    _check("shards", shards, MAX_SHARDS)


def _parse(raw: bytes) -> dict[str, Any]:
    _check("index_bytes", len(raw), MAX_INDEX_BYTES)
    _check_structure(raw)
    try:
        # decoded here, since json itself would take UTF-16 and a byte order mark
        data = json.loads(
            raw.decode("utf-8"), object_pairs_hook=_no_twins, parse_constant=_no_constant
        )
    except ShardIndexError:
        raise
    except (ValueError, RecursionError) as error:
        raise ShardIndexError(f"this is not JSON that an index is made of: {error}") from None
    return _object(data, "an index")


def _check_structure(raw: bytes) -> None:
    """Counts brackets and commas outside of strings: one by one only if there are many at all."""
    commas = MAX_ENTRIES + _MAX_BRACKETS
    if raw.count(b"{") + raw.count(b"[") <= _MAX_BRACKETS and raw.count(b",") <= commas:
        return
    tokens = dict.fromkeys(b'"[{,', 0)
    for match in _TOKEN.finditer(raw):
        tokens[raw[match.start()]] += 1
    _check("brackets", tokens[ord("[")] + tokens[ord("{")], _MAX_BRACKETS)
    _check("entries", tokens[ord(",")], commas)


def _total(value: object) -> int | None:
    """`total_size`; some writers give an integer as 123.0."""
    if value is None:
        return None
    if type(value) in (int, float) and value >= 0 and value == value // 1:  # type: ignore[operator]
        return int(value)
    raise ShardIndexError(f"'total_size' must be a count of bytes, found {value!r:.60}")


def _facts(value: object) -> dict[str, ShardFacts]:
    what = f"'metadata.{FACTS_KEY}'"
    rows = _object(_object(value, what).get("shards", {}), f"'shards' of {what}")
    return {name: _shard_facts(_object(row, f"{quoted(name)} in {what}"), what)
            for name, row in rows.items()}  # fmt: skip


def _shard_facts(row: Mapping[str, Any], what: str) -> ShardFacts:
    size, digest, header = row.get("size"), row.get("sha256"), row.get("header_sha256")
    if type(size) is not int or size < 0:
        raise ShardIndexError(f"a size in {what} must be a count of bytes, found {size!r:.60}")
    for one in (digest, header):
        if type(one) is not str or not _SHA256.fullmatch(one):
            raise ShardIndexError(f"a digest in {what} is no SHA-256: {one!r:.80}")
    return ShardFacts(nbytes=size, sha256=str(digest), header_sha256=str(header))


def _object(value: object, what: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise ShardIndexError(f"{what} must be a JSON object, found {value!r:.60}")
    return value


def _check(limit: str, found: int, allowed: int) -> None:
    if found > allowed:
        raise LimitError(
            f"an index with {found} {limit.replace('_', ' of ')} is refused: at most {allowed} "
            f"are read",
            limit=limit,
            allowed=allowed,
            found=found,
        )


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        seen: set[str] = set()
        twin = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ShardIndexError(f"the key {quoted(twin)} is there twice")
    return data


def _no_constant(text: str) -> None:
    raise ShardIndexError(f"{text} is not JSON")
