"""Indexes made to harm: nothing is opened outside the folder, nothing waits or grows."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import aoserial
from aoserial.errors import AoserialError, PathError
from aoserial.storage import Source

ROOT = Path(__file__).parents[2]
INDEX = "model.safetensors.index.json"
READERS = [aoserial.inspect, aoserial.plan, aoserial.load, aoserial.open]

NAMES = {
    "parent": "../secret.safetensors",
    "absolute": "/etc/hostname",
    "inside": "sub/x.safetensors",
    "backslash": "..\\secret.safetensors",
    "drive": "C:secret.safetensors",
    "share": "\\\\host\\share\\x.safetensors",
    "nul": "a\0.safetensors",
    "folder itself": ".",
    "long": "x" * 5000,
    "fifo": "fifo",
    "device": "device",
    "link out": "link",
    "link to a link out": "link2",
}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "set"
    (folder / "sub").mkdir(parents=True)
    save_file({"good": torch.ones(2)}, folder / "good.safetensors")
    save_file({"evil": torch.ones(2)}, folder / "sub" / "x.safetensors")
    save_file({"evil": torch.ones(2)}, tmp_path / "secret.safetensors")
    os.mkfifo(folder / "fifo")
    (folder / "device").symlink_to("/dev/zero")
    (folder / "link").symlink_to("../secret.safetensors")
    (folder / "link2").symlink_to("link")
    return folder


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_a_name_that_leads_elsewhere_is_refused_before_any_shard_is_opened(
    folder, monkeypatch, reader, name
):
    index = {"weight_map": {"good": "good.safetensors", "evil": name}}
    (folder / INDEX).write_text(json.dumps(index))
    opened = []
    original = Source.open.__func__

    def recording(cls, path, **options):
        opened.append(os.fspath(path))
        return original(cls, path, **options)

    monkeypatch.setattr(Source, "open", classmethod(recording))
    with pytest.raises(AoserialError) as caught:
        reader(folder)
    assert isinstance(caught.value, PathError)
    assert "\0" not in str(caught.value)
    assert opened == [str(folder / INDEX)]


def test_an_index_that_names_itself_or_another_index_is_refused(folder):
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": INDEX}}))
    with pytest.raises(AoserialError, match="JSON"):
        aoserial.load(folder)


def test_an_index_that_is_a_fifo_or_a_device_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / INDEX)
    with pytest.raises(PathError):
        aoserial.load(tmp_path)


def bombs():
    """Name → bytes of an index."""
    mib = 1 << 20
    return {
        "deep": b'{"weight_map": {"a": "b"}, "metadata": ' + b"[" * (4 * mib),
        "many lists": b'{"weight_map": {"a": "b"}, "metadata": {"x": [' + b"[],[],[]," * mib,
        "many dicts": b'{"weight_map": {"a": "b"}, "metadata": {"x": [' + b"{},{},{}," * mib,
        "many numbers": b'{"weight_map": {"a": "b"}, "metadata": {"x": [' + b"1.5," * (8 * mib),
        "many shards": json.dumps(
            {"weight_map": {f"{n}": f"{n}" for n in range(300_000)}}
        ).encode(),
        "large": b'{"weight_map": {"a": "b"}}' + b" " * (65 * mib),
        "an endless string": b'{"weight_map": "' + b"\\" * (16 * mib),
        "escaped quotes": b'{"weight_map": "' + b'\\"' * (16 * mib),
        "quotes": b'{"weight_map": {' + b'""' * (8 * mib),
    }


_MEASURED = """
import resource, sys, time
from aoserial.storage.shards.index import parse_index
from aoserial.errors import AoserialError
raw = open(sys.argv[1], "rb").read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    parse_index(raw)
except AoserialError as error:
    print(type(error).__name__, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before,
          time.process_time())
"""


@pytest.mark.parametrize("name", list(bombs()))
def test_an_index_made_to_be_costly_costs_little(tmp_path, name):
    raw = bombs()[name]
    (tmp_path / "x.json").write_bytes(raw)
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(tmp_path / "x.json")],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    error, kilobytes, seconds = done.stdout.split()
    assert error in {"LimitError", "ShardIndexError"}
    assert int(kilobytes) * 1024 < (64 << 20) + 4 * len(raw)
    assert float(seconds) < 20


def test_more_shards_than_files_may_be_open_is_an_error_of_ours(tmp_path):
    for n in range(64):
        save_file({f"{n}": torch.ones(1)}, tmp_path / f"{n}.safetensors")
    index = {"weight_map": {f"{n}": f"{n}.safetensors" for n in range(64)}}
    (tmp_path / INDEX).write_text(json.dumps(index))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (held + 20, hard))
    try:
        with pytest.raises(AoserialError, match="open files"):
            aoserial.load(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(aoserial.load(tmp_path)) == 64
