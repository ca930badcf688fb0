"""The run's recent figures: MFU over the last hour of productive time, cost over the last day of allocation.

Pure. Both walk back from the newest attempt along the minute series of its fold; between two minutes
the series is taken as a straight line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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


def _at(points: Sequence[Sequence[int]], column: int, value: float, wanted: int) -> float:
    """Return the `wanted` column where `column` reaches `value`, on straight lines between rows."""
    low, high = 0, len(points) - 1
    if value <= points[0][column]:
        return float(points[0][wanted])
    if value >= points[high][column]:
        return float(points[high][wanted])
    while high - low > 1:
        middle = (low + high) // 2
        if points[middle][column] <= value:
            low = middle
        else:
            high = middle
    span = points[high][column] - points[low][column]
    share = (value - points[low][column]) / span if span else 1.0
    return points[low][wanted] + share * (points[high][wanted] - points[low][wanted])


def _points(track: Track) -> list[Sequence[int]]:
    flat = track.series
    points: list[Sequence[int]] = list(zip(flat[::3], flat[1::3], flat[2::3], strict=True))
    if track.first_us is not None and not (points and points[0][0] <= track.first_us):
        points.insert(0, (track.first_us, 0, 0))
    return points


def recent_mfu(tracks: Sequence[Track], peak_flop_per_s: float, work_us: int = HOUR_US) -> float | None:
    """Return MFU over the last `work_us` of productive wall time; None without any.

    Tokens of retained windows x FLOP per token / (productive GPU-seconds x peak).
    """
    left, flop, gpu_us = work_us, 0.0, 0.0
    for track in reversed(tracks):
        if left <= 0:
            break
        points = _points(track)
        if not points:
            continue
        if track.flop_per_token is None:
            return None
        end = points[-1]
        part = min(left, end[1] - points[0][1])
        tokens = end[2] - _at(points, 1, end[1] - part, 2)
        flop += tokens * track.flop_per_token
        gpu_us += part * track.world
        left -= part
    return flop * 1e6 / (gpu_us * peak_flop_per_s) if gpu_us > 0 else None


def recent_hours_per_trillion(tracks: Sequence[Track], span_us: int = DAY_US) -> float | None:
    """Return allocated GPU-hours per 1e12 retained tokens over the last `span_us` of allocation."""
    left, tokens, gpu_us = span_us, 0.0, 0
    for track in reversed(tracks):
        if left <= 0:
            break
        part = min(left, max(0, track.end_us - track.start_us))
        gpu_us += part * track.gpus
        left -= part
        points = _points(track)
        if points:
            tokens += points[-1][2] - _at(points, 0, track.end_us - part, 2)
    return gpu_us / 3.6e9 * 1e12 / tokens if tokens > 0 else None
