"""The fold itself: its short way equals its long way, it can be put down and taken up, and it is exact."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.story import T0, S
from tracker.core.close import close
from tracker.core.fold import Fold, Frame
from tracker.core.records import Event, Flag, Kind, Reading

STEP = st.integers(0, 40)
FLAGS = st.sampled_from([0, 1, 2, 3, 4, 5, 8, 18, 2 | int(Flag.ROUNDED), 2 | int(Flag.NAN)])


@st.composite
def records(draw: st.DrawFn) -> list[Reading | Event]:
    """Anything a log might say, in any order, with clocks that jump and step times that lie."""
    made: list[Reading | Event] = []
    at, step = T0, 0
    for number in range(draw(st.integers(0, 25))):
        at += draw(st.integers(-3 * S, 900 * S))
        stamp = draw(st.one_of(st.none(), st.just(at)))
        if draw(st.booleans()):
            step += draw(st.integers(0, 20))
            made.append(
                Reading(
                    offset=number,
                    at_us=stamp,
                    step=step,
                    step_time_us=draw(st.one_of(st.none(), st.integers(1, 60 * S))),
                    samples=draw(st.one_of(st.none(), st.just(step * 8), st.integers(0, 1000))),
                    tokens=draw(st.one_of(st.none(), st.just(step * 800))),
                    batch=draw(st.one_of(st.none(), st.just(8))),
                    flags=draw(FLAGS),
                    reported_flop_per_s=draw(st.one_of(st.none(), st.just(4e14))),
                )
            )
        else:
            kind = draw(
                st.sampled_from([
                    Kind.SAVE_START,
                    Kind.SAVE_END,
                    Kind.EVAL_START,
                    Kind.EVAL_END,
                    Kind.SIGN,
                    Kind.LAUNCH,
                ])
            )
            length = draw(st.one_of(st.none(), st.integers(0, 300 * S)))
            made.append(
                Event(offset=number, kind=kind, at_us=stamp, step=draw(st.just(step)), duration_us=length)
            )
    return made


FRAMES = st.builds(
    Frame,
    start_us=st.integers(T0 - 5000 * S, T0 + 2000 * S),
    resume_step=st.integers(0, 30),
    cut=st.one_of(st.none(), st.integers(0, 120)),
    sequence_length=st.one_of(st.none(), st.just(100)),
    batch=st.one_of(st.none(), st.just(8)),
)


def fold_of(frame: Frame, told: list[Reading | Event], *, short: bool = True) -> Fold:
    """Feed records, by the long way only where asked."""
    fold = (Fold if short else LongWay)(frame=frame)
    for record in told:
        if isinstance(record, Reading):
            fold.reading(record)
        else:
            fold.event(record)
    return fold


class LongWay(Fold):
    """A fold that never takes the short way."""

    def _plain(self, reading: Reading, until_us: int | None) -> bool:
        return False


def state(fold: Fold) -> dict[str, Any]:
    """Return all that a fold knows."""
    return {f.name: getattr(fold, f.name) for f in fields(Fold)}


@pytest.mark.slow
@given(frame=FRAMES, told=records())
@settings(max_examples=300, deadline=None)
def test_the_short_way_is_the_long_way(frame: Frame, told: list[Reading | Event]) -> None:
    """The quick path for the usual reading changes no figure."""
    assert state(fold_of(frame, told)) == state(fold_of(frame, told, short=False))


@pytest.mark.slow
@given(told=records(), cut=st.integers(0, 400))
@settings(max_examples=100, deadline=None)
def test_steady_logs_fold_alike_both_ways(told: list[Reading | Event], cut: int) -> None:
    """The same on logs that the short way is made for, with a cut in them."""
    frame = Frame(start_us=T0, resume_step=0, cut=cut, sequence_length=100)
    steady = [Reading(n, T0 + 100 * n * S, 10 * n, 10 * S, 80 * n, None, 8, 0, 2) for n in range(1, 40)]

    assert state(fold_of(frame, steady + told)) == state(fold_of(frame, steady + told, short=False))


def test_a_count_that_no_machine_holds_does_not_stop_the_fold() -> None:
    """A broken log may say anything; the minute series keeps the largest number it can."""
    frame = Frame(start_us=T0, resume_step=0, sequence_length=1 << 40)
    fold = fold_of(frame, [Reading(n, T0 + 90 * n * S, n, S, samples=n << 40) for n in range(1, 4)])

    assert len(fold.series) == 9
    assert fold.series[-1] == (1 << 63) - 1
    assert Fold.from_bytes(frame, fold.to_bytes()) == fold
    owed = fold_of(frame, [Reading(1, T0 + 90 * S, 1, S, tokens_per_step=-(2 << 63))])
    assert owed.series[-1] == 1 - (1 << 63)


@pytest.mark.slow
@given(frame=FRAMES, told=records(), at=st.integers(0, 25))
@settings(max_examples=150, deadline=None)
def test_a_fold_can_be_put_down_and_taken_up(frame: Frame, told: list[Reading | Event], at: int) -> None:
    """Through JSON and through bytes, anywhere: the rest folds as if nothing had happened."""
    half = fold_of(frame, told[:at])
    again = Fold.from_json(frame, json.loads(json.dumps(half.to_json())))
    assert Fold.from_bytes(frame, half.to_bytes()) == again
    for record in told[at:]:
        if isinstance(record, Reading):
            again.reading(record)
        else:
            again.event(record)

    assert state(again) == state(fold_of(frame, told))


@pytest.mark.slow
@given(
    frame=FRAMES,
    told=records(),
    length=st.integers(-1000, 40_000),
    running=st.booleans(),
    usual=st.one_of(st.none(), st.integers(1, 1000 * S)),
)
@settings(max_examples=400, deadline=None)
def test_spans_tile_the_allocation_and_none_is_negative(
    frame: Frame, told: list[Reading | Event], length: int, running: bool, usual: int | None
) -> None:
    """Whatever the log says, and wherever its end lies."""
    fold = fold_of(frame, told)
    before = json.dumps(fold.to_json())
    closed = close(
        fold, end_us=frame.start_us + length * S, running=running, usual_gap_us=usual, usual_startup_us=usual
    )
    spans = [
        closed.startup_us, closed.productive_us, closed.lost_us, closed.checkpoint_us,
        closed.evaluation_us, closed.other_us, closed.tail_us, closed.pending_us,
    ]  # fmt: skip

    assert sum(spans) == closed.allocated_us
    assert min(spans) >= 0
    assert json.dumps(fold.to_json()) == before, "closing is only looking"


@pytest.mark.parametrize("cut", [0, 7, 33, 100])
def test_a_cut_moves_time_steps_and_tokens_together(cut: int) -> None:
    """What is not retained is lost: the sums stay."""
    told: list[Reading | Event] = [
        Reading(n, T0 + 100 * n * S, 10 * n, 10 * S, 80 * n, None, 8, 0, 2) for n in range(1, 11)
    ]

    fold = fold_of(Frame(start_us=T0, resume_step=0, cut=cut, sequence_length=100), told)

    assert fold.productive_us == cut * 10 * S
    assert fold.lost_us == (100 - cut) * 10 * S
    assert (fold.steps_net, fold.steps_lost) == (cut, 100 - cut)
    assert (fold.tokens_net, fold.tokens_lost) == (cut * 800, (100 - cut) * 800)
