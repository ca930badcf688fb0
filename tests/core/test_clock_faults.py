"""A log whose clock is set back, and right again later: no time is lost, none is counted twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.story import T0, Log, S, facts, row, seconds, tell
from tests.core.test_fold import fold_of, state
from tracker.core.close import close
from tracker.core.fold import Fold, Frame
from tracker.core.fold_many import take
from tracker.core.records import Reading

STEP_S = 10
FRAME = Frame(start_us=T0, resume_step=0, sequence_length=100)


def lines(offsets_us: list[int], *, stalls_us: dict[int, int] | None = None) -> list[Reading]:
    """Return a steady log, ten steps of ten seconds a line, whose clock is wrong by so much at each line."""
    made, at = [], T0
    for number, off in enumerate(offsets_us, 1):
        at += 10 * STEP_S * S + (stalls_us or {}).get(number, 0)
        made.append(
            Reading(number, at + off, 10 * number, STEP_S * S, 80 * number, None, 8, 0, 2)
        )  # fmt: skip
    return made


def folded(told: list[Reading], *, short: bool = True) -> Fold:
    return fold_of(FRAME, [*told], short=short)


BACK = st.integers(10 * STEP_S * S + 3 * S, 7200 * S)
"""Further than a window is long: less cannot be told from steps that took less than they say."""


@given(back_us=BACK, at=st.integers(1, 20), until=st.integers(1, 20), count=st.integers(25, 40))
@settings(max_examples=100, deadline=None)
def test_a_clock_set_back_and_right_again_changes_no_figure(
    back_us: int, at: int, until: int, count: int
) -> None:
    """Whenever, and however far: the same time, steps and tokens as by a clock that was right throughout."""
    wrong = range(at, at + until)
    off = folded(lines([-back_us if number in wrong else 0 for number in range(count)]))
    right = folded(lines([0] * count))

    same = {"productive_us", "other_us", "lost_us", "at", "first_us", "steps_net", "tokens_net", "hang_us"}
    assert {k: v for k, v in state(off).items() if k in same} == {
        k: v for k, v in state(right).items() if k in same
    }
    assert off.productive_us + off.other_us == count * 10 * STEP_S * S
    if at + until < count:
        assert off.skew_us == 0
        assert off.righted_us == pytest.approx(back_us, abs=S)


@pytest.mark.slow
@given(
    offsets=st.lists(
        st.one_of(st.just(0), st.integers(-7200 * S, 7200 * S), st.integers(-1500_000, 1500_000)),
        min_size=1,
        max_size=30,
    ),
    stalls=st.dictionaries(st.integers(1, 30), st.integers(0, 7200 * S), max_size=4),
    length=st.integers(0, 40_000),
    many=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_whatever_a_clock_does_durations_are_never_negative_and_time_never_runs_back(
    offsets: list[int], stalls: dict[int, int], length: int, many: bool
) -> None:
    """Any jumps at any lines: the buckets tile the allocation, and the ends of the windows are in order."""
    told = lines(offsets, stalls_us=stalls)
    fold = Fold(frame=FRAME)
    ends = []
    for reading in told:
        before = fold.at
        fold.reading(reading)
        ends.append((before, fold.at))
    closed = close(fold, end_us=T0 + length * S, running=False)
    spans = [
        closed.startup_us, closed.productive_us, closed.lost_us, closed.checkpoint_us,
        closed.evaluation_us, closed.other_us, closed.tail_us, closed.pending_us,
    ]  # fmt: skip

    assert sum(spans) == closed.allocated_us
    assert min(spans) >= 0
    assert all(before is None or (after is not None and after >= before) for before, after in ends)
    assert list(fold.series[::3]) == sorted(fold.series[::3])
    assert state(fold) == state(folded(told, short=False)), "the short way is the long way"
    if many:
        assert state(_in_bulk(told)) == state(fold), "many in one go are one by one"


def _in_bulk(told: list[Reading]) -> Fold:
    fold = Fold(frame=FRAME)
    done = 0
    while done < len(told):
        taken = len(take(fold, told[done:]))
        if not taken:
            fold.reading(told[done])
        done += taken or 1
    return fold


def test_a_real_stall_beyond_the_skew_is_other_once() -> None:
    """Half an hour back, two hours of silence, right again in them: the clock's own two hours are counted."""
    told = lines([0, 0, -1800 * S, -1800 * S, 0, 0], stalls_us={5: 7200 * S})

    assert folded(told).other_us == 7200 * S


def test_a_small_gap_while_the_clock_is_behind_is_not_taken_for_its_way_back() -> None:
    """A minute of waiting for data is `other`, though an hour is lacking."""
    told = lines([0, 0, *[-3600 * S] * 6], stalls_us={5: 60 * S})
    fold = folded(told)

    assert (fold.other_us, fold.righted_us) == (60 * S, 0)


def test_it_is_said_that_the_clock_was_set_back_and_righted() -> None:
    """An hour back in mid-run and forward again: two windows keep their length, nothing is left over."""
    log = Log(7200).launch().train([10, 20, 30], 0)
    log.at(log.now - 3600).train([40, 50], 30)
    log.at(log.now + 3600).train([60, 70], 50)

    got = tell(facts(log, rows=[row("1", 7200, 7900)]), 20_000)

    assert seconds(got) == {"allocated": 700, "productive": 700}
    assert [text for text in got.warnings if "clock" in text] == [
        "attempt 1: the log's clock was set back by 3600 s, and was right again later"
    ]
