"""Whatever goes wrong while saving, the name holds the whole old bytes or the whole new ones."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading

import pytest

from aoserial.errors import ChangedWhileReadingError, SaveError
from aoserial.storage import AtomicFile, Source, modes, temporary

OLD, NEW = b"old" * 1000, b"new!" * 1000


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "target"
    path.write_bytes(OLD)
    return path


def save(path, **options):
    with AtomicFile(path, size=len(NEW), **options) as file:
        file.position = 2000
        file.write(NEW[2000:3000])
        file.write(memoryview(NEW)[3000:])
        file.pwrite(NEW[:2000], 0)


def failing(monkeypatch, function, error, *, when=1):
    """Makes the call number `when` of `os.function` raise, and counts the calls."""
    original, calls = getattr(os, function), []

    def call(*args, **options):
        calls.append(args)
        if len(calls) == when:
            raise error
        return original(*args, **options)

    monkeypatch.setattr(os, function, call)
    return calls


@pytest.mark.parametrize("durability", ["rename", "fsync", "fsync+verify"])
def test_a_save_replaces_the_target_and_leaves_nothing_behind(target, durability):
    verified = []
    save(
        target,
        durability=durability,
        verify=lambda file: verified.append(file.pread(len(NEW) + 1, 0)),
    )
    assert target.read_bytes() == NEW
    assert os.listdir(target.parent) == ["target"]
    assert verified == ([NEW] if durability == "fsync+verify" else [])


def test_the_steps_come_in_the_order_that_makes_them_safe(target, monkeypatch):
    steps = []
    for function in ("open", "fchmod", "fsync", "dup", "close", "rename", "unlink"):
        original = getattr(os, function)

        def step(*args, function=function, original=original):
            steps.append(function)
            return original(*args)

        monkeypatch.setattr(os, function, step)
    save(target)
    assert steps == [
        "open", "fchmod", "fsync", "dup", "close", "rename", "open", "fsync", "close", "close",
    ]  # fmt: skip


FAULTS = {
    "open": errno.EACCES,
    "posix_fallocate": errno.ENOSPC,
    "pwrite": errno.ENOSPC,
    "fchmod": errno.EPERM,
    "fsync": errno.EIO,
    "close": errno.EDQUOT,
    "rename": errno.EROFS,
}


@pytest.mark.parametrize("function", FAULTS)
def test_an_error_of_any_call_leaves_the_target_unchanged(target, monkeypatch, function):
    failing(monkeypatch, function, OSError(FAULTS[function], "injected"))
    with pytest.raises(SaveError, match="injected") as caught:
        save(target)
    monkeypatch.undo()
    assert caught.value.errno == FAULTS[function]
    assert caught.value.state == "unchanged"
    assert caught.value.location.file == str(target)
    assert target.read_bytes() == OLD
    assert os.listdir(target.parent) == ["target"]


@pytest.mark.parametrize("when", [1, 2, 3])
def test_a_disk_that_fills_up_at_any_write_leaves_the_target_unchanged(target, monkeypatch, when):
    failing(monkeypatch, "pwrite", OSError(errno.ENOSPC, "No space left on device"), when=when)
    with pytest.raises(SaveError, match="No space left"):
        save(target)
    assert target.read_bytes() == OLD
    assert os.listdir(target.parent) == ["target"]


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF])
def test_a_file_system_that_cannot_reserve_space_is_no_fault(target, monkeypatch, code):
    failing(monkeypatch, "posix_fallocate", OSError(code, "injected"))
    save(target)
    assert target.read_bytes() == NEW


def test_a_failed_fsync_is_not_tried_again(target, monkeypatch):
    calls = failing(monkeypatch, "fsync", OSError(errno.EIO, "injected"))
    with pytest.raises(SaveError):
        save(target)
    assert len(calls) == 1


def test_a_failed_fsync_of_the_folder_says_that_the_file_is_new(target, monkeypatch):
    failing(monkeypatch, "fsync", OSError(errno.EIO, "injected"), when=2)
    with pytest.raises(SaveError) as caught:
        save(target)
    assert caught.value.state == "renamed, not known durable"
    assert target.read_bytes() == NEW
    assert os.listdir(target.parent) == ["target"]


def test_short_writes_are_continued(target, monkeypatch):
    original = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: original(fd, data[:7], at))
    save(target)
    assert target.read_bytes() == NEW


INTERRUPTED = ["posix_fallocate", "pwrite", "fchmod", "fsync", "rename"]


@pytest.mark.parametrize("function", INTERRUPTED)
def test_an_interrupt_passes_through_and_leaves_the_target_unchanged(target, monkeypatch, function):
    failing(monkeypatch, function, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        save(target)
    assert target.read_bytes() == OLD
    assert os.listdir(target.parent) == ["target"]


def test_an_error_inside_the_block_passes_through(target):
    def fails():
        with AtomicFile(target) as file:
            file.write(NEW)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert target.read_bytes() == OLD
    assert os.listdir(target.parent) == ["target"]


def test_a_failed_verification_leaves_the_target_unchanged(target):
    def verify(_):
        raise ValueError("not what was written")

    with pytest.raises(ValueError, match="not what was written"):
        save(target, durability="fsync+verify", verify=verify)
    assert target.read_bytes() == OLD
    assert os.listdir(target.parent) == ["target"]


@pytest.fixture
def temp_names(monkeypatch):
    """Gives temp files names that a test knows."""

    def give(*names):
        left = iter(names)
        monkeypatch.setattr(temporary, "_random_name", lambda: next(left))
        return [f".aoserial-{temporary._boot()}-{os.getpid()}-{name}.tmp" for name in names]

    return give


def test_planted_names_are_not_followed_or_overwritten(target, temp_names):
    planted, dangling, _ = temp_names("planted", "dangling", "free")
    victim = target.parent / "victim"
    victim.write_bytes(b"precious")
    (target.parent / planted).symlink_to(victim)
    (target.parent / dangling).symlink_to("nowhere")
    save(target)
    assert target.read_bytes() == NEW
    assert victim.read_bytes() == b"precious"
    assert sorted(os.listdir(target.parent)) == sorted([dangling, planted, "target", "victim"])


def test_names_that_are_all_taken_end_in_an_error(target, temp_names):
    names = temp_names(*["taken"] * temporary._ATTEMPTS)
    (target.parent / names[0]).write_bytes(b"theirs")
    with pytest.raises(SaveError, match="temp file"):
        save(target)
    assert (target.parent / names[0]).read_bytes() == b"theirs"


def left_file(folder, boot=None):
    path = folder / f".aoserial-{boot or temporary._boot()}-1-0123456789ab.tmp"
    path.write_bytes(b"left")
    return path


def test_the_temp_file_of_a_dead_process_is_removed_by_the_next_save(target):
    left = left_file(target.parent)
    save(target)
    assert not left.exists()


def test_the_temp_file_of_a_live_writer_is_not_removed(target):
    other = target.parent / "other"
    with AtomicFile(other) as file:
        file.write(NEW)
        save(target)
    assert other.read_bytes() == NEW
    assert sorted(os.listdir(target.parent)) == ["other", "target"]


def test_a_temp_file_of_another_run_of_the_machine_is_removed_when_it_is_old(target):
    left = left_file(target.parent, boot="f" * 8)
    save(target)
    assert left.exists()  # perhaps another machine's, on a file system that shows no locks
    os.utime(left, (0, 0))
    save(target)
    assert not left.exists()


@pytest.mark.parametrize("make", ["folder", "link", "fifo", "other name"])
def test_what_only_looks_like_a_temp_file_stays(target, make):
    path = target.parent / f".aoserial-{temporary._boot()}-1-0123456789ab.tmp"
    {
        "folder": path.mkdir,
        "link": lambda: path.symlink_to(target),
        "fifo": lambda: os.mkfifo(path),
        "other name": lambda: path.with_suffix(".tmp2").touch(),
    }[make]()
    before = os.listdir(target.parent)
    save(target)
    assert sorted(os.listdir(target.parent)) == sorted(before)


def test_without_locks_files_are_written_and_none_is_removed(target, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(fcntl, "flock", flock)
    left = left_file(target.parent)
    save(target)
    assert target.read_bytes() == NEW
    assert left.exists()


def test_a_file_that_was_taken_for_one_left_is_made_anew(target, monkeypatch):
    original, taken = fcntl.flock, []

    def flock(descriptor, how):
        if not taken:  # another process is quicker, and removes it
            (name,) = (name for name in os.listdir(target.parent) if name != "target")
            taken.append(name)
            os.unlink(target.parent / name)
        original(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    save(target)
    assert taken
    assert target.read_bytes() == NEW


@pytest.fixture
def source(tmp_path):
    path = tmp_path.parent / f"{tmp_path.name}-source"
    path.write_bytes(bytes(range(256)) * 40)
    with Source.open(path) as opened:
        yield opened
    path.unlink()


def copied(target, source):
    with AtomicFile(target, size=9000) as file:
        file.copy(source, 100, 8999, 1)
        file.pwrite(b"x", 0)
    return target.read_bytes() == b"x" + (bytes(range(256)) * 40)[100:9099]


@pytest.mark.parametrize("code", [errno.EXDEV, errno.ENOSYS, errno.EIO])
def test_bytes_are_copied_by_hand_where_the_kernel_cannot(target, source, monkeypatch, code):
    calls = failing(monkeypatch, "copy_file_range", OSError(code, "injected"))
    assert copied(target, source)
    assert len(calls) == 1


def test_bytes_are_copied_by_the_kernel_piece_by_piece(target, source, monkeypatch):
    original, calls = os.copy_file_range, []

    def copy(one, other, count, **at):
        calls.append(count)
        return original(one, other, min(count, 1000), **at)

    monkeypatch.setattr(os, "copy_file_range", copy)
    monkeypatch.setattr(os, "preadv", lambda *_: pytest.fail("bytes were read"))
    assert copied(target, source)
    assert len(calls) == 9


def test_a_source_that_has_become_shorter_is_noticed(target, source):
    os.truncate(source.path, 5000)
    with pytest.raises(ChangedWhileReadingError), AtomicFile(target) as file:
        file.copy(source, 0, source.size, 0)
    assert target.read_bytes() == OLD
    assert os.listdir(target.parent) == ["target"]


def test_the_temp_file_is_never_wider_than_the_final_one(target):
    target.chmod(0o644)
    with AtomicFile(target) as file:
        file.write(b"x")
        (temp,) = (name for name in os.listdir(target.parent) if name != "target")
        assert (target.parent / temp).stat().st_mode & 0o777 == 0o600
        assert os.fstat(file.descriptor).st_mode & 0o777 == 0o600
    assert target.stat().st_mode & 0o777 == 0o644


def test_the_umask_is_asked_without_being_changed(target, monkeypatch):
    target.unlink()
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("umask was set"))
    save(target)
    assert target.stat().st_mode & 0o777 == 0o666 & ~modes.umask()


def test_without_proc_the_umask_is_asked_by_setting_it(monkeypatch):
    expected = modes.umask()

    def no_proc(*_):
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", no_proc)
    assert modes.umask() == expected
    assert modes.umask() == expected  # and put back


def test_a_missing_folder_is_a_save_error(tmp_path):
    with pytest.raises(SaveError, match="No such file or directory") as caught:
        save(tmp_path / "none" / "target")
    assert caught.value.errno == errno.ENOENT


def test_two_writers_of_one_name_leave_one_whole_file(target):
    def write(byte):
        for _ in range(20):
            with AtomicFile(target, durability="rename") as file:
                for _ in range(10):
                    file.write(byte * 1000)

    threads = [threading.Thread(target=write, args=(byte,)) for byte in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    content = target.read_bytes()
    assert content == content[:1] * 10_000
    assert os.listdir(target.parent) == ["target"]


# Runs in a process of its own: kills itself just before the call number N of any of these.
KILLED = """
import os, signal, sys
from aoserial.storage import AtomicFile

path, when = sys.argv[1], int(sys.argv[2])
count = 0
for name in ("open", "posix_fallocate", "pwrite", "fchmod", "fsync", "close", "rename"):
    def call(*args, original=getattr(os, name), **options):
        global count
        count += 1
        if count == when:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **options)
    setattr(os, name, call)
with AtomicFile(path, size=4000) as file:
    for start in range(0, 4000, 500):
        file.write(b"new!" * 125)
"""


def test_a_process_killed_before_any_call_leaves_old_or_new(target):
    for when in range(1, 100):
        target.write_bytes(OLD)
        run = subprocess.run([sys.executable, "-c", KILLED, target, str(when)], check=False)
        orphans = [name for name in os.listdir(target.parent) if name != "target"]
        for name in orphans:
            assert name.startswith(".aoserial-")
            (target.parent / name).unlink()
        if run.returncode == 0:
            assert target.read_bytes() == NEW
            assert not orphans
            break
        assert run.returncode == -signal.SIGKILL
        assert len(orphans) <= 1
        assert target.read_bytes() in (OLD, NEW)
    assert when > 15  # calls there were to be killed before


LIMITED = """
import resource, sys
from aoserial.errors import ChangedWhileReadingError, SaveError
from aoserial.storage import AtomicFile

resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    with AtomicFile(sys.argv[1], size=int(sys.argv[2])) as file:
        file.write(b"x" * 4000)
except SaveError as error:
    sys.exit(0 if error.state == "unchanged" and error.errno == 27 else str(error))
sys.exit("saved")
"""


@pytest.mark.parametrize("size", [0, 4000])
def test_a_limit_on_file_sizes_leaves_the_target_unchanged(target, size):
    subprocess.run([sys.executable, "-c", LIMITED, target, str(size)], check=True)
    assert target.read_bytes() == OLD
    assert os.listdir(target.parent) == ["target"]
