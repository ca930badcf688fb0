"""The book: incremental equals anew, marks change nothing, and the past does not know the future."""

from __future__ import annotations

import bisect
import random

import pytest

from tests.core.story import Log, facts, row, settings, tell, us
from tests.factories import ListFacts
from tracker.core import book as book_module
from tracker.core.book import Book
from tracker.core.documents import interruptions_document, ledger_document, status_document
from tracker.core.records import Event, Kind, Reading
from tracker.core.snapshot import Snapshot
from tracker.core.summary import snapshot


class ListMarks:
    """Marks in a list."""

    def __init__(self) -> None:
        self.held: list[tuple[str, str, int, int, bytes]] = []
        self.used = 0

    def best(self, key: str, digest: str, *, step: int | None, at_us: int | None) -> bytes | None:
        """Return the latest mark within the bounds."""
        fitting = [
            mark
            for mark in self.held
            if mark[:2] == (key, digest)
            and (step is None or mark[2] <= step)
            and (at_us is None or mark[3] <= at_us)
        ]
        self.used += bool(fitting)
        return max(fitting, key=lambda mark: mark[2])[4] if fitting else None

    def put(self, key: str, digest: str, *, step: int, at_us: int, body: bytes) -> None:
        """Remember a fold."""
        self.held.append((key, digest, step, at_us, body))


def documents(one: Snapshot) -> object:
    """Return all that a snapshot says."""
    return status_document(one), ledger_document(one), interruptions_document(one)


def eventful(seed: int) -> tuple[list[Log], list[tuple[str, float, float | None, str]]]:
    """Return logs and scheduler rows of a run with failures, saves, rollbacks, an abandoned branch."""
    chance = random.Random(seed)
    logs: list[Log] = []
    rows: list[tuple[str, float, float | None, str]] = []
    now, step, saved, reached = 0.0, 0, [0], 0
    for number in range(6):
        start = now
        log = Log(now + chance.uniform(5, 60)).launch(
            resume=step if chance.random() < 0.8 else None, job_id=str(number)
        )
        if chance.random() < 0.15:
            log.at(log.now + 30).event(Kind.SIGN)
            now = log.now + 100
            rows.append((str(number), start, now, "FAILED"))
            logs.append(log)
            continue
        log.at(log.now + chance.uniform(10, 90))
        for _ in range(chance.randint(1, 30)):
            to = (step // 10 + 1) * 10
            log.train([to], step, chance.uniform(4, 6))
            step = to
            if chance.random() < 0.3:
                log.event(Kind.SAVE_START, step=step).at(log.now + chance.uniform(1, 30))
                log.event(Kind.SAVE_END, step=step)
                saved.append(step)
            if chance.random() < 0.1:
                log.event(Kind.EVAL_START, step=step).at(log.now + 40).event(Kind.EVAL_END, step=step)
        if chance.random() < 0.5:
            log.event(Kind.FAILURE, cause="gpu", fatal=True, confidence=0.8, text="Xid 79")
        reached = max(reached, step)
        now = log.now + chance.uniform(1, 400)
        rows.append((str(number), start, now, chance.choice(["FAILED", "TIMEOUT", "NODE_FAIL"])))
        step = chance.choice([s for s in saved if s <= reached][-5:])
        now += chance.uniform(0, 500)
        logs.append(log)
    return logs, rows


def told(logs: list[Log], rows: list[tuple[str, float, float | None, str]], until: float) -> ListFacts:
    """Return the facts as they were known at a moment."""
    cut: list[list[Reading | Event]] = []
    for log in logs:
        stamps = [record.at_us or 0 for record in log.records]
        cut.append(log.records[: bisect.bisect_right(stamps, us(until))])
    made = facts(*cut)
    for job, start, end, state in rows:
        over = end is not None and us(end) <= us(until)
        if us(start) <= us(until):
            made.rows.append(row(job, start, end if over else None, state=state if over else "RUNNING"))
    return made


@pytest.mark.parametrize("seed", range(25))
def test_the_past_does_not_know_the_future(seed: int) -> None:
    """As of any moment, all facts give what the facts of that moment gave, to the letter."""
    logs, rows = eventful(seed)
    end = max(r[2] or 0 for r in rows)
    everything = told(logs, rows, end + 1)
    for part in range(1, 12):
        moment = end * part / 11

        then = tell(told(logs, rows, moment), moment)
        later = tell(everything, moment)

        assert documents(later) == documents(then), f"as of {moment} s"


@pytest.mark.parametrize("seed", range(10))
def test_a_book_kept_up_equals_a_new_one(seed: int) -> None:
    """Moment after moment, with one Book that only sees what is new."""
    logs, rows = eventful(seed)
    end = max(r[2] or 0 for r in rows)
    kept = Book(settings())
    for part in range(1, 30):
        moment = end * part / 29
        known = told(logs, rows, moment)

        assert documents(snapshot(kept, known, as_of_us=us(moment))) == documents(tell(known, moment))


@pytest.mark.parametrize("seed", range(10))
def test_marks_change_no_answer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With marks every few readings, used from new Books at all moments."""
    monkeypatch.setattr(book_module, "MARK_EVERY", 3)
    monkeypatch.setattr(book_module, "SEAL_FROM", 1)
    logs, rows = eventful(seed)
    end = max(r[2] or 0 for r in rows)
    marks = ListMarks()
    everything = told(logs, rows, end)
    for part in (11, 3, 7, 11, 5):
        moment = end * part / 11

        assert documents(tell(everything, moment, marks=marks)) == documents(tell(everything, moment))
    assert marks.held
    assert marks.used


@pytest.mark.parametrize("seed", range(6))
def test_the_order_of_arrival_changes_no_answer(seed: int) -> None:
    """Files come in any order; identity is content."""
    logs, rows = eventful(seed)
    end = max(r[2] or 0 for r in rows)
    one, other = ListFacts(), ListFacts()
    for made, order in ((one, range(len(logs))), (other, reversed(range(len(logs))))):
        for number in order:
            made.add(logs[number].records, file_name=f"log-{number}.txt")
        made.rows = [row(job, a, b, state=s) for job, a, b, s in rows]

    assert documents(tell(one, end)) == documents(tell(other, end))
