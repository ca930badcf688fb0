"""A line whose stamp leaps ahead of those before and after it: it is known by the line after it."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.core.story import T0, Log, S, facts, seconds, settings, tell, us
from tests.core.test_book import ListMarks, documents
from tests.core.test_replay import check
from tests.factories import ListFacts, set_right
from tracker.core import book as book_module
from tracker.core.book import Book
from tracker.core.records import Event, Kind, Reading
from tracker.core.segments import Segment, Segmenter
from tracker.core.summary import snapshot

Told = list[tuple[float, Reading | Event]]
"""Records, each with the second at which it was written."""


def run(seed: int, *, slips: int = 4, ahead_s: float | None = None) -> Told:
    """Return a run with saves and evaluations, some of whose lines are dated far ahead."""
    chance = random.Random(seed)
    log = Log().launch()
    for number in range(1, 61):
        log.now += 1.0
        log.train([number * 10], number * 10 - 10, 10.0)
        if number % 7 == 0:
            log.event(Kind.SAVE_START, step=number * 10)
            log.now += 20
            log.event(Kind.SAVE_END, step=number * 10)
        if number % 20 == 0:
            log.event(Kind.EVAL_START)
            log.now += 900
            log.event(Kind.EVAL_END)
    told = [((record.at_us or T0) - T0, record) for record in log.records]
    for _ in range(slips):
        first = chance.randrange(5, len(told) - 4)
        for place in range(first, first + chance.choice((1, 1, 2, 3))):
            record = told[place][1]
            if record.at_us is not None:
                leap_us = round((ahead_s or chance.choice((4e3, 86_400, 2e9))) * S)
                told[place] = (told[place][0], _dated(record, record.at_us + leap_us))
    return [(after_us / S, record) for after_us, record in told]


def _dated(record: Reading | Event, at_us: int) -> Reading | Event:
    return record._replace(at_us=at_us) if isinstance(record, Reading) else replace(record, at_us=at_us)


def by(told: Told, second: float) -> ListFacts:
    """Return the facts as they were at a moment."""
    return facts([record for written_s, record in told if written_s <= second])


def moments(told: Told) -> list[float]:
    """Return moments at which lines were written, and some between them."""
    times = sorted({written_s for written_s, record in told if isinstance(record, Reading)})
    return [*[t for one, two in pairwise(times) for t in (one, (one + two) / 2)][5::3], times[-1]]


@pytest.mark.parametrize("seed", range(12))
def test_the_past_does_not_know_which_stamps_were_wrong(seed: int) -> None:
    """At no moment does anything count that was not known then, and it counts at once when it is."""
    told = run(seed)
    everything = by(told, 1e12)
    kept = Book(settings())
    for moment in moments(told):
        known = by(told, moment)
        then = documents(tell(known, moment))

        assert documents(tell(everything, moment)) == then, f"as of {moment} s"
        assert documents(snapshot(kept, known, as_of_us=us(moment))) == then


@pytest.mark.parametrize("seed", range(6))
def test_a_replay_and_marks_say_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever way the past is come by."""
    monkeypatch.setattr(book_module, "MARK_EVERY", 3)
    monkeypatch.setattr(book_module, "SEAL_FROM", 1)
    told = run(seed)
    everything, marks = by(told, 1e12), ListMarks()
    check(everything, settings(), [us(moment) // 1000 * 1000 for moment in moments(told)])
    for moment in moments(told)[::-5]:
        assert documents(tell(everything, moment, marks=marks)) == documents(tell(everything, moment))
    assert marks.used


@pytest.mark.parametrize("seed", range(6))
def test_a_book_that_took_a_wrong_stamp_for_true_takes_it_back(seed: int) -> None:
    """As when an old log is read in pieces: what follows came later, though it is older than now."""
    told = run(seed, ahead_s=86_400)
    kept, marks = Book(settings()), ListMarks()
    marked = Book(settings(), marks=marks)
    for moment in moments(told):
        known = by(told, moment)
        later = documents(tell(known, 1e6))

        assert documents(snapshot(kept, known, as_of_us=us(1e6))) == later
        assert documents(snapshot(marked, known, as_of_us=us(1e6))) == later


@pytest.mark.parametrize("seed", range(12))
def test_a_file_read_in_pieces_gives_the_same_segments(seed: int) -> None:
    """Wherever the pieces end, and with a restart after each."""
    records = [record for _, record in run(seed)]
    whole = Segmenter()
    kept = set_right(whole.feed(records), whole.astray)
    segment: Segment | None = None
    pieces, astray = [], []
    for record in records:
        one = Segmenter(Segment.from_json(segment.to_json()) if segment is not None else None)
        pieces += one.feed([record])
        astray += one.astray
        segment = one.segments[-1]

    assert whole.segments == [segment]
    assert set_right(pieces, astray) == kept
    assert all((record.at_us or T0) < us(10_000) for record in kept)


def test_no_time_goes_to_a_stamp_that_is_not_believed() -> None:
    """The same ledger as without it, and a warning that names the step."""
    right, wrong = run(0, slips=0), run(0, slips=0)
    place = next(n for n, (_, r) in enumerate(wrong) if isinstance(r, Reading) and r.step == 250)
    wrong[place] = (wrong[place][0], _dated(wrong[place][1], us(90_000)))

    good, told = tell(by(right, 1e12), 7000), tell(by(wrong, 1e12), 7000)

    assert seconds(told) == pytest.approx(seconds(good), abs=2)
    assert told.tokens == good.tokens
    assert told.warnings == (
        "attempt 1: the log's clock was set forward at step 250, and was right again later: 1 line is dated "
        "far ahead, which is not believed",
    )


@pytest.mark.parametrize(
    "stamps",
    [
        pytest.param([100, 200, 300, 4000, 4100, 4200], id="hours-of-silence"),
        pytest.param([100, 200, 300, 20_000, 16_500, 16_600, 16_700], id="silence-then-a-clock-set-back"),
        pytest.param([100, 200, 300, *range(4000, 4900, 100), 1300, 1400], id="more-lines-than-a-slip-has"),
        pytest.param([100, 200, 300, 4000, 250, 350], id="set-back-to-before-the-line-before"),
        pytest.param([100, 200, 300, 500, 410, 600], id="late-lines"),
    ],
)
def test_what_is_no_slip_is_believed(stamps: list[float]) -> None:
    """Only a line that goes on where the one before the leap was takes the stamps between."""
    segmenter = Segmenter()
    segmenter.feed(Reading(n, us(s), 10 * n, 10 * S, flags=2) for n, s in enumerate(stamps, 1))

    assert not segmenter.astray
    assert segmenter.segments[0].seen_at_us == us(max(stamps))
