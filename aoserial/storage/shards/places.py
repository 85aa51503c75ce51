"""Where the shards of an index lie: in its folder, and nowhere else. Torch-free.

A name in an index is somebody's text. It may only be the name of a file in the index's own folder,
and that file may be a link only to one inside the folder, or into the store of Hugging Face's
cache: `<repository>/snapshots/<revision>/model.safetensors` is a link to
`<repository>/blobs/<digest>`.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence

from aoserial.errors import AoserialError, MissingShardError, PathError, raise_all
from aoserial.storage.safetensors.grammar import quoted
from aoserial.storage.source import kind_of

# Of a name that is none of a file beside the index, here or on any other system
_REFUSED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\Z"), "it is empty"),
    (re.compile(r"\.{1,2}\Z"), "it names a folder"),
    (re.compile(r".*[/\\]", re.DOTALL), "it leads to another folder"),
    (re.compile(r"[A-Za-z]:"), "it begins with a drive letter"),
    (re.compile(r".*[\0-\x1f\x7f-\x9f\ud800-\udfff]", re.DOTALL), "it has a control character"),
)


def resolve(
    folder: str, shards: Mapping[str, Sequence[str]]
) -> tuple[dict[str, str], list[AoserialError]]:
    """Name of each shard → the path of the file itself, all links followed; opens none.

    Args:
        shards: name → the keys of what should be in it.

    Returns:
        The paths of those that are there, and a `MissingShardError` for each that is not.

    Raises:
        PathError: a name that is none, a link that leads out, a FIFO, a device, a folder; `Faults`
            with all of them.
    """
    raise_all("the index names files that it may not name", list(_bad_names(shards)))
    places: dict[str, str] = {}
    missing: list[AoserialError] = []
    refused: list[AoserialError] = []
    allowed = _allowed(folder)
    for name, keys in shards.items():
        try:
            places[name] = _place(folder, name, len(keys), allowed)
        except MissingShardError as fault:
            missing.append(fault.locate(shard=name))
        except PathError as fault:
            refused.append(fault.locate(shard=name))
    raise_all("the index names files that are not read", refused)
    return places, missing


def _bad_names(names: Iterable[str]) -> Iterator[PathError]:
    folded: dict[str, str] = {}
    for name in names:
        for pattern, why in _REFUSED:
            if pattern.match(name):
                yield PathError(
                    f"the index names the file {quoted(name)}, but {why}", errno=errno.EINVAL
                ).locate(shard=name)
                break
        other = folded.setdefault(name.casefold(), name)
        if other != name:
            yield PathError(
                f"the index names {quoted(other)} and {quoted(name)}, which are one file where "
                f"capitals do not count",
                errno=errno.EINVAL,
            ).locate(shard=name)


def _place(folder: str, name: str, tensors: int, allowed: list[str]) -> str:
    path = os.path.join(folder, name)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError as error:
        link = " (it is a link to what is not there)" if os.path.islink(path) else ""
        raise MissingShardError(
            f"the index has {tensors} tensors in this shard, and there is no such file{link}",
            errno=error.errno,
        ) from None
    except OSError as error:
        raise PathError(f"cannot be opened: {error.strerror}", errno=error.errno) from None
    if not stat.S_ISREG(mode):
        raise PathError(f"this is {kind_of(mode)}, not a regular file", errno=errno.EINVAL)
    place = os.path.realpath(path)
    if not any(os.path.commonpath((place, root)) == root for root in allowed):
        raise PathError("is a link that leads out of the checkpoint's folder", errno=errno.EXDEV)
    return place


def refuse_links(folder: str, names: Iterable[str]) -> None:
    """Raises a PathError for a file that is a link to another folder: no writer may replace it."""
    inside = os.path.realpath(folder or ".")
    for name in names:
        path = os.path.join(folder, name)
        if os.path.islink(path) and os.path.dirname(os.path.realpath(path)) != inside:
            raise PathError(
                f"{name} is a link that leads out of the folder, as in Hugging Face's cache; what "
                f"it points to belongs to others, so save to a folder of your own",
                errno=errno.EXDEV,
            )


def _allowed(folder: str) -> list[str]:
    """The folder, and the store of the Hugging Face cache that it is a snapshot in, if it is."""
    root = os.path.realpath(folder)
    snapshots, revision = os.path.dirname(root), os.path.basename(root)
    while os.path.basename(snapshots) != "snapshots" and revision:  # a folder inside a snapshot
        snapshots, revision = os.path.dirname(snapshots), os.path.basename(snapshots)
    if not revision:
        return [root]
    return [root, os.path.join(os.path.dirname(snapshots), "blobs")]
