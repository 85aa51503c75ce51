"""Writes a safetensors file part by part: no clones, checksums on the way. Torch-free to import."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from aoserial.errors import IntegrityError, OptionError, UnsupportedTensorError, locating
from aoserial.storage.atomic import AtomicFile, Durability
from aoserial.storage.dtypes import BY_NAME
from aoserial.storage.part import Part, TensorPart
from aoserial.storage.progress import Progress
from aoserial.storage.safetensors.copying import in_reading_order, spans, stored_in
from aoserial.storage.safetensors.grammar import quoted
from aoserial.storage.safetensors.layout import order, render_header
from aoserial.storage.safetensors.streaming import BLOCK_BYTES, Stream

# Called with the planned header and a CRC-32 for each part in data order; gives the header to be
# written, of the same length.
Finish: TypeAlias = Callable[[bytes, list[int]], bytes]


class Saved(NamedTuple):
    """What was written.

    Attributes:
        header: its text as in the file, padding included.
        crcs: CRC-32 of each part, in data order.
        nbytes: length of the file.
        sha256: of the file, where it was asked for.
    """

    header: bytes
    crcs: list[int]
    nbytes: int
    sha256: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A file of which every byte has its place.

    Attributes:
        parts: in data order.
        header: its text, padding included, but for what is known when the data is written.
        nbytes: length of the file.
    """

    parts: dict[str, Part]
    header: bytes
    nbytes: int

    def offsets(self) -> dict[str, int]:
        """Where in the file each part begins."""
        found, end = {}, 8 + len(self.header)
        for name, part in self.parts.items():
            found[name] = end
            end += part.nbytes
        return found


def plan_safetensors(parts: Mapping[str, Part], metadata: Mapping[str, str]) -> Planned:
    """Lays a file out.

    Args:
        parts: by name; the order of the file is that of `layout.order`.
        metadata: the free text map.

    Raises:
        TensorNameError, UnsupportedTensorError, LimitError: what no file can hold.
    """
    for name, part in parts.items():
        with locating(name=name):
            _check_storable(part)
    ordered = {name: parts[name] for name in order(parts)}
    header = render_header(ordered, metadata)
    data = sum(part.nbytes for part in parts.values())
    return Planned(parts=ordered, header=header, nbytes=8 + len(header) + data)


def write_safetensors(
    path: str | os.PathLike[str],
    parts: Mapping[str, Part],
    *,
    metadata: Mapping[str, str],
    checksums: Mapping[str, int] | None = None,
    finish: Finish | None = None,
    durability: Durability = "fsync",
    progress: Progress | None = None,
) -> Saved:
    """Saves `parts` as one safetensors file, atomically.

    Args:
        path: the target; see `AtomicFile`. It may be the file that the parts lie in.
        parts: by name; the order of the file is that of `layout.order`.
        metadata: the free text map.
        checksums: the CRC-32 of parts, by name, as far as the files say that they lie in. These are
            copied as they are, and keep it: bytes that were damaged stay known to be.
        finish: gives the final header once the checksums are known.
        durability: see `Durability`; "fsync+verify" reads the file back and checks every byte.
        progress: called now and then with the bytes done and the bytes in all.

    Raises:
        TensorNameError, UnsupportedTensorError, LimitError: before anything is written.
        SaveError: the file system refused; the target is as it was unless `state` says otherwise.
        Whatever reading a part raises: the target is as it was.
    """
    planned = plan_safetensors(parts, metadata)
    return write_planned(
        path,
        planned,
        checksums=checksums,
        finish=finish,
        durability=durability,
        progress=progress,
    )


def write_planned(
    path: str | os.PathLike[str],
    planned: Planned,
    *,
    checksums: Mapping[str, int] | None = None,
    finish: Finish | None = None,
    durability: Durability = "fsync",
    progress: Progress | None = None,
    name: Callable[[str], str] | None = None,
) -> Saved:
    """`write_safetensors` of a file that was laid out.

    Args:
        name: called with the SHA-256 of the finished file; gives the path that it is to have, in
            the folder of `path`.
    """
    parts, header = planned.parts, planned.header
    known = {
        key: crc for key, crc in (checksums or {}).items() if stored_in(parts[key]) is not None
    }
    crcs = [known.get(key, 0) for key in parts]
    offsets = planned.offsets()

    def verify(file: AtomicFile) -> None:
        _verify(file, header, parts, crcs)

    with AtomicFile(path, durability=durability, size=planned.nbytes, verify=verify) as file:
        file.position = 8 + len(header)
        with Stream(file, crcs, progress) as stream:
            for span in spans(parts, offsets, known):
                stream.copy(span)
            places = {key: index for index, key in enumerate(parts) if key not in known}
            for key in in_reading_order(parts, places, BLOCK_BYTES):
                stream.add(places[key], key, parts[key], offsets[key])
        if finish is not None:
            header = finish(header, list(crcs))
            if len(header) != len(planned.header):
                raise OptionError(
                    f"finish() gave {len(header)} bytes of header where {len(planned.header)} are "
                    f"reserved"
                )
        file.pwrite(len(header).to_bytes(8, "little") + header, 0)
        digest = ""
        if name is not None:
            digest = _sha256(file)
            file.rename_to(name(digest))
    return Saved(header, crcs, planned.nbytes, digest)


def _sha256(file: AtomicFile) -> str:
    """The SHA-256 of a finished file, while the disk is asked to take what it does not have yet.

    The header comes first and is known last, so the file has to be read again: from the memory of
    the system, unless it is larger than that.
    """
    from concurrent.futures import ThreadPoolExecutor  # 9 ms that only writing pays

    digest = hashlib.sha256()
    with ThreadPoolExecutor(1, "aoserial-writeback") as writeback:
        synced = writeback.submit(file.start_writeback)
        offset = 0
        while chunk := file.pread(BLOCK_BYTES, offset):
            digest.update(chunk)
            offset += len(chunk)
        synced.result()
    return digest.hexdigest()


def _check_storable(part: Part) -> None:
    import torch  # torch-free module until here

    if part.dtype not in BY_NAME:
        raise UnsupportedTensorError(f"safetensors has no dtype {part.dtype}")
    for leaf in part.leaves():
        if isinstance(leaf, TensorPart):
            tensor = leaf.tensor
            if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
                raise UnsupportedTensorError(
                    f"a tensor without plain bytes cannot be stored: {tensor.dtype}, "
                    f"{tensor.layout}, on {tensor.device}"
                )


def _verify(file: AtomicFile, header: bytes, parts: Mapping[str, Part], crcs: list[int]) -> None:
    """Reads the finished file back; raises `IntegrityError` unless it is what was written."""
    if file.pread(8 + len(header), 0) != len(header).to_bytes(8, "little") + header:
        raise IntegrityError("the header read back from the new file is not the one written")
    offset = 8 + len(header)
    for (name, part), crc in zip(parts.items(), crcs, strict=True):
        end, found = offset + part.nbytes, 0
        while offset < end:
            data = file.pread(min(BLOCK_BYTES, end - offset), offset)
            if not data:
                break
            found = zlib.crc32(data, found)
            offset += len(data)
        if found != crc or offset != end:
            raise IntegrityError(
                f"the bytes of {quoted(name)} read back from the new file do not have the checksum "
                f"of those written"
            )
