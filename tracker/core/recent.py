"""The run's recent figures: MFU over the last hour of productive time, cost over the last day of allocation.

Pure. Both walk back from the newest attempt along the minute series of its fold; between two minutes
the series is taken as a straight line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

HOUR_US: Final = 3600 * 1_000_000
DAY_US: Final = 24 * HOUR_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One attempt's recent course."""

    series: Sequence[int]
    """at_us, productive_us, tokens_net of one moment after another, as `Fold.series`."""
    first_us: int | None
    start_us: int
    end_us: int
    """End of what counts as allocated: pending time is left out."""
    gpus: int
    world: int
    flop_per_token: float | None


class Backwards(Protocol):
    """Tracks in order of time, walked from the latest back."""

    def __reversed__(self) -> Iterator[Track]:
        """Yield them, the latest first."""
        ...


class _Points:
    """The rows of a track's series, from its first step on, without a copy of them."""

    __slots__ = ("_first_us", "_flat", "count")

    def __init__(self, track: Track) -> None:
        flat = track.series
        known = track.first_us is not None and not (flat and flat[0] <= track.first_us)
        self._flat = flat
        self._first_us = track.first_us if known else None
        self.count = len(flat) // 3 + known

    def get(self, row: int, column: int) -> int:
        """Return a cell: at_us, productive_us or tokens_net."""
        if self._first_us is None:
            return self._flat[3 * row + column]
        if row:
            return self._flat[3 * row - 3 + column]
        return 0 if column else self._first_us


def _at(points: _Points, column: int, value: float, wanted: int) -> float:
    """Return the `wanted` column where `column` reaches `value`, on straight lines between rows."""
    low, high, get = 0, points.count - 1, points.get
    if value <= get(0, column):
        return float(get(0, wanted))
    if value >= get(high, column):
        return float(get(high, wanted))
    while high - low > 1:
        middle = (low + high) // 2
        if get(middle, column) <= value:
            low = middle
        else:
            high = middle
    span = get(high, column) - get(low, column)
    share = (value - get(low, column)) / span if span else 1.0
    return get(low, wanted) + share * (get(high, wanted) - get(low, wanted))


def recent_mfu(tracks: Backwards, peak_flop_per_s: float, work_us: int = HOUR_US) -> float | None:
    """Return MFU over the last `work_us` of productive wall time; None without any.

    Tokens of retained windows x FLOP per token / (productive GPU-seconds x peak).
    """
    left, flop, gpu_us = work_us, 0.0, 0.0
    for track in reversed(tracks):
        if left <= 0:
            break
        points = _Points(track)
        if not points.count:
            continue
        if track.flop_per_token is None:
            return None
        last = points.count - 1
        worked = points.get(last, 1)
        part = min(left, worked - points.get(0, 1))
        tokens = points.get(last, 2) - _at(points, 1, worked - part, 2)
        flop += tokens * track.flop_per_token
        gpu_us += part * track.world
        left -= part
    return flop * 1e6 / (gpu_us * peak_flop_per_s) if gpu_us > 0 else None


def recent_hours_per_trillion(tracks: Backwards, span_us: int = DAY_US) -> float | None:
    """Return allocated GPU-hours per 1e12 retained tokens over the last `span_us` of allocation."""
    left, tokens, gpu_us = span_us, 0.0, 0
    for track in reversed(tracks):
        if left <= 0:
            break
        part = min(left, max(0, track.end_us - track.start_us))
        gpu_us += part * track.gpus
        left -= part
        points = _Points(track)
        if points.count:
            tokens += points.get(points.count - 1, 2) - _at(points, 0, track.end_us - part, 2)
    return gpu_us / 3.6e9 * 1e12 / tokens if tokens > 0 else None
