"""A safetensors file opened for reading: names at once, tensors when asked for.

Torch-free to import.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Self

from aoserial.errors import FormatError, UnknownNameError, locating
from aoserial.storage.closing import Closing
from aoserial.storage.dtypes import DTYPES, check_bool, torch_dtype
from aoserial.storage.part import LeafPart
from aoserial.storage.safetensors.grammar import Limits, quoted
from aoserial.storage.safetensors.header import Entry, Header, read_header
from aoserial.storage.source import Source

if TYPE_CHECKING:
    import torch


class SafetensorsFile(Closing):
    """An opened, checked safetensors file.

    Mapped (the default), every tensor is its own storage in one private mapping of the file. It may
    be written to, which the file never sees, and lives on when this object is closed. See `Source`
    for what `mapped=False` is for.
    """

    def __init__(self, source: Source, header: Header) -> None:
        self.source = source
        self.header = header
        self.parts: Mapping[str, FilePart] = _Parts(self)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        mapped: bool = True,
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> Self:
        """Opens the file and reads its header, and nothing else.

        Raises:
            PathError: it is missing, or not a regular file.
            HeaderError: it is not a safetensors file, or breaks the format's rules.
            FormatError: it has a dtype this version does not know.
            LimitError: a budget is spent.
        """
        source = Source.open(path, mapped=mapped)
        try:
            return cls(source, read_header(source, limits))
        except BaseException:
            source.close()
            raise

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def metadata(self) -> dict[str, str]:
        """The `__metadata__` map; empty when the file has none."""
        return self.header.metadata

    @property
    def names(self) -> list[str]:
        """All names, in data order."""
        return list(self.header.entries)

    def entry(self, name: str) -> Entry:
        """What the header says of a tensor; `UnknownNameError` when there is none."""
        try:
            return self.header.entries[name]
        except KeyError:
            message = f"there is no tensor {quoted(name)}"
            raise UnknownNameError(message).locate(file=self.path) from None

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor, contiguous, aligned, in a storage of its own."""
        return self.tensors((name,))[0]

    def tensors(self, names: Iterable[str]) -> list[torch.Tensor]:
        """Many tensors. Costs two calls into torch for each, and no reading when mapped.

        Raises:
            UnknownNameError: there is no tensor of a name.
            FormatError: a dtype that torch does not have, or a bool that is neither 0 nor 1.
            ChangedWhileReadingError: the file has become shorter (when not mapped).
        """
        import torch  # torch-free module until here

        if not self.source.mapped:
            return [self._read(name) for name in names]
        plain = _plain_dtypes()
        entries, start, mapping = self.header.entries, self.header.data_start, self.source.mapping
        frombuffer = torch.frombuffer
        tensors: list[torch.Tensor] = []
        append = tensors.append
        for name in names:
            try:
                code, shape, begin, end = entries[name]
                dtype, itemsize = plain[code]
            except KeyError:
                append(self._read(name))
                continue
            offset = start + begin
            if offset % itemsize or begin == end:
                append(self._read(name))
                continue
            count = (end - begin) // itemsize
            tensor = frombuffer(mapping, dtype=dtype, count=count, offset=offset)
            if len(shape) != 1:
                # view() would make a second tensor that holds the first, in three times the time
                tensor.resize_(*(shape or ((),)))
            append(tensor)
        return tensors

    def bytes_of(self, name: str) -> torch.Tensor:
        """A tensor's bytes as they lie in the file: uint8, flat, whatever its dtype."""
        import torch  # torch-free module until here

        _, _, begin, end = self.entry(name)
        offset, count = self.header.data_start + begin, end - begin
        if not count:
            return torch.empty(0, dtype=torch.uint8, device="cpu")
        if self.source.mapped:
            return torch.frombuffer(
                self.source.mapping, dtype=torch.uint8, count=count, offset=offset
            )
        buffer = bytearray(count)
        self.source.pread_into(offset, buffer)
        return torch.frombuffer(buffer, dtype=torch.uint8)

    def close(self) -> None:
        self.source.close()

    def __repr__(self) -> str:
        return f"<SafetensorsFile {self.path!r}, {len(self.header.entries)} tensors>"

    def _read(self, name: str) -> torch.Tensor:
        """One tensor of any kind; `tensors` does the common ones itself."""
        import torch  # torch-free module until here

        code, shape, begin, end = self.entry(name)
        with locating(file=self.path, name=name):
            dtype = getattr(torch, code, None)
            if dtype is None:
                raise FormatError(f"torch has no dtype {code}; its bytes alone can be read")
            if begin == end:
                return torch.empty(shape, dtype=dtype, device="cpu")
            flat = self.bytes_of(name)
            if flat.data_ptr() % dtype.itemsize:
                flat = flat.clone()
            if code == "bool":
                check_bool(flat)
            return flat.view(dtype).view(shape)


@functools.cache
def _plain_dtypes() -> dict[str, tuple[torch.dtype, int]]:
    """By name, with their sizes: those whose bytes may be taken as they lie, if aligned."""
    return {
        row.name: (torch_dtype(row.name), row.itemsize)
        for row in DTYPES
        if row.in_torch and row.name != "bool"
    }


class FilePart(LeafPart):
    """A tensor in a safetensors file."""

    __slots__ = ("file", "key")

    def __init__(self, file: SafetensorsFile, key: str) -> None:
        dtype, shape, _, _ = file.entry(key)
        super().__init__(dtype, shape)
        self.file = file
        self.key = key

    @property
    def source(self) -> Source:
        return self.file.source

    @property
    def offset(self) -> int:
        """Where in the file its bytes begin."""
        return self.file.header.data_start + self.file.header.entries[self.key][2]

    def read(self) -> torch.Tensor:
        return self.file.tensor(self.key)

    def read_bytes(self) -> torch.Tensor:
        return self.file.bytes_of(self.key)

    def chunks(self, size: int) -> Iterator[memoryview]:
        """Its bytes in pieces of at most `size`: read, not mapped, so that they leave memory again.

        All pieces share one buffer: each is valid until the next is asked for.
        """
        return self.source.chunks(self.offset, self.nbytes, size)


class _Parts(Mapping[str, FilePart]):
    """The parts of a file by name, each made when first asked for and the same one ever after."""

    def __init__(self, file: SafetensorsFile) -> None:
        self._file = file
        self._made: dict[str, FilePart] = {}

    def __getitem__(self, name: str) -> FilePart:
        part = self._made.get(name)
        if part is None:
            part = self._made[name] = FilePart(self._file, name)
        return part

    def __contains__(self, name: object) -> bool:
        return name in self._file.header.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.header.entries)

    def __len__(self) -> int:
        return len(self._file.header.entries)
