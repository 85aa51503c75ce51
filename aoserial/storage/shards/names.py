"""Names and sizes of shards, as Hugging Face writes them. Torch-free.

A checkpoint `model` of three shards is `model-00001-of-00003.safetensors` and so on, and
`model.safetensors.index.json`. A set that is saved over another, and so must keep off its names,
has some digits of each file's SHA-256 in them: `model-00001-of-00003-0a1b2c3d4e5f.safetensors`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from aoserial.errors import OptionError, ShardIndexError

INDEX_SUFFIX = ".index.json"
DEFAULT_STEM = "model"
DEFAULT_MAX_SHARD_SIZE = "5GB"  # as in huggingface_hub 0.23 and later
SUFFIX = ".safetensors"

# Powers of ten, as in huggingface_hub.
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}

# 48 bits tell the generations of one folder apart; the index holds the whole digest.
_DIGITS = 12

_NAME = re.compile(
    r"(?P<stem>.+)-(?P<number>[0-9]{5,9})-of-(?P<count>[0-9]{5,9})(?P<digest>-[0-9a-f]{12})?"
    r"(?P<suffix>\.[A-Za-z0-9]+)",
    re.ASCII | re.DOTALL,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardName:
    """The name of a shard, taken apart.

    Attributes:
        number, count: which shard of how many, from 1.
        digest: the digits of its SHA-256 that are in the name, or nothing.
        suffix: `.safetensors`, `.bin`.
    """

    stem: str
    number: int
    count: int
    digest: str = ""
    suffix: str = SUFFIX

    def __str__(self) -> str:
        digest = f"-{self.digest[:_DIGITS]}" if self.digest else ""
        return f"{self.stem}-{self.number:05d}-of-{self.count:05d}{digest}{self.suffix}"

    @classmethod
    def parse(cls, name: str) -> ShardName | None:
        """The name taken apart; None when it is not one of a numbered shard."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        return cls(
            stem=match["stem"],
            number=int(match["number"]),
            count=int(match["count"]),
            digest=(match["digest"] or "").removeprefix("-"),
            suffix=match["suffix"],
        )


def gaps(names: Iterable[str]) -> Iterator[ShardIndexError]:
    """A fault for each numbered set among the names that is not whole, or has a number twice."""
    sets: dict[tuple[str, str], dict[int, list[int]]] = {}
    for parsed in filter(None, map(ShardName.parse, names)):
        counts = sets.setdefault((parsed.stem, parsed.suffix), {})
        counts.setdefault(parsed.count, []).append(parsed.number)
    for (stem, suffix), counts in sets.items():
        if len(counts) > 1:
            totals = " and ".join(map(str, sorted(counts)))
            yield ShardIndexError(
                f"the shards {stem}-…{suffix} say that they are of {totals}: of two checkpoints"
            )
            continue
        ((count, numbers),) = counts.items()
        # a count of a billion must not be walked through
        if len(set(numbers)) != len(numbers) or not 1 <= min(numbers) <= max(numbers) <= count:
            found = ", ".join(map(str, sorted(numbers)[:5]))
            yield ShardIndexError(f"the shards {stem}-…{suffix} of {count} are numbered {found}")
        elif len(numbers) < count:
            held = set(numbers)
            first = next(number for number in range(1, count + 1) if number not in held)
            yield ShardIndexError(
                f"{len(numbers)} of the {count} shards {stem}-…{suffix} are named; number {first} "
                f"is not"
            )


def parse_size(size: str | int) -> int:
    """Bytes of a size: an integer, or a number with a unit, `5GB`.

    Raises:
        OptionError: it is neither, or less than a byte.
    """
    if isinstance(size, int) and not isinstance(size, bool):
        found = size
    elif isinstance(size, str):
        found = _parse_text(size)
    else:
        raise OptionError(f"max_shard_size is {size!r:.60}, expected bytes or a text as '5GB'")
    if found < 1:
        raise OptionError(f"max_shard_size is {size!r:.60}, which is no room for anything")
    return found


def _parse_text(size: str) -> int:
    text = size.strip()
    unit = _UNITS.get(text[-2:].upper())
    try:
        number = float(text[:-2].strip())
    except ValueError:
        number = math.nan
    if unit is None or not math.isfinite(number):
        raise OptionError(
            f"max_shard_size is {size!r:.60}, expected a number and a unit "
            f"({', '.join(_UNITS)}), as '5GB'"
        )
    return int(number * unit)


def split(sizes: Mapping[str, int], limit: int) -> list[list[str]]:
    """Names in their order, in as many groups as `limit` bytes a group call for.

    What huggingface_hub's `split_torch_state_dict_into_shards` does: one that is larger than the
    limit is a group of its own, and comes before the one that is being filled.
    """
    groups: list[list[str]] = []
    filling: list[str] = []
    filled = 0
    for name, size in sizes.items():
        if size > limit:
            groups.append([name])
            continue
        if filled + size > limit:
            groups.append(filling)
            filling, filled = [], 0
        filling.append(name)
        filled += size
    if filling or not groups:
        groups.append(filling)
    return groups
