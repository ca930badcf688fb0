"""Rotation, truncation and copies: one stream stays one, two stay two, and nothing is read twice."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.follow_world import BANNER, World, append, copy_truncate, pack, packed

A = BANNER + b"".join(b"run A, line %04d\n" % i for i in range(500))
B = BANNER + b"".join(b"run B, line %04d\n" % i for i in range(500))
DOWN = pytest.mark.parametrize("down", [False, True], ids=["while-we-watch", "while-we-are-down"])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "train.log"


def rename(log: Path) -> None:
    log.rename(log.with_name("train.log.1"))


def rename_and_pack(log: Path) -> None:
    rename(log)
    pack(log.with_name("train.log.1"))


def copy_and_truncate(log: Path) -> None:
    copy_truncate(log, log.with_name("train.log.1"))


def copy_truncate_and_pack(log: Path) -> None:
    copy_and_truncate(log)
    pack(log.with_name("train.log.1"))


def copy_truncate_to_a_name_of_ones_own(log: Path) -> None:
    copy_truncate(log, log.with_name("kept by hand.log"))


def rename_to_a_date(log: Path) -> None:
    log.rename(log.with_name("train.log-20260102"))


def rename_out_of_the_pattern(log: Path) -> None:
    log.rename(log.with_name("train.out.saved"))


ROTATIONS = pytest.mark.parametrize(
    "rotate",
    [
        pytest.param(rename, id="rename"),
        pytest.param(rename_to_a_date, id="rename-to-a-date"),
        pytest.param(rename_and_pack, id="rename-and-gzip"),
        pytest.param(copy_and_truncate, id="copy-truncate"),
        pytest.param(copy_truncate_and_pack, id="copy-truncate-and-gzip"),
        pytest.param(copy_truncate_to_a_name_of_ones_own, id="copy-truncate-by-hand"),
        pytest.param(rename_out_of_the_pattern, id="rename-out-of-the-pattern"),
    ],
)


@ROTATIONS
@DOWN
def test_the_rest_of_a_rotated_file_is_read_as_the_same_stream(
    tmp_path: Path, log: Path, rotate: Callable[[Path], None], down: bool
) -> None:
    """And the new file, with the same banner, is another; both without a gap or a repetition."""
    world = World(tmp_path)
    append(log, A[:3000])
    world.poll()
    append(log, A[3000:])  # not seen before the rotation
    if down:
        world.follower.close()
    rotate(log)
    append(log, B[:4000])
    if down:
        world.restart()
    world.settle()
    append(log, B[4000:])
    world.settle()
    world.restart()
    world.settle()

    assert world.streams() == [A, B]


@ROTATIONS
def test_one_late_reading_finds_what_a_live_one_saw(
    tmp_path: Path, log: Path, rotate: Callable[[Path], None]
) -> None:
    """Streams do not depend on when they were read (a name that hides the file excepted)."""
    append(log, A)
    rotate(log)
    append(log, B)
    world = World(tmp_path)
    world.settle(final=True)

    hidden = rotate is rename_out_of_the_pattern
    assert world.streams() == ([B] if hidden else [A, B])


@DOWN
@pytest.mark.parametrize("size", [100, 3000, 9000], ids=["shorter", "equal", "longer"])
def test_a_truncated_file_is_a_new_stream(tmp_path: Path, log: Path, size: int, down: bool) -> None:
    """Whether what replaces it is shorter or already longer than what was read."""
    world = World(tmp_path)
    append(log, A[:3000])
    world.poll()
    if down:
        world.follower.close()
    with log.open("r+b") as file:
        file.truncate(0)
        file.write((b"\n" + B)[:size])
    if down:
        world.restart()
    assert world.poll() == b"", "the first look only raises a doubt"
    assert world.follower.next_look_s == world.now_s + 1.0
    world.settle(final=True)

    kept = A[:3000][: A[:3000].rfind(b"\n") + 1]
    assert world.streams() == sorted([kept, (b"\n" + B)[:size]])
    assert world.follower.health().truncations == 1
    assert max(cursor.generation for cursor in world.stored()) == 1


def test_a_size_that_shrinks_for_a_moment_is_not_believed(tmp_path: Path, log: Path) -> None:
    """A network file system may show an old size; the second look sees the true one."""
    world = World(tmp_path)
    append(log, A)
    world.poll()
    os.truncate(log, 500)
    assert world.poll() == b""
    log.write_bytes(A + b"and on\n")
    world.tick()

    assert world.settle() == b"and on\n"
    assert world.streams() == [A + b"and on\n"]
    assert world.follower.health().truncations == 0


def test_final_believes_at_once(tmp_path: Path, log: Path) -> None:
    """There will be no second look."""
    world = World(tmp_path)
    append(log, A)
    world.poll()
    log.write_bytes(b"new\n")

    assert world.poll(final=True) == b"new\n"


@DOWN
def test_an_inode_that_is_used_again_is_another_file(tmp_path: Path, down: bool) -> None:
    """The number alone proves nothing."""
    world = World(tmp_path)
    log = tmp_path / "a.log"
    append(log, A)
    world.settle()
    for attempt in range(200):
        world.restart()
        inode = log.stat().st_ino
        world.follower.close()
        log.unlink()
        log = tmp_path / f"{attempt}.log"
        append(log, B + b"attempt %d\n" % attempt)
        if log.stat().st_ino == inode:
            break
    else:
        pytest.skip("this file system does not use inodes again")
    if down:
        world.restart()
    world.settle()

    assert world.streams() == [A, B + b"attempt %d\n" % attempt]


def test_a_deleted_file_is_read_to_its_end_through_the_open_descriptor(tmp_path: Path, log: Path) -> None:
    """For a few seconds; then its space is free."""
    world = World(tmp_path)
    with log.open("ab", buffering=0) as job:
        job.write(b"one\n")
        world.poll()
        log.unlink()
        job.write(b"two\n")
        assert world.poll() == b"two\n"
        job.write(b"three\n")
        world.tick(2)
        assert world.poll() == b"three\n"
    world.tick(6)
    world.poll()
    world.tick(6)
    world.poll()

    assert world.follower.health().open_files == 0
    assert world.follower.health().files == 0


def test_a_deleted_file_of_the_same_name_is_a_new_stream(tmp_path: Path, log: Path) -> None:
    """Read from its start, beside the old one."""
    world = World(tmp_path)
    append(log, A)
    world.poll()
    log.unlink()
    append(log, B)
    world.settle()

    assert world.streams() == [A, B]


def test_a_file_that_moves_to_another_folder_is_the_same_stream(tmp_path: Path, log: Path) -> None:
    """Also when its name, its folder and its packing all changed while we were down."""
    world = World(tmp_path, "**/*.log", "**/*.gz")
    append(log, A[:4000])
    world.poll()
    world.follower.close()
    append(log, A[4000:])
    (tmp_path / "old" / "2026").mkdir(parents=True)
    pack(log, tmp_path / "old" / "2026" / "whatever.gz")
    world.restart()
    world.settle()

    assert world.streams() == [A]


def test_gzip_at_work_beside_its_original_is_read_once(tmp_path: Path, log: Path) -> None:
    """The packed file grows, is whole, and only then replaces the plain one."""
    world = World(tmp_path)
    append(log, A[:4000])
    world.poll()
    append(log, A[4000:])
    old, new = log.with_name("train.log.1"), log.with_name("train.log.1.gz")
    log.rename(old)
    whole = packed(A)
    for part in (whole[:10], whole[:-1], whole):
        new.write_bytes(part)
        world.settle()
        world.restart()
    old.unlink()
    world.settle()

    assert world.streams() == [A]


def test_a_copy_at_work_before_the_truncation_is_read_once(tmp_path: Path, log: Path) -> None:
    """Kill the follower at each step; what the job writes meanwhile is neither lost nor doubled."""
    world = World(tmp_path)
    copy = log.with_name("train.log.1")
    append(log, A[:4000])
    world.poll()
    for size in (10, 300, 3000, 4000):
        copy.write_bytes(A[:size])
        append(log, A[4000 + size : 4010 + size])
        world.poll()
        world.restart()
    rest = log.read_bytes()
    copy.write_bytes(rest)
    os.truncate(log, 0)
    append(log, B)
    world.restart()
    world.settle()

    assert world.streams() == sorted([rest[: rest.rfind(b"\n") + 1], B])


@DOWN
def test_lines_between_copy_and_truncation_are_read_if_we_were_fast(
    tmp_path: Path, log: Path, down: bool
) -> None:
    """Copy-truncate loses them in the files; the copy, which lacks them, is still known for one."""
    world = World(tmp_path)
    append(log, A[:4000])
    shutil.copy(log, log.with_name("train.log.1"))
    append(log, A[4000:])
    world.poll()
    if down:
        world.follower.close()
    os.truncate(log, 0)
    append(log, B)
    if down:
        world.restart()
    world.settle()
    world.restart()
    world.settle()

    assert world.streams() == [A, B]


class TestCopies:
    """A file whose bytes are all the beginning of another file's is a copy, whatever its name."""

    def test_a_copy_in_the_pattern_is_read_once(self, tmp_path: Path, log: Path) -> None:
        """Found late or early, longer or shorter, before or after a restart."""
        append(log, A)
        shutil.copy(log, tmp_path / "again.log")
        (tmp_path / "half.log").write_bytes(A[:5000])
        (tmp_path / "packed.log").write_bytes(packed(A))
        world = World(tmp_path)
        world.settle()
        shutil.copy(log, tmp_path / "later.log")
        world.settle()
        world.restart()
        world.settle()

        assert world.streams() == [A]
        assert world.follower.health().copies == 4

    def test_a_hard_link_is_the_same_file(self, tmp_path: Path, log: Path) -> None:
        """One inode is one file."""
        append(log, A)
        os.link(log, tmp_path / "link.log")
        world = World(tmp_path)

        assert world.settle() == A
        assert world.follower.health().files == 1

    def test_a_copy_that_goes_its_own_way_is_read_from_its_start(self, tmp_path: Path, log: Path) -> None:
        """A run that was branched off: its bytes are then another stream's."""
        world = World(tmp_path)
        append(log, A)
        shutil.copy(log, tmp_path / "branch.log")
        world.settle()
        assert world.streams() == [A]

        append(tmp_path / "branch.log", b"the branch goes on\n")
        append(log, b"the trunk goes on\n")
        world.settle()

        assert world.streams() == [A + b"the branch goes on\n", A + b"the trunk goes on\n"]

    def test_the_stream_goes_on_in_the_longer_copy(self, tmp_path: Path, log: Path) -> None:
        """If only the copy grows, it is the log."""
        world = World(tmp_path)
        append(log, A[:5000])
        world.settle()
        shutil.copy(log, tmp_path / "copy.log")
        append(tmp_path / "copy.log", A[5000:])
        world.settle()
        world.restart()
        world.settle()

        assert world.streams() == [A]

    def test_a_file_replaced_by_its_like_is_the_same_stream(self, tmp_path: Path, log: Path) -> None:
        """As rsync, an editor or a restored backup do it: a new inode with the old content."""
        world = World(tmp_path)
        append(log, A[:5000])
        world.settle()
        for end in (6000, 7000, len(A)):
            (tmp_path / ".incoming").write_bytes(A[:end])
            (tmp_path / ".incoming").rename(log)
            world.settle()

        assert world.streams() == [A]

    def test_ranks_with_one_banner_are_as_many_streams(self, tmp_path: Path) -> None:
        """While they print the same, one is read; when they differ, all are, from the start."""
        world = World(tmp_path)
        files = [tmp_path / f"rank{i}.log" for i in range(40)]
        for file in files:
            append(file, BANNER)
        world.settle()
        assert world.streams() == [BANNER]

        for i, file in enumerate(files):
            append(file, b"I am rank %d\n" % i)
        world.settle()

        assert world.streams() == sorted(BANNER + b"I am rank %d\n" % i for i in range(40))

    @pytest.mark.slow
    def test_a_copy_at_work_is_known_among_many_runs_with_one_banner(self, tmp_path: Path, log: Path) -> None:
        """However many rotated files begin alike, and whatever its size is so far."""
        for number in range(1, 400):
            append(tmp_path / f"train.log.{number}", BANNER + b"attempt %03d\n" % number * 9)
        append(log, A)
        world = World(tmp_path)
        world.settle()
        before = len(world.streams())
        for number in range(399, 0, -1):
            (tmp_path / f"train.log.{number}").rename(tmp_path / f"train.log.{number + 1}")
        (tmp_path / "train.log.1").write_bytes(A[:700])
        world.settle()

        assert len(world.streams()) == before == 400
        assert world.follower.health().copies == 1

    def test_a_copy_whose_original_goes_unread_is_read(self, tmp_path: Path, log: Path) -> None:
        """Killed between knowing it for a copy and reading; another run with that banner is gone."""
        world = World(tmp_path)
        append(log, A)
        world.settle()
        world.follower.close()
        log.unlink()
        append(log, B[:5000])
        (tmp_path / "train.log.1.gz").write_bytes(packed(B[:5000]))
        world.restart()
        world.tick()
        first = next(chunk for chunk in world.iterate(final=True))
        assert first.cursor.copy
        assert first.data == b""
        world.follower.close()
        log.unlink()
        world.restart()
        world.settle(final=True)

        assert world.streams() == [A, B[:5000]]

    def test_equal_tails_do_not_make_a_copy(self, tmp_path: Path) -> None:
        """Same banner, same length, same last 100 KB: only the middle tells them apart."""
        spam = b"waiting for the other ranks\n" * 4000
        for name in (b"a", b"b"):
            append(tmp_path / f"{name.decode()}.log", BANNER + b"node " + name + b"\n" + spam)
        world = World(tmp_path)
        world.settle()

        assert len(world.streams()) == 2

    def test_equal_ends_do_not_hand_over_a_stream(self, tmp_path: Path, log: Path) -> None:
        """The check sum of all that was read must be the same, not only head and tail."""
        spam = b"waiting for the other ranks\n" * 4000
        one, two = BANNER + b"node a\n" + spam, BANNER + b"node b\n" + spam
        world = World(tmp_path)
        append(log, one)
        world.settle()
        world.follower.close()
        log.unlink()
        append(tmp_path / "other.log", two + b"more\n")
        world.restart()
        world.settle()

        assert world.streams() == sorted([one, two + b"more\n"])


def test_a_symbolic_link_and_its_target_are_read_once(tmp_path: Path) -> None:
    """A link that is turned to the next run leads to a new stream."""
    world = World(tmp_path)
    latest = tmp_path / "latest.log"
    append(tmp_path / "run1.log", A)
    latest.symlink_to("run1.log")
    world.settle()
    append(tmp_path / "run2.log", B)
    latest.unlink()
    latest.symlink_to("run2.log")
    world.settle()

    assert world.streams() == [A, B]


def test_what_a_link_led_to_is_read_on_for_a_while(tmp_path: Path) -> None:
    """Where only the link is meant, the last lines of the old run come after it was turned."""
    world = World(tmp_path, "latest.log")
    append(tmp_path / "run1.out", A)
    append(tmp_path / "run2.out", B)
    (tmp_path / "latest.log").symlink_to("run1.out")
    world.settle()
    (tmp_path / "latest.log").unlink()
    (tmp_path / "latest.log").symlink_to("run2.out")
    world.settle()
    append(tmp_path / "run1.out", b"last words\n")
    world.settle()

    assert world.streams() == [A + b"last words\n", B]
