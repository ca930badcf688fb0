"""One file cut into segments: the stretch of one process, as far as that file alone can tell.

Pure. A segment begins with a launch banner, a restart inside the job, or a step number that goes back.
`core/stitch.py` later joins segments of many files into attempts. A segment is a small summary that is
brought up to date record by record, in file order, and stored with the read position; so a restarted
tracker goes on where it was, and the same file read in other pieces gives the same segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Final

from tracker.core.leaps import LEAP_US, STRETCH, Astray, Line, astray, line_of, slipped
from tracker.core.records import Event, Flag, Json, Kind, Reading

SAME_LINE_US: Final = 5_000_000
"""Ranks print one record within seconds of each other; the same step later than that was redone."""
RECENT: Final = 8
_ASTRAY: Final = int(Flag.ASTRAY)


@dataclass(slots=True, kw_only=True)
class Segment:
    """What one process left in one file. Steps and times are as its lines said them."""

    ordinal: int
    """0, 1, 2 ... in file order."""
    first_offset: int
    """Records from here on, up to the next segment's first, belong to it."""
    last_offset: int = -1
    """Offset of its latest record."""
    begun_by: str
    """"file" (nothing said so), "launch", "restart" or "step_back"."""
    launched: bool = False
    """Whether a banner was seen: the next one is another process."""
    begin_at_us: int | None = None
    """Stamp of the line that began it."""
    start_at_us: int | None = None
    """First stamp of any record."""
    seen_at_us: int | None = None
    """Latest stamp of any record."""
    settings: dict[str, Json] = field(default_factory=dict)
    """The operating point as far as stated; the last word wins."""
    resume_step: int | None = None
    resume_samples: int | None = None
    resume_tokens: int | None = None
    train_start_us: int | None = None
    """Stamp of the line that says the first step is about to run."""
    work_us: int = 0
    """Printed step times added up: the length of a log without a clock, roughly."""
    readings: int = 0
    duplicates: int = 0
    """Readings that only repeat one already there (other ranks)."""
    first: list[Any] | None = None
    """The first reading, as a list of its fields."""
    second_step: int | None = None
    last: list[Any] | None = None
    """The last reading that went forward."""
    top_save: int | None = None
    """Highest step whose save began."""
    saves: list[int] = field(default_factory=list)
    """Steps of complete saves, the last 16."""
    end_at_us: int | None = None
    """Stamp of the first line that ends the process."""
    end_offset: int | None = None
    end_kind: str | None = None
    end_cause: str | None = None
    fatal: bool = False
    """A failure that the process cannot survive was seen after the last reading."""
    completed: bool = False
    recent: list[list[int | None]] = field(default_factory=list)
    """Last few [step, at_us], to know a repeated line."""
    lines: list[Line] = field(default_factory=list)
    """Its last few lines with a stamp: the next one may tell that theirs leapt ahead."""
    astray: int = 0
    """Readings whose stamps were not believed."""
    astray_offset: int = -1
    """Where the last of them stands."""

    @property
    def first_reading(self) -> Reading | None:
        """Return the first reading, or None."""
        return Reading(*self.first) if self.first is not None else None

    @property
    def last_reading(self) -> Reading | None:
        """Return the last reading, or None."""
        return Reading(*self.last) if self.last is not None else None

    def to_json(self) -> dict[str, Any]:
        """Return the segment as plain JSON; `from_json` is its inverse."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Segment:
        """Return the segment that `to_json` described."""
        return cls(**body)


class Segmenter:
    """Brings a file's segments up to date. Feed it every record of the file once, in file order.

    `segments` holds the last one known when it was made and all that came since; `dirty` the ordinals
    that changed since the caller last cleared it. `astray` names records fed before whose stamps turned out
    not to be believable, until the caller clears it: they are to be kept by another stamp.
    """

    def __init__(self, last: Segment | None = None, *, settled: bool = False) -> None:
        """`settled`: all stamps were judged already."""
        self._settled = settled
        self.astray: list[Astray] = []
        self.segments: list[Segment] = [] if last is None else [last]
        self.dirty: set[int] = set()

    def feed(self, records: Iterable[Reading | Event]) -> list[Reading | Event]:
        """Take records; return those to keep (a repeated reading is counted, not kept)."""
        kept: list[Reading | Event] = []
        for record in records:
            if isinstance(record, Reading):
                if self._reading(record):
                    kept.append(record)
            else:
                self._event(record)
                kept.append(record)
            self.segments[-1].last_offset = record.offset
        if self.segments:
            self.dirty.add(self.segments[-1].ordinal)
        return kept

    def _begin(self, offset: int, by: str, at_us: int | None) -> Segment:
        if self.segments:
            self.dirty.add(self.segments[-1].ordinal)
        ordinal = self.segments[-1].ordinal + 1 if self.segments else 0
        segment = Segment(ordinal=ordinal, first_offset=offset, begun_by=by, begin_at_us=at_us)
        self.segments.append(segment)
        self.dirty.add(ordinal)
        return segment

    def _current(self, offset: int) -> Segment:
        return self.segments[-1] if self.segments else self._begin(offset, "file", None)

    def _reading(self, reading: Reading) -> bool:
        segment = self._current(reading.offset)
        if segment.last is not None:
            last_step: int = segment.last[2]
            if reading.step <= last_step:
                if _repeats(segment, reading):
                    segment.duplicates += 1
                    return False
                segment = self._begin(reading.offset, "step_back", None)
        at_us = reading.at_us
        if at_us is not None:
            self._judge(segment, reading, at_us)
            _seen(segment, at_us)
        if reading.flags & _ASTRAY:
            segment.astray, segment.astray_offset = segment.astray + 1, reading.offset
        segment.readings += 1
        if reading.step_time_us is not None:
            since = segment.last[2] if segment.last is not None else reading.step - 1
            resumed = segment.resume_step
            if segment.last is None and resumed is not None and resumed < reading.step:
                since = resumed
            segment.work_us += reading.step_time_us * (reading.step - since)
        if segment.first is None:
            segment.first = list(reading)
        elif segment.second_step is None:
            segment.second_step = reading.step
        segment.last = list(reading)
        segment.fatal = False
        told_before = at_us is not None and segment.end_at_us is not None and at_us <= segment.end_at_us
        if segment.end_kind not in (None, "completed") and not told_before:  # it printed on: no end after all
            segment.end_at_us = segment.end_offset = segment.end_kind = segment.end_cause = None
        recent = segment.recent
        recent.append([reading.step, at_us])
        if len(recent) > RECENT:
            del recent[0]
        return True

    def _event(self, event: Event) -> None:
        kind = event.kind
        segment = self._current(event.offset)
        if kind is Kind.LAUNCH:
            if segment.launched or segment.readings or segment.fatal or segment.end_kind is not None:
                segment = self._begin(event.offset, "launch", event.at_us)
            elif segment.begun_by == "file":
                segment.begun_by = "launch"
                segment.begin_at_us = event.at_us if segment.start_at_us is None else segment.start_at_us
            segment.launched = True
        elif kind is Kind.RESTART:
            if segment.end_kind is None:
                segment.end_at_us, segment.end_offset = event.at_us, event.offset
                segment.end_kind = "failed"
            segment = self._begin(event.offset, "restart", event.at_us)
        elif kind is Kind.RESUME and segment.readings:  # loaded again in mid-life: a restart in place
            segment = self._begin(event.offset, "restart", event.at_us)
        if event.at_us is not None:
            self._judge(segment, event, event.at_us)
            _seen(segment, event.at_us)
        _apply(segment, event)

    def _judge(self, segment: Segment, record: Reading | Event, at_us: int) -> None:
        """Find lines before this one whose stamps leapt ahead, and give them the stamp of this one."""
        if self._settled:
            return
        lines, step_us = segment.lines, None
        if isinstance(record, Reading):
            step_us = record.step_time_us
            if step_us is None and lines and abs(at_us - lines[-1][1]) > LEAP_US:
                step_us = _pace(lines)
            if lines and at_us < lines[-1][4]:
                place = slipped(record, at_us, lines, step_us)
                if place is not None:
                    self._set_right(segment, place, at_us)
        lines.append(line_of(record, at_us, lines, step_us))
        if len(lines) > STRETCH + 1:
            del lines[0]

    def _set_right(self, segment: Segment, place: int, at_us: int) -> None:
        lines = segment.lines
        for line in astray(lines, place, at_us):
            offset, said_us, step, kind, _, _, known = line
            self.astray.append(Astray(offset=offset, kind=kind, said_us=said_us, at_us=at_us))
            line[1], line[6] = at_us, True  # kept: this stamp may be the next one that is not believed
            if kind:
                continue
            segment.astray += not known
            segment.astray_offset = max(segment.astray_offset, offset)
            for one in segment.recent:
                if one == [step, said_us]:
                    one[1] = at_us
        segment.seen_at_us = seen = lines[place][4]
        for line in lines[place + 1 :]:
            line[4] = segment.seen_at_us = seen = max(seen, line[1])


def _pace(lines: list[Line]) -> int | None:
    """Return how long a step took in the lines before, as their stamps have it."""
    told = [(line[2], line[1]) for line in lines if line[2] is not None]
    spans = sorted(
        (later - since) // (to - step)
        for (step, since), (to, later) in pairwise(told)
        if to > step and later >= since
    )
    return spans[(len(spans) - 1) // 2] if spans else None


def _seen(segment: Segment, at_us: int) -> None:
    if segment.start_at_us is None:
        segment.start_at_us = at_us
    if segment.seen_at_us is None or at_us > segment.seen_at_us:
        segment.seen_at_us = at_us


def _repeats(segment: Segment, reading: Reading) -> bool:
    """Tell whether a reading that does not go forward only repeats a line of another rank."""
    for step, at_us in segment.recent:
        if step != reading.step:
            continue
        if at_us is not None and reading.at_us is not None:
            return abs(reading.at_us - at_us) <= SAME_LINE_US
        last = Reading(*segment.last) if segment.last is not None else None
        return (
            last is None
            or last.step != step
            or (last.step_time_us, last.samples, last.tokens)
            == (
                reading.step_time_us,
                reading.samples,
                reading.tokens,
            )
        )
    return False


def _apply(segment: Segment, event: Event) -> None:
    kind, data = event.kind, event.data
    if kind is Kind.SETTING:
        segment.settings.update(data)
    elif kind is Kind.LAUNCH:
        if "job_id" in data:
            segment.settings["job_id"] = data["job_id"]
    elif kind is Kind.RESUME:
        if event.step is not None:
            segment.resume_step = event.step
        samples, tokens = data.get("samples"), data.get("tokens")
        segment.resume_samples = samples if isinstance(samples, int) else segment.resume_samples
        segment.resume_tokens = tokens if isinstance(tokens, int) else segment.resume_tokens
    elif kind is Kind.TRAIN_START:
        segment.train_start_us = event.at_us
    elif kind is Kind.SAVE_START and event.step is not None:
        segment.top_save = max(segment.top_save or 0, event.step)
    elif (kind is Kind.SAVE_END and not data.get("async")) or kind is Kind.SAVE_DURABLE:
        if event.step is not None and event.step not in segment.saves:
            segment.saves = [*segment.saves, event.step][-16:]
    elif kind is Kind.FAILURE:
        segment.fatal = segment.fatal or bool(data.get("fatal"))
    elif kind in (Kind.EXIT, Kind.COMPLETED):
        _end(segment, event)


def _end(segment: Segment, event: Event) -> None:
    """Keep the first end; success stands whatever teardown prints, and replaces an earlier verdict."""
    if event.kind is Kind.COMPLETED or event.data.get("end_kind") == "completed":
        segment.completed = True
        segment.end_kind, segment.end_cause = "completed", None
        segment.end_at_us, segment.end_offset = event.at_us, event.offset
        return
    if segment.end_kind is not None:
        return
    cause, end_kind = event.data.get("cause"), event.data.get("end_kind")
    segment.end_kind = end_kind if isinstance(end_kind, str) else "failed"
    segment.end_cause = cause if isinstance(cause, str) else None
    segment.end_at_us, segment.end_offset = event.at_us, event.offset
