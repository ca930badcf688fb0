"""Files that hold no training log but lines of trouble: a job's stderr, a launcher's, a node's.

Pure. Reads what every collector reads of machines, network, scheduler and interpreter (`_events`), and
nothing else: evidence for the attempts of its time, never one of its own. Traps: it claims a file only where
nobody else does and nothing in it looks like steps of an unknown format; stamps of glog and NCCL
(`E0105 08:14:24`) have no year; an event without a time belongs to no attempt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from collectors._events import ALONE
from collectors._options import YEAR, checked
from collectors._process import plain, with_year
from tracker.core.records import Event, Kind, Record
from tracker.interfaces import Collector, Context, Evidence

_SCORE: Final = 10
"""Every format's own words say more."""
_STEPS: Final = re.compile(
    rb"(?i)\b(?:loss|steps?|iter(?:ation)?s?|epoch|batch)\b['\"]?[\t :=|#/\[]{1,4}\d[^\n]*\n"
)
_MOST_STEPS: Final = 3
_TOLD: Final = frozenset({Kind.FAILURE, Kind.EXIT, Kind.RESTART})


def parse(block: bytes, context: Context) -> Iterator[Record]:
    """Yield the events of a block; workers that start again are a note, for the training log shows them."""
    with_year(context)
    for record in ALONE.parse(block, context):
        if isinstance(record, Event) and record.kind is Kind.RESTART:
            yield Event(
                offset=record.offset,
                kind=Kind.NOTE,
                at_us=record.at_us,
                data={"message": "the launcher starts its workers again"},
                text=record.text,
            )
        else:
            yield record


def detect(head: bytes) -> Evidence | None:
    """Find a line of trouble, in a file that does not count steps."""
    text = plain(head)
    if len(_STEPS.findall(text)) >= _MOST_STEPS:
        return None  # a training log that nobody knows: its user should hear so
    for record in ALONE.parse(text, Context()):
        if isinstance(record, Event) and record.kind in _TOLD:
            return Evidence(score=_SCORE, text=f"lines of trouble and no steps: {record.text[:80]}")
    return None


COLLECTOR: Final = Collector(
    name="events",
    framework="any: stderr and launcher files with nothing but lines of trouble",
    version=1,
    parse=parse,
    detect=detect,
    knows=("causes of failures", "ends by scheduler or operator", "time where the lines have one"),
    options=("year",),
    check=checked(year=YEAR),
    notes=(
        "Evidence only, for files beside a training log. Stamps without a year (NCCL, glog) need year; an "
        "event without a time is kept and explains no attempt."
    ),
)
