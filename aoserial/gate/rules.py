"""The rules of the gate, as a table. Torch-free.

A rule says what it looks at, which files it would break, what the change needs, and how to put it
right. `read`: old files under new code. `write`: new files under old code. A rule that breaks
neither keeps the record itself straight (documents, lock, git), and counts in every mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Direction = Literal["read", "write"]
Mode = Literal["read", "write", "full"]
Bump = Literal["none", "version"]

MODES: dict[Mode, frozenset[str]] = {
    "read": frozenset({"read"}),
    "write": frozenset({"write"}),
    "full": frozenset({"read", "write"}),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        id: as it is reported.
        breaks: the directions in which it breaks something.
        bump: what the change needs to be allowed: a new version with a step, or nothing would do.
        fix: one sentence on how to put it right.
        is_error: the gate could not look, so the exit status is 2.
    """

    id: str
    breaks: tuple[Direction, ...] = ()
    bump: Bump = "none"
    fix: str
    is_error: bool = False

    def counts_in(self, mode: Mode) -> bool:
        return not self.breaks or not MODES[mode].isdisjoint(self.breaks)


_BOTH: tuple[Direction, ...] = ("read", "write")
_STEP = "give it a new version and a step: aoserial schema draft"


def _rule(
    name: str,
    breaks: tuple[Direction, ...],
    fix: str,
    *,
    bump: Bump = "none",
    is_error: bool = False,
) -> Rule:
    return Rule(id=name, breaks=breaks, bump=bump, fix=fix, is_error=is_error)


def _breaking(name: str, fix: str = _STEP, breaks: tuple[Direction, ...] = _BOTH) -> Rule:
    return _rule(name, breaks, fix, bump="version")


RULES: dict[str, Rule] = {
    rule.id: rule
    for rule in (
        # -- fields, within a version ---------------------------------------------------------
        _breaking(
            "FIELD_NO_DELETE_UNLESS_RESERVED",
            "keep the field; or reserve its name (removed) in a new version, with a step that "
            "drops it: aoserial schema draft",
        ),
        _breaking(
            "FIELD_ADDED_REQUIRED", "say what its absence means (an absence-default); or " + _STEP
        ),
        _breaking(
            "FIELD_OPTIONAL_TO_REQUIRED", "leave it optional and check it in the class; or " + _STEP
        ),
        _breaking("FIELD_REQUIRED_TO_OPTIONAL"),
        _breaking("FIELD_SAME_TYPE"),
        _breaking("FIELD_SAME_KIND"),
        _breaking(
            "FIELD_SAME_ABSENCE_DEFAULT",
            "what new objects get may change (default); what absence means may not, in a version: "
            "aoserial schema draft",
        ),
        _breaking("FIELD_SAME_CONDITION"),
        _breaking(
            "FIELD_RENAMED_WITHOUT_ALIAS",
            "declare the older name (renamed_from), and old files are read as before",
        ),
        _breaking(
            "FIELD_ALIAS_NO_DELETE", "keep the older name in renamed_from: files that use it remain"
        ),
        _breaking("RESERVED_NAME_REUSED", "take another name: this one had another meaning"),
        _rule("RESERVED_NAME_NO_DELETE", (), "keep it in removed: its older meaning is in files"),
        _breaking("TENSOR_DTYPE_NARROWED"),
        _breaking("TENSOR_DTYPE_WIDENED"),
        _breaking("LOGICAL_DTYPE_CHANGED"),
        _breaking("SHAPE_CONSTRAINT_CHANGED"),
        _breaking("IGNORABLE_NARROWED", "keep the prefix: files with fields of that group remain"),
        _breaking("HOLDS_NARROWED", "keep the prefix: files with parts of such names remain"),
        _breaking("TYPE_SAME_KIND", "take another type id"),
        _breaking("FIELD_RENAMED", "write the older name for as long as older readers matter",
                  ("write",)),
        _rule("FIELD_ADDED", ("write",), "mark its group ignorable if ignoring it is harmless; "
              "files that leave it at its default are readable as before"),
        _rule("HOLDS_WIDENED", ("write",), "older readers refuse files that use the new prefix"),
        # -- enums ----------------------------------------------------------------------------
        _rule("ENUM_VALUE_NO_DELETE", ("read",), "keep the symbol: files that hold it remain"),
        _rule("ENUM_SAME_FALLBACK", ("read",), "keep the fallback: it decides what files mean"),
        _rule("ENUM_VALUE_ADDED", ("write",), "give the enum a fallback before adding symbols"),
        # -- types and versions ---------------------------------------------------------------
        _rule("TYPE_NO_DELETE_UNLESS_ALIASED", ("read",),
              "keep its schema registered, with a step that turns its records into another type; "
              "the class may go"),
        _breaking("VERSION_NOT_BUMPED", "raise the version in the class's registration"),
        _rule("VERSION_LOWERED", ("read",), "versions only ever go up; restore the number"),
        _rule("VERSION_SKIPPED", (), "versions go up by one: use the next number"),
        _rule("VERSION_RAISED", ("write",), "readers have to be updated before writers"),
        _rule("VERSION_NOT_FROZEN", (), "aoserial schema freeze"),
        _rule("STEP_MISSING", ("read",), "write the step: aoserial schema draft begins it"),
        _rule("STEP_UNFINISHED", ("read",), "write the body of the step that was drafted"),
        _rule("STEP_EDITED_AFTER_RELEASE", ("read",),
              "restore the step; if it was wrong, say so on purpose: aoserial schema freeze "
              "--release"),
        _rule("NESTED_VERSION_RANGE_NARROWED", ("read",),
              "keep the steps of the object: parents hold it at every version it had"),
        _rule("GOLDEN_MISSING", (),
              "record one with the release that wrote that version: aoserial schema draft"),
        _rule("GOLDEN_EDITED", (), "restore the file from version control; goldens are recorded, "
              "never rewritten"),
        # -- the record itself ----------------------------------------------------------------
        _rule("FROZEN_SCHEMA_EDITED", (), "restore the document (git checkout), then aoserial "
              "schema freeze, which makes the only edits that are allowed"),
        _rule("FROZEN_SCHEMA_OUTDATED", (), "aoserial schema freeze"),
        _rule("FROZEN_SCHEMA_MISSING", (), "restore the document (git checkout)"),
        _rule("FROZEN_SCHEMA_UNREADABLE", (), "restore the document (git checkout)"),
        _rule("FROZEN_SCHEMA_MISPLACED", (), "move or delete the file: one document a version"),
        _rule("FROZEN_SCHEMA_NOT_LOCKED", (), "aoserial schema freeze, which also locks it; "
              "delete the file if it was not meant"),
        _rule("LOCK_UNREADABLE", (), "restore lock.json (git checkout)"),
        _rule("LOCK_HISTORY_LOST", (), "restore the digests in lock.json: files of every form "
              "that a document had remain"),
        # -- what kept the gate from looking ----------------------------------------------------
        _rule("MODULE_NOT_IMPORTABLE", (), "run the check where the module can be imported",
              is_error=True),
        _rule("BASELINE_NOT_FOUND", (), "name a commit, branch or tag that git has here (fetch "
              "it), or a folder of documents", is_error=True),
    )
}  # fmt: skip
