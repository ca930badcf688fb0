"""How often the run will stop, what a stop costs, and what is left of one that is going on.

Pure. numpy comes in as an argument.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

from tracker.core.forecast.change import Change
from tracker.core.forecast.draws import even, normal
from tracker.core.forecast.prior import Priors
from tracker.core.forecast.state import State, Stop

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_POOL: Final = 60
_GROUPS: Final = 24
_H: Final = 3600.0
_MOST_STOPS: Final = 1_000_000
_MANY: Final = 30
"""Stops expected, from which on their number is a normal one with a skew."""
_ONE_BY_ONE: Final = 64
"""Stops of a play whose costs are drawn each on its own."""


def hazard_belief(np: Any, rng: Any, p: Priors, *, seen: float, watched: float, plays: int) -> Array:
    """Return draws of the rate of stops, a GPU-hour, after so many in so many GPU-hours.

    The log of the rate is normal before, around one in `device_mtbf_h`; counts are Poisson. Trap: a Gamma
    belief of the same width has so thin a tail that a run which fails ten times more often than others was
    still expected, after eight failures, to fail three times less often than it does. This one believes it.
    """
    centre = -math.log(p.device_mtbf_h)
    low, high = centre - 6 * p.device_mtbf_sd, centre + 6 * p.device_mtbf_sd
    if seen > 0 and watched > 0:
        high = max(high, math.log(seen / watched) + 3)  # what was seen may lie beyond any belief
    grid = np.linspace(low, high, 1201)
    weight = seen * grid - watched * np.exp(grid) - 0.5 * ((grid - centre) / p.device_mtbf_sd) ** 2
    share = np.cumsum(np.exp(weight - weight.max()))
    drawn: Array = np.exp(np.interp(rng.random(plays), share / share[-1], grid))
    return drawn


def bunching_belief(state: State, p: Priors) -> float:
    """Return variance over mean of how many stops come: a belief, and the scatter of this run's own gaps.

    The squared coefficient of variation of the gaps (running time between two stops): 1 where stops come
    by chance alone, more where one brings another or the rate itself changes.
    """
    gaps = [s.work_s + s.checkpoint_s + s.evaluation_s + s.other_s for s in state.stretches[:-1]]
    if len(gaps) < 3:
        return p.bunching
    mean = sum(gaps) / len(gaps)
    scatter = sum((g - mean) ** 2 for g in gaps) / (len(gaps) - 1) / mean**2 if mean > 0 else 1.0
    whole = (p.bunching_weight * p.bunching + len(gaps) * scatter) / (p.bunching_weight + len(gaps))
    return min(max(whole, 1.0), 6.0)


def weighted(stops: Sequence[Stop], state: State, p: Priors) -> tuple[float, float]:
    """Return how many stops were seen in how many GPU-hours of running, the recent ones counting more."""
    total = sum(s.work_s + s.checkpoint_s + s.evaluation_s + s.other_s for s in state.stretches)
    half = max(total * p.recent_share, 1.0)
    after = 0.0
    watched = seen = 0.0
    waiting = sorted(stops, key=lambda s: s.at_us)
    for stretch in reversed(state.stretches):
        own = stretch.work_s + stretch.checkpoint_s + stretch.evaluation_s + stretch.other_s
        while waiting and waiting[-1].at_us >= stretch.end_us:
            waiting.pop()
            seen += 0.5 ** (after / half)
        weight = 0.5 ** ((after + own / 2) / half)
        watched += weight * own / _H * stretch.gpus
        after += own
    seen += sum(0.5 ** (after / half) for _ in waiting)
    return seen, watched


@dataclass(slots=True)
class Costs:
    """What a stop may cost: calendar seconds, allocated seconds, and how much each value is trusted."""

    wall: list[float]
    billed: list[float]
    wait: list[float]
    weight: list[float]

    def add(self, wait: float, again: float, billed: float, weight: float) -> None:
        """Add a stop of so much waiting and so much redone work."""
        self.wall.append(wait + again)
        self.billed.append(min(max(billed, 0.0), wait + again))
        self.wait.append(wait)
        self.weight.append(weight)


def pool_of(
    stops: Sequence[Stop],
    state: State,
    p: Priors,
    change: Change,
    median_s: float,
    sd: float,
    *,
    redo: bool,
) -> Costs:
    """Return what a stop may cost: this run's own stops under the change, and a belief beside them."""
    own = list(stops)[-_POOL:]
    seen = Costs([], [], [], [])
    for back, stop in enumerate(reversed(own)):
        seen.add(stop.wait_s, stop.redo_s, stop.billed_s, max(0.3, 0.5 ** (back / max(len(own), 10))))
    scale = 1.0
    if change.checkpoint_every_s is not None and state.save_every_s:
        scale = change.checkpoint_every_s / state.save_every_s
    merged, costs = _merged(seen), Costs([], [], [], [])  # merged as they were: a choice changes no order
    for n, wait in enumerate(merged.wait):
        redone = merged.wall[n] - wait
        again = redone * scale
        paid = merged.billed[n] + again - redone
        if change.restart_s is not None:
            paid, wait = paid + change.restart_s - wait, change.restart_s
        costs.add(wait, again, paid, merged.weight[n])
    every = change.checkpoint_every_s or state.save_every_s or p.save_every_s
    median = change.restart_s if change.restart_s is not None and redo else median_s
    for number in range(9):
        wait = median * math.exp(sd * NormalDist().inv_cdf((number + 0.5) / 9))
        again = p.redo_share * every * 2 * ((number * 5 % 9 + 0.5) / 9) if redo else 0.0
        costs.add(wait, again, 0.8 * wait + again, p.cost_weight / 9)
    return costs


def _merged(costs: Costs) -> Costs:
    """Return many values as few, neighbours in size averaged by weight: quicker, and all but the same."""
    size = len(costs.wall)
    if size <= _GROUPS:
        return costs
    order = sorted(range(size), key=lambda i: costs.wall[i])
    made = Costs([], [], [], [])
    for group in range(_GROUPS):
        some = order[size * group // _GROUPS : size * (group + 1) // _GROUPS]
        weight = sum(costs.weight[i] for i in some)
        for name in ("wall", "billed", "wait"):
            values = getattr(costs, name)
            getattr(made, name).append(sum(values[i] * costs.weight[i] for i in some) / weight)
        made.weight.append(weight)
    return made


def counts(rng: Any, np: Any, expected: Array, bunching: float) -> Array:
    """Return negative binomial counts, variance over mean `bunching`: each the quantile of one probability.

    So the same play of another choice has the same luck: it differs by what the choice changes alone.
    """
    chance, z = even(rng, np, len(expected))
    expected = np.minimum(expected, _MOST_STOPS)
    sd = np.sqrt(bunching * np.maximum(expected, 1e-12))
    many = np.rint(np.maximum(expected + sd * z + (z * z - 1) * (2 * bunching - 1) / 6, 0.0))
    few = expected < _MANY
    mean, excess = np.where(few, expected, 0.0), max(bunching - 1, 1e-9)
    mass = np.exp(-mean * math.log1p(excess) / excess)
    reached, count = mass.copy(), np.zeros(len(mean))
    for k in range(20 * _MANY):
        above = chance > reached
        if not above.any():
            break
        count += above
        mass *= (mean + k * excess) / (k + 1) / (1 + excess)
        reached += mass
    made: Array = np.where(few, count, many)
    return made


def cost(rng: Any, np: Any, count: Array, costs: Costs) -> tuple[Array, Array]:
    """Return what `count` stops cost together: calendar seconds and allocated seconds.

    The first stops are drawn one by one, so that the third of a play is the same stop however many come.
    """
    plays, size = len(count), len(costs.weight)
    weights = rng.gamma(np.asarray(costs.weight), 1.0, (plays, size)) + 1e-12
    weights /= weights.sum(axis=1, keepdims=True)
    edges = np.cumsum(weights, axis=1)[:, :-1]
    each = np.asarray([costs.wall, costs.billed])
    whole = np.zeros((2, plays))
    _, z = even(rng, np, plays)
    for number in range(int(min(count.max(), _ONE_BY_ONE))):
        chance = rng.random(plays)
        (some,) = np.nonzero(count > number)
        whole[:, some] += each[:, (chance[some, None] > edges[some]).sum(axis=1)]
    more = np.maximum(count - _ONE_BY_ONE, 0)
    if more.any():  # so many that only their mean and its scatter matter
        mean = each @ weights.T
        scatter = np.sqrt(np.maximum((each**2) @ weights.T - mean**2, 0.0) * more)
        whole += np.maximum(more * mean + scatter * z, 0.0)
    return whole[0], whole[1]


def open_stop(
    rng: Any,
    np: Any,
    state: State,
    p: Priors,
    pool: Costs,
    outages: Costs,
    plays: int,
    measured: bool,
) -> tuple[Array, Array]:
    """Return what is left of the stop that is going on, given how long it has lasted, and its allocated part.

    While nothing is allocated, waiting costs nothing: only the start-up and the redone work will.
    """
    if not state.open_stop and state.stretches:
        return np.zeros(plays), np.zeros(plays)
    if not state.stretches and not state.open_stop:
        first = p.startup_s * np.exp(p.wait_sd * normal(rng, np, plays))
        return first, first
    quiet = state.quiet_s
    values: list[float] = []
    again: list[float] = []
    weights: list[float] = []
    for wait, wall, weight in zip(pool.wait, pool.wall, pool.weight, strict=True):
        if wait > quiet:
            redo = 0.0 if state.resumed else wall - wait
            values.append(wait - quiet + redo)
            again.append(redo)
            weights.append(weight)
    for wait, weight in zip(outages.wait, outages.weight, strict=True):
        if wait > quiet:
            values.append(wait - quiet)
            again.append(0.0)
            weights.append(weight * 0.05)
    for factor in (0.1, 0.3, 0.6, 1.0, 2.0, 4.0):  # what has lasted long may last as long again
        values.append(max(factor * quiet, 60.0))
        again.append(0.0)
        weights.append(0.1 if measured else 0.3)
    chance = np.asarray(weights) / sum(weights)
    which = rng.choice(len(values), plays, p=chance)
    noise = np.exp(0.2 * normal(rng, np, plays))
    chosen = np.asarray(values)[which] * noise
    if state.phase != "down":
        return chosen, 0.8 * chosen
    redone = np.asarray(again)[which] * noise
    return chosen, redone + np.minimum(chosen - redone, p.startup_s)
