"""How good is the forecast? Replays simulated and real runs, scores every forecast, writes docs/forecast.md.

    python benchmarks/forecast_study.py                 the page, from scratch: some minutes
    python benchmarks/forecast_study.py --runs 100      quicker, to look

Seeds 1..N are those of the page; the model was tuned on seeds from 100,001 on. Real runs are read from
--data (a folder with glm130b, bloom, opt175b, mlperf, modded-nanogpt); without it their tables are left out.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.forecast_runs import FULL, StudyRun, study_run
from tests.factories import facts_from
from tracker.core.book import Book
from tracker.core.forecast.lines import straight_lines
from tracker.core.forecast.model import play
from tracker.core.forecast.prior import DEFAULT, Priors
from tracker.core.forecast.score import Score, Scored, score
from tracker.core.forecast.state import State, state_of
from tracker.core.forecast.value import LEVELS
from tracker.core.plan import Plan
from tracker.core.settings import Model, Settings
from tracker.core.summary import snapshot

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)
LINES = ("from_start", "last_7_days", "step_rate")


@dataclass(slots=True)
class Case:
    """One run at one moment: what was known, what straight lines said, and the truth."""

    run: int
    share: float
    kinds: frozenset[str]
    state: State
    lines: dict[str, int]
    finish_us: int
    scale_s: float
    """Whole calendar of the run: errors are told as shares of it."""


def cases_of(seed: int, world: str = FULL, shares: Sequence[float] = SHARES) -> list[Case]:
    """Return a simulated run's cases, each as the tracker knew it at that moment."""
    run: StudyRun = study_run(seed, world=world)
    facts = facts_from(run.files, run.rows)
    settings = Settings(
        run=run.name,
        model=Model(sequence_length=run.sequence),
        plan=Plan(tokens=run.target_tokens, later_stages=0.0),
    )
    found = []
    for share in shares:
        as_of_us = run.marks_us[share]
        if as_of_us >= run.finish_us:
            continue
        book = Book(settings)
        state = state_of(book, facts, snapshot(book, facts, as_of_us=as_of_us))
        scale = (run.finish_us - run.start_us) / 1e6
        lines = straight_lines(state)
        found.append(Case(seed, share, run.kinds, state, lines, run.finish_us, scale))
    return found


def all_cases(seeds: Iterable[int], world: str = FULL, workers: int = 2) -> list[Case]:
    """Return the cases of many runs."""
    with ProcessPoolExecutor(workers) as pool:
        return [c for found in pool.map(_Maker(world), seeds, chunksize=8) for c in found]


@dataclass
class _Maker:
    world: str

    def __call__(self, seed: int) -> list[Case]:
        return cases_of(seed, self.world)


def scored(cases: Sequence[Case], priors: Priors = DEFAULT, plays: int = 4000) -> list[Scored]:
    """Forecast every case and put the truth beside it."""
    found = []
    for case in cases:
        levels = np_levels(play(case.state, plan_rate=None, priors=priors, plays=plays).wall_s)
        now = case.state.as_of_us / 1e6
        found.append(
            Scored(
                made_s=now,
                levels={q: now + s for q, s in levels.items()},
                truth_s=case.finish_us / 1e6,
                lines={name: at / 1e6 for name, at in case.lines.items()},
                scale_s=case.scale_s,
            )
        )
    return found


def np_levels(wall: object) -> dict[float, float]:
    """Return the quantiles at LEVELS."""
    import numpy as np

    return {q: float(v) for q, v in zip(LEVELS, np.quantile(wall, LEVELS), strict=True)}
