"""A store that cannot be written: waited for where it may pass, let go of where its disk fails."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from tests.torture.stage import PLOTS, Stage
from tracker import app
from tracker.clock import SystemClock
from tracker.store import Writer
from tracker.store.errors import StoreBusy, StoreError, StoreFull, StoreReadOnly


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
