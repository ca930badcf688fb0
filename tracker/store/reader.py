"""What was ingested, as the core asks for it: one committed state at a time, never in anyone's way.

Edge. Implements `tracker.core.facts.Facts`.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from tracker.core.corrections import Correction
from tracker.core.facts import Stream
from tracker.core.forecast.blocks import Bucket
from tracker.core.records import Event, Json, Reading, SchedulerRow
from tracker.core.segments import Segment
from tracker.store import rows
from tracker.store.batch import Changes, Mark, StreamChange, StreamKind
from tracker.store.connection import no_log_waits, open_read_only
from tracker.store.errors import StoreBusy, StoreGone, damaged, decoded, explained
from tracker.store.schema import real, require_current, require_file, version_of

_READINGS: Final = f"""
    SELECT id >> 4 & 0xFFFFFFFFFF, {rows.READING_COLUMNS}
      FROM reading
     WHERE id >= ? AND id < ?
     ORDER BY id
"""
_BUCKETS: Final = """
    SELECT at_us / ?, max(at_us), max(step), max(samples), max(tokens), max(batch), max(tokens_per_step),
           coalesce(sum(step_time_us), 0), count(step_time_us)
      FROM reading
     WHERE id >= ? AND id < ? AND (at_us IS NULL OR at_us <= ?)
     GROUP BY 1
     ORDER BY 1
"""
_EVENTS: Final = """
    SELECT id, kind, at_us, step, duration_us, data, text
      FROM event
     WHERE id >= ? AND id < ?
     ORDER BY id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A line that could not be used."""

    stream_id: int
    offset: int
    reason: str
    line: bytes
    """Its first bytes; hostile text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReport:
    """A file and what came of it, for `check` and for people."""

    stream_id: int
    source: int
    kind: StreamKind
    file_name: str
    identity: str
    collector: str | None
    parser_version: int | None
    evidence: dict[str, Json]
    offset: int
    lines: int
    readings: int
    events: int
    rejects: int
    skipped: int


class Reader:
    """An open store that is only read. For one thread at a time; a thread may have its own."""

    def __init__(self, path: str | Path) -> None:
        """Open an existing store of the present schema."""
        self.path = real(path)
        self._open()

    def _open(self) -> None:
        require_file(self.path)
        if not self.path.exists():
            require_current(0, self.path)
        self._file = _status(self.path)
        with explained(self.path):
            self._connection, self._immutable = open_read_only(self.path)
            try:
                require_current(version_of(self._connection, self.path), self.path)
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        """Close the store."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def snapshot(self) -> Iterator[Self]:
        """All calls inside the block see one committed state, whatever is written meanwhile.

        Keep it short: the write-ahead log cannot be cut while a snapshot is open. Nested blocks belong
        to the outer one. Raises StoreGone where the file was replaced since it was opened.
        """
        if self._connection.in_transaction:
            yield self
            return
        self._refresh()
        with explained(self.path):
            self._connection.execute("BEGIN")
            try:
                self._connection.execute("SELECT revision FROM state").fetchone()
                yield self
            except (TypeError, ValueError, LookupError, ArithmeticError) as error:
                fault = self._fault()  # what stumbles over impossible facts: a row whose bits were flipped?
                if fault:
                    raise damaged(self.path, fault) from error
                raise
            finally:
                _end(self._connection)
        if self._immutable and _status(self.path) != self._file:
            raise StoreBusy(f"{self.path} was written while it was read without a lock. Ask again.")

    def _refresh(self) -> None:
        """Open the file anew where another one lies there now, or a writer came to one opened alone."""
        now = _status(self.path)
        if now is None:
            raise StoreGone(f"{self.path} was deleted while it was open. `tracker ingest` makes it anew.")
        replaced = self._file is None or now[:2] != self._file[:2]
        if replaced or (self._immutable and (now != self._file or not no_log_waits(self.path))):
            self._connection.close()
            self._open()

    def _fault(self) -> str:
        """Return the first thing that SQLite finds wrong with the file; empty where it finds nothing."""
        found: str = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        return "" if found == "ok" else found.splitlines()[-1]

    def _all(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        with explained(self.path):
            return self._connection.execute(sql, values).fetchall()

    # -- Facts ---------------------------------------------------------------------------------------

    def streams(self) -> list[Stream]:
        """Return all streams that hold a record, in no particular order."""
        with self.snapshot():
            segments: dict[int, list[Segment]] = {}
            for stream_id, body in self._all(
                "SELECT stream_id, body FROM segment ORDER BY stream_id, ordinal"
            ):
                with decoded(self.path, f"segments of stream {stream_id}"):
                    segments.setdefault(stream_id, []).append(Segment.from_json(json.loads(body)))
            found = self._all(
                """
                SELECT stream_id, identity, source, collector, parser_version, file_name, written_us,
                       first_size
                  FROM stream
                 WHERE readings + events > 0 AND collector IS NOT NULL
                """
            )
        return [
            Stream(
                stream_id=row[0],
                identity=row[1],
                source=row[2],
                collector=row[3],
                parser_version=row[4],
                file_name=row[5],
                written_us=row[6],
                first_size=row[7],
                segments=tuple(segments.get(row[0], ())),
            )
            for row in found
        ]

    def scheduler_rows(self) -> list[SchedulerRow]:
        """Return all allocations, ordered by (start_us, job_id); each once, as last told."""
        best: dict[tuple[int, str], Sequence[Any]] = {}
        for values in self._all(f"SELECT {rows.SCHEDULER_COLUMNS} FROM scheduler_row"):
            name = (values[1], values[0])
            known = best.get(name)
            best[name] = values if known is None else rows.later(known, values)
        with decoded(self.path, "a row of scheduler_row"):
            return [rows.as_scheduler_row(best[name]) for name in sorted(best)]

    def readings(self, stream_id: int, *, start: int = 0, end: int | None = None) -> Iterator[Reading]:
        """Yield the readings with start <= offset < end, in file order."""
        with explained(self.path):
            yield from rows.as_readings(
                self._connection.execute(_READINGS, rows.key_range(stream_id, start, end))
            )

    def events(self, stream_id: int, *, start: int = 0, end: int | None = None) -> Iterator[Event]:
        """Yield the events with start <= offset < end, in file order."""
        with explained(self.path), decoded(self.path, f"events of stream {stream_id}"):
            yield from map(
                rows.as_event, self._connection.execute(_EVENTS, rows.key_range(stream_id, start, end))
            )

    def corrections(self) -> list[Correction]:
        """Return what people said about interruptions, in the order in which they said it."""
        found = self._all(
            "SELECT attempt, at_us, made_us, made_by, note, cause, kind, manual FROM correction ORDER BY id"
        )
        return [
            Correction(
                attempt=row[0],
                at_us=row[1],
                made_us=row[2],
                by=row[3],
                note=row[4],
                cause=row[5],
                kind=row[6],
                manual=None if row[7] is None else bool(row[7]),
            )
            for row in found
        ]

    def buckets(
        self, stream_id: int, *, start: int, end: int | None, width_us: int, until_us: int
    ) -> list[Bucket]:
        """Return the readings up to a moment, summed by time, as `core.forecast.blocks.bucketed` does."""
        low, high = rows.key_range(stream_id, start, end)
        found = self._all(_BUCKETS, (width_us, low, high, until_us))
        return [Bucket(*row[1:]) for row in found]

    def kept_forecasts(self, *, until_us: int) -> list[str]:
        """Return the forecasts kept up to a moment, as JSON, in order of time."""
        found = self._all(
            "SELECT body FROM forecast WHERE as_of_us <= ? ORDER BY as_of_us, digest", (until_us,)
        )
        return [row[0] for row in found]

    # -- what changed --------------------------------------------------------------------------------

    def revision(self) -> int:
        """Return a number that grows with every commit of facts; takes microseconds."""
        found: int = self._all("SELECT revision FROM state")[0][0]
        return found

    def changes(self, since: int) -> Changes:
        """Return what is new or different after a revision (0: everything)."""
        with self.snapshot():
            revision, scheduler = self._all("SELECT revision, scheduler_revision FROM state")[0]
            if revision == since:
                return Changes(revision=revision)
            ordinals: dict[int, list[int]] = {}
            for stream_id, ordinal in self._all(
                "SELECT stream_id, ordinal FROM segment WHERE revision > ? ORDER BY stream_id, ordinal",
                (since,),
            ):
                ordinals.setdefault(stream_id, []).append(ordinal)
            found = self._all(
                "SELECT stream_id, reset_revision FROM stream WHERE revision > ? ORDER BY stream_id", (since,)
            )
        streams = tuple(
            StreamChange(
                stream_id=stream_id, reset=reset > since, segments=tuple(ordinals.get(stream_id, ()))
            )
            for stream_id, reset in found
        )
        return Changes(revision=revision, streams=streams, scheduler=scheduler > since)

    # -- for people ----------------------------------------------------------------------------------

    def reports(self) -> list[StreamReport]:
        """Return every file that was met, also those that hold nothing or are not recognised."""
        found = self._all(
            """
            SELECT stream_id, source, kind, file_name, identity, collector, parser_version, evidence,
                   offset, lines, readings, events, rejects, skipped
              FROM stream
             ORDER BY source, file_name, stream_id
            """
        )
        names = StreamReport.__dataclass_fields__
        return [
            StreamReport(**dict(zip(names, (*row[:7], json.loads(row[7]), *row[8:]), strict=True)))
            for row in found
        ]

    def reject_counts(self) -> dict[str, int]:
        """Return how many lines were rejected, by reason."""
        return dict(self._all("SELECT reason, sum(lines) FROM reject_count GROUP BY reason ORDER BY reason"))

    def rejects_by_source(self) -> dict[int, int]:
        """Return how many lines were rejected, by the place of their source in the config, from 0."""
        return dict(
            self._all(
                """
                SELECT stream.source, sum(reject_count.lines)
                  FROM reject_count JOIN stream USING (stream_id)
                 GROUP BY stream.source
                """
            )
        )

    def rejected(self, *, limit: int = 100) -> list[Rejected]:
        """Return some of the rejected lines."""
        found = self._all("SELECT id, reason, line FROM reject ORDER BY id LIMIT ?", (limit,))
        return [
            Rejected(
                stream_id=place >> rows.STREAM_SHIFT, offset=rows.offset_of(place), reason=reason, line=line
            )
            for place, reason, line in found
        ]

    # -- caches and small things ---------------------------------------------------------------------

    def marks(self, key: str, digest: str) -> list[Mark]:
        """Return the marks kept under a key with this digest, by position."""
        found = self._all(
            """
            SELECT position, step, at_us, body FROM fold_mark WHERE key = ? AND digest = ? ORDER BY position
            """,
            (key, digest),
        )
        return [Mark(position=row[0], step=row[1], at_us=row[2], body=row[3]) for row in found]

    def meta(self, key: str) -> str | None:
        """Return the text kept under a name, or None."""
        found = self._all("SELECT value FROM meta WHERE key = ?", (key,))
        return found[0][0] if found else None


def _end(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:  # an error may have ended it already
        connection.execute("COMMIT")


def _status(path: Path) -> tuple[int, int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
