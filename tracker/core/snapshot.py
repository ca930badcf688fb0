"""Everything that one scrape, one answer or one report shows, as one frozen value.

Pure. Faces print it; a number computed in a face is a defect. What is unknown is None, and `warnings`
or `unknown` say why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tracker.core.corrections import Correction
from tracker.core.forecast.value import Forecast
from tracker.core.interruptions import Interruption
from tracker.core.ledger import AttemptLine
from tracker.core.records import Json
from tracker.core.settings import Settings

STATES: Final = ("waiting", "starting", "running", "stalled", "down", "finished")


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Optimiser steps."""

    net: int = 0
    """In the lineage since the first observed attempt, unseen ones included."""
    processed: int = 0
    last: int | None = None
    """Number of the last step in the model."""
    at_risk: int | None = None
    """Steps of the lineage that no durable checkpoint covers; None where saves are not logged."""
    unseen: int = 0
    inherited: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Tokens; None where the log does not say them and the config neither."""

    net: int | None = None
    """Retained since the first observed attempt, those of unseen steps included."""
    seen: int | None = None
    """Retained ones that windows cover: the numerator of MFU and of GPU-hours per 1e12 tokens."""
    processed: int | None = None
    inherited: int | None = None
    planned: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mfu:
    """Model FLOPs utilisation, with the convention that makes it a figure."""

    productive_ratio: float | None = None
    allocated_ratio: float | None = None
    recent_ratio: float | None = None
    """Over the last hour of productive time."""
    six_n_productive_ratio: float | None = None
    reference_precision: str = "bf16"
    peak_flop_per_s: float | None = None
    peak_source: str = ""
    flop_per_token: float | None = None
    """Mean over the run's seen tokens (the sequence length may change)."""
    flop_method: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PerTrillion:
    """Allocated GPU-hours per 1e12 retained tokens."""

    realised: float | None = None
    recent: float | None = None
    """Over the last 24 hours of allocation."""
    plan: float | None = None

    @property
    def ratio_to_plan(self) -> float | None:
        """Return realised / plan: above 1 costs more than planned."""
        return self.realised / self.plan if self.realised is not None and self.plan else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mtbf:
    """Mean time between unexpected interruptions, hours; None where there was none."""

    job_hours: float | None = None
    device_hours: float | None = None
    device_hours_ci90: tuple[float | None, float | None] = (None, None)
    """Exact Poisson interval; without an interruption only the lower bound is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What the framework itself claims, in its own convention; never mixed with ours."""

    flop_per_s: float | None = None
    """Per GPU, weighed by time, of the last attempt that printed it."""
    hardware: bool = False
    """Whether recomputation is counted in it."""
    convention: str = ""
    ours_flop_per_s: float | None = None
    """Model FLOP/s per GPU of the same attempt's productive time, by our method."""
    explained: str = ""
    """Why the two differ, or that they do not, in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One run at one moment."""

    run: str
    as_of_us: int
    state: str
    """One of STATES."""
    attempts: tuple[AttemptLine, ...] = ()
    interruptions: tuple[Interruption, ...] = ()
    corrections: Mapping[int, Correction] = field(default_factory=dict)
    """What a person said about the end of an attempt, by its number."""
    gpu_us: Mapping[str, int] | None = None
    """GPU-microseconds of the run: `allocated` and every bucket; None where no GPU count is known."""
    wall_us: Mapping[str, int] = field(default_factory=dict)
    """Wall time of all attempts by bucket."""
    goodput_ratio: float | None = None
    steps: Steps = field(default_factory=Steps)
    tokens: Tokens = field(default_factory=Tokens)
    mfu: Mfu = field(default_factory=Mfu)
    per_trillion: PerTrillion = field(default_factory=PerTrillion)
    mtbf: Mtbf = field(default_factory=Mtbf)
    reported: Reported = field(default_factory=Reported)
    step_time_s: float | None = None
    """Of the last window."""
    last_reading_us: int | None = None
    plan_finish_us: int | None = None
    forecast: Forecast | None = None
    """None where nobody asked for one: it is made of the snapshot, not in it."""
    operating_point: Mapping[str, str] = field(default_factory=dict)
    said: Mapping[str, Json] = field(default_factory=dict)
    """What the latest attempt's log states of the run, by the names of `records.SETTINGS`."""
    settings: Settings | None = None
    """What it was computed with: plan, model, hardware, billing."""
    unmatched_jobs: tuple[str, ...] = ()
    """Scheduler rows that belong to no attempt."""
    rejects: int = 0
    warnings: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """What cannot be stated, and which one fact would allow it."""

    @property
    def running(self) -> int:
        """Return how many attempts run."""
        return sum(1 for line in self.attempts if line.running)
