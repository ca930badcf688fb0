"""A run as a bounded series of points in time: what figures and exports draw.

Pure. A run of two months and a run of an hour give the same number of points at most; each point is a
sum or a mean over its stretch of the calendar, so nothing between two points is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

from tracker.core.book import Opened
from tracker.core.cells import CELL_US, Cell, cells
from tracker.core.facts import Facts
from tracker.core.metrics import mfu
from tracker.core.snapshot import Snapshot

MOST_POINTS: Final = 600
_WIDTHS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One stretch of the calendar in which the run trained."""

    from_us: int
    at_us: int
    """Its last reading: what is cumulative holds here."""
    attempt: int
    """Number of the (last) attempt in it."""
    tokens_net: float | None
    """Tokens in the model then, inherited and unseen ones included; None where the log does not say."""
    steps: int
    """Steps executed in it, lost ones too."""
    step_time_s: float | None
    """Mean wall time of its steps, saves and evaluations left out."""
    mfu_ratio: float | None
    """Model FLOP of all its steps over GPU time of those steps and peak: efficiency while stepping."""
    tokens_per_gpu_s: float | None
    """Tokens of its steps per second and training GPU."""
    gpus: int | None
    """Billed GPUs of that attempt."""
    world: int | None
    """Training GPUs of that attempt."""
    work_s: float
    """Wall time of its steps."""
    checkpoint: bool
    """Whether a save fell into it."""
    evaluation: bool
    lost_ratio: float
    """Share of its steps that is not in the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The points, at most `MOST_POINTS`, in order of time."""

    points: tuple[Point, ...] = ()
    width_s: int = 0
    """Length of a stretch."""
    inherited_tokens: float = 0.0
    """In the model before the first observed attempt."""


def series(opened: Opened, facts: Facts, snapshot: Snapshot, *, most: int = MOST_POINTS) -> Series:
    """Return the run as of the snapshot's moment."""
    width_us = width_for(opened, most=most)
    fine = cells(opened, facts, snapshot, width_us=min(width_us, CELL_US))
    return series_of(fine, opened, snapshot, width_us=width_us)


def width_for(opened: Opened, *, most: int = MOST_POINTS) -> int:
    """Return the length of a stretch, microseconds: a round one that gives at most `most` points."""
    starts = [e.closed.first_us for e in opened.entries if e.closed.first_us is not None]
    ends = [e.closed.progress_us for e in opened.entries if e.closed.progress_us is not None]
    if not starts or not ends:
        return 1_000_000
    span_s = (max(ends) - min(starts)) / 1e6
    for width_s in _WIDTHS_S:
        if span_s / width_s + 2 <= most:
            return width_s * 1_000_000
    days = int(span_s / 86400 / max(1, most - 2)) + 1
    return days * 86_400_000_000


def series_of(fine: Sequence[Cell], opened: Opened, snapshot: Snapshot, *, width_us: int) -> Series:
    """Return the series of cells that were already made (none wider than `width_us`)."""
    inherited = float(snapshot.tokens.inherited or 0)
    return Series(
        points=tuple(_points(fine, _unseen(opened), snapshot, inherited, width_us)),
        width_s=width_us // 1_000_000,
        inherited_tokens=inherited,
    )


def _unseen(opened: Opened) -> dict[int, float | None]:
    """Return the tokens that no window covers, by the number of the attempt that went on after them."""
    found: dict[int, float | None] = {}
    path = opened.lineage.path
    for before, after in pairwise(path):
        resumed, last = opened.entries[after].attempt.resume_step, opened.entries[before].attempt.last_step
        if resumed is not None and last is not None and resumed > last:
            per_step = opened.entries[before].fold.per_step(None)
            found[after + 1] = None if per_step is None else float(per_step * (resumed - last))
    return found


def _points(
    fine: Sequence[Cell],
    unseen: dict[int, float | None],
    snapshot: Snapshot,
    inherited: float,
    width_us: int,
) -> Iterator[Point]:
    peak = snapshot.mfu.peak_flop_per_s
    total: float | None = inherited if snapshot.tokens.net is not None else None
    ordered = sorted(fine, key=lambda cell: (cell.until_us, cell.attempt))
    for _, group in groupby(ordered, key=lambda cell: cell.until_us // width_us):
        held = list(group)
        last = held[-1]
        for cell in held:
            if cell.first and total is not None:
                extra = unseen.get(cell.attempt, 0.0)
                total = None if extra is None else total + extra
            total = None if total is None or cell.net_tokens is None else total + cell.net_tokens
        work_us = sum(cell.work_us for cell in held)
        steps = sum(cell.steps for cell in held)
        net_steps = sum(cell.net_steps for cell in held)
        gpu_us = _sum([None if c.world is None else c.world * c.work_us for c in held])
        tokens = _sum([c.tokens for c in held])
        flop = _sum([
            None if c.tokens is None or c.flop_per_token is None else c.tokens * c.flop_per_token
            for c in held
        ])
        yield Point(
            from_us=held[0].from_us,
            at_us=last.until_us,
            attempt=last.attempt,
            tokens_net=total,
            steps=steps,
            step_time_s=work_us / steps / 1e6 if steps and work_us else None,
            mfu_ratio=mfu(flop=flop, gpu_us=round(gpu_us), peak_flop_per_s=peak)
            if flop is not None and gpu_us and peak
            else None,
            tokens_per_gpu_s=tokens / gpu_us * 1e6 if tokens is not None and gpu_us else None,
            gpus=last.gpus,
            world=last.world,
            work_s=work_us / 1e6,
            checkpoint=any(cell.checkpoint for cell in held),
            evaluation=any(cell.evaluation for cell in held),
            lost_ratio=1 - net_steps / steps if steps else 0.0,
        )


def _sum(values: Sequence[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total
