"""Bytes on their way into a safetensors file, checksummed as they pass. Torch-free to import.

They go through a few blocks of our own. That copy, which stays in the cache, buys three things: it
needs no other library to get at a tensor's bytes, tensors on a GPU need no copy in memory first,
and the checksum is of the bytes written even if somebody changes the tensor meanwhile. While the
main thread fills and writes one block, a second thread checksums the one before it and a third asks
the disk to take what is there, so that the final fsync finds little to do.

What has a checksum already and lies in a file goes past all that, from file to file.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from aoserial.errors import MigrationError, locating
from aoserial.storage.atomic import AtomicFile
from aoserial.storage.computed import PIECE_BYTES
from aoserial.storage.part import Part, describe
from aoserial.storage.progress import Progress
from aoserial.storage.safetensors.copying import Span, stored_in

if TYPE_CHECKING:
    from concurrent.futures import Future

    import torch

# Large enough that a system call and a hand-over between threads cost nothing beside it, small
# enough to stay in the cache from the copy to the checksum to the write.
BLOCK_BYTES = 2 * 2**20
_BLOCKS = 4

# How much may be written before the disk is asked to start on it.
_WRITEBACK_BYTES = 64 * 2**20

# How much is copied from file to file between two looks at the clock.
_RANGE_BYTES = 64 * 2**20

# torch copies fewer elements than this in the calling thread, and more in all threads of its pool,
# which then go on spinning where the checksum should run: twice the time in all on two cores.
_SERIAL = 32_767


class _Block:
    """A buffer that is filled, then written and checksummed at the same time."""

    def __init__(self) -> None:
        import torch  # torch-free module until here

        buffer = bytearray(BLOCK_BYTES)
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


class Stream:
    """The parts' bytes on their way through the blocks into the file."""

    def __init__(self, file: AtomicFile, crcs: list[int], progress: Progress | None) -> None:
        self._file = file
        self._crcs = crcs
        self._progress = progress
        self._written = file.position
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

    def copy(self, span: Span) -> None:
        """Copies bytes of another file without looking at them."""
        for done in range(0, span.nbytes, _RANGE_BYTES):
            step = min(_RANGE_BYTES, span.nbytes - done)
            self._file.copy(span.source, span.start + done, step, span.offset + done)
            self._wrote(step)

    def add(self, index: int, name: str, part: Part, offset: int) -> None:
        """Writes the bytes of the part with that number and name to `offset`."""
        if part.nbytes and offset != self._file.position + self._blocks[self._current].used:
            self._flush()
            self._file.position = offset
        stored = stored_in(part)
        if stored is not None:
            for begin, block, step in self._steps(index, part.nbytes):
                # not through the mapping, whose pages would stay in memory
                place = stored.offset + begin
                stored.source.pread_into(place, block.view[block.used : block.used + step])
            return
        done = 0
        for piece in _made(part, name):
            done += piece.numel()
            if done > part.nbytes:
                break
            for begin, block, step in self._steps(index, piece.numel()):
                target = block.tensor[block.used : block.used + step]
                _copy(piece[begin : begin + step], target)
        if done != part.nbytes:
            raise MigrationError(
                f"{describe(part)} gave {done} bytes when read, but {part.nbytes} were planned"
            ).locate(name=name)

    def _steps(self, index: int, count: int) -> Iterator[tuple[int, _Block, int]]:
        """Where `count` bytes go: offset among them, block, and how many are to be put there."""
        done = 0
        while done < count:
            block = self._blocks[self._current]
            step = min(count - done, BLOCK_BYTES - block.used)
            yield done, block, step
            block.pieces.append((index, block.used, block.used + step))
            block.used += step
            done += step
            if block.used == BLOCK_BYTES:
                self._flush()

    def _flush(self) -> None:
        block = self._blocks[self._current]
        if not block.used:
            return
        block.checksummed = self._checksums.submit(_checksum, block, self._crcs)
        self._file.write(block.view[: block.used])
        self._wrote(block.used)
        self._current = (self._current + 1) % _BLOCKS
        self._blocks[self._current].wait()

    def _wrote(self, count: int) -> None:
        self._written += count
        if self._progress is not None:
            self._progress(self._written, self._file.size)
        self._unsynced += count
        if self._unsynced < _WRITEBACK_BYTES:
            return
        if self._synced is not None:
            if not self._synced.done():
                return
            self._synced.result()  # raises what the disk had to say
        self._unsynced = 0
        self._synced = self._writeback.submit(self._file.start_writeback)


def _made(part: Part, name: str) -> Iterator[torch.Tensor]:
    """The bytes of a part; what reading it raises says whose they were."""
    with locating(name=name):
        yield from part.pieces(PIECE_BYTES)


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
