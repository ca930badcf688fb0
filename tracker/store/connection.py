"""How the database is opened: who may write, how much may be lost, and who waits for whom.

Edge. A write-ahead log on a local disk; a rollback journal where other hosts may have the file system
mounted, for the log needs memory that hosts do not share. No connection checkpoints by itself.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final, Literal

from tracker.store.filesystem import file_system

BUSY_MS: Final = 5_000
WAL_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""A write-ahead log above this is cut when it starts over."""

Journal = Literal["wal", "delete"]


def journal_for(path: Path) -> Journal:
    """Return the journal that is safe where the path lies."""
    return "delete" if file_system(path).shared else "wal"


def open_writable(path: Path, *, journal: Journal, durable: bool) -> sqlite3.Connection:
    """Open an existing database for reading and writing; the caller holds the write lock.

    `durable` waits for the disk at every commit (what must survive a power cut by itself); otherwise a
    power cut may undo the last commits, whole and in order, and the logs are read on from there.
    """
    connection = _connect(path, "rw")
    try:
        _set_journal(connection, journal)
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable or journal == 'delete' else 'NORMAL'}")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def open_for_migration(path: Path) -> sqlite3.Connection:
    """Open a database to change its schema; every step waits for the disk."""
    return open_writable(path, journal=journal_for(path), durable=True)


def open_read_only(path: Path) -> tuple[sqlite3.Connection, bool]:
    """Open an existing database for reading; tell whether the caller must see that it stays as it is.

    Such a connection never checkpoints, not even on close. Where the shared memory of the write-ahead log
    cannot be made (another user's folder, a read-only disk) and no log waits, it reads the file alone: then
    nothing keeps a writer from changing it meanwhile.
    """
    try:
        return _readable(path, "ro"), False
    except sqlite3.OperationalError:
        if not no_log_waits(path):
            raise
        return _readable(path, "ro&immutable=1"), True


def no_log_waits(path: Path) -> bool:
    """Tell whether the database file alone is the whole store."""
    try:
        return os.stat(f"{path}-wal").st_size == 0
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _readable(path: Path, mode: str) -> sqlite3.Connection:
    connection = _connect(path, mode)
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA user_version").fetchone()  # the first look at the file
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        timeout=BUSY_MS / 1000,
        check_same_thread=False,
        cached_statements=128,
    )
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _set_journal(connection: sqlite3.Connection, journal: Journal) -> None:
    now: str = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if now != journal:
        connection.execute(f"PRAGMA journal_mode = {journal.upper()}")
