"""How often is a change of pace named that is none, and how soon one that is? Writes docs/changes.md.

    python benchmarks/changes_study.py --out docs/changes.md     the page: some fifteen minutes of one core
    python benchmarks/changes_study.py --months 5                quicker, to look

Runs are made here, step by step, from a seed; the watch (tracker/core/cusum.py) sees them as cells of five
minutes, as it does in a run. Seeds 1..N are those of the page; the settings were chosen on others: those of
the sum on 0 to 7 of an earlier form of these runs, those of the hour's median on 2001 to 2060.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tracker.core.cells import CELL_US
from tracker.core.cusum import CALM, CLIP, LIMIT, NAMED, SLACK, STEADY, SURE, Cusum

CELL_S = CELL_US / 1e6
DAY_S = 86_400.0
PAGE = Path(__file__).resolve().parent / "changes_study.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What shakes the step times of a steady run."""

    name: str
    step: float
    """Spread of single steps, as a share."""
    tails: bool
    """Student's t with 3 degrees of freedom instead of a normal law."""
    spikes: float
    """Share of the steps that take 2 to 5 times as long."""
    drift: float
    """Spread of a slow wander (AR(1) over cells of five minutes, 0.9 from one to the next)."""
    daily: float
    """Height of a daily wave."""


NOISES = (
    Noise(name="calm", step=0.01, tails=False, spikes=0.0, drift=0.002, daily=0.003),
    Noise(name="usual", step=0.03, tails=False, spikes=1 / 500, drift=0.005, daily=0.01),
    Noise(name="rough", step=0.05, tails=True, spikes=1 / 300, drift=0.008, daily=0.015),
)
LINES = (("each step of 5 s", 1, 5.0), ("each 50 s", 10, 5.0), ("each step of 40 s", 1, 40.0),
         ("each 5 min", 60, 5.0), ("each 20 min", 240, 5.0))  # fmt: skip
DROPS = (0.04, 0.05, 0.08, 0.15, 0.3)


def cells_of(
    rng: np.random.Generator, noise: Noise, every: int, step_s: float, days: float, drop: float, at_s: float
) -> Iterator[tuple[float, float, float]]:
    """Yield (end of the cell, its mean step time, its weight); throughput falls by `drop` at `at_s`."""
    lines = int(days * DAY_S / step_s) // every
    shape = (lines, every)
    single = rng.standard_t(3, shape) / 3**0.5 if noise.tails else rng.standard_normal(shape)
    steps = np.maximum(1 + noise.step * single, 0.5)
    late = rng.random(shape) < noise.spikes
    steps[late] *= rng.uniform(2, 5, int(late.sum()))
    means = steps.mean(axis=1)
    count = int(days * DAY_S / CELL_S) + 2
    wander = np.empty(count)
    wander[0] = rng.standard_normal() * noise.drift
    for i, kick in enumerate(rng.standard_normal(count - 1) * noise.drift * (1 - 0.9**2) ** 0.5, 1):
        wander[i] = 0.9 * wander[i - 1] + kick
    when = np.arange(lines) * every * step_s
    wave = noise.daily * np.sin(2 * np.pi * (when / DAY_S + rng.random()))
    means = means * np.exp(np.interp(when, np.arange(count) * CELL_S, wander) + wave) * step_s
    means = np.where(when >= at_s, means / (1 - drop), means)
    keys, first = np.unique(when // CELL_S, return_index=True)
    sizes = np.diff(np.append(first, lines))
    cell_means = np.add.reduceat(means, first) / sizes
    for key, mean, size in zip(keys.tolist(), cell_means.tolist(), sizes.tolist(), strict=True):
        yield (
            max((key + 1) * CELL_S, key * CELL_S + size * every * step_s),
            mean,
            size * every * step_s / CELL_S,
        )


Watch = Callable[[Iterator[tuple[float, float, float]]], list[float]]


def ours(cells: Iterator[tuple[float, float, float]]) -> list[float]:
    """Return when shifts were named by the tracker's own watch."""
    watch = Cusum()
    return [end for end, mean, weight in cells if watch.feed(float(np.log(mean)), weight) is not None]


def plain(cells: Iterator[tuple[float, float, float]]) -> list[float]:
    """The rule that one would write in an alert: mean of the last hour 3 % off that of the day before."""
    day: list[float] = []
    named: list[float] = []
    off = False
    for end, mean, weight in cells:
        day.append(mean)
        hour = max(1, round(12 / max(1.0, weight)))
        before = day[-25 * hour : -hour]
        was, off = off, bool(before) and abs(float(np.mean(day[-hour:]) / np.mean(before)) - 1) > 0.03
        if off and not was:
            named.append(end)
    return named


def months(watch: Watch, noise: Noise, every: int, step_s: float, seeds: Sequence[int]) -> int:
    """Return how many shifts are named in steady months, one a seed."""
    found = 0
    for seed in seeds:
        rng = np.random.default_rng([seed, every, int(step_s)])
        found += len(watch(cells_of(rng, noise, every, step_s, 30, 0.0, 0.0)))
    return found


def delays(noise: Noise, every: int, step_s: float, drop: float, seeds: Sequence[int]) -> list[float]:
    """Return the minutes from a drop to its naming; one that is not named in a day counts as a day."""
    found = []
    for seed in seeds:
        rng = np.random.default_rng([1_000_000 + seed, every, int(step_s)])
        at_s = 1.5 * DAY_S + rng.random() * DAY_S
        named = [end - at_s for end in ours(cells_of(rng, noise, every, step_s, 3.6, drop, at_s))]
        found.append(min([second / 60 for second in named if 0 <= second <= DAY_S], default=1440.0))
    return found


def false_table(seeds: Sequence[int]) -> list[str]:
    """Return the table of steady months."""
    lines = ["| noise | a line | months | named | a month | by the plain rule, a month |",
             "| --- | --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for noise in NOISES:
        for name, every, step_s in LINES:
            count, each = months(ours, noise, every, step_s, seeds), len(seeds)
            few = seeds[: max(1, len(seeds) // 5)]
            beside = months(plain, noise, every, step_s, few) / len(few)
            lines.append(f"| {noise.name} | {name} | {each} | {count} | {count / each:.2f} | {beside:.1f} |")
            print(lines[-1], file=sys.stderr, flush=True)
    return lines


def delay_table(seeds: Sequence[int]) -> list[str]:
    """Return the table of drops."""
    lines = ["| noise | a line | drop | runs | median | 90 % | within an hour | not within a day |",
             "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for noise in NOISES:
        for name, every, step_s in LINES:
            for drop in DROPS if every == 10 else (0.05,):
                found = delays(noise, every, step_s, drop, seeds)
                lines.append(
                    f"| {noise.name} | {name} | {drop:.0%} | {len(found)} | {np.median(found):.0f} min "
                    f"| {np.quantile(found, 0.9):.0f} min | {np.mean([m <= 60 for m in found]):.0%} "
                    f"| {sum(m >= 1440 for m in found)} |"
                )
                print(lines[-1], file=sys.stderr, flush=True)
    return lines


def page(false: Sequence[str], delay: Sequence[str], count: int) -> str:
    """Return docs/changes.md."""
    text = PAGE.read_text(encoding="utf-8")
    noises = [
        f"| {n.name} | {n.step:.0%}{', heavy tails' if n.tails else ''} "
        f"| {f'1 step in {1 / n.spikes:.0f}, 2 to 5 times as long' if n.spikes else 'none'} "
        f"| {n.drift:.1%} | {n.daily:.1%} |"
        for n in NOISES
    ]
    for name, value in {
        "SEEDS": str(count), "SLACK": f"{SLACK:.1%}", "CLIP": f"{CLIP:.1%}", "LIMIT": f"{LIMIT:g}",
        "CALM": f"{CALM:g}", "NAMED": f"{NAMED:.1%}", "STEADY": f"{STEADY:.0%}", "SURE": f"{SURE:g}",
        "FALSE": "\n".join(false), "DELAY": "\n".join(delay),
        "NOISES": "\n".join(noises),
    }.items():  # fmt: skip
        text = text.replace(f"@{name}@", value)
    return text


def main() -> None:
    """Count, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--months", type=int, default=100)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    seeds = range(1, given.months + 1)
    text = page(false_table(seeds), delay_table(seeds), given.months)
    if given.out is None:
        print(text)
    else:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
