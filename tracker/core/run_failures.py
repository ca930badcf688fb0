"""A run's failures as the calculators take them: how often, how bunched, from what, and what to do about it.

Pure: a Snapshot in. Rates are over the attempts' own time, as in the status: reserved time that no attempt
held is no exposure, and neither is time between attempts. Restart here is allocated time that a failure
takes: the tail of the attempt that ended and the start-up of the next one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final, Literal

from tracker.core._checks import positive
from tracker.core.failures import CauseTable, Mtbf, cause_table, mtbf
from tracker.core.goodput_model import (
    MIN_PER_DAY,
    CheckpointAdvice,
    GoodputLosses,
    checkpoint_advice,
    goodput,
    goodput_losses,
)
from tracker.core.interruptions import Interruption
from tracker.core.poisson import Dispersion, dispersion
from tracker.core.run_money import costs, price_to_come
from tracker.core.snapshot import Snapshot

US_PER_MIN: Final = 60_000_000
FEW_GAPS: Final = 5
"""Fewer gaps than this say nothing about how failures bunch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailures:
    """Mean time between the failures of one run."""

    rate: Mtbf
    """With the exact Poisson interval."""
    gpus: float
    """GPUs billed, on average over the attempts' time."""
    gaps: Dispersion | None
    """Of the gaps between failures in the attempts' own time; None for fewer than three failures."""
    widened: Mtbf | None
    """The same rate with its interval widened by the dispersion of the gaps; None where it is not above 1,
    or rests on fewer than FEW_GAPS of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredShares:
    """Where a run's allocation went, pending left out, in the terms of the failure model; they sum to 1."""

    goodput_ratio: float
    """Productive."""
    restart_ratio: float
    """Start-up and tail, after planned stops too."""
    redo_ratio: float
    """Lost."""
    checkpoint_ratio: float
    """Blocking saves."""
    rest_ratio: float
    """Evaluation, idle and unexplained: not in the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCheckpoints:
    """What is needed for advice on the checkpoint interval; parts that the log does not tell are None."""

    failures_per_day: float
    """Unexpected interruptions for a day of the attempts' time."""
    restart_min: float | None
    """Allocated minutes that a failure takes, on average; None without a failure."""
    stall_min: float | None
    """Blocking minutes of a save, on average; None where no save is told."""
    interval_min: float | None
    """Minutes of training for a save, on average."""
    saves: int
    """Saves told."""
    gpu_hours_to_go: float | None
    """The attempts' allocation still to come at the rate so far; None without a target. What a reservation
    holds beside them is left out: no checkpoint saves it."""
    shares: MeasuredShares | None
    """Where the run's own time went; None before any is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAdvice:
    """The checkpoint advice for a run, from its own failures."""

    given: RunCheckpoints
    """What it rests on."""
    advice: CheckpointAdvice
    losses: GoodputLosses
    """By the model, at the present interval."""
    model_ratio: float | None
    """Goodput by the model at the present interval; the exponential one beyond the MTBF."""
    mtbf_range_min: tuple[float, float | None] | None
    """90 % interval of the mean time between failures, widened where they bunch."""
    gain_range: tuple[float, float] | None
    """The gain at both ends of it, the smaller one first; None where no gain is known."""
    gpu_hours: float
    """The allocation that the gain is put on: of attempts, without what a reservation holds beside them."""
    gpu_hours_are: Literal["given", "to go", "so far"]
    """Which one that is: what is still to come where a target is known."""
    gpu_hour_price: float | None
    """What an hour saved is worth: of hours to come the price from `as_of` on, of hours so far the mean paid;
    None without a price."""


def run_failures(snapshot: Snapshot) -> RunFailures | None:
    """Return a run's MTBF with its intervals; None before any GPU-time is known."""
    hours = sum(line.wall_us["allocated"] for line in snapshot.attempts) / 3.6e9
    device = sum(line.gpu_us["allocated"] for line in snapshot.attempts if line.gpu_us is not None) / 3.6e9
    if hours <= 0 or device <= 0:
        return None
    times = _times(snapshot)
    rate = mtbf(device_hours=device, job_hours=hours, interruptions=len(times))
    gaps = dispersion(times)
    widened = None
    if gaps is not None and gaps.gaps >= FEW_GAPS and gaps.index > 1:
        widened = mtbf(device_hours=device, job_hours=hours, interruptions=len(times), dispersion=gaps.index)
    return RunFailures(rate=rate, gpus=device / hours, gaps=gaps, widened=widened)


def run_causes(snapshot: Snapshot) -> CauseTable:
    """Return the run's unexpected interruptions by root cause, beside the published table."""
    stops = _unexpected(snapshot)
    said = [stop.manual for stop in stops if stop.manual is not None]
    return cause_table(Counter(stop.cause for stop in stops), manual=sum(said) if said else None)


def run_checkpoints(snapshot: Snapshot) -> RunCheckpoints | None:
    """Return what a run's log tells of failures, restarts and saves; None before it held anything."""
    wall = sum(line.wall_us["allocated"] for line in snapshot.attempts)
    if wall <= 0:
        return None
    stops = _unexpected(snapshot)
    saves = sum(line.saves for line in snapshot.attempts)
    worked = sum(line.work_us for line in snapshot.attempts)
    stalled = sum(line.wall_us["checkpoint"] for line in snapshot.attempts)
    restarts = [_restart_us(snapshot, stop) for stop in stops]
    return RunCheckpoints(
        failures_per_day=len(stops) * 24 * 60 * US_PER_MIN / wall,
        restart_min=sum(restarts) / len(restarts) / US_PER_MIN if restarts else None,
        stall_min=stalled / saves / US_PER_MIN if saves else None,
        interval_min=worked / saves / US_PER_MIN if saves and worked else None,
        saves=saves,
        gpu_hours_to_go=_to_go(snapshot),
        shares=_shares(snapshot),
    )


def run_advice(
    snapshot: Snapshot,
    *,
    restart_min: float | None = None,
    interval_min: float | None = None,
    stall_min: float | None = None,
    failures_per_day: float | None = None,
    mtbf_range_min: tuple[float, float | None] | None = None,
    gpu_hours: float | None = None,
    gpu_hour_price: float | None = None,
    ends: bool = True,
) -> RunAdvice | None:
    """Return the checkpoint interval that would serve a run best, from its own figures.

    Without `ends` the advice is no range: a third of the work, for who asks at every moment.

    A figure given stands in for the run's. Its failures' exact Poisson interval makes the advice a range.
    None while the stall of a save or the restart time is neither known nor given. A run that has not failed
    yet has no rate of failures: then only the bound on the interval is told, and no gain.

    Raises InvalidValue for a negative figure, and for an interval given beyond the mean time between failures
    (one that the run itself has is advised on by the exponential model).
    """
    known = run_checkpoints(snapshot)
    if known is None:
        return None
    per_day = known.failures_per_day if failures_per_day is None else failures_per_day
    restart = known.restart_min if restart_min is None else restart_min
    is_rate_known = failures_per_day is not None or per_day > 0
    asked = restart
    restart = 0.0 if restart is None and per_day == 0 else restart
    stall = known.stall_min if stall_min is None else stall_min
    interval = known.interval_min if interval_min is None else interval_min
    if restart is None or stall is None:
        return None
    if interval_min is not None:
        goodput(
            failures_per_day=per_day,
            restart_min=restart,
            checkpoint_interval_min=positive("checkpoint_interval_min", interval_min, "minutes above 0"),
            checkpoint_stall_min=stall,
        )
    spread = _spread(snapshot) if failures_per_day is None else mtbf_range_min
    spread = spread if ends else None
    hours, which = _allocation(snapshot, known, gpu_hours)
    price = _price(snapshot, hours, which) if gpu_hour_price is None else gpu_hour_price

    def advice_at(rate_per_day: float, *, known: bool = True) -> CheckpointAdvice:
        return checkpoint_advice(
            failures_per_day=rate_per_day,
            restart_min=restart,
            checkpoint_stall_min=stall,
            checkpoint_interval_min=interval,
            mtbf_range_min=spread,
            gpu_hours=hours,
            gpu_hour_price=price,
            is_rate_known=known,
        )

    advice = advice_at(per_day, known=is_rate_known)
    gains = None
    if spread is not None and is_rate_known:
        at_ends = [advice_at(MIN_PER_DAY / m if m is not None else 0.0).gain_ratio for m in spread]
        found = sorted(g for g in (advice.gain_ratio, *at_ends) if g is not None)
        gains = (found[0], found[-1]) if found else None
    return RunAdvice(
        given=replace(
            known,
            failures_per_day=per_day,
            restart_min=asked,
            stall_min=stall,
            interval_min=interval,
        ),
        advice=advice,
        losses=goodput_losses(
            failures_per_day=per_day,
            restart_min=restart,
            checkpoint_interval_min=interval,
            checkpoint_stall_min=stall,
            is_rate_known=is_rate_known,
        ),
        model_ratio=advice.current_goodput_ratio,
        mtbf_range_min=spread,
        gain_range=gains,
        gpu_hours=hours,
        gpu_hours_are=which,
        gpu_hour_price=price,
    )


def _spread(snapshot: Snapshot) -> tuple[float, float | None] | None:
    rate = run_failures(snapshot)
    if rate is None:
        return None
    low, high = (rate.widened or rate.rate).job_hours_interval
    return low * 60, high * 60 if high is not None else None


def _allocation(
    snapshot: Snapshot, known: RunCheckpoints, given: float | None
) -> tuple[float, Literal["given", "to go", "so far"]]:
    if given is not None:
        return given, "given"
    if known.gpu_hours_to_go:
        return known.gpu_hours_to_go, "to go"
    return _own_us(snapshot) / 3.6e9, "so far"


def _price(snapshot: Snapshot, hours: float, which: Literal["given", "to go", "so far"]) -> float | None:
    if which != "so far":
        return price_to_come(snapshot, hours)
    money = costs(snapshot)
    return money.gpu_hour_price if money is not None else None


def _own_us(snapshot: Snapshot) -> int:
    """Return GPU-microseconds that attempts held, pending time left out: what a checkpoint can save."""
    times = [line.gpu_us for line in snapshot.attempts if line.gpu_us is not None]
    return sum(t["allocated"] - t["pending"] for t in times)


def _shares(snapshot: Snapshot) -> MeasuredShares | None:
    times = snapshot.gpu_us if snapshot.gpu_us is not None else {**snapshot.wall_us, "idle": 0}
    whole = times["allocated"] - times["pending"]
    if whole <= 0:
        return None
    return MeasuredShares(
        goodput_ratio=times["productive"] / whole,
        restart_ratio=(times["startup"] + times["tail"]) / whole,
        redo_ratio=times["lost"] / whole,
        checkpoint_ratio=times["checkpoint"] / whole,
        rest_ratio=(times["evaluation"] + times["idle"] + times["other"]) / whole,
    )


def _unexpected(snapshot: Snapshot) -> list[Interruption]:
    return [stop for stop in snapshot.interruptions if stop.kind == "unexpected"]


def _times(snapshot: Snapshot) -> list[float]:
    """Return when the failures came, in hours of the attempts' own time."""
    ended = {stop.attempt for stop in _unexpected(snapshot)}
    times, clock = [], 0
    for line in snapshot.attempts:
        clock += line.wall_us["allocated"]
        if line.number in ended:
            times.append(clock / 3.6e9)
    return times


def _restart_us(snapshot: Snapshot, stop: Interruption) -> int:
    """Return the tail of the attempt that ended and the start-up of the next one, where there is one."""
    found = snapshot.attempts[stop.attempt - 1].wall_us["tail"]
    if stop.attempt < len(snapshot.attempts):
        found += snapshot.attempts[stop.attempt].wall_us["startup"]
    return found


def _to_go(snapshot: Snapshot) -> float | None:
    tokens, rate, times = snapshot.tokens, snapshot.per_trillion.realised, snapshot.gpu_us
    if tokens.planned is None or tokens.net is None or rate is None or times is None:
        return None
    whole = times["allocated"] - times["pending"]
    own = _own_us(snapshot) / whole if whole > 0 else 1.0
    return max(0.0, tokens.planned - tokens.net - (tokens.inherited or 0)) * rate / 1e12 * own
