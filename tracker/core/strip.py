"""The calendar of a run in pieces, for a time line: start-up, kept work, lost work, and what came after.

Pure. Lengths are the ledger's; inside an attempt saves and evaluations are left in the work around them,
and lost work, which a later resume cut off, is its last part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tracker.core.ledger import AttemptLine
from tracker.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """One piece of one attempt."""

    attempt: int
    start_us: int
    end_us: int
    what: str
    """A bucket: startup, productive, lost, tail or pending."""


def strip(snapshot: Snapshot) -> tuple[Stretch, ...]:
    """Return the pieces of all attempts in order of time; none is empty."""
    return tuple(piece for line in snapshot.attempts for piece in _pieces(line, snapshot.as_of_us))


def _pieces(line: AttemptLine, as_of_us: int) -> Iterator[Stretch]:
    end = line.end_us if line.end_us is not None else as_of_us
    first = end if line.first_us is None else min(max(line.first_us, line.start_us), end)
    progress = first if line.progress_us is None else min(max(line.progress_us, first), end)
    if line.first_us is None:
        first = progress = line.start_us + min(line.wall_us["startup"], end - line.start_us)
    worked = line.wall_us["productive"] + line.wall_us["lost"]
    lost = round((progress - first) * line.wall_us["lost"] / worked) if worked else 0
    after = "pending" if line.running and not line.stalled else "tail"
    for what, start, stop in (
        ("startup", line.start_us, first),
        ("productive", first, progress - lost),
        ("lost", progress - lost, progress),
        (after, progress, end),
    ):
        if stop > start:
            yield Stretch(attempt=line.number, start_us=start, end_us=stop, what=what)
