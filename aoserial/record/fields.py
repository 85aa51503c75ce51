"""Typed getters over parsed JSON: each value is checked once, where it is taken. Torch-free."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from aoserial.errors import EnvelopeError

T = TypeVar("T")
OBJECT: type[dict[str, Any]] = dict
ARRAY: type[list[Any]] = list
_NAMES = {dict: "an object", list: "an array", str: "a string", int: "an integer"}


def parse_object(text: str, what: str) -> dict[str, Any]:
    """The JSON object in `text`; a key given twice, NaN and deep nesting are refused."""
    return expect(_parse(text, what), OBJECT, what)


def parse_strings(text: str, what: str) -> list[str]:
    """The JSON array of strings in `text`."""
    return strings(expect(_parse(text, what), ARRAY, what), what)


def _parse(text: str, what: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_no_twins, parse_constant=_no_constant)
    except EnvelopeError as error:
        raise EnvelopeError(f"{what}: {error.message}") from None
    except (ValueError, RecursionError) as error:
        raise EnvelopeError(f"{what} is not JSON that this format uses: {error}") from None


def take(data: Mapping[str, Any], key: str, kind: type[T], what: str) -> T:
    """`data[key]`, which must be there and exactly a `kind` (a bool is not an integer)."""
    if key not in data:
        raise EnvelopeError(f"{what} has no {key!r}")
    return expect(data[key], kind, f"{key!r} of {what}")


def take_or(data: Mapping[str, Any], key: str, default: T, what: str) -> T:
    """`data[key]`, exactly of the default's type, or the default when it is not there."""
    return take(data, key, type(default), what) if key in data else default


def expect(value: object, kind: type[T], what: str) -> T:
    if type(value) is not kind:
        raise EnvelopeError(f"{what} must be {_NAMES[kind]}, found {value!r:.60}")
    return value


def strings(values: list[Any], what: str) -> list[str]:
    """`values`, all of which must be strings."""
    for value in values:
        if type(value) is not str:
            raise EnvelopeError(f"{what} must be strings, found {value!r:.60}")
    return values


def lengths(values: list[Any], what: str) -> tuple[int, ...]:
    """`values` as a shape: at most 64 integers from 0 to 2⁶³ - 1."""
    if len(values) <= 64 and all(type(value) is int and 0 <= value < 2**63 for value in values):
        return tuple(values)
    raise EnvelopeError(f"{what} is not a shape: {str(values)[:60]}")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        keys = [key for key, _ in pairs]
        twin = next(key for key in keys if keys.count(key) > 1)
        raise EnvelopeError(f"the key {twin!r:.60} is there twice")
    return data


def _no_constant(text: str) -> None:
    raise EnvelopeError(f"{text} is not JSON")
