"""Which steps are in the model as it stands: where each attempt went on from, and what that threw away.

Pure. Attempts form a tree: each went on from step R of an earlier one. The lineage is the path from the
last attempt back to the root; of every attempt on it, the steps up to the next one's R are retained.
A resume inside the lineage cuts it; one above its end returns to the latest earlier attempt that
executed R, whose steps rejoin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import Final

from tracker.core.attempts import Attempt

TOO_FAST: Final = 3
"""A resume is not believed if the steps after it would have run this much faster than the run's usual."""


_ROUNDING_US: Final = 2_000_000


@dataclass(slots=True)
class Lineage:
    """The path, and what it says of the run."""

    path: list[int] = field(default_factory=list)
    """Indexes of attempts from the root to the last."""
    end_step: int = 0
    """Last step in the model."""
    inherited_steps: int = 0
    """Steps before the first observed attempt."""
    unseen_steps: int = 0
    """Steps on the path that no window covers."""
    warnings: list[str] = field(default_factory=list)


def trace(attempts: Sequence[Attempt]) -> Lineage:
    """Set `resume_step`, `parent`, `cut`, `retained`, `last_step` of every attempt; return the lineage."""
    lineage = Lineage()
    leaf: int | None = None
    paces: list[int] = []
    saves: list[int] = []
    for index, attempt in enumerate(attempts):
        _executed(attempt)
        stated, how = _resume(attempt, saves, _end(attempts, leaf))
        if stated is not None:
            stated, how = _believed(attempts, index, leaf, stated, how, paces, lineage)
            attempt.resume_step, attempt.resume_from = stated, how
            attempt.last_step = max(attempt.last_step or stated, stated)
            attempt.parent = _parent(attempts, index, leaf, stated)
            leaf = index
            pace = _pace(attempt)
            if pace is not None:
                paces.append(pace)
        for piece in attempt.pieces:
            saves.extend(piece.segment.saves)
    _mark(attempts, leaf, lineage)
    return lineage


def extend(lineage: Lineage, last: Attempt) -> None:
    """Bring the lineage's end up to date where only readings and saves of its last attempt were added."""
    _executed(last)
    stated = last.resume_step or 0
    last.last_step = max(last.last_step or stated, stated)
    lineage.end_step = last.last_step


def _executed(attempt: Attempt) -> None:
    steps = [p.segment.last[2] for p in attempt.pieces if p.segment.last is not None]
    steps += [p.segment.top_save for p in attempt.pieces if p.segment.top_save is not None]
    attempt.last_step = max(steps, default=None)


def _end(attempts: Sequence[Attempt], leaf: int | None) -> int | None:
    return None if leaf is None else attempts[leaf].last_step


def _resume(attempt: Attempt, saves: Sequence[int], end: int | None) -> tuple[int | None, str]:
    """Return R and how it is known: the log's word, else what the first readings allow."""
    first = attempt.first
    for piece in attempt.pieces:
        segment = piece.segment
        if segment.resume_step is not None:
            if first is None or segment.resume_step <= first.step:
                return segment.resume_step, "log"
        elif segment.resume_samples is not None and first is not None and first.samples and first.batch:
            return max(0, first.step - (first.samples - segment.resume_samples) // first.batch), "log"
    if first is None:
        return None, ""
    if first.step <= 1:
        return 0, "fresh"
    if end is None and attempt.pieces[0].segment.begun_by == "launch" and _fits(attempt, 0):
        return 0, "fresh"
    interval = _interval(attempt)
    covered = [s for s in saves if s < first.step and (interval is None or s >= first.step - interval)]
    if covered:
        return max(covered), "checkpoint"
    if interval is not None:
        return max(0, first.step - (_steps_by_clock(attempt, interval) or interval)), "interval"
    if end is not None and end < first.step and _fits(attempt, end):
        return end, "interval"
    return first.step - 1, "interval"


def _fits(attempt: Attempt, since: int) -> bool:
    """Tell whether the steps from `since` to the first reading fit into the time since the launch."""
    first = attempt.first
    if first is None or first.at_us is None or not first.step_time_us:
        return True
    return (first.step - since) * first.step_time_us <= first.at_us - attempt.start_us + _ROUNDING_US


def _interval(attempt: Attempt) -> int | None:
    for piece in attempt.pieces:
        segment = piece.segment
        if segment.first is not None and segment.second_step is not None:
            return int(segment.second_step - segment.first[2])
    return None


def _steps_by_clock(attempt: Attempt, interval: int) -> int | None:
    """Return how many steps fit between the start of training and the first reading, if it is plain."""
    first = attempt.first
    begun = next((p.segment.train_start_us for p in attempt.pieces if p.segment.train_start_us), None)
    if first is None or first.at_us is None or begun is None or not first.step_time_us:
        return None
    steps = round((first.at_us - begun) / first.step_time_us)
    return steps if 1 <= steps <= interval else None


def _pace(attempt: Attempt) -> int | None:
    """Return wall microseconds a step, from where it resumed to its last reading."""
    last, resumed = attempt.last, attempt.resume_step
    if last is None or last.at_us is None or resumed is None or last.step <= resumed:
        return None
    return (last.at_us - attempt.start_us) // (last.step - resumed)


def _believed(
    attempts: Sequence[Attempt],
    index: int,
    leaf: int | None,
    stated: int,
    how: str,
    paces: Sequence[int],
    lineage: Lineage,
) -> tuple[int, str]:
    """Return R, or the lineage's end where the stated one cannot be true."""
    if leaf is None:
        return stated, how
    attempt, before = attempts[index], attempts[leaf]
    end = before.last_step or 0
    usual = median_low(paces) if paces else None
    first = attempt.first
    if usual and first is not None and first.at_us is not None and not first.step_time_us:
        steps = first.step - stated
        if steps > 0 and (first.at_us - attempt.start_us) * TOO_FAST < usual * steps and end <= first.step:
            lineage.warnings.append(
                f"attempt {index + 1} is said to resume at step {stated}, but {steps} steps in the time to "
                f"its first reading would be more than {TOO_FAST} times the usual pace: not believed, "
                f"step {end} taken instead"
            )
            return end, "lineage"
    if stated > end and how == "log" and _holder(attempts, range(index), stated) is None:
        quiet = attempt.start_us - before.start_us
        if usual and (stated - (before.resume_step or 0)) * usual > quiet * TOO_FAST:
            shown = first is not None and first.step > stated and bool(first.step_time_us)
            lineage.warnings.append(
                f"attempt {index + 1} is said to resume at step {stated}, which nothing seen so far can have "
                f"reached: "
                + (
                    f"its readings go on from there, the steps from {end} on are counted as unseen"
                    if shown
                    else f"not believed, step {end} taken instead"
                )
            )
            return (stated, how) if shown else (end, "lineage")
    return stated, how


def _holder(attempts: Sequence[Attempt], among: Sequence[int], step: int) -> int | None:
    """Return the latest of some attempts that executed a step."""
    for index in reversed(among):
        attempt = attempts[index]
        resumed, last = attempt.resume_step, attempt.last_step
        if resumed is not None and last is not None and resumed < step <= last:
            return index
    return None


def _parent(attempts: Sequence[Attempt], index: int, leaf: int | None, step: int) -> int | None:
    """Return the attempt that step R belongs to: in the lineage where it is there, else the latest."""
    if step == 0 or leaf is None:
        return None
    end = attempts[leaf].last_step or 0
    if step > end:
        found = _holder(attempts, range(index), step)
        return leaf if found is None else found
    node: int | None = leaf
    while node is not None:
        resumed = attempts[node].resume_step or 0
        if step > resumed:
            return node
        node = attempts[node].parent
    return None


def _mark(attempts: Sequence[Attempt], leaf: int | None, lineage: Lineage) -> None:
    node, cut = leaf, None
    while node is not None:
        attempt = attempts[node]
        attempt.retained, attempt.cut = True, cut
        lineage.path.append(node)
        if cut is not None and attempt.last_step is not None and cut > attempt.last_step:
            lineage.unseen_steps += cut - attempt.last_step
        cut = attempt.resume_step
        node = attempt.parent
    lineage.path.reverse()
    for attempt in attempts:
        if not attempt.retained:
            attempt.cut = attempt.resume_step
    if leaf is not None:
        lineage.end_step = attempts[leaf].last_step or 0
        root = attempts[lineage.path[0]]
        lineage.inherited_steps = root.resume_step or 0
