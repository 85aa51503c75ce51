"""Goldens read with today's code, and held against what they were when they were written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from aoserial.checkpoint.loading import load
from aoserial.errors import AoserialError, FormatError, MissingFileError
from aoserial.golden.cases import GoldenCase
from aoserial.golden.findings import Finding
from aoserial.golden.making import State, outputs, settled, values_of
from aoserial.golden.recording import Written, environment
from aoserial.golden.settings import Settings
from aoserial.golden.shape import Described, describe, differences, digest_of, renamed
from aoserial.golden.store import Golden, Store
from aoserial.migrations import spell
from aoserial.schema import REGISTRY, Schema, fingerprint, from_document
from aoserial.schema.values import encode
from aoserial.tensors import VersionedTensor, to_record

_SHOWN = 6  # differences told of one golden; the rest are counted


def check_golden(case: GoldenCase, golden: Golden, store: Store) -> list[Finding]:
    """What is wrong with a golden, or with how it is read; nothing when all is well."""
    touched = list(store.check(golden))
    if touched:
        return touched
    try:
        expected = load_file(golden.expected)
        return [f for path in golden.models for f in _check_file(case, golden, path, expected)]
    except AoserialError as error:
        return [Finding(rule="GOLDEN_UNREADABLE", where=str(golden), message=str(error))]


def _check_file(
    case: GoldenCase, golden: Golden, path: Path, expected: dict[str, torch.Tensor]
) -> Iterator[Finding]:
    stored = golden.description["holds"][path.name]
    now = describe(path)
    yield from _finding("GOLDEN_FIELDS_DIFFER", golden, path, differences(stored, now, values=True))
    with settled():
        state: Any = load(path, strict=True)
    yield from _finding("GOLDEN_FIELDS_DIFFER", golden, path, list(_live(stored, state)))
    slack = max((case.rounds.get(version, 0.0) for version in golden.versions), default=0.0)
    with settled():
        apart = list(_apart("value", {n: values_of(t) for n, t in state.items()}, expected, slack))
    yield from _finding("GOLDEN_VALUES_DIFFER", golden, path, apart)
    inputs = [expected[f"input.{i}"] for i in range(_count(expected, "input."))]
    with settled():
        out = outputs(case, state, inputs)
        apart = list(_apart("output", out, expected, slack))
    if apart and (elsewhere := _elsewhere(golden)):
        apart.append(elsewhere)
    yield from _finding("GOLDEN_OUTPUTS_DIFFER", golden, path, apart)


def _finding(rule: str, golden: Golden, path: Path, phrases: list[str]) -> Iterator[Finding]:
    if phrases:
        yield Finding(rule=rule, where=str(golden), message=f"{path.name}: {_some(phrases)}")


def _count(expected: dict[str, torch.Tensor], prefix: str) -> int:
    return sum(name.startswith(prefix) for name in expected)


def _live(stored: dict[str, Any], state: State) -> Iterator[str]:
    """How the tensors that were loaded are not what was stored."""
    for name in sorted(stored["tensors"].keys() ^ (state.keys() - stored["ties"].keys())):
        yield f"{name}: {'not loaded' if name not in state else 'was not stored'}"
    for name, one in stored["tensors"].items():
        tensor = state.get(name)
        if tensor is None:
            continue
        if "type" not in one:
            if digest_of(tensor) != one["sha256"]:
                yield f"{name}: the plain tensor has other bytes"
        elif not isinstance(tensor, VersionedTensor):
            yield f"{name}: {one['type']}@{one['version']} is loaded as {type(tensor).__name__}"
        else:
            yield from _fields(name, one, tensor)
    for name, target in stored["ties"].items():
        if state.get(name) is not state.get(target):
            yield f"{name}: is not tied to {target}"


def _fields(name: str, one: dict[str, Any], tensor: VersionedTensor) -> Iterator[str]:
    """How a tensor of the version that was stored does not have the fields that were stored."""
    record = to_record(tensor)
    if (record.type, record.version) != (one["type"], one["version"]):
        return  # migrated: its fields are others, and its values are compared
    schema = REGISTRY[record.type].head.by_name
    if (record.dtype, list(record.shape)) != (one["dtype"], one["shape"]):
        yield f"{name}: {record.dtype}{list(record.shape)}, was {one['dtype']}{one['shape']}"
    for key, value in one["attributes"].items():
        new = schema[key].name if key in schema else key
        if encode(record.attributes.get(new)) != value:
            yield f"{name}: attribute {new} is {record.attributes.get(new)!r}, was {value!r}"
    for key, told in one["parts"].items():
        new = schema[key].name if key in schema else key
        if new not in record.parts or digest_of(record.parts[new].read()) != told["sha256"]:
            yield f"{name}: part {new} has other bytes"


def _apart(
    kind: str, found: State, expected: dict[str, torch.Tensor], slack: float
) -> Iterator[str]:
    """What is not the same, bit for bit, or within `slack` where that is not 0."""
    prefix = f"{kind}."
    wanted = {n.removeprefix(prefix): t for n, t in expected.items() if n.startswith(prefix)}
    for name, was in wanted.items():
        now = found.get(name)
        if now is None:
            yield f"{kind} {name} is not there"
        elif (now.dtype, now.shape) != (was.dtype, was.shape):
            yield f"{kind} {name} is {now.dtype}{list(now.shape)}, was {was.dtype}{list(was.shape)}"
        elif digest_of(now) != digest_of(was):
            difference = (now.double() - was.double()).abs().max().item()
            if not difference <= slack or not slack:  # NaN is not within anything
                unequal = int((now != was).sum())
                yield f"{kind} {name}: {unequal} of {was.numel()} differ, by up to {difference:.3g}"


def _elsewhere(golden: Golden) -> str:
    """How this machine is not the one that recorded; empty when it is."""
    then, now = golden.description["environment"], environment()
    changed = [
        f"{key} {then.get(key)} then, {now[key]} now"
        for key in ("torch", "machine", "cpu_capability")
        if then.get(key) != now[key]
    ]
    if not changed:
        return ""
    return (
        f"recorded elsewhere ({', '.join(changed)}), where sums may round otherwise: inputs of "
        "small integers would not"
    )


def check_today(
    case: GoldenCase, settings: Settings, store: Store, *, record: bool = False
) -> list[Finding]:
    """Whether what today's code writes of a case has a golden, and the shape that this has.

    Args:
        record: record a golden that is missing. The finding is the same: whoever ran it has to
            look at the golden, and commit it.
    """
    if case.retired:
        return []
    try:
        with Written(case) as written:
            if drifted := list(_drifted(written, settings.schemas)):
                return drifted
            return list(_check_written(written, store, settings.writer, record))
    except (FormatError, MissingFileError) as error:  # of another golden of the case
        return [Finding(rule="GOLDEN_UNREADABLE", where=case.name, message=str(error))]
    except AoserialError as error:
        return [Finding(rule="GOLDEN_UNWRITABLE", where=case.name, message=str(error))]


def _drifted(written: Written, schemas: Path | None) -> Iterator[Finding]:
    """What is written by another schema than the frozen one of its version."""
    described = written.described[written.models[0].name]
    for name, one in described["tensors"].items():
        path = (
            schemas / one["type"] / f"{one['version']}.json" if schemas and "type" in one else None
        )
        if path is None or not path.is_file():
            continue
        schema = from_document(json.loads(path.read_bytes()))
        if not isinstance(schema, Schema):
            continue  # an enum's, which no record is of
        frozen = fingerprint(schema, {*one["attributes"], *one["parts"]})
        if frozen != one["fingerprint"]:
            yield Finding(
                rule="GOLDEN_SHAPE_CHANGED",
                where=written.case.name,
                message=f"{name} is written by another schema of "
                f"{spell((one['type'], one['version']))} than {path} has frozen (fingerprint "
                f"{one['fingerprint']}, frozen {frozen}): raise the version and write a migration",
            )


def _check_written(written: Written, store: Store, writer: str, record: bool) -> Iterator[Finding]:
    case = written.case
    alike = [golden for golden in store.of_case(case.name) if golden.versions == written.versions]
    changes: list[str] = []
    for golden in alike:
        then = golden.description["holds"]
        changes = list(_changes(then, written.described))
        if not changes:
            return
        newest = {name: renamed(one) for name, one in written.described.items()}
        if really := list(_changes({n: renamed(one) for n, one in then.items()}, newest)):
            yield Finding(
                rule="GOLDEN_SHAPE_CHANGED",
                where=case.name,
                message=f"writes {_listed(written.versions)} otherwise than {golden}: "
                f"{_some(really)}. Raise the version and write a migration; for an optional field "
                "that is new, leave this case and declare another that uses it",
            )
            return
    what = _listed(written.versions)
    why = f", with renamed fields ({_some(changes)})" if changes else ""
    if not record:
        message = f"writes {what}{why}, of which it has no golden: run pytest --aoserial-record"
        yield Finding(rule="GOLDEN_MISSING", where=case.name, message=message)
        return
    golden = written.record(store, writer)
    yield Finding(
        rule="GOLDEN_MISSING",
        where=case.name,
        message=f"recorded {golden}, which holds {what}{why}: look at it, commit it, run again",
    )


def _changes(then: dict[str, Described], now: dict[str, Described]) -> Iterator[str]:
    """How files that are written now differ in shape from those of a golden."""
    for name, described in now.items():
        if name not in then:
            yield f"{name} is written now"
        else:
            yield from differences(then[name], described, values=False)


def _some(phrases: list[str]) -> str:
    more = [f"and {len(phrases) - _SHOWN} more"] if len(phrases) > _SHOWN else []
    return "; ".join([*phrases[:_SHOWN], *more])


def _listed(versions: set[str]) -> str:
    return " and ".join(sorted(versions))
