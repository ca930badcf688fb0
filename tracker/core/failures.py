"""How often a run fails: MTBF with its uncertainty, projections, and root causes beside published ones.

Pure.

MTBF attributes every interruption, software and network too, to a device's share of the job; it
is no vendor's rating. A projection to another size keeps that share: published measurements and
published projections from one cluster differ by a factor of 3.7, so a projection is a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tracker.core._checks import count, not_negative, positive
from tracker.core.errors import InvalidValue
from tracker.core.poisson import count_interval
from tracker.core.reference_rows import RootCauseTable
from tracker.core.references import root_cause_table

H_PER_YEAR: Final = 8760.0

PROJECTION_WARNING: Final = (
    "A projection keeps the per-device rate at another size. Measured and projected figures differ: "
    "on one published cluster the 1,024-GPU jobs measured 7.9 h where its rate projects 28.8 h. "
    "Plan with the measured one of your own size."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mtbf:
    """Mean time between unexpected interruptions, of the job and of one device of it."""

    interruptions: int
    """Unexpected ones."""
    exposure_device_hours: float
    """Device-hours watched."""
    exposure_job_hours: float
    """Job-hours watched."""
    confidence: float
    """Of the intervals, a ratio."""
    dispersion: float
    """Counts' variance over mean that the intervals allow for; 1 is Poisson."""
    device_hours: float | None
    """Per device; None when nothing failed."""
    device_hours_interval: tuple[float, float | None]
    """Its interval; the upper end is None when nothing failed."""
    job_hours: float | None
    """Of the job; None when nothing failed."""
    job_hours_interval: tuple[float, float | None]
    """Its interval."""

    @property
    def device_years(self) -> float | None:
        """Per device, in years."""
        return self.device_hours / H_PER_YEAR if self.device_hours is not None else None

    @property
    def per_day(self) -> float:
        """Expected interruptions of the job per day."""
        return 24 * self.interruptions / self.exposure_job_hours

    def per_1000_node_days(self, devices_per_node: int = 8) -> float:
        """Return interruptions per 1,000 node-days, the unit of cluster studies."""
        node_days = self.exposure_device_hours / 24 / count("devices_per_node", devices_per_node)
        return 1000 * self.interruptions / node_days


def mtbf(
    *,
    device_hours: float,
    job_hours: float,
    interruptions: int,
    confidence: float = 0.90,
    dispersion: float = 1.0,
) -> Mtbf:
    """Return MTBF with an exact Poisson interval: exposure over the count and over its interval.

    With no interruption the mean is None and the interval has only its lower end: exposure over
    the count that would still go unseen with half the remaining chance (3.0 at 90 %). dispersion
    above 1 widens it, for gaps that are bunched.

    Raises InvalidValue for exposures of zero or less, or a negative or broken count.

    >>> m = mtbf(device_hours=54 * 24 * 16384, job_hours=54 * 24, interruptions=419)
    >>> round(m.device_hours), round(m.job_hours, 2), round(m.device_years, 2)
    (50677, 3.09, 5.79)
    """
    devices = positive("device_hours", device_hours, "device-hours above 0")
    job = positive("job_hours", job_hours, "job-hours above 0")
    n = count("interruptions", interruptions, least=0)
    seen = count_interval(n, confidence=confidence, dispersion=dispersion)
    assert seen.high is not None

    def span(exposure: float) -> tuple[float, float | None]:
        assert seen.high is not None
        return exposure / seen.high, exposure / seen.low if seen.low > 0 else None

    return Mtbf(
        interruptions=n,
        exposure_device_hours=devices,
        exposure_job_hours=job,
        confidence=confidence,
        dispersion=max(1.0, dispersion),
        device_hours=devices / n if n else None,
        device_hours_interval=span(devices),
        job_hours=job / n if n else None,
        job_hours_interval=span(job),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What a per-device rate would mean for a job of another size."""

    gpus: int
    """Size of that job."""
    hours: float | None
    """Mean time between its interruptions; None when nothing failed."""
    hours_interval: tuple[float, float | None]
    """Its interval."""
    per_day: float | None
    """Its interruptions per day."""


def project(rate: Mtbf, gpus: int) -> Projection:
    """Return the job MTBF at another size, device MTBF over its devices. See PROJECTION_WARNING.

    Raises InvalidValue for no GPUs.

    >>> m = mtbf(device_hours=54 * 24 * 16384, job_hours=54 * 24, interruptions=419)
    >>> round(project(m, 1024).hours, 1), round(project(m, 131072).per_day)
    (49.5, 62)
    """
    n = count("gpus", gpus)
    low, high = rate.device_hours_interval
    hours = rate.device_hours / n if rate.device_hours is not None else None
    return Projection(
        gpus=n,
        hours=hours,
        hours_interval=(low / n, high / n if high is not None else None),
        per_day=24 / hours if hours else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseShare:
    """One root cause in a run, beside the same cause in the published table."""

    cause: str
    """Its name here."""
    label: str
    """As the published table calls it, else the name."""
    category: str | None
    """As published; None for a cause the published table does not know."""
    count: int
    """In this run."""
    share: float | None
    """Of this run's unexpected interruptions; None when there were none."""
    published_count: int | None
    """In the published table; None where it has no such row."""
    published_share: float | None
    """By the published count, not by the printed percentage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseTable:
    """A run's root causes beside the published ones, with what needed a person."""

    rows: tuple[CauseShare, ...]
    """Causes of this run by count, then the published ones it did not see, in their order."""
    total: int
    """Unexpected interruptions of this run."""
    manual: int | None
    """Of them, those that needed a person; None where nobody recorded it."""
    manual_share: float | None
    """Their share."""
    gpu_share: float | None
    """Share of causes in the published GPU category, by counts."""
    published: RootCauseTable
    """The table compared with, its caveat included."""


def cause_table(by_cause: Mapping[str, int], *, manual: int | None = None) -> CauseTable:
    """Return a run's unexpected interruptions by root cause, beside the published table.

    Shares are computed from counts, on both sides: printed percentages disagree with theirs.

    Raises InvalidValue for a count below zero, or more manual ones than there were.

    >>> cause_table({"gpu": 2, "network": 2}, manual=1).gpu_share
    0.5
    """
    counts = {cause: count(f"by_cause.{cause}", n, least=0) for cause, n in by_cause.items()}
    total = sum(counts.values())
    if manual is not None and count("manual", manual, least=0) > total:
        raise InvalidValue("manual", manual, f"at most the {total} interruptions there were")
    table = root_cause_table()
    known = {row.cause: row for row in table.rows}
    seen = sorted((c for c in counts if counts[c]), key=lambda c: (-counts[c], c))
    order = [*seen, *(row.cause for row in table.rows if row.cause not in seen)]
    rows = tuple(
        CauseShare(
            cause=cause,
            label=known[cause].label if cause in known else cause,
            category=known[cause].category if cause in known else None,
            count=counts.get(cause, 0),
            share=counts.get(cause, 0) / total if total else None,
            published_count=known[cause].count if cause in known else None,
            published_share=known[cause].count / table.total if cause in known else None,
        )
        for cause in order
    )
    gpu = sum(row.count for row in rows if row.category == "GPU")
    return CauseTable(
        rows=rows,
        total=total,
        manual=manual,
        manual_share=manual / total if manual is not None and total else None,
        gpu_share=gpu / total if total else None,
        published=table,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeShares:
    """How a fleet's GPU-time ended: the shares sum to 1."""

    completed: float
    """In jobs that completed."""
    cancelled: float
    """In jobs that somebody cancelled."""
    failed: float
    """In jobs that failed."""
    gpu_hours: float
    """All of it."""


def outcome_shares(*, completed_gpu_s: float, cancelled_gpu_s: float, failed_gpu_s: float) -> OutcomeShares:
    """Return the shares of GPU-time by how jobs ended, the figure cluster studies print.

    By GPU-time, not by jobs: most failed jobs are short. Raises InvalidValue where all is zero.

    >>> outcome_shares(completed_gpu_s=1, cancelled_gpu_s=2, failed_gpu_s=1).failed
    0.25
    """
    parts = [
        not_negative("completed_gpu_s", completed_gpu_s),
        not_negative("cancelled_gpu_s", cancelled_gpu_s),
        not_negative("failed_gpu_s", failed_gpu_s),
    ]
    total = positive("completed + cancelled + failed", sum(parts), "GPU-seconds above 0")
    return OutcomeShares(
        completed=parts[0] / total,
        cancelled=parts[1] / total,
        failed=parts[2] / total,
        gpu_hours=total / 3600,
    )
