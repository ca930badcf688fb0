"""Reading on: what a follower hands out while a job writes its log."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from tests.follow_world import BANNER, World, append, pack
from tracker.follow import Follower

RUBBISH = random.Random(7).randbytes(400_000) + b"\n"


def test_a_file_that_appears_late_is_read_from_its_start(tmp_path: Path) -> None:
    """A pattern that matches nothing yet is no error."""
    world = World(tmp_path, "logs/*.log")
    assert world.poll() == b""

    (tmp_path / "logs").mkdir()
    append(tmp_path / "logs" / "run.log", b"one\ntwo\n")

    assert world.poll() == b"one\ntwo\n"
    assert world.poll() == b""


def test_an_unterminated_line_waits_for_its_end(tmp_path: Path) -> None:
    """However often it is looked at; then it comes whole."""
    world = World(tmp_path)
    append(tmp_path / "a.log", b"one\ntw")
    assert world.poll() == b"one\n"
    assert world.poll() == b""

    append(tmp_path / "a.log", b"o\nth")

    assert world.poll() == b"two\n"


def test_final_takes_the_unterminated_line(tmp_path: Path) -> None:
    """Also when nothing changed since the poll that left it, and in a file that is nothing else."""
    world = World(tmp_path)
    append(tmp_path / "a.log", b"one\ntw")
    append(tmp_path / "b.log", b"alone")
    world.poll()

    assert sorted(chunk.data for chunk in world.iterate(final=True)) == [b"alone", b"tw"]
    assert world.poll(final=True) == b""


def test_what_follows_a_final_reading_is_a_line_of_its_own(tmp_path: Path) -> None:
    """The offset stands after the unterminated line; nothing is read twice."""
    world = World(tmp_path)
    append(tmp_path / "a.log", b"one\ntw")
    world.poll(final=True)
    world.restart()

    append(tmp_path / "a.log", b"o\nthree\n")

    assert world.poll() == b"o\nthree\n"


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    """A progress bar redraws with carriage returns; other separators are text."""
    text = b" 10%|#  |\r 20%|## |\r 30%|###|\x0b\x0c\x1c\xc2\x85\xe2\x80\xa8\nnext\r\n"
    world = World(tmp_path)
    append(tmp_path / "a.log", text[:20])
    assert world.poll() == b""

    append(tmp_path / "a.log", text[20:])

    assert world.poll() == text
    assert sum(chunk.lines for chunk in world.chunks) == 2


def test_invalid_utf_8_passes_through(tmp_path: Path) -> None:
    """Bytes are bytes; decoding is the parser's business."""
    text = bytes(range(1, 256)).replace(b"\n", b"") + b"\n"
    world = World(tmp_path)
    append(tmp_path / "a.log", text)

    assert world.poll() == text


def test_several_writers_share_one_file(tmp_path: Path) -> None:
    """Two processes that append: their lines come in the order of the file."""
    world = World(tmp_path)
    with (
        (tmp_path / "a.log").open("ab", buffering=0) as one,
        (tmp_path / "a.log").open("ab", buffering=0) as two,
    ):
        one.write(b"one 1\n")
        two.write(b"two 1\n")
        assert world.poll() == b"one 1\ntwo 1\n"
        two.write(b"two 2\n")
        one.write(b"one 2\n")

    assert world.poll() == b"two 2\none 2\n"


def test_a_restart_goes_on_where_the_store_says(tmp_path: Path) -> None:
    """Whatever was handed out and not stored is handed out again."""
    world = World(tmp_path)
    append(tmp_path / "a.log", b"one\n")
    world.poll()
    append(tmp_path / "a.log", b"two\n")
    for chunk in world.follower.poll(now_us=0):
        assert chunk.data == b"two\n"  # and the machine stops before it is stored

    world.restart()

    assert world.poll() == b"two\n"
    assert world.streams() == [b"one\ntwo\n"]


def test_a_stopped_iteration_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """A chunk counts as consumed when it is handed out, so one may stop after any."""
    world = World(tmp_path)
    for name in ("a.log", "b.log", "c.log"):
        append(tmp_path / name, name.encode() + b"\n")

    got = [next(world.iterate()).data for _ in range(3)]

    assert sorted(got) == [b"a.log\n", b"b.log\n", b"c.log\n"]
    assert world.poll() == b""


def test_a_cursor_is_a_function_of_content_and_offset(tmp_path: Path) -> None:
    """Read in any pieces, fingerprint, tail and check sum end the same."""
    text = b"".join(b"line %d of the log\n" % i for i in range(2000))
    pieces = World(tmp_path, "pieces.log")
    for start in range(0, len(text), 777):
        append(tmp_path / "pieces.log", text[start : start + 777])
        pieces.poll()
        pieces.restart()
    (tmp_path / "once.log").write_bytes(text)
    once = World(tmp_path, "once.log")
    once.poll()

    one, two = pieces.stored()[-1], once.stored()[-1]
    assert pieces.streams() == once.streams() == [text]
    same = ("first_line", "fingerprint", "tail", "checksum", "offset")
    assert [getattr(one, name) for name in same] == [getattr(two, name) for name in same]


def test_files_come_oldest_first_whatever_their_names(tmp_path: Path) -> None:
    """The order of a history is the order of its times."""
    for age, name in enumerate(("m.log", "a.log", "z.log")):
        append(tmp_path / name, name.encode() + b"\n")
        os.utime(tmp_path / name, (1000 + age, 1000 + age))
    orders = {World(tmp_path, "*.log").poll() for _ in range(3)}

    assert orders == {b"m.log\na.log\nz.log\n"}


def test_a_budget_stops_a_poll_and_the_next_goes_on(tmp_path: Path) -> None:
    """``caught_up`` says whether there is more."""
    text = b"x" * 99 + b"\n"
    world = World(tmp_path)
    append(tmp_path / "a.log", text * 30_000)
    first = world.poll(max_bytes=600_000)
    assert 0 < len(first) < 1_500_000
    assert not world.follower.caught_up

    assert len(first + world.settle(max_bytes=600_000)) == 3_000_000
    assert world.follower.caught_up


def test_kept_facts_are_never_revised(tmp_path: Path) -> None:
    """First sight and the modification time then survive growth, renames and restarts."""
    log = tmp_path / "a.log"
    append(log, b"one\n")
    os.utime(log, (1234, 1234))
    world = World(tmp_path)
    world.poll()
    seen = world.stored()[0].first_seen_us
    world.tick(100)
    append(log, b"two\n")
    log.rename(tmp_path / "a.log.1")
    world.restart()
    world.poll()

    (after,) = world.stored()
    assert (after.first_seen_us, after.mtime_us) == (seen, 1234 * 1_000_000)
    assert (after.path, after.mtime_seen_us > 1_700_000_000_000_000) == ("a.log.1", True)


class TestLongLines:
    """A line may be longer than memory."""

    def test_the_beginning_is_kept_and_the_rest_is_counted(self, tmp_path: Path) -> None:
        """The long line is a chunk of its own, and what follows has its true offset."""
        before, long, after = b"before\n", b"x" * 3_000_000 + b"\n", b"after\n"
        world = World(tmp_path)
        append(tmp_path / "a.log", before + long + after)
        world.poll()

        kept = [chunk for chunk in world.chunks if chunk.too_long_bytes]
        assert [(len(c.data), c.offset, c.too_long_bytes) for c in kept] == [
            ((1 << 20) + 1, len(before), 3_000_000 - (1 << 20))
        ]
        assert world.chunks[-1].data == after
        assert world.chunks[-1].offset == len(before + long)
        assert world.follower.health().skipped_bytes["too_long"] == 3_000_000 - (1 << 20)

    @pytest.mark.parametrize(
        "size",
        [
            pytest.param(512 * 1024 - 1, id="one-block-with-its-end"),
            pytest.param(512 * 1024, id="one-block-without-its-end"),
            pytest.param((1 << 20), id="exactly-the-limit"),
        ],
    )
    def test_up_to_the_limit_nothing_is_cut(self, tmp_path: Path, size: int) -> None:
        """The limit is on a line without its end."""
        line = b"y" * size + b"\n"
        world = World(tmp_path)
        append(tmp_path / "a.log", b"a\n" + line + b"b\n")

        assert world.poll() == b"a\n" + line + b"b\n"
        assert not any(chunk.too_long_bytes for chunk in world.chunks)

    def test_a_growing_long_line_is_not_read_again_and_again(self, tmp_path: Path) -> None:
        """The search goes on where it stopped: reading stays linear."""
        world = World(tmp_path)
        append(tmp_path / "a.log", b"z" * 2_000_000)
        world.poll()
        for _ in range(20):
            append(tmp_path / "a.log", b"z" * 1000)
            assert world.poll(max_bytes=50_000) == b""
            assert world.follower.caught_up, "a search from the start would not fit the budget"

        append(tmp_path / "a.log", b"\nend\n")

        assert world.poll().endswith(b"z\nend\n")
        assert world.chunks[0].too_long_bytes == 2_020_000 - (1 << 20)

    def test_final_cuts_an_unterminated_long_line_too(self, tmp_path: Path) -> None:
        """And adds no line end that is not there."""
        world = World(tmp_path)
        append(tmp_path / "a.log", b"z" * 1_500_000)

        assert world.poll(final=True) == b"z" * (1 << 20)
        assert world.stored()[0].offset == 1_500_000


class TestHoles:
    """A writer without O_APPEND goes on at its old offset after a truncation: NUL bytes."""

    def test_a_hole_is_skipped_and_counted(self, tmp_path: Path) -> None:
        """Its lines keep their true offsets."""
        world = World(tmp_path)
        with (tmp_path / "a.log").open("wb", buffering=0) as writer:
            writer.write(b"old line\n" * 1000)
            assert len(world.poll()) == 9000
            os.truncate(tmp_path / "a.log", 0)
            writer.write(b"new line\n")
            assert (tmp_path / "a.log").stat().st_size == 9009
            assert world.settle() == b"new line\n"
            writer.write(b"newer line\n")

        assert world.settle() == b"newer line\n"
        assert [(c.offset, c.nul_bytes) for c in world.chunks[-2:]] == [(9000, 9000), (9009, 0)]
        assert world.follower.health().skipped_bytes["nul"] == 9000
        world.restart()
        assert world.settle() == b""

    def test_a_hole_is_believed_at_a_second_look_only(self, tmp_path: Path) -> None:
        """On a network file system a page may read as NUL before its text arrives."""
        log = tmp_path / "a.log"
        world = World(tmp_path)
        append(log, b"one\n" + bytes(9) + b"three\n")
        assert world.poll() == b"one\n"
        with log.open("r+b") as late:
            late.seek(4)
            late.write(b"two late\n")
        world.tick()

        assert world.settle() == b"two late\nthree\n"

    @pytest.mark.parametrize(
        ("content", "text"),
        [
            pytest.param(b"".join(b"line %d\n\0" % n for n in range(2000)),
                         b"".join(b"line %d\n" % n for n in range(2000)), id="strlen-plus-one"),
            pytest.param("".join(f"line {n}\n" for n in range(2000)).encode("utf-16"),
                         "".join(f"line {n}\n" for n in range(2000)).encode("utf-16").replace(b"\n\0", b"\n"),
                         id="utf-16"),
            pytest.param(RUBBISH, re.sub(rb"(?<=\n)\0+", b"", RUBBISH), id="random-binary"),
        ],
    )  # fmt: skip
    def test_one_second_look_settles_all_nul_bytes_that_lines_begin_with(
        self, content: bytes, text: bytes, tmp_path: Path
    ) -> None:
        """However many there are; only those at the very end go on waiting."""
        world = World(tmp_path)
        append(tmp_path / "a.log", content)
        first = world.poll()
        world.tick(0.5)
        assert world.poll() == b""
        world.tick(0.5)

        assert first + world.poll() == text
        assert world.follower.next_look_s is None
        assert world.follower.health().lag_nul_bytes == len(content) - len(content.rstrip(b"\0"))

    def test_a_writer_that_puts_one_before_each_line_is_followed(self, tmp_path: Path) -> None:
        """What comes later is doubted anew, for a second; nothing is lost or doubled."""
        world = World(tmp_path)
        got, lines = b"", [b"line %d\n" % n for n in range(100)]
        for number, line in enumerate(lines):
            append(tmp_path / "a.log", line + b"\0")
            got += world.poll()
            assert got.count(b"\n") >= number - 4
            world.tick(0.4)
        world.tick()

        assert got + world.settle() == b"".join(lines)

    def test_holes_that_fill_later_are_read_whole(self, tmp_path: Path) -> None:
        """Text that arrives anywhere in what was looked at makes the rest be doubted again."""
        world, lines = World(tmp_path), [b"line %04d\n" % n for n in range(100)]
        append(tmp_path / "a.log", b"".join(bytes(10) if n % 10 == 3 else x for n, x in enumerate(lines)))
        assert world.poll() == b"".join(lines[:3])
        with (tmp_path / "a.log").open("r+b") as late:
            for number in range(13, 100, 10):
                world.tick(1.0)
                late.seek(number * 10)
                late.write(lines[number])
                late.flush()
                world.poll()

        world.settle()
        assert world.streams() == [b"".join(lines[:3] + lines[4:])]

    def test_an_unchanging_file_that_is_packed_is_not_doubted(self, tmp_path: Path) -> None:
        """Its check sum has held."""
        append(tmp_path / "a.log", b"one\n\0two\n\0three\n")
        pack(tmp_path / "a.log")
        world = World(tmp_path, "*")

        assert world.poll() == b"one\ntwo\nthree\n"

    def test_nul_bytes_at_the_end_are_waited_for(self, tmp_path: Path) -> None:
        """A size without data yet is not a hole, however long it lasts, not even at the end."""
        world = World(tmp_path)
        append(tmp_path / "a.log", b"one\n" + bytes(100))
        assert world.poll() == b"one\n"
        world.tick(100)
        assert world.settle() == b""

        assert world.poll(final=True) == b""

    def test_a_huge_hole_costs_nothing(self, tmp_path: Path) -> None:
        """The file system is asked where data begin."""
        log = tmp_path / "a.log"
        with log.open("wb") as file:
            file.seek(1 << 28)
            file.write(b"far\n")
        world = World(tmp_path)

        assert world.settle() == b"far\n"
        assert world.chunks[0].offset == 1 << 28

    def test_nul_bytes_within_a_line_are_text(self, tmp_path: Path) -> None:
        """Only what a line begins with is a hole."""
        world = World(tmp_path)
        append(tmp_path / "a.log", b"a\0\0b\n\0\0c\nd\n")

        assert world.settle() == b"a\0\0b\nc\nd\n"


class TestGzip:
    """Packed files are followed by the offset after decompression."""

    def test_a_packed_file_is_known_by_its_first_bytes(self, tmp_path: Path) -> None:
        """Its name may say nothing; a plain file may be called .gz."""
        (tmp_path / "plain.log.gz").write_bytes(b"plain\n")
        append(tmp_path / "b.log", b"packed\n")
        pack(tmp_path / "b.log", tmp_path / "odd.log")
        world = World(tmp_path)

        assert sorted(world.poll().splitlines()) == [b"packed", b"plain"]

    def test_an_incomplete_one_is_left_alone_until_it_is_whole(self, tmp_path: Path) -> None:
        """Whatever it holds already."""
        text = BANNER * 5000
        append(tmp_path / "x", text)
        whole = pack(tmp_path / "x").read_bytes()
        target = tmp_path / "a.log.gz"
        world = World(tmp_path)
        for part in (whole[:1], whole[:20], whole[: len(whole) // 2], whole[:-1]):
            target.write_bytes(part)
            assert world.settle() == b""
        assert "incomplete" in world.reasons().get("a.log.gz", "")

        target.write_bytes(whole)

        assert world.settle() == text
        assert world.reasons() == {}

    def test_final_reads_what_an_incomplete_one_holds(self, tmp_path: Path) -> None:
        """A cut archive is better than none; should the rest come, it is read on."""
        text = b"".join(b"line %06d\n" % i for i in range(100_000))
        append(tmp_path / "x", text)
        whole = pack(tmp_path / "x").read_bytes()
        (tmp_path / "a.log.gz").write_bytes(whole[: len(whole) // 2])
        world = World(tmp_path)
        first = world.poll(final=True)
        assert text.startswith(first)
        assert len(first) > 100_000
        world.restart()

        (tmp_path / "a.log.gz").write_bytes(whole)
        world.tick()

        world.settle(final=True)
        assert world.streams() == [text]

    def test_it_is_resumed_by_its_unpacked_offset(self, tmp_path: Path) -> None:
        """A kill in its middle loses and doubles nothing."""
        text = b"".join(b"line %07d\n" % i for i in range(200_000))
        append(tmp_path / "x.log", text)
        pack(tmp_path / "x.log")
        world = World(tmp_path)
        next(world.iterate())
        world.restart()
        next(world.iterate())
        world.restart()
        world.settle()

        assert world.streams() == [text]

    def test_members_padding_and_rubbish_are_as_gzip_has_them(self, tmp_path: Path) -> None:
        """A job may append members; tapes pad with NUL bytes; rubbish at the end is ignored."""
        log = tmp_path / "a.log.gz"
        for name, line in (("1", b"one\n"), ("2", b"two\n")):
            append(tmp_path / name, line)
            pack(tmp_path / name)
        one, two = ((tmp_path / f"{i}.gz").read_bytes() for i in (1, 2))
        log.write_bytes(one)
        world = World(tmp_path)
        assert world.settle() == b"one\n"

        log.write_bytes(one + two + bytes(512) + b"rubbish")

        assert world.settle() == b"two\n"

    def test_a_long_line_in_it_is_cut_as_well(self, tmp_path: Path) -> None:
        """Although it cannot be read backwards."""
        append(tmp_path / "x.log", b"a\n" + b"q" * 5_000_000 + b"\nb\n")
        pack(tmp_path / "x.log")
        world = World(tmp_path)

        assert world.settle() == b"a\n" + b"q" * (1 << 20) + b"\nb\n"

    @pytest.mark.parametrize(
        ("magic", "name"),
        [(b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"BZh91AY&SY", "bzip2")],
    )
    def test_another_packing_is_named(self, tmp_path: Path, magic: bytes, name: str) -> None:
        """It is never read as text."""
        (tmp_path / "a.log").write_bytes(magic + b"\nrubbish\n" * 9)
        world = World(tmp_path)

        assert world.settle() == b""
        assert name in world.reasons()["a.log"]

    def test_a_settled_one_is_not_unpacked_again_at_a_restart(self, tmp_path: Path) -> None:
        """Size and time stand still: its status is enough."""
        append(tmp_path / "x.log", b"line\n" * 1000)
        pack(tmp_path / "x.log")
        world = World(tmp_path)
        world.settle()
        world.restart()

        assert world.poll() == b""
        assert world.follower.health().open_files == 0


def test_ten_thousand_files_keep_few_descriptors(tmp_path: Path) -> None:
    """The bound holds whatever the pattern means."""
    for i in range(300):
        append(tmp_path / f"{i}.log", b"%d\n" % i)
    before = len(os.listdir("/proc/self/fd"))
    world = World(tmp_path, max_open=20)

    assert len(world.poll().splitlines()) == 300
    assert world.follower.health().open_files == 20
    assert len(os.listdir("/proc/self/fd")) == before + 20
    world.tick(100)
    world.poll()
    assert world.follower.health().open_files == 0, "idle files are let go"
    world.follower.close()


def test_nothing_is_written_and_no_access_time_moves(tmp_path: Path) -> None:
    """The job's folder is as it was."""
    log = tmp_path / "a.log"
    append(log, b"one\n")
    os.utime(log, (1, 2))
    tmp_path.chmod(0o555)
    before = os.stat(tmp_path), os.stat(log)
    World(tmp_path).settle(final=True)
    after = os.stat(tmp_path), os.stat(log)
    tmp_path.chmod(0o755)

    assert [(s.st_mtime_ns, s.st_ctime_ns, s.st_atime_ns) for s in before[1:]] == [
        (s.st_mtime_ns, s.st_ctime_ns, s.st_atime_ns) for s in after[1:]
    ]
    assert before[0].st_mtime_ns == after[0].st_mtime_ns
    assert os.listdir(tmp_path) == ["a.log"]


def test_health_counts_what_was_read(tmp_path: Path) -> None:
    """By pattern, with what is left to read."""
    append(tmp_path / "a.log", b"one\ntwo\npart")
    append(tmp_path / "b.out", b"three\n")
    world = World(tmp_path, "*.log", "*.out", "*.none")
    world.poll()
    health = world.follower.health()

    assert [(p.pattern, p.files, p.read_bytes, p.lines, p.lag_bytes) for p in health.patterns] == [
        ("*.log", 1, 8, 2, 4),
        ("*.out", 1, 6, 1, 0),
        ("*.none", 0, 0, 0, 0),
    ]
    assert (health.files, health.followed, health.read_bytes, health.lines) == (2, 2, 14, 3)
    assert health.new_streams == 2
    assert {s.path: s.lag_bytes for s in world.follower.streams()} == {"a.log": 4, "b.out": 0}


def test_cursors_are_needed_for_nothing_but_going_on(tmp_path: Path) -> None:
    """The bare follower, as the command that reads a single file uses it."""
    append(tmp_path / "a.log", b"one\ntwo")
    follower = Follower(["a.log"], root=tmp_path)

    assert [c.data for c in follower.poll(now_us=0, final=True)] == [b"one\n", b"two"]
    follower.close()
