"""The `aoserial` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line; the entry point of the `aoserial` script."""
    try:
        from aoserial.cli.app import run  # its packages are an extra, so their absence is explained
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.stderr.write(
            f"aoserial: the command line needs {error.name}, which is not installed: "
            f"pip install 'aoserial[cli]'\n"
        )
        sys.exit(2)
    sys.exit(run())
