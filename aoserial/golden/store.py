"""The folder of golden files: `<writer>/<case>/`, and MANIFEST.json with their digests. Torch-free.

A golden is `golden.json`, `model.safetensors` or `model.pt` or both, and `expected.safetensors`.
docs/goldens.md describes them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from aoserial.errors import FormatError, MissingFileError, locating
from aoserial.golden.findings import Finding

FORMAT = 1
DESCRIPTION = "golden.json"
EXPECTED = "expected.safetensors"
MANIFEST = "MANIFEST.json"
_ABOUT = "Golden files: written once by the named release, never rewritten."
_NOT_GOLDEN = {MANIFEST, "README.md"}


@dataclass(frozen=True)
class Golden:
    """A golden on disk.

    Attributes:
        folder: that holds its files.
    """

    folder: Path

    @property
    def writer(self) -> str:
        return self.folder.parent.name

    @property
    def case(self) -> str:
        return self.folder.name

    def __str__(self) -> str:
        return f"{self.writer}/{self.case}"

    @cached_property
    def description(self) -> dict[str, Any]:
        """What golden.json says.

        Raises:
            MissingFileError, FormatError: it is not there, or not one this version reads.
        """
        path = self.folder / DESCRIPTION
        with locating(file=str(path)):
            try:
                told = json.loads(path.read_bytes())
            except FileNotFoundError:
                raise MissingFileError("a golden has one of these") from None
            except ValueError as error:
                raise FormatError(f"is no JSON: {error}") from error
            if not isinstance(told, dict) or told.get("golden") != FORMAT:
                raise FormatError(f"is no golden.json of format {FORMAT}")
            return told

    @property
    def models(self) -> list[Path]:
        """Its checkpoints."""
        return [self.folder / name for name in self.description["files"]]

    @property
    def expected(self) -> Path:
        return self.folder / EXPECTED

    @property
    def versions(self) -> set[str]:
        """The types and versions it holds, attribute objects too: `acme.Int4Tensor@1` …"""
        return set(self.description["versions"])


class Store:
    """A folder of goldens; it need not be there yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __iter__(self) -> Iterator[Golden]:
        """All goldens, by writer and case."""
        return (Golden(path.parent) for path in sorted(self.folder.glob(f"*/*/{DESCRIPTION}")))

    @property
    def versions(self) -> set[str]:
        """The types and versions that the folder shows, attribute objects too.

        Of goldens as their golden.json says; of other files as `cases` of the manifest says.

        Raises:
            MissingFileError, FormatError: a golden.json, or the manifest, cannot be read.
        """
        held = {version for golden in self for version in golden.versions}
        try:
            for row in self._told().get("cases", {}).values():
                held |= {kind for told in row["expected"].values() for kind in told["stored"]}
        except (KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"{self._told_in} does not say what its cases hold: {error!r}") from (
                error
            )
        return held

    def of_case(self, name: str) -> list[Golden]:
        return [golden for golden in self if golden.case == name]

    def place(self, writer: str, case: str) -> Golden:
        return Golden(self.folder / writer / case)

    @property
    def manifest(self) -> dict[str, dict[str, Any]]:
        """File, below the folder → its `sha256` and `bytes`.

        Raises:
            FormatError: the manifest is malformed.
        """
        try:
            files = self._told().get("files", {})
            return {name: {"sha256": row["sha256"], "bytes": row["bytes"]} for name, row in
                    files.items()}  # fmt: skip
        except (KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"{self._told_in} is no manifest of goldens: {error!r}") from error

    @property
    def _told_in(self) -> Path:
        return self.folder / MANIFEST

    def _told(self) -> dict[str, Any]:
        """What the manifest says; nothing, when there is none."""
        if not self._told_in.is_file():
            return {}
        try:
            told = json.loads(self._told_in.read_bytes())
        except ValueError as error:
            raise FormatError(f"{self._told_in} is no manifest of goldens: {error!r}") from error
        if not isinstance(told, dict) or "files" not in told:
            raise FormatError(f"{self._told_in} is no manifest of goldens: it lists no files")
        return told

    def add(self, golden: Golden) -> None:
        """Lists the files of a golden that was just written."""
        listed = self.manifest
        for path in sorted(golden.folder.iterdir()):
            listed[self._name(path)] = digest(path)
        lines = ",\n".join(
            f"  {json.dumps(name)}: {json.dumps(listed[name])}" for name in sorted(listed)
        )
        text = f'{{\n "about": {json.dumps(_ABOUT)},\n "files": {{\n{lines}\n }}\n}}\n'
        (self.folder / MANIFEST).write_text(text, encoding="utf-8")

    def check(self, golden: Golden | None = None) -> Iterator[Finding]:
        """Files that are missing, edited or not listed; of one golden, if one is given."""
        inside = self._name(golden.folder) + "/" if golden else ""
        try:
            listed = {name: row for name, row in self.manifest.items() if name.startswith(inside)}
        except FormatError as error:
            yield Finding(rule="GOLDEN_EDITED", where=MANIFEST, message=str(error))
            return
        found = {
            name
            for path in (golden.folder if golden else self.folder).rglob("*")
            if path.is_file() and path.name not in _NOT_GOLDEN
            for name in [self._name(path)]
        }
        for name in sorted(listed.keys() | found):
            if name not in listed:
                yield Finding(
                    rule="GOLDEN_UNLISTED",
                    where=name,
                    message=f"is not in {MANIFEST}: goldens are recorded, not put there by hand",
                )
            elif name not in found:
                yield Finding(
                    rule="GOLDEN_EDITED",
                    where=name,
                    message=f"is in {MANIFEST} and not on disk: restore it from version control",
                )
            elif (now := digest(self.folder / name)) != listed[name]:
                yield Finding(
                    rule="GOLDEN_EDITED",
                    where=name,
                    message=f"has SHA-256 {now['sha256'][:12]}…, not {listed[name]['sha256'][:12]}…"
                    " as recorded: goldens are never rewritten; restore it from version control",
                )

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()


def digest(path: Path) -> dict[str, Any]:
    """The SHA-256 and size of a file, as a manifest has them."""
    data = path.read_bytes()
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
