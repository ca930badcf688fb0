"""The one way into the store: a batch is one transaction, and one lock says whose turn it is.

Edge. Read position, parser memory, segments, rows and rejects of a batch commit together or not at all.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from tracker.core.corrections import Correction
from tracker.store.batch import Mark, StoredStream, StreamBatch
from tracker.store.commit import PlacesOf, next_revision, store_batch, stored_streams
from tracker.store.connection import BUSY_MS, Journal, journal_for, open_writable
from tracker.store.errors import StoreError, StoreGone, decoded, explained
from tracker.store.lock import WAIT_S, RunLock, WriteLock
from tracker.store.rows import LARGEST_STREAM, clean
from tracker.store.schema import real, require_current, stored_version

SOURCES: Final = "sources"
"""Name under which `set_sources` keeps its text."""
_CHECKPOINT_PAGES: Final = 2_000
"""Checkpoint when about this many pages wait in the write-ahead log (8 MB)."""
_TRUNCATE_MS: Final = 100
_PAGES_A_COMMIT: Final = 8
_ROWS_A_PAGE: Final = 50


class Writer:
    """An open store that may be written. Safe to use from several threads, one transaction at a time."""

    def __init__(
        self,
        path: str | Path,
        *,
        durable: bool = False,
        journal: Journal | None = None,
        wait_s: float = WAIT_S,
        owner: RunLock | None = None,
    ) -> None:
        """Open an existing, migrated store.

        `durable` makes every commit wait for the disk (mail queue, corrections). `journal` overrides the
        choice by file system. `owner` is the mark of the one sidecar: no fact is stored once it is gone.
        Raises the errors of `tracker.store.errors`.
        """
        self.path = real(path)
        require_current(stored_version(self.path), self.path)
        self.journal: Journal = journal if journal is not None else journal_for(self.path)
        self._wait_s = wait_s
        self._busy_ms = min(BUSY_MS, round(wait_s * 1000))
        """Likewise for a program that knows nothing of our lock, and has SQLite's."""
        self._owner = owner
        self._mutex = threading.RLock()
        self._lock = WriteLock(self.path)
        self._places: PlacesOf = {}
        self._pages = 0
        try:
            with explained(self.path), self._lock.held(wait_s=wait_s):
                self._connection = open_writable(self.path, journal=self.journal, durable=durable)
                self._connection.execute(f"PRAGMA busy_timeout = {self._busy_ms}")
                self._file = _identity(self.path)
                self._checkpoint()
                self._seen = _touched(self.path)
        except BaseException:
            self._lock.close()
            raise
        self._end = weakref.finalize(self, _close, self._connection, self._lock)

    # -- transactions --------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run the block as one transaction, alone; an exception undoes all of it.

        Not to be nested. Raises StoreBusy, StoreFull, StoreReadOnly (try again later), StoreGone,
        StoreCorrupt.
        """
        with self._mutex, self._lock.held(wait_s=self._wait_s), explained(self.path):
            self._require_same_file()
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            self._pages += _PAGES_A_COMMIT
            if self._pages >= _CHECKPOINT_PAGES:
                self._checkpoint()

    def checkpoint(self, *, truncate: bool = False) -> None:
        """Move the write-ahead log into the database; with `truncate`, cut it to nothing as well."""
        with self._mutex, self._lock.held(wait_s=self._wait_s), explained(self.path):
            self._require_same_file()
            self._checkpoint(truncate=truncate)

    def look(self) -> None:
        """Raise what is wrong with the file, even where nothing is to be written: it is gone, replaced,
        damaged in its first page, of a newer schema, or may no longer be opened.

        Costs some microseconds while nobody touches it. Trap: never `open()` the file for this; closing it
        would drop the locks that SQLite holds for the whole process.
        """
        with self._mutex, explained(self.path):
            now = _touched(self.path)
            if now != self._seen:
                self._require_same_file()
                require_current(stored_version(self.path), self.path)
                self._seen = now
            version: int = self._connection.execute("PRAGMA user_version").fetchone()[0]
        require_current(version, self.path)

    def close(self) -> None:
        """Close the store. Closing the last connection checkpoints, so that happens under the lock too."""
        with self._mutex:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _checkpoint(self, *, truncate: bool = False) -> None:
        """Checkpoint; the caller holds the lock. A reader in the way only makes it partial."""
        self._pages = 0
        if self.journal != "wal":
            return
        execute = self._connection.execute
        try:
            execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if truncate:
                execute(f"PRAGMA busy_timeout = {_TRUNCATE_MS}")  # a reader must not hold us up for long
                execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError:  # a full disk: the log simply stays longer
            pass
        finally:
            execute(f"PRAGMA busy_timeout = {self._busy_ms}")

    def _require_same_file(self) -> None:
        if _identity(self.path) != self._file:
            raise StoreGone(
                f"{self.path} was deleted, moved or replaced while it was open. Put it back, or start "
                "again: the logs are then read from their beginning into a new store."
            )

    # -- streams -------------------------------------------------------------------------------------

    def next_stream_id(self) -> int:
        """Return the number that the next new stream is to have; only one process may hand them out."""
        with self._mutex, explained(self.path):
            found: int = self._connection.execute(
                "SELECT coalesce(max(stream_id), 0) + 1 FROM stream"
            ).fetchone()[0]
        return found

    def streams(self) -> list[StoredStream]:
        """Return every stream with all that is needed to read on."""
        with self._mutex, explained(self.path), decoded(self.path, "a row of stream or segment"):
            return stored_streams(self._connection)

    def stream(self, stream_id: int) -> StoredStream:
        """Return one stream; KeyError where there is none."""
        with self._mutex, explained(self.path), decoded(self.path, "a row of stream or segment"):
            found = stored_streams(self._connection, stream_id)
        if not found:
            raise KeyError(stream_id)
        return found[0]

    # -- facts ---------------------------------------------------------------------------------------

    def commit(self, batches: Iterable[StreamBatch]) -> int:
        """Store what was read, all or nothing; return the new revision.

        Records that are there already are left as they are. On an error the store is as before, and the
        same batches may be committed again.
        """
        places: PlacesOf = {}
        stored = 0
        with self.transaction() as connection:
            if self._owner is not None:
                self._owner.require()
            revision = next_revision(connection)
            scheduler = False
            for batch in batches:
                if batch.stream_id > LARGEST_STREAM:
                    raise StoreError(
                        f"{self.path} has {LARGEST_STREAM} files, which is the most. Narrow the globs of "
                        "[[source]] path to the logs of one run, and begin a new store."
                    )
                scheduler |= store_batch(connection, batch, revision, known=self._places, places=places)
                stored += batch.rows
            if scheduler:
                connection.execute("UPDATE state SET scheduler_revision = revision")
            self._pages += stored // _ROWS_A_PAGE
        self._places.update(places)
        return revision

    # -- what people say -----------------------------------------------------------------------------

    def add_correction(self, correction: Correction) -> None:
        """Append what a person said. It is no cache: open the writer `durable`."""
        with self.transaction() as connection:
            next_revision(connection)
            connection.execute(
                """
                INSERT INTO correction (attempt, at_us, made_us, made_by, note, cause, kind, manual)
                VALUES (:attempt, :at_us, :made_us, :made_by, :note, :cause, :kind, :manual)
                """,
                {
                    "attempt": correction.attempt,
                    "at_us": correction.at_us,
                    "made_us": correction.made_us,
                    "made_by": clean(correction.by),
                    "note": clean(correction.note),
                    "cause": correction.cause,
                    "kind": correction.kind,
                    "manual": correction.manual,
                },
            )

    # -- caches and small things ---------------------------------------------------------------------

    def put_marks(self, key: str, digest: str, marks: Iterable[Mark]) -> None:
        """Keep marks under a key; those kept with another digest are dropped."""
        with self.transaction() as connection:
            connection.execute("DELETE FROM fold_mark WHERE key = ? AND digest <> ?", (key, digest))
            connection.executemany(
                "INSERT OR REPLACE INTO fold_mark (key, position, digest, step, at_us, body) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                [(key, mark.position, digest, mark.step, mark.at_us, mark.body) for mark in marks],
            )

    def drop_marks(self, key: str | None = None, *, beyond: int | None = None) -> None:
        """Drop the marks of a key (of all keys: None), or only those with position > `beyond`."""
        with self.transaction() as connection:
            connection.execute(
                """
                DELETE FROM fold_mark
                 WHERE (:key IS NULL OR key = :key) AND (:beyond IS NULL OR position > :beyond)
                """,
                {"key": key, "beyond": beyond},
            )

    def set_sources(self, keys: str, numbers: Mapping[int, int]) -> None:
        """Keep what the sources of the config are called, and renumber streams: old number -> new."""
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (SOURCES, keys))
            for stream_id, old in connection.execute("SELECT stream_id, source FROM stream").fetchall():
                if numbers.get(old, old) != old:
                    connection.execute(
                        "UPDATE stream SET source = ?, revision = ? WHERE stream_id = ?",
                        (numbers[old], next_revision(connection), stream_id),
                    )

    def meta(self, key: str) -> str | None:
        """Return the text kept under a name, or None."""
        with self._mutex, explained(self.path):
            found = self._connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if found is None else found[0]

    def put_meta(self, key: str, value: str) -> None:
        """Keep a small text under a name."""
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))


def _close(connection: sqlite3.Connection, lock: WriteLock) -> None:
    with contextlib.suppress(StoreError, OSError):
        lock.acquire()
    try:
        connection.close()
    finally:
        lock.close()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _touched(path: Path) -> tuple[int, ...] | None:
    """Return what changes when somebody replaces the file, writes it or changes who may."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
