"""One run's goodput by several published definitions, so that it can be set beside a paper.

Pure: a summary of the ledger in, ratios out. Ours weights by GPUs and charges redone work once;
others count wall clock, leave rescheduling out, wait for a checkpoint, or use a nominal step time.
Each result says its numerator, its denominator and who uses it; none is called right.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracker.core._checks import count, not_negative
from tracker.core.errors import InvalidValue


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFacts:
    """One attempt as the ledger sums it. Times in seconds, GPU-times in GPU-seconds."""

    start_s: float
    """Start of its allocation, seconds from any common moment."""
    end_s: float
    """End of it, or as_of while it runs."""
    gpus: int
    """Devices billed."""
    productive_gpu_s: float
    """Windows whose steps were retained."""
    allocated_gpu_s: float
    """All of it, pending included."""
    pending_gpu_s: float = 0.0
    """Not yet known."""
    lost_gpu_s: float = 0.0
    """Redone or abandoned steps."""
    checkpoint_gpu_s: float = 0.0
    """Blocking saves."""
    evaluation_gpu_s: float = 0.0
    """Validation."""
    world: int | None = None
    """Devices that train, where some of those billed are spares; None: all of them."""

    def __post_init__(self) -> None:
        count("gpus", self.gpus)
        if self.end_s < self.start_s:
            raise InvalidValue("end_s", self.end_s, f"at least start_s = {self.start_s}")
        for name in (
            "productive_gpu_s",
            "allocated_gpu_s",
            "pending_gpu_s",
            "lost_gpu_s",
            "checkpoint_gpu_s",
            "evaluation_gpu_s",
        ):
            not_negative(name, getattr(self, name))

    @property
    def wall_s(self) -> float:
        """Seconds it held its devices."""
        return self.end_s - self.start_s

    @property
    def counted_wall_s(self) -> float:
        """The same without pending time."""
        return self.wall_s - self.pending_wall_s

    @property
    def productive_wall_s(self) -> float:
        """Productive time in seconds of wall clock."""
        return self.productive_gpu_s / (self.world or self.gpus)

    @property
    def pending_wall_s(self) -> float:
        """Pending time in seconds of wall clock."""
        return self.pending_gpu_s / (self.world or self.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What the definitions need of a run. Unknown parts are None."""

    attempts: tuple[AttemptFacts, ...]
    """In order of time, at most overlapping a little."""
    at_risk_gpu_s: float | None = None
    """Productive GPU-time that no durable checkpoint covers yet."""
    net_steps: int | None = None
    """Steps in the lineage, executed in these attempts."""
    nominal_step_s: float | None = None
    """What a step takes when nothing is wrong: its median, or the plan's."""
    idle_gpu_s: float = 0.0
    """Reserved GPU-time outside attempts, where the reservation is billed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputByDefinition:
    """Goodput by one definition."""

    name: str
    """A short key."""
    ratio: float | None
    """The share; None where the facts do not allow it."""
    numerator: str
    """What counts as productive."""
    denominator: str
    """Of what."""
    used_by: str
    """Who counts this way."""


def goodput_definitions(run: RunFacts) -> tuple[GoodputByDefinition, ...]:
    """Return the run's goodput by each definition, ours first.

    Differences come from the denominator (allocated time, wall clock from the first start, without
    rescheduling), from when work counts (at once, or once checkpointed), from how it is timed
    (measured windows, or net steps at a nominal step time), and from weighting by GPUs.

    >>> facts = RunFacts(attempts=(
    ...     AttemptFacts(start_s=0, end_s=100, gpus=8, productive_gpu_s=640, allocated_gpu_s=800),
    ...     AttemptFacts(start_s=200, end_s=300, gpus=8, productive_gpu_s=720, allocated_gpu_s=800)))
    >>> [(d.name, round(d.ratio, 3)) for d in goodput_definitions(facts) if d.ratio is not None][:2]
    [('allocated', 0.85), ('wall_clock', 0.567)]
    """
    attempts = run.attempts
    productive = sum(a.productive_gpu_s for a in attempts)
    allocated = sum(a.allocated_gpu_s - a.pending_gpu_s for a in attempts) + run.idle_gpu_s
    wall = sum(a.counted_wall_s for a in attempts)
    productive_wall = sum(a.productive_wall_s for a in attempts)
    span = max(a.end_s for a in attempts) - min(a.start_s for a in attempts) if attempts else 0.0
    pending_at_end = sum(a.pending_wall_s for a in attempts)
    held = _union_s(attempts)
    stalls = sum(a.checkpoint_gpu_s for a in attempts)
    evaluation = sum(a.evaluation_gpu_s for a in attempts)
    nominal = None
    if run.net_steps is not None and run.nominal_step_s is not None:
        nominal = run.net_steps * run.nominal_step_s
    gpus = {a.gpus for a in attempts}
    return (
        _one(
            "allocated",
            productive,
            allocated,
            "GPU-time of steps still in the model",
            "allocated GPU-time without pending",
            "this tracker",
        ),
        _one(
            "wall_clock",
            productive_wall,
            span - pending_at_end,
            "seconds of steps still in the model, whatever the GPU count",
            "wall clock from the first start to the last end, gaps included",
            "Google ml-goodput; close to Llama 3's effective training time",
        ),
        _one(
            "without_rescheduling",
            productive_wall,
            held - pending_at_end,
            "seconds of steps still in the model",
            "wall clock without the gaps between attempts",
            "NVIDIA Cluster Readiness Engine",
        ),
        _one(
            "checkpointed_only",
            productive - run.at_risk_gpu_s if run.at_risk_gpu_s is not None else None,
            allocated,
            "GPU-time of retained steps that a durable checkpoint covers",
            "allocated GPU-time without pending",
            "Google's MPG paper (runtime goodput), NVIDIA one-logger",
        ),
        _one(
            "nominal_step_time",
            nominal,
            span - pending_at_end,
            "net steps x nominal step time: slow steps lower it",
            "wall clock from the first start to the last end",
            "MegaScale",
        ),
        _one(
            "nominal_allocated",
            nominal * next(iter(gpus)) if nominal is not None and len(gpus) == 1 else None,
            allocated,
            "net steps x nominal step time x GPUs",
            "allocated GPU-time without pending",
            "tokens trained over tokens the allocation could have trained",
        ),
        _one(
            "unweighted",
            productive_wall,
            wall,
            "seconds of steps still in the model, every attempt alike",
            "seconds of attempts, every attempt alike",
            "most papers: nobody weights attempts of different size",
        ),
        _one(
            "checkpoints_productive",
            productive + stalls,
            allocated,
            "retained steps and blocking saves",
            "allocated GPU-time without pending",
            "trackers that leave saves inside throughput",
        ),
        _one(
            "evaluation_productive",
            productive + evaluation,
            allocated,
            "retained steps and evaluation",
            "allocated GPU-time without pending",
            "NVIDIA one-logger, which counts validation in a productive field of its own",
        ),
        _one(
            "redo_ignored",
            productive + sum(a.lost_gpu_s for a in attempts),
            allocated,
            "all executed steps, those thrown away too",
            "allocated GPU-time without pending",
            "trackers that never take back what a rollback discards",
        ),
    )


def _one(
    name: str, top: float | None, bottom: float, numerator: str, denominator: str, used_by: str
) -> GoodputByDefinition:
    ratio = top / bottom if top is not None and bottom > 0 else None
    return GoodputByDefinition(
        name=name, ratio=ratio, numerator=numerator, denominator=denominator, used_by=used_by
    )


def _union_s(attempts: tuple[AttemptFacts, ...]) -> float:
    total, reach = 0.0, None
    for a in sorted(attempts, key=lambda a: (a.start_s, a.end_s)):
        begin = a.start_s if reach is None else max(a.start_s, reach)
        if a.end_s > begin:
            total += a.end_s - begin
        reach = a.end_s if reach is None else max(reach, a.end_s)
    return total
