"""The ledger: every allocated GPU-microsecond of every attempt in exactly one bucket.

Pure. Wall time of an attempt (core/close.py) is weighed with the GPUs that train; the GPUs that are
billed beyond them (hot spares) are `idle`. With `billing = "reservation"` so is what the reservation
holds beyond the attempts. All in integers: the parts sum to the allocation exactly, in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tracker.core.attempts import Attempt
from tracker.core.close import Closed
from tracker.core.metrics import gpu_hours_per_trillion_tokens, mfu
from tracker.core.settings import Settings

BUCKETS: Final = (
    "productive", "lost", "startup", "checkpoint", "evaluation", "tail", "pending", "idle", "other",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLine:
    """One attempt's line of the ledger."""

    number: int
    """1, 2, 3 ... in time order."""
    job_id: str | None
    start_us: int
    end_us: int | None
    start_from: str
    gpus: int | None
    """Billed."""
    world: int | None
    """Training."""
    resumed_from: int | None
    last_step: int | None
    end_kind: str | None
    cause: str | None
    running: bool
    stalled: bool
    estimated: bool
    steps_net: int
    steps_lost: int
    tokens_net: int | None
    """Retained tokens of its windows."""
    tokens_processed: int | None
    work_us: int
    """Wall time of all its windows."""
    flop: float | None
    """Model FLOP of its retained tokens."""
    gpu_us: Mapping[str, int] | None
    """GPU-microseconds: `allocated` and every bucket; None where the GPU count is unknown."""
    wall_us: Mapping[str, int]
    """The same in wall time of the attempt (no `idle`)."""
    first_us: int | None
    progress_us: int | None
    reported_flop_per_s: float | None
    reported_hardware: bool
    saves: int = 0
    """Checkpoints that its log tells of."""
    stall_limit_us: int | None = None
    """How long it may be quiet before it is stalled; None once it ended, or while unknown."""
    power_w: float | None = None
    """Measured power of one GPU, where the log states it."""
    name: str = ""
    """A name that no reading of the logs changes (`core/overlay.py`): corrections are kept under it."""

    @property
    def step_time_s(self) -> float | None:
        """Mean wall time of its steps, saves and evaluations left out."""
        steps = self.steps_net + self.steps_lost
        return self.work_us / steps / 1e6 if steps and self.work_us else None

    def mfu_ratio(self, peak_flop_per_s: float | None) -> float | None:
        """Return MFU over its productive time against a dense peak; None where any part is unknown."""
        if peak_flop_per_s is None or self.flop is None or self.gpu_us is None:
            return None
        return mfu(flop=self.flop, gpu_us=self.gpu_us["productive"], peak_flop_per_s=peak_flop_per_s)

    @property
    def hours_per_trillion(self) -> float | None:
        """Return its allocated GPU-hours (pending left out) per 1e12 retained tokens."""
        if self.gpu_us is None or not self.tokens_net:
            return None
        gpu_us = self.gpu_us["allocated"] - self.gpu_us["pending"]
        return gpu_hours_per_trillion_tokens(tokens=self.tokens_net, gpu_us=gpu_us)


def weigh(attempt: Attempt, closed: Closed) -> dict[str, int] | None:
    """Return GPU-microseconds by bucket, or None without a GPU count."""
    if attempt.gpus is None:
        return None
    world = attempt.world if attempt.world is not None else attempt.gpus
    gpu_us = {name: getattr(closed, f"{name}_us") * world for name in BUCKETS if name != "idle"}
    gpu_us["idle"] = (attempt.gpus - world) * closed.allocated_us
    gpu_us["allocated"] = attempt.gpus * closed.allocated_us
    return gpu_us


def total(
    lines: Sequence[AttemptLine], settings: Settings, as_of_us: int
) -> tuple[dict[str, int], list[str]]:
    """Return the run's GPU-microseconds by bucket and `allocated`, with warnings."""
    sums = dict.fromkeys(("allocated", *BUCKETS), 0)
    for line in lines:
        for name, value in (line.gpu_us or {}).items():
            sums[name] += value
    if settings.billing != "reservation" or not lines:
        return sums, []
    return sums, _reserve(sums, lines, settings, as_of_us)


def reservation_span(
    lines: Sequence[AttemptLine], settings: Settings, as_of_us: int
) -> tuple[int, int, int] | None:
    """Return start, end (at most `as_of`) and GPUs of a reservation that is billed; None without one."""
    if settings.billing != "reservation" or not lines:
        return None
    reservation = settings.reservation
    counts = [line.gpus for line in lines if line.gpus is not None]
    gpus = reservation.gpus if reservation.gpus is not None else max(counts, default=None)
    if gpus is None:
        return None
    start = reservation.start_us
    start = start if start is not None else min(line.start_us for line in lines)
    end = min(as_of_us, reservation.end_us) if reservation.end_us is not None else as_of_us
    return start, end, gpus


def _reserve(
    sums: dict[str, int], lines: Sequence[AttemptLine], settings: Settings, as_of_us: int
) -> list[str]:
    """Add the reservation's time that no attempt held to `idle`; return warnings."""
    span = reservation_span(lines, settings, as_of_us)
    if span is None:
        return ["the reservation's GPU count is unknown: set reservation.gpus"]
    start, end, gpus = span
    held = 0
    for line in lines:
        line_end = line.end_us if line.end_us is not None else as_of_us
        inside = max(0, min(line_end, end) - max(line.start_us, start))
        held += inside * (line.gpus or 0)
    reserved = max(0, end - start) * gpus
    idle = max(0, reserved - held)
    sums["idle"] += idle
    sums["allocated"] += idle
    if held > reserved:
        hours = (held - reserved) / 3.6e9
        return [
            f"the attempts hold {hours:.1f} GPU-hours more than the reservation of {gpus} GPUs: "
            f"check reservation.gpus, start and end"
        ]
    return []
