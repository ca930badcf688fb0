"""What is meant and cannot be read, odd names, and the patterns themselves."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.follow_world import BANNER, World, append, packed
from tracker.follow.cursor import fingerprint, fingerprint_length, first_line, signed
from tracker.follow.glob import Pattern, Scan, reason, unrotated


@contextmanager
def nobody() -> Iterator[Path]:
    """A folder, and no privileges: permissions bind root only when it is somebody else."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        if os.geteuid() == 0:
            os.chown(folder, 65534, 65534)
            os.seteuid(65534)
        yield folder
    finally:
        if os.geteuid() != os.getuid():
            os.seteuid(os.getuid())
        os.system(f"rm -rf {folder}")


def test_permission_denied_is_said_and_later_granted() -> None:
    """The file waits; when it may be read, all of it is."""
    with nobody() as folder:
        append(folder / "a.log", b"one\n")
        append(folder / "b.log", b"two\n")
        (folder / "a.log").chmod(0)
        world = World(folder)
        assert world.poll() == b"two\n"
        assert world.reasons() == {"a.log": "permission denied"}
        (folder / "a.log").chmod(0o644)

        assert world.poll() == b"one\n"
        assert world.reasons() == {}


def test_a_folder_that_may_not_be_listed_is_said_and_nothing_in_it_is_given_up() -> None:
    """What cannot be seen is not gone: its streams keep their place."""
    with nobody() as folder:
        (folder / "logs").mkdir()
        append(folder / "logs" / "a.log", b"one\n")
        world = World(folder, "logs/*.log")
        world.poll()
        (folder / "logs").chmod(0)
        assert world.poll() == b""
        assert world.reasons() == {"logs": "folder: permission denied"}
        assert world.follower.health().files == 1
        (folder / "logs").chmod(0o755)
        append(folder / "logs" / "a.log", b"two\n")

        assert world.poll() == b"two\n"
        assert world.streams() == [b"one\ntwo\n"]


def test_an_unreadable_file_keeps_no_other_waiting() -> None:
    """Although both begin with the same banner, and the readable one might be its copy."""
    with nobody() as folder:
        append(folder / "a.log", BANNER + b"one\n")
        world = World(folder)
        world.poll()
        world.restart()
        (folder / "a.log").chmod(0)
        append(folder / "b.log", BANNER + b"two\n")

        assert world.settle() == BANNER + b"two\n"


def test_a_copy_that_becomes_unreadable_stops_no_poll() -> None:
    """What is to be stored about it cannot be looked up; that is tried once a poll."""
    with nobody() as folder:
        for age, (name, text) in enumerate((("a", BANNER), ("copy", BANNER), ("c", b"c\n"), ("d", b"d\n"))):
            append(folder / f"{name}.log", text)
            os.utime(folder / f"{name}.log", (age + 1, age + 1))
        world = World(folder, max_open=2)
        chunk = next(world.iterate())
        assert chunk.cursor.copy
        (folder / "copy.log").chmod(0)

        assert world.settle() == BANNER + b"c\nd\n"
        assert world.reasons() == {"copy.log": "permission denied"}


def test_a_doubt_that_cannot_be_settled_keeps_no_other_waiting() -> None:
    """A file that was written anew and may not be read any more gives up its stream."""
    with nobody() as folder:
        append(folder / "a.log", BANNER + b"one\n")
        world = World(folder)
        world.poll()
        (folder / "a.log").write_bytes(BANNER)
        (folder / "a.log").chmod(0)
        append(folder / "b.log", BANNER + b"two\n")
        assert world.poll() == b""
        world.tick(5)
        assert world.poll() == b""
        world.tick(6)

        assert world.poll() + world.settle() == BANNER + b"two\n"
        assert world.reasons() == {"a.log": "permission denied"}


def test_a_file_named_in_full_needs_no_list_of_its_folder() -> None:
    """The right to enter is enough."""
    with nobody() as folder:
        (folder / "logs").mkdir()
        append(folder / "logs" / "a.log", b"one\n")
        (folder / "logs").chmod(0o311)

        assert World(folder, "logs/a.log").poll() == b"one\n"


def test_a_file_system_that_does_not_answer_hides_its_files_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An input/output error is a reason, not an end; nothing is read again afterwards."""
    append(tmp_path / "a.log", b"one\n")
    world = World(tmp_path)
    world.poll()
    listing = os.scandir

    def failing(path: bytes) -> Iterator[os.DirEntry[bytes]]:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "scandir", failing)
    for _ in range(3):
        assert world.poll() == b""
        world.tick(100)
    assert list(world.reasons().values()) == ["folder: input/output error (EIO)"]
    monkeypatch.setattr(os, "scandir", listing)
    append(tmp_path / "a.log", b"two\n")

    assert world.poll() == b"two\n"


def test_a_read_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stale handle of a network file system: open anew, go on, double nothing."""
    append(tmp_path / "a.log", b"one\n")
    world = World(tmp_path)
    world.poll()
    append(tmp_path / "a.log", b"two\n")
    reading = os.pread

    def failing(fd: int, size: int, offset: int) -> bytes:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(os, "pread", failing)
    assert world.poll() == b""
    assert world.reasons() == {"a.log": "stale file handle (ESTALE)"}
    monkeypatch.setattr(os, "pread", reading)

    assert world.poll() == b"two\n"
    assert world.reasons() == {}


def test_what_is_no_file_is_named_and_never_opened(tmp_path: Path) -> None:
    """Opening a FIFO would wait for its writer; reading a device would be worse."""
    (tmp_path / "folder.log").mkdir()
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "device.log").symlink_to("/dev/zero")
    (tmp_path / "nothing.log").symlink_to("nowhere")
    (tmp_path / "circle.log").symlink_to("circle.log")
    short = tempfile.mkdtemp()  # a socket's path has a limit
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{short}/s")
        (tmp_path / "socket.log").symlink_to(f"{short}/s")
        world = World(tmp_path)
        assert world.settle(final=True) == b""

        assert world.reasons() == {
            "circle.log": "is a symbolic link in a circle",
            "device.log": "is a device",
            "folder.log": "is a directory",
            "nothing.log": "is a symbolic link to nothing",
            "pipe.log": "is a named pipe",
            "socket.log": "is a socket",
        }
    assert world.follower.health().unreadable_by_reason["is a device"] == 1
    os.unlink(f"{short}/s")
    os.rmdir(short)


def test_a_file_that_becomes_a_pipe_is_not_opened(tmp_path: Path) -> None:
    """Nor does the poll wait."""
    log = tmp_path / "a.log"
    append(log, b"one\n")
    world = World(tmp_path, max_open=2)
    world.poll()
    world.restart()
    log.unlink()
    os.mkfifo(log)

    assert world.settle() == b""
    assert world.reasons() == {"a.log": "is a named pipe"}


def test_an_archive_that_is_never_finished_keeps_no_file_waiting(tmp_path: Path) -> None:
    """Although it lies where a stream with the same banner was."""
    log = tmp_path / "a.log"
    append(log, BANNER + b"one\n")
    world = World(tmp_path)
    world.poll()
    log.write_bytes(packed(BANNER * 99)[:50])
    append(tmp_path / "b.log", BANNER + b"two\n")

    assert world.settle() == BANNER + b"two\n"
    assert "incomplete" in world.reasons()["a.log"]


def test_odd_names_are_followed_and_shown_as_text(tmp_path: Path) -> None:
    """Names are bytes; a shown path can always be stored."""
    folder = os.fsencode(tmp_path)
    names = [b"line\nfeed.log", b"not utf-8 \xff.log", b"[1].log", b"*.log", b" .log", b"\xc3\xa9.log"]
    for number, name in enumerate(names):
        Path(os.fsdecode(os.path.join(folder, name))).write_bytes(b"%d\n" % number)
    world = World(tmp_path)

    assert sorted(world.poll().split()) == [b"%d" % i for i in range(6)]
    shown = {cursor.path for cursor in world.stored()}
    assert {"not utf-8 \\xff.log", "line\nfeed.log", "é.log"} <= shown
    world.restart()
    assert world.poll() == b""


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        pytest.param("*.log", ["a.log", "b.log", "b.log.1", "b.log.2.gz"], id="star-with-rotated"),
        pytest.param("b.log", ["b.log", "b.log.1", "b.log.2.gz"], id="a-name-with-its-rotated"),
        pytest.param("?.log", ["a.log", "b.log", "b.log.1", "b.log.2.gz"], id="question-mark"),
        pytest.param("[ab].log", ["a.log", "b.log", "b.log.1", "b.log.2.gz"], id="class"),
        pytest.param("[!a].log", ["b.log", "b.log.1", "b.log.2.gz"], id="class-negated"),
        pytest.param("run[1].log", ["run1.log", "run[1].log"], id="brackets-may-be-the-name"),
        pytest.param(".*.log", [".hidden.log"], id="hidden-only-when-asked-for"),
        pytest.param("**/*.txt", ["deep/er/x.txt", "top.txt"], id="any-depth"),
        pytest.param("**/er/*.txt", ["deep/er/x.txt"], id="any-depth-then-a-folder"),
        pytest.param("deep/**", ["deep/er/x.txt", "deep/y"], id="everything-below"),
        pytest.param("link/er/*.txt", ["link/er/x.txt"], id="a-linked-folder-that-is-named"),
        pytest.param("*/er/*.txt", ["deep/er/x.txt", "link/er/x.txt"], id="folders-by-star"),
        pytest.param("./deep/../top.txt", ["top.txt"], id="dots"),
        pytest.param("nothing/*/x", [], id="nothing-yet"),
        pytest.param("top.txt/x", [], id="below-a-file"),
    ],
)
def test_patterns(tmp_path: Path, pattern: str, found: list[str]) -> None:
    """A pattern means these files."""
    for name in (
        *("a.log", "b.log", "b.log.1", "b.log.2.gz", "b.log.tmp", "b.log.1.gz.part", ".hidden.log"),
        *("run1.log", "run[1].log", "top.txt", "deep/er/x.txt", "deep/y", ".git/z.txt"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "link").symlink_to("deep")
    (tmp_path / "deep" / "loop").symlink_to("..")
    folder = os.fsencode(tmp_path)
    paths = [path for path, _ in Pattern(pattern, tmp_path).files(Scan())]

    got = sorted(os.path.relpath(os.path.normpath(path), folder).decode() for path in paths)
    assert [name for name in got if not (pattern == "*.log" and name.startswith("run"))] == found


def test_an_absolute_pattern_ignores_the_root(tmp_path: Path) -> None:
    """And rotated names can be left out."""
    append(tmp_path / "a.log", b"one\n")
    append(tmp_path / "a.log.1", b"two\n")

    assert World(Path("/nowhere"), f"{tmp_path}/a.log", rotated=False).poll() == b"one\n"


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("train.log.1", "train.log"),
        ("train.log.12.gz", "train.log"),
        ("train.log.gz", "train.log"),
        ("train.log-20260102", "train.log"),
        ("train.log-20260102.gz", "train.log"),
        ("train.log-20260102-1767312000", "train.log"),
        ("train.log-1767312000", "train.log"),
        ("train.log.2026-01-02", "train.log"),
        ("train.log.2026-01-02_07-15-00", "train.log"),
        ("train.log.2026-01-02_07", "train.log"),
        ("train.log.old", "train.log"),
        ("train.log.bak", "train.log"),
        ("slurm-123456.out", "slurm-123456.out"),
        ("rank0.log", "rank0.log"),
        ("train.log.gz.tmp", "train.log.gz.tmp"),
        (".1", ".1"),
        (".gz", ".gz"),
    ],
)
def test_names_that_rotation_gives(name: str, base: str) -> None:
    """logrotate's numbers and dates, Python's and common tools' as well."""
    assert unrotated(name.encode()).decode() == base


def test_small_facts() -> None:
    """A fingerprint tells its length; a first line its first 256 bytes; an inode its sign."""
    assert fingerprint_length(fingerprint(b"x" * 1000)) == 256
    assert fingerprint_length(b"") == 0
    assert first_line(b"a\nb\n") == first_line(b"a\nc\n") != first_line(b"a")
    assert first_line(b"x" * 256 + b"a\n") == first_line(b"x" * 256 + b"b\n")
    assert (signed(2**63), signed(2**63 - 1)) == (-(2**63), 2**63 - 1)
    assert reason(OSError(errno.ENOSPC, "")) == "no space left on device (ENOSPC)"
