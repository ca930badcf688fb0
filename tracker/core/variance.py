"""Why a run is ahead of or behind its plan, in parts that sum exactly.

Pure.

    T  tokens          F  FLOP per token      P  peak of one GPU     m  MFU
    r  redone work over productive time
    s  standing still after the last step of an attempt, over productive time
    o  all other unproductive time over productive time
    G  GPUs held       a  share of the calendar with an allocation

    GPU-hours = T F (1 + r + s + o) / (3600 P m)          days = GPU-hours / (24 G a)

The plan's goodput g is 1 / (1 + r + s + o); a plan puts no figure on s, so its o holds what it allows for
stalls, and s of the run is a part of its own. The difference between plan and run is divided by Shapley
values: each factor gets its effect averaged over every order of changing them, so no order is
favoured. Parts are whole GPU-microseconds (microseconds), rounded cumulatively: they sum to the
total exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from tracker.core._checks import not_negative, positive

FACTORS: Final = ("tokens", "flop", "mfu", "goodput", "redo", "tail", "gpus", "availability")
"""In the order of the table."""

_US_PER_H: Final = 3_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """One side: the plan, or the run (or its forecast)."""

    tokens: float
    """Target, or tokens so far on both sides."""
    flop_per_token: float
    """FLOP per token."""
    peak_flop_per_s: float
    """Dense peak of one GPU."""
    mfu_ratio: float
    """Over productive time."""
    redo_ratio: float = 0.0
    """Lost over productive GPU-time."""
    tail_ratio: float = 0.0
    """From the last sign of progress of an attempt to its end, or until now where it is stalled, over
    productive GPU-time; 0 on the plan's side."""
    overhead_ratio: float = 0.0
    """All other unproductive over productive GPU-time."""
    gpus: float = 1.0
    """GPUs held, on average while any were."""
    availability_ratio: float = 1.0
    """Time in which any were held over the calendar; above 1 where a reservation outlasts the run."""
    redo_by: Mapping[str, float] = field(default_factory=dict)
    """Lost GPU-time by cause, any unit: to name the biggest."""
    tail_by: Mapping[str, float] = field(default_factory=dict)
    """The same for time after the last step, by what ended it."""
    overhead_by: Mapping[str, float] = field(default_factory=dict)
    """Other unproductive GPU-time by bucket, any unit: to name the biggest."""

    def __post_init__(self) -> None:
        for name in (
            "tokens",
            "flop_per_token",
            "peak_flop_per_s",
            "mfu_ratio",
            "gpus",
            "availability_ratio",
        ):
            positive(name, getattr(self, name))
        not_negative("redo_ratio", self.redo_ratio)
        not_negative("tail_ratio", self.tail_ratio)
        not_negative("overhead_ratio", self.overhead_ratio)

    @property
    def goodput_ratio(self) -> float:
        """Productive over allocated."""
        return 1 / (1 + self.redo_ratio + self.tail_ratio + self.overhead_ratio)

    @property
    def gpu_hours(self) -> float:
        """GPU-hours that follow."""
        return _gpu_hours(self._values())

    @property
    def days(self) -> float:
        """Days that follow."""
        return _days(self._values())

    def _values(self) -> dict[str, float]:
        return {
            "tokens": self.tokens,
            "flop": self.flop_per_token / self.peak_flop_per_s,
            "mfu": self.mfu_ratio,
            "goodput": self.overhead_ratio,
            "redo": self.redo_ratio,
            "tail": self.tail_ratio,
            "gpus": self.gpus,
            "availability": self.availability_ratio,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VariancePart:
    """What one factor adds. Positive is more hours, or later."""

    name: str
    """One of FACTORS."""
    gpu_us: int
    """GPU-microseconds."""
    wall_us: int
    """Microseconds of calendar."""
    planned: float
    """The plan's value of the factor (for goodput, redo and tail: time over productive time)."""
    actual: float
    """The run's."""
    cause: str
    """Its biggest cause, in words."""

    @property
    def gpu_hours(self) -> float:
        """In GPU-hours."""
        return self.gpu_us / _US_PER_H

    @property
    def days(self) -> float:
        """In days."""
        return self.wall_us / (24 * _US_PER_H)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variance:
    """The run against its plan; the parts sum to the totals exactly."""

    parts: tuple[VariancePart, ...]
    """One for each of FACTORS, in that order."""
    gpu_us: int
    """Run minus plan, GPU-microseconds."""
    wall_us: int
    """Run minus plan, microseconds of calendar."""

    @property
    def gpu_hours(self) -> float:
        """Run minus plan, GPU-hours."""
        return self.gpu_us / _US_PER_H

    @property
    def days(self) -> float:
        """Run minus plan, days: positive is late."""
        return self.wall_us / (24 * _US_PER_H)


def plan_factors(
    *,
    tokens: float,
    flop_per_token: float,
    peak_flop_per_s: float,
    mfu_ratio: float,
    goodput_ratio: float,
    gpus: float,
    planned_redo_ratio: float = 0.0,
) -> Factors:
    """Return the plan's side: its goodput loss, of which planned_redo_ratio is redone work.

    planned_redo_ratio is redone over productive time, as a failure model expects it; 0 where the
    plan has none, so that all redone work shows as such. It is cut to the loss the plan allows.
    """
    loss = 1 / positive("goodput_ratio", goodput_ratio) - 1
    redo = min(loss, not_negative("planned_redo_ratio", planned_redo_ratio))
    return Factors(
        tokens=tokens,
        flop_per_token=flop_per_token,
        peak_flop_per_s=peak_flop_per_s,
        mfu_ratio=mfu_ratio,
        redo_ratio=redo,
        overhead_ratio=loss - redo,
        gpus=gpus,
    )


def variance(plan: Factors, run: Factors) -> Variance:
    """Return the difference run minus plan, divided among the factors.

    >>> plan = plan_factors(tokens=1e12, flop_per_token=6e10, peak_flop_per_s=989e12, mfu_ratio=0.4,
    ...                     goodput_ratio=0.9, gpus=1024)
    >>> run = Factors(tokens=1e12, flop_per_token=6e10, peak_flop_per_s=989e12, mfu_ratio=0.35,
    ...               redo_ratio=0.05, overhead_ratio=0.10, gpus=1024)
    >>> v = variance(plan, run)
    >>> v.gpu_us == sum(p.gpu_us for p in v.parts), v.wall_us == sum(p.wall_us for p in v.parts)
    (True, True)
    """
    before, after = plan._values(), run._values()
    hours, gpu_us = _whole(_shapley(_gpu_hours, before, after), _US_PER_H)
    days, wall_us = _whole(_shapley(_days, before, after), 24 * _US_PER_H)
    parts = tuple(
        VariancePart(
            name=name,
            gpu_us=hours[name],
            wall_us=days[name],
            planned=before[name],
            actual=after[name],
            cause=_cause(name, plan, run),
        )
        for name in FACTORS
    )
    return Variance(parts=parts, gpu_us=gpu_us, wall_us=wall_us)


def _gpu_hours(v: Mapping[str, float]) -> float:
    return v["tokens"] * v["flop"] * (1 + v["redo"] + v["tail"] + v["goodput"]) / (3600 * v["mfu"])


def _days(v: Mapping[str, float]) -> float:
    return _gpu_hours(v) / (24 * v["gpus"] * v["availability"])


def _shapley(
    value: Callable[[Mapping[str, float]], float], before: Mapping[str, float], after: Mapping[str, float]
) -> dict[str, float]:
    moving = [name for name in FACTORS if before[name] != after[name]]
    n = len(moving)
    worth = {
        subset: value({**before, **{name: after[name] for name in subset}})
        for size in range(n + 1)
        for subset in combinations(moving, size)
    }
    out = dict.fromkeys(FACTORS, 0.0)
    for name in moving:
        terms = []
        for subset, low in worth.items():
            if name in subset:
                continue
            joined = tuple(m for m in moving if m in subset or m == name)
            size = len(subset)
            weight = math.factorial(size) * math.factorial(n - size - 1) / math.factorial(n)
            terms.append(weight * (worth[joined] - low))
        out[name] = math.fsum(terms)
    return out


def _whole(parts: Mapping[str, float], unit: int) -> tuple[dict[str, int], int]:
    out: dict[str, int] = {}
    done: list[float] = []
    reached = 0
    for name in FACTORS:
        done.append(parts[name] * unit)
        upto = round(math.fsum(done)) if parts[name] else reached
        out[name] = upto - reached
        reached = upto
    return out, reached


def _cause(name: str, plan: Factors, run: Factors) -> str:
    if name == "tokens":
        change = run.tokens - plan.tokens
        return "target unchanged" if not change else f"target changed by {change:+.3g} tokens"
    if name == "flop":
        same = plan.flop_per_token == run.flop_per_token and plan.peak_flop_per_s == run.peak_flop_per_s
        return "same model and peak" if same else "another FLOP count or peak than planned"
    if name == "mfu":
        return f"MFU {run.mfu_ratio:.3f}, planned {plan.mfu_ratio:.3f}"
    if name == "redo":
        return _biggest(run.redo_by, "redone work")
    if name == "tail":
        return _biggest(run.tail_by, "time after the last step") if run.tail_ratio else "no stall"
    if name == "goodput":
        return _biggest(run.overhead_by, "other unproductive time")
    if name == "gpus":
        return f"{run.gpus:,.0f} GPUs held, planned {plan.gpus:,.0f}"
    if run.availability_ratio > 1:
        return f"GPUs were held for {run.availability_ratio:.2f} times the run's calendar"
    return f"an allocation was held {run.availability_ratio:.1%} of the time"


def _biggest(by: Mapping[str, float], what: str) -> str:
    total = sum(by.values())
    if total <= 0:
        return f"{what}, not broken down"
    name = max(sorted(by), key=lambda key: by[key])
    return f"{name}: {by[name] / total:.0%} of {what}"
