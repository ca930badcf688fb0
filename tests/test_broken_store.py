"""A store that cannot be written: waited for where it may pass, let go of where its disk fails."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from tests.store_help import add_stream, batch, make_store, reading
from tests.torture.stage import PLOTS, Stage
from tracker import app
from tracker.clock import SystemClock
from tracker.store import Store, Writer
from tracker.store import health as store_health
from tracker.store.errors import StoreBusy, StoreCorrupt, StoreError, StoreFull, StoreReadOnly


def held() -> list[str]:
    """Return the files that this process holds."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return found


@pytest.mark.parametrize(
    ("error", "lets_go"),
    [
        pytest.param(StoreFull("no room"), False, id="a-full-disk-is-waited-for"),
        pytest.param(StoreBusy("locked"), False, id="so-is-a-lock"),
        pytest.param(StoreReadOnly("the disk fails"), True, id="a-disk-that-fails-is-let-go-of"),
    ],
)
def test_a_store_is_held_only_while_that_can_help(
    error: StoreError, lets_go: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can mend or unmount a disk of which we hold a file: the member opens it anew after an error."""
    stage = Stage(PLOTS[3], tmp_path, seed=1)
    stage.configs()
    stage.finish()

    def fails(*_: object, **__: object) -> None:
        raise error

    with app.open_work(app.load_config(tmp_path / "run.toml"), SystemClock()) as work:
        monkeypatch.setattr(Writer, "commit", fails)
        if lets_go:
            with pytest.raises(StoreReadOnly, match="the disk fails"):
                work.read()
        else:
            assert work.read()[1] == str(error)
    assert [name for name in held() if str(tmp_path) in name] == []


# -- damage that shows late -----------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [True, False], ids=["a-damaged-store", "a-defect-of-ours"])
def test_what_stumbles_over_impossible_facts_tells_damage_only_where_there_is_some(
    damage: bool, tmp_path: Path
) -> None:
    """A number that became nothing by flipped bits ends in a type error: why, the file says."""
    path = make_store(tmp_path)
    with Store.open_writer(path) as writer:
        writer.commit([batch(add_stream(writer), readings=[reading(n) for n in range(500)])])
    store_health.compact(path)
    if damage:
        body = bytearray(path.read_bytes())
        body[-4096:-2048] = bytes(2048)
        path.write_bytes(body)
    raised = StoreCorrupt if damage else TypeError
    with Store.open_reader(path) as reader, pytest.raises(raised), reader.snapshot():
        raise TypeError("unsupported operand type(s) for -: 'NoneType' and 'int'")


def test_a_flipped_bit_in_the_schema_is_found_and_told(tmp_path: Path) -> None:
    """A check that names no column any more: a reader does not notice, a writer cannot even begin."""
    path = make_store(tmp_path)
    store_health.compact(path)
    body = path.read_bytes()
    assert b"(sent_us IS NOT NULL)" in body
    path.write_bytes(body.replace(b"(sent_us IS NOT NULL)", b"(sent_\xf5s IS NOT NULL)"))

    assert any("the schema of table" in fault for fault in store_health.check(path))
    with pytest.raises(StoreCorrupt, match="db restore"):
        Store.open_writer(path)
