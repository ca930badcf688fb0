"""The first page of the daily report: key figures, and when the run finishes.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from reports.daily_verdict import limits, young
from reports.daily_words import (
    Dates,
    apart,
    every,
    later_stages,
    length,
    money,
    moved,
    points,
    short,
    signed,
    whole_per_cent,
)
from reports.numbers import UNKNOWN, count, hours, per_cent, scaled
from reports.page import Block, KeyFigure, KeyFigures, Paragraph, Tone
from reports.tables import Table
from tracker.core.daily import DAY_US, Compared, Daily, PlanSide
from tracker.core.forecast.value import Part, Quantiles

_MOVED_DAYS = 0.05
_MOVED_RATIO = 0.005
_POOR = 0.5


def key_figures(daily: Daily, when: Dates) -> list[Block]:
    """Return the figures that a reader looks at first; those without any data are left out."""
    found = [
        _finish(daily, when),
        _tokens(daily),
        _goodput(daily),
        _mfu(daily),
        _per_trillion(daily),
        _gpu_hours(daily),
        _cost(daily),
        _interruptions(daily),
    ]
    shown = tuple(figure for figure in found if figure is not None)
    return [KeyFigures(figures=shown)] if shown else []


def _finish(daily: Daily, when: Dates) -> KeyFigure | None:
    f = daily.forecast
    q = f.finish_us if f is not None else None
    if f is None or q is None or q.p50 is None:
        return None
    compared = daily.figures.finish_us
    tone: Tone = "plain"
    plan = ""
    if compared.against_plan is not None and not daily.ended_short:
        if not young(daily):
            tone = {"behind": "warning", "far behind": "problem"}.get(daily.pace, "plain")  # type: ignore[assignment]
        late = compared.against_plan / DAY_US
        side = "after" if late > 0 else "before"
        these = _these(daily)
        plan = f"{length(late)} {side} the plan’s {when.short_day(compared.plan)}{these}"
        if daily.pace == "on plan":
            plan = f"on plan ({when.short_day(compared.plan)}{these})"
    change = ""
    if compared.since is not None and f.basis != "exact":
        change = _moved(daily, compared.since)
    if f.basis == "exact":
        name, convention = (
            "Ended" if daily.ended_short else "Finished",
            f"at {when.at(q.p50):%H:%M} {when.zone_name}",
        )
    else:
        name = "Finish, first guess" if young(daily) else "Finish, median"
        convention = f"80 %: {when.span(q.p10, q.p90)}"
        if f.basis == "plan":
            convention += "; from the plan"
    return KeyFigure(
        name=name, value=when.short_day(q.p50), change=change, plan=plan, convention=convention, tone=tone
    )


def _these(daily: Daily) -> str:
    return " for these tokens" if daily.for_these_tokens else ""


def _still(daily: Daily, days: float) -> bool:
    """Return whether a move is too small to tell, for a run of this length."""
    whole = daily.length_days
    return abs(days) < (_MOVED_DAYS if whole is None else min(_MOVED_DAYS, _MOVED_RATIO * whole))


def _moved(daily: Daily, since_us: float) -> str:
    days = since_us / DAY_US
    if _still(daily, days):
        return "unmoved since a day ago"
    return f"{length(days)} {'later' if days > 0 else 'earlier'} than a day ago"


def _tokens(daily: Daily) -> KeyFigure | None:
    tokens = daily.figures.tokens
    if tokens.now is None:
        return None
    side = daily.plan or PlanSide()
    target, share = side.target_tokens, daily.done_ratio
    later = later_stages(side.later_ratio, assumed="later_stages" in side.assumed)
    plan = ""
    if tokens.ratio_to_plan is not None and daily.snapshot.state != "finished":
        plan = f"{apart(tokens.ratio_to_plan, 'more than', 'less than')} due by now"
        plan = plan.replace("equal to due by now", "as due by now")
    return KeyFigure(
        name="Tokens in the model",
        value=scaled(tokens.now),
        change=f"+{scaled(tokens.since)} in a day"
        if tokens.since is not None and tokens.since >= 0
        else (f"−{scaled(-tokens.since)} in a day" if tokens.since is not None else ""),
        plan=plan,
        convention=f"{per_cent(share)} of {short(target)}{later}" if target else "",
    )


def _goodput(daily: Daily) -> KeyFigure | None:
    whole, day = daily.figures.goodput, daily.figures.goodput_day
    if day.now is not None:
        before = " on the day before" if day.since is not None else ""
        low = day.since is not None and day.since <= -0.05
        return KeyFigure(
            name="Goodput, last day",
            value="below zero" if day.now < 0 else per_cent(day.now),
            change=points(day.since) + before,
            plan=f"planned {per_cent(day.plan)}" if day.plan is not None else "",
            convention=f"whole run {per_cent(whole.now)}",
            tone="warning" if low or day.now < 0 else "plain",
        )
    if whole.now is None:
        return None
    return KeyFigure(
        name="Goodput",
        value=per_cent(whole.now),
        plan=f"planned {per_cent(whole.plan)}" if whole.plan is not None else "",
        convention="productive / allocated, pending left out",
    )


def _mfu(daily: Daily) -> KeyFigure | None:
    m, compared = daily.snapshot.mfu, daily.figures.mfu
    if compared.now is None:
        return None
    peak = UNKNOWN if m.peak_flop_per_s is None else f"{m.peak_flop_per_s / 1e12:,g}"
    return KeyFigure(
        name="MFU",
        value=per_cent(compared.now),
        change=f"{points(compared.since)} in a day" if compared.since is not None else "",
        plan=f"planned {per_cent(compared.plan)}{_stages_so_far(daily)}" if compared.plan is not None else "",
        convention=f"{m.flop_method} over {peak} TFLOP/s {m.reference_precision}",
    )


def _stages_so_far(daily: Daily) -> str:
    return " for the stages so far" if daily.plan is not None and daily.plan.is_staged else ""


def _per_trillion(daily: Daily) -> KeyFigure | None:
    compared = daily.figures.hours_per_trillion
    if compared.now is None:
        return None
    change = ""
    if compared.since is not None:
        change = f"{signed(hours(abs(compared.since)), compared.since)} in a day"
    return KeyFigure(
        name="GPU-hours per 10¹² tokens",
        value=hours(compared.now),
        change=change,
        plan=f"{apart(compared.ratio_to_plan)} the plan’s {hours(compared.plan)}"
        if compared.ratio_to_plan is not None
        else "",
        convention="allocated, for tokens kept",
    )


def _gpu_hours(daily: Daily) -> KeyFigure | None:
    gpu_us = daily.snapshot.gpu_us
    if gpu_us is None:
        return None
    used = gpu_us["allocated"] / 3.6e9
    return KeyFigure(
        name="GPU-hours allocated",
        value=hours(used),
        change=f"+{hours(daily.day.gpu_us['allocated'] / 3.6e9)} in a day" if daily.day is not None else "",
        plan=_at_finish(daily, used, daily.figures.gpu_hours),
    )


def _at_finish(daily: Daily, used: float, whole: Compared) -> str:
    """Return what it will come to, or came to, against the plan."""
    if daily.snapshot.state == "finished":
        whole = Compared(now=used, plan=whole.plan)
    told = (
        ""
        if whole.now is None or daily.snapshot.state == "finished"
        else f"{scaled(whole.now)} at the finish"
    )
    if young(daily) and told:
        return f"{told}, a first guess"
    if whole.ratio_to_plan is None:
        return told
    against = f"{apart(whole.ratio_to_plan)} the plan’s {scaled(whole.plan)}{_these(daily)}"
    return f"{told}, {against}" if told else against


def _cost(daily: Daily) -> KeyFigure | None:
    paid = daily.money
    if paid is None or paid.total is None:
        return None
    day = daily.day.cost if daily.day is not None else None
    return KeyFigure(
        name=f"Cost, {paid.currency}",
        value=scaled(paid.total),
        change=f"+{scaled(day)} in a day" if day is not None else "",
        plan=_at_finish(daily, paid.total, daily.figures.cost),
    )


def _interruptions(daily: Daily) -> KeyFigure | None:
    s = daily.snapshot
    if not s.attempts:
        return None
    unexpected = sum(1 for stop in s.interruptions if stop.kind == "unexpected")
    mtbf = s.mtbf.job_hours
    return KeyFigure(
        name="Unexpected stops",
        value=count(unexpected),
        change=f"{daily.day.unexpected} in the last day" if daily.day is not None else "",
        convention=f"one every {every(mtbf)}" if mtbf is not None else "none so far",
    )


# -- when it finishes -------------------------------------------------------------------------------


def finish_blocks(daily: Daily, when: Dates) -> list[Block]:
    """Return what the forecast says, why it moved, and its range as a table."""
    f = daily.forecast
    if f is None:
        return []
    if f.basis == "none":
        return [Paragraph(text=f"No finish is forecast: {'; '.join(f.reasons)}.")]
    found: list[Block] = []
    told = limits(daily, when)
    if told:
        text = ", ".join(what for _, what in told)
        tone: Tone = "plain" if all(kept for kept, _ in told) else "warning"
        found.append(Paragraph(text=text[:1].upper() + text[1:] + ".", tone=tone))
    for text, tone in _sentences(daily, when):
        found.append(Paragraph(text=text, tone=tone))
    if f.basis != "exact":
        found.append(_range_table(daily, when))
    return found


def _sentences(daily: Daily, when: Dates) -> list[tuple[str, Tone]]:
    f = daily.forecast
    assert f is not None
    q = f.finish_us
    if f.basis == "exact" or q is None:
        return []
    found: list[tuple[str, Tone]] = []
    if q.p50 is not None:
        guess = "A first guess, from less than an hour of steps: e" if young(daily) else "E"
        text = f"{guess}ven odds to be done by {when.time(q.p50)} {when.zone_name}"
        if q.p10 is not None and q.p90 is not None:
            text += f"; 80 % of outcomes lie between {when.time(q.p10)} and {when.time(q.p90)}"
        text += "."
        if f.drivers:
            top = f.drivers[0]
            text += f" {whole_per_cent(top.share_ratio)} of that range comes from {_DRIVERS[top.name]}."
        found.append((text, "plain"))
    if f.warning:
        found.append((f.warning, "warning"))
    far = daily.pace == "far behind" and not young(daily)
    if far and daily.late_days is not None and daily.plan is not None:
        found.append((
            f"It is more than a tenth of its planned length behind: {length(daily.late_days)} after "
            f"{when.day(daily.plan.finish_us)}.",
            "problem",
        ))
    if f.move is not None and daily.before is not None:
        found.append((_why_moved(daily), "plain"))
    if daily.shorter_target is not None and daily.plan is not None:
        found.append((
            f"The log ends the run at {scaled(daily.shorter_target)} tokens, "
            f"{whole_per_cent(daily.shorter_ratio)} of the plan’s {scaled(daily.plan.target_tokens)}: what "
            "is forecast here is the plan’s target.",
            "warning",
        ))
    chances = _chances(daily, when)
    if chances:
        poor = any(ratio < _POOR for ratio, _ in chances)
        told = ", ".join(f"{_chance(ratio)} {what}" for ratio, what in chances)
        found.append((f"Chances: {told}.", "warning" if poor else "plain"))
    return found


def _chances(daily: Daily, when: Dates) -> list[tuple[float, str]]:
    f, settings = daily.forecast, daily.snapshot.settings
    plan = settings.plan if settings is not None else None
    if f is None or settings is None or plan is None:
        return []
    found = []
    if f.by_deadline_ratio is not None and plan.deadline is not None:
        found.append((
            f.by_deadline_ratio,
            f"to be done by the deadline, {when.time(when.us(plan.deadline))}",
        ))
    end_us = settings.reservation.end_us
    if f.by_reservation_end_ratio is not None and end_us is not None:
        what = f"to be done before the reservation ends, {when.time(end_us)}"
        found.append((f.by_reservation_end_ratio, what))
    if f.within_budget_ratio is not None and plan.budget is not None:
        found.append((f.within_budget_ratio, f"to stay within {money(plan.budget, plan.currency)}"))
    return found


_DRIVERS = {
    "rate": "how fast steps will be",
    "stops": "how often the run stops and what a stop costs",
    "outages": "rare long outages",
    "overhead": "evaluation and saves",
    "stages": "stages that have not begun",
    "start": "when it goes on",
}
_MOVERS = {
    "progress": "progress against what was expected",
    "tokens": "a changed target",
    "rate": "the rate of training",
    "goodput": "the goodput to come",
    "plan": "the GPU count",
    "start": "when it goes on",
    "range": "the chance of stops",
}


def _why_moved(daily: Daily) -> str:
    f = daily.forecast
    assert f is not None
    assert f.move is not None
    days = f.move.us / DAY_US
    if _still(daily, days):
        return "The median has not moved in the last day."
    side = "later" if days > 0 else "earlier"
    text = f"In the last day the median moved {length(days)} {side}"
    unit, unit_us, places = next(row for row in _UNITS if abs(f.move.us) >= row[0])[1:]
    if abs(days) >= 10:
        places = 1
    told = _parts(f.move.parts, places=places, unit_us=unit_us)
    return f"{text} ({unit}: {told})." if told else f"{text}."


_UNITS = (
    (0.97 * DAY_US, "days", DAY_US, 2),
    (DAY_US / 24, "hours", DAY_US // 24, 1),
    (0.0, "minutes", DAY_US // 1440, 0),
)


def _parts(parts: Sequence[Part], places: int, unit_us: int = DAY_US) -> str:
    """Return the parts of a move, the largest first, rounded so that they sum to the rounded move."""
    told, so_far, reached = [], 0.0, 0.0
    for part in sorted(parts, key=lambda p: -abs(p.us)):
        so_far += part.us / unit_us
        own = round(so_far, places) - reached
        reached = round(so_far, places)
        if round(abs(own), places):
            told.append(f"{_MOVERS.get(part.name, part.name)} {signed(f'{abs(own):.{places}f}', own)}")
    return ", ".join(told)


def _chance(ratio: float) -> str:
    if ratio < 0.01:
        return "less than 1 %"
    return "more than 99 %" if ratio > 0.99 else f"{ratio * 100:.0f} %"


def _range_table(daily: Daily, when: Dates) -> Table:
    f, figures = daily.forecast, daily.figures
    assert f is not None
    rows = []
    finish = f.finish_us
    if finish is not None:
        since = figures.finish_us.since
        rows.append((
            f"finish ({when.zone_name})",
            *(when.time(v) for v in (finish.p50, finish.p10, finish.p90)),
            when.time(figures.finish_us.plan) if figures.finish_us.plan is not None else UNKNOWN,
            UNKNOWN if since is None else "±0" if _still(daily, since / DAY_US) else moved(since / DAY_US),
        ))
    for name, q, compared in (
        ("GPU-hours", f.gpu_hours, figures.gpu_hours),
        (f"cost, {f.currency}", f.cost, figures.cost),
        ("energy, MWh", f.energy_mwh, figures.energy_mwh),
    ):
        if q is not None:
            rows.append((name, *_quantiles(q), _amount(compared.plan), _change(compared)))
    return Table(
        title="At the finish, whole run",
        headings=("", ">P50", ">P10", ">P90", ">plan", ">moved in a day"),
        rows=rows,
    )


def _quantiles(q: Quantiles) -> tuple[str, str, str]:
    return _amount(q.p50), _amount(q.p10), _amount(q.p90)


def _amount(value: float | None) -> str:
    return UNKNOWN if value is None else hours(value)


def _change(compared: Compared) -> str:
    if compared.since is None:
        return UNKNOWN
    return signed(hours(abs(compared.since)), compared.since)
