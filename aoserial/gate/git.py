"""Files of a commit, read out of git's own store: nothing is ever checked out. Torch-free."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from aoserial.errors import OptionError

_BLOB = "blob"


def files_at(folder: Path, ref: str) -> dict[str, bytes]:
    """The JSON files that `folder` has in a commit, by path from the folder; none if it had none.

    Raises:
        OptionError: no git, no work tree around the folder, or no such commit.
    """
    commit = resolve_ref(folder, ref)
    listed = _git(folder, "ls-tree", "-r", "-z", commit, "--", ".").decode()
    names: list[str] = []
    objects: list[str] = []
    for line in filter(None, listed.split("\0")):
        facts, _, name = line.partition("\t")
        _, kind, blob = facts.split()
        if kind == _BLOB and name.endswith(".json"):
            names.append(name)
            objects.append(blob)
    return dict(zip(names, _blobs(folder, objects), strict=True))


def resolve_ref(folder: Path, ref: str) -> str:
    """The id of the commit that `ref` names.

    Raises:
        OptionError: as `files_at` does.
    """
    if not ref or ref.startswith("-") or "\0" in ref:
        raise OptionError(f"{ref!r} is no name of a commit")
    return _git(folder, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").decode().strip()


def export(folder: Path, ref: str, target: Path) -> Path:
    """Writes the tree of a commit into `target`, and returns where in it `folder` is.

    Raises:
        OptionError: as `files_at` does.
    """
    commit = resolve_ref(folder, ref)
    top = _git(folder, "rev-parse", "--show-toplevel").decode().rstrip("\n")
    prefix = _git(folder, "rev-parse", "--show-prefix").decode().rstrip("\n")
    packed = _git(Path(top), "archive", "--format=tar", commit)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(target, filter="data")
    return target / prefix


def _blobs(folder: Path, objects: list[str]) -> list[bytes]:
    """The contents of git's objects, in one process for all of them."""
    answer = _git(folder, "cat-file", "--batch", given="".join(f"{one}\n" for one in objects))
    contents, at = [], 0
    for _ in objects:
        end = answer.index(b"\n", at)
        size = int(answer[at:end].split()[2])  # "<id> blob <size>"
        contents.append(answer[end + 1 : end + 1 + size])
        at = end + 1 + size + 1
    return contents


def _git(folder: Path, *arguments: str, given: str = "") -> bytes:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            input=given.encode(),
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise OptionError(f"git does not run: {error}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise OptionError(said[0] if said else "git knows no such commit here")
    return done.stdout
