"""Where a run stands: against its plan, its checkpoints, its money; what alerts and dashboards ask for.

Pure: a Snapshot in. The formulas stand in the modules that this asks; here they meet one run.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from tracker.core.energy import energy_mwh
from tracker.core.errors import TrackerError
from tracker.core.goodput_model import goodput_losses
from tracker.core.memo import remembered
from tracker.core.plan import Plan
from tracker.core.run_failures import RunAdvice, run_advice, run_checkpoints, run_failures
from tracker.core.run_money import US_PER_H, drawn, spent
from tracker.core.run_plan import ENDED_SHORT, anchored, planned_us
from tracker.core.snapshot import Snapshot

DAY_US: Final = 24 * US_PER_H
_MIN_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What the plan says in the terms of a run's gauges; None where it does not say it."""

    start_us: int | None = None
    goodput_ratio: float | None = None
    """Of the main stage."""
    mfu_ratio: float | None = None
    """Of the main stage."""
    mtbf_s: float | None = None
    """Of the job, from plan.failures."""
    redone_ratio: float | None = None
    """Share of the allocation that the plan's failures throw away, by the failure model."""
    checkpoint_interval_s: float | None = None
    gpu_hours: float | None = None
    """Of the run with its later stages."""
    cost: float | None = None
    energy_mwh: float | None = None
    budget: float | None = None
    deadline_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """How often the run saves, and how often would serve it best; seconds. None where not known."""

    interval_s: float | None = None
    """Training between two saves so far, on average."""
    best_interval_s: float | None = None
    stall_s: float | None = None
    """Blocking time of a save, on average."""
    restart_s: float | None = None
    """Allocated time that a failure takes, on average."""
    gain_ratio: float | None = None
    """What the best interval would add to goodput: this many more steps in the same hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One run at one moment, beside what the snapshot itself holds."""

    currency: str = "USD"
    planned: Planned = Planned()
    due_tokens: float | None = None
    """What the plan has trained by now, at its own pace; None without a start and a GPU count."""
    schedule_ratio: float | None = None
    """Tokens in the model over those due: below 1 is behind the plan."""
    reservation_end_us: int | None = None
    cost: float | None = None
    """Money so far."""
    energy_mwh: float | None = None
    """So far."""
    power_from: Literal["measured", "measured in part", "plan", "TDP"] | None = None
    """Where the power that energy is counted with is from."""
    redone_ratio: float | None = None
    """Share of the allocation whose steps are not in the model, pending time left out."""
    unexpected_1h: int = 0
    """Unexpected interruptions in the last hour."""
    unexpected_24h: int = 0
    mtbf_interval_s: tuple[float | None, float | None] = (None, None)
    """90 % interval of the job's mean time between failures, widened where they bunch."""
    checkpoints: Checkpoints = Checkpoints()
    stall_limit_us: int | None = None
    """How long the running attempt may be quiet before it counts as stalled."""
    last_progress_us: int | None = None
    """The last sign of progress: a reading, or the end of a save or of an evaluation."""
    last_attempt_start_us: int | None = None
    last_unexpected_us: int | None = None
    """When the last unexpected interruption came."""


def run_standing(snapshot: Snapshot) -> Standing:
    """Return where a run stands; what is not known is None."""
    settings = snapshot.settings
    plan = anchored(settings.plan, snapshot.attempts) if settings is not None and settings.plan else None
    unexpected = [stop.at_us for stop in snapshot.interruptions if stop.kind == "unexpected"]
    last = snapshot.attempts[-1] if snapshot.attempts else None
    due = due_tokens(plan, snapshot.as_of_us) if plan is not None else None
    energy, known = drawn(snapshot), run_checkpoints(snapshot)
    shares = known.shares if known is not None else None
    progress = [line.progress_us for line in snapshot.attempts if line.progress_us is not None]
    return Standing(
        currency=plan.currency if plan is not None else "USD",
        planned=_planned(plan) if plan is not None else Planned(),
        due_tokens=due,
        schedule_ratio=_schedule(snapshot, due),
        reservation_end_us=settings.reservation.end_us if settings is not None else None,
        cost=spent(snapshot),
        energy_mwh=energy.mwh if energy is not None else None,
        power_from=energy.power_from if energy is not None else None,
        redone_ratio=shares.redo_ratio if shares is not None else None,
        unexpected_1h=sum(1 for at in unexpected if at > snapshot.as_of_us - US_PER_H),
        unexpected_24h=sum(1 for at in unexpected if at > snapshot.as_of_us - DAY_US),
        mtbf_interval_s=_mtbf_interval(snapshot),
        checkpoints=_checkpoints(snapshot),
        stall_limit_us=last.stall_limit_us if last is not None else None,
        last_progress_us=max(progress, default=None),
        last_attempt_start_us=last.start_us if last is not None else None,
        last_unexpected_us=max(unexpected, default=None),
    )


def due_tokens(plan: Plan, at_us: int) -> float | None:
    """Return the tokens that a plan has trained by a moment, stage after stage, each at its own pace.

    The later-stages fraction adds time after them and no tokens. None without a start, a GPU count, a
    target, or before the start.
    """
    way = plan_way(plan)
    if not way or plan.start is None:
        return None
    gone_us = at_us - plan.start.timestamp() * 1e6
    if gone_us < 0:
        return None
    for (since, before), (until, after) in pairwise(way):
        if gone_us < until:
            return before + (after - before) * ((gone_us - since) / (until - since))
    return way[-1][1]


def plan_way(plan: Plan) -> tuple[tuple[float, float], ...]:
    """Return times since a plan's start (us) and tokens: from each to the next its way is straight.

    Empty without a GPU count or a target.
    """
    estimate = plan.estimate()
    if estimate is None:
        return ()
    at, tokens = 0.0, 0.0
    found = [(at, tokens)]
    for stage in estimate.stages:
        if stage.days is None:
            return ()
        at, tokens = at + stage.days * DAY_US, tokens + stage.tokens
        found.append((at, tokens))
    return tuple(found)


def ended_short(snapshot: Snapshot) -> bool:
    """Return whether a run is over, and well below its target."""
    tokens = snapshot.tokens
    if snapshot.state != "finished" or tokens.net is None or not tokens.planned:
        return False
    return tokens.net + (tokens.inherited or 0) < ENDED_SHORT * tokens.planned


def done_tokens(snapshot: Snapshot) -> float | None:
    """Return the tokens in the model of a run that is done: the plan beside it is the plan for these.

    Of one that goes on past its target and later stages, only those, as its finish is the moment of these.
    """
    made, tokens = snapshot.forecast, snapshot.tokens
    if made is None or made.basis != "exact" or not tokens.net:
        return None
    done = float(tokens.net + (tokens.inherited or 0))
    return done if snapshot.state == "finished" else min(done, _aim(snapshot) or done)


def planned_finish_us(snapshot: Snapshot) -> int | None:
    """Return the plan's finish; of a run that is done, when the plan has the tokens that it trained."""
    done, settings = done_tokens(snapshot), snapshot.settings
    if done is None or settings is None or settings.plan is None:
        return snapshot.plan_finish_us
    plan = anchored(settings.plan, snapshot.attempts)
    return None if plan.start is None else planned_us(plan, done, plan.start.timestamp() * 1e6)


def late_days(snapshot: Snapshot) -> float | None:
    """Return how late the median finish is; None for a run that ended short of its target.

    A finished run is set against the plan for the tokens that it trained: without this, later stages that
    are not trained here would make it early.
    """
    made = snapshot.forecast
    if made is None or ended_short(snapshot):
        return None
    if done_tokens(snapshot) is None:
        return made.days_behind_plan
    planned, middle = planned_finish_us(snapshot), made.finish_us.p50 if made.finish_us is not None else None
    return None if middle is None or planned is None else (middle - planned) / DAY_US


def _aim(snapshot: Snapshot) -> float | None:
    plan = snapshot.settings.plan if snapshot.settings is not None else None
    return plan.all_tokens if plan is not None else None


def _schedule(snapshot: Snapshot, due: float | None) -> float | None:
    tokens = snapshot.tokens
    if not due or tokens.net is None or tokens.inherited is None:
        return None
    return (tokens.net + tokens.inherited) / due


@remembered
def _planned(plan: Plan) -> Planned:
    estimate, failures = plan.estimate(), plan.failures
    main = max(plan.stages, key=lambda stage: stage.tokens, default=None)
    losses = None
    if failures is not None:
        losses = goodput_losses(
            failures_per_day=failures.per_day,
            restart_min=failures.restart_min,
            checkpoint_interval_min=failures.checkpoint_interval_min,
            checkpoint_stall_min=failures.checkpoint_stall_min,
        )
    hours = estimate.final_gpu_hours if estimate is not None else None
    power = plan.power_w
    return Planned(
        start_us=round(plan.start.timestamp() * 1e6) if plan.start is not None else None,
        goodput_ratio=main.goodput if main is not None and main.goodput else float(plan.goodput),
        mfu_ratio=main.mfu if main is not None and main.mfu else float(plan.mfu),
        mtbf_s=DAY_US / 1e6 / failures.per_day if failures is not None and failures.per_day else None,
        redone_ratio=losses.redo_ratio if losses is not None else None,
        checkpoint_interval_s=failures.checkpoint_interval_min * _MIN_S if failures is not None else None,
        gpu_hours=hours,
        cost=plan.cost(),
        energy_mwh=energy_mwh(gpu_hours=hours, power_w=power, facility_overhead=plan.facility_overhead)
        if hours is not None and power is not None
        else None,
        budget=plan.budget,
        deadline_us=round(plan.deadline.timestamp() * 1e6) if plan.deadline is not None else None,
    )


def _mtbf_interval(snapshot: Snapshot) -> tuple[float | None, float | None]:
    failures = run_failures(snapshot)
    if failures is None:
        return None, None
    low, high = (failures.widened or failures.rate).job_hours_interval
    return low * 3600, high * 3600 if high is not None else None


def _checkpoints(snapshot: Snapshot) -> Checkpoints:
    known = run_checkpoints(snapshot)
    if known is None:
        return Checkpoints()
    told = _advice(snapshot)
    best = told.advice.best_interval_min if told is not None else None
    return Checkpoints(
        interval_s=_seconds(known.interval_min),
        best_interval_s=_seconds(best),
        stall_s=_seconds(known.stall_min),
        restart_s=_seconds(known.restart_min),
        gain_ratio=told.advice.gain_ratio if told is not None else None,
    )


def _advice(snapshot: Snapshot) -> RunAdvice | None:
    try:
        return run_advice(snapshot, ends=False)
    except TrackerError:  # figures of the run that the model does not take: no advice, and no failure
        return None


def _seconds(minutes: float | None) -> float | None:
    return minutes * _MIN_S if minutes is not None else None
