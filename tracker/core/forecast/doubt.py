"""Readings that cannot be true beside their neighbours: work faster than this run can do it.

Pure. Two neighbours contradict each other where the calendar between them is too short for the tokens
between them: by a third (and ten minutes) at the fastest rate that the run's own lines print, or at all at
the peak of its devices. Tokens, not steps: the steps of a batch ramp-up are short. One of the two is wrong.
It is the earlier one where the run would be possible without it, and the later one does not contradict what
comes next; else it is the later one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

TOO_FAST: Final = 1.5
"""Times the fastest printed rate."""
LEAST_US: Final = 600_000_000
"""Stamps are late, early and rounded; less than that is no contradiction."""
_DAY_US: Final = 86_400e6
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A reading, or the last of many in a row."""

    at_us: int
    step: int
    tokens: float
    """Since the first point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How fast the run can be."""

    printed_us: float | None
    """A token at the shortest step time that any line printed; None where none does."""
    peak_us: float | None
    """A token at the peak of all devices; None while unknown."""

    @property
    def token_us(self) -> float:
        """Return what a token takes at least."""
        return max((self.printed_us or 0.0) / TOO_FAST, self.peak_us or 0.0)


def doubtful(points: Sequence[Point], limits: Limits) -> dict[int, str]:
    """Return the numbers of the points that cannot be true, each with a sentence that says why.

    The first point is the process's own start and is believed. Where more than one in ten contradict, it is
    the limit that is wrong (a step time in another unit, a peak of another device): none is doubted then.
    """
    found: dict[int, str] = {}
    kept: list[int] = list(range(min(1, len(points))))
    for n in range(1, len(points)):
        here, now = points[kept[-1]], points[n]
        if _possible(here, now, limits):
            kept.append(n)
            continue
        after = points[n + 1] if n + 1 < len(points) else None
        earlier = len(kept) > 1 and _possible(points[kept[-2]], now, limits)
        if earlier and (after is None or _possible(now, after, limits)):
            found[kept[-1]] = _why(here, here, now, limits)
            kept[-1] = n
        else:
            found[n] = _why(now, here, now, limits)
    return found if len(found) <= max(1, len(points) // 10) else {}


def _possible(a: Point, b: Point, limits: Limits) -> bool:
    return (b.tokens - a.tokens) * limits.token_us - (b.at_us - a.at_us) <= LEAST_US


def _why(wrong: Point, a: Point, b: Point, limits: Limits) -> str:
    steps, gap_us = b.step - a.step, b.at_us - a.at_us
    when = (_EPOCH + dt.timedelta(microseconds=wrong.at_us)).strftime("%Y-%m-%d %H:%M")
    per_step = (b.tokens - a.tokens) / steps
    most = _DAY_US / (max(limits.printed_us or 0.0, limits.peak_us or 0.0) * per_step)
    pair = "from it to the next" if wrong is a else "up to it from the one before"
    pace = f"{steps * _DAY_US / gap_us:,.0f} steps a day" if gap_us > 0 else f"{steps:,} steps in no time"
    return (
        f"step {wrong.step:,} at {when} UTC cannot be true: {pair} would be {pace}, when {most:,.0f} can be"
    )
