"""What a forecast says: quantiles, probabilities, what it rests on. Plain values that any face can print.

Pure; no numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

LEVELS: Final = (0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95)
"""Probabilities at which a forecast is kept, so that it can be scored later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Values that are not exceeded with a probability of 10, 50 and 90 %; None: not in sight."""

    p10: float | None
    p50: float | None
    p90: float | None

    @classmethod
    def exact(cls, value: float) -> Quantiles:
        """Return a value that is known."""
        return cls(p10=value, p50=value, p90=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """One input and its share of the spread of the finish."""

    name: str
    """rate, stops, outages, overhead, stages or start."""
    share_ratio: float
    """0..1; the shares of all drivers sum to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One cause of a move of the finish. Positive is later."""

    name: str
    us: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """How the median finish moved since an earlier forecast; the parts sum to it exactly."""

    since_us: int
    """Moment of the earlier forecast."""
    us: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The few numbers that the middle of a forecast follows from: what a move is explained with."""

    target_tokens: float
    done_tokens: float
    rate: float
    """Tokens a second and GPU of productive time, as expected from now on."""
    gpus: int
    """GPUs that train."""
    goodput_ratio: float
    """Productive over calendar time, as expected from now on."""
    mtbf_gpu_hours: float | None
    restart_s: float | None
    """Mean cost of a stop, redone work included."""
    merged_launches: int = 0
    """Launches so far that kept no step: part of the stop before them, no stops of their own here."""
    wait_s: float = 0.0
    """Until steps go on: what is expected of a stop that goes on now, or of the wait for the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """One run's forecast as of a moment. Whole-run totals at the finish."""

    as_of_us: int
    basis: str
    """"measured", "plan" (no reading yet: plan and priors only), "exact" (finished) or "none"."""
    finish_us: Quantiles | None = None
    """Moments, microseconds since 1970 UTC; None without an answer."""
    gpu_hours: Quantiles | None = None
    cost: Quantiles | None = None
    currency: str = "USD"
    energy_mwh: Quantiles | None = None
    days_behind_plan: float | None = None
    by_deadline_ratio: float | None = None
    """Probability to be done by plan.deadline; None without one."""
    by_reservation_end_ratio: float | None = None
    within_budget_ratio: float | None = None
    levels_us: tuple[tuple[float, int], ...] = ()
    """(probability, moment) of the finish at LEVELS, where in sight."""
    drivers: tuple[Driver, ...] = ()
    """By share, largest first."""
    inputs: Inputs | None = None
    lines_us: Mapping[str, int] = field(default_factory=dict)
    """What straight lines say: from_start, last_7_days, step_rate."""
    sentences: tuple[str, ...] = ()
    """The answer in plain words."""
    warning: str = ""
    """What makes the answer doubtful, in a sentence that is among them; empty where nothing does."""
    reasons: tuple[str, ...] = ()
    """Why something is not stated."""
    assumptions: tuple[str, ...] = ()
    """Priors and plan figures that still count, with their source."""
    flagged: tuple[str, ...] = ()
    """Readings that cannot be true and were not used, each with why."""
    move: Move | None = None
    digest: str = ""
    """Of the inputs and the model's version: the same digest, the same answer."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON; `from_json` is its inverse."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Forecast:
        """Return the forecast that `to_json` described."""
        made = dict(body)
        for name in ("finish_us", "gpu_hours", "cost", "energy_mwh"):
            made[name] = Quantiles(**made[name]) if made[name] is not None else None
        made["levels_us"] = tuple((p, at) for p, at in made["levels_us"])
        made["drivers"] = tuple(Driver(**driver) for driver in made["drivers"])
        made["inputs"] = Inputs(**made["inputs"]) if made["inputs"] is not None else None
        if made["move"] is not None:
            move = dict(made["move"])
            move["parts"] = tuple(Part(**part) for part in move["parts"])
            made["move"] = Move(**move)
        for name in ("sentences", "reasons", "assumptions", "flagged"):
            made[name] = tuple(made.get(name, ()))
        return cls(**made)
