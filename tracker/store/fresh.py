"""How a store comes to be of the present schema: made at once where there is none, else migrated by a child.

Edge: makes files, starts a process. One made here is the same, to the letter of its schema, as one that went
through every migration (a test compares them); its steps are noted as sqlite-utils notes them.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Final

from tracker.core.errors import TrackerError
from tracker.store.connection import open_for_migration
from tracker.store.errors import StoreError, StoreReadOnly, explained
from tracker.store.lock import MODE, RunLock, WriteLock
from tracker.store.schema import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    STEPS_TABLE,
    is_empty,
    real,
    require_current,
    stored_version,
)

STEPS: Final = ("0001_initial", "0002_correction", "0003_forecast", "0004_outbox")
"""Names of the files in migrations/, in order; the n-th one leads to schema version n."""
STEPS_OF: Final = "tracker"
"""What sqlite-utils calls our set of steps."""
_CHILD_LIMIT_S: Final = 3600.0
_NOTES: Final = f"""
CREATE TABLE "{STEPS_TABLE}" (
   "id" INTEGER PRIMARY KEY,
   "migration_set" TEXT,
   "name" TEXT,
   "applied_at" TEXT
);
CREATE UNIQUE INDEX "idx_{STEPS_TABLE}_migration_set_name"
    ON "{STEPS_TABLE}" ("migration_set", "name");
"""


def migrate_in_child(path: str | Path) -> None:
    """Bring the store at a path to `SCHEMA_VERSION`, making it where there is none.

    An older one is migrated by a child process, for that loads much that a sidecar must not carry. Where
    there is none, or nothing is to be done, no child is started: hundreds of runs may begin at once.
    """
    place = real(path)
    version = stored_version(place)
    if version == SCHEMA_VERSION or (version == 0 and make_fresh(place)):
        return
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-m", "tracker.store.migrate", str(place)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CHILD_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StoreError(f"the migration of {place} took longer than {_CHILD_LIMIT_S:.0f} s.") from error
    if child.returncode == 1:
        raise TrackerError(child.stderr.decode("utf-8", "replace").strip())
    if child.returncode != 0:
        tail = child.stderr.decode("utf-8", "replace").strip()[-2000:]
        raise StoreError(f"the migration of {place} failed (exit status {child.returncode}): {tail}")
    require_current(stored_version(place), place)


def make_fresh(place: Path) -> bool:
    """Make a store at a real path, in one transaction; False where there is something to migrate, or a store.

    Raises StoreInUse (a sidecar is at work on it) and the errors of the disk.
    """
    create_private(place)
    lock = WriteLock(place)
    with explained(place, settled=False), lock.held():
        connection = open_for_migration(place)
        try:
            if not is_empty(connection):
                return False
            with RunLock(place, started_at="to make it"):
                _make(connection)
            return True
        finally:
            connection.close()
            lock.close()


def _make(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements(_NOTES):
            connection.execute(statement)
        for number, name in enumerate(STEPS, 1):
            take_step(connection, name, number)
            connection.execute(
                f'INSERT INTO "{STEPS_TABLE}" (migration_set, name, applied_at) '
                "VALUES (?, ?, strftime('%Y-%m-%d %H:%M:%f+00:00', 'now'))",
                (STEPS_OF, name),
            )
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def take_step(connection: sqlite3.Connection, name: str, number: int) -> None:
    """Run one numbered file of SQL, inside the caller's transaction."""
    text = (resources.files("tracker.store") / "migrations" / f"{name}.sql").read_text("utf-8")
    for statement in statements(text):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {number}")


def statements(text: str) -> Iterator[str]:
    """Yield the statements of a script one by one (`executescript` would commit first)."""
    pending = ""
    for line in text.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
    if pending.strip() and not all(row.lstrip().startswith("--") for row in pending.strip().splitlines()):
        raise ValueError(f"a statement without its end: {pending.strip()[:80]!r}")


def create_private(path: Path) -> None:
    """Make an empty file that strangers cannot read; SQLite gives its log the same permissions."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE))
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreReadOnly(
            f"{path} cannot be made ({error.strerror}). The folder must be writable for whoever ingests."
        ) from error
