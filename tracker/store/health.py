"""Whether a store is whole, how large it is, and how it is copied, put back and made compact.

Edge. `tracker db` and `tracker check` use this; the sidecar keeps running meanwhile, save for `restore`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tracker.core.records import Kind
from tracker.core.segments import Segment
from tracker.store.commit import stored_streams
from tracker.store.connection import journal_for, open_read_only, open_writable
from tracker.store.errors import StoreCorrupt, StoreError, StoreMissing, StoreReadOnly, explain, explained
from tracker.store.filesystem import file_system
from tracker.store.lock import MODE, Owner, RunLock, WriteLock, running
from tracker.store.rows import READING_COLUMNS, STREAM_SHIFT
from tracker.store.schema import SCHEMA_VERSION, real, require_current, require_file, version_of

_FAULTS_SHOWN: Final = 20
_TABLES: Final = (
    "stream", "segment", "reading", "event", "scheduler_row", "reject", "correction", "fold_mark",
)  # fmt: skip


def _objects(parts: Sequence[Any]) -> None:
    for part in parts:
        if not isinstance(json.loads(part), dict):
            raise TypeError(part)


def _event(parts: Sequence[Any]) -> None:
    Kind(parts[0])
    _objects(parts[1:2])


_HEXADECIMAL: Final = frozenset({"first_line", "fingerprint", "tail"})
"""Parts of a log's read position that are bytes."""
_TEXTS: Final[tuple[tuple[str, str, str, Callable[[Sequence[Any]], object]], ...]] = (
    ("stream", "stream_id", "evidence, position, context", _objects),
    ("stream", "stream_id", "identity, file_name, written_us, first_size", lambda parts: None),
    ("segment", "stream_id", "body", lambda parts: Segment.from_json(json.loads(parts[0]))),
    ("event", "id", "kind, data, text", _event),
    ("scheduler_row", "stream_id", "data", _objects),
    ("scheduler_row", "stream_id", "job_id, name, state, reason, comment", lambda parts: None),
)
"""Texts that we decode, by table, and how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """A store in figures."""

    path: Path
    schema_version: int
    file_bytes: int
    log_bytes: int
    """What waits in the write-ahead log."""
    free_bytes: int
    """What `compact` would give back."""
    journal: str
    file_system: str
    revision: int
    rows: dict[str, int]
    """Rows by table."""
    owner: Owner | None
    """The sidecar that works on it."""


def info(path: str | Path) -> Info:
    """Return the figures of a store."""
    place = real(path)
    connection = _open(place)
    with explained(place), contextlib.closing(connection):
        connection.execute("BEGIN")
        return Info(
            path=place,
            schema_version=version_of(connection, place),
            file_bytes=place.stat().st_size,
            log_bytes=log_bytes(place),
            free_bytes=_pragma(connection, "freelist_count") * _pragma(connection, "page_size"),
            journal=connection.execute("PRAGMA journal_mode").fetchone()[0],
            file_system=file_system(place).kind,
            revision=connection.execute("SELECT revision FROM state").fetchone()[0],
            rows={table: _count(connection, f"SELECT count(*) FROM {table}") for table in _TABLES},
            owner=running(place),
        )


def log_bytes(path: Path) -> int:
    """Return the size of the write-ahead log; 0 where there is none."""
    try:
        return os.stat(f"{path}-wal").st_size
    except OSError:
        return 0


def check(path: str | Path, *, quick: bool = False) -> list[str]:
    """Return what is wrong with a store, in sentences; an empty list if it is whole.

    `quick` leaves out what takes long on a large store: the order inside each page, and the counts.
    """
    place = real(path)
    try:
        connection = _open(place)
    except StoreCorrupt as error:
        return [str(error)]
    with contextlib.closing(connection):
        faults: list[str] = []
        try:
            connection.execute("BEGIN")
            pragma = "quick_check" if quick else "integrity_check"
            found = [row[0] for row in connection.execute(f"PRAGMA {pragma}({_FAULTS_SHOWN})")]
            faults += [f"the file is damaged: {text}" for text in found if text != "ok"]
            faults = faults or _schema_faults(connection)
            if not faults:
                faults += [
                    f"table {row[0]} has a row of no stream (row {row[1]})"
                    for row in connection.execute("PRAGMA foreign_key_check").fetchmany(_FAULTS_SHOWN)
                ]
                faults += [] if quick else [*_undecodable(connection), *_inconsistencies(connection)]
        except sqlite3.DatabaseError as error:
            ours = explain(error, place)
            if ours is None:
                raise
            faults.append(str(ours))
        return faults


def _schema_faults(connection: sqlite3.Connection) -> list[str]:
    """Return which statements of the schema cannot be read: a writer stumbles over them, a reader may not."""
    faults: list[str] = []
    with contextlib.closing(sqlite3.connect(":memory:")) as scratch:
        for kind, name, sql in connection.execute(
            "SELECT type, CAST(name AS BLOB), CAST(sql AS BLOB) FROM sqlite_schema"
            " WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
        ).fetchall():
            try:
                scratch.execute(sql.decode())
            except (sqlite3.Error, ValueError):
                faults.append(f"the schema of {kind} {name.decode('utf-8', 'replace')} is damaged")
    return faults[:_FAULTS_SHOWN]


def _undecodable(connection: sqlite3.Connection) -> list[str]:
    """Return the rows that the database takes for whole and that hold what we never wrote: flipped bits."""
    faults: list[str] = []
    connection.execute(f"SELECT {READING_COLUMNS} FROM reading LIMIT 0")
    with contextlib.suppress(ValueError, TypeError, KeyError):  # told below, row by row
        for stream in stored_streams(connection):
            faults += [
                f"table stream, row {stream.stream_id}: {name} in its position is not hexadecimal"
                for name in _HEXADECIMAL & stream.position.keys()
                if re.fullmatch(r"(?:[0-9a-f]{2})*", str(stream.position[name])) is None
            ]
    for table, key, columns, read in _TEXTS:
        connection.text_factory = bytes
        try:
            for row in connection.execute(f"SELECT {key}, {columns} FROM {table}"):
                try:
                    read([part.decode() if isinstance(part, bytes) else part for part in row[1:]])
                except (ValueError, TypeError, KeyError) as error:
                    faults.append(
                        f"table {table}, row {row[0]}: {columns} cannot be read ({type(error).__name__})"
                    )
                    if len(faults) >= _FAULTS_SHOWN:
                        return faults
        finally:
            connection.text_factory = str
    return faults


def _inconsistencies(connection: sqlite3.Connection) -> list[str]:
    """Return where the tables contradict each other: rows against the counts and positions of streams."""
    faults: list[str] = []
    for table, column in (("reading", "readings"), ("event", "events")):
        counts = dict(
            connection.execute(f"SELECT id >> {STREAM_SHIFT} AS s, count(*) FROM {table} GROUP BY s")
        )
        for stream_id, expected in connection.execute(f"SELECT stream_id, {column} FROM stream"):
            there = counts.pop(stream_id, 0)
            if there != expected:
                faults.append(f"stream {stream_id} says {expected} {column}, and {there} are there")
        faults += [
            f"{number} {column} belong to stream {stream}, which is unknown"
            for stream, number in counts.items()
        ]
    beyond = connection.execute(
        """
        SELECT stream_id, offset,
               (SELECT max(id) FROM reading WHERE id < (stream_id + 1) << 44 AND id >= stream_id << 44)
                   >> 4 & 0xFFFFFFFFFF AS last
          FROM stream
         WHERE last >= offset
        """
    ).fetchall()
    faults += [
        f"stream {row[0]} was read to byte {row[1]}, but has a reading at byte {row[2]}" for row in beyond
    ]
    return faults[:_FAULTS_SHOWN]


def backup(path: str | Path, target: str | Path) -> Path:
    """Copy a store as it stands, in one step, while it may be written; return the copy's path.

    The copy appears under its name only when it is complete and on the disk. Refuses to overwrite.
    """
    place, copy = real(path), real(target)
    if copy.exists():
        raise StoreError(f"{copy} exists. Name a new file, or remove that one first.")
    require_file(copy)
    source = _open(place)
    with contextlib.closing(source), explained(place):
        require_current(version_of(source, place), place)
        scratch = _scratch(copy)
        try:
            _copy(source, scratch)
            scratch.rename(copy)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
    _sync(copy.parent)
    return copy


def restore(path: str | Path, source: str | Path) -> Path | None:
    """Put a backup in the place of a store; return where the old one was moved, None if there was none.

    No sidecar may run. Afterwards the logs are read on from the positions in the backup.
    """
    place, saved = real(path), real(source)
    faults = check(saved)
    if faults:
        raise StoreCorrupt(f"{saved} is no good backup: {faults[0]}. {place} was left as it is.")
    require_file(place)
    lock = WriteLock(place)
    with RunLock(place, started_at="for a restore"), lock.held():
        scratch = _scratch(place)
        try:
            with contextlib.closing(_open(saved)) as connection, explained(place):
                _copy(connection, scratch)
            aside = _move_aside(place)
            scratch.rename(place)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
        _sync(place.parent)
    lock.close()
    return aside


def compact(path: str | Path) -> tuple[int, int]:
    """Give unused space back to the disk; return the bytes before and after. A sidecar waits meanwhile.

    Needs as much free disk as the store is large.
    """
    place = real(path)
    with contextlib.closing(_open(place)) as connection:
        require_current(version_of(connection, place), place)
    lock = WriteLock(place)
    with explained(place), lock.held():
        writer = open_writable(place, journal=journal_for(place), durable=True)
        try:
            before = place.stat().st_size + log_bytes(place)
            writer.execute("VACUUM")
            writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            after = place.stat().st_size + log_bytes(place)
        finally:
            writer.close()
    lock.close()
    return before, after


def _open(place: Path) -> sqlite3.Connection:
    require_file(place)
    if not place.exists():
        raise StoreMissing(f"no store at {place}.")
    with explained(place):
        connection, _ = open_read_only(place)
        try:
            version = version_of(connection, place)
            if version > SCHEMA_VERSION or version == 0:
                require_current(version, place)
        except BaseException:
            connection.close()
            raise
    return connection


def _copy(source: sqlite3.Connection, scratch: Path) -> None:
    target = sqlite3.connect(scratch, isolation_level=None)
    try:
        source.backup(target)  # all pages in one step: with pauses it starts over at each foreign write
    finally:
        target.close()
    _sync(scratch)


def _scratch(path: Path) -> Path:
    scratch = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    scratch.unlink(missing_ok=True)
    try:
        os.close(os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE))
    except OSError as error:
        raise StoreReadOnly(f"{scratch} cannot be made ({error.strerror}).") from error
    return scratch


def _move_aside(place: Path) -> Path | None:
    """Move a database with its log to a free name; its log must never meet another database."""
    number = 0
    while True:
        aside = place.with_name(f"{place.name}.before-restore" + (f".{number}" if number else ""))
        if not aside.exists() and not Path(f"{aside}-wal").exists():
            break
        number += 1
    moved = None
    for tail in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{place}{tail}").rename(f"{aside}{tail}")
            moved = aside
    return moved


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return _count(connection, f"PRAGMA {name}")


def _count(connection: sqlite3.Connection, sql: str) -> int:
    found: int = connection.execute(sql).fetchone()[0]
    return found
