"""A store moves from schema to schema in whole steps, a copy kept; what cannot move is named."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store_help import add_stream, batch, make_store, reading
from tracker.core.errors import TrackerError
from tracker.store import RunLock, Store, fresh, migrate_in_child, stored_version
from tracker.store import migrate as module
from tracker.store.errors import StoreError, StoreForeign, StoreInUse, StoreNewer, StoreOutdated
from tracker.store.fresh import make_fresh, statements
from tracker.store.migrate import STEPS, migrate
from tracker.store.schema import SCHEMA_VERSION, STEPS_TABLE

ROOT = Path(__file__).resolve().parents[1]


def test_the_steps_lead_to_the_present_version() -> None:
    """One file for each step, numbered without a gap."""
    files = sorted(p.stem for p in (ROOT / "tracker" / "store" / "migrations").glob("*.sql"))

    assert list(STEPS) == files
    assert [int(name[:4]) for name in STEPS] == list(range(1, SCHEMA_VERSION + 1))


def test_a_store_is_made_private_and_once(tmp_path: Path) -> None:
    """Strangers cannot read it; making it again does nothing and keeps no copy."""
    path = make_store(tmp_path)
    with Store.open_writer(path) as writer:
        writer.commit([batch(add_stream(writer), readings=[reading(0)])])
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    assert all(mode & 0o007 == 0 and mode & 0o020 == 0 for mode in modes.values()), modes

    assert migrate(path) is None
    assert stored_version(path) == SCHEMA_VERSION
    with Store.open_reader(path) as reader:
        assert len(reader.streams()) == 1


def test_making_one_loads_nothing_into_the_sidecar(tmp_path: Path) -> None:
    """The sidecar's own process never sees sqlite-utils, nor what it pulls in."""
    path = tmp_path / "tracker.db"
    code = (
        "import sys\n"
        "from tracker.store import migrate_in_child, Store\n"
        f"migrate_in_child({str(path)!r})\n"
        f"Store.open_writer({str(path)!r}).close()\n"
        f"Store.open_reader({str(path)!r}).close()\n"
        "print([m for m in sys.modules if m.split('.')[0] in"
        " ('pandas', 'numpy', 'sqlite_utils', 'rich', 'click')])"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert found.stdout == "[]\n"
    migrate_in_child(path)  # nothing to do: no child


def dump(path: Path) -> list[str]:
    """Return the whole content, but for when its steps were taken."""
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE {STEPS_TABLE} SET applied_at = substr(applied_at, 11, 1)")
    said = [
        *connection.iterdump(),
        *(str(connection.execute(f"PRAGMA {name}").fetchone()) for name in ("user_version", "application_id",
          "page_size", "journal_mode", "encoding", "auto_vacuum")),
    ]  # fmt: skip
    connection.close()
    return said


def test_a_fresh_store_is_as_if_it_had_been_migrated(tmp_path: Path) -> None:
    """To the letter; private; and what is there already is left to the migration."""
    migrated, made = tmp_path / "migrated.db", tmp_path / "made.db"
    migrate(migrated)
    assert make_fresh(made)
    assert not make_fresh(made)

    assert dump(made) == dump(migrated)
    assert stat.S_IMODE(made.stat().st_mode) == stat.S_IMODE(migrated.stat().st_mode)
    assert migrate(made) is None
    begun = tmp_path / "begun.db"  # cut off before its first step
    connection = sqlite3.connect(begun)
    connection.execute(f"CREATE TABLE {STEPS_TABLE} (migration_set TEXT, name TEXT, applied_at TEXT)")
    connection.close()
    assert not make_fresh(begun)
    migrate_in_child(begun)
    assert stored_version(begun) == SCHEMA_VERSION


def test_a_fresh_store_is_made_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails half way leaves an empty file, and the next try makes it."""
    path = tmp_path / "tracker.db"
    take = fresh.take_step

    def fails(connection: sqlite3.Connection, name: str, number: int) -> None:
        take(connection, name, number)
        if number == 3:
            connection.execute("INSERT INTO nowhere VALUES (1)")

    monkeypatch.setattr(fresh, "take_step", fails)
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        make_fresh(path)
    assert stored_version(path) == 0
    monkeypatch.undo()
    assert make_fresh(path)
    assert stored_version(path) == SCHEMA_VERSION


def test_what_the_child_says_reaches_the_user(tmp_path: Path) -> None:
    """A refusal is a sentence, not an exit status."""
    with pytest.raises(StoreError, match="does not exist"):
        migrate_in_child(tmp_path / "none" / "tracker.db")
    path = tmp_path / "tracker.db"
    with (
        RunLock(path, started_at="2026-01-05T08:00:00Z"),
        pytest.raises(TrackerError, match=rf"another sidecar: process {os.getpid()}"),
    ):
        migrate_in_child(path)


@pytest.fixture
def two_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A store of the present schema, and a made-up next one."""
    path = make_store(tmp_path)
    with Store.open_writer(path) as writer:
        writer.commit([batch(add_stream(writer), readings=[reading(0)])])
    monkeypatch.setattr(module, "STEPS", (*STEPS, "9999_next"))
    monkeypatch.setattr(module, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    monkeypatch.setattr("tracker.store.schema.SCHEMA_VERSION", SCHEMA_VERSION + 1)
    return path


def _next_step(monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    real = fresh.resources.files

    class Folder:
        def __truediv__(self, name: str) -> Folder:
            self.name = name
            return self

        def read_text(self, encoding: str) -> str:
            if self.name.startswith("9999"):
                return sql
            return (real("tracker.store") / "migrations" / self.name).read_text(encoding)

    monkeypatch.setattr(fresh.resources, "files", lambda _: Folder())


def test_an_older_store_is_migrated_and_a_copy_is_kept(
    two_steps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows stay, the new column is there, and the copy is the store as it was."""
    _next_step(
        monkeypatch, "ALTER TABLE stream ADD COLUMN note TEXT;\nCREATE TABLE extra (a INTEGER) STRICT;\n"
    )
    with pytest.raises(StoreOutdated, match="tracker db migrate"):
        Store.open_writer(two_steps)
    kept = migrate(two_steps)

    assert kept is not None
    assert kept.name == f"tracker.db.v{SCHEMA_VERSION}"
    assert stored_version(two_steps) == SCHEMA_VERSION + 1
    assert stored_version(kept) == SCHEMA_VERSION
    with Store.open_reader(two_steps) as reader:
        assert len(list(reader.readings(1))) == 1
        assert reader._all("SELECT note FROM stream") == [(None,)]


def test_a_step_that_fails_leaves_nothing_behind(two_steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole step is undone, version included; with the fault mended it goes through."""
    _next_step(monkeypatch, "CREATE TABLE extra (a INTEGER) STRICT;\nINSERT INTO nowhere VALUES (1);\n")
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        migrate(two_steps)
    assert stored_version(two_steps) == SCHEMA_VERSION
    connection = sqlite3.connect(two_steps)
    assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'extra'").fetchone() == (0,)
    connection.close()

    _next_step(monkeypatch, "CREATE TABLE extra (a INTEGER) STRICT;\n")
    kept = migrate(two_steps)
    assert kept is not None
    assert kept.name == f"tracker.db.v{SCHEMA_VERSION}.1"


def test_no_migration_under_a_running_sidecar(two_steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would go on in the old schema."""
    _next_step(monkeypatch, "CREATE TABLE extra (a INTEGER) STRICT;\n")
    with RunLock(two_steps, started_at="x"), pytest.raises(StoreInUse):
        migrate(two_steps)
    assert stored_version(two_steps) == SCHEMA_VERSION


def test_newer_and_foreign_files_are_left_alone(tmp_path: Path) -> None:
    """Not a byte of them changes."""
    newer = make_store(tmp_path, "newer.db")
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version = 99")
    connection.commit()
    connection.close()
    foreign = tmp_path / "foreign.db"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE t (a)")
    connection.commit()
    connection.close()
    before = newer.read_bytes(), foreign.read_bytes()

    with pytest.raises(StoreNewer, match="versions up to"):
        migrate(newer)
    with pytest.raises(StoreForeign, match="another program"):
        migrate(foreign)
    assert (newer.read_bytes(), foreign.read_bytes()) == before


def test_a_script_is_run_statement_by_statement() -> None:
    """Semicolons inside text and comments end nothing; a tail without its end is a fault of ours."""
    script = (
        "-- one; two\nCREATE TABLE a (b TEXT DEFAULT ';');\n"
        "CREATE TRIGGER t AFTER INSERT ON a\nBEGIN\n  DELETE FROM a;\nEND;\n"
    )

    assert [s.strip().splitlines()[-1] for s in statements(script)] == [
        "CREATE TABLE a (b TEXT DEFAULT ';');",
        "END;",
    ]
    with pytest.raises(ValueError, match="without its end"):
        list(statements("CREATE TABLE a (b)"))
