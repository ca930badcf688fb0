"""The verdict: one or two sentences that a tired reader understands, and how to take them.

Pure.
"""

from __future__ import annotations

from typing import Final

from reports.daily_words import Dates, a_cause, apart, cause, length, many, money, number, whole_per_cent
from reports.numbers import hours
from reports.page import Tone, shortened
from tracker.core.daily import Compared, Daily, Period, StopGroup

_FELL: Final = 0.01
"""A change of goodput worth a word."""


def verdict(daily: Daily, when: Dates) -> tuple[str, Tone]:
    """Return one or two sentences that a tired reader understands, and how to take them."""
    s = daily.snapshot
    if s.state == "waiting":
        return _joined(["No attempt was seen yet", _finish(daily, when)]), "plain"
    if s.state == "finished":
        missed = [what for kept, what in limits(daily, when) if not kept]
        tone: Tone = {"far behind": "problem", "behind": "warning", "": "plain"}.get(daily.pace, "good")  # type: ignore[assignment]
        if daily.ended_short or (missed and tone != "problem"):
            tone = "warning"
        return _joined([_finish(daily, when), _spent(daily), *missed, _overall(daily)]), tone
    lead, tone = _lead(daily, when)
    return _joined([lead, _finish(daily, when), _goodput(daily), _slower(daily, when)]), tone


def _joined(parts: list[str]) -> str:
    said = [part for part in parts if part]
    text = "; ".join(said)
    return text[:1].upper() + text[1:] + "."


def _lead(daily: Daily, when: Dates) -> tuple[str, Tone]:
    s = daily.snapshot
    quiet = daily.health.quiet_s
    since = "" if s.last_reading_us is None else f" since {when.time(s.last_reading_us)}"
    if s.state == "stalled":
        ago = "" if quiet is None else f", {length(quiet / 86400)} without progress"
        return f"stalled{since}{ago}", "problem"
    if s.state == "down":
        last = s.interruptions[-1] if s.interruptions else None
        by = "" if last is None else f": {a_cause(last.cause)} ended attempt {last.attempt}"
        ended = None if last is None else last.at_us
        return f"down since {when.time(ended)}{by}" if ended is not None else "down", "problem"
    if s.state == "starting":
        if len(s.attempts) > 1:
            return f"attempt {len(s.attempts)} is starting", _tone(daily)
        return "starting: no attempt is at a step yet", "plain"
    return "", _tone(daily)


def _tone(daily: Daily) -> Tone:
    if daily.forecast is not None and daily.forecast.warning:
        return "warning"
    if young(daily):
        return "plain"
    if daily.pace in ("behind", "far behind"):
        return "warning" if daily.pace == "behind" else "problem"
    if daily.slowed is not None:
        return "warning"
    fell = daily.figures.goodput_day.since
    if fell is not None and fell <= -0.05:
        return "warning"
    return "good" if daily.pace in ("on plan", "ahead") else "plain"


def _finish(daily: Daily, when: Dates) -> str:
    f, s = daily.forecast, daily.snapshot
    if f is None or f.finish_us is None:
        if s.state == "finished":
            return "finished"
        if daily.plan is None:
            return "no plan, so no finish is forecast"
        why = f"{f.reasons[0]}" if f is not None and f.reasons else ""
        return f"no finish is forecast ({shortened(why, 120)})" if why else "no finish is forecast"
    middle = f.finish_us.p50
    if middle is None:
        return "the finish is more than 20 years away at this pace"
    if daily.ended_short and f.basis == "exact":
        return f"ended on {when.day(middle)} at {whole_per_cent(daily.done_ratio)} of its target"
    if f.basis == "exact":
        verb = "finished on" if s.state == "finished" else "reached its target on"
        return f"{verb} {when.day(middle)}{_late(daily)}"
    text = f"finishes {when.day(middle)}{_late(daily)}"
    if f.basis == "plan":
        return f"{text}, by the plan alone: no rate was measured yet"
    if young(daily):
        q = f.finish_us
        spread = "" if q.p90 is None else f" (80 %: {when.span(q.p10, q.p90)})"
        return f"too early to be sure: less than an hour of steps points to {when.day(middle)}{spread}"
    return text


def young(daily: Daily) -> bool:
    """Whether less than an hour of steps was seen."""
    f = daily.forecast
    worked = daily.snapshot.wall_us.get("productive", 0) + daily.snapshot.wall_us.get("lost", 0)
    return f is not None and f.basis == "measured" and worked < 3_600_000_000


def _late(daily: Daily) -> str:
    late = daily.late_days
    if late is None or not daily.pace:
        return ""
    if daily.pace == "on plan":
        return ", on plan"
    return f", {length(late)} {'late' if late > 0 else 'early'}"


def _goodput(daily: Daily) -> str:
    change = daily.figures.goodput_day
    if change.now is not None and change.now < 0:
        return f"in the last day more work was thrown away than done{_because(daily, falling=True)}"
    if change.now is not None and change.before is not None:
        if abs(change.now - change.before) < _FELL:
            return f"goodput {whole_per_cent(change.now)}, as the day before"
        falling = change.now < change.before
        verb = "fell" if falling else "rose"
        before = "below zero" if change.before < 0 else whole_per_cent(change.before)
        because = _because(daily, falling=falling)
        return f"goodput {verb} from {before} to {whole_per_cent(change.now)}{because}"
    if change.now is not None:
        return f"goodput {whole_per_cent(change.now)} in the last day{_short_of_plan(daily)}"
    return _overall(daily)


def _short_of_plan(daily: Daily) -> str:
    change = daily.figures.goodput_day
    if change.against_plan is None or change.against_plan > -_FELL:
        return ""
    because = _because(daily, falling=True)
    return f", {abs(change.against_plan) * 100:.0f} points below plan{because}"


def _slower(daily: Daily, when: Dates) -> str:
    change = daily.slowed
    if change is None:
        return ""
    return f"steps are {(change.ratio - 1) * 100:.0f} % slower since {when.time(change.at_us)}"


def _overall(daily: Daily) -> str:
    ratio = daily.snapshot.goodput_ratio
    return "" if ratio is None else f"goodput {whole_per_cent(ratio)} over the whole run"


def _because(daily: Daily, *, falling: bool) -> str:
    """Name what weighs most of the day's loss; nothing where no stop does."""
    day, grown = daily.day, daily.grown
    if day is None or not falling or daily.snapshot.state in ("stalled", "down"):
        return ""  # a run that stands still now has said why already
    if grown in ("lost", "startup", "tail"):
        stops = stops_said(day)
        return f" because of {stops}" if stops else ""
    said = {
        "checkpoint": "because saves took longer",
        "evaluation": "because of more evaluation",
        "idle": "because more GPUs were paid for and idle",
        "other": "for reasons that the logs do not tell",
    }
    return f" {said[grown]}" if grown in said else ""


def stops_said(day: Period) -> str:
    """Return a day's interruptions by their dearest cause."""
    found = day.dearest
    if found is None:
        return ""
    top, alone = found
    if alone or top.kind == "planned":
        return _group(top)
    these = number(top.count) if top.count > 1 else "one"
    all_of_them = many(day.unexpected, "interruption", "interruptions")
    return f"{all_of_them}, {these} of them {_group(top).removeprefix(number(top.count)).strip()}"


def _group(group: StopGroup) -> str:
    if group.cause == "operator" and group.redo_steps:
        what = "a rollback" if group.count == 1 else f"{number(group.count)} rollbacks"
        return f"{what} by hand that threw away {group.redo_steps:,} steps"
    return a_cause(group.cause) if group.count == 1 else f"{number(group.count)} {cause(group.cause, 2)}"


def _spent(daily: Daily) -> str:
    allocated = daily.snapshot.gpu_us["allocated"] / 3.6e9 if daily.snapshot.gpu_us is not None else None
    if allocated is None:
        return ""
    text = f"{hours(allocated)} GPU-hours"
    planned = Compared(now=allocated, plan=daily.plan.gpu_hours if daily.plan is not None else None)
    if planned.ratio_to_plan is not None:
        these = " for these tokens" if daily.for_these_tokens else ""
        text += f", {apart(planned.ratio_to_plan, 'more than', 'fewer than')} planned{these}"
        text = text.replace("equal to planned", "as planned")
    return text


def limits(daily: Daily, when: Dates) -> list[tuple[bool, str]]:
    """Return whether a run that is done kept its deadline, its reservation and its budget, and in words."""
    f, settings = daily.forecast, daily.snapshot.settings
    plan = settings.plan if settings is not None else None
    if f is None or f.basis != "exact" or settings is None or plan is None:
        return []
    found = []
    for ratio, limit_us, name in (
        (f.by_deadline_ratio, when.us(plan.deadline), "the deadline"),
        (f.by_reservation_end_ratio, settings.reservation.end_us, "the end of the reservation"),
    ):
        if ratio is not None and limit_us is not None and not daily.ended_short:
            side = "before" if ratio else "after"
            found.append((bool(ratio), f"done {side} {name}, {when.time(limit_us)}"))
    if f.within_budget_ratio is not None and plan.budget is not None:
        side = "within" if f.within_budget_ratio else "over"
        found.append((
            bool(f.within_budget_ratio),
            f"{side} the budget of {money(plan.budget, plan.currency)}",
        ))
    return found
