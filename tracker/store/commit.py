"""How one batch becomes statements, inside a transaction that the writer opened.

Edge: runs SQL on the connection it is given; knows no lock and no file.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from tracker.core.leaps import Astray
from tracker.core.records import Flag, SchedulerRow
from tracker.core.segments import Segment
from tracker.store import rows
from tracker.store.batch import NewStream, StoredStream, StreamBatch
from tracker.store.rows import Places

REJECTS_KEPT: Final = 20
"""Rejected lines kept of each stream and reason; all are counted."""
REASONS_KEPT: Final = 50
"""Reasons told apart in a stream; the others count as `OTHER_REASON`."""
OTHER_REASON: Final = "other reasons"
PlacesOf = dict[tuple[int, str], Places]
"""The last place given out, by stream and table."""

_INSERT_READING = f"""
    INSERT INTO reading (id, {rows.READING_COLUMNS}) VALUES ({"?, " * 10}?) ON CONFLICT (id) DO NOTHING
"""
_INSERT_EVENT = """
    INSERT INTO event (id, kind, at_us, step, duration_us, data, text) VALUES (?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (id) DO NOTHING
"""
_INSERT_REJECT = "INSERT INTO reject (id, reason, line) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING"
_COUNT_REJECTS = """
    INSERT INTO reject_count (stream_id, reason, lines) VALUES (:stream_id, :reason, :lines)
        ON CONFLICT (stream_id, reason) DO UPDATE SET lines = lines + excluded.lines
"""
_UPSERT_SEGMENT = """
    INSERT INTO segment (stream_id, ordinal, revision, body) VALUES (:stream_id, :ordinal, :revision, :body)
        ON CONFLICT (stream_id, ordinal) DO UPDATE SET revision = excluded.revision, body = excluded.body
"""
_UPSERT_SCHEDULER = f"""
    INSERT INTO scheduler_row (stream_id, {rows.SCHEDULER_COLUMNS}) VALUES ({"?, " * 12}?)
        ON CONFLICT (job_id, start_us, stream_id) DO UPDATE SET
            end_us = excluded.end_us, name = excluded.name, state = excluded.state,
            submit_us = excluded.submit_us, gpus = excluded.gpus, nodes = excluded.nodes,
            exit_code = excluded.exit_code, reason = excluded.reason, comment = excluded.comment,
            data = excluded.data
"""
_SCHEDULER_ROW = f"""
    SELECT {rows.SCHEDULER_COLUMNS} FROM scheduler_row
     WHERE job_id = ? AND start_us = ? AND stream_id = ?
"""
_UPDATE_STREAM = """
    UPDATE stream
       SET position = :position, offset = :offset, context = :context,
           kind = coalesce(:kind, kind),
           collector = iif(:recognised, :collector, collector),
           parser_version = iif(:recognised, :parser_version, parser_version),
           evidence = coalesce(:evidence, evidence),
           identity = coalesce(:identity, identity),
           file_name = coalesce(:file_name, file_name),
           source = coalesce(:source, source),
           lines = lines + :lines, readings = readings + :readings, events = events + :events,
           rejects = rejects + :rejects, skipped = skipped + :skipped,
           revision = :revision,
           reset_revision = iif(:reset, :revision, reset_revision)
     WHERE stream_id = :stream_id
"""
_INSERT_STREAM = """
    INSERT INTO stream (stream_id, source, kind, collector, parser_version, evidence, identity, file_name,
                        written_us, seen_us, first_size, position, offset, context, revision,
                        reset_revision)
    VALUES (:stream_id, :source, :kind, :collector, :parser_version, '{}', :identity, :file_name,
            :written_us, :seen_us, :first_size, '{}', 0, '{}', :revision, :revision)
"""


def store_batch(
    connection: sqlite3.Connection, batch: StreamBatch, revision: int, *, known: PlacesOf, places: PlacesOf
) -> bool:
    """Write what one stream gained; return whether a scheduler row changed.

    `known` is what earlier transactions gave out; what this one gives out goes to `places`, which the
    caller adds to `known` once it is committed.
    """
    stream_id = batch.stream_id
    changed = False
    if batch.new is not None:
        _insert_stream(connection, stream_id, batch.new, revision)
    if batch.reset:
        _drop(connection, stream_id)
        for table in ("reading", "event", "reject"):
            places[stream_id, table] = Places(stream_id, None)

    def place(table: str) -> Places:
        found = places.get((stream_id, table))
        if found is None:
            before = known.get((stream_id, table))
            last = before.last if before is not None else _last_key(connection, table, stream_id)
            found = places[stream_id, table] = Places(stream_id, last)
        return found

    readings = events = 0
    if batch.readings:
        new = rows.reading_rows(place("reading"), batch.readings)
        readings = connection.executemany(_INSERT_READING, new).rowcount
    if batch.events:
        events = connection.executemany(_INSERT_EVENT, rows.event_rows(place("event"), batch.events)).rowcount
    for one in batch.astray:
        _set_right(connection, stream_id, one)
    if batch.rejects:
        _add_rejects(connection, batch, place("reject"))
    for segment in batch.segments:
        connection.execute(
            _UPSERT_SEGMENT,
            {
                "stream_id": stream_id,
                "ordinal": segment.ordinal,
                "revision": revision,
                "body": rows.dump_segment(segment),
            },
        )
    if batch.forget_scheduler:
        changed = (
            connection.execute("DELETE FROM scheduler_row WHERE stream_id = ?", (stream_id,)).rowcount > 0
        )
    if batch.scheduler_rows:
        changed |= _add_scheduler_rows(connection, stream_id, batch.scheduler_rows)
    updated = connection.execute(
        _UPDATE_STREAM,
        {
            "stream_id": stream_id,
            "position": rows.dump(batch.position),
            "offset": batch.offset,
            "context": rows.dump(batch.context),
            "kind": batch.kind,
            "recognised": batch.kind is not None,
            "collector": batch.collector,
            "parser_version": batch.parser_version,
            "evidence": None if batch.evidence is None else rows.dump(batch.evidence),
            "identity": None if batch.identity is None else rows.clean(batch.identity),
            "file_name": None if batch.file_name is None else rows.clean(batch.file_name),
            "source": batch.source,
            "lines": batch.lines,
            "readings": readings,
            "events": events,
            "rejects": len(batch.rejects),
            "skipped": batch.skipped,
            "revision": revision,
            "reset": batch.reset,
        },
    ).rowcount
    if updated != 1:
        raise KeyError(f"no stream {stream_id}")
    return changed


def _set_right(connection: sqlite3.Connection, stream_id: int, one: Astray) -> None:
    """Give a record the stamp that it is known by."""
    low, high = rows.key_range(stream_id, one.offset, one.offset + 1)
    if not one.kind:
        connection.execute(
            "UPDATE reading SET at_us = ?, flags = flags | ? WHERE id >= ? AND id < ? AND at_us = ?",
            (one.at_us, int(Flag.ASTRAY), low, high, one.said_us),
        )
    else:
        connection.execute(
            "UPDATE event SET at_us = ?, data = json_set(data, '$.astray', json('true')) "
            "WHERE id >= ? AND id < ? AND at_us = ? AND kind = ?",
            (one.at_us, low, high, one.said_us, one.kind),
        )


def _insert_stream(connection: sqlite3.Connection, stream_id: int, stream: NewStream, revision: int) -> None:
    """Write a stream that is met for the first time."""
    connection.execute(
        _INSERT_STREAM,
        {
            "stream_id": stream_id,
            "source": stream.source,
            "kind": stream.kind,
            "collector": stream.collector,
            "parser_version": stream.parser_version,
            "identity": rows.clean(stream.identity),
            "file_name": rows.clean(stream.file_name),
            "written_us": stream.written_us,
            "first_size": stream.first_size,
            "seen_us": stream.seen_us,
            "revision": revision,
        },
    )


def stored_streams(connection: sqlite3.Connection, stream_id: int | None = None) -> list[StoredStream]:
    """Return all streams (or one) with all that is needed to read on."""
    found = connection.execute(
        """
        SELECT stream_id, source, kind, collector, parser_version, evidence, identity, file_name,
               written_us, seen_us, position, offset, context, lines, readings, events, rejects, skipped,
               (SELECT body FROM segment WHERE segment.stream_id = stream.stream_id
                 ORDER BY ordinal DESC LIMIT 1)
          FROM stream
         WHERE :stream_id IS NULL OR stream_id = :stream_id
         ORDER BY stream_id
        """,
        {"stream_id": stream_id},
    )
    return [_stored_stream(row) for row in found.fetchall()]


def next_revision(connection: sqlite3.Connection) -> int:
    """Count this transaction."""
    found: int = connection.execute("UPDATE state SET revision = revision + 1 RETURNING revision").fetchone()[
        0
    ]
    return found


def _last_key(connection: sqlite3.Connection, table: str, stream_id: int) -> int | None:
    low, high = rows.key_range(stream_id, 0, None)
    found: int | None = connection.execute(
        f"SELECT max(id) FROM {table} WHERE id >= ? AND id < ?", (low, high)
    ).fetchone()[0]
    return found


def _drop(connection: sqlite3.Connection, stream_id: int) -> None:
    """Delete what a stream held; what its scheduler once told stays."""
    low, high = rows.key_range(stream_id, 0, None)
    for table in ("reading", "event", "reject"):
        connection.execute(f"DELETE FROM {table} WHERE id >= ? AND id < ?", (low, high))
    for table in ("segment", "reject_count"):
        connection.execute(f"DELETE FROM {table} WHERE stream_id = ?", (stream_id,))
    connection.execute(
        "UPDATE stream SET lines = 0, readings = 0, events = 0, rejects = 0, skipped = 0 WHERE stream_id = ?",
        (stream_id,),
    )


def _add_rejects(connection: sqlite3.Connection, batch: StreamBatch, place: Places) -> None:
    stream_id = batch.stream_id
    counts: dict[str, int] = dict(
        connection.execute("SELECT reason, lines FROM reject_count WHERE stream_id = ?", (stream_id,))
    )
    added: dict[str, int] = {}
    kept = []
    for reject in batch.rejects:
        reason = rows.clean(reject.reason)[:200]
        if reason not in counts and len(counts) >= REASONS_KEPT:
            reason = OTHER_REASON
        counts[reason] = counts.get(reason, 0) + 1
        added[reason] = added.get(reason, 0) + 1
        if counts[reason] <= REJECTS_KEPT:
            kept.append(reject._replace(reason=reason))
    connection.executemany(_INSERT_REJECT, rows.reject_rows(place, kept))
    connection.executemany(
        _COUNT_REJECTS,
        [{"stream_id": stream_id, "reason": reason, "lines": lines} for reason, lines in added.items()],
    )


def _add_scheduler_rows(connection: sqlite3.Connection, stream_id: int, found: list[SchedulerRow]) -> bool:
    """Bring rows up to date by what the scheduler says now; those it no longer lists stay."""
    changed = False
    for row in found:
        values = rows.scheduler_values(row)
        known: tuple[Any, ...] | None = connection.execute(
            _SCHEDULER_ROW, (*values[:2], stream_id)
        ).fetchone()
        if known != values:
            connection.execute(_UPSERT_SCHEDULER, (stream_id, *values))
            changed = True
    return changed


def _stored_stream(row: Sequence[Any]) -> StoredStream:
    body = row[18]
    return StoredStream(
        stream_id=row[0],
        source=row[1],
        kind=row[2],
        collector=row[3],
        parser_version=row[4],
        evidence=json.loads(row[5]),
        identity=row[6],
        file_name=row[7],
        written_us=row[8],
        seen_us=row[9],
        position=json.loads(row[10]),
        offset=row[11],
        context=json.loads(row[12]),
        lines=row[13],
        readings=row[14],
        events=row[15],
        rejects=row[16],
        skipped=row[17],
        last_segment=None if body is None else Segment.from_json(json.loads(body)),
    )
