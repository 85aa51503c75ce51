"""Where a project keeps its goldens: `[tool.aoserial]` of its pyproject.toml. Torch-free.

    [tool.aoserial]
    cases = "tests/golden_cases.py"     # required
    goldens = "goldens"                 # the folder of the golden files
    schemas = "schemas"                 # the folder of frozen schemas
    types = "acme."                     # of which frozen schemas need goldens; all of them
    writer = "acme-1.0"                 # the release that records; name and version of the project
    more_goldens = ["fixtures"]         # folders of golden files that other programs wrote

    [tool.aoserial.unseen]              # frozen versions that no golden shows, and why
    "acme.XpuTensor@1" = "is packed by a device that nobody here has"

Only the first is required; without it a project has no goldens.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aoserial.errors import MissingFileError, OptionError

_TEXTS = ("cases", "goldens", "schemas", "types", "writer")
_KEYS = (*_TEXTS, "more_goldens", "unseen")
_VERSION = re.compile(r"[\w.]+@[1-9][0-9]*", re.ASCII)
_WRITER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+!-]{0,99}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Of one project.

    Attributes:
        root: the folder of its pyproject.toml.
        cases: the file that declares its cases.
        goldens: the folder of its golden files.
        schemas: the folder of its frozen schemas, None where it has none.
        types: prefix of the ids of those whose schemas need a golden; empty for all.
        writer: what goldens recorded now are said to be written by: `acme-1.0`.
        more_goldens: folders of golden files that other programs wrote; a MANIFEST.json in each
            says what they hold.
        unseen: `acme.XpuTensor@1` → why there is no golden of it.
    """

    root: Path
    cases: Path
    goldens: Path
    schemas: Path | None
    types: str
    writer: str
    more_goldens: tuple[Path, ...] = ()
    unseen: Mapping[str, str] = field(default_factory=dict)


def find_settings(root: Path, *, records: bool = True) -> Settings | None:
    """The settings of the project in a folder; None when it declares no golden cases.

    Args:
        records: whoever asks may record goldens, and has to know as which release. Where nobody
            will, a checkout need not be installed, and `writer` can be empty.

    Raises:
        OptionError: settings that are malformed.
    """
    path = root / "pyproject.toml"
    if not path.is_file():
        return None
    try:
        text = path.read_text(encoding="utf-8")
        if "[tool.aoserial]" not in text:  # most projects: not worth parsing
            return None
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"{path}: {error}") from error
    table = document["tool"]["aoserial"]
    if "cases" not in table:
        return None
    if unknown := sorted(table.keys() - set(_KEYS)):
        raise OptionError(
            f"{path}: tool.aoserial has no {unknown[0]!r}; its keys are {', '.join(_KEYS)}"
        )
    names = {key: _text(path, table, key) for key in _TEXTS}
    schemas = root / (names["schemas"] or "schemas")
    return Settings(
        root=root,
        cases=root / str(names["cases"]),
        goldens=root / (names["goldens"] or "goldens"),
        schemas=schemas if names["schemas"] or schemas.is_dir() else None,
        types=names["types"] or "",
        writer=_writer(path, names["writer"], document) if records or names["writer"] else "",
        more_goldens=tuple(root / folder for folder in _folders(path, table)),
        unseen=_unseen(path, table),
    )


def settings_of(root: Path) -> Settings:
    """As `find_settings`, where the project must have them.

    Raises:
        MissingFileError: it has none.
    """
    settings = find_settings(root)
    if settings is None:
        raise MissingFileError(
            f"{root / 'pyproject.toml'}: no golden cases are declared there: set cases under "
            "[tool.aoserial] to the file that has them"
        )
    return settings


def check_writer(text: str) -> str:
    """`text` if it can name the folder of a release.

    Raises:
        OptionError: it cannot.
    """
    if _WRITER.fullmatch(text):
        return text
    raise OptionError(f"writer {text!r:.120} cannot name a folder: expected a name as acme-1.0")


def _text(path: Path, table: dict[str, Any], key: str) -> str | None:
    value = table.get(key)
    if value is None or isinstance(value, str):
        return value
    raise OptionError(f"{path}: tool.aoserial.{key} is {value!r:.80}, expected a string")


def _folders(path: Path, table: dict[str, Any]) -> list[str]:
    value = table.get("more_goldens", [])
    if isinstance(value, list) and all(isinstance(folder, str) for folder in value):
        return value
    raise OptionError(
        f"{path}: tool.aoserial.more_goldens is {value!r:.80}, expected a list of folders"
    )


def _unseen(path: Path, table: dict[str, Any]) -> dict[str, str]:
    value = table.get("unseen", {})
    if not isinstance(value, dict):
        raise OptionError(f"{path}: tool.aoserial.unseen is {value!r:.80}, expected a table")
    for name, why in value.items():
        if not _VERSION.fullmatch(name) or not isinstance(why, str) or not why.strip():
            raise OptionError(
                f"{path}: tool.aoserial.unseen: {name!r:.80} = {why!r:.80}, expected a version as "
                "acme.T@1, and in words why no golden holds it"
            )
    return value


def _writer(path: Path, told: str | None, document: dict[str, Any]) -> str:
    return check_writer(told or _release(path, document.get("project", {})))


def _release(path: Path, project: dict[str, Any]) -> str:
    """Name and version of the project, as its file has them or as it is installed."""
    name, version = project.get("name"), project.get("version")
    if name and not version:
        from importlib import metadata  # 20 ms that a project without goldens need not pay

        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            version = None
    if not name or not version:
        raise OptionError(
            f"{path}: neither project.version nor an installed package says which release records "
            "goldens: set writer under [tool.aoserial]"
        )
    return f"{name}-{version}"
