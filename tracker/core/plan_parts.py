"""The parts of a plan: its stages, the failures it expects, its assumptions, and what it comes to.

Pure. Each checks its own ranges; `plan.py` puts them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tracker.core._checks import count, not_negative, positive, ratio
from tracker.core.errors import InvalidValue
from tracker.core.flop import FlopPerToken


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStage:
    """One stage of training: pre-training, context extension, annealing, post-training."""

    name: str
    """What people call it."""
    tokens: float
    """Tokens trained in it, above 0."""
    sequence_length: int | None = None
    """Tokens per sequence; None for the model's."""
    gpus: int | None = None
    """GPUs it runs on; None for the plan's."""
    mfu: float | None = None
    """Its MFU over productive time; None for the plan's."""
    goodput: float | None = None
    """Its goodput; None for the plan's."""

    def __post_init__(self) -> None:
        where = f"plan.stage {self.name!r}"
        positive(f"{where}.tokens", self.tokens, "a number of tokens above 0")
        if self.sequence_length is not None:
            count(f"{where}.sequence_length", self.sequence_length)
        if self.gpus is not None:
            count(f"{where}.gpus", self.gpus)
        if self.mfu is not None:
            ratio(f"{where}.mfu", self.mfu)
        if self.goodput is not None:
            ratio(f"{where}.goodput", self.goodput)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFailures:
    """What the plan expects to go wrong: the inputs of the goodput model."""

    per_day: float
    """Unexpected interruptions a day."""
    restart_min: float
    """From the failure to the first new step, minutes: detection included."""
    checkpoint_interval_min: float
    """Minutes of training between checkpoints."""
    checkpoint_stall_min: float = 0.0
    """Minutes training stands still per checkpoint: the blocking part."""

    def __post_init__(self) -> None:
        not_negative("plan.failures.per_day", self.per_day)
        not_negative("plan.failures.restart_min", self.restart_min)
        positive("plan.failures.checkpoint_interval_min", self.checkpoint_interval_min)
        not_negative("plan.failures.checkpoint_stall_min", self.checkpoint_stall_min)
        if self.checkpoint_stall_min > self.checkpoint_interval_min:
            raise InvalidValue(
                "plan.failures.checkpoint_stall_min",
                self.checkpoint_stall_min,
                f"at most checkpoint_interval_min = {self.checkpoint_interval_min:g}",
            )
        if self.per_day * self.checkpoint_interval_min > 1440:
            raise InvalidValue(
                "plan.failures.checkpoint_interval_min",
                self.checkpoint_interval_min,
                f"at most the mean time between failures, {1440 / self.per_day:.4g} min",
                "Most work would be lost before it is saved: save more often",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedConversion:
    """GPU-hours that the plan took over from another device by a ratio."""

    from_gpu: str
    """Device they were measured on."""
    to_gpu: str
    """Device of the plan."""
    ratio: float
    """By how much they were divided."""

    def __post_init__(self) -> None:
        positive("plan.conversion.ratio", self.ratio, "a ratio above 0, such as 2.5")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One assumption of the plan, and where it came from."""

    name: str
    """Its key in [plan]."""
    value: float
    """What the plan counts with."""
    source: str | None
    """What [plan.sources] says, None where it says nothing."""
    is_default: bool
    """Whether the plan was silent and the reference estimate's value stands in."""

    @property
    def is_assumed(self) -> bool:
        """Whether nobody vouches for it."""
        return self.source is None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEstimate:
    """What one stage comes to."""

    name: str
    """The stage's name; ``main`` when the plan lists none."""
    tokens: float
    """Tokens trained."""
    flop: FlopPerToken
    """At its sequence length."""
    model_flop: float
    """FLOP of its tokens."""
    ideal_gpu_hours: float
    """At peak, without a second lost."""
    step_gpu_hours: float
    """At its MFU."""
    billed_gpu_hours: float
    """With its goodput."""
    gpus: int | None
    """GPUs it runs on."""
    days: float | None
    """On those; None where their number is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What the plan comes to. Hours are GPU-hours; the main stage leads, later stages follow."""

    stages: tuple[StageEstimate, ...]
    """The listed stages, or one for the whole."""
    main: StageEstimate
    """The stage with most tokens: the one that rates are quoted for."""
    model_flop: float
    """FLOP of the listed stages (of the main one when none is listed)."""
    six_n_flop: float
    """The same by plain 6N."""
    ideal_gpu_hours: float
    """At peak, listed stages."""
    step_gpu_hours: float
    """At the planned MFU, listed stages."""
    billed_gpu_hours: float
    """With goodput, listed stages, before the later-stages fraction."""
    later_stages_gpu_hours: float
    """What the later-stages fraction adds."""
    final_gpu_hours: float
    """The run with all its stages."""
    programme_gpu_hours: float
    """The run with research, ablations and failed runs."""
    gpu_hours_per_trillion_tokens: float
    """Of the main stage."""
    days: float | None
    """Wall clock of the run on its GPUs; None without a GPU count."""
    finish_at: datetime | None
    """Start plus days; None without either."""
