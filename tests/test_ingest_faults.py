"""Killed, refused and cut off: the store ends as if nothing had happened."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.ingest_help import World, source, world
from tests.store_help import dump
from tests.test_ingest import known, log, made, reports, steps
from tracker.store import Store
from tracker.store.errors import StoreGone
from tracker.store.lock import WriteLock

pytestmark = pytest.mark.slow
"""Whole processes and long histories: not what one runs before each commit."""

ROOT = Path(__file__).resolve().parents[1]

CHILD = """
import sys
from pathlib import Path
from tests.ingest_help import source, world
from tracker.clock import SystemClock

sources = source(pattern="logs/*.log*"), source(2, collector="slurm", pattern="sacct.txt")
there = world(Path(sys.argv[1]), *sources)
there.clock = SystemClock()
ingest = there.open()
print("up", flush=True)
while True:
    if not ingest.poll().more:
        there.clock.wait(0.01)
"""


def test_killed_at_any_moment_the_store_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    """The real process, SIGKILLed again and again while logs are written, torn and rotated."""
    rng = random.Random(7)
    torn = world(tmp_path / "torn", source(pattern="logs/*.log*"),
                 source(2, collector="slurm", pattern="sacct.txt"))  # fmt: skip
    torn.write("logs/a.log", b"")
    torn.once()
    text = log(10, 6_000)
    header = b"JobID|JobName|State|Start|End|NNodes|AllocTRES\n"
    at = 0
    for kill in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path / "torn")], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        until = time.monotonic() + rng.uniform(0.02, 0.25)
        while time.monotonic() < until:
            piece = text[at : at + rng.randrange(1, 4_000)]
            at += len(piece)
            torn.write("logs/a.log", piece, append=True)
            torn.write(
                "sacct.txt", header + b"7|x|RUNNING|2026-01-01T10:00:00|Unknown|8|gres/gpu=64\n" * (kill + 1)
            )
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        if kill == 1:
            (tmp_path / "torn/logs/a.log").rename(tmp_path / "torn/logs/a.log.1")
            end = text.index(b"\n", at + 900) + 1
            torn.write("logs/a.log.1", text[at:end], append=True)
            at = end
    torn.write("logs/a.log", text[at:], append=True)
    torn.once(final=True)

    whole = world(tmp_path / "torn", *torn.sources, store_name="whole.db")
    whole.once(final=True)
    ignored = frozenset({"seen_us", "written_us", "first_size", "position", "stream_id", "id"})
    ends, undisturbed = dump(torn.store, without=ignored), dump(whole.store, without=ignored)
    assert len(undisturbed["reading"]) == 600
    for table in ("reading", "event", "scheduler_row", "reject", "segment"):
        assert ends[table] == undisturbed[table], table
    assert [s for s in steps(torn.store) if steps(torn.store).count(s) > 1] == []


def _impatient(there: World) -> None:
    there.open()
    assert there.writer is not None
    there.writer._wait_s = 0.02


def test_a_store_that_is_held_is_a_problem_that_passes(tmp_path: Path) -> None:
    """What was read meanwhile is read again: nothing lost, nothing twice, nothing piled up."""
    there = world(tmp_path)
    _impatient(there)
    lock = WriteLock(there.store)
    there.write("train.log", log(10, 500))
    with lock.held():
        for _ in range(3):
            there.clock.wait(1.1)
            found = there.ingest.poll()  # type: ignore[union-attr]
            assert "held by another process" in (found.problem or "")
            assert there.open_health().problem == found.problem
            assert there.ingest._pending.rows <= 60  # type: ignore[union-attr]
    lock.close()
    there.poll()

    assert steps(there.store) == list(range(10, 501, 10))
    assert there.open_health().problem is None
    assert reports(there.store)[0].readings == 50


def test_a_full_disk_is_a_problem_that_passes(tmp_path: Path) -> None:
    """With room again everything is there; half a transaction never was."""
    there = world(tmp_path, known=known(made("alpha", b"ALPHA")))
    there.write("a.log", b"ALPHA\n" + b"".join(b"step %d\n" % n for n in range(1, 30_001)))
    there.open()
    assert there.writer is not None
    connection = there.writer._connection
    connection.execute("PRAGMA max_page_count = 60")
    assert there.ingest is not None
    there.clock.wait(1.1)
    problem = there.ingest.poll().problem or ""
    assert "no room to write" in problem
    assert "nothing is lost" in problem
    connection.execute("PRAGMA max_page_count = 1000000")
    there.poll()

    assert steps(there.store) == list(range(1, 30_001))
    assert len(reports(there.store)) == 1


def test_a_deleted_store_is_named(tmp_path: Path) -> None:
    """It does not pass by itself: whoever runs this must open another one."""
    there = world(tmp_path)
    there.open()
    there.store.unlink()
    there.write("train.log", log(10, 50))
    with pytest.raises(StoreGone, match="deleted"):
        there.poll()
    there.close()
    there.once()
    assert steps(there.store) == [10, 20, 30, 40, 50]


def test_a_store_restored_from_a_backup_catches_up(tmp_path: Path) -> None:
    """The logs are read on from the positions of the backup, to the same content."""
    from tracker.store.health import backup, restore

    there = world(tmp_path)
    there.write("train.log", log(10, 300))
    there.once()
    copy = backup(there.store, tmp_path / "copy.db")
    there.write("train.log", log(310, 600), append=True)
    there.once()
    expected = dump(there.store)
    restore(there.store, copy)
    assert len(steps(there.store)) == 30
    there.once()

    assert dump(there.store) == expected


def test_a_reader_sees_whole_batches_while_it_is_ingested(tmp_path: Path) -> None:
    """Position, counters and rows of a stream agree in every snapshot."""
    there = world(tmp_path, known=known(made("alpha", b"ALPHA")))
    there.write("a.log", b"ALPHA\n")
    there.poll()
    with Store.open_reader(there.store) as reader:
        for turn in range(1, 20):
            there.write("a.log", b"step %d\n" % turn * 1, append=True)
            there.poll()
            with reader.snapshot() as facts:
                (report,) = facts.reports()
                rows = list(facts.readings(report.stream_id))
                assert report.readings == len(rows) == turn
                assert report.offset == (tmp_path / "a.log").stat().st_size
                assert facts.streams()[0].segments[-1].readings == turn


def test_a_copy_that_turns_out_to_be_its_own_log_is_read(tmp_path: Path) -> None:
    """Rotation by copy: the copy holds no rows, until it goes on differently from its original."""
    there = world(tmp_path)
    there.write("train.log", log(10, 100))
    there.poll()
    there.write("train.log.1", log(10, 100))
    there.poll()
    there.write("train.log", log(110, 150), append=True)
    there.write("train.log.1", log(210, 250), append=True)
    for _ in range(3):
        there.poll()
    there.close()

    assert sorted(steps(there.store)) == sorted([
        *range(10, 151, 10),
        *range(10, 101, 10),
        *range(210, 251, 10),
    ])
    assert {r.kind for r in reports(there.store)} == {"log"}


def test_the_way_in_loads_nothing_heavy() -> None:
    """What follows a log for months is small: no table library, no terminal library."""
    code = (
        "import sys, tracker.ingest, tracker.store, tracker.follow, tracker.clock\n"
        "print([m for m in ('pandas', 'numpy', 'sqlite_utils', 'rich', 'click', 'matplotlib', 'asyncio')"
        " if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
