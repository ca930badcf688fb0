"""The windows of an attempt: what each reading added to its time by bucket, its steps and its tokens.

Pure. The fold is played again, reading by reading; the windows' parts sum to the fold's own sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tracker.core.book import Entry, feed
from tracker.core.facts import Facts
from tracker.core.fold import Fold


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The steps between two readings, and the wall time that passed: microseconds that sum to its length."""

    first_step: int
    """The first step in it."""
    last_step: int
    start_us: int
    end_us: int
    productive_us: int
    lost_us: int
    checkpoint_us: int
    evaluation_us: int
    other_us: int
    steps_net: int
    steps_lost: int
    tokens_net: int | None
    """None where no line tells: neither it, nor the readings before it."""
    tokens_lost: int | None


def windows_of(facts: Facts, entry: Entry, *, as_of_us: int) -> Iterator[Window]:
    """Yield the windows of an attempt that was opened at a moment, in order."""
    attempt = entry.attempt
    fold = Fold(frame=entry.fold.frame)
    for number, piece in enumerate(attempt.pieces):
        fold.piece, fold.offset = number, piece.segment.first_offset
        before = _sums(fold)
        at, step = fold.at, fold.step
        for done in feed(fold, facts, piece, as_of_us):
            if not done:
                return
            now = _sums(fold)
            end = fold.at
            if fold.step > step and end is not None:
                parts = [one - other for one, other in zip(now, before, strict=True)]
                start = at if at is not None else fold.first_us
                told = parts[5] + parts[6] == 0 or parts[7] + parts[8] > 0
                yield Window(
                    first_step=step + 1,
                    last_step=fold.step,
                    start_us=start if start is not None else end,
                    end_us=end,
                    productive_us=parts[0],
                    lost_us=parts[1],
                    checkpoint_us=parts[2],
                    evaluation_us=parts[3],
                    other_us=parts[4],
                    steps_net=parts[5],
                    steps_lost=parts[6],
                    tokens_net=parts[7] if told else None,
                    tokens_lost=parts[8] if told else None,
                )
            before, at, step = now, end, fold.step


def _sums(fold: Fold) -> tuple[int, ...]:
    return (
        fold.productive_us,
        fold.lost_us,
        fold.checkpoint_us,
        fold.evaluation_us,
        fold.other_us,
        fold.steps_net,
        fold.steps_lost,
        fold.tokens_net,
        fold.tokens_lost,
    )
