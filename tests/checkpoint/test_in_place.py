"""A header rewritten in place: the old file or the new one, for every reader of ours, always."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.files import edit_envelope, envelope_of
from support.tensors import same_bytes

import aoserial
from aoserial.errors import AoserialError, ChangedWhileReadingError, HeaderError, SaveError
from aoserial.storage.safetensors import SafetensorsFile, in_place, journal, rewrite_header


def declare(version):
    """The type; in its second version a part has another name."""
    if version == 1:

        class Renamed(aoserial.VersionedTensor):
            qdata: torch.Tensor
            scale: torch.Tensor

    else:

        class Renamed(aoserial.VersionedTensor):
            codes: torch.Tensor
            scale: torch.Tensor

        @aoserial.migration("in_place.Renamed", 1, 2)
        def rename_the_codes(record):
            return record.at(2).rename(qdata="codes")

    return aoserial.register("in_place.Renamed", version=version)(Renamed)


@pytest.fixture
def old(tmp_path):
    """A file of version 1; version 2 is the head."""
    path = tmp_path / "model.safetensors"
    first = declare(1)
    state = {f"l{i}.weight": first(torch.full((4, 4), i + 1.0), torch.ones(4, 1)) for i in range(3)}
    aoserial.save(state | {"bias": torch.ones(2)}, path)
    declare(2)
    return path


def headers(old):
    """The header as it is, and as a migration in place makes it."""
    copy = old.parent.parent / f"{old.parent.name}-copy"
    copy.write_bytes(old.read_bytes())
    aoserial.migrate(copy, in_place=True)
    with SafetensorsFile.open(old) as one, SafetensorsFile.open(copy) as other:
        before, after = one.header.raw, other.header.raw
    copy.unlink()
    return before, after


def torn(old, *, at=0.5):
    """Leaves the file as a crash in the middle of writing would; the two headers."""
    before, after = headers(old)
    half = int(max(len(text.rstrip()) for text in (before, after)) * at)
    with old.open("r+b") as file:
        file.seek(8)
        file.write(after[:half])
    journal_of(old).write_bytes(journal.Journal(before, after).encode())
    return before, after


def journal_of(path):
    return Path(journal.journal_path(str(path)))


def versions(path):
    with aoserial.open(path) as checkpoint:
        return {record.version for record in checkpoint.records().values()}


def test_only_the_header_changes_and_the_file_stays_the_same(old):
    expected, before, inode = aoserial.load(old), old.read_bytes(), old.stat().st_ino
    mapped = load_file(old)
    plan = aoserial.migrate(old, in_place=True)
    assert plan.header_only
    assert versions(old) == {2}
    assert old.stat().st_ino == inode
    after = old.read_bytes()
    start = 8 + int.from_bytes(before[:8], "little")
    assert after[:8] == before[:8]
    assert after[start:] == before[start:]
    assert aoserial.verify(old, deep=True)
    assert os.listdir(old.parent) == [old.name]
    loaded = aoserial.load(old)
    assert same_bytes(loaded["bias"], expected["bias"])
    assert same_bytes(loaded["l2.weight"].codes, torch.full((4, 4), 3.0))
    assert torch.equal(mapped["l2._weight_qdata"], torch.full((4, 4), 3.0))
    assert torch.equal(load_file(old)["l2._weight_codes"], torch.full((4, 4), 3.0))


def test_the_same_header_comes_out_of_a_migration_to_another_file_when_the_order_is_the_same(
    old, tmp_path
):
    aoserial.migrate(old, tmp_path / "new", to="in_place.Renamed@2")
    aoserial.migrate(old, in_place=True)
    one, other = aoserial.load(old), aoserial.load(tmp_path / "new")
    assert all(same_bytes(one[name].codes, other[name].codes) for name in one if name != "bias")
    assert aoserial.verify(tmp_path / "new", deep=True)


def no_room(path):
    """Has the header end right before the data, as other writers leave it."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    text = content[8 : 8 + length].rstrip(b" ")
    digest = envelope_of(path)["header_digest"].encode()
    text = text.replace(digest, b"0" * 64)
    text = text.replace(b"0" * 64, hashlib.sha256(text).hexdigest().encode())
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])


NOT_IN_PLACE = {
    "no room": no_room,
    "no digest": lambda path: edit_envelope(path, lambda envelope: None),
    "another name": lambda path: os.link(path, path.with_name("other")),
}


@pytest.mark.parametrize("why", NOT_IN_PLACE)
def test_a_file_that_cannot_be_rewritten_in_place_is_replaced_whole(old, why):
    NOT_IN_PLACE[why](old)
    inode = old.stat().st_ino
    before = old.read_bytes()
    aoserial.migrate(old, in_place=True)
    assert old.stat().st_ino != inode
    assert versions(old) == {2}
    if why == "another name":
        assert old.with_name("other").read_bytes() == before


@pytest.mark.parametrize("at", [0, 0.01, 0.3, 0.5, 0.99, 1])
def test_a_header_that_was_half_written_is_put_back_when_the_file_is_opened(old, at):
    content = old.read_bytes()
    torn(old, at=at)
    assert versions(old) == ({2} if at == 1 else {1})
    if at != 1:
        assert old.read_bytes() == content
    assert aoserial.verify(old, deep=True)
    assert os.listdir(old.parent) == [old.name]


@pytest.mark.parametrize("read", [aoserial.load, aoserial.inspect, aoserial.plan, aoserial.verify])
def test_every_way_of_reading_settles_it(old, read):
    torn(old)
    read(old)
    assert os.listdir(old.parent) == [old.name]
    load_file(old)


def test_a_reader_that_may_not_write_reads_the_header_from_the_journal(old, monkeypatch):
    torn(old)
    content, left = old.read_bytes(), journal_of(old).read_bytes()
    original = os.open

    def refuse(path, flags, *more):
        if flags & os.O_RDWR:
            raise PermissionError(errno.EROFS, "Read-only file system")
        return original(path, flags, *more)

    monkeypatch.setattr(os, "open", refuse)
    assert versions(old) == {1}
    assert aoserial.verify(old, deep=True)
    assert old.read_bytes() == content
    assert journal_of(old).read_bytes() == left


@pytest.fixture
def nobodys(old):
    """The file in a folder that this process may read and not write to."""
    if os.geteuid() != 0:
        pytest.skip("only root can become nobody and come back")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = Path(shutil.copy(old, folder))
        torn(path)
        path.chmod(0o644)
        journal_of(path).chmod(0o644)
        os.chmod(folder, 0o755)
        os.seteuid(65534)
        try:
            yield path
        finally:
            os.seteuid(0)


def test_in_a_folder_that_may_not_be_written_to_all_is_read_and_nothing_changes(nobodys):
    before = {path.name: path.read_bytes() for path in nobodys.parent.iterdir()}
    assert versions(nobodys) == {1}
    assert aoserial.verify(nobodys, deep=True)
    for write in (
        lambda: aoserial.save({"a": torch.ones(1)}, nobodys),
        lambda: aoserial.migrate(nobodys, in_place=True),
    ):
        with pytest.raises(SaveError, match="Permission denied") as caught:
            write()
        assert caught.value.state == "unchanged"
    assert {path.name: path.read_bytes() for path in nobodys.parent.iterdir()} == before


def test_while_the_writer_lives_readers_leave_file_and_journal_alone(old):
    torn(old)
    content = old.read_bytes()
    with journal_of(old).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert versions(old) == {1}
        assert old.read_bytes() == content
        assert journal_of(old).exists()
        with pytest.raises(SaveError, match="another process is rewriting") as caught:
            aoserial.migrate(old, in_place=True)
        assert caught.value.state == "unchanged"
    aoserial.migrate(old, in_place=True)
    assert versions(old) == {2}
    assert os.listdir(old.parent) == [old.name]


def test_through_a_symlink_the_journal_lies_beside_the_file(old, tmp_path):
    (tmp_path / "blobs").mkdir()
    old.rename(tmp_path / "blobs" / "real")
    link = tmp_path / "link.safetensors"
    link.symlink_to("blobs/real")
    torn(link)
    assert journal_of(link).parent.name == "blobs"
    assert versions(link) == {1}
    aoserial.migrate(link, in_place=True)
    assert link.is_symlink()
    assert os.listdir(tmp_path / "blobs") == ["real"]


def test_the_longest_of_names_has_a_journal_too(old):
    long = old.with_name("x" * 255)
    old.rename(long)
    torn(long)
    assert versions(long) == {1}
    aoserial.migrate(long, in_place=True)
    assert os.listdir(long.parent) == [long.name]


DAMAGE = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "a bit": lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
    "too long": lambda data: data + b"x",
    "noise": lambda data: os.urandom(len(data)),
    "another file's": lambda data: journal.Journal(b"{" * 4088, b"}" * 4088).encode(),
    "of another length": lambda data: journal.Journal(b"{}", b"{}").encode(),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_journal_of_no_use_is_removed_beside_a_whole_header_and_never_applied(old, how):
    before, after = headers(old)
    content = old.read_bytes()
    journal_of(old).write_bytes(DAMAGE[how](journal.Journal(before, after).encode()))
    assert versions(old) == {1}
    assert old.read_bytes() == content
    assert os.listdir(old.parent) == [old.name]


@pytest.mark.parametrize("how", ["a bit", "noise", "another file's"])
def test_a_torn_header_and_a_journal_of_no_use_are_an_error_that_names_both(old, how):
    torn(old)
    journal_of(old).write_bytes(DAMAGE[how](journal_of(old).read_bytes()))
    content = old.read_bytes()
    with pytest.raises(AoserialError, match="model.safetensors.aoserial-journal.*damaged"):
        aoserial.load(old)
    assert old.read_bytes() == content
    assert journal_of(old).exists()  # somebody may know what to do with it


def test_a_header_that_is_malformed_says_that_its_journal_is_of_no_use(old):
    journal_of(old).write_bytes(b"noise")
    with old.open("r+b") as file:
        file.seek(20)
        file.write(b"\0\0")
    with pytest.raises(HeaderError, match="no header can be restored"):
        aoserial.load(old)


def test_a_journal_that_another_user_planted_is_not_believed(old, monkeypatch):
    torn(old)
    content = old.read_bytes()
    original = os.fstat

    def fstat(descriptor):
        status = original(descriptor)
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        if not name.endswith("-journal"):
            return status
        fields = list(status)
        fields[stat.ST_UID] = 12345
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fstat", fstat)
    with pytest.raises(AoserialError, match="not to be read"):
        aoserial.load(old)
    assert old.read_bytes() == content


def test_a_file_that_was_replaced_meanwhile_is_not_touched(old):
    before, after = headers(old)
    with SafetensorsFile.open(old) as file:
        aoserial.save({"other": torch.ones(3)}, old)
        content = old.read_bytes()
        with pytest.raises(ChangedWhileReadingError, match="another process has written"):
            rewrite_header(file.source, before, after)
    assert old.read_bytes() == content
    assert os.listdir(old.parent) == [old.name]


def test_a_header_that_was_rewritten_meanwhile_is_not_written_over(old):
    before, after = headers(old)
    with SafetensorsFile.open(old) as file:
        aoserial.migrate(old, in_place=True)
        with pytest.raises(ChangedWhileReadingError):
            rewrite_header(file.source, before, after)
    assert versions(old) == {2}


def test_the_journal_can_be_read_by_whoever_can_read_the_file(old, monkeypatch):
    old.chmod(0o644)
    modes = []
    overwrite = in_place._overwrite

    def look(source, target, path, *headers):
        modes.append(os.stat(path).st_mode & 0o777)
        overwrite(source, target, path, *headers)

    monkeypatch.setattr(in_place, "_overwrite", look)
    aoserial.migrate(old, in_place=True)
    assert modes == [0o644]


def test_checksums_are_kept_so_that_damaged_bytes_stay_known_to_be(old, tmp_path):
    with old.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    aoserial.migrate(old, tmp_path / "new")
    aoserial.migrate(old, in_place=True)
    for path in (old, tmp_path / "new"):
        assert versions(path) == {2}
        assert not aoserial.verify(path, deep=True)
