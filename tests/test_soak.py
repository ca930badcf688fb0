"""A sidecar over weeks of played time: what it holds does not grow with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak import soak
from tracker import app

pytestmark = pytest.mark.slow


def test_weeks_pass_and_nothing_piles_up(tmp_path: Path) -> None:
    """No step is lost over daily rotations and restarts; handles, children and the log stay as they were."""
    world, seen = soak(tmp_path, days=12, every=4)
    config = app.load_config(tmp_path / "run.toml")
    run = app.snapshot_now(config, as_of_us=int(world.now_s * 1e6))

    assert (run.steps.net, len(run.attempts)) == (world.steps, world.attempt)
    early, late = seen[0], seen[-1]
    assert late.handles <= early.handles
    assert late.children <= early.children, "those of other tests in this process, and no more"
    assert late.wal_mb < 4.2  # SQLite's own limit of a thousand pages
    assert late.store_mb < 1.0
