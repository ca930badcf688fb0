"""The replay: at every moment what a snapshot from the start says, whatever lies between."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.core.story import settings, us
from tests.core.test_book import eventful, told
from tests.simulator import preset, simulate
from tests.test_ledger_simulated import read, settings_of
from tracker.core.book import Book
from tracker.core.facts import Facts
from tracker.core.records import Reading
from tracker.core.replay import Replay
from tracker.core.settings import Settings
from tracker.core.snapshot import Snapshot
from tracker.core.step_samples import StepSample
from tracker.core.summary import snapshot


def bare(one: Snapshot) -> Snapshot:
    """Return a snapshot without warnings: the replay's are of the last time that the book was opened."""
    return replace(one, warnings=())


def anew(known: Facts, run: Settings, moment: int) -> Snapshot:
    return bare(snapshot(Book(run), known, as_of_us=moment))


def of(one: Snapshot, moment: int) -> StepSample:
    return StepSample(moment, one.steps.last, one.tokens.net, one.tokens.processed, one.step_time_s)


def check(known: Facts, run: Settings, moments: list[int]) -> Replay:
    """Hold a walk over the moments, and a part of the readings between, to snapshots from the start."""
    replay = Replay(run, known)
    chance = random.Random(1)
    seen = 0
    for moment, stop in zip(moments, replay.walk(iter(moments)), strict=True):
        assert bare(stop.snapshot) == anew(known, run, moment), f"at {moment}"
        samples = list(stop.samples)
        times = [sample.at_us for sample in samples]
        assert times == sorted(set(times))
        for sample in chance.sample(samples, min(4, len(samples))):
            assert sample == of(anew(known, run, sample.at_us), sample.at_us)
            seen += 1
    assert seen or not any(
        isinstance(r, Reading) for kept in getattr(known, "kept", {}).values() for r in kept
    )
    return replay


@pytest.mark.parametrize("seed", range(12))
def test_every_moment_is_as_a_snapshot_from_the_start_has_it(seed: int) -> None:
    """Failures, saves, rollbacks, an abandoned branch."""
    logs, rows = eventful(seed)
    end = max(r[2] or 0 for r in rows)
    everything = told(logs, rows, end + 1)

    check(everything, settings(), [us(end * part / 40) // 1000 * 1000 for part in range(1, 44)])


@pytest.mark.parametrize("name", ["steady", "llama_like", "rollback", "elastic", "ramp", "stalled", "young"])
def test_a_simulated_run_read_by_the_real_collectors_is_replayed_exactly(name: str) -> None:
    """Rotation, ranks that print twice, ramps, rollbacks, hangs, in-job restarts."""
    run = simulate(preset(name, seed=3))
    known = read(run)
    start, end = run.parameters.start_us, run.now_us
    chance = random.Random(name)
    moments = sorted({chance.randrange(start, end) // 1000 * 1000 for _ in range(25)})

    replay = check(known, settings_of(run), moments)

    assert replay.opened < sum(len(kept) for kept in known.kept.values()) / 3, "mostly by the short way"
