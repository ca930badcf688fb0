"""The past of the status page: asked while somebody looks, by a child, and never in anybody's way."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.simulator.configure import config
from tests.simulator.live import write
from tests.simulator.machine import simulate
from tests.simulator.parameters import preset
from tests.test_exporter import FULL
from tests.test_sidecar import Hands, until
from tracker import app
from tracker.beside import EVERY_S, LOOKED_AT_S, RETRY_S, Past
from tracker.core.beside import Beside
from tracker.core.snapshot import Snapshot
from tracker.gate import Gate


@dataclass(frozen=True, slots=True)
class Now:
    """What a turn is told."""

    snapshot: Snapshot | None = FULL
    settled: bool = True
    store_up: bool = True
    leaving: bool = False
    as_of_us: int = FULL.as_of_us


@pytest.fixture
def past(tmp_path: Path) -> Past:
    """Of a config that is not there: its child fails at once."""
    return Past(tmp_path / "run.toml", clock=Hands(10**9), gate=Gate())


def clock_of(past: Past) -> Hands:
    clock = past._clock
    assert isinstance(clock, Hands)
    return clock


def after_the_child(past: Past, now: Now) -> None:
    """Give it turns until its child has ended."""

    def ended() -> bool:
        past.turn(now)
        return not past.busy

    until(ended, "the child never ended", limit_s=60)


def test_where_nobody_looks_nothing_is_asked(past: Past) -> None:
    """A page that was looked at long ago is one that nobody looks at."""
    past.turn(Now())
    assert not past.busy

    past.want()
    clock_of(past).moment_s += LOOKED_AT_S
    past.turn(Now())
    assert not past.busy


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(Now(settled=False), id="while the sources are being read"),
        pytest.param(Now(snapshot=None), id="before there are numbers"),
        pytest.param(Now(store_up=False), id="while the store fails"),
    ],
)
def test_it_waits_until_there_is_something_to_ask(past: Past, now: Now) -> None:
    past.want()
    past.turn(now)

    assert not past.busy


def test_a_child_that_fails_takes_nothing_along_and_is_not_begun_again_at_once(past: Past) -> None:
    """What was known stays; the next try comes in minutes."""
    past.want()
    past.turn(Now())
    assert past.busy
    after_the_child(past, Now())

    assert past.latest == Beside()
    past.turn(Now())
    assert not past.busy
    clock_of(past).moment_s += RETRY_S
    past.turn(Now())
    assert past.busy
    past.close()
    assert not past.busy


def test_it_waits_for_its_turn_among_heavy_children(tmp_path: Path) -> None:
    """One at a time."""
    gate = Gate()
    past = Past(tmp_path / "run.toml", clock=Hands(10**9), gate=gate)
    other = object()
    assert gate.enter(other)
    past.want()
    past.turn(Now())
    assert not past.busy

    gate.leave(other)
    past.turn(Now())
    assert past.busy
    past.close()


@pytest.mark.slow
def test_the_child_finds_what_the_report_would(tmp_path: Path) -> None:
    """Of a real store: what it wrote makes the very report of that moment."""
    run = simulate(preset("finished", seed=3))
    write(run, tmp_path)
    (tmp_path / "run.toml").write_text(config(run))
    loaded = app.load_config(tmp_path / "run.toml")
    app.ingest_once(loaded)
    moment_us = run.now_us // 1_000_000 * 1_000_000
    clock = Hands(10**9)
    clock.now_us = lambda: moment_us  # type: ignore[method-assign]
    past = Past(loaded.path, clock=clock, gate=Gate())
    past.want()
    past.turn(Now())
    after_the_child(past, Now())
    made = app.daily_now(loaded, as_of_us=moment_us)

    assert past.latest == Beside.of(made)
    assert past.latest.with_snapshot(made.snapshot, health=made.health) == made
    clock.moment_s += EVERY_S - 1
    past.want()
    past.turn(Now())
    assert not past.busy


def test_the_child_says_what_is_wrong_in_a_sentence(tmp_path: Path) -> None:
    """And leaves no half file."""
    (tmp_path / "run.toml").write_text("nonsense")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tracker.cli.beside_child", str(tmp_path / "run.toml"), "0", "out"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert done.returncode == 1
    assert "run.toml" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
