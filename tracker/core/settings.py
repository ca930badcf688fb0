"""What the core needs of the configuration, checked and typed. `tracker/config.py` fills it from TOML.

Pure. Times are aware; `_us` values count from 1970 UTC. Absent means not set: the log or the scheduler
may say it instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tracker.core.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The [model] table."""

    active_params: float | None = None
    """N: parameters that work on a token (all of them in a dense model)."""
    total_params: float | None = None
    sequence_length: int | None = None
    """Tokens in a sequence; the log's own word wins."""
    global_batch_size: int | None = None
    """Sequences in a step; only where the log does not say."""
    tokens_per_step: int | None = None
    layers: int | None = None
    hidden_size: int | None = None
    heads: int | None = None
    head_dim: int | None = None
    causal: bool = False
    """Whether attention FLOPs are counted for the lower triangle only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The [hardware] table, with the peak looked up (or given) by the loader."""

    gpu: str | None = None
    precision: str = "bf16"
    peak_flop_per_s: float | None = None
    """Dense peak of one GPU at `precision`; None: MFU cannot be stated."""
    peak_source: str = ""
    gpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """What one [[source]] says besides how to read it."""

    started_at_us: int | None = None
    """When its run began, for a log without a clock."""
    job_name: str | None = None
    """Scheduler rows without a log count as attempts only under this job name, or a joined job's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The [reservation] table; what is None follows from the run."""

    start_us: int | None = None
    end_us: int | None = None
    gpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that an answer depends on besides the facts and `as_of`."""

    run: str
    billing: Literal["attempt", "reservation"] = "attempt"
    model: Model = field(default_factory=Model)
    hardware: Hardware = field(default_factory=Hardware)
    plan: Plan | None = None
    reservation: Reservation = field(default_factory=Reservation)
    sources: tuple[SourceSettings, ...] = ()
