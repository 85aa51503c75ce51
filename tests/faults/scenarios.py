"""What is interrupted: each scenario brings a folder from one state to another.

A scenario for another way of writing is a row more in `SCENARIOS`; the sweeps take it from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import aoserial
from aoserial.storage.safetensors import SafetensorsFile, journal, streaming


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A way of writing.

    Attributes:
        prepare: makes the old state in an empty folder; runs before `declare(2)`.
        act: does what is interrupted, in the folder.
        target: what a reader opens, by name; it may be absent in the old state.
        sources: how the paths of files begin that may not change, whatever happens.
        exact: all files of the folder are, byte for byte, those of the old state or those of the
            new one, once a reader has opened the target; otherwise what is read alone counts (a set
            of shards may leave files that nothing names).
        again: what a user does after an interruption; the folder then holds, byte for byte, what it
            would have held without it.
    """

    name: str
    prepare: Callable[[Path], object]
    act: Callable[[Path], object]
    target: str = "model.safetensors"
    sources: tuple[str, ...] = ()
    exact: bool = True
    again: Callable[[Path], object] | None = None

    def read(self, folder: Path) -> Any:
        """What a reader makes of the target, as data that can be compared; None when absent.

        Raises when the file is not whole: everything that has a checksum is compared with it.
        """
        path = folder / self.target
        if not os.path.exists(path):
            return None
        verdict = aoserial.verify(path, deep=True)
        assert verdict, verdict.faults
        with aoserial.open(path) as checkpoint:
            return {name: _spelled(checkpoint, name) for name in checkpoint}


def _spelled(checkpoint: Any, name: str) -> Any:
    if name not in checkpoint.catalog.plain:
        record = checkpoint.record(name)
        parts = {part: _bytes(value.read()) for part, value in record.parts.items()}
        return record.type, record.version, parts
    return _bytes(checkpoint[name])


def _bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist())


def declare(version: int) -> tuple[type[aoserial.VersionedTensor], type[aoserial.VersionedTensor]]:
    """Two types at version 1 or 2: to rename a part of the one, to compute one of the other."""
    if version == 1:

        class Renamed(aoserial.VersionedTensor):
            qdata: torch.Tensor
            scale: torch.Tensor

        class Scaled(aoserial.VersionedTensor):
            qdata: torch.Tensor
            inverse_scale: torch.Tensor

    else:

        class Renamed(aoserial.VersionedTensor):
            codes: torch.Tensor
            scale: torch.Tensor

        class Scaled(aoserial.VersionedTensor):
            qdata: torch.Tensor
            scale: torch.Tensor

        @aoserial.migration("faults.Renamed", 1, 2)
        def rename_the_codes(record):
            return record.at(2).rename(qdata="codes")

        @aoserial.migration("faults.Scaled", 1, 2)
        def invert_the_scale(record):
            old = record.parts["inverse_scale"]
            new = aoserial.compute(lambda s: 1 / s, old, dtype=old.dtype, shape=old.shape)
            return record.at(2).drop("inverse_scale").put(scale=new)

    return (
        aoserial.register("faults.Renamed", version=version)(Renamed),
        aoserial.register("faults.Scaled", version=version)(Scaled),
    )


def plain(value: int) -> dict[str, torch.Tensor]:
    return {
        "bias": torch.full((5,), float(value)),
        "norm": torch.full((16, 16), value, dtype=torch.int32),
        "wide": torch.full((3000,), value, dtype=torch.int16),
    }


def _save_plain(name: str, value: int) -> Callable[[Path], None]:
    return lambda folder: aoserial.save(plain(value), folder / name)


def _typed(which: int) -> dict[str, torch.Tensor]:
    made = declare(1)[which]
    state = {
        f"layer.{i}.weight": made(torch.full((40, 40), i + 1.0), torch.full((40, 1), 4.0))
        for i in range(3)
    }
    return state | plain(1)


def _save_typed(which: int) -> Callable[[Path], None]:
    return lambda folder: aoserial.save(_typed(which), folder / "model.safetensors")


def _save_typed_shards(folder: Path) -> None:
    aoserial.save(_typed(1), folder / "old", max_shard_size=9000)
    (folder / "old" / "config.json").write_text("{}")


def _migrate_shards(*, resume: bool) -> Callable[[Path], object]:
    return lambda folder: aoserial.migrate(folder / "old", f"{folder}/new/", resume=resume)


def _migrate_beside(folder: Path) -> None:
    aoserial.migrate(folder / "model.safetensors", folder / "new.safetensors")


def _migrate_in_place(folder: Path) -> None:
    aoserial.migrate(folder / "model.safetensors", in_place=True)


def _save_what_is_mapped(folder: Path) -> None:
    path = folder / "model.safetensors"
    state = aoserial.load(path)
    state["bias"] += 1
    aoserial.save(state | {"more": state["norm"][:3]}, path)


def _save_with_writeback(folder: Path) -> None:
    with patch.multiple(streaming, BLOCK_BYTES=1024, _WRITEBACK_BYTES=2048):
        _save_plain("model.safetensors", 2)(folder)


def _save_shards(value: int) -> Callable[[Path], None]:
    return lambda folder: aoserial.save(plain(value), folder, max_shard_size=4000)


def _save_archive_of_ours(folder: Path) -> None:
    aoserial.save({"model": plain(2), "step": 7}, folder / "model.pt")


def _link(folder: Path) -> None:
    (folder / "blobs").mkdir()
    _save_plain("blobs/real", 1)(folder)
    (folder / "model.safetensors").symlink_to("blobs/real")


def _tear(folder: Path) -> None:
    """A file whose header was half written, and the journal of that."""
    path = folder / "model.safetensors"
    _save_plain(path.name, 1)(folder)
    with SafetensorsFile.open(path) as file:
        old = file.header.raw
    new = old.replace(b'"norm"', b'"morn"').replace(b'"wide"', b'"edit"')
    half = len(old.rstrip()) // 2
    with path.open("r+b") as stream:
        stream.seek(8)
        stream.write(new[:half])
    Path(journal.journal_path(str(path))).write_bytes(journal.Journal(old, new).encode())


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        name="save to a fresh name",
        prepare=lambda folder: None,
        act=_save_plain("model.safetensors", 2),
    ),
    Scenario(
        name="save over a file",
        prepare=_save_plain("model.safetensors", 1),
        act=_save_plain("model.safetensors", 2),
    ),
    Scenario(
        name="save with writeback beside it",
        prepare=_save_plain("model.safetensors", 1),
        act=_save_with_writeback,
    ),
    Scenario(
        name="save over the file the tensors are mapped from",
        prepare=_save_plain("model.safetensors", 1),
        act=_save_what_is_mapped,
    ),
    Scenario(name="save through a symlink", prepare=_link, act=_save_plain("model.safetensors", 2)),
    Scenario(
        name="save a .pt",
        prepare=_save_plain("model.pt", 1),
        act=_save_archive_of_ours,
        target="model.pt",
    ),
    Scenario(
        name="migrate to another file",
        prepare=_save_typed(1),
        act=_migrate_beside,
        target="new.safetensors",
        sources=("model.safetensors",),
    ),
    Scenario(name="migrate in place, data too", prepare=_save_typed(1), act=_migrate_in_place),
    Scenario(name="migrate in place, header only", prepare=_save_typed(0), act=_migrate_in_place),
    Scenario(
        name="read a file whose header was half written",
        prepare=_tear,
        act=lambda folder: aoserial.load(folder / "model.safetensors"),
    ),
    Scenario(
        name="save a set of shards over another",
        prepare=_save_shards(1),
        act=_save_shards(2),
        target="model.safetensors.index.json",
        exact=False,
        again=_save_shards(2),
    ),
    Scenario(
        name="migrate a set to another folder, and go on with it",
        prepare=_save_typed_shards,
        act=_migrate_shards(resume=False),
        target="new/model.safetensors.index.json",
        sources=("old/",),
        exact=False,
        again=_migrate_shards(resume=True),
    ),
)
