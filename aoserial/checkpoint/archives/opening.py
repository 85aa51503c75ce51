"""Which archive a file is, by its first bytes. Torch-free."""

from __future__ import annotations

from aoserial.checkpoint.archives.archive import FileArchive
from aoserial.checkpoint.archives.safetensors import SafetensorsArchive
from aoserial.storage import Source
from aoserial.storage.sniff import SNIFF_BYTES, is_pickle


def open_file(source: Source) -> FileArchive:
    """The archive that an opened file is; the file is closed if it is none."""
    try:
        if not is_pickle(first_bytes(source)):
            return SafetensorsArchive(source)
        from aoserial.checkpoint.archives.pickles import PickleArchive  # torchao's tables

        return PickleArchive(source)
    except BaseException:
        source.close()
        raise


def first_bytes(source: Source) -> bytes:
    return source.pread(0, min(SNIFF_BYTES, source.size))
