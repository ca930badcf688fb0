"""A little of what `make torture` does at length: kills beside an undisturbed sidecar, a full disk."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.torture.content import content, differences
from tests.torture.disk import FAULTS, Seen, attempt
from tests.torture.kills import Tally, torture
from tests.torture.nursery import Nursery
from tests.torture.page import page
from tests.torture.stage import PLOTS, Plot, Stage
from tracker import app

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

    text = page([bad, Tally(plot="q", seed=8, kills=4)], seen)

    assert "reading: 1 fewer than undisturbed" in text
    assert "| 7 |" in text
    assert "not tried here: no loop device" in text
    assert "zero differences" not in text
    assert "zero differences" in page([Tally(plot="q", seed=8, kills=4)], seen)


def test_every_plot_and_fault_has_a_name_of_its_own() -> None:
    """They are rows of one table."""
    assert len({plot.name for plot in PLOTS}) == len(PLOTS)
    assert len({fault.__doc__ for fault in FAULTS.values()}) == len(FAULTS)
