"""Stamps that leap ahead for a line or a few, and are right again: which lines are not believed.

Pure. One wrong stamp far ahead would hold back all that stands after it, since nothing is known before what
stands above it. Only what follows tells it from hours of silence: a reading that goes on where the one
before the leap was. The lines between then take its stamp: they are known by it, and no sooner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tracker.core.records import Event, Kind, Reading

LEAP_US: Final = 120_000_000
"""Stamps that are off by less are late, not wrong."""
STRETCH: Final = 8
"""Lines in a row; more that agree with each other are a clock that was set."""
_LIGHT: Final = frozenset({
    Kind.SAVE_START,
    Kind.SAVE_END,
    Kind.SAVE_DURABLE,
    Kind.EVAL_START,
    Kind.EVAL_END,
    Kind.NOTE,
    Kind.SIGN,
})
"""Events that begin and end nothing: their stamps may be taken from them."""
_BACK_US: Final = 2_000_000
_NEAR: Final = 2
"""The line after may be later than its steps explain (a save, an evaluation): this many times nearer to the
line before than the leap went."""

Line = list[Any]
"""A line with a stamp: [offset, stamp, step or None, kind of an event or "", the latest stamp up to it,
whether it was further ahead of the one before it than its steps explain, whether its own stamp is not
believed]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Astray:
    """A record, kept before, whose stamp is not believed after all."""

    offset: int
    kind: str
    """Of an event; empty for a reading."""
    said_us: int
    """The stamp that it was kept with."""
    at_us: int
    """The stamp that it is known by: that of the line after."""


def line_of(record: Reading | Event, at_us: int, lines: Sequence[Line], step_us: int | None) -> Line:
    """Return a record as a line; `step_us`: how long a step takes there, as far as known."""
    seen, far = at_us, False
    if lines:
        before = lines[-1]
        seen = max(seen, before[4])
        gap_us = at_us - before[1]
        far = gap_us > LEAP_US and gap_us > 2 * _length(record, lines, step_us) + LEAP_US
    kind = "" if isinstance(record, Reading) else str(record.kind)
    return [record.offset, at_us, record.step if not kind else None, kind, seen, far, False]


def slipped(record: Reading, at_us: int, lines: Sequence[Line], step_us: int | None) -> int | None:
    """Return the place of the reading that a reading goes on from where lines between them leapt ahead.

    None where none did.
    """
    first = None
    for place in range(len(lines) - 1, -1, -1):
        _, stamp, step, kind, _, _, _ = lines[place]
        if stamp > at_us + LEAP_US:
            if kind and kind not in _LIGHT:
                return None
            first = place
        elif stamp > at_us + _BACK_US:
            return None
        elif not kind:
            if first is None or not lines[first][5] or step >= record.step:
                return None
            ahead_us = min(line[1] for line in astray(lines, place, at_us)) - stamp
            length = (step_us or 0) * (record.step - step)
            return place if at_us - stamp <= max(2 * length + LEAP_US, ahead_us // _NEAR) else None
    return None


def astray(lines: Sequence[Line], place: int, at_us: int) -> list[Line]:
    """Return the lines after a place that leapt beyond a stamp."""
    return [line for line in lines[place + 1 :] if line[1] > at_us + LEAP_US]


def _length(record: Reading | Event, lines: Sequence[Line], step_us: int | None) -> int:
    """Return how long the steps up to a reading took, as far as known."""
    if isinstance(record, Event) or step_us is None:
        return 0
    since = next((line[2] for line in reversed(lines) if line[2] is not None), record.step - 1)
    return step_us * max(0, record.step - since)
