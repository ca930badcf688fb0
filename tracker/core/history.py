"""The run as it stood at an earlier moment: what its lines had said by then.

Pure. Facts with a stamp are cut at their stamp. A line without one counts with the stamped line before
it, but for start-up lines, which belong to the stamped one that follows. In a log without any clock only
the fold knows where a moment lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from tracker.core.attempts import Attempt
from tracker.core.facts import Facts, Stream
from tracker.core.fold import Fold
from tracker.core.records import Event, Flag, Kind, Reading, SchedulerRow
from tracker.core.segments import RECENT, Segment, Segmenter


def shorten(facts: Facts, folded: Iterable[tuple[Attempt, Fold]]) -> bool:
    """Take from logs without a clock what lies after `as_of`: only the fold knows where that is."""
    shortened = False
    for attempt, fold in folded:
        pieces = attempt.pieces
        if not pieces:
            continue
        piece = pieces[fold.piece]
        segment = piece.segment
        clocked = segment.last is not None and segment.last[1] is not None
        if clocked or segment.last_offset < fold.offset:
            continue
        segmenter = Segmenter(_blank(segment), settled=True)
        stream_id, start = piece.stream.stream_id, segment.first_offset
        records: list[Event | Reading] = [
            *facts.readings(stream_id, start=start, end=fold.offset),
            *facts.events(stream_id, start=start, end=fold.offset),
        ]
        records.sort(key=lambda record: (record.offset, isinstance(record, Event)))
        segmenter.feed(record for record in records if not _begins(record, segment))
        piece.segment = segmenter.segments[-1]
        piece.end_offset = fold.offset
        del pieces[fold.piece + 1 :]
        shortened = True
    return shortened


def superseded(rows: Sequence[SchedulerRow]) -> list[SchedulerRow]:
    """Return the rows, an open one closed (at a moment nobody told) where its job began anew later."""
    latest = {row.job_id: row.start_us for row in sorted(rows, key=lambda row: row.start_us)}
    return [
        replace(row, state="REQUEUED") if row.end_us is None and row.start_us < latest[row.job_id] else row
        for row in rows
    ]


def as_known(row: SchedulerRow, as_of_us: int) -> SchedulerRow:
    """Return a scheduler row as it stood at a moment: one that ends later is still running."""
    if row.end_us is None or row.end_us <= as_of_us:
        return row
    return replace(row, end_us=None, state="RUNNING", exit_code="", reason="")


def known(facts: Facts, stream: Stream, as_of_us: int) -> Stream:
    """Return a stream with what its lines said up to a moment."""
    if all(s.seen_at_us is None or s.seen_at_us <= as_of_us for s in stream.segments):
        return stream
    segments: list[Segment] = []
    past = False
    for index, segment in enumerate(stream.segments):
        seen = segment.seen_at_us
        if seen is not None and seen <= as_of_us:
            segments.append(segment)
        elif seen is not None:
            end = stream.segments[index + 1].first_offset if index + 1 < len(stream.segments) else None
            again = _segment_until(facts, stream.stream_id, segment, end, as_of_us)
            if again is not None:
                segments.append(again)
            past = True
        elif not past:
            segments.append(segment)
    return replace(stream, segments=tuple(segments))


NEVER_US: Final = 1 << 62
_AHEAD: Final = 2048
_STARTS: Final = (Kind.LAUNCH, Kind.RESTART, Kind.SETTING, Kind.RESUME, Kind.TRAIN_START)


def _segment_until(
    facts: Facts, stream_id: int, segment: Segment, end: int | None, as_of_us: int
) -> Segment | None:
    """Return a segment as its stamped lines up to a moment had it; None if there was none.

    A line without a stamp counts with the stamped one before it, but for start-up lines: those belong
    to the stamped one that follows.
    """
    start = segment.first_offset
    events = list(facts.events(stream_id, start=start, end=end))
    segmenter = Segmenter(_blank(segment), settled=True)
    waiting: list[Event] = []
    taken = 0

    def take(until: int | None) -> bool:
        """Feed events that stand before an offset; return False at the first later stamp."""
        nonlocal taken
        while taken < len(events) and (until is None or events[taken].offset < until):
            event = events[taken]
            if event.at_us is not None and event.at_us > as_of_us:
                return False
            waiting.append(event)
            if event.at_us is not None:
                segmenter.feed(_own(waiting, segment))
                waiting.clear()
            taken += 1
        return True

    later = False
    for reading in facts.readings(stream_id, start=start, end=end):
        if not take(reading.offset) or (reading.at_us is not None and reading.at_us > as_of_us):
            later = True
            break
        segmenter.feed([*_own(waiting, segment), reading])
        waiting.clear()
    if not later:
        take(None)
    first_start = next((n for n, event in enumerate(waiting) if event.kind in _STARTS), len(waiting))
    segmenter.feed(_own(waiting[:first_start], segment))
    again = segmenter.segments[-1]
    return None if again.start_at_us is None and not again.readings else again


def _blank(segment: Segment) -> Segment:
    """Return the segment as it was when it had just begun."""
    return Segment(
        ordinal=segment.ordinal,
        first_offset=segment.first_offset,
        begun_by=segment.begun_by if segment.begun_by in ("step_back", "restart") else "file",
        begin_at_us=segment.begin_at_us if segment.begun_by == "restart" else None,
    )


def _begins(record: Reading | Event, segment: Segment) -> bool:
    """Tell whether a record is the restart that began the segment: its blank already knows it."""
    return (
        segment.begun_by == "restart"
        and isinstance(record, Event)
        and record.kind is Kind.RESTART
        and record.offset == segment.first_offset
    )


def _own(events: list[Event], segment: Segment) -> list[Event]:
    return [event for event in events if not _begins(event, segment)]


class Growing:
    """A segment whose records come one by one, as `known` would have it after each of them."""

    __slots__ = (
        "_ahead", "_facts", "_place", "_records", "_segmenter", "_span", "due_us", "next", "waiting", "whole",
    )  # fmt: skip

    def __init__(self, facts: Facts, stream_id: int, segment: Segment, end: int | None) -> None:
        self.whole = segment
        """As it is when all is known."""
        self.next: Reading | Event | None = None
        """The record to come; None before `begin` and after the last one."""
        self.due_us = NEVER_US
        """When that is known."""
        self.waiting: list[Event] = []
        """Start-up lines without a stamp: they belong to the stamped one that follows."""
        self._facts = facts
        self._span = (stream_id, segment.first_offset, end)
        self._records: Iterator[Reading | Event] = iter(())
        self._ahead: list[Reading | Event] = []
        self._place = 0
        """Records read ahead, and how many of them were looked at."""
        self._segmenter = Segmenter(_blank(segment), settled=True)

    @property
    def begins_us(self) -> int:
        """Return when its first record is known, or earlier: `begin` then says."""
        first = self.whole.first
        return self.whole.start_at_us or 0 if first is None or first[1] is not None else 0

    @property
    def segment(self) -> Segment:
        """Return the segment as it stands; the same object as long as it grows."""
        return self._segmenter.segments[-1]

    @property
    def begun(self) -> bool:
        """Tell whether it is known at all."""
        return self.segment.start_at_us is not None or self.segment.readings > 0

    @property
    def done(self) -> bool:
        """Tell whether all of it is known."""
        return self.due_us == NEVER_US

    def begin(self) -> None:
        """Look at the first record."""
        stream_id, start, end = self._span
        self._records = _in_order(
            self._facts.readings(stream_id, start=start, end=end),
            iter(self._facts.events(stream_id, start=start, end=end)),
        )
        self.due_us = 0
        self._look()

    def take(self) -> Reading | Event:
        """Take in the next record, and return it."""
        record = self.next
        assert record is not None
        segmenter = self._segmenter
        if isinstance(record, Reading):
            if self.waiting:
                segmenter.feed(_own(self.waiting, self.whole))
                self.waiting.clear()
            segmenter.feed((record,))
        elif record.at_us is None and (self.waiting or record.kind in _STARTS):
            self.waiting.append(record)
        else:
            segmenter.feed(_own([*self.waiting, record], self.whole))
            self.waiting.clear()
        self._look()
        return record

    def plain(self, until_us: int) -> list[Reading]:
        """Return the readings to come, as far as they are stamped, go forward and are known by a moment.

        Those of the last millisecond are left out where something else may stand in it. None is taken.
        """
        segment = self.segment
        if (
            self.waiting
            or segment.last is None
            or segment.second_step is None
            or segment.end_kind is not None
        ):
            return []
        if self._place > len(self._ahead) // 2:
            del self._ahead[: self._place - 1]
            self._place = 1
            self._ahead += islice(self._records, _AHEAD)
        due, last = self.due_us, segment.last[2]
        found: list[Reading] = []
        after: Reading | Event | None = None
        for record in islice(self._ahead, self._place - 1, None):
            at_us = record.at_us
            if (
                not isinstance(record, Reading)
                or at_us is None
                or record.step <= last
                or at_us < due
                or record.flags & Flag.ASTRAY
            ):
                after = record
                break
            if at_us > until_us:
                return found
            found.append(record)
            due, last = at_us, record.step
        if after is None or after.at_us is None or -(-after.at_us // 1000) <= -(-due // 1000):
            moment = -(-due // 1000)
            while found and -(-(found[-1].at_us or 0) // 1000) == moment:
                found.pop()
        return found

    def take_plain(self, readings: Sequence[Reading]) -> None:
        """Take in the first of what `plain` returned."""
        segment, last = self.segment, readings[-1]
        assert segment.last is not None
        since = segment.last[2]
        work = 0
        for reading in readings:
            if reading.step_time_us is not None:
                work += reading.step_time_us * (reading.step - since)
            since = reading.step
        segment.work_us += work
        segment.readings += len(readings)
        segment.last = list(last)
        segment.last_offset = last.offset
        segment.seen_at_us = max(segment.seen_at_us or 0, last.at_us or 0)
        if segment.start_at_us is None:
            segment.start_at_us = readings[0].at_us
        segment.fatal = False
        segment.recent = [*segment.recent, *([r.step, r.at_us] for r in readings[-RECENT:])][-RECENT:]
        self.due_us = max(self.due_us, last.at_us or 0)
        self._place += len(readings) - 1
        self._look()

    def _look(self) -> None:
        if self._place >= len(self._ahead):
            self._ahead = list(islice(self._records, _AHEAD))
            self._place = 0
        self.next = self._ahead[self._place] if self._ahead else None
        self._place += 1
        if self.next is None:
            self.due_us = NEVER_US
        elif self.next.at_us is not None and self.next.at_us > self.due_us:
            self.due_us = self.next.at_us


def _in_order(readings: Iterator[Reading], events: Iterator[Event]) -> Iterator[Reading | Event]:
    """Yield the records of a file as they stand; of one line the reading first."""
    event = next(events, None)
    for reading in readings:
        while event is not None and event.offset < reading.offset:
            yield event
            event = next(events, None)
        yield reading
    while event is not None:
        yield event
        event = next(events, None)
