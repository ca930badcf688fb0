"""Reading a long log through leaves the page cache to the job; following one asks the kernel for nothing."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from tracker.follow import source
from tracker.follow.lines import BLOCK_BYTES, cut

Asked = list[tuple[int, int]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What the kernel is told that nobody needs: begin and end of each range."""
    ranges: Asked = []

    def note(fd: int, start: int, length: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        ranges.append((start, start + length))

    monkeypatch.setattr(source, "_forget", note)
    return ranges


def read_through(path: Path) -> int:
    """Read a file's lines block by block, as the follower does; return where it ended."""
    fd = os.open(path, os.O_RDONLY)
    try:
        plain, at, end = source.PlainSource(fd), 0, path.stat().st_size
        while at < end:
            found = cut(
                plain, offset=at, end=end, scanned=at, final=True, budget=BLOCK_BYTES,
                believe_hole=lambda start, stop: True,
            )  # fmt: skip
            at = found.end if hasattr(found, "end") else end
        return at
    finally:
        os.close(fd)


def test_a_long_log_is_let_go_of_behind_the_reader(tmp_path: Path, asked: Asked) -> None:
    """All but the newest block, without a hole between the ranges, and never what is still to be read."""
    path = tmp_path / "old.log"
    path.write_bytes(b"a line of an old log that nobody has read for long\n" * 300_000)
    end = read_through(path)

    assert end == path.stat().st_size
    assert asked[0][0] == 0
    assert all(start <= before for (_, before), (start, _) in itertools.pairwise(asked))
    assert end - 2 * BLOCK_BYTES <= max(stop for _, stop in asked) <= end - BLOCK_BYTES // 2


def test_a_log_that_grows_by_little_is_left_alone(tmp_path: Path, asked: Asked) -> None:
    """Its pages are the writer's; they are read while they are warm."""
    path = tmp_path / "live.log"
    path.touch()
    fd = os.open(path, os.O_RDONLY)
    plain = source.PlainSource(fd)
    for number in range(100):
        with path.open("ab") as log:
            log.write(b"x" * 200_000)
        plain.read(200_000 * number, BLOCK_BYTES)
    os.close(fd)

    assert asked == []
