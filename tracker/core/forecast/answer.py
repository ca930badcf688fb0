"""The answer: quantiles, probabilities, what it rests on, in numbers and in words.

Pure. numpy, loaded when called.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
from dataclasses import replace
from typing import Any, Final

from tracker.core.energy import energy_mwh
from tracker.core.forecast.change import Change
from tracker.core.forecast.lines import straight_lines
from tracker.core.forecast.model import VERSION, Plays, play
from tracker.core.forecast.move import move_since
from tracker.core.forecast.pace import NoAnswer
from tracker.core.forecast.prior import DEFAULT, Priors
from tracker.core.forecast.state import State
from tracker.core.forecast.value import LEVELS, Driver, Forecast, Inputs, Quantiles
from tracker.core.forecast.words import loop, one_reading, sentences
from tracker.core.plan import Plan
from tracker.core.run_plan import planned_us
from tracker.core.settings import Settings

FAR_S: Final = 20 * 365.25 * 86400.0
"""A finish further away than this is "not in sight"."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY_US: Final = 86_400e6


def forecast(
    state: State,
    settings: Settings,
    *,
    spent: float | None = None,
    plan_finish_us: int | None = None,
    earlier: Forecast | None = None,
    change: Change | None = None,
    priors: Priors = DEFAULT,
) -> Forecast:
    """Return the forecast of a state. `spent` is money so far; `earlier` an older forecast to explain."""
    plan = settings.plan
    reason = _cannot(state, plan)
    digest = _digest(state, settings, priors)
    if reason:
        return Forecast(as_of_us=state.as_of_us, basis="none", reasons=(reason,), digest=digest)
    assert plan is not None
    if state.phase == "finished" or not state.stages:
        return _exact(state, settings, spent, plan_finish_us, digest)
    try:
        plays = play(
            state,
            plan_rate=plan_rate(plan, state),
            change=change,
            priors=priors,
            not_before_us=not_before_us(plan),
        )
    except NoAnswer as error:
        return Forecast(as_of_us=state.as_of_us, basis="none", reasons=(str(error),), digest=digest)
    return _told(state, settings, plays, spent, plan_finish_us, earlier, digest, change)


def not_before_us(plan: Plan) -> int | None:
    """Return the planned start; None where the plan has none."""
    return _us(plan.start) if plan.start is not None else None


def plan_rate(plan: Plan, state: State) -> float | None:
    """Return tokens a second and GPU that the plan expects of the present stage; None while unknown."""
    flop = plan.flop()
    if flop is None or plan.peak is None:
        return None
    return float(plan.mfu) * plan.peak.value / flop.value / state.stage_factor


def _cannot(state: State, plan: Plan | None) -> str:
    if plan is None or state.target_tokens is None:
        if state.phase == "finished":
            return ""
        return "no target: set plan.tokens (or list [[plan.stage]]), and the finish can be forecast"
    if state.done_tokens is None and state.phase != "finished":
        return (
            "tokens are not known: the log does not say them; set model.sequence_length and "
            "model.global_batch_size"
        )
    return ""


def _digest(state: State, settings: Settings, priors: Priors) -> str:
    text = (
        f"{VERSION}|{state.digest()}|{settings.plan!r}|{settings.reservation!r}|{settings.billing}|{priors!r}"
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# -- the finished run -------------------------------------------------------------------------------


def _exact(
    state: State, settings: Settings, spent: float | None, plan_finish_us: int | None, digest: str
) -> Forecast:
    at = state.finished_us
    if at is None:
        return Forecast(
            as_of_us=state.as_of_us,
            basis="none",
            reasons=("nothing is left to train, and no line tells when the last step was done",),
            digest=digest,
        )
    hours = state.spent_gpu_hours
    plan = settings.plan
    these_us = _planned_for(state, plan, plan_finish_us)
    made = Forecast(
        as_of_us=state.as_of_us,
        basis="exact",
        finish_us=Quantiles.exact(at),
        gpu_hours=Quantiles.exact(hours) if hours is not None else None,
        cost=Quantiles.exact(spent) if spent is not None else None,
        currency=plan.currency if plan is not None else "USD",
        energy_mwh=_energy_exact(hours, plan),
        days_behind_plan=_days(at, these_us),
        by_deadline_ratio=_done_by(at, _us(plan.deadline) if plan is not None and plan.deadline else None),
        by_reservation_end_ratio=_done_by(at, settings.reservation.end_us),
        within_budget_ratio=(
            None if plan is None or plan.budget is None or spent is None else float(spent <= plan.budget)
        ),
        levels_us=tuple((level, at) for level in LEVELS),
        flagged=state.doubts,
        digest=digest,
    )
    return replace(made, sentences=sentences(made, state, settings, these_us))


def _planned_for(state: State, plan: Plan | None, plan_finish_us: int | None) -> int | None:
    """Return when the plan has the tokens that were trained; None for a run that ended short of them."""
    done, aim = state.done_tokens, state.aim_tokens
    if plan is None or plan_finish_us is None or done is None or aim is None or state.short_ratio is not None:
        return None
    days = plan.days()
    if days is None:
        return plan_finish_us if done >= aim else None
    return planned_us(plan, done, plan_finish_us - days * _DAY_US)


def _energy_exact(hours: float | None, plan: Plan | None) -> Quantiles | None:
    if hours is None or plan is None or plan.power_w is None:
        return None
    return Quantiles.exact(
        energy_mwh(gpu_hours=hours, power_w=plan.power_w, facility_overhead=plan.facility_overhead)
    )


def _done_by(at_us: int, limit_us: int | None) -> float | None:
    return None if limit_us is None else float(at_us <= limit_us)


# -- the run that goes on ---------------------------------------------------------------------------


def _told(
    state: State,
    settings: Settings,
    plays: Plays,
    spent: float | None,
    plan_finish_us: int | None,
    earlier: Forecast | None,
    digest: str,
    change: Change | None,
) -> Forecast:
    import numpy as np

    plan = settings.plan
    assert plan is not None
    now = state.as_of_us
    wall = plays.wall_s
    finish = _quantiles(np, wall, lambda s: None if s > FAR_S else float(now + round(s * 1e6)))
    hours, future = None, hours_ahead(plays, state, settings, change)
    if future is not None and state.spent_gpu_hours is not None:
        hours = future + state.spent_gpu_hours
    elif future is not None and state.start_us is None:
        hours = future
    cost = money_at_finish(np, plan, now, wall, future, spent)
    in_sight = finish.p50 is not None
    lines = straight_lines(state)
    measured = plays.rate is not None and plays.rate.measured
    deadline = _us(plan.deadline) if plan.deadline is not None else None
    made = Forecast(
        as_of_us=now,
        basis="measured" if measured else "plan",
        finish_us=finish,
        gpu_hours=_quantiles(np, hours, _finite) if hours is not None and in_sight else None,
        cost=_quantiles(np, cost, _finite) if cost is not None and in_sight else None,
        currency=plan.currency,
        energy_mwh=_energy(np, hours, plan) if in_sight else None,
        days_behind_plan=_days(finish.p50, plan_finish_us),
        by_deadline_ratio=_share(np, wall, now, deadline),
        by_reservation_end_ratio=_share(np, wall, now, settings.reservation.end_us),
        within_budget_ratio=(
            None if plan.budget is None or cost is None else _ratio(float(np.mean(cost <= plan.budget)))
        ),
        levels_us=_levels(np, wall, now),
        drivers=_drivers(np, plays),
        inputs=_inputs(state, plays),
        lines_us=lines,
        reasons=_reasons(state, plan, finish),
        assumptions=_assumptions(state, plan, measured),
        warning=loop(state) or one_reading(plays.rate, state, lines),
        flagged=state.doubts,
        digest=digest,
    )
    if earlier is not None and _comparable(earlier, state, plan):
        made = replace(made, move=move_since(earlier, made))
    return replace(made, sentences=sentences(made, state, settings, plan_finish_us))


def _comparable(earlier: Forecast, state: State, plan: Plan) -> bool:
    """Tell whether an earlier forecast was of this run: before its first launch, only of a planned start."""
    return plan.start is not None or (state.start_us is not None and earlier.as_of_us >= state.start_us)


def hours_ahead(plays: Plays, state: State, settings: Settings, change: Change | None) -> Any:
    """Return the GPU-hours that will be paid from now on, one a play; None while unknown."""
    if settings.billing != "reservation" or state.gpus is None:
        return plays.gpu_hours
    held = settings.reservation.gpus or state.gpus
    if change is not None and change.gpus is not None:  # more GPUs need a larger reservation
        held = max(held, change.gpus)
    return plays.wall_s / 3600 * held


def _quantiles(np: Any, values: Any, read: Any) -> Quantiles:
    low, middle, high = (read(float(v)) for v in np.quantile(values, (0.1, 0.5, 0.9)))
    return Quantiles(p10=low, p50=middle, p90=high)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _levels(np: Any, wall: Any, now: int) -> tuple[tuple[float, int], ...]:
    found = np.quantile(wall, LEVELS)
    return tuple(
        (level, now + round(float(s) * 1e6)) for level, s in zip(LEVELS, found, strict=True) if s <= FAR_S
    )


def _share(np: Any, wall: Any, now: int, limit_us: int | None) -> float | None:
    if limit_us is None:
        return None
    return _ratio(float(np.mean(wall <= (limit_us - now) / 1e6)))


def _ratio(share: float) -> float:
    return round(share, 3)


def money_at_finish(np: Any, plan: Plan, now: int, wall: Any, future: Any, spent: float | None) -> Any:
    """Return the cost of the whole run, one a play; None while unknown."""
    prices = plan.price_list
    if prices is None or future is None or spent is None:
        return None
    if prices.is_flat:
        return spent + future * prices.steps[0].gpu_hour_price
    edges = [_us(s.since) for s in prices.steps if s.since is not None and _us(s.since) > now]
    times = np.asarray([now, *edges, now + round(FAR_S * 1e6)], dtype=float)
    rate = [prices.at(_EPOCH + dt.timedelta(microseconds=int(t))) for t in times[:-1]]
    money = np.concatenate(([0.0], np.cumsum(np.diff(times) * np.asarray(rate))))  # price x time
    ends = np.minimum(now + wall * 1e6, times[-1])
    mean = np.interp(ends, times, money) / np.maximum(ends - now, 1.0)
    return spent + future * mean


def _energy(np: Any, hours: Any, plan: Plan) -> Quantiles | None:
    if hours is None or plan.power_w is None:
        return None
    factor = energy_mwh(gpu_hours=1.0, power_w=plan.power_w, facility_overhead=plan.facility_overhead)
    return _quantiles(np, hours * factor, _finite)


def _drivers(np: Any, plays: Plays) -> tuple[Driver, ...]:
    """Return each input's share of the range: its squared correlation with the finish, made to sum to 1.

    All between their P5 and P95: one outage in a hundred plays makes most of the variance, and no range.
    """

    def middle(values: Any) -> Any:
        kept = np.clip(values, *np.quantile(values, (0.05, 0.95)))
        return kept - kept.mean()

    total = middle(plays.wall_s)
    found: dict[str, float] = {}
    for name, values in plays.drivers.items():
        own = middle(values)
        size = float(own @ own) * float(total @ total)
        found[name] = float(own @ total) ** 2 / size if size > 0 else 0.0
    whole = sum(found.values())
    if whole <= 0:
        return ()
    ordered = sorted(found.items(), key=lambda item: -item[1])
    return tuple(Driver(name=n, share_ratio=round(v / whole, 4)) for n, v in ordered if v / whole >= 0.005)


def _inputs(state: State, plays: Plays) -> Inputs | None:
    if plays.rate is None or state.target_tokens is None:
        return None
    return Inputs(
        target_tokens=(state.done_tokens or 0.0) + (state.left_tokens or 0.0),
        done_tokens=state.done_tokens or 0.0,
        rate=math.exp(plays.rate.mean),
        gpus=state.world or 1,
        goodput_ratio=plays.goodput,
        mtbf_gpu_hours=plays.mtbf_gpu_hours,
        restart_s=plays.stop_s,
        wait_s=plays.open_s,
        merged_launches=state.merged,
    )


def _reasons(state: State, plan: Plan, finish: Quantiles) -> tuple[str, ...]:
    found = []
    if finish.p90 is None:
        found.append("part of the range lies more than 20 years ahead and is not stated")
    if state.gpus is None:
        found.append("GPU-hours, cost and energy: the GPU count is unknown; set hardware.gpus")
    if plan.price_list is None:
        found.append("cost: set plan.gpu_hour_price")
    if plan.power_w is None:
        found.append("energy: set plan.gpu_power_w, or hardware.gpu (a row of the hardware table)")
    return tuple(found)


def _assumptions(state: State, plan: Plan, measured: bool) -> tuple[str, ...]:
    found = []
    if not measured:
        found.append(f"rate: planned MFU {_planned_mfu(state, plan)}, +-18 %")
    stops = sum(1 for s in state.stops if not s.planned)
    if stops < 10:
        found.append(
            f"failures: {stops} ended work that is kept, so a weak belief still counts: one in "
            f"{DEFAULT.device_mtbf_h:,.0f} GPU-hours, give or take a factor of "
            f"{math.exp(DEFAULT.device_mtbf_sd):.1f} (Llama 3 had one in 50,677, "
            "Meta RSC-1 one in 29,538, jobs of 1,024 GPUs there one in 8,090)"
        )
        found.append(
            "cost of a stop, launches that failed after it among it: besides the run's own, a median of "
            f"{DEFAULT.wait_s / 60:.0f} min and half a checkpoint interval (ByteRobust 2025), as much as "
            f"{DEFAULT.cost_weight} stops"
        )
    if plan.later_fraction > 0:
        said = plan.sources.get("later_stages", "assumed")
        found.append(f"later stages: {plan.later_fraction:.0%} of the target ({said})")
    return tuple(found)


def _planned_mfu(state: State, plan: Plan) -> str:
    name = next((s.name for s in state.stages if s.current), "")
    own = next((s.mfu for s in plan.stages if s.name == name and s.mfu is not None), None)
    if own is not None:
        return f"{own:.3g} (of stage {name})"
    return f"{float(plan.mfu):.3g} ({plan.sources.get('mfu', 'assumed')})"


def _days(at_us: float | None, plan_us: int | None) -> float | None:
    return None if at_us is None or plan_us is None else (at_us - plan_us) / _DAY_US


def _us(moment: dt.datetime) -> int:
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)


def spent_money(
    plan: Plan | None, spans: list[tuple[int, int, float]], gpu_hours: float | None
) -> float | None:
    """Return what the GPU-hours so far cost: (start, end, GPU-hours) spans; None without a price."""
    prices = plan.price_list if plan is not None else None
    if prices is None:
        return None
    if prices.is_flat:
        return None if gpu_hours is None and spans else (gpu_hours or 0.0) * prices.steps[0].gpu_hour_price
    return prices.cost_of_spans(
        (_EPOCH + dt.timedelta(microseconds=a), _EPOCH + dt.timedelta(microseconds=b), hours)
        for a, b, hours in spans
    )
