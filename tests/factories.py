"""Facts in memory for tests: records given by hand, or log text read by the real collectors.

Edge of the tests: what the store does for a real run, in lists. Segments come from the real Segmenter.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.simulator.parameters import START_US
from tracker.core.corrections import Correction
from tracker.core.facts import Stream
from tracker.core.leaps import Astray
from tracker.core.records import Event, Flag, Reading, Record, Reject, SchedulerRow
from tracker.core.segments import Segmenter
from tracker.interfaces import Collector, Context


def set_right(kept: list[Reading | Event], astray: Iterable[Astray]) -> list[Reading | Event]:
    """Give records the stamps they are known by, as the store does."""
    stamps: dict[tuple[int, str, int], int] = {}
    first: dict[tuple[int, str, int], tuple[int, str, int]] = {}
    for one in astray:  # a stamp that was taken from a line after may not be believed either
        own = (one.offset, one.kind, one.said_us)
        key = first.pop(own, own)
        stamps[key] = one.at_us
        first[one.offset, one.kind, one.at_us] = key
    found: list[Reading | Event] = []
    for record in kept:
        kind = "" if isinstance(record, Reading) else str(record.kind)
        at_us = stamps.get((record.offset, kind, record.at_us or 0))
        if at_us is None:
            found.append(record)
        elif isinstance(record, Reading):
            found.append(record._replace(at_us=at_us, flags=record.flags | int(Flag.ASTRAY)))
        else:
            found.append(replace(record, at_us=at_us, data={**record.data, "astray": True}))
    return found


@dataclass(slots=True)
class ListFacts:
    """`tracker.core.facts.Facts` over lists."""

    held: list[Stream] = field(default_factory=list)
    rows: list[SchedulerRow] = field(default_factory=list)
    kept: dict[int, list[Reading | Event]] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    said: list[Correction] = field(default_factory=list)

    def streams(self) -> Sequence[Stream]:
        """Return all streams that hold a record."""
        return self.held

    def scheduler_rows(self) -> Sequence[SchedulerRow]:
        """Return all scheduler rows, ordered by (start_us, job_id)."""
        return self.rows

    def readings(self, stream_id: int, *, start: int = 0, end: int | None = None) -> Iterator[Reading]:
        """Yield the readings with start <= offset < end, in file order."""
        for record in self.kept[stream_id]:
            if (
                isinstance(record, Reading)
                and start <= record.offset
                and (end is None or record.offset < end)
            ):
                yield record

    def events(self, stream_id: int, *, start: int = 0, end: int | None = None) -> Iterator[Event]:
        """Yield the events with start <= offset < end, in file order."""
        for record in self.kept[stream_id]:
            if isinstance(record, Event) and start <= record.offset and (end is None or record.offset < end):
                yield record

    def corrections(self) -> Sequence[Correction]:
        """Return what people said, in order."""
        return self.said

    def add(
        self,
        records: Iterable[Record],
        *,
        file_name: str = "train.log",
        collector: str = "made",
        source: int = 0,
        written_us: int = START_US,
        identity: str = "",
    ) -> None:
        """Add one file's records, in file order; scheduler rows and rejects go where they belong."""
        own: list[Reading | Event] = []
        for record in records:
            if isinstance(record, SchedulerRow):
                self.rows.append(record)
            elif isinstance(record, Reject):
                self.rejects.append(record)
            else:
                own.append(record)
        self.rows.sort(key=lambda row: (row.start_us, row.job_id))
        if not own:
            return
        segmenter = Segmenter()
        stream_id = len(self.held) + 1
        self.kept[stream_id] = set_right(segmenter.feed(own), segmenter.astray)
        self.held.append(
            Stream(
                stream_id=stream_id,
                identity=identity or hashlib.sha256(file_name.encode()).hexdigest(),
                source=source,
                collector=collector,
                parser_version=1,
                file_name=file_name,
                written_us=written_us,
                segments=tuple(segmenter.segments),
            )
        )


def facts_from(
    records: Mapping[str, Iterable[Record]] | Iterable[Record],
    scheduler_rows: Iterable[SchedulerRow] = (),
    **stream: int | str,
) -> ListFacts:
    """Return facts from records: by file name, or those of one file.

    `stream` may set `written_us`, `source` or `collector` of every file.
    """
    files = records if isinstance(records, Mapping) else {"train.log": records}
    facts = ListFacts(rows=sorted(scheduler_rows, key=lambda row: (row.start_us, row.job_id)))
    for name, own in files.items():
        facts.add(own, file_name=name, **stream)  # type: ignore[arg-type]
    return facts


def facts_from_logs(
    files: Mapping[str, bytes],
    collector: Collector,
    scheduler: Mapping[str, bytes] | None = None,
    scheduler_collector: Collector | None = None,
    *,
    zone: dt.tzinfo = dt.UTC,
    written_us: Mapping[str, int] | None = None,
    block: int = 1 << 20,
) -> ListFacts:
    """Return facts from log text, read by real collectors in blocks of whole lines.

    `written_us` holds the files' own times, by name.
    """
    facts = ListFacts()
    for name, body in files.items():
        facts.add(
            parse(body, collector, file_name=name, zone=zone, block=block),
            file_name=name,
            collector=collector.name,
            written_us=(written_us or {}).get(name, START_US),
            identity=hashlib.sha256(body[:4096]).hexdigest(),
        )
    for name, body in (scheduler or {}).items():
        assert scheduler_collector is not None
        facts.add(parse(body, scheduler_collector, file_name=name, zone=zone), file_name=name)
    return facts


def parse(
    body: bytes,
    collector: Collector,
    *,
    file_name: str = "train.log",
    zone: dt.tzinfo = dt.UTC,
    block: int = 1 << 20,
) -> list[Record]:
    """Return all records of a file; a log goes in blocks of whole lines, as ingestion hands it over."""
    context = Context(zone=zone, file_name=file_name)
    if collector.kind != "log":
        return list(collector.parse(body, context))
    records: list[Record] = []
    offset = 0
    while offset < len(body):
        end = body.rfind(b"\n", offset, offset + block) + 1
        if end <= offset:
            end = body.find(b"\n", offset) + 1 or len(body)
        context.offset = offset
        records.extend(collector.parse(body[offset:end], context))
        offset = end
    return records


@dataclass(slots=True)
class Tape:
    """Writes records one after the other, so that tests need not count offsets."""

    records: list[Reading | Event] = field(default_factory=list)

    def reading(self, step: int, at_us: int | None, **more: int | float | None) -> None:
        """Add a reading."""
        self.records.append(Reading(len(self.records) * 100, at_us, step, **more))  # type: ignore[arg-type]

    def event(self, kind: str, at_us: int | None = None, **more: object) -> None:
        """Add an event of a kind."""
        from tracker.core.records import Kind

        self.records.append(
            Event(offset=len(self.records) * 100, kind=Kind(kind), at_us=at_us, **more)  # type: ignore[arg-type]
        )
