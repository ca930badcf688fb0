"""How a store of one schema version becomes one of the next; each step is one transaction.

Edge. Loads sqlite-utils (and with it pandas, where installed): only `tracker db` and the child process
of `schema.migrate_in_child` import this module. A copy of an older store is kept beside it.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tracker.core.errors import TrackerError
from tracker.store.connection import open_for_migration
from tracker.store.errors import explained
from tracker.store.fresh import STEPS, STEPS_OF, create_private, take_step
from tracker.store.lock import RunLock, WriteLock
from tracker.store.schema import SCHEMA_VERSION, real, require_current, stored_version, version_of

if TYPE_CHECKING:
    from sqlite_utils import Database, Migrations


def migrate(path: str | Path) -> Path | None:
    """Bring the store at a path to the present schema, making it where there is none.

    Return the path of the copy that was kept, or None where there was nothing to keep. Raises
    StoreNewer, StoreForeign, StoreInUse (a sidecar works on it), and the errors of the disk.
    """
    place = real(path)
    stored_version(place)  # before anything is written: it may be another program's
    create_private(place)
    lock = WriteLock(place)
    with explained(place, settled=False), lock.held():
        connection = open_for_migration(place)
        try:
            version = version_of(connection, place)
            if version == SCHEMA_VERSION:
                return None
            if version > SCHEMA_VERSION:
                require_current(version, place)
            with RunLock(place, started_at="for a migration"):
                kept = _keep_copy(connection, place, version) if version else None
                _apply(connection)
            return kept
        finally:
            connection.close()
            lock.close()


def _apply(connection: sqlite3.Connection) -> None:
    import sqlite_utils

    database = sqlite_utils.Database(connection)
    _steps().apply(database)


def _steps() -> Migrations:
    from sqlite_utils import Migrations

    steps = Migrations(STEPS_OF)
    for number, name in enumerate(STEPS, 1):
        steps(name=name)(_step(name, number))
    return steps


class _Step:
    """One numbered file of SQL, run inside the transaction that sqlite-utils opens."""

    def __init__(self, name: str, number: int) -> None:
        self.__name__ = name
        self._number = number

    def __call__(self, db: Database) -> None:
        connection = db.conn
        assert connection is not None
        take_step(connection, self.__name__, self._number)


def _step(name: str, number: int) -> _Step:
    return _Step(name, number)


def _keep_copy(connection: sqlite3.Connection, place: Path, version: int) -> Path:
    number = 0
    while True:
        tail = f".v{version}" + (f".{number}" if number else "")
        kept = place.with_name(place.name + tail)
        if not kept.exists():
            break
        number += 1
    scratch = kept.with_name(kept.name + ".tmp")
    scratch.unlink(missing_ok=True)
    create_private(scratch)
    connection.execute("VACUUM INTO ?", (str(scratch),))
    fd = os.open(scratch, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    scratch.rename(kept)
    return kept


def _child(path: str) -> int:
    """Migrate without loading what sqlite-utils would only use if it were there."""
    for heavy in ("pandas", "numpy"):
        sys.modules.setdefault(heavy, None)  # type: ignore[arg-type]
    try:
        migrate(path)
    except TrackerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_child(sys.argv[1]))
