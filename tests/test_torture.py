"""A little of what `make torture` does at length: kills beside an undisturbed sidecar, a full disk."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.store_help import add_stream, batch, make_store, reading
from tests.torture.content import content, differences
from tests.torture.disk import FAULTS, Seen, attempt
from tests.torture.disk import REMEDIES as DISK_REMEDIES
from tests.torture.flips import Flips, flip
from tests.torture.kills import Tally, torture
from tests.torture.nursery import Nursery
from tests.torture.page import page
from tests.torture.stage import PLOTS, Plot, Stage
from tests.torture.world import FAULTS as WORLD
from tests.torture.world import REMEDIES, Met, meet
from tracker import app
from tracker.store import RunLock, Store, Writer
from tracker.store.connection import open_read_only
from tracker.store.errors import StoreGone, StoreInUse
from tracker.store.migrate import _steps, migrate
from tracker.store.schema import SCHEMA_VERSION, stored_version, version_of

SMALL = Plot(name="small", preset="finished", late=True, changes=(("total_steps", 400),))


@pytest.mark.slow
def test_a_few_kills_leave_the_store_of_an_undisturbed_sidecar(tmp_path: Path) -> None:
    """Five SIGKILLs at random moments, scrapes and a question beside: every row and JSON is the same."""
    nursery = Nursery()
    try:
        tally = torture(tmp_path, SMALL, seed=5, kills=5, life_s=0.4, reports=False, nursery=nursery)
    finally:
        nursery.close()

    assert tally.faults == []
    assert tally.kills == 5
    assert tally.rows > 50


@pytest.mark.slow
def test_a_disk_that_fills_up_and_has_room_again_loses_nothing(tmp_path: Path) -> None:
    """One sentence, a metric, the same process; and the content of a store that was never disturbed."""
    seen = attempt("disk full", tmp_path)
    if seen.left_out:
        pytest.skip(seen.left_out)

    assert seen.faults == []
    assert seen.rows > 100


@pytest.mark.slow
def test_a_fault_of_the_world_is_told_and_loses_nothing(tmp_path: Path) -> None:
    """Ten megabytes without a line end: passed over and counted, and the run beside them is stored whole."""
    met = meet("a line without end", tmp_path, scale=0.02)

    assert met.faults == []
    assert met.message or met.figures
    assert met.rows > 100


@pytest.mark.slow
def test_flipped_bits_are_told_as_damage_or_are_another_number(tmp_path: Path) -> None:
    """No traceback anywhere; what cannot be read is found by `db check` too."""
    tally = flip(tmp_path, stores=30, seed=3)

    assert tally.faults == []
    assert tally.stores == 30
    assert tally.told > 0
    assert tally.harmless > 10


@pytest.mark.slow
def test_the_comparison_sees_what_differs(tmp_path: Path) -> None:
    """A row more, a row fewer and a changed row are three differences: it could fail."""
    stage = Stage(SMALL, tmp_path, seed=1)
    stage.configs()
    stage.finish()
    for name in ("run", "whole"):
        app.ingest_once(app.load_config(tmp_path / f"{name}.toml"), final=True)
    one, other = content(tmp_path / "tracker.db"), content(tmp_path / "whole.db")
    assert differences(one, other) == []

    first, second = list(other["reading"])[:2]
    other["reading"][first] += 1
    other["reading"] -= Counter([second])
    other["event"] = Counter()
    said = differences(one, other, most=1000)

    assert sum(line.startswith("reading: 1 fewer") for line in said) == 1
    assert sum(line.startswith("reading: 1 more") for line in said) == 1
    assert sum(line.startswith("event: 1 more") for line in said) == len(one["event"])


def test_the_page_tells_of_faults_and_of_what_was_left_out() -> None:
    """A difference stands in it, and what could not be tried is not passed over."""
    bad = Tally(plot="p", seed=7, kills=3, faults=["reading: 1 fewer than undisturbed"])
    seen = [Seen("disk full", message="no room", back_s=1.2, rows=5), Seen("x", left_out="no loop device")]

    flips = [Flips(1, stores=9, told=2, found=2, harmless=6, silent=1)]
    met = [Met("the scheduler hangs", message="source 3: took longer", memory_mb=40.4)]
    held = {
        "day": 20,
        "rss_mb": 44.3,
        "handles": 18,
        "children": 0,
        "store_mb": 0.2,
        "wal_mb": 0.0,
        "snapshot_ms": 3.1,
    }
    soak = {
        "days": 20,
        "minutes": 1.0,
        "steps_written": 9,
        "steps_in_the_model": 8,
        "attempts": 7,
        "reports": 2,
        "held": [held],
    }
    text = page([bad, Tally(plot="q", seed=8, kills=4)], seen, flips, met, [soak])

    assert "reading: 1 fewer than undisturbed" in text
    assert "| 7 |" in text
    assert "not tried here: no loop device" in text
    assert "| 1 | 9 | 6 | 2 | 2 | 1 | 0 |" in text
    assert "source 3: took longer | Run the command by hand" in text
    assert "| 20 | 44.3 MB | 18 | 0 | 0.20 MB | 0.00 MB | 3 ms |" in text
    assert "| days played | 20 | 1 |" in text
    assert "@" not in text
    assert "zero differences" not in text
    assert "zero differences" in page([Tally(plot="q", seed=8, kills=4)], seen, flips)


def test_every_plot_and_fault_has_a_name_of_its_own() -> None:
    """They are rows of one table."""
    assert len({plot.name for plot in PLOTS}) == len(PLOTS)
    assert len({fault.__doc__ for fault in FAULTS.values()}) == len(FAULTS)
    assert len({fault.__doc__ for fault in WORLD.values()}) == len(WORLD)
    assert set(DISK_REMEDIES) == set(FAULTS)
    assert set(REMEDIES) == set(WORLD)


# -- faults that it found ------------------------------------------------------------------------------


def test_a_store_whose_making_was_cut_off_is_made(tmp_path: Path) -> None:
    """Killed between the note-book of the steps and the first step: it is nobody else's database."""
    import sqlite_utils

    path = tmp_path / "tracker.db"
    connection = sqlite3.connect(path, isolation_level=None)
    _steps().ensure_migrations_table(sqlite_utils.Database(connection))
    connection.close()
    assert path.stat().st_size > 0
    assert stored_version(path) == 0

    migrate(path)

    assert stored_version(path) == SCHEMA_VERSION


def test_whoever_looks_while_a_store_is_made_sees_none_of_it_or_all(tmp_path: Path) -> None:
    """The making falls between two looks of the same process: the store is no other program's."""
    path = tmp_path / "tracker.db"
    path.touch()
    making = threading.Thread(target=migrate, args=(path,))

    def between(statement: str) -> None:
        if "user_version" in statement and making.ident is None:
            making.start()
            making.join(2)

    connection, _ = open_read_only(path)
    connection.set_trace_callback(between)
    seen = version_of(connection, path)
    connection.close()
    making.join()

    assert seen in (0, SCHEMA_VERSION)
    assert stored_version(path) == SCHEMA_VERSION


def test_a_sidecar_whose_mark_was_deleted_stores_nothing_more(tmp_path: Path) -> None:
    """Another one may have begun: it must let go, and learn who has the store now."""
    path = make_store(tmp_path)
    mark = RunLock(path, started_at="2026-01-05T08:00:00Z")
    with Writer(path, owner=mark) as writer:
        stream = add_stream(writer)
        writer.commit([batch(stream, readings=[reading(0)])])
        mark.path.unlink()
        with pytest.raises(StoreGone, match=r"running was deleted while a sidecar worked on the store"):
            writer.commit([batch(stream, readings=[reading(1)])])
    with Store.open_reader(path) as reader:
        assert [r.step for r in reader.readings(stream)] == [10]
    other = RunLock(path, started_at="2026-01-05T09:00:00Z")
    with pytest.raises(StoreInUse, match="09:00:00Z"):
        RunLock(path, started_at="2026-01-05T10:00:00Z")
    other.close()
    mark.close()
