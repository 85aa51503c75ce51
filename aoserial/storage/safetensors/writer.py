"""Writes a safetensors file part by part: no clones, checksums on the way. Torch-free to import.

Bytes go through a few blocks of our own. That copy, which stays in the cache, buys three things: it
needs no other library to get at a tensor's bytes, tensors on a GPU need no copy in memory first,
and the checksum is of the bytes written even if somebody changes the tensor meanwhile. While the
main thread fills and writes one block, a second thread checksums the one before it and a third asks
the disk to take what is there, so that the final fsync finds little to do.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

from aoserial.errors import (
    IntegrityError,
    MigrationError,
    OptionError,
    UnsupportedTensorError,
    locating,
)
from aoserial.storage.atomic import AtomicFile, Durability
from aoserial.storage.dtypes import BY_NAME
from aoserial.storage.part import Part, TensorPart, ViewPart, describe
from aoserial.storage.safetensors.grammar import quoted
from aoserial.storage.safetensors.layout import order, render_header
from aoserial.storage.safetensors.reader import FilePart

if TYPE_CHECKING:
    from concurrent.futures import Future

    import torch

# Called with bytes written so far and in all, header included.
Progress: TypeAlias = Callable[[int, int], None]

# Called with the planned header and a CRC-32 for each part in data order; gives the header to be
# written, of the same length.
Finish: TypeAlias = Callable[[bytes, list[int]], bytes]

# Large enough that a system call and a hand-over between threads cost nothing beside it, small
# enough to stay in the cache from the copy to the checksum to the write.
_BLOCK_BYTES = 2 * 2**20
_BLOCKS = 4

# How much may be written before the disk is asked to start on it.
_WRITEBACK_BYTES = 64 * 2**20


# torch copies fewer elements than this in the calling thread, and more in all threads of its pool,
# which then go on spinning where the checksum should run: twice the time in all on two cores.
_SERIAL = 32_767


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
    finish: Finish | None = None,
    durability: Durability = "fsync",
    progress: Progress | None = None,
) -> Saved:
    """Saves `parts` as one safetensors file, atomically.

    Args:
        path: the target; see `AtomicFile`. It may be the file that the parts lie in.
        parts: by name; the order of the file is that of `layout.order`.
        metadata: the free text map.
        finish: gives the final header once the checksums are known.
        durability: see `Durability`; "fsync+verify" reads the file back and checks every byte.
        progress: called now and then with the bytes done and the bytes in all.

    Raises:
        TensorNameError, UnsupportedTensorError, LimitError: before anything is written.
        SaveError: the file system refused; the target is as it was unless `state` says otherwise.
        Whatever reading a part raises: the target is as it was.
    """
    planned = plan_safetensors(parts, metadata)
    return write_planned(path, planned, finish=finish, durability=durability, progress=progress)


def write_planned(
    path: str | os.PathLike[str],
    planned: Planned,
    *,
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
    crcs = [0] * len(parts)

    def verify(file: AtomicFile) -> None:
        _verify(file, header, parts, crcs)

    with AtomicFile(path, durability=durability, size=planned.nbytes, verify=verify) as file:
        file.position = 8 + len(header)
        with _Stream(file, crcs, progress) as stream:
            for index, (key, part) in enumerate(parts.items()):
                with locating(name=key):
                    copy = _copier(part)
                stream.add(index, part.nbytes, copy)
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


class _Block:
    """A buffer that is filled, then written and checksummed at the same time."""

    def __init__(self) -> None:
        import torch  # torch-free module until here

        buffer = bytearray(_BLOCK_BYTES)
        self.view = memoryview(buffer)
        self.tensor = torch.frombuffer(buffer, dtype=torch.uint8)
        self.used = 0
        self.pieces: list[tuple[int, int, int]] = []  # (index of the part, begin, end in the block)
        self.checksummed: Future[None] | None = None

    def wait(self) -> None:
        """Until the block may be filled again."""
        if self.checksummed is not None:
            self.checksummed.result()
        self.used = 0
        self.pieces = []


# Called with `begin`, `block`, `count`: appends so many bytes from `begin` on to the block.
_Copier: TypeAlias = Callable[[int, _Block, int], None]


class _Stream:
    """The parts' bytes on their way through the blocks into the file."""

    def __init__(self, file: AtomicFile, crcs: list[int], progress: Progress | None) -> None:
        self._file = file
        self._crcs = crcs
        self._progress = progress
        self._unsynced = 0
        self._synced: Future[None] | None = None
        from concurrent.futures import ThreadPoolExecutor  # 9 ms that only writing pays

        self._blocks = [_Block() for _ in range(_BLOCKS)]
        self._current = 0
        # one thread for checksums keeps the pieces of a part in order
        self._checksums = ThreadPoolExecutor(1, "aoserial-checksum")
        self._writeback = ThreadPoolExecutor(1, "aoserial-writeback")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._flush()
                for block in self._blocks:
                    block.wait()
                if self._synced is not None:
                    self._synced.result()
        finally:
            # both use the file, which is closed next
            self._checksums.shutdown(cancel_futures=True)
            self._writeback.shutdown(cancel_futures=True)

    def add(self, index: int, count: int, copy: _Copier) -> None:
        """Appends the `count` bytes that `copy` gives as those of the part number `index`."""
        done = 0
        while done < count:
            block = self._blocks[self._current]
            step = min(count - done, _BLOCK_BYTES - block.used)
            copy(done, block, step)
            block.pieces.append((index, block.used, block.used + step))
            block.used += step
            done += step
            if block.used == _BLOCK_BYTES:
                self._flush()

    def _flush(self) -> None:
        block = self._blocks[self._current]
        if not block.used:
            return
        block.checksummed = self._checksums.submit(_checksum, block, self._crcs)
        self._file.write(block.view[: block.used])
        self._start_writeback(block.used)
        if self._progress is not None:
            self._progress(self._file.position, self._file.size)
        self._current = (self._current + 1) % _BLOCKS
        self._blocks[self._current].wait()

    def _start_writeback(self, count: int) -> None:
        self._unsynced += count
        if self._unsynced < _WRITEBACK_BYTES:
            return
        if self._synced is not None:
            if not self._synced.done():
                return
            self._synced.result()  # raises what the disk had to say
        self._unsynced = 0
        self._synced = self._writeback.submit(self._file.start_writeback)


def _copier(part: Part) -> _Copier:
    """What appends the bytes of a part to a block; reads the part, unless it lies in a file."""
    stored = part.base if isinstance(part, ViewPart) else part
    if isinstance(stored, FilePart):
        source, offset = stored.source, stored.offset

        def read(begin: int, block: _Block, count: int) -> None:
            # not through the mapping, whose pages would stay in memory
            source.pread_into(offset + begin, block.view[block.used : block.used + count])

        return read

    flat: torch.Tensor = part.read_bytes()
    if flat.numel() != part.nbytes:
        raise MigrationError(
            f"{describe(part)} gave {flat.numel()} bytes when read, but {part.nbytes} were planned"
        )

    def copy(begin: int, block: _Block, count: int) -> None:
        _copy(flat[begin : begin + count], block.tensor[block.used : block.used + count])

    return copy


def _copy(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copies flat bytes without waking torch's thread pool."""
    import torch  # torch-free module until here

    if len(source) <= _SERIAL or source.device.type != "cpu":
        target.copy_(source)
        return
    offsets = int(source.storage_offset()) | int(target.storage_offset()) | source.data_ptr()
    if (offsets | len(source)) % 8 == 0:  # the fewer elements, the fewer pieces
        source, target = source.view(torch.int64), target.view(torch.int64)
    for start in range(0, len(source), _SERIAL):
        target[start : start + _SERIAL].copy_(source[start : start + _SERIAL])


def _checksum(block: _Block, crcs: list[int]) -> None:
    for index, begin, end in block.pieces:
        crcs[index] = zlib.crc32(block.view[begin:end], crcs[index])


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
        while chunk := file.pread(_BLOCK_BYTES, offset):
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
            data = file.pread(min(_BLOCK_BYTES, end - offset), offset)
            if not data:
                break
            found = zlib.crc32(data, found)
            offset += len(data)
        if found != crc or offset != end:
            raise IntegrityError(
                f"the bytes of {quoted(name)} read back from the new file are not those written"
            )
