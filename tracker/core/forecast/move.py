"""Why the finish moved since an earlier forecast: parts that sum to the move exactly.

Pure. The middle of a forecast is close to

    finish = as_of + wait + (target - done) / (rate x GPUs x goodput)

so the earlier one's numbers are exchanged for the present ones: first `progress` (the same beliefs, with
what was done and waited since), then wait, target, rate, goodput and GPUs, each by its mean effect over all
orders (Shapley). What the formula does not hold of the two medians is `range`. Sums are rounded cumulatively.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Final

from tracker.core.forecast.section import tokens_said
from tracker.core.forecast.value import Forecast, Inputs, Move, Part

FACTORS: Final = ("tokens", "rate", "goodput", "plan", "start")


def move_since(before: Forecast, now: Forecast) -> Move | None:
    """Return how the median moved; None where either has none."""
    if before.finish_us is None or now.finish_us is None or before.inputs is None or now.inputs is None:
        return None
    old, new = before.finish_us.p50, now.finish_us.p50
    if old is None or new is None:
        return None
    was, are = before.inputs, now.inputs
    start = _finish(before.as_of_us, was.done_tokens, _factors(was, was.wait_s))
    left_s = max(0.0, was.wait_s - (now.as_of_us - before.as_of_us) / 1e6)  # waited since
    then = _factors(was, left_s)
    held = _finish(now.as_of_us, are.done_tokens, then)
    parts = {"progress": held - start}
    parts |= _shapley(now.as_of_us, are.done_tokens, then, _factors(are, are.wait_s))
    whole = round(new - old)
    parts["range"] = whole - math.fsum(parts.values())
    return Move(since_us=before.as_of_us, us=whole, parts=_whole(parts, whole, before, now))


def _factors(i: Inputs, wait_s: float) -> dict[str, float]:
    return {
        "tokens": i.target_tokens,
        "rate": i.rate,
        "goodput": max(i.goodput_ratio, 1e-6),
        "plan": float(i.gpus),
        "start": wait_s,
    }


def _finish(as_of_us: int, done: float, f: Mapping[str, float]) -> float:
    work_s = max(0.0, f["tokens"] - done) / (f["rate"] * f["goodput"] * f["plan"])
    return as_of_us + (f["start"] + work_s) * 1e6


def _shapley(
    as_of_us: int, done: float, before: Mapping[str, float], after: Mapping[str, float]
) -> dict[str, float]:
    moving = [name for name in FACTORS if before[name] != after[name]]
    n = len(moving)

    def worth(names: tuple[str, ...]) -> float:
        return _finish(as_of_us, done, {**before, **{name: after[name] for name in names}})

    out = dict.fromkeys(FACTORS, 0.0)
    for name in moving:
        others = [m for m in moving if m != name]
        for size in range(n):
            weight = math.factorial(size) * math.factorial(n - size - 1) / math.factorial(n)
            for subset in combinations(others, size):
                out[name] += weight * (worth((*subset, name)) - worth(subset))
    return out


def _whole(parts: Mapping[str, float], whole: int, before: Forecast, now: Forecast) -> tuple[Part, ...]:
    assert before.inputs is not None
    assert now.inputs is not None
    why = _why(before, now, before.inputs, now.inputs)
    made: list[Part] = []
    reached, so_far = 0, 0.0
    names = list(parts)
    for name in names:
        so_far += parts[name]
        upto = whole if name == names[-1] else round(so_far)
        made.append(Part(name=name, us=upto - reached, why=why[name]))
        reached = upto
    return tuple(made)


def _why(before: Forecast, now: Forecast, was: Inputs, are: Inputs) -> dict[str, str]:
    came = are.done_tokens - was.done_tokens
    spent_s = (now.as_of_us - before.as_of_us) / 1e6
    expected = max(0.0, spent_s - was.wait_s) * was.rate * was.gpus * max(was.goodput_ratio, 1e-6)
    expected = min(expected, max(0.0, was.target_tokens - was.done_tokens))
    told = (
        f"{tokens_said(came)} tokens came" if came >= 0 else f"{tokens_said(-came)} tokens were thrown away"
    )
    return {
        "progress": f"{told}, {tokens_said(expected)} were expected in that time",
        "tokens": f"target {tokens_said(was.target_tokens)} -> {tokens_said(are.target_tokens)} tokens",
        "rate": f"{was.rate:,.0f} -> {are.rate:,.0f} tokens a second and GPU",
        "goodput": f"{was.goodput_ratio:.1%} -> {are.goodput_ratio:.1%} of the calendar to come productive",
        "plan": f"{was.gpus:,} -> {are.gpus:,} GPUs",
        "start": f"{are.wait_s / 3600:.1f} h until steps go on, of {was.wait_s / 3600:.1f} h expected then",
        "range": "chance of stops, and rounding of the range",
    }
