"""How a fact becomes a row and comes back unchanged.

Pure. The place of a record is its key: id = stream_id << 44 | offset << 4 | sub, where `sub` counts the
records that stand at one offset. So rows of a file lie together in file order, a range of offsets is a
range of keys, no other index is needed, and the same line read again meets its own row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, cast

from tracker.core.records import Event, Json, Kind, Reading, Reject, SchedulerRow
from tracker.core.segments import Segment

OFFSET_BITS: Final = 40
SUB_BITS: Final = 4
STREAM_SHIFT: Final = OFFSET_BITS + SUB_BITS
LARGEST_OFFSET: Final = 2**OFFSET_BITS - 1
LARGEST_STREAM: Final = 2**19 - 1
LARGEST_SUB: Final = 2**SUB_BITS - 1
_OFFSET_MASK: Final = LARGEST_OFFSET
REJECT_LINE_BYTES: Final = 240

ReadingRow = tuple[Any, ...]
EventRow = tuple[int, str, int | None, int | None, int | None, str, str]

READING_COLUMNS: Final = (
    "at_us, step, step_time_us, samples, tokens, batch, skipped, flags, reported_flop_per_s, tokens_per_step"
)
"""In the order of `Reading` after its offset."""


def key(stream_id: int, offset: int, sub: int = 0) -> int:
    """Return the key of a place.

    >>> place = key(3, 1_000, 2)
    >>> offset_of(place), place >> STREAM_SHIFT
    (1000, 3)
    """
    return stream_id << STREAM_SHIFT | offset << SUB_BITS | sub


def offset_of(place: int) -> int:
    """Return the offset in a key."""
    return place >> SUB_BITS & _OFFSET_MASK


def key_range(stream_id: int, start: int, end: int | None) -> tuple[int, int]:
    """Return the half-open range of keys of a stream with start <= offset < end."""
    low = key(stream_id, min(max(start, 0), LARGEST_OFFSET))
    if end is None or end > LARGEST_OFFSET:
        return low, (stream_id + 1) << STREAM_SHIFT
    return low, key(stream_id, max(end, 0))


class Places:
    """Gives out keys in one stream and table; knows the last one given, nothing else."""

    __slots__ = ("_base", "last")

    def __init__(self, stream_id: int, last: int | None) -> None:
        self._base = stream_id << STREAM_SHIFT
        self.last = self._base - 1 if last is None else last

    def next(self, offset: int) -> int | None:
        """Return the key of one more record at an offset; None where 16 stand there already."""
        place = self._base | offset << SUB_BITS
        if place <= self.last:
            if self.last >> SUB_BITS != place >> SUB_BITS:
                return place  # an earlier place: the same again, and ignored where it is already there
            if self.last & LARGEST_SUB == LARGEST_SUB:
                return None
            place = self.last + 1
        self.last = place
        return place


def reading_rows(places: Places, readings: Iterable[Reading]) -> list[ReadingRow]:
    """Return readings as rows. A rate that is not a finite number is unknown: it becomes NULL here."""
    rows: list[ReadingRow] = []
    give = places.next
    for reading in readings:
        place = give(reading[0])
        if place is None:
            continue
        rate = reading[9]
        if rate is not None and rate - rate != 0:  # NaN and both infinities, which SQLite would alter
            reading = reading._replace(reported_flop_per_s=None)
        rows.append((place, *reading[1:]))
    return rows


as_readings = cast(
    "Callable[[Iterable[ReadingRow]], Iterator[Reading]]", partial(map, partial(tuple.__new__, Reading))
)
"""Turn rows (offset, then `READING_COLUMNS`) into readings, a million a second."""


def event_rows(places: Places, events: Iterable[Event]) -> list[EventRow]:
    """Return events as rows."""
    rows: list[EventRow] = []
    for event in events:
        place = places.next(event.offset)
        if place is not None:
            rows.append((
                place,
                str(event.kind),
                event.at_us,
                event.step,
                event.duration_us,
                dump(event.data),
                clean(event.text),
            ))
    return rows


def as_event(row: EventRow) -> Event:
    """Return the event of a row."""
    place, kind, at_us, step, duration_us, data, text = row
    return Event(
        offset=offset_of(place),
        kind=Kind(kind),
        at_us=at_us,
        step=step,
        duration_us=duration_us,
        data=json.loads(data) if data != "{}" else {},
        text=text,
    )


def reject_rows(places: Places, rejects: Iterable[Reject]) -> list[tuple[int, str, bytes]]:
    """Return rejects as rows, their lines cut."""
    rows = []
    for reject in rejects:
        place = places.next(reject.offset)
        if place is not None:
            rows.append((place, clean(reject.reason), bytes(reject.line[:REJECT_LINE_BYTES])))
    return rows


SCHEDULER_COLUMNS: Final = (
    "job_id, start_us, end_us, name, state, submit_us, gpus, nodes, exit_code, reason, comment, data"
)


def scheduler_values(row: SchedulerRow) -> tuple[Any, ...]:
    """Return a scheduler row as values in the order of `SCHEDULER_COLUMNS`."""
    return (
        clean(row.job_id),
        row.start_us,
        row.end_us,
        clean(row.name),
        clean(row.state),
        row.submit_us,
        row.gpus,
        row.nodes,
        clean(row.exit_code),
        clean(row.reason),
        clean(row.comment),
        dump(row.data),
    )


def as_scheduler_row(values: Sequence[Any]) -> SchedulerRow:
    """Return the scheduler row of its values."""
    job_id, start_us, end_us, name, state, submit_us, gpus, nodes, exit_code, reason, comment, data = values
    return SchedulerRow(
        job_id=job_id,
        start_us=start_us,
        end_us=end_us,
        name=name,
        state=state,
        submit_us=submit_us,
        gpus=gpus,
        nodes=nodes,
        exit_code=exit_code,
        reason=reason,
        comment=comment,
        data=json.loads(data),
    )


def later(one: Sequence[Any], other: Sequence[Any]) -> Sequence[Any]:
    """Return which of two tellings of one allocation counts, whichever came first.

    An end that is known beats one that is not, a later end an earlier one, more facts fewer; what is
    left is decided by the values themselves.
    """

    def rank(values: Sequence[Any]) -> tuple[Any, ...]:
        end = values[2]
        known = sum(value not in (None, "", "{}") for value in values)
        return (end is not None, end or 0, known, [("" if v is None else str(v)) for v in values])

    return max(one, other, key=rank)


def dump(data: object) -> str:
    """Return plain data as compact JSON that comes back equal, NaN and lone surrogates included."""
    return json.dumps(data, separators=(",", ":"), default=_plain) if data else "{}"


def dump_segment(segment: Segment) -> str:
    """Return `segment.to_json()` as text, without the deep copy."""
    return dump({name: getattr(segment, name) for name in Segment.__dataclass_fields__})


def _plain(value: object) -> Json:
    if hasattr(value, "items"):
        return dict(value.items())
    raise TypeError(f"not plain JSON: {type(value).__name__}")


def clean(text: str) -> str:
    """Return text that UTF-8 can hold (a log may smuggle in half of a surrogate pair)."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
