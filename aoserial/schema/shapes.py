"""Symbolic shapes: what the shapes of a record's parts have to do with one another. Torch-free.

A rule is a tuple with one term a dimension, as `("...", "N", "K/2")`:

    N         a name: the same length wherever it stands
    K/2       that length divided, exactly
    K/group   the divisor may be an integer attribute of that name
    128       a number
    ...       in front: any leading dimensions, the same wherever it stands

or the one word `"blocks"`: the logical shape divided by the attribute `block_size`, rounded up, as
the scales of block quantization have it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from aoserial.errors import FieldError, SchemaError
from aoserial.schema.values import Value

Rule = tuple[str, ...]
Bindings = dict[str, "int | tuple[int, ...]"]

BLOCKS: Rule = ("blocks",)
_TERM = re.compile(r"(?P<number>\d+)|(?P<name>[A-Za-z_]\w*)(?:/(?P<divisor>\w+))?")


def check_rule(rule: Rule) -> Rule:
    """`rule` if it is well formed, else `SchemaError`."""
    terms = rule[1:] if rule[:1] == ("...",) else rule
    for term in terms:
        if not _TERM.fullmatch(term):
            raise SchemaError(f"{term!r} is not a dimension")
    return rule


def match(
    rule: Rule,
    shape: tuple[int, ...],
    bindings: Bindings,
    attributes: Mapping[str, Value],
    logical: tuple[int, ...],
) -> None:
    """Binds the names of `rule` to the lengths of `shape`.

    Args:
        bindings: lengths known so far; new ones are added.
        logical: the record's shape, for `blocks`.

    Raises:
        FieldError: a length that contradicts the rule or an earlier binding.
    """
    if rule == BLOCKS:
        expected = blocks(logical, attributes)
        if shape != expected:
            raise FieldError(
                f"shape is {list(shape)}, expected {list(expected)}: "
                f"{list(logical)} in blocks of {_listed(attributes.get('block_size'))}"
            )
        return
    lead = len(shape) - (len(rule) - 1) if rule[:1] == ("...",) else 0
    if lead < 0 or (rule[:1] != ("...",) and len(shape) != len(rule)):
        raise FieldError(f"shape is {list(shape)}, expected [{', '.join(rule)}]")
    if rule[:1] == ("...",):
        _bind("...", shape[:lead], bindings, rule, shape)
        rule = rule[1:]
    for term, length in zip(rule, shape[lead:], strict=True):
        _match_term(term, length, bindings, attributes, rule, shape)


def blocks(logical: tuple[int, ...], attributes: Mapping[str, Value]) -> tuple[int, ...]:
    """ceil(shape / block_size), dimension by dimension."""
    block = attributes.get("block_size")
    if not isinstance(block, tuple) or len(block) != len(logical):
        raise FieldError(
            f"block_size is {_listed(block)}, expected one length for each of "
            f"the {len(logical)} dimensions"
        )
    lengths = []
    for length, size in zip(logical, block, strict=True):
        if not isinstance(size, int) or size < 1:
            raise FieldError(f"block_size is {_listed(block)}, expected positive lengths")
        lengths.append(-(-length // size))
    return tuple(lengths)


def _match_term(
    term: str,
    length: int,
    bindings: Bindings,
    attributes: Mapping[str, Value],
    rule: Rule,
    shape: tuple[int, ...],
) -> None:
    parsed = _TERM.fullmatch(term)
    assert parsed  # the rule was checked when it was declared
    if parsed["number"]:
        if length != int(parsed["number"]):
            raise FieldError(f"shape is {list(shape)}, expected [{', '.join(rule)}]")
        return
    factor = _divisor(parsed["divisor"], attributes)
    _bind(parsed["name"], length * factor, bindings, rule, shape)


def _divisor(text: str | None, attributes: Mapping[str, Value]) -> int:
    if text is None:
        return 1
    if text.isdigit():
        return int(text)
    value = attributes.get(text)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise FieldError(f"attribute {text} is {value!r}, expected a positive integer")
    return value


def _bind(
    name: str, length: int | tuple[int, ...], bindings: Bindings, rule: Rule, shape: tuple[int, ...]
) -> None:
    known = bindings.setdefault(name, length)
    if known != length:
        raise FieldError(
            f"shape is {list(shape)}, expected [{', '.join(rule)}] with {name} = {_listed(known)}, "
            f"not {_listed(length)}"
        )


def _listed(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)
