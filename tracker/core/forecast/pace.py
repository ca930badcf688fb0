"""How fast the work that is left will go: the rate of steps, and what goes on between them.

Pure; plain floats, no numpy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from tracker.core.forecast.change import Change
from tracker.core.forecast.prior import Priors
from tracker.core.forecast.state import State

SEGMENTS: Final = 12
"""Pieces of equal work that the past is told in."""
ONE_READING_S: Final = 3600.0
"""Work that one reading has to tell of, to count for more than the plan."""
WARM_UP: Final = 0.04
"""Log of how far the rate rises in a warm-up, at least."""
WARM_UP_CLEAR: Final = 25.0
"""How much better a rise and a level tell the past than a level alone does (an F ratio)."""
_FAR: Final = 2.3
"""Standard deviations of the planned rate, from which on the one reading so far is told (a factor of 1.5)."""
_TENTH: Final = 1.15
"""Standard deviations of the heavy-tailed spread, beyond which a tenth lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateBelief:
    """Log of tokens a second and GPU of productive time, averaged over what is left."""

    mean: float
    sd: float
    measured: bool
    reading: float | None = None
    """Log of the rate of the one reading so far, where that is far outside of the planned rate's range."""


class NoAnswer(Exception):
    """Nothing can be said; the message says which one fact is missing."""


def rate_belief(state: State, plan_rate: float | None, p: Priors) -> RateBelief:
    """Return what is believed of the mean rate over what is left: log tokens a second and GPU.

    A local level: twelve pieces of equal work, x(k) = level + noise, the level walks. Noise and walk are
    estimated from the differences of neighbours and drawn towards a belief; the mean of a walk ahead has a
    third of its last variance, which grows with less than the length ahead: part of what wanders comes back.
    """
    x, weights = _segments(state)
    reading = None
    if len(x) == 1 and state.work_s < ONE_READING_S and plan_rate:
        if abs(x[0] - math.log(plan_rate)) > _FAR * p.plan_rate_sd:
            reading = x[0]
        x = []  # its pace may be the start-up's
    if not x:
        if plan_rate is None or plan_rate <= 0:
            raise NoAnswer(
                "no rate: no step was seen, and the plan has no active_params, peak (hardware.gpu) and mfu "
                "to expect one from"
            )
        return RateBelief(mean=math.log(plan_rate), sd=p.plan_rate_sd, measured=False, reading=reading)
    n = len(x)
    ends = _warmed_up(x)
    if ends and n - ends > 4:
        ends += 1  # the piece in which it ended is a mixture
    x, weights = x[ends:], weights[ends:]  # the rise of a warm-up is over: no sign of what is to come
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
    wander = walk * n / 3 * min(ahead, 6.0) ** p.wander_power
    total = var + wander + p.floor_sd**2 + p.horizon_sd**2 * min(ahead, 9.0)
    if n < SEGMENTS:  # told in few pieces: a whole run of them may be of another kind
        total += p.coarse_sd**2 * (SEGMENTS - n) / SEGMENTS * min(ahead, 2.0)
    return RateBelief(mean=mean, sd=math.sqrt(total), measured=True)


def reached(belief: RateBelief, spread: Any, np: Any) -> Any:
    """Return draws of the log rate around its mean, drawn out on the side of a reading that they do not hold.

    A tenth of all draws lie beyond the reading, none by more than the plan's own spread.
    """
    if belief.reading is None:
        return spread
    gap = belief.reading - belief.mean
    side = spread * gap > 0
    far = np.minimum(np.abs(spread) * abs(gap) / (_TENTH * belief.sd), abs(gap) + belief.sd)
    return np.where(side, math.copysign(1.0, gap) * far, spread)


def _segments(state: State) -> tuple[list[float], list[float]]:
    """Return the log rate of up to twelve pieces of equal work, and their share of a full piece."""
    blocks = [b for b in state.blocks if b.work_s > 0 and b.tokens > 0]
    whole = sum(b.work_s for b in blocks)
    if whole <= 0:
        return [], []
    size = whole / min(SEGMENTS, len(blocks))
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


def _warmed_up(x: Sequence[float]) -> int:
    """Return the piece with which a rise at the start of the run (batch ramp-up, tuning) has ended; 0: none.

    A line that rises and then is level, where that tells far more than a level alone, and at least three
    level pieces have come since. Trap: taken for wandering, a ramp doubles the range for half of the run.
    """
    n = len(x)
    whole = _squares(x)
    best, found = whole, 0
    for end in range(1, n - 2):
        t = [min(i - end, 0) for i in range(n)]
        middle, mean = sum(t) / n, sum(x) / n
        spread = sum((a - middle) ** 2 for a in t)
        slope = sum((a - middle) * (v - mean) for a, v in zip(t, x, strict=True)) / spread
        left = whole - slope**2 * spread
        if slope > 0 and left < best and slope * end > WARM_UP:
            best, found = left, end
    rest = n - 3
    if not found or (whole - best) * rest < WARM_UP_CLEAR * max(best, 1e-9):
        return 0
    return found


def _squares(x: Sequence[float]) -> float:
    mean = sum(x) / len(x)
    return sum((v - mean) ** 2 for v in x)


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
