"""What a log can tell of a run, format by format: which moments are readings, and which carry a clock.

Pure. The truth of a ledger is about what happened *as far as the job's own words can show it*: steps that
no line ever mentions are tail, whatever they were. So the truth needs to know which words there are, and
this module is where that is said; it is derived from the state machine, never from text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.simulator.machine import Attempt
from tests.simulator.parameters import Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What one format can tell."""

    stamp_us: int | None
    """Resolution of the stamp on a training line; None: no stamp."""
    event_us: int | None
    """Resolution of the stamps of start-up and exit lines; None: no stamp."""
    extra_first: bool = False
    """A line after the first step of every process."""
    excludes: bool = True
    """The printed step time leaves out evaluation and saves."""
    saves_timed: bool = True
    """The line that begins a save has a stamp."""
    evaluation_timed: bool = True
    """The log says how long an evaluation took."""
    first_line_timed: bool = True
    """The process's first stamp is of its beginning; else the end of its initialisation is the first one."""
    first_line_at_once: bool = False
    """That stamp is printed at once, not only when the process is initialised."""
    build_timed: bool = False
    """A line with a stamp stands between building the model and loading the checkpoint."""


SIGHTS: Final[dict[str, Sight]] = {
    "megatron": Sight(stamp_us=1, event_us=1, extra_first=True),
    "megatron_0_8": Sight(
        stamp_us=1_000_000, event_us=1_000_000, saves_timed=False, first_line_timed=False
    ),
    "megatron_old": Sight(
        stamp_us=None, event_us=None, excludes=False, saves_timed=False, evaluation_timed=False,
        first_line_timed=False,
    ),
    "bloom": Sight(
        stamp_us=None, event_us=1_000_000, excludes=False, saves_timed=False, evaluation_timed=False,
        first_line_timed=False,
    ),
    "jsonl": Sight(stamp_us=1, event_us=1, first_line_at_once=True, build_timed=True),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mark:
    """A reading: the moment that a line (or the start of a save) shows a step as done."""

    at_us: int
    step: int
    save: bool = False


def logged(parameters: Parameters, attempt: Attempt, sight: Sight) -> list[int]:
    """Return the steps after which an attempt printed a training line."""
    interval, first = parameters.log_interval, attempt.resume_step + 1
    steps = list(range(-(-first // interval) * interval, attempt.last_step + 1, interval))
    if sight.extra_first and attempt.ends and first % interval:
        steps.insert(0, first)
    return steps


def marks(parameters: Parameters, attempt: Attempt, sight: Sight, *, until_us: int) -> list[Mark]:
    """Return an attempt's readings up to a moment, in order, each with a higher step than the one before.

    A save whose line has no stamp lies somewhere between two lines, which then are the window; it is a
    reading of its own only where no line follows.
    """
    base = attempt.resume_step + 1
    found = [
        Mark(at, s) for s in logged(parameters, attempt, sight) if (at := attempt.ends[s - base]) <= until_us
    ]
    saves = [
        Mark(b.start_us, b.step, True) for b in attempt.blocks if b.kind == "save" and b.start_us <= until_us
    ]
    if not sight.saves_timed:
        last = found[-1].step if found else attempt.resume_step
        saves = [mark for mark in saves if mark.step > last]
    found = sorted([*found, *saves], key=lambda mark: (mark.step, mark.at_us))
    kept: list[Mark] = []
    for mark in found:
        if not kept or mark.step > kept[-1].step:
            kept.append(mark)
    return kept


def signs_of_start(attempt: Attempt, sight: Sight) -> list[int]:
    """Return when an attempt printed start-up lines with a stamp, in order."""
    if sight.event_us is None:
        return []
    names = ("init", "build", "load", "data") if sight.build_timed else ("init", "load", "data")
    moments = [end for name, _, end in attempt.phases if name in names]
    first = attempt.first_line_us
    if first is not None and sight.first_line_timed and (moments or sight.first_line_at_once):
        moments.insert(0, first)
    if attempt.in_job:
        moments.insert(0, attempt.start_us)
    return moments


def begin(attempt: Attempt, sight: Sight, *, scheduler: bool) -> int | None:
    """Return where an attempt's time begins, as far as can be known; None where nothing says it.

    A new allocation begins where the scheduler says so. A process inside the same job begins at the line that
    tells of the restart. Without a scheduler a new job begins at its first line that has a stamp, which in
    some formats comes only when it is initialised.
    """
    if scheduler and not attempt.in_job:
        return attempt.start_us
    signs = signs_of_start(attempt, sight)
    return signs[0] if signs else None
