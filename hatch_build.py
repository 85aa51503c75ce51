"""Compiles the C source of the package where there is a compiler; without one, it does without."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from runpy import run_path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_LIBRARY = "aoserial/kernels/cpu/native/library.py"
_FLAGS = ("-O2", "-fno-trapping-math", "-Wno-psabi", "-fPIC", "-shared")


class NativeBuildHook(BuildHookInterface):
    """A wheel with a library is for one platform, else for any."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version
        if self.target_name != "wheel":
            return
        library = run_path(str(Path(self.root, _LIBRARY)))
        source, made = library["SOURCE"], library["path"]()
        if not made.exists() and not _compiled(source, made):
            return
        build_data["artifacts"].append(f"/{made.relative_to(self.root).as_posix()}")
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"


def _compiled(source: Path, made: Path) -> bool:
    """Whether it could be; what was made of another source goes."""
    for old in made.parent.glob("products-*.so"):
        old.unlink(missing_ok=True)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    with TemporaryDirectory(dir=made.parent) as beside:  # nobody loads the half of a library
        whole = Path(beside, made.name)
        command = [*compiler, *_FLAGS, "-o", str(whole), str(source)]
        try:
            done = subprocess.run(command, check=False, capture_output=True, text=True)
        except OSError as error:
            print(f"aoserial goes without compiled kernels: {error}", file=sys.stderr)
            return False
        if done.returncode != 0:
            print(f"aoserial goes without compiled kernels: {done.stderr[-2000:]}", file=sys.stderr)
            return False
        whole.replace(made)
    return True
