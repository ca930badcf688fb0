"""What goes into the store in one transaction, and what a stream is before it has a number.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from tracker.core.leaps import Astray
from tracker.core.records import Event, Json, Reading, Reject, SchedulerRow
from tracker.core.segments import Segment

StreamKind = Literal["log", "document", "scheduler", "copy"]
"""As a collector's kind; "copy": its bytes are known from another stream, so it holds no rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStream:
    """A file or command as it is met for the first time."""

    source: int
    """Index of its `[[source]]`."""
    kind: StreamKind = "log"
    collector: str | None = None
    """None: not recognised yet."""
    parser_version: int | None = None
    identity: str
    file_name: str
    written_us: int
    """The file's modification time, or its arrival where that is earlier. Never revised."""
    seen_us: int
    """Its arrival. Never revised."""
    first_size: int = 0
    """Bytes that it held then, after decompression: `written_us` is their moment. Never revised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStream:
    """A stream as the ingestion left it: all that is needed to go on."""

    stream_id: int
    source: int
    kind: StreamKind
    collector: str | None
    parser_version: int | None
    evidence: dict[str, Json]
    identity: str
    file_name: str
    written_us: int
    seen_us: int
    position: dict[str, Json]
    offset: int
    context: dict[str, Json]
    last_segment: Segment | None
    lines: int = 0
    readings: int = 0
    events: int = 0
    rejects: int = 0
    skipped: int = 0


@dataclass(slots=True, kw_only=True)
class StreamBatch:
    """What one stream gained. All of it becomes visible at once, or none."""

    stream_id: int
    new: NewStream | None = None
    """Set when the stream is not in the store yet; its number is `Writer.next_stream_id` or above."""
    position: dict[str, Json]
    """The reader's own words for where it is."""
    offset: int
    """Bytes parsed, after decompression; 0 while nobody knows the format."""
    context: dict[str, Json]
    """The parser's memory after those bytes."""
    reset: bool = False
    """First drop what the stream held: it is read again from its start. Scheduler rows stay."""
    forget_scheduler: bool = False
    """First drop its scheduler rows too: it is no scheduler's document after all."""
    kind: StreamKind | None = None
    """With `collector` and `parser_version`: set when the stream is recognised, or read again."""
    collector: str | None = None
    parser_version: int | None = None
    evidence: dict[str, Json] | None = None
    """Why that collector, or why none; None leaves what is there."""
    identity: str | None = None
    file_name: str | None = None
    source: int | None = None
    segments: list[Segment] = field(default_factory=list)
    """Those that changed, whole."""
    readings: list[Reading] = field(default_factory=list)
    astray: list[Astray] = field(default_factory=list)
    """Records, of this batch or an earlier one, whose stamps are not believed."""
    events: list[Event] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    """All of them; the store keeps a bounded number and counts the rest."""
    scheduler_rows: list[SchedulerRow] = field(default_factory=list)
    lines: int = 0
    skipped: int = 0
    """Lines that were too long to be kept whole, or NUL bytes in place of lines."""

    @property
    def rows(self) -> int:
        """Return how many rows it holds."""
        return len(self.readings) + len(self.events) + len(self.rejects) + len(self.scheduler_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A state that the core saved for later: only a cache, no answer depends on it."""

    position: int
    """Orders the marks of one key; the core says what it means."""
    step: int | None = None
    at_us: int | None = None
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamChange:
    """A stream that is not as it was."""

    stream_id: int
    reset: bool
    """Its rows were dropped and read again since: nothing known of it holds any longer."""
    segments: Sequence[int]
    """Ordinals that are new or different."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What happened after a revision."""

    revision: int
    """The state that this describes; ask again with it."""
    streams: tuple[StreamChange, ...] = ()
    scheduler: bool = False
    """Some scheduler row is new or different."""
