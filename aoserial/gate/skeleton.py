"""The text of a migration step that is yet to be written."""

from __future__ import annotations

from collections.abc import Iterator

from aoserial.gate.compare import compare
from aoserial.schema import Schema


def skeleton(old: Schema, new: Schema) -> str:
    """A module with the step from `old` to `new`, which raises until its body is written."""
    name = "".join(f"_{c.lower()}" if c.isupper() else c for c in old.type.rpartition(".")[2])
    function = f"{name.strip('_')}_{old.version}_to_{new.version}"
    kind = "Nested" if old.kind == "object" else "Record"
    changes = "\n".join(f"    * {line}" for line in _changes(old, new))
    body = "\n".join(f"    # {line}" for line in _body(old, new))
    return f'''"""From {old} to {new}."""

from __future__ import annotations

from typing import Any

import aoserial


@aoserial.migration("{old.type}", {old.version}, {new.version})
def {function}(record: Any) -> Any:
    """Say in a line what the change means.

{changes}
    """
    # `record` is a {kind} of {old}; see docs/evolving.md
{body}
    raise NotImplementedError("{function} is yet to be written")
'''


def _changes(old: Schema, new: Schema) -> Iterator[str]:
    for one in compare(old, new):
        yield f"{one.field or 'the type'} {one.message}"


def _body(old: Schema, new: Schema) -> Iterator[str]:
    """What the step will most likely do, to be uncommented and completed."""
    if old.kind == "object":
        yield "from dataclasses import replace"
        yield f"return replace(record, version={new.version}).replace(field=value)"
        return
    yield "return ("
    yield f"    record.at({new.version})"
    for field in old.live_fields:
        if field.name not in _live(new):
            yield f"    .drop({field.name!r})"
    for field in new.live_fields:
        if field.name not in _live(old):
            yield f"    .{'put' if field.kind == 'tensor' else 'set'}({field.name}=…)"
    yield ")"


def _live(schema: Schema) -> set[str]:
    return {field.name for field in schema.live_fields}
