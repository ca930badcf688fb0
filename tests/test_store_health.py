"""A store is copied, put back, made compact and judged, also while it is written, and when it is damaged."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import pytest

from tests.store_help import add_stream, batch, dump, event, make_store, reading
from tracker.store import RunLock, Store, StreamBatch
from tracker.store.errors import StoreCorrupt, StoreError, StoreInUse, StoreMissing
from tracker.store.health import backup, check, compact, info, restore
from tracker.store.schema import SCHEMA_VERSION


def filled(folder: Path, name: str = "tracker.db", readings: int = 2_000) -> Path:
    """Return a store with some readings and events, its log moved into the file."""
    path = make_store(folder, name)
    with Store.open_writer(path) as writer:
        stream = add_stream(writer)
        writer.commit([
            batch(
                stream, readings=[reading(n) for n in range(readings)], events=[event(n) for n in range(20)]
            )
        ])
    return path


def edit(path: Path, *statements: str) -> None:
    """Change a store as no part of ours would."""
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


# -- figures ----------------------------------------------------------------------------------------------


def test_the_figures_are_those_of_the_file(tmp_path: Path) -> None:
    """Size, rows, journal and who works on it."""
    path = filled(tmp_path)
    found = info(path)

    assert found.rows["reading"] == 2_000
    assert found.file_bytes == path.stat().st_size
    assert (found.journal, found.owner, found.schema_version) == ("wal", None, SCHEMA_VERSION)
    with RunLock(path, started_at="2026-01-05T08:00:00Z"):
        owner = info(path).owner
        assert owner is not None
        assert owner.pid == os.getpid()


def test_no_store_is_told(tmp_path: Path) -> None:
    """Looking does not make one."""
    for ask in (info, check, compact):
        with pytest.raises(StoreMissing, match="no store at"):
            ask(tmp_path / "none.db")
    with pytest.raises(StoreError, match="is a folder"):
        info(tmp_path)
    assert list(tmp_path.iterdir()) == []


# -- judged -----------------------------------------------------------------------------------------------


def test_a_whole_store_has_no_fault(tmp_path: Path) -> None:
    """Also in the quick way, and while it is written."""
    path = filled(tmp_path)
    with Store.open_writer(path) as writer:
        writer.commit([batch(1, readings=[reading(3_000)])])
        assert check(path) == []
    assert check(path, quick=True) == []


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        pytest.param("DELETE FROM reading WHERE id % 7 = 0", "readings, and", id="rows-missing"),
        pytest.param("UPDATE stream SET offset = 10", "was read to byte 10, but has", id="position-behind"),
        pytest.param("INSERT INTO segment VALUES (99, 0, 0, '{}')", "of no stream", id="segment-of-nothing"),
        pytest.param("UPDATE event SET id = id + (5 << 44)", "to stream 6, which is unknown", id="stray"),
    ],
)
def test_tables_that_contradict_each_other_are_found(tmp_path: Path, statement: str, fault: str) -> None:
    """What SQLite finds in order may still be no state that we ever wrote."""
    path = filled(tmp_path)
    edit(path, statement)

    assert any(fault in found for found in check(path)), check(path)


@pytest.mark.parametrize("place", ["header", "middle", "cut"])
def test_damage_is_found_and_told_with_a_remedy(tmp_path: Path, place: str) -> None:
    """Flipped bytes and lost pages: a sentence, no traceback, from every door."""
    path = filled(tmp_path)
    content = bytearray(path.read_bytes())
    if place == "header":
        content[0:16] = b"not SQLite at al"
    elif place == "middle":
        (tmp_path / "empty").mkdir()
        schema = make_store(tmp_path / "empty").stat().st_size  # the facts come after it
        for at in range(schema, len(content), 4096):
            content[at : at + 64] = b"\xff" * 64
    else:
        del content[len(content) // 2 :]
    path.write_bytes(content)

    faults = check(path)
    assert faults
    assert all("damaged" in fault or "no database" in fault for fault in faults)
    if place == "header":
        for opened in (Store.open_reader, Store.open_writer):
            with pytest.raises(StoreCorrupt, match="tracker db restore"):
                opened(path)
    elif place == "middle":
        with Store.open_reader(path) as reader, pytest.raises(StoreCorrupt, match="tracker db check"):
            reader._all("SELECT * FROM reading")


# -- copied and put back ----------------------------------------------------------------------------------


def test_a_backup_is_the_store_at_one_moment_while_it_is_written(tmp_path: Path) -> None:
    """Another thread commits all the time; the copy is whole and holds whole transactions."""
    path = filled(tmp_path, readings=20_000)
    stop = threading.Event()

    def write() -> None:
        with Store.open_writer(path) as writer:
            number = 0
            while not stop.is_set():
                number += 1
                pair = [reading(100_000 + 2 * number), reading(100_001 + 2 * number)]
                writer.commit([
                    StreamBatch(stream_id=1, position={}, offset=10**9, context={}, readings=pair)
                ])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        copies = [backup(path, tmp_path / f"copy{n}.db") for n in range(3)]
    finally:
        stop.set()
        thread.join()

    for copy in copies:
        assert check(copy) == []
        with Store.open_reader(copy) as reader:
            assert len(list(reader.readings(1, start=100_000 * 200))) % 2 == 0
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.endswith(".tmp")) == []


def test_a_backup_never_overwrites(tmp_path: Path) -> None:
    """An existing file is somebody's."""
    path = filled(tmp_path)
    there = tmp_path / "there.db"
    there.write_text("mine")
    with pytest.raises(StoreError, match="exists"):
        backup(path, there)
    assert there.read_text() == "mine"


def test_a_restored_store_goes_on_where_the_backup_was_made(tmp_path: Path) -> None:
    """The old one is moved aside, with what waited in its log; positions are those of the backup."""
    path = filled(tmp_path)
    before = dump(path)
    copy = backup(path, tmp_path / "copy.db")
    with Store.open_writer(path) as writer:
        writer.commit([batch(1, readings=[reading(5_000)], offset=77)])
        aside = restore(path, copy)
        assert aside is not None

    assert dump(path) == before
    with Store.open_reader(aside) as reader:
        assert reader.reports()[0].offset == 77
    with Store.open_writer(path) as writer:
        writer.commit([batch(1, readings=[reading(5_000)])])
        assert writer.journal == "wal"
    assert check(path) == []


def test_a_damaged_store_is_replaced_and_a_second_time_too(tmp_path: Path) -> None:
    """Restore needs nothing of the old one, and keeps every old one."""
    path = filled(tmp_path)
    copy = backup(path, tmp_path / "copy.db")
    path.write_bytes(b"rubbish" * 1000)
    Path(f"{path}-wal").write_bytes(b"old log")
    first = restore(path, copy)
    second = restore(path, copy)

    assert first != second
    assert first is not None
    assert first.read_bytes().startswith(b"rubbish")
    assert Path(f"{first}-wal").read_bytes() == b"old log"
    assert check(path) == []


def test_a_store_in_use_or_a_bad_backup_is_refused(tmp_path: Path) -> None:
    """Then the store that is there stays."""
    path = filled(tmp_path)
    copy = backup(path, tmp_path / "copy.db")
    before = dump(path)
    with RunLock(path, started_at="x"), pytest.raises(StoreInUse, match="another sidecar"):
        restore(path, copy)
    edit(copy, "DELETE FROM reading")
    with pytest.raises(StoreCorrupt, match="no good backup"):
        restore(path, copy)
    with pytest.raises(StoreMissing):
        restore(path, tmp_path / "none.db")
    assert dump(path) == before


def test_compact_gives_the_space_back(tmp_path: Path) -> None:
    """After rows were dropped the file is as small as what it holds; nothing else changes."""
    path = filled(tmp_path, readings=20_000)
    with Store.open_writer(path) as writer:
        writer.commit([batch(1, reset=True, readings=[reading(n) for n in range(100)])])
        before = dump(path)
        large = info(path)
        first, second = compact(path)
        writer.commit([batch(1)])

    assert large.free_bytes > 500_000
    assert second < first // 4
    assert {k: v for k, v in dump(path).items() if k != "stream"} == {
        k: v for k, v in before.items() if k != "stream"
    }
    assert check(path) == []


def test_the_page_on_the_store_names_every_table_and_command(tmp_path: Path) -> None:
    """docs/store.md explains what is there, and nothing that is not."""
    page = (Path(__file__).resolve().parents[1] / "docs" / "store.md").read_text(encoding="utf-8")
    with Store.open_reader(make_store(tmp_path)) as reader:
        tables = {row[0] for row in reader._all("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table in tables:
        assert table.startswith("_sqlite") or f"`{table}`" in page, table
    from tracker.cli.db import db

    assert {name for name in db.commands if f"`tracker db {name} STORE" in page} == set(db.commands)
