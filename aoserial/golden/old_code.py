"""Goldens of a version whose code was edited since: recorded by an earlier commit's code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from aoserial.errors import SchemaError
from aoserial.gate.git import export
from aoserial.golden.settings import Settings, settings_of
from aoserial.golden.store import Golden, Store
from aoserial.migrations import spell
from aoserial.migrations.step import Version

_COMMAND = "from aoserial.cli import main; main()"  # of the aoserial that runs now


def holds(settings: Settings, version: Version) -> bool:
    """Whether a golden of the project shows that type and version."""
    return any(spell(version) in golden.versions for golden in Store(settings.goldens))


def record_at(settings: Settings, ref: str, version: Version) -> list[Path]:
    """Records goldens of a version with the project's code of a commit, in a process of its own.

    The commit's tree is written to a folder that goes away; what its cases write and no golden here
    holds is brought home.

    Returns:
        the folders of the goldens that show the version.

    Raises:
        OptionError: no such commit.
        SchemaError: its code does not record, or none of its cases writes the version.
    """
    with tempfile.TemporaryDirectory(prefix="aoserial-goldens-") as folder:
        root = export(settings.root, ref, Path(folder))
        said = _record(root)
        recorded = [
            golden
            for golden in Store(settings_of(root).goldens)
            if spell(version) in golden.versions and not _here(golden, settings).folder.exists()
        ]
        if not recorded:
            raise SchemaError(
                f"no golden case of {ref} writes {spell(version)}; declare one there and record it"
                + (f" ({said})" if said else "")
            )
        return [_bring_home(golden, settings) for golden in recorded]


def _record(root: Path) -> str:
    """Runs `aoserial golden record` on the tree; returns its complaint, if it has one."""
    paths = [root, root / "src", *map(Path, filter(None, sys.path))]
    done = subprocess.run(
        [sys.executable, "-B", "-c", _COMMAND, "golden", "record", str(root)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.strip()


def _here(golden: Golden, settings: Settings) -> Golden:
    return Store(settings.goldens).place(golden.writer, golden.case)


def _bring_home(golden: Golden, settings: Settings) -> Path:
    home = _here(golden, settings)
    shutil.copytree(golden.folder, home.folder)
    Store(settings.goldens).add(home)
    return home.folder
