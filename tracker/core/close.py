"""A fold brought to the attempt's end, or to the moment asked for: its allocation tiled exactly.

Pure. What follows the last sign of progress becomes `tail` or `pending`; saves and evaluations after the
last reading are placed; what the log claims beyond the end of the allocation is taken off, and said.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median_low

from tracker.core.fold import Fold


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """An attempt's fold brought to its end, or to `as_of`: wall microseconds that tile it exactly."""

    allocated_us: int
    startup_us: int
    productive_us: int
    lost_us: int
    checkpoint_us: int
    evaluation_us: int
    other_us: int
    tail_us: int
    pending_us: int
    progress_us: int | None
    """Last sign of progress (a moment); None before the first window."""
    first_us: int | None
    step: int
    """Last step known to be executed."""
    steps_net: int
    steps_lost: int
    tokens_net: int | None
    tokens_lost: int | None
    stalled: bool
    stall_limit_us: int | None
    """How long a running attempt may be quiet before it is stalled; None once it ended, or while unknown."""
    clipped_us: int
    """Time that the log claims beyond the end of its allocation; taken off, and a warning."""


def close(
    fold: Fold,
    *,
    end_us: int,
    running: bool,
    usual_gap_us: int | None = None,
    usual_startup_us: int | None = None,
) -> Closed:
    """Tile [frame.start_us, end_us) without a gap. `end_us` is `as_of` where the attempt is running.

    `usual_gap_us` is the previous attempt's, for an attempt with fewer than three gaps of its own.
    """
    allocated = max(0, end_us - fold.frame.start_us)
    last = Fold.from_json(fold.frame, fold.to_json()) if fold.stops else fold
    if last is not fold:
        _settle(last, end_us)
    spans = {
        "startup_us": 0,
        "productive_us": last.productive_us,
        "lost_us": last.lost_us,
        "checkpoint_us": last.checkpoint_us,
        "evaluation_us": last.evaluation_us,
        "other_us": last.other_us,
        "tail_us": 0,
        "pending_us": 0,
    }
    stalled = False
    if last.first_us is None or last.at is None:
        usual = usual_startup_us
        stalled = _startup_only(spans, last, allocated, running, usual_startup_us)
    else:
        spans["startup_us"] = max(0, last.first_us - fold.frame.start_us)
        quiet = max(0, end_us - last.at)
        usual = _usual_gap(last, usual_gap_us)
        if running and (usual is None or quiet <= 3 * usual):
            spans["pending_us"] = quiet
        else:
            spans["tail_us"] = quiet
            stalled = running
    clipped = sum(spans.values()) - allocated
    excess = clipped
    for name in ("pending_us", "tail_us", "other_us", "evaluation_us", "checkpoint_us", "lost_us"):
        excess = _take(spans, name, excess)
    excess = _take(spans, "productive_us", excess)
    _take(spans, "startup_us", excess)
    spans["other_us"] += max(0, -clipped)
    tokens = last.tokens()
    return Closed(
        allocated_us=allocated,
        **spans,
        progress_us=last.at,
        first_us=last.first_us,
        step=last.step,
        steps_net=last.steps_net,
        steps_lost=last.steps_lost,
        tokens_net=None if tokens is None else tokens[0],
        tokens_lost=None if tokens is None else tokens[1],
        stalled=stalled,
        stall_limit_us=3 * usual if running and usual is not None else None,
        clipped_us=max(0, clipped),
    )


def _take(spans: dict[str, int], name: str, excess: int) -> int:
    part = min(max(excess, 0), spans[name])
    spans[name] -= part
    return excess - part


def _usual_gap(fold: Fold, previous: int | None) -> int | None:
    if len(fold.gaps) >= 3:
        return median_low(fold.gaps)
    if previous is not None:
        return previous
    if fold.gaps:
        return max(fold.gaps)
    if fold.at is not None and fold.first_us is not None and fold.at > fold.first_us:
        return fold.at - fold.first_us
    return None


def _startup_only(
    spans: dict[str, int], fold: Fold, allocated: int, running: bool, usual_us: int | None
) -> bool:
    """Fill the spans of an attempt without a window; return whether it is stalled."""
    if running:
        limit = allocated if usual_us is None else 3 * usual_us
        if allocated <= limit:
            spans["startup_us"] = allocated
            return False
    sign = fold.sign_us if fold.sign_us is not None else fold.frame.start_us
    spans["startup_us"] = min(max(0, sign - fold.frame.start_us), allocated)
    spans["tail_us"] = allocated - spans["startup_us"]
    return running


def _settle(fold: Fold, end_us: int) -> None:
    """Place the saves and evaluations after the last reading: the last signs of progress."""
    for stop in fold.stops:
        bucket, start, end, duration, step = stop
        if start is None and end is not None and duration is not None:
            start = end - duration
        if fold.at is None:
            if start is None or bucket != "checkpoint" or step is None or step <= fold.step:
                continue
            fold.first_us = fold.at = min(max(fold.frame.start_us, fold.sign_us or start), start)
        if start is None and bucket == "checkpoint" and step is not None and fold.typical:
            start = fold.at + max(0, step - fold.step) * median_low(fold.typical)
        begun = fold.at if start is None else min(max(start, fold.at), max(end_us, fold.at))
        gap = begun - fold.at
        if bucket == "checkpoint" and step is not None and step > fold.step:
            steps = step - fold.step
            per_step = fold.per_step(None)
            kept = fold.split(fold.step, steps, gap)
            if per_step is not None:
                fold.count_tokens(fold.step, steps, per_step * steps)
            else:
                fold.dark_net += kept
                fold.dark_lost += steps - kept
            fold.step = step
        else:
            fold.other_us += gap
        fold.at = begun
        length = duration if duration is not None else None if end is None else max(0, end - begun)
        if length is not None:
            length = min(length, max(0, end_us - begun))
            if bucket == "checkpoint":
                fold.checkpoint_us += length
            else:
                fold.evaluation_us += length
            fold.at = begun + length
    fold.stops = []
