"""Whether an attempt that counts as running has been silent for so long that it is history or forgotten.

Pure. Nothing here changes a figure: without another word an attempt runs until now, and its GPUs are billed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Final

from tracker.core.ledger import AttemptLine

SILENT_US: Final = 24 * 3_600_000_000
"""Whoever watches a run has noticed by then."""


def silent(lines: Sequence[AttemptLine], as_of_us: int) -> list[str]:
    """Return a sentence for each running attempt without a sign of progress for a day: what to do.

    The sentence is the same from day to day.
    """
    return [
        f"attempt {line.number} has shown no progress since {_moment(_last_us(line))} and counts as running, "
        f"so that all its GPU-hours since then are {'tail' if line.progress_us is not None else 'startup'}. "
        f"If the run is history, set run.until = {_moment(_last_us(line), ceil_s=60)}; if the job is "
        "gone, give its end by a `slurm` source; if it holds its GPUs, it hangs"
        for line in lines
        if line.running and as_of_us - _last_us(line) > SILENT_US
    ]


def _last_us(line: AttemptLine) -> int:
    return line.progress_us if line.progress_us is not None else line.start_us


def _moment(at_us: int, *, ceil_s: int = 1) -> str:
    at_s = -(-at_us // (ceil_s * 1_000_000)) * ceil_s
    return f"{dt.datetime.fromtimestamp(at_s, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
