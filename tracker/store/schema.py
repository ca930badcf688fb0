"""The version of the stored schema, and how a file says which one it has.

Edge: reads the header of the database. Loads nothing heavy: the sidecar checks with this.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tracker.store.connection import open_read_only
from tracker.store.errors import (
    StoreCorrupt,
    StoreError,
    StoreForeign,
    StoreMissing,
    StoreNewer,
    StoreOutdated,
    decoded,
    explained,
)

SCHEMA_VERSION: Final = 4
"""Number of the last migration; kept in the header's user_version by the migration itself."""
APPLICATION_ID: Final = 0x54524B31
"""Marks the file as ours ("TRK1")."""
STEPS_TABLE: Final = "_sqlite_migrations"
"""Where sqlite-utils notes which steps were taken; made before the first one."""


def real(path: str | Path) -> Path:
    """Return the path that all processes agree on, so that they take the same lock."""
    return Path(os.path.realpath(path))


def version_of(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema version of an open database; 0 for an empty one, StoreForeign for another's.

    One whose making was cut off before its first step counts as empty.
    """
    with _one_state(connection), decoded(path, "the list of its tables"):
        application: int = connection.execute("PRAGMA application_id").fetchone()[0]
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        others: int = connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE tbl_name <> ?", (STEPS_TABLE,)
        ).fetchone()[0]
    if application == APPLICATION_ID:
        return version
    if others:
        raise StoreForeign(
            f"{path} is a database of another program, not a store of the tracker. Nothing was changed; "
            "give [store] path another name."
        )
    return 0


def is_empty(connection: sqlite3.Connection) -> bool:
    """Tell whether a database has no table at all."""
    found: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return found == 0


@contextmanager
def _one_state(connection: sqlite3.Connection) -> Iterator[None]:
    """Let the block see one committed state: somebody may be making the store at this moment."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def require_current(version: int, path: Path) -> None:
    """Raise unless this version of the tracker reads and writes exactly that schema version."""
    if version > SCHEMA_VERSION:
        raise StoreNewer(
            f"{path} has schema version {version}; this tracker knows versions up to {SCHEMA_VERSION}. A "
            "newer tracker wrote it: use that one, or restore the copy that was kept when it migrated."
        )
    if version == 0:
        raise StoreMissing(f"no store at {path}. `tracker ingest` and `tracker run` make it from the logs.")
    if version < SCHEMA_VERSION:
        raise StoreOutdated(
            f"{path} has schema version {version}; this tracker needs {SCHEMA_VERSION}. Run "
            f"`tracker db migrate {path}` (a copy of the old one is kept); `tracker run` does it by itself."
        )


def stored_version(path: str | Path) -> int:
    """Return the schema version of the file at a path; 0 where there is no file or an empty one."""
    place = real(path)
    require_file(place)
    try:
        if place.stat().st_size == 0:
            return 0
    except FileNotFoundError:
        return 0
    with explained(place):
        connection, _ = open_read_only(place)
        try:
            return version_of(connection, place)
        finally:
            connection.close()


def require_file(path: Path) -> None:
    """Raise where a path cannot be a store: a folder, or in a folder that does not exist."""
    if path.is_dir():
        raise StoreError(f"{path} is a folder; [store] path must name a file, such as {path / 'tracker.db'}.")
    if not path.parent.is_dir():
        raise StoreError(f"the folder {path.parent} does not exist. Create it, or change [store] path.")
    if path.exists() and not path.is_file():
        raise StoreCorrupt(f"{path} is no regular file; [store] path must name one.")
