"""torch.save of 2016: a tar file of `sys_info`, `pickle`, `storages` and `tensors`. Torch-free.

`storages` is a pickled count, then for each a pickle (key, location, class), an int64 count of
elements and the elements; then a pickled list of views. `tensors` is a pickled count, then for each
a pickle (key, key of its storage, class), the number of dimensions as int32 and four bytes of
nothing, sizes, strides and offset as int64. `pickle` refers to both by their keys.
(`torch.serialization._legacy_load` of torch 2.13)
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from aoserial.errors import BoundsError, ContainerError, PickleError, escape
from aoserial.storage.pickle.context import Context
from aoserial.storage.pickle.dtypes import ITEMSIZES, typed_storage
from aoserial.storage.pickle.interpreter import interpret_all
from aoserial.storage.pickle.legacy import run_plain
from aoserial.storage.pickle.limits import Limits
from aoserial.storage.pickle.recognise import Builders, Recogniser
from aoserial.storage.pickle.storages import StorageRef
from aoserial.storage.pickle.tensors import TypedStorage
from aoserial.storage.pickle.values import Name, Value
from aoserial.storage.source import Source

BLOCK = 512
_MEMBERS = ("sys_info", "pickle", "storages", "tensors")
_PAX_RECORD = re.compile(rb"[0-9]{1,4} (mtime|atime|ctime|uid|gid|uname|gname)=[^\n]*\n")
_OCTAL = re.compile(rb" *([0-7]{1,11})[ \0]*")


class Member(NamedTuple):
    """A file in the tar: where its bytes are."""

    start: int
    nbytes: int


class Tar:
    """A tar of torch.save, read but for the bytes of tensors.

    Attributes:
        root: the object.
        storages: by key.
        notes: what was left out.
    """

    def __init__(self, source: Source, limits: Limits, builder: Builders = Recogniser) -> None:
        """Reads it all but the bytes of tensors, and runs the pickles with such builders.

        Raises:
            ContainerError: it is not laid out as torch lays it out.
            PickleError, BoundsError, LimitError: as for any pickle.
        """
        self._source = source
        self._limits = limits
        self._builder = builder
        self._objects: dict[str, Value] = {}
        self.storages: dict[str, StorageRef] = {}
        members = read_members(source)
        self._read_storages(members["storages"])
        self._read_tensors(members["tensors"])
        start, nbytes = members["pickle"]
        limits.check("pickle_bytes", nbytes)
        recogniser = builder(self._resolve, limits)
        self.root = interpret_all(source.pread(start, nbytes), recogniser, limits).root
        self.notes = recogniser.notes()

    def _resolve(self, id: Value) -> Value | None:  # noqa: A002 - pickle's own word
        """The tensor or storage of a persistent id; a class where it is a module's."""
        if type(id) in {str, int}:
            return self._object(str(id))
        match id:
            case (Name() as cls, _file, _source):
                return cls
        return None

    def _object(self, key: str) -> Value:
        found = self._objects.get(key)
        if found is None:
            raise PickleError(f"the file has no storage or tensor {escape(key[:40])}")
        return found

    def _read_storages(self, member: Member) -> None:
        at, end = member.start, member.start + member.nbytes
        count, at = self._count(at, end)
        for _ in range(count):
            key, _, cls, at = self._described(at, end)
            dtype = typed_storage(cls.module, cls.name) if type(cls) is Name else None
            if dtype is None:
                raise ContainerError(f"storage {key} is of no dtype of torch's")
            elements, at = self._int64(at, end)
            start, at = at, at + elements * ITEMSIZES[dtype]
            if not start <= at <= end:
                raise BoundsError(f"storage {key} of {elements} elements reaches out of its place")
            storage = StorageRef(self._source, key, start, at - start, limits=self._limits)
            self.storages[key] = storage
            self._add(key, TypedStorage(storage, dtype, 0, elements))
        views, at = self._pickle(at, end)
        if type(views) is not list:
            raise ContainerError("its views of storages are no list")
        for view in views:
            self._add_view(view)
        self._check_end(at, end, "storages")

    def _add_view(self, view: Value) -> None:
        if type(view) is not tuple or tuple(map(type, view)) != (int, int, int, int):
            raise ContainerError("a view of a storage is not given by four numbers")
        key, root, offset, count = view
        whole = self._object(str(root))
        if type(whole) is not TypedStorage or not 0 <= offset <= offset + count <= whole.count:
            raise BoundsError(f"view {key} lies outside storage {root}")
        self._add(str(key), TypedStorage(whole.storage, whole.dtype, offset, count))

    def _read_tensors(self, member: Member) -> None:
        context = Context(self._limits)
        at, end = member.start, member.start + member.nbytes
        count, at = self._count(at, end)
        for _ in range(count):
            key, storage_key, _, at = self._described(at, end)
            storage = self._object(str(storage_key))
            rank = int.from_bytes(self._bytes(at, end, 8)[:4], "little")
            self._limits.check("rank", rank)
            at += 8
            numbers = struct.unpack(f"<{2 * rank + 1}q", self._bytes(at, end, 8 * (2 * rank + 1)))
            at += 8 * len(numbers)
            if type(storage) is not TypedStorage:
                raise ContainerError(f"tensor {key} lies in no storage")
            size, stride, offset = numbers[:rank], numbers[rank : 2 * rank], numbers[-1]
            self._add(key, context.part(storage, storage.dtype, offset, size, stride))
        self._check_end(at, end, "tensors")

    def _add(self, key: str, value: Value) -> None:
        if key in self._objects:
            raise ContainerError(f"two things have the key {key}")
        self._objects[key] = value

    # -- what lies in a member one after the other ------------------------------------------------

    def _pickle(self, at: int, end: int) -> tuple[Value, int]:
        return run_plain(self._source, at, end, self._builder, self._limits)

    def _count(self, at: int, end: int) -> tuple[int, int]:
        count, at = self._pickle(at, end)
        if type(count) is not int or count < 0:
            raise ContainerError(f"a count is {count!r:.40}")
        self._limits.check("entries", count)
        return count, at

    def _described(self, at: int, end: int) -> tuple[str, Value, Value, int]:
        """A pickled (key, location, class) of a storage, or (key, storage's key, class)."""
        described, at = self._pickle(at, end)
        match described:
            case (int() | str() as key, str() | int() as where, cls):
                return str(key), where, cls, at
        raise ContainerError("a storage or tensor is not described by three items")

    def _int64(self, at: int, end: int) -> tuple[int, int]:
        return int.from_bytes(self._bytes(at, end, 8), "little", signed=True), at + 8

    def _bytes(self, at: int, end: int, count: int) -> bytes:
        if at + count > end:
            raise ContainerError("it is cut off")
        return self._source.pread(at, count)

    def _check_end(self, at: int, end: int, name: str) -> None:
        if at != end:
            raise ContainerError(f"{end - at} bytes follow the last of its {name}")


# -- the tar itself -----------------------------------------------------------------------------


def read_members(source: Source) -> dict[str, Member]:
    """The four members, which must be regular files and all that is in the tar.

    Raises:
        ContainerError: they are not, or their headers are malformed.
    """
    members: dict[str, Member] = {}
    at = 0
    while at + BLOCK <= source.size:
        header = source.pread(at, BLOCK)
        if not any(header):
            break
        name, kind, nbytes = _read_header(header, at)
        start = at + BLOCK
        at = start + -(-nbytes // BLOCK) * BLOCK
        if at > source.size:
            raise ContainerError(f"it is cut off in its member '{escape(name)}'")
        if kind == b"x":
            _check_pax(source.pread(start, nbytes))
        elif name not in _MEMBERS or kind not in {b"0", b"\0"} or name in members:
            raise ContainerError(
                f"it is a tar file, but not one of torch.save: it has the member '{escape(name)}'"
            )
        else:
            members[name] = Member(start, nbytes)
    missing = [name for name in _MEMBERS if name not in members]
    if missing:
        raise ContainerError(f"it is a tar file without the member '{missing[0]}'")
    if any(any(chunk) for chunk in source.chunks(at, source.size - at, 64 * 2**10)):
        raise ContainerError(f"something follows its end at byte {at}")
    return members


def _read_header(header: bytes, at: int) -> tuple[str, bytes, int]:
    told = _octal(header[148:156], at)
    if sum(header[:148]) + 8 * ord(" ") + sum(header[156:]) != told:
        raise ContainerError(f"the checksum of its member at byte {at} is wrong")
    name = header[:100].rstrip(b"\0").decode(errors="backslashreplace")
    return name.removeprefix("./"), header[156:157], _octal(header[124:136], at)


def _octal(field: bytes, at: int) -> int:
    match = _OCTAL.fullmatch(field)
    if match is None:
        raise ContainerError(f"the header of its member at byte {at} is malformed")
    return int(match[1], 8)


def _check_pax(raw: bytes) -> None:
    """Python puts a fraction of a second here; names and sizes would change what the tar says."""
    at = 0
    while at < len(raw):
        match = _PAX_RECORD.match(raw, at)
        if match is None or int(match[0].split(b" ")[0]) != len(match[0]):
            raise ContainerError("a member has a property that aoserial does not know")
        at = match.end()
