"""torch.save since 1.6: a zip archive, told from all the other kinds of archive. Torch-free.

`<root>/data.pkl`, and a `<root>/data/<key>` for each storage. Newer releases add marks:
`version` (1.6), `byteorder` (2.0), `.data/serialization_id` (2.1), `.format_version` (2.6),
`.storage_alignment` (2.7). What else lies there is noted and not read.
"""

from __future__ import annotations

import re

from aoserial.errors import ContainerError, escape
from aoserial.storage.pickle.entries import Entry, read_entries
from aoserial.storage.pickle.interpreter import interpret_all
from aoserial.storage.pickle.limits import Limits
from aoserial.storage.pickle.recognise import Builders, Recogniser
from aoserial.storage.pickle.references import Storages, find_in
from aoserial.storage.pickle.storages import StorageRef, check_crc
from aoserial.storage.pickle.zip import read_directory
from aoserial.storage.source import Source

_KEY = re.compile(r"data/(0|[1-9][0-9]{0,19})", re.ASCII)
_MARKS = frozenset(
    {"version", "byteorder", ".data/serialization_id", ".format_version", ".storage_alignment"}
)
# No part of a name may mean another place, here or on any other system
_BAD_NAME = re.compile(r"[\0-\x1f\x7f-\x9f\\]|\A/|\A[A-Za-z]:(?:/|\Z)|(?:\A|/)(?:\.{0,2})(?:/|\Z)")

_TORCHSCRIPT = r"constants\.pkl\Z|code/|bytecode\.pkl\Z"
_EXPORTED = (
    r"archive_(?:format|version)\Z|models/.*\.json\Z|data/(?:weights|aotinductor)/|"
    r"serialized_(?:exported_program|state_dict)\."
)
# (how a name goes on after its root or without one, what an archive with such a name is)
_OTHERS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"(?:[^/]*/)?(?:{pattern})"), phrase)
    for pattern, phrase in (
        (_TORCHSCRIPT, "a TorchScript program (torch.jit.save)"),
        (_EXPORTED, "an exported program (.pt2, torch.export.save)"),
        (r"\.data/(?:extern_modules|python_version)\Z", "a torch.package archive"),
        (r".*\.npy\Z", "a NumPy .npz archive"),
        (r"model\.weights\.h5\Z|metadata\.json\Z", "a Keras model"),
        (r"\[Content_Types\]\.xml\Z", "an Office document"),
        (r"[^/]*\.dist-info/|META-INF/", "a package of programs"),
        (r".*\.(?:safetensors|pt|pth|bin)\Z", "an archive of checkpoints: unpack it first"),
    )
)


class Archive:
    """An archive of torch.save, read but for the bytes of tensors.

    Attributes:
        root: the object.
        storages: by key.
        notes: what was left out.
    """

    def __init__(self, source: Source, limits: Limits, builder: Builders = Recogniser) -> None:
        """Reads the directory, and runs the pickle with such a builder.

        Raises:
            ContainerError: the archive is malformed, or of another kind.
            PickleError, BoundsError, LimitError: as for any pickle.
            IntegrityError: the pickle is damaged.
        """
        directory = read_directory(source, limits)
        _refuse_others(directory.names)
        self._source = source
        storages, named = _sorted_out(read_entries(source, directory))
        if "data.pkl" not in named:
            raise ContainerError("it has no data.pkl: this is no archive of torch.save")
        swapped = self._is_big_endian(named.get("byteorder"))
        self.storages = {
            key: StorageRef(
                source,
                key,
                entry.start,
                entry.nbytes,
                crc32=entry.crc32 or None,
                swapped=swapped,
                limits=limits,
            )
            for key, entry in storages.items()
        }
        recogniser = builder(Storages(find_in(self.storages)), limits)
        pickle = self._read_pickle(named.pop("data.pkl"), limits)
        self.root = interpret_all(pickle, recogniser, limits).root
        unread = [name for name in named if name not in _MARKS]
        self.notes = [f"left out the archive entry {_shown(name)}" for name in unread]
        self.notes += recogniser.notes()

    def _is_big_endian(self, mark: Entry | None) -> bool:
        """What the mark says; without one numbers are little-endian, as for torch."""
        if mark is None:
            return False
        text = self._source.pread(mark.start, min(mark.nbytes, 16))
        if text not in {b"little", b"big"} or mark.nbytes != len(text):
            raise ContainerError(f"its byte order is {text!r}, not b'little' or b'big'")
        return text == b"big"

    def _read_pickle(self, entry: Entry, limits: Limits) -> bytes:
        """What the tensors mean is in here, so the CRC is always checked, where there is one."""
        limits.check("pickle_bytes", entry.nbytes)
        pickle = self._source.pread(entry.start, entry.nbytes)
        if entry.crc32:
            check_crc(entry.name, [pickle], entry.crc32)
        return pickle


def _sorted_out(entries: list[Entry]) -> tuple[dict[str, Entry], dict[str, Entry]]:
    """Storages by key, and all other entries by name below the folder that all lie in."""
    if not entries:
        raise ContainerError("it is an empty archive")
    first, slash, _ = entries[0].name.partition("/")
    if not slash or _BAD_NAME.search(first):
        raise ContainerError(f"an entry has the name {_shown(entries[0].name)}")
    root = first + slash
    storages: dict[str, Entry] = {}
    named: dict[str, Entry] = {}
    for entry in entries:
        name = entry.name.removeprefix(root)
        match = _KEY.fullmatch(name)
        if name == entry.name:
            raise ContainerError(
                f"the entry {_shown(name)} does not lie in the folder {_shown(root)}, where the "
                "first one does"
            )
        if match is not None:
            storages[match[1]] = entry
        elif _BAD_NAME.search(name):
            raise ContainerError(f"an entry has the name {_shown(entry.name)}")
        else:
            named[name] = entry
    return storages, named


def _refuse_others(names: list[str]) -> None:
    """Raises for the archives of other programs, with their name: none is ever tried."""
    for pattern, phrase in _OTHERS:
        if any(pattern.match(name) for name in names):
            raise ContainerError(f"it is {phrase}, which aoserial does not read")


def _shown(name: str) -> str:
    return f"'{escape(name[:120])}'"
