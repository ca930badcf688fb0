"""The rest of the run played many times: when it finishes, and the GPU-hours it takes.

Pure. numpy, loaded when called; a fixed seed for each (run, as_of), so the same input gives the same
output. One play draws

    rate      a level that wanders: a local level with the noise and walk of this run's own blocks
    overhead  evaluation, saves and hiccups for a second of work
    stops     how many (negative binomial: the rate of a Gamma, bunched) and what they cost together
              (multinomial over this run's own stops and a belief, weights by Dirichlet)
    outages   the same for rare long stops, by calendar
    open      what is left of a stop that is going on, given that it has lasted so long
    stages    the rate of stages that have not begun

and adds them up:  finish = now + open + sum over stages of work (1 + overhead) + stops + outages.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

from tracker.core.forecast.prior import DEFAULT, Priors
from tracker.core.forecast.state import State, Stop

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

VERSION: Final = 1
"""Raised when the same state gives another answer."""
PLAYS: Final = 4000
_SEGMENTS: Final = 12
_POOL: Final = 60
_GROUPS: Final = 24
_H: Final = 3600.0
_DAY: Final = 86400.0
_MOST_STOPS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A choice that a forecast is asked under; None: as it is."""

    gpus: int | None = None
    mfu_factor: float = 1.0
    """New over present rate per GPU."""
    restart_s: float | None = None
    checkpoint_every_s: float | None = None
    mtbf_factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RateBelief:
    """Log of tokens a second and GPU of productive time, averaged over what is left."""

    mean: float
    sd: float
    measured: bool


@dataclass(slots=True)
class Plays:
    """What came out, one element a play."""

    wall_s: Array
    """From `as_of` to the finish, seconds."""
    gpu_hours: Array | None
    """From `as_of` to the finish; None without a GPU count."""
    drivers: dict[str, Array] = field(default_factory=dict)
    """Seconds of the finish that each input is responsible for."""
    rate: RateBelief | None = None
    goodput: float = 1.0
    """Work over wall, means."""
    mtbf_gpu_hours: float | None = None
    stop_s: float | None = None


class NoAnswer(Exception):
    """Nothing can be said; the message says which one fact is missing."""


def seed_of(state: State) -> int:
    """Return the seed of a run at a moment."""
    return int.from_bytes(hashlib.sha256(f"{state.run}|{state.as_of_us}".encode()).digest()[:8], "big")


def play(
    state: State,
    *,
    plan_rate: float | None,
    change: Change | None = None,
    priors: Priors = DEFAULT,
    plays: int = PLAYS,
    not_before_us: int | None = None,
) -> Plays:
    """Play the rest of a run. `plan_rate`: tokens a second and GPU that the plan expects.

    Raises NoAnswer where neither the run nor the plan tells a rate.
    """
    import numpy as np

    # a stream of its own for each input, so that a choice that changes one leaves the others alone
    seeds = np.random.SeedSequence(seed_of(state)).spawn(8)
    pace, later_rng, idle, hazards, ordinary_rng, planned_rng, outage_rng, opening = (
        np.random.default_rng(seed) for seed in seeds
    )
    change = change or Change()
    p = priors
    world0 = state.world or 1
    world = change.gpus or world0
    billed = (state.gpus or world0) if change.gpus is None else change.gpus
    belief = rate_belief(state, plan_rate, p)
    factors = _factors(state, world)
    ahead = sum(tokens * factor / gpus for tokens, factor, gpus in factors)  # tokens per GPU, in units of now

    # rate
    z = _normal(pace, np, plays) * _heavy(pace, np, plays, p.tail)
    sd = belief.sd
    if world != world0:
        sd = math.hypot(sd, p.scaling_sd * abs(math.log(world / world0)))
    log_rate = belief.mean + math.log(change.mfu_factor) + sd * z
    rate = np.exp(log_rate)
    middle = math.exp(belief.mean) * change.mfu_factor
    begun = sum(t * f / g for (t, f, g), s in zip(factors, state.stages, strict=True) if s.current)
    later = ahead - begun
    stage_z = np.exp(p.stage_sd * _normal(later_rng, np, plays)) if later > 0 else np.ones(plays)
    work = begun / rate + later / rate * stage_z

    # overhead
    ratio, ratio_sd = overhead_belief(state, p, change)
    overhead = ratio * np.exp(ratio_sd * _normal(idle, np, plays) - 0.5 * ratio_sd**2)
    running = work * (1 + overhead)

    # stops
    mean_gpus = world
    ordinary = [s for s in state.stops if not s.planned and s.wait_s + s.redo_s <= p.outage_s]
    outages = [s for s in state.stops if s.wait_s + s.redo_s > p.outage_s]
    planned = [s for s in state.stops if s.planned and s.wait_s + s.redo_s <= p.outage_s]
    past_h = sum(s.work_s + s.checkpoint_s + s.evaluation_s + s.other_s for s in state.stretches) / _H
    ahead_ratio = float(np.median(running)) / _H / past_h if past_h > 0 else 50.0
    wander = p.hazard_sd * math.sqrt(min(ahead_ratio, 4.0))
    pool = _pool(ordinary, state, p, change, p.wait_s, p.wait_sd, redo=True)
    seen, watched = _weighted(ordinary, state, p)
    shape = p.mtbf_shape + seen / p.bunching
    scale = p.mtbf_shape * p.device_mtbf_h + watched / p.bunching
    luck = np.exp(wander * _normal(hazards, np, plays) - wander**2 / 2)
    hazard = hazards.gamma(shape, 1.0, plays) / scale * luck
    expected = hazard / change.mtbf_factor * running / _H * mean_gpus
    count = _counts(ordinary_rng, np, expected, p.bunching)
    stop_s, stop_billed = _cost(ordinary_rng, np, count, pool)

    planned_pool = _pool(planned, state, p, change, p.planned_s, p.wait_sd, redo=False)
    planned_rate = planned_rng.gamma(p.planned_shape + len(planned), 1.0, plays) / (
        p.planned_shape * p.planned_days * 24 + past_h
    )
    planned_count = _counts(planned_rng, np, planned_rate * running / _H, 1.0)
    planned_s, planned_billed = _cost(planned_rng, np, planned_count, planned_pool)

    outage_pool = _pool(outages, state, p, Change(), p.outage_median_s, p.outage_sd, redo=False)
    outage_rate = outage_rng.gamma(p.outage_shape + len(outages), 1.0, plays) / (
        p.outage_shape * p.outage_days * 24 + _calendar_h(state)
    )
    outage_count = _counts(outage_rng, np, outage_rate * running / _H, 1.0)
    outage_s, outage_billed = _cost(outage_rng, np, outage_count, outage_pool)

    open_s, open_billed = _open(opening, np, state, p, pool, outage_pool, plays, belief.measured)
    if not_before_us is not None and not state.stretches:
        open_s = open_s + max(0, not_before_us - state.as_of_us) / 1e6
    wall = running + stop_s + planned_s + outage_s + open_s
    if not state.open_stop and belief.measured:
        credit = np.minimum(state.quiet_s, running)  # worked since the last line, not yet told
        wall = np.maximum(wall - credit, 1.0)
        running = running - credit
    gpu_hours = None
    if state.gpus is not None:
        held = running * _gpus_held(state, factors, billed, world, ahead)
        gpu_hours = (held + (stop_billed + planned_billed + outage_billed + open_billed) * billed) / _H
    narrow = _narrowed(state, ahead_ratio, p)
    if narrow != 1.0:
        wall = _drawn_in(np, wall, narrow)
        gpu_hours = _drawn_in(np, gpu_hours, narrow) if gpu_hours is not None else None
    base_work = ahead / middle
    drivers = {
        "rate": (1 + ratio) * (begun / rate + later / rate),
        "stages": (1 + ratio) * later / middle * stage_z,
        "overhead": base_work * overhead,
        "stops": stop_s + planned_s,
        "outages": outage_s,
        "start": open_s,
    }
    total = float(np.mean(wall))
    mean_stop = float(np.sum(stop_s) / max(float(np.sum(count)), 1.0)) if np.any(count) else None
    return Plays(
        wall_s=wall,
        gpu_hours=gpu_hours,
        drivers=drivers,
        rate=replace(belief, mean=math.log(middle)),
        goodput=float(np.mean(work)) / max(total - float(np.mean(open_s)), 1e-9),
        mtbf_gpu_hours=float(scale / shape),
        stop_s=mean_stop,
    )


def _narrowed(state: State, ahead_ratio: float, p: Priors) -> float:
    """Return by how much the range of an early forecast is drawn in: 1 from a quarter done on.

    Early, doubts add up that are partly the same (the rate of stops, their bunching, outages): on
    simulated runs the plain range held the truth in 87 % instead of 80 %. Not for a run told in few pieces.
    """
    if len(state.blocks) < _SEGMENTS or not state.stretches:
        return 1.0
    return 1.0 - p.early_share * min(max((ahead_ratio - 3.0) / 6.0, 0.0), 1.0)


def _drawn_in(np: Any, values: Array, factor: float) -> Array:
    middle = np.median(values)
    made: Array = middle * np.exp(np.log(np.maximum(values, 1e-9) / middle) * factor)
    return made


# -- rate -------------------------------------------------------------------------------------------


def rate_belief(state: State, plan_rate: float | None, p: Priors) -> RateBelief:
    """Return what is believed of the mean rate over what is left: log tokens a second and GPU.

    A local level: twelve pieces of equal work, x(k) = level + noise, the level walks. Noise and walk are
    estimated from the differences of neighbours and drawn towards a belief; over h pasts ahead the mean
    of a walk has a third of its last variance.
    """
    x, weights = _segments(state)
    if not x:
        if plan_rate is None or plan_rate <= 0:
            raise NoAnswer(
                "no rate: no step was seen, and the plan has no active_params, peak (hardware.gpu) and mfu "
                "to expect one from"
            )
        return RateBelief(mean=math.log(plan_rate), sd=p.plan_rate_sd, measured=False)
    n = len(x)
    d = [b - a for a, b in pairwise(x)]
    fade = [0.8 ** (len(d) - 1 - i) for i in range(len(d))]
    mass = sum(fade)
    usual = sorted(abs(v) for v in d)[len(d) // 2] if d else 0.0
    most_d = max(3 * usual, 0.03)
    d = [min(max(v, -most_d), most_d) for v in d]
    both = sum(f * v * v for f, v in zip(fade, d, strict=True))
    lagged = sum(f * a * b for f, a, b in zip(fade[1:], d, d[1:], strict=False))
    own_noise = max(0.0, -lagged)
    own_walk = max(0.0, both - 2 * own_noise)
    noise = (p.step_weight * p.noise_sd**2 + own_noise) / (p.step_weight + mass)
    walk = (p.step_weight * p.step_sd**2 + own_walk) / (p.step_weight + mass)
    level, var = x[0], noise + 0.04
    for value, weight in zip(x[1:], weights[1:], strict=True):
        var += walk
        whole = var + noise / max(weight, 0.1)
        most_x = p.surprise * math.sqrt(whole)
        surprise = min(max(value - level, -most_x), most_x)  # one odd piece is not yet another rate
        missed = abs(value - level) - abs(surprise)
        level += var / whole * surprise
        var *= 1 - var / whole
        var += (0.3 * missed) ** 2
    left = (state.left_tokens or 0.0) / math.exp(level) / (state.world or 1)
    ahead = left / state.work_s if state.work_s > 0 else 1.0
    trend = p.trend_share * _trend(x, walk, noise)
    reach = min(ahead * n, float(n))
    mean = level + trend * (reach / 2 if ahead * n <= n else n / 2)
    total = var + walk * min(ahead, 6.0) * n / 3 + p.floor_sd**2 + p.horizon_sd**2 * min(ahead, 9.0)
    if n < _SEGMENTS:  # told in few pieces: a whole run of them may be of another kind
        total += p.coarse_sd**2 * (_SEGMENTS - n) / _SEGMENTS * min(ahead, 2.0)
    return RateBelief(mean=mean, sd=math.sqrt(total), measured=True)


def _segments(state: State) -> tuple[list[float], list[float]]:
    """Return the log rate of up to twelve pieces of equal work, and their share of a full piece."""
    blocks = [b for b in state.blocks if b.work_s > 0 and b.tokens > 0]
    whole = sum(b.work_s for b in blocks)
    if whole <= 0:
        return [], []
    size = whole / min(_SEGMENTS, len(blocks))
    x: list[float] = []
    weights: list[float] = []
    tokens = gpu_s = work = 0.0
    for block in blocks:
        rest = block.work_s
        while rest > 0:
            part = min(rest, size - work)
            if part <= 1e-9 * size:
                part = rest
            tokens += block.tokens * part / block.work_s
            gpu_s += part * block.gpus
            work += part
            rest -= part
            if work >= size * (1 - 1e-6):
                x.append(math.log(tokens / gpu_s))
                weights.append(work / size)
                tokens = gpu_s = work = 0.0
    if work > 0.2 * size:
        x.append(math.log(tokens / gpu_s))
        weights.append(work / size)
    return x, weights


def _trend(x: Sequence[float], walk: float, noise: float) -> float:
    """Return the slope of the last two thirds a piece, shrunk by its own uncertainty."""
    n = max(3, round(len(x) * 2 / 3))
    if len(x) < 8:
        return 0.0
    last = x[-n:]
    middle = (n - 1) / 2
    spread = sum((i - middle) ** 2 for i in range(n))
    slope = sum((i - middle) * v for i, v in enumerate(last)) / spread
    var = noise / spread + walk * 1.2 / n
    keep = max(0.0, 1 - 2 * var / slope**2) if slope else 0.0
    return max(-0.05, min(0.05, slope * keep))


# -- overhead and stops -----------------------------------------------------------------------------


def overhead_belief(state: State, p: Priors, change: Change) -> tuple[float, float]:
    """Return evaluation, saves and hiccups for a second of work, and its spread (log)."""
    whole = sum(s.work_s for s in state.stretches)
    half = max(whole * p.recent_share, 1.0)
    work = saves = rest = odd = done = 0.0
    for stretch in reversed(state.stretches):
        weight = 0.5 ** ((done + stretch.work_s / 2) / half)
        work += weight * stretch.work_s
        saves += weight * stretch.checkpoint_s
        rest += weight * (stretch.evaluation_s + stretch.other_s)
        odd += weight * stretch.other_s
        done += stretch.work_s
    if change.checkpoint_every_s is not None and state.save_every_s:
        saves *= state.save_every_s / change.checkpoint_every_s
    belief = min(p.overhead_weight_s, 0.5 * whole if whole > 0 else p.overhead_weight_s)
    ratio = (saves + rest + p.overhead_ratio * belief) / (work + belief)
    unexplained = odd / (saves + rest) if saves + rest > 0 else 0.0
    return ratio, p.overhead_sd + 0.6 * belief / (work + belief) + p.other_sd * unexplained


def _weighted(stops: Sequence[Stop], state: State, p: Priors) -> tuple[float, float]:
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
class _Costs:
    """What a stop may cost: calendar seconds, allocated seconds, and how much each value is trusted."""

    wall: list[float]
    billed: list[float]
    wait: list[float]
    weight: list[float]


def _pool(
    stops: Sequence[Stop],
    state: State,
    p: Priors,
    change: Change,
    median_s: float,
    sd: float,
    *,
    redo: bool,
) -> _Costs:
    costs = _Costs([], [], [], [])
    every = change.checkpoint_every_s or state.save_every_s or p.save_every_s
    scale = 1.0
    if change.checkpoint_every_s is not None and state.save_every_s:
        scale = change.checkpoint_every_s / state.save_every_s
    own = list(stops)[-_POOL:]
    for back, stop in enumerate(reversed(own)):
        wait, again, billed = stop.wait_s, stop.redo_s * scale, stop.billed_s
        billed += again - stop.redo_s
        if change.restart_s is not None:
            billed += change.restart_s - wait
            wait = change.restart_s
        costs.wall.append(wait + again)
        costs.billed.append(min(max(billed, 0.0), wait + again))
        costs.wait.append(wait)
        costs.weight.append(max(0.3, 0.5 ** (back / max(len(own), 10))))
    costs = _merged(costs)
    median = change.restart_s if change.restart_s is not None and redo else median_s
    for number in range(9):
        z = NormalDist().inv_cdf((number + 0.5) / 9)
        wait = median * math.exp(sd * z)
        again = p.redo_share * every * 2 * ((number * 5 % 9 + 0.5) / 9) if redo else 0.0
        costs.wall.append(wait + again)
        costs.billed.append(0.8 * wait + again)
        costs.wait.append(wait)
        costs.weight.append(p.cost_weight / 9)
    return costs


def _merged(costs: _Costs) -> _Costs:
    """Return many values as few, neighbours in size averaged by weight: quicker, and all but the same."""
    size = len(costs.wall)
    if size <= _GROUPS:
        return costs
    order = sorted(range(size), key=lambda i: costs.wall[i])
    made = _Costs([], [], [], [])
    for group in range(_GROUPS):
        some = order[size * group // _GROUPS : size * (group + 1) // _GROUPS]
        weight = sum(costs.weight[i] for i in some)
        for name in ("wall", "billed", "wait"):
            values = getattr(costs, name)
            getattr(made, name).append(sum(values[i] * costs.weight[i] for i in some) / weight)
        made.weight.append(weight)
    return made


def _counts(rng: Any, np: Any, expected: Array, bunching: float) -> Any:
    """Return negative binomial counts: variance over mean is `bunching`."""
    expected = np.minimum(expected, _MOST_STOPS)
    if bunching > 1:
        expected = rng.gamma(np.maximum(expected, 1e-12) / (bunching - 1), bunching - 1)
    return rng.poisson(np.minimum(expected, _MOST_STOPS))


def _cost(rng: Any, np: Any, count: Any, costs: _Costs) -> tuple[Array, Array]:
    """Return what `count` stops cost together: calendar seconds and allocated seconds."""
    n = len(count)
    weights = rng.gamma(np.asarray(costs.weight), 1.0, (n, len(costs.weight))) + 1e-12
    weights /= weights.sum(axis=1, keepdims=True)
    drawn = rng.multinomial(count, weights)
    return drawn @ np.asarray(costs.wall), drawn @ np.asarray(costs.billed)


def _open(
    rng: Any,
    np: Any,
    state: State,
    p: Priors,
    pool: _Costs,
    outages: _Costs,
    plays: int,
    measured: bool,
) -> tuple[Array, Array]:
    """Return what is left of the stop that is going on: it has lasted so long already."""
    if not state.open_stop and state.stretches:
        return np.zeros(plays), np.zeros(plays)
    if not state.stretches and not state.open_stop:
        first = p.startup_s * np.exp(p.wait_sd * _normal(rng, np, plays))
        return first, first
    quiet = state.quiet_s
    values: list[float] = []
    weights: list[float] = []
    for wait, wall, weight in zip(pool.wait, pool.wall, pool.weight, strict=True):
        if wait > quiet:
            values.append(wait - quiet + (0.0 if state.resumed else wall - wait))
            weights.append(weight)
    for wait, weight in zip(outages.wait, outages.weight, strict=True):
        if wait > quiet:
            values.append(wait - quiet)
            weights.append(weight * 0.05)
    for factor in (0.1, 0.3, 0.6, 1.0, 2.0, 4.0):  # what has lasted long may last as long again
        values.append(max(factor * quiet, 60.0))
        weights.append(0.1 if measured else 0.3)
    chance = np.asarray(weights) / sum(weights)
    chosen = np.asarray(values)[rng.choice(len(values), plays, p=chance)]
    chosen = chosen * np.exp(0.2 * _normal(rng, np, plays))
    return chosen, 0.8 * chosen


def _calendar_h(state: State) -> float:
    return (state.as_of_us - state.start_us) / 1e6 / _H if state.start_us is not None else 0.0


def _factors(state: State, world: int) -> list[tuple[float, float, int]]:
    return [(s.tokens, s.cost_factor, s.gpus or world) for s in state.stages]


def _gpus_held(
    state: State, factors: Sequence[tuple[float, float, int]], billed: int, world: int, ahead: float
) -> float:
    """Return the GPUs billed on average over the work that is left."""
    if ahead <= 0:
        return float(billed)
    held = 0.0
    for (tokens, factor, gpus), stage in zip(factors, state.stages, strict=True):
        own = billed if stage.gpus is None else gpus
        held += tokens * factor / gpus / ahead * own
    return held


_CENTRES: Final[dict[int, Any]] = {}


def _normal(rng: Any, np: Any, plays: int) -> Array:
    """Return standard normals at evenly spaced probabilities in random order: less noise than random ones."""
    if plays not in _CENTRES:
        inverse = NormalDist().inv_cdf
        _CENTRES[plays] = np.asarray([inverse((i + 0.5) / plays) for i in range(plays)])
    made: Array = rng.permutation(_CENTRES[plays])
    return made


def _heavy(rng: Any, np: Any, plays: int, freedom: float) -> Array:
    """Return factors that turn normals into Student's t of the same variance."""
    made: Array = np.sqrt((freedom - 2) / rng.chisquare(freedom, plays))
    return made
