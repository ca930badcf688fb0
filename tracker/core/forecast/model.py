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
from typing import TYPE_CHECKING, Any, Final

from tracker.core.forecast.change import Change
from tracker.core.forecast.draws import heavy, normal
from tracker.core.forecast.pace import SEGMENTS, RateBelief, overhead_belief, rate_belief, reached
from tracker.core.forecast.prior import DEFAULT, Priors
from tracker.core.forecast.state import State
from tracker.core.forecast.stops import (
    bunching_belief,
    cost,
    counts,
    hazard_belief,
    open_stop,
    pool_of,
    weighted,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

VERSION: Final = 5
"""Raised when the same state gives another answer."""
PLAYS: Final = 4000
_H: Final = 3600.0


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
    """Work over wall, means, from the next step on: what is left of a stop that goes on is `open_s`."""
    mtbf_gpu_hours: float | None = None
    stop_s: float | None = None
    open_s: float = 0.0
    """Mean of what is left until steps go on."""


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
    seeds = np.random.SeedSequence(seed_of(state)).spawn(9)
    pace, later_rng, idle, hazards, ordinary_rng, planned_rng, outage_rng, opening, scaling = (
        np.random.default_rng(seed) for seed in seeds
    )
    change = change or Change()
    p = priors
    world0 = state.world or 1
    world = change.gpus or world0
    billed = state.gpus or world0
    if world != world0:
        billed = round(billed * world / world0)  # spares stay in proportion
    belief = rate_belief(state, plan_rate, p)
    factors = _factors(state, world)
    ahead = sum(tokens * factor / gpus for tokens, factor, gpus in factors)  # tokens per GPU, in units of now

    # rate
    z = normal(pace, np, plays) * heavy(pace, np, plays, p.tail)
    log_rate = belief.mean + math.log(change.mfu_factor) + reached(belief, belief.sd * z, np)
    if world != world0:  # what nobody knows of the other size is a doubt of the change, not of what is
        log_rate = log_rate + p.scaling_sd * abs(math.log(world / world0)) * normal(scaling, np, plays)
    rate = np.exp(log_rate)
    middle = math.exp(belief.mean) * change.mfu_factor
    begun = sum(t * f / g for (t, f, g), s in zip(factors, state.stages, strict=True) if s.current)
    later = ahead - begun
    stage_z = np.exp(p.stage_sd * normal(later_rng, np, plays)) if later > 0 else np.ones(plays)
    work = begun / rate + later / rate * stage_z

    # overhead
    ratio, ratio_sd = overhead_belief(state, p, change)
    overhead = ratio * np.exp(ratio_sd * normal(idle, np, plays) - 0.5 * ratio_sd**2)
    running = work * (1 + overhead)

    # stops
    mean_gpus, stop_gpus = _gpus_met(state, factors, billed, ahead)
    ordinary = [s for s in state.stops if not s.planned and s.wait_s + s.redo_s <= p.outage_s]
    outages = [s for s in state.stops if s.wait_s + s.redo_s > p.outage_s]
    planned = [s for s in state.stops if s.planned and s.wait_s + s.redo_s <= p.outage_s]
    past_h = sum(s.work_s + s.checkpoint_s + s.evaluation_s + s.other_s for s in state.stretches) / _H
    ahead_ratio = float(np.median(running)) / _H / past_h if past_h > 0 else 50.0
    wander = p.hazard_sd * math.sqrt(min(ahead_ratio, 4.0))
    pool = pool_of(ordinary, state, p, change, p.wait_s, p.wait_sd, redo=True)
    seen, watched = weighted(ordinary, state, p)
    luck = np.exp(wander * normal(hazards, np, plays) - wander**2 / 2)
    bunching = bunching_belief(state, p)
    rates = hazard_belief(np, hazards, p, seen=seen / bunching, watched=watched / bunching, plays=plays)
    hazard = rates * luck
    expected = hazard / change.mtbf_factor * running / _H * mean_gpus
    count = counts(ordinary_rng, np, expected, bunching)
    stop_s, stop_billed = cost(ordinary_rng, np, count, pool)

    planned_pool = pool_of(planned, state, p, change, p.planned_s, p.wait_sd, redo=False)
    planned_rate = planned_rng.gamma(p.planned_shape + len(planned), 1.0, plays) / (
        p.planned_shape * p.planned_days * 24 + past_h
    )
    planned_count = counts(planned_rng, np, planned_rate * running / _H, 1.0)
    planned_s, planned_billed = cost(planned_rng, np, planned_count, planned_pool)

    outage_pool = pool_of(outages, state, p, Change(), p.outage_median_s, p.outage_sd, redo=False)
    outage_rate = outage_rng.gamma(p.outage_shape + len(outages), 1.0, plays) / (
        p.outage_shape * p.outage_days * 24 + past_h
    )
    outage_count = counts(outage_rng, np, outage_rate * running / _H, 1.0)
    outage_s, outage_billed = cost(outage_rng, np, outage_count, outage_pool)

    open_s, open_billed = open_stop(opening, np, state, p, pool, outage_pool, plays, belief.measured)
    if not_before_us is not None and not state.stretches:
        open_s = open_s + max(0, not_before_us - state.as_of_us) / 1e6
    moving = running + stop_s + planned_s + outage_s
    wall = moving + open_s
    if not state.open_stop and belief.measured:
        credit = np.minimum(state.quiet_s, running)  # worked since the last line, not yet told
        wall = np.maximum(wall - credit, 1.0)
        running = running - credit
    gpu_hours = None
    if state.gpus is not None:
        held = running * _gpus_held(state, factors, billed, world, ahead)
        gpu_hours = (
            held + stop_billed * stop_gpus + (planned_billed + outage_billed + open_billed) * billed
        ) / _H
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
    mean_stop = float(np.sum(stop_s) / max(float(np.sum(count)), 1.0)) if np.any(count) else None
    return Plays(
        wall_s=wall,
        gpu_hours=gpu_hours,
        drivers=drivers,
        rate=replace(belief, mean=math.log(middle)),
        goodput=float(np.mean(work)) / max(float(np.mean(moving)), 1e-9),
        mtbf_gpu_hours=1.0 / float(np.mean(rates)),
        stop_s=mean_stop,
        open_s=float(np.mean(open_s)),
    )


def _narrowed(state: State, ahead_ratio: float, p: Priors) -> float:
    """Return by how much the range of an early forecast is drawn in: 1 from half done on.

    Early, doubts add up that are partly the same (the rate of stops, their bunching, outages): on simulated
    runs the plain range at a tenth done held the truth in 86 % instead of 80 %. Not where told in few pieces.
    """
    if len(state.blocks) < SEGMENTS or not state.stretches:
        return 1.0
    return 1.0 - p.early_share * min(max((ahead_ratio - 1.0) / 8.0, 0.0), 1.0)


def _drawn_in(np: Any, values: Array, factor: float) -> Array:
    middle = np.median(values)
    made: Array = middle * np.exp(np.log(np.maximum(values, 1e-9) / middle) * factor)
    return made


def _factors(state: State, world: int) -> list[tuple[float, float, int]]:
    return [(s.tokens, s.cost_factor, s.gpus or world) for s in state.stages]


def _gpus_met(
    state: State, factors: Sequence[tuple[float, float, int]], billed: int, ahead: float
) -> tuple[float, float]:
    """Return the GPUs that train, on average over the time that is left, and those billed when a stop comes.

    Stops come by GPU-hours: a stage on twice the GPUs has twice the stops, each of twice the GPUs.
    """
    sizes = {gpus for _, _, gpus in factors}
    if len(sizes) == 1 or ahead <= 0:
        return float(max(sizes, default=1)), float(billed)
    work = sum(tokens * factor for tokens, factor, _ in factors)
    met = sum(
        tokens * factor * (billed if stage.gpus is None else gpus)
        for (tokens, factor, gpus), stage in zip(factors, state.stages, strict=True)
    )
    return work / ahead, met / work


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
