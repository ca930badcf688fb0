"""What a collector made of one block, checked so that the store can hold it.

Pure. A collector is trusted to know its format, not to be free of faults: what cannot be kept is a reject,
and a collector that raises is one too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from tracker.core.records import (
    EARLIEST_US,
    LARGEST,
    LATEST_US,
    Event,
    Reading,
    Record,
    Reject,
    SchedulerRow,
    problem,
)
from tracker.core.segments import Segmenter
from tracker.interfaces import Collector, Context
from tracker.store import StreamBatch

_log = logging.getLogger(__name__)
_LINE_BYTES: Final = 500
FAILED: Final = "the collector failed on this part"
BAD_STAMP: Final = "time stamp outside 2000..2100"
BAD_COUNT: Final = "a count is negative or too large"


def take(
    collector: Collector, block: bytes, context: Context, segmenter: Segmenter, batch: StreamBatch
) -> None:
    """Parse a block and add what it holds to a batch, the segments brought up to date."""
    records: list[Reading | Event] = []
    rejects = batch.rejects
    for record in _parsed(collector, block, context):
        if type(record) is Reading:
            wrong = problem(record)
            if wrong is None:
                records.append(record)
            else:
                line = _line_at(block, record.offset - context.offset)
                rejects.append(Reject(record.offset, line, wrong))
        elif isinstance(record, Event):
            sound, wrong = checked_event(record)
            records.append(sound)
            if wrong is not None:
                line = _line_at(block, record.offset - context.offset)
                rejects.append(Reject(record.offset, line, wrong))
        elif isinstance(record, Reject):
            rejects.append(record)
        elif isinstance(record, SchedulerRow):
            wrong = row_problem(record)
            if wrong is None:
                batch.scheduler_rows.append(record)
            else:
                rejects.append(Reject(0, record.job_id.encode("utf-8", "replace")[:_LINE_BYTES], wrong))
    for kept in segmenter.feed(records):
        if type(kept) is Reading:
            batch.readings.append(kept)
        elif isinstance(kept, Event):
            batch.events.append(kept)
    batch.astray += segmenter.astray
    segmenter.astray.clear()


def _parsed(collector: Collector, block: bytes, context: Context) -> Iterable[Record]:
    """Return the records of a block; those before a fault of the collector's, and a reject for it."""
    records: list[Record] = []
    try:
        records.extend(collector.parse(block, context))
    except Exception:  # a fault of ours must not stop the others' files, nor be passed over in silence
        _log.exception(
            "collector %s failed on %s at byte %d", collector.name, context.file_name, context.offset
        )
        records.append(Reject(context.offset, block[:_LINE_BYTES], FAILED))
    return records


def checked_event(event: Event) -> tuple[Event, str | None]:
    """Return an event without the numbers that cannot be true, and what was wrong with them.

    The event itself happened; only its stamp or count is unknown.
    """
    wrong = None
    if event.at_us is not None and not EARLIEST_US <= event.at_us < LATEST_US:
        event, wrong = replace(event, at_us=None), BAD_STAMP
    if event.step is not None and not 0 <= event.step < LARGEST:
        event, wrong = replace(event, step=None), BAD_COUNT
    if event.duration_us is not None and not 0 <= event.duration_us < LARGEST:
        event, wrong = replace(event, duration_us=None), BAD_COUNT
    return event, wrong


def row_problem(row: SchedulerRow) -> str | None:
    """Return why a scheduler row cannot be kept; None if it can."""
    for at_us in (row.start_us, row.end_us, row.submit_us):
        if at_us is not None and not EARLIEST_US <= at_us < LATEST_US:
            return BAD_STAMP
    for count in (row.gpus, row.nodes):
        if count is not None and not 0 <= count < LARGEST:
            return BAD_COUNT
    return None


def _line_at(block: bytes, place: int) -> bytes:
    start = block.rfind(b"\n", 0, max(place, 0)) + 1
    end = block.find(b"\n", start)
    return block[start : len(block) if end < 0 else end][:_LINE_BYTES]
