"""Where a project keeps its goldens: `[tool.aoserial]` of its pyproject.toml. Torch-free.

    [tool.aoserial]
    cases = "tests/golden_cases.py"     # required
    goldens = "goldens"                 # the folder of the golden files
    schemas = "schemas"                 # the folder of frozen schemas
    types = "acme."                     # of which frozen schemas need goldens; all of them
    writer = "acme-1.0"                 # the release that records; name and version of the project

Only the first is required; without it a project has no goldens.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aoserial.errors import MissingFileError, OptionError

_KEYS = ("cases", "goldens", "schemas", "types", "writer")
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
    """

    root: Path
    cases: Path
    goldens: Path
    schemas: Path | None
    types: str
    writer: str


def find_settings(root: Path) -> Settings | None:
    """The settings of the project in a folder; None when it declares no golden cases.

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
    names = {key: _text(path, table, key) for key in _KEYS}
    schemas = root / (names["schemas"] or "schemas")
    return Settings(
        root=root,
        cases=root / str(names["cases"]),
        goldens=root / (names["goldens"] or "goldens"),
        schemas=schemas if names["schemas"] or schemas.is_dir() else None,
        types=names["types"] or "",
        writer=check_writer(names["writer"] or _release(path, document.get("project", {}))),
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
