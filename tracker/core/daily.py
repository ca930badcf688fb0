"""A run as its daily report shows it: now against a day before and the plan, with what stands beside it.

Pure: snapshots and forecasts in, finished numbers out. A report prints them and computes nothing.

The last day is the exact difference of two snapshots, but for time before it that a later line of the log
explains otherwise: that is named apart. What a restart of that day threw away counts as lost in it, also
where it was trained before: then the productive bucket of the day may be below zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from tracker.core.chain import Chain, published_chains
from tracker.core.changes import Changes
from tracker.core.daily_value import DAY_US, Compared, Daily, Figures, Health, Period, PlanSide, StopGroup
from tracker.core.definitions import goodput_definitions
from tracker.core.errors import TrackerError
from tracker.core.forecast.value import Forecast
from tracker.core.interruptions import Interruption
from tracker.core.ledger import BUCKETS
from tracker.core.metrics import gpu_hours_per_trillion_tokens, mfu
from tracker.core.plan import Plan
from tracker.core.references import differences, find_run
from tracker.core.run_facts import chains_of, point_of, run_facts, run_variance, shorter_target
from tracker.core.run_failures import (
    RunAdvice,
    run_advice,
    run_causes,
    run_checkpoints,
    run_failures,
)
from tracker.core.run_money import EPOCH, Loss, costs, drawn, spent
from tracker.core.run_plan import plan_beside_run, plan_for
from tracker.core.run_standing import done_tokens, due_tokens, plan_way, planned_finish_us
from tracker.core.series import Series
from tracker.core.snapshot import Snapshot

__all__ = [
    "DAY_US",
    "Compared",
    "Daily",
    "Figures",
    "Health",
    "Period",
    "PlanSide",
    "StopGroup",
    "daily",
    "history_moments",
]

_HOUR_US: Final = 3_600_000_000
_STEPS_US: Final = tuple(
    [hours * _HOUR_US for hours in (1, 2, 4, 6, 12)] + [days * DAY_US for days in (1, 2, 4, 7, 14, 28)]
)
_MOMENTS: Final = 12
_PUBLISHED: Final = 4
_FAR_RATIO: Final = 0.1
_LIKELY: Final = (
    "productive", "lost", "startup", "checkpoint", "evaluation", "other", "tail", "idle", "pending",
)  # fmt: skip
_RESTATED: Final = {
    name: tuple(taker for taker in _LIKELY if taker != name) for name in BUCKETS if name != "productive"
}
"""Where the time of a bucket goes that turns out to be another's, the likeliest first."""
_ON_PLAN_DAYS: Final = 0.5
_ON_PLAN_RATIO: Final = 0.02


def daily(
    snapshot: Snapshot,
    *,
    before: Snapshot | None = None,
    earlier: Snapshot | None = None,
    history: Sequence[Forecast] = (),
    series: Series | None = None,
    changes: Changes | None = None,
    health: Health | None = None,
) -> Daily:
    """Return the report's value of a run: `before` is a day before, `earlier` two days before.

    `history` may hold forecasts of any moment; those at or after the snapshot's are left out.
    """
    money, energy = costs(snapshot), drawn(snapshot)
    losses = money.losses if money is not None else tuple(None for _ in snapshot.interruptions)
    began = before is not None and bool(before.attempts)
    day = _period(snapshot, before, losses) if began and before is not None else None
    if day is not None and snapshot.state == "finished" and not day.gpu_us["allocated"]:
        day = None
    day_before = None
    if day is not None and before is not None and earlier is not None and earlier.attempts:
        day_before = _period(before, earlier, losses[: len(before.interruptions)])
    plan = _plan_side(snapshot)
    figures = _figures(snapshot, before if began else None, day, day_before, plan)
    point = point_of(snapshot)
    published = _nearest(snapshot, point)
    made = Daily(
        snapshot=snapshot,
        before=before if began else None,
        earlier=earlier,
        day=day,
        day_before=day_before,
        grown=_grown(day, day_before),
        figures=figures,
        plan=plan,
        pace="",
        shorter_target=shorter_target(snapshot),
        history=tuple(
            sorted((f for f in history if f.as_of_us < snapshot.as_of_us), key=lambda f: f.as_of_us)
        ),
        losses=losses,
        variance=run_variance(snapshot),
        failures=run_failures(snapshot),
        causes=run_causes(snapshot),
        checkpoints=run_checkpoints(snapshot),
        advice=_advice(snapshot),
        chains=(*chains_of(snapshot), *published),
        differs={row.name: _differs(row.name, point) for row in published},
        sizes=_sizes(snapshot, published),
        definitions=goodput_definitions(run_facts(snapshot)) if snapshot.attempts else (),
        series=series or Series(),
        changes=changes or Changes(),
        money=money,
        energy=energy,
        health=health or Health(),
    )
    return replace(made, pace=_pace(made.late_days, plan))


def history_moments(start_us: int | None, until_us: int) -> tuple[int, ...]:
    """Return moments of a run's past, evenly back from a moment, at which to ask for the forecast again.

    >>> [m // 3_600_000_000 for m in history_moments(0, 5 * 3_600_000_000)]
    [1, 2, 3, 4]
    """
    if start_us is None or until_us <= start_us:
        return ()
    span = until_us - start_us
    step = next((s for s in _STEPS_US if span <= s * _MOMENTS), None)
    if step is None:
        step = math.ceil(span / _MOMENTS / DAY_US) * DAY_US
    count = (span - 1) // step
    return tuple(until_us - k * step for k in range(count, 0, -1))


def _period(now: Snapshot, before: Snapshot, losses: Sequence[Loss | None]) -> Period | None:
    if now.gpu_us is None or before.gpu_us is None:
        return None
    gpu_us = {name: now.gpu_us[name] - before.gpu_us[name] for name in ("allocated", *BUCKETS)}
    restated = _restated(now, before, gpu_us)
    gpu_us = {name: us - restated.get(name, 0) for name, us in gpu_us.items()}
    whole = gpu_us["allocated"] - gpu_us["pending"]
    tokens = _minus(now.tokens.seen, before.tokens.seen)
    within = [
        (stop, loss)
        for stop, loss in zip(now.interruptions, losses, strict=True)
        if before.as_of_us < stop.at_us <= now.as_of_us
    ]
    return Period(
        start_us=before.as_of_us,
        end_us=now.as_of_us,
        gpu_us=gpu_us,
        restated_us=restated,
        goodput_ratio=gpu_us["productive"] / whole if whole > 0 else None,
        shares={name: gpu_us[name] / whole for name in BUCKETS} if whole > 0 else {},
        mfu_ratio=_mfu(now, before, gpu_us["productive"] + restated.get("productive", 0)),
        tokens_net=_minus(_in_model(now), _in_model(before)),
        hours_per_trillion=gpu_hours_per_trillion_tokens(tokens=round(tokens), gpu_us=whole)
        if tokens is not None and tokens > 0 and whole > 0
        else None,
        cost=_minus(spent(now), spent(before)),
        energy_mwh=_minus(_used(now), _used(before)),
        stops=_groups(within),
        interruptions=tuple(stop for stop, _ in within),
    )


def _restated(now: Snapshot, before: Snapshot, change: Mapping[str, int]) -> dict[str, int]:
    """Return what moved between buckets of time before the period, as a later line of the log told more.

    A wait for the first line is start-up until the line shows when it began; time after the last step
    becomes what the next line says of it. What a bucket lost so, others of the same attempt gained. What a
    restart threw away is no such move: it is lost in the period.
    """
    found: dict[str, int] = {}
    then = {line.number: line for line in before.attempts}
    for line in now.attempts:
        old = then.get(line.number)
        if old is not None and old.gpu_us is not None and line.gpu_us is not None:
            _move({name: line.gpu_us[name] - old.gpu_us[name] for name in BUCKETS}, found)
    _move({name: change[name] - found.get(name, 0) for name in BUCKETS}, found)
    return {name: us for name, us in found.items() if us}


def _move(change: Mapping[str, int], found: dict[str, int]) -> None:
    """Add to `found` what buckets below zero lost, and which ones above zero have it now."""
    left = dict(change)
    for name, takers in _RESTATED.items():
        for taker in takers:
            part = min(-left[name], left[taker])
            if part > 0:
                for bucket, us in ((name, -part), (taker, part)):
                    left[bucket] -= us
                    found[bucket] = found.get(bucket, 0) + us


def _grown(day: Period | None, before: Period | None) -> str:
    if day is None:
        return ""
    was = before.shares if before is not None else {}
    loss = [name for name in day.shares if name not in ("productive", "pending")]
    return max(loss, key=lambda name: day.shares[name] - was.get(name, 0.0), default="")


def _groups(within: Sequence[tuple[Interruption, Loss | None]]) -> tuple[StopGroup, ...]:
    by: dict[tuple[str, str], list[Loss | None]] = {}
    redone: dict[tuple[str, str], int] = {}
    for stop, loss in within:
        group = stop.kind, stop.cause
        by.setdefault(group, []).append(loss)
        redone[group] = redone.get(group, 0) + stop.redo_steps
    groups = [
        StopGroup(
            cause=cause,
            kind=kind,
            count=len(found),
            gpu_hours=None
            if any(loss is None for loss in found)
            else math.fsum(loss.gpu_hours for loss in found if loss is not None),
            redo_steps=redone[kind, cause],
        )
        for (kind, cause), found in by.items()
    ]
    return tuple(sorted(groups, key=lambda g: (-(g.gpu_hours or 0.0), -g.count, g.cause)))


def _mfu(now: Snapshot, before: Snapshot, productive_us: int) -> float | None:
    """Return MFU of a period; None where restarts took back what was trained before it."""
    peak = now.mfu.peak_flop_per_s
    flop = _minus(_flop(now), _flop(before))
    if peak is None or flop is None or flop <= 0 or productive_us <= 0:
        return None
    return mfu(flop=flop, gpu_us=productive_us, peak_flop_per_s=peak)


def _flop(snapshot: Snapshot) -> float | None:
    found = [line.flop for line in snapshot.attempts if line.steps_net]
    known = [flop for flop in found if flop is not None]
    return math.fsum(known) if found and len(known) == len(found) else None


def _in_model(snapshot: Snapshot) -> float | None:
    net = snapshot.tokens.net
    return None if net is None else float(net + (snapshot.tokens.inherited or 0))


def _used(snapshot: Snapshot) -> float | None:
    found = drawn(snapshot)
    return None if found is None else found.mwh


def _minus(now: float | None, before: float | None) -> float | None:
    return now - before if now is not None and before is not None else None


def _plan_side(snapshot: Snapshot) -> PlanSide | None:
    if snapshot.settings is None or snapshot.settings.plan is None:
        return None
    try:
        plan = plan_beside_run(snapshot)
        estimate = plan.estimate()
    except TrackerError:
        return PlanSide(finish_us=snapshot.plan_finish_us, target_tokens=snapshot.tokens.planned)
    start = None if plan.start is None else int((plan.start - EPOCH).total_seconds()) * 1_000_000
    target = plan.target_tokens
    hours = estimate.final_gpu_hours if estimate is not None else None
    done = done_tokens(snapshot)
    if done is not None:
        came = snapshot.tokens.inherited or 0
        part = plan_for(plan, done - came, after=came)
        hours = part.billed_gpu_hours if part is not None else None
    so_far = plan_for(plan, _in_model(snapshot) or 1.0) if plan.stages else None
    return PlanSide(
        start_us=start,
        finish_us=planned_finish_us(snapshot),
        target_tokens=target,
        later_ratio=plan.later_fraction,
        is_staged=bool(plan.stages),
        tokens_due=due_tokens(plan, snapshot.as_of_us),
        line=_line(plan, start, snapshot.plan_finish_us),
        gpu_hours=hours,
        cost=plan.cost(hours),
        energy_mwh=plan.energy_mwh(hours),
        mfu_ratio=_given(plan, "mfu") if so_far is None else so_far.mfu_ratio,
        goodput_ratio=_given(plan, "goodput") if so_far is None else so_far.goodput_ratio,
        hours_per_trillion=snapshot.per_trillion.plan,
        assumed=plan.assumed,
    )


def _given(plan: Plan, name: str) -> float:
    return float(getattr(plan, name))


def _line(plan: Plan, start_us: int | None, finish_us: int | None) -> tuple[tuple[int, float], ...]:
    """Return the plan's way to its target and, from there to its finish, through later stages."""
    if start_us is None or finish_us is None or plan.all_tokens is None:
        return ()
    way = [(round(start_us + us), tokens) for us, tokens in plan_way(plan)]
    if not way:
        return ()
    later = [(finish_us, plan.all_tokens)] if plan.later_fraction > 0 else []
    return (*way, *later)


def _pace(late: float | None, plan: PlanSide | None) -> str:
    """Judge the median: within half a day and 2 % of the planned length it is on plan, beyond 10 % far."""
    if late is None or plan is None or plan.finish_us is None:
        return ""
    near, far = _ON_PLAN_DAYS, math.inf
    if plan.start_us is not None:
        planned = (plan.finish_us - plan.start_us) / DAY_US
        near, far = min(near, _ON_PLAN_RATIO * planned), _FAR_RATIO * planned
    if abs(late) <= near:
        return "on plan"
    if late < 0:
        return "ahead"
    return "far behind" if late >= far else "behind"


def _figures(
    snapshot: Snapshot,
    before: Snapshot | None,
    day: Period | None,
    day_before: Period | None,
    plan: PlanSide | None,
) -> Figures:
    now = snapshot.forecast
    then = before.forecast if before is not None else None
    p = plan or PlanSide()

    def middle(name: str, planned: float | None) -> Compared:
        found = [getattr(f, name) if f is not None else None for f in (now, then)]
        values = [q.p50 if q is not None else None for q in found]
        return Compared(now=values[0], before=values[1], plan=planned)

    return Figures(
        finish_us=middle("finish_us", p.finish_us),
        gpu_hours=middle("gpu_hours", p.gpu_hours),
        cost=middle("cost", p.cost),
        energy_mwh=middle("energy_mwh", p.energy_mwh),
        tokens=Compared(now=_in_model(snapshot), before=_of(before, _in_model), plan=p.tokens_due),
        goodput=Compared(
            now=snapshot.goodput_ratio,
            before=_of(before, lambda s: s.goodput_ratio),
            plan=p.goodput_ratio,
        ),
        goodput_day=Compared(
            now=_of(day, lambda d: d.goodput_ratio),
            before=_of(day_before, lambda d: d.goodput_ratio),
            plan=p.goodput_ratio,
        ),
        mfu=Compared(
            now=snapshot.mfu.productive_ratio,
            before=_of(before, lambda s: s.mfu.productive_ratio),
            plan=p.mfu_ratio,
        ),
        mfu_day=Compared(
            now=_of(day, lambda d: d.mfu_ratio),
            before=_of(day_before, lambda d: d.mfu_ratio),
            plan=p.mfu_ratio,
        ),
        hours_per_trillion=Compared(
            now=snapshot.per_trillion.realised,
            before=_of(before, lambda s: s.per_trillion.realised),
            plan=p.hours_per_trillion,
        ),
    )


_Whole = TypeVar("_Whole")


def _of(whole: _Whole | None, read: Callable[[_Whole], float | None]) -> float | None:
    return None if whole is None else read(whole)


def _advice(snapshot: Snapshot) -> RunAdvice | None:
    try:
        return run_advice(snapshot)
    except TrackerError:
        return None


def _nearest(snapshot: Snapshot, point: Mapping[str, object]) -> tuple[Chain, ...]:
    """Return the published runs on the same device first, then those of the nearest size; never a ranking."""
    rows = published_chains()
    settings = snapshot.settings
    size = settings.model.active_params if settings is not None else None

    def far(row: Chain) -> tuple[bool, float]:
        theirs = find_run(row.name)
        apart = 0.0 if size is None else abs(math.log(theirs.active_params / size))
        return "gpu" in point and theirs.gpu != point["gpu"], apart

    near = sorted(rows, key=far)[:_PUBLISHED]
    return tuple(row for row in rows if row in near)


def _sizes(snapshot: Snapshot, published: Sequence[Chain]) -> dict[str, float]:
    found = {row.name: find_run(row.name).active_params for row in published}
    settings = snapshot.settings
    own = settings.model.active_params if settings is not None else None
    if own is not None:
        found |= {row.name: own for row in chains_of(snapshot)}
    return found


def _differs(name: str, point: Mapping[str, object]) -> tuple[str, ...]:
    theirs = find_run(name)
    there: dict[str, object] = {"gpu": theirs.gpu}
    if theirs.precision is not None:
        there["precision"] = theirs.precision
    return differences(run=point, reference=there, names=("gpu", "precision"))
