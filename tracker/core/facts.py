"""What the core asks of whoever keeps the facts. The store implements it; so can a list in a test.

Pure: a protocol and two values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tracker.core.corrections import Correction
from tracker.core.records import Event, Reading, SchedulerRow
from tracker.core.segments import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One file (by content, whatever its name is today) and its segments."""

    stream_id: int
    """A handle for the calls below. Given in order of arrival: never an input of any answer."""
    identity: str
    """Hash of its first bytes, hex: the same whoever reads the file, in whatever order."""
    source: int
    """Index of its `[[source]]` in the config."""
    collector: str
    parser_version: int
    file_name: str
    """Base name without a rotation suffix."""
    written_us: int
    """The file's modification time, or its arrival where that is earlier, as first recorded: only for
    logs without a clock, and then marked as estimated."""
    first_size: int = 0
    """Bytes that the file held when it was first seen (the time above belongs to them)."""
    segments: tuple[Segment, ...] = ()


class Facts(Protocol):
    """Read access to what was ingested; every answer reflects one committed state."""

    def streams(self) -> Sequence[Stream]:
        """Return all streams that hold a record, in no particular order."""
        ...

    def scheduler_rows(self) -> Sequence[SchedulerRow]:
        """Return all scheduler rows, ordered by (start_us, job_id)."""
        ...

    def readings(self, stream_id: int, *, start: int = 0, end: int | None = None) -> Iterator[Reading]:
        """Yield the readings with start <= offset < end, in file order."""
        ...

    def events(self, stream_id: int, *, start: int = 0, end: int | None = None) -> Iterator[Event]:
        """Yield the events with start <= offset < end, in file order."""
        ...

    def corrections(self) -> Sequence[Correction]:
        """Return what people said about interruptions, in the order in which they said it."""
        ...
