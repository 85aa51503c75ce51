"""Environments with one release of aoserial or torchao, made for a report and thrown away."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from aoserial.errors import OptionError

# What a release needs beside itself to be at its best. torchao asks for nothing, and without NumPy
# neither do many of its modules import nor does safetensors give it a tensor.
_BESIDE = {"aoserial": ("safetensors",), "torchao": ("safetensors", "numpy", "torch")}
_AS_HERE = {"torch"}  # in the release that runs here
_RELEASE = re.compile(r"(aoserial|torchao)==([0-9][0-9A-Za-z.+]*)", re.ASCII)


def package_of(release: str) -> str:
    """The package of `torchao==0.18.0`.

    Raises:
        OptionError: it does not look so.
    """
    match = _RELEASE.fullmatch(release)
    if match is None:
        raise OptionError(
            f"reader {release!r:.80} is not aoserial==VERSION or torchao==VERSION; for others, "
            "give a Python that has it with --reader-python"
        )
    return match[1]


def environment_with(release: str, folder: Path) -> Path:
    """Makes a virtual environment with a release, and gives its Python.

    Installs from the package index that pip is set up for.

    Raises:
        OptionError: it cannot be installed; with the last line that pip said.
    """
    beside = map(_spell, _BESIDE[package_of(release)])
    python = folder / "bin/python"
    for words in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", release,
         *beside],
    ):  # fmt: skip
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise OptionError(
                f"reader {release} cannot be installed: {said[-1] if said else words[1]}"
            )
    return python


def _spell(package: str) -> str:
    if package not in _AS_HERE:
        return package
    from importlib import metadata

    return f"{package}=={metadata.version(package).partition('+')[0]}"
