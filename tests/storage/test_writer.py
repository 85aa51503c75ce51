"""Writing files: every tensor comes back, to every reader; the same input gives the same bytes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import warnings
import zlib

import pytest
import torch
from safetensors import safe_open

from aoserial.errors import (
    IntegrityError,
    LimitError,
    MigrationError,
    OptionError,
    PathError,
    TensorNameError,
    UnsupportedTensorError,
)
from aoserial.storage import DTYPES, TensorPart, compute
from aoserial.storage.safetensors import (
    Limits,
    SafetensorsFile,
    order,
    parse_header,
    render_header,
    streaming,
    write_safetensors,
    writer,
)


def raw_bytes(tensor):
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())


def parts_of(tensors):
    return {name: TensorPart(tensor) for name, tensor in tensors.items()}


def save(path, tensors, *, metadata=None, **options):
    return write_safetensors(path, parts_of(tensors), metadata=metadata or {}, **options)


def specimen():
    torch.manual_seed(0)
    tensors = {}
    for row in DTYPES:
        if row.in_torch:
            bound = 2 if row.name == "bool" else 256
            tensor = torch.randint(bound, (3, 16), dtype=torch.uint8)
            tensors[row.name] = tensor.view(getattr(torch, row.name))
    base = torch.randn(6, 8)
    return tensors | {
        "scalar": torch.tensor(1.5),
        "empty": torch.empty(0, 7, dtype=torch.bfloat16),
        "empty f4": torch.empty(3, 0, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        "odd": torch.arange(7, dtype=torch.uint8),
        "transposed": base.t(),
        "strided": base[:, ::2],
        "offset": base[3],
        "expanded": torch.ones(1, 1).expand(4, 5),
        "conjugate": torch.tensor([1 + 2j, 3 - 4j]).conj(),
        "imaginary": torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
        "parameter": torch.nn.Parameter(torch.randn(3)),
        "é 名前 😀": torch.ones(2, dtype=torch.int16),
        "NaN": torch.tensor([0x7FC12345, -1], dtype=torch.int32).view(torch.float32),
    }


def test_every_tensor_comes_back_bit_for_bit_through_us_and_through_the_reference(tmp_path):
    path = tmp_path / "x.safetensors"
    tensors = specimen()
    save(path, tensors, metadata={"format": "pt", "é": '\0\n"\\😀'})
    with SafetensorsFile.open(path) as file, safe_open(path, "pt") as reference:
        assert set(file.names) == set(reference.keys()) == set(tensors)
        assert file.metadata == reference.metadata() == {"format": "pt", "é": '\0\n"\\😀'}
        for name, tensor in tensors.items():
            expected = tensor.detach().resolve_conj().resolve_neg()
            for found in (file.tensor(name), reference.get_tensor(name)):
                assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape), name
                assert raw_bytes(found) == raw_bytes(expected), name


def test_what_is_saved_describes_the_file(tmp_path):
    path = tmp_path / "x"
    tensors = specimen()
    saved = save(path, tensors)
    content = path.read_bytes()
    assert saved.nbytes == len(content)
    assert (
        content[: 8 + len(saved.header)] == len(saved.header).to_bytes(8, "little") + saved.header
    )
    names = order(parts_of(tensors))
    with SafetensorsFile.open(path) as file:
        assert [name for name in file.names if tensors[name].numel()] == [
            name for name in names if tensors[name].numel()
        ]
        assert saved.crcs == [zlib.crc32(raw_bytes(file.tensor(name))) for name in names]


def test_the_header_is_compact_padded_and_ends_on_a_page(tmp_path):
    path = tmp_path / "x"
    header = save(path, specimen(), metadata={"b": "2", "a": "1"}).header
    text = header.rstrip(b" ")
    assert (8 + len(header)) % 4096 == 0
    assert len(header) - len(text) >= 1024
    assert text.startswith(b'{"__metadata__":{"a":"1","b":"2"},')
    compact = json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)
    assert text.decode() == compact


@pytest.mark.parametrize("slack", [0, 1, 4095, 4096, 100_000])
def test_slack_is_a_least_amount_of_padding(slack):
    parts = parts_of({"a": torch.ones(3)})
    header = render_header(parts, {}, slack=slack)
    assert slack <= len(header) - len(header.rstrip()) < slack + 4096
    assert parse_header(header, data_bytes=12).entries["a"] == ("float32", (3,), 0, 12)


def test_a_big_header_has_an_eighth_of_slack():
    parts = {f"tensor.{index}": TensorPart(torch.empty(0)) for index in range(2000)}
    header = render_header(parts, {})
    text = header.rstrip()
    assert len(header) - len(text) >= len(text) // 8


def test_tensors_lie_aligned(tmp_path):
    path = tmp_path / "x"
    tensors = specimen() | {f"whole{index}": torch.ones(16 * index) for index in range(1, 5)}
    save(path, tensors)
    with SafetensorsFile.open(path) as file:
        multiples = [name for name in file.names if file.parts[name].nbytes % 64 == 0]
        assert file.names[: len(multiples)] == multiples
        assert file.parts[multiples[-1]].offset % 64 == 0
        for part in file.parts.values():
            assert part.offset % (64 if part.nbytes % 64 == 0 else part.read().itemsize) == 0
            # a mapped tensor is a copy only if misaligned, and none is
            assert part.read().data_ptr() % part.read().itemsize == 0


def test_the_same_input_gives_the_same_bytes_in_every_process_and_order(tmp_path):
    program = (
        "import sys, torch\n"
        "from aoserial.storage import TensorPart\n"
        "from aoserial.storage.safetensors import write_safetensors\n"
        "names = sorted({f'n{i}' for i in range(40)}, key=hash)\n"
        "parts = {n: TensorPart(torch.full((int(n[1:]),), 3.0)) for n in names}\n"
        "write_safetensors(sys.argv[1], parts, metadata={n: n for n in names})\n"
    )
    contents = set()
    for seed in "12":
        path = tmp_path / seed
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", program, path], env=environment, check=True)
        contents.add(path.read_bytes())
    assert len(contents) == 1


def test_finish_gets_the_checksums_and_gives_the_header(tmp_path):
    path = tmp_path / "x"
    seen = []

    def finish(header, crcs):
        seen.append((header, crcs))
        return header.replace(b"00000000", b"%08x" % crcs[0])

    saved = save(
        path, {"a": torch.ones(5)}, metadata={"crc": "00000000"}, finish=finish,
        durability="fsync+verify",
    )  # fmt: skip
    crc = zlib.crc32(raw_bytes(torch.ones(5)))
    assert seen[0][1] == saved.crcs == [crc]
    with SafetensorsFile.open(path) as file:
        assert file.metadata == {"crc": f"{crc:08x}"}
        assert file.header.raw == saved.header


def test_finish_may_not_change_the_length(tmp_path):
    with pytest.raises(OptionError, match=r"finish\(\) gave"):
        save(tmp_path / "x", {"a": torch.ones(5)}, finish=lambda header, _: header + b" ")
    assert not os.listdir(tmp_path)


def test_saving_over_the_file_that_the_tensors_are_mapped_from_is_right(tmp_path):
    path = tmp_path / "x"
    tensors = {f"t{index}": torch.randn(100_000) for index in range(8)}
    save(path, tensors)
    with SafetensorsFile.open(path) as file:
        mapped = dict(zip(file.names, file.tensors(file.names), strict=True))
        mapped["t0"] += 1
        save(path, {f"more.{name}": tensor for name, tensor in mapped.items()})
        write_safetensors(tmp_path / "copy", file.parts, metadata={})
    for name, folder in {"x": tensors | {"t0": tensors["t0"] + 1}, "copy": tensors}.items():
        with SafetensorsFile.open(tmp_path / name) as file:
            for key in file.names:
                expected = folder[key.removeprefix("more.")]
                assert raw_bytes(file.tensor(key)) == raw_bytes(expected)


@pytest.mark.parametrize("sizes", [[1], [0], [], [7, 0, 64], [64, 65, 1], [200], [63, 64]])
def test_parts_of_any_size_cross_the_blocks_rightly(tmp_path, monkeypatch, sizes):
    monkeypatch.setattr(streaming, "BLOCK_BYTES", 64)
    monkeypatch.setattr(streaming, "_WRITEBACK_BYTES", 100)
    path = tmp_path / "x"
    tensors = {
        f"t{index}": torch.randint(256, (size,), dtype=torch.uint8)
        for index, size in enumerate(sizes * 5)
    }
    progress = []
    saved = save(
        path, tensors, durability="fsync+verify", progress=lambda *now: progress.append(now)
    )
    with SafetensorsFile.open(path) as file:
        for name, tensor in tensors.items():
            assert raw_bytes(file.tensor(name)) == raw_bytes(tensor)
        copied = write_safetensors(tmp_path / "copy", file.parts, metadata={})
    assert copied == saved
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()
    done = [now for now, _ in progress]
    assert done == sorted(done)
    assert all(total == saved.nbytes for _, total in progress)
    if any(sizes):
        assert progress[-1] == (saved.nbytes, saved.nbytes)


def test_parts_with_checksums_are_copied_in_the_order_of_their_file_and_keep_them(
    tmp_path, monkeypatch
):
    tensors = {name: torch.randint(256, (128,), dtype=torch.uint8) for name in "abcd"}
    saved = save(tmp_path / "x", tensors)
    calls = []
    original = os.copy_file_range

    def copy(source, target, count, *, offset_src, offset_dst):
        calls.append((offset_src - 4096, count, offset_dst - 4096))
        return original(source, target, count, offset_src=offset_src, offset_dst=offset_dst)

    monkeypatch.setattr(os, "copy_file_range", copy)
    with SafetensorsFile.open(tmp_path / "x") as file:
        # as they will lie: c, d, then one that is made, then a under another dtype, then b
        parts = {
            "1": file.parts["c"],
            "2": file.parts["d"],
            "3": compute(lambda tensor: tensor, file.parts["a"], dtype="uint8", shape=(128,)),
            "4": file.parts["a"].view("int16", (64,)),
            "5": file.parts["b"],
        }
        a, b, c, _ = saved.crcs
        known = {"4": a, "5": b ^ 1, "1": c, "3": 7}
        copied = write_safetensors(tmp_path / "y", parts, metadata={}, checksums=known)
    assert calls == [(0, 256, 384), (256, 128, 0)]
    # a wrong one is kept, too: the bytes stay known to be damaged. One that was made gets its own
    assert copied.crcs == [c, saved.crcs[3], a, a, b ^ 1]
    with SafetensorsFile.open(tmp_path / "y") as file:
        for name, old in zip("12345", "cdaab", strict=True):
            assert raw_bytes(file.tensor(name)) == raw_bytes(tensors[old])


def test_large_parts_of_files_are_read_in_the_order_they_lie_in(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "BLOCK_BYTES", 64)
    save(tmp_path / "x", {name: torch.ones(64, dtype=torch.uint8) for name in "abc"})
    with SafetensorsFile.open(tmp_path / "x") as file:
        parts = {new: file.parts[old] for new, old in {"1": "c", "2": "a", "3": "b"}.items()}
        parts["0"] = TensorPart(torch.ones(64, dtype=torch.uint8))
        read = []
        original = file.source.pread_into
        monkeypatch.setattr(
            file.source, "pread_into", lambda at, into: (read.append(at), original(at, into))
        )
        write_safetensors(tmp_path / "y", parts, metadata={})
    assert read == [4096, 4160, 4224]


def test_a_derived_part_is_made_when_it_is_written(tmp_path):
    base = TensorPart(torch.arange(8, dtype=torch.float32))
    parts = {
        "doubled": compute(lambda tensor: tensor * 2, base, dtype="float32", shape=(8,)),
        "viewed": base.view("uint8", (4, 8)),
    }
    write_safetensors(tmp_path / "x", parts, metadata={})
    with SafetensorsFile.open(tmp_path / "x") as file:
        assert file.tensor("doubled").tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
        assert raw_bytes(file.tensor("viewed")) == raw_bytes(base.tensor)
        # bytes of a file go straight into another, whatever torch thinks of their dtype
        view = {"again": file.parts["doubled"].view("uint8", (32,))}
        write_safetensors(tmp_path / "y", view, metadata={})
    with SafetensorsFile.open(tmp_path / "y") as file:
        assert file.tensor("again").view(torch.float32).tolist()[:3] == [0, 2, 4]


def test_f6_and_odd_bools_are_copied_as_they_are(tmp_path):
    text = (
        b'{"b":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]},'
        b'"c":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[3,6]}}'
    )
    (tmp_path / "x").write_bytes(len(text).to_bytes(8, "little") + text + b"\2\1\0abc")
    with SafetensorsFile.open(tmp_path / "x") as file:
        write_safetensors(tmp_path / "y", file.parts, metadata={})
    with SafetensorsFile.open(tmp_path / "y") as file:
        assert raw_bytes(file.parts["c"].read_bytes()) == b"abc"
        assert raw_bytes(file.parts["b"].read_bytes()) == b"\2\1\0"
    with safe_open(tmp_path / "y", "pt") as reference:
        assert set(reference.keys()) == {"b", "c"}


BAD = {
    "empty name": ({"": torch.ones(1)}, {}, TensorNameError, "empty"),
    "reserved name": ({"__metadata__": torch.ones(1)}, {}, TensorNameError, "reserved"),
    "control character": ({"a\n": torch.ones(1)}, {}, TensorNameError, "control"),
    "C1": ({"a\x85": torch.ones(1)}, {}, TensorNameError, "control"),
    "surrogate": ({"a\ud800": torch.ones(1)}, {}, TensorNameError, "surrogate"),
    "long name": ({"é" * 513: torch.ones(1)}, {}, TensorNameError, "1026 bytes"),
    "normal forms": (
        {"\u00e9": torch.ones(1), "e\u0301": torch.ones(1)}, {}, TensorNameError, "look the same"),
    "a kelvin and a K": (
        {"K": torch.ones(1), "\u212a": torch.ones(1)}, {}, TensorNameError, "look the same"),
    "two ways not normal": (
        {"\u1e9b\u0323": torch.ones(1), "\u017f\u0323\u0307": torch.ones(1)}, {},
        TensorNameError, "look the same"),
    "complex128": ({"a": torch.ones(1, dtype=torch.complex128)}, {}, UnsupportedTensorError, "128"),
    "sparse": ({"a": torch.ones(2, 2).to_sparse()}, {}, UnsupportedTensorError, "sparse"),
    "meta": ({"a": torch.ones(2, device="meta")}, {}, UnsupportedTensorError, "meta"),
    "f4 scalar": (
        {"a": torch.ones((), dtype=torch.uint8).view(torch.float4_e2m1fn_x2)}, {},
        UnsupportedTensorError, "without dimensions"),
    "metadata value": ({}, {"a": 1}, OptionError, "must be strings"),
    "metadata key": ({}, {1: "a"}, OptionError, "must be strings"),
    "metadata control": ({}, {"a\0": ""}, OptionError, "control"),
    "metadata surrogate": ({}, {"a": "\udc00"}, OptionError, "surrogate"),
    "much metadata": ({}, {"a": "x" * 17_000_000}, LimitError, "metadata"),
    "much metadata once escaped": ({}, {"a": "\n" * 9_000_000}, LimitError, "metadata"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_stored_is_refused_before_a_byte_is_written(case, tmp_path):
    tensors, metadata, kind, words = BAD[case]
    with pytest.raises(kind, match=words):
        save(tmp_path / "x", tensors, metadata=metadata)
    assert not os.listdir(tmp_path)


def test_as_much_metadata_as_may_be_written_can_be_read():
    text = '"' * (2**23 - 3)  # with `"a":` and the quotes, 16 MiB of JSON
    header = render_header({}, {"a": text})
    assert parse_header(header, data_bytes=0).metadata == {"a": text}
    with pytest.raises(LimitError, match="16777217 bytes of metadata"):
        render_header({}, {"a": text + "x"})


def test_a_quantized_tensor_of_torchs_own_kind_is_refused(tmp_path):
    with warnings.catch_warnings(action="ignore"):  # torch is about to drop them
        tensor = torch._empty_affine_quantized([2], scale=1.0, zero_point=0, dtype=torch.quint8)
    with pytest.raises(UnsupportedTensorError) as caught:
        save(tmp_path / "x", {"a": tensor})
    assert caught.value.location.name == "a"


def test_a_header_over_the_limit_of_readers_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("aoserial.storage.safetensors.layout.MAX_HEADER_BYTES", 5000)
    with pytest.raises(LimitError, match="readers accept 5000"):
        save(tmp_path / "x", {"a" * 1000 + str(i): torch.empty(0) for i in range(5)})
    assert not os.listdir(tmp_path)
    assert Limits().header_bytes == 100_000_000


def test_a_part_that_fails_or_lies_leaves_the_old_file(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def fails(_):
        raise ZeroDivisionError

    one = TensorPart(torch.ones(1))
    for function in (fails, lambda tensor: tensor.double()):
        parts = {"good": one, "z": compute(function, one, dtype="float32", shape=(1,))}
        with pytest.raises(MigrationError):
            write_safetensors(path, parts, metadata={})
        assert os.listdir(tmp_path) == ["x"]
        assert path.read_bytes() == b"old"


def test_verification_notices_bytes_that_are_not_those_written(tmp_path, monkeypatch):
    checksum = streaming._checksum
    monkeypatch.setattr(
        streaming,
        "_checksum",
        lambda block, crcs: (checksum(block, crcs), crcs.append(crcs.pop() ^ 1)),
    )
    save(tmp_path / "unverified", {"a": torch.ones(9)})
    with pytest.raises(IntegrityError, match="'a'"):
        save(tmp_path / "x", {"a": torch.ones(9)}, durability="fsync+verify")
    assert os.listdir(tmp_path) == ["unverified"]


def test_an_unknown_durability_is_refused(tmp_path):
    with pytest.raises(OptionError, match="rename, fsync"):
        save(tmp_path / "x", {}, durability="sync")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o027, 0o077])
def test_a_new_file_has_the_mode_that_open_would_give_it(tmp_path, umask):
    before = os.umask(umask)
    try:
        save(tmp_path / "ours", {"a": torch.ones(1)})
        (tmp_path / "theirs").touch()
    finally:
        os.umask(before)
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "theirs").stat().st_mode


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_overwriting_keeps_the_mode(tmp_path, mode):
    path = tmp_path / "x"
    path.touch()
    path.chmod(mode)
    save(path, {"a": torch.ones(1)})
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_symlink_stays_one_and_the_file_it_points_to_is_replaced(tmp_path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "real").write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to("blobs/real")
    save(link, {"a": torch.ones(1)})
    assert link.is_symlink()
    assert os.listdir(tmp_path / "blobs") == ["real"]
    with SafetensorsFile.open(tmp_path / "blobs" / "real") as file:
        assert file.names == ["a"]
    (tmp_path / "blobs" / "real").unlink()
    save(link, {"b": torch.ones(1)})  # a dangling one, too
    assert link.is_symlink()
    with SafetensorsFile.open(link) as file:
        assert file.names == ["b"]


def test_a_target_that_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    for path in (tmp_path, tmp_path / "fifo", "/dev/null"):
        with pytest.raises(PathError, match="cannot be replaced"):
            save(path, {"a": torch.ones(1)})
    with pytest.raises(OSError, match="symbolic links"):
        save(loop, {"a": torch.ones(1)})
    assert sorted(os.listdir(tmp_path)) == ["fifo", "loop"]


def test_extra_memory_stays_small_whatever_is_written(tmp_path):
    program = (
        "import sys, torch\n"
        "from aoserial.storage import TensorPart\n"
        "from aoserial.storage.safetensors import write_safetensors, SafetensorsFile\n"
        "peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])\n"
        "tensor = torch.ones(40 << 20, dtype=torch.uint8)\n"
        "write_safetensors(sys.argv[1], {'a': TensorPart(tensor[:9])}, metadata={})\n"
        "before = peak()\n"
        "write_safetensors(sys.argv[1], {'a': TensorPart(tensor), 'b': TensorPart(tensor)},"
        " metadata={}, durability='rename')\n"
        "del tensor\n"
        "with SafetensorsFile.open(sys.argv[1]) as file:\n"
        "    write_safetensors(sys.argv[1], file.parts, metadata={}, durability='rename')\n"
        "sys.exit(peak() - before > 24 << 10)\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "x"], check=True)
