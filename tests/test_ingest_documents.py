"""Documents are read whole, again when they changed; commands are asked now and then."""

from __future__ import annotations

import gzip
import os
import sys
import time
from pathlib import Path

import pytest

from tests.ingest_help import World, source, world
from tests.store_help import dump
from tests.test_ingest import known, made, replace_source, steps
from tracker.store import Store

HEADER = "JobID|JobName|State|Start|End|NNodes|AllocTRES\n"


def row(job: int, state: str = "RUNNING", start: str = "2026-01-01T10:00:00", end: str = "Unknown") -> str:
    """Return one line of `sacct --parsable2` with made-up values."""
    return f"{job}|pretrain|{state}|{start}|{end}|8|billing=64,gres/gpu=64,node=8\n"


def slurm(**changes: object) -> object:
    return source(**{"collector": "slurm", "pattern": "sacct.txt", **changes})


def jobs(there: World) -> list[tuple[str, str, int | None]]:
    with Store.open_reader(there.store) as reader:
        return [(r.job_id, r.state, r.gpus) for r in reader.scheduler_rows()]


def test_scheduler_rows_follow_the_file_and_vanished_ones_stay(tmp_path: Path) -> None:
    """The window of sacct slides; an end is filled in later."""
    there = world(tmp_path, slurm())
    there.write("sacct.txt", (HEADER + row(1) + row(2, start="2026-01-01T11:00:00")).encode())
    there.poll()
    assert jobs(there) == [("1", "RUNNING", 64), ("2", "RUNNING", 64)]
    there.write(
        "sacct.txt", (HEADER + row(2, "FAILED", "2026-01-01T11:00:00", "2026-01-01T12:00:00")).encode()
    )
    there.poll()
    assert jobs(there) == [("1", "RUNNING", 64), ("2", "FAILED", 64)]
    (tmp_path / "sacct.txt").unlink()
    there.poll()
    there.close()

    assert jobs(there) == [("1", "RUNNING", 64), ("2", "FAILED", 64)]


def test_the_same_document_again_is_not_even_a_commit(tmp_path: Path) -> None:
    """Touched, or written anew with the same words: nothing happens."""
    there = world(tmp_path, slurm())
    path = there.write("sacct.txt", (HEADER + row(1)).encode())
    there.once()
    with Store.open_reader(there.store) as reader:
        revision = reader.revision()
        for _ in range(3):
            os.utime(path)
            there.once()
        assert reader.revision() == revision


def test_a_document_changed_twice_within_one_tick_is_seen(tmp_path: Path) -> None:
    """Same size, same time stamp: only the content tells, as long as the stamp is fresh."""
    there = world(tmp_path, slurm())
    path = there.write("sacct.txt", (HEADER + row(1)).encode())
    stamp = there.clock.us * 1000
    os.utime(path, ns=(stamp, stamp))
    there.poll()
    path.write_bytes((HEADER + row(2)).encode())
    os.utime(path, ns=(stamp, stamp))
    there.poll()

    assert [job for job, _, _ in jobs(there)] == ["1", "2"]


def test_a_recognised_document_is_read_as_one(tmp_path: Path) -> None:
    """`auto` meets a file of sacct's among logs: rewritten again and again, it stays one source of rows."""
    there = world(tmp_path, source(pattern="*.log"))
    for number in range(1, 6):
        text = HEADER + "".join(row(n, start=f"2026-01-01T1{n}:00:00") for n in range(number, number + 2))
        there.write("sacct.log", text.encode())
        there.poll()
        if number % 2:
            there.close()
    there.poll()
    with Store.open_reader(there.store) as reader:
        assert [(r.kind, r.collector) for r in reader.reports()] == [("scheduler", "slurm")]
    assert [job for job, _, _ in jobs(there)] == ["1", "2", "3", "4", "5", "6"]


def test_a_log_that_turns_out_to_be_a_document_is_one(tmp_path: Path) -> None:
    """The telling line may come late: then the file is read whole, and its stream holds no rows."""
    some = known(made("alpha", b"ALPHA", score=50), made("doc", b"DOCUMENT", kind="scheduler"))
    there = world(tmp_path, known=some)
    there.write("a.log", b"ALPHA\nstep 1\njob 7 RUNNING\n")
    there.poll()
    assert steps(there.store) == [1]
    there.write("a.log", b"DOCUMENT\njob 8 RUNNING\n", append=True)
    there.poll()
    there.poll()
    there.close()
    there.once()

    assert [job for job, _, _ in jobs(there)] == ["7", "8"]
    with Store.open_reader(there.store) as reader:
        assert [(r.kind, r.readings) for r in reader.reports()] == [("copy", 0), ("scheduler", 1)]


def test_a_document_of_readings_is_replaced_whole(tmp_path: Path) -> None:
    """What it no longer says is gone; segments are made anew."""
    there = world(tmp_path, source(collector="doc", pattern="state.txt"),
                  known=known(made("doc", b"DOC", kind="document")))  # fmt: skip
    there.write("state.txt", b"step 1\nstep 2\nstep 3\n")
    there.poll()
    there.write("state.txt", b"step 2\nstep 4\n")
    there.poll()
    there.close()
    alone = world(tmp_path, *there.sources, known=there.known, store_name="other.db")
    alone.once()

    ignored = frozenset({"seen_us", "written_us", "first_size"})
    assert steps(there.store) == [2, 4]
    assert dump(there.store, without=ignored) == dump(alone.store, without=ignored)


def test_packed_missing_and_unreadable_documents_are_told(tmp_path: Path) -> None:
    """gzip is unpacked; a folder and another packing are named; no match is named."""
    there = world(tmp_path, slurm(pattern="*.txt*"), slurm(number=2, pattern="none.txt"))
    there.write("sacct.txt.gz", gzip.compress((HEADER + row(1)).encode()))
    there.write("other.txt.xz", b"\xfd7zXZ\x00rubbish")
    there.poll()
    health = there.open_health()
    assert jobs(there) == [("1", "RUNNING", 64)]
    assert [(path, "xz" in why) for path, why in health.unreadable] == [("other.txt.xz", True)]
    assert [(s.number, s.files, s.up, s.problem) for s in health.sources] == [
        (1, 2, True, None),
        (2, 0, False, "no file matches"),
    ]


# -- commands ---------------------------------------------------------------------------------------------


def command(*words: str, **changes: object) -> object:
    return source(**{"collector": "slurm", "pattern": None, "command": words, "interval_s": 60.0,
                     "timeout_s": 10.0, "shown": " ".join(words), **changes})  # fmt: skip


def patient(there: World) -> None:
    """Look until the command that runs has answered."""
    there.poll()
    assert there.ingest is not None
    for _ in range(2_000):
        if not there.ingest._documents.busy:
            return
        time.sleep(0.005)
        there.ingest.poll()
    raise AssertionError("it never ends")


def test_a_command_is_asked_at_once_and_then_on_its_interval(tmp_path: Path) -> None:
    """What it says now is added to what it said before; between two intervals it is left alone."""
    text = tmp_path / "now.txt"
    text.write_text(HEADER + row(1))
    there = world(tmp_path, command("cat", str(text)))
    patient(there)
    assert jobs(there) == [("1", "RUNNING", 64)]
    text.write_text(HEADER + row(2))
    patient(there)
    assert [job for job, _, _ in jobs(there)] == ["1"]
    there.clock.wait(61)
    patient(there)
    assert [job for job, _, _ in jobs(there)] == ["1", "2"]
    assert there.open_health().sources[0].up
    there.close()
    there.once()
    with Store.open_reader(there.store) as reader:
        assert len(reader.reports()) == 1


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        pytest.param(("no-such-sacct",), "cannot be started", id="missing"),
        pytest.param(
            (sys.executable, "-c", "import sys; sys.exit('no slurmdbd')"), "no slurmdbd", id="fails"
        ),
    ],
)
def test_a_command_that_fails_is_told_and_what_it_said_stays(
    tmp_path: Path, words: tuple[str, ...], problem: str
) -> None:
    """The rows of its last good answer stay, logs are read on, and the source is down."""
    text = tmp_path / "now.txt"
    text.write_text(HEADER + row(1))
    there = world(tmp_path, command("cat", str(text), shown="sacct"))
    there.once()
    replace_source(there, command(*words, shown="sacct"))
    patient(there)
    health = there.open_health()

    assert jobs(there) == [("1", "RUNNING", 64)]
    assert not health.sources[0].up
    assert problem in (health.sources[0].problem or "")


def test_garbage_from_a_command_drops_nothing(tmp_path: Path) -> None:
    """An answer without a row is an answer, and said to be of no use; what was told of allocations stays."""
    text = tmp_path / "now.txt"
    text.write_text(HEADER + row(1))
    there = world(tmp_path, command("cat", str(text)))
    patient(there)
    text.write_bytes(bytes(range(256)) * 20)
    there.clock.wait(61)
    patient(there)
    assert there.ingest is not None
    health = there.ingest.health()

    assert jobs(there) == [("1", "RUNNING", 64)]
    assert not health.sources[0].up
    assert "holds nothing that can be used: no header" in (health.sources[0].problem or "")


def test_a_command_that_hangs_holds_up_nothing(tmp_path: Path) -> None:
    """Logs are read meanwhile; closing ends it."""
    there = world(tmp_path, command("sleep", "60"), source(2, collector="alpha"),
                  known=known(made("alpha", b"A"), made("slurm", b"S", kind="scheduler")))  # fmt: skip
    there.write("a.log", b"A\nstep 1\n")
    there.poll()
    assert steps(there.store) == [1]
    assert there.ingest is not None
    assert there.ingest._documents.busy
    there.close()


@pytest.mark.slow
def test_ten_thousand_rows_are_taken(tmp_path: Path) -> None:
    """A year of a large cluster, in one answer."""
    text = HEADER + "".join(row(n, start=f"2026-01-01T{n % 24:02d}:00:00") for n in range(1, 10_001))
    there = world(tmp_path, slurm())
    there.write("sacct.txt", text.encode())
    there.once()
    assert len(jobs(there)) == 10_000
