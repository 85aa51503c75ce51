"""What lies beside a checkpoint in its folder: configuration, tokenizer, texts. Torch-free."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator

from aoserial.errors import AoserialError, PathError, locating
from aoserial.storage import AtomicFile, Source
from aoserial.storage.sniff import SNIFF_BYTES, is_pickle, is_safetensors

_CHUNK_BYTES = 4 << 20
_LARGEST_CONFIG = 4 << 20  # bytes; a config.json has thousands

# Weights for other programs, which the tensors of the checkpoint were saved as too
_OF_OTHERS = (".gguf", ".h5", ".msgpack", ".onnx", ".onnx_data", ".ot", ".tflite", ".npz")


def companions(folder: str) -> list[str]:
    """The names of the files in a folder that hold no weights, hidden ones and folders aside.

    Raises:
        PathError: the folder cannot be listed, or a file in it not be read.
    """
    return sorted(name for name in _files(folder) if not _holds_weights(folder, name))


def bring_along(names: Iterable[str], source: str, target: str) -> None:
    """Copies files of one folder to another, but for those that are there already.

    Raises:
        SaveError: one of them cannot be written.
        PathError: one of them cannot be read.
    """
    for name in names:
        path = os.path.join(target, name)
        if os.path.lexists(path):
            continue
        old_path = os.path.join(source, name)
        with Source.open(old_path, mapped=False) as old, AtomicFile(path, size=old.size) as new:
            for chunk in old.chunks(0, old.size, _CHUNK_BYTES):
                new.write(chunk)


def config_notes(folder: str) -> Iterator[str]:
    """What a config.json says of tensors that are going to be others."""
    try:
        with Source.open(os.path.join(folder, "config.json"), mapped=False) as source:
            told = json.loads(source.pread(0, min(source.size, _LARGEST_CONFIG)))
        method = told["quantization_config"]["quant_method"]
    except (AoserialError, ValueError, KeyError, TypeError, RecursionError):
        return
    yield (
        f"config.json has a quantization_config of {str(method)!r:.60}, which tells other programs "
        f"how to read the tensors as they were; it comes along as it is"
    )


def _files(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            found = [entry.name for entry in entries if entry.is_file()]
    except OSError as error:
        raise PathError(f"cannot be listed: {error.strerror}", errno=error.errno).locate(
            file=folder
        ) from None
    for name in found:
        if not name.startswith("."):
            yield name


def _holds_weights(folder: str, name: str) -> bool:
    from aoserial.storage.shards import INDEX_SUFFIX  # only sets have companions

    if name.endswith((INDEX_SUFFIX, *_OF_OTHERS)):
        return True
    path = os.path.join(folder, name)
    with locating(file=path), Source.open(path, mapped=False) as source:
        head = source.pread(0, min(source.size, SNIFF_BYTES))
    return is_safetensors(head) or is_pickle(head)
