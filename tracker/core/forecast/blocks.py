"""Readings summed by time: a run of a million lines as a few thousand rows.

Pure. The store sums the same in SQL; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tracker.core.records import Reading


class Bucket(NamedTuple):
    """The readings of one stretch of time of one process. Counters are the highest seen."""

    end_us: int | None
    """Stamp of its last reading; None for readings without a clock."""
    step: int
    samples: int | None
    tokens: int | None
    batch: int | None
    tokens_per_step: int | None
    step_time_sum_us: int
    step_time_count: int


def bucketed(readings: Iterable[Reading], *, width_us: int, until_us: int) -> list[Bucket]:
    """Return the readings up to a moment, summed by at_us // width_us, in order of time."""
    found: dict[int | None, Bucket] = {}
    for r in readings:
        if r.at_us is not None and r.at_us > until_us:
            continue
        key = None if r.at_us is None else r.at_us // width_us
        b = found.get(key) or Bucket(None, 0, None, None, None, None, 0, 0)
        timed = r.step_time_us is not None
        found[key] = Bucket(
            _most(b.end_us, r.at_us),
            max(b.step, r.step),
            _most(b.samples, r.samples),
            _most(b.tokens, r.tokens),
            _most(b.batch, r.batch),
            _most(b.tokens_per_step, r.tokens_per_step),
            b.step_time_sum_us + (r.step_time_us or 0),
            b.step_time_count + timed,
        )
    return [found[key] for key in sorted(found, key=lambda k: -1 if k is None else k)]


def _most(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)
