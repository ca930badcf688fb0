"""`tracker db`: every subcommand says what it did, and what is wrong in words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.store_help import add_stream, batch, make_store, reading
from tracker.cli import root
from tracker.store import Store
from tracker.store.schema import SCHEMA_VERSION


def tracker(*words: object) -> Result:
    return CliRunner().invoke(root, ["db", *map(str, words)])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = make_store(tmp_path)
    with Store.open_writer(path) as writer:
        writer.commit([batch(add_stream(writer), readings=[reading(n) for n in range(1000)])])
    return path


def test_info_shows_figures(store: Path) -> None:
    """For people, and as one JSON document."""
    text = tracker("info", store)
    assert text.exit_code == 0, text.output
    assert "bytes per reading" in text.output
    found = json.loads(tracker("info", store, "--json").stdout)
    assert found["rows"]["reading"] == 1000
    assert found["schema_version"] == SCHEMA_VERSION
    assert found["running"] is None


def test_check_says_whole_or_what_is_wrong(store: Path) -> None:
    """Exit status 0 or 1."""
    assert (tracker("check", store).exit_code, tracker("check", store, "--quick").stdout) == (
        0,
        f"{store}: whole\n",
    )
    with Store.open_writer(store) as writer, writer.transaction() as connection:
        connection.execute("DELETE FROM reading WHERE id & 1024")
    broken = tracker("check", store)
    assert broken.exit_code == 1
    assert "readings" in broken.stdout
    assert "tracker db restore" in broken.stderr


def test_backup_restore_compact_and_migrate_tell_what_they_did(store: Path, tmp_path: Path) -> None:
    """A round, each step with the path it concerns."""
    copy = tmp_path / "copy.db"
    assert str(copy) in tracker("backup", store, copy).stdout
    again = tracker("restore", store, copy)
    assert "restored from" in again.stdout
    assert "before-restore" in again.stdout
    assert "->" in tracker("compact", store).stdout
    assert "already" in tracker("migrate", store).stdout
    assert tracker("migrate", tmp_path / "new.db").stdout.endswith("made\n")


@pytest.mark.parametrize("command", ["info", "check", "compact"])
def test_what_is_missing_is_a_sentence(tmp_path: Path, command: str) -> None:
    """No traceback, exit status 1, nothing made."""
    found = tracker(command, tmp_path / "none.db")
    assert found.exit_code == 1
    assert "no store at" in found.stderr
    assert list(tmp_path.iterdir()) == []


def test_every_subcommand_has_an_example() -> None:
    """The help of each shows a line to copy."""
    from tracker.cli.db import db

    for name, command in db.commands.items():
        assert command.help is not None
        assert f"tracker db {name}" in command.help


def test_only_a_migration_loads_the_heavy_library(store: Path) -> None:
    """Looking at a store stays quick."""
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom tracker.cli import root\n"
        f"assert CliRunner().invoke(root, ['db', 'check', {str(store)!r}]).exit_code == 0\n"
        "print([m for m in ('sqlite_utils', 'pandas', 'numpy') if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).resolve().parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "[]\n"
