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
from tracker.store import RunLock, Store, migrate_in_child, stored_version
from tracker.store import migrate as module
from tracker.store.errors import StoreError, StoreForeign, StoreInUse, StoreNewer, StoreOutdated
from tracker.store.migrate import STEPS, migrate, statements
from tracker.store.schema import SCHEMA_VERSION

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


def test_the_child_makes_it_and_loads_nothing_into_the_parent(tmp_path: Path) -> None:
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
    real = module.resources.files

    class Folder:
        def __truediv__(self, name: str) -> Folder:
            self.name = name
            return self

        def read_text(self, encoding: str) -> str:
            if self.name.startswith("9999"):
                return sql
            return (real("tracker.store") / "migrations" / self.name).read_text(encoding)

    monkeypatch.setattr(module.resources, "files", lambda _: Folder())


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
