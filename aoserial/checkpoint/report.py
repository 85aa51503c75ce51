"""What a reader did to what it read: filled in, renamed, migrated, left inert. Torch-free."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from aoserial.checkpoint.archives import Archive
from aoserial.checkpoint.contents import Prepared
from aoserial.migrations import spell


class AoserialWarning(UserWarning):
    """Something in a checkpoint was ignored or replaced, as its schema's author allowed."""


@dataclass(kw_only=True)
class LoadReport:
    """Counts are of tensors.

    Attributes:
        layout: what described the tensors: `aoserial`, `torchao`, `pickle`, `plain`.
        writer: as the file says.
        verified: what the file's own digests proved: `nothing`, `header`, `checksums`.
        migrated: step → count.
        defaulted: `type@version.field` → count of records whose file does not hold that field.
        renamed: `type@version.old → new` → count.
        ignored: `type@version.field` → count of unknown fields kept unread.
        replaced: symbol → count of enum symbols that a fallback stands for.
        assumed: `option=answer` → count, of what a file could not tell and nobody answered.
        inert: names of tensors whose type is not known.
        notes: what the file has beside tensors, such as hooks, and was left there.
    """

    layout: str
    writer: str
    verified: str = "nothing"
    migrated: Counter[str] = field(default_factory=Counter)
    defaulted: Counter[str] = field(default_factory=Counter)
    renamed: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    replaced: Counter[str] = field(default_factory=Counter)
    assumed: Counter[str] = field(default_factory=Counter)
    inert: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, file: Archive, prepared: Iterable[Prepared]) -> LoadReport:
        """The report on an opened file whose groups were prepared."""
        catalog = file.catalog
        report = cls(
            notes=list(file.notes),
            layout=catalog.layout,
            writer=catalog.writer,
            verified="header" if catalog.sealed else "nothing",
        )
        for one in prepared:
            count = len(one.group.members)
            if one.outcome is None:
                report.inert += one.group.members
                continue
            for step in one.outcome.steps:
                report.migrated[str(step)] += count
            for answer in one.outcome.assumed:
                report.assumed[answer] += count
            for version, resolution in one.outcome.resolutions:
                where = spell(version)
                for name in resolution.defaulted:
                    report.defaulted[f"{where}.{name}"] += count
                for old, new in resolution.renamed.items():
                    report.renamed[f"{where}.{old} → {new}"] += count
                for name in resolution.ignored:
                    report.ignored[f"{where}.{name}"] += count
                for symbol in resolution.replaced:
                    report.replaced[symbol] += count
        return report

    def warn(self) -> None:
        """Warns of what was ignored or replaced; what was filled in is as declared and quiet."""
        for verb, counts in (("kept unread", self.ignored), ("replaced", self.replaced)):
            for what, count in counts.items():
                warnings.warn(
                    f"{what}: {verb} in {count} tensors; a newer release knows it",
                    AoserialWarning,
                    stacklevel=3,  # where aoserial.load was called
                )
