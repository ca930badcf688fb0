"""A forecast in sentences that a training lead reads in half a minute.

Pure.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from typing import Final

from tracker.core.forecast.pace import RateBelief
from tracker.core.forecast.section import tokens_said
from tracker.core.forecast.state import State
from tracker.core.forecast.value import Forecast, Part, Quantiles
from tracker.core.plan import Plan
from tracker.core.settings import Settings

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY_US = 86_400e6
_MINUTE = 1 / 1440
NOT_IN_SIGHT: Final = "not in sight"
LOOP: Final = 3
"""Launches in a row that brought nothing: from so many on it is said first."""
_WHAT = {
    "rate": "how fast steps will be",
    "stops": "how often it stops and what a stop costs",
    "outages": "rare long outages",
    "overhead": "evaluation and saves",
    "stages": "stages that have not begun",
    "start": "when it goes on",
}


def day(at_us: float | None) -> str:
    """Return a moment for people; the hour where it matters is in the JSON."""
    if at_us is None:
        return NOT_IN_SIGHT
    return (_EPOCH + dt.timedelta(microseconds=round(at_us))).strftime("%Y-%m-%d %H:%M")


def sentences(
    made: Forecast, state: State, settings: Settings, plan_finish_us: int | None
) -> tuple[str, ...]:
    """Return the answer in plain words, most important first."""
    found = [_finish(made, state), *([made.warning] if made.warning else [])]
    found += _planned_done(made, state, settings)
    found += _behind(made, state, settings, plan_finish_us)
    found += _chances(made, settings)
    found += _state(made, state)
    if made.drivers:
        top = made.drivers[0]
        found.append(f"Most of the range ({top.share_ratio:.0%}) is {_WHAT[top.name]}.")
    if made.basis == "measured" and state.work_s < 3600:
        if len(state.blocks) == 1:
            found.append(
                f"It rests on one reading, of {state.work_s:,.0f} s of work: its pace may be the start-up's."
            )
        else:
            found.append("Less than an hour of steps was seen: expect this to move.")
    if made.move is not None:
        found.append(_moved(made))
    return tuple(found)


def _finish(made: Forecast, state: State) -> str:
    q = made.finish_us
    if q is None or q.p50 is None:
        return "At this pace the finish is more than 20 years away."
    if made.basis == "exact":
        if state.phase != "finished":
            said = f"The target{_target(state)} was reached on {day(q.p50)} UTC; the run goes on"
            if made.gpu_hours is not None:
                said += ". GPU-hours, cost and energy are what it had taken by then"
            return said + "."
        if state.short_ratio is not None:
            return f"Ended on {day(q.p50)} UTC at {state.short_ratio:.0%} of its target."
        return f"Finished on {day(q.p50)} UTC."
    text = f"Even odds to be done by {day(q.p50)} UTC; 80 % between {day(q.p10)} and {day(q.p90)}."
    if day(q.p10) == day(q.p90):
        text = f"Expected to be done at {day(q.p50)} UTC, with 80 % probability within that minute."
    if q.p90 is None:
        text = (
            f"Even odds to be done by {day(q.p50)} UTC; one in ten by {day(q.p10)}, and more than one in ten "
            "that it takes over 20 years."
        )
    if made.basis == "plan":
        tried = "no step was seen yet" if not state.blocks else "one reading tells no rate yet"
        text += f" From the plan and published figures only: {tried}."
    return text


def _target(state: State) -> str:
    """Return which target is meant, in brackets; nothing where only one can be."""
    if not state.later_ratio or state.target_tokens is None:
        return ""
    return f" ({tokens_said(state.target_tokens)} tokens, and {state.later_ratio:.0%} for later stages)"


def loop(state: State) -> str:
    """Return a warning where launch after launch brings nothing: the forecast knows no end of that."""
    if state.fruitless < LOOP:
        return ""
    return (
        f"The last {state.fruitless:,} launches ended without a step more than before: the forecast believes "
        "that the next one goes on. While it is like this, each hour costs an hour."
    )


def one_reading(belief: RateBelief | None, state: State, lines_us: Mapping[str, int]) -> str:
    """Return what the one reading so far would come to, where that is far outside of the planned range."""
    if belief is None or belief.reading is None:
        return ""
    when = day(lines_us.get("step_rate"))
    speed = math.exp(belief.reading) * (state.world or 1)
    text = f"The one reading so far runs at {tokens_said(speed)} tokens a second, "
    text += f"where the plan has {tokens_said(math.exp(belief.mean) * (state.world or 1))}"
    if when != NOT_IN_SIGHT:
        text += f", and would finish on {when} UTC"
    return f"{text}: too little to believe yet, so the middle is the plan's and the range reaches that far."


def _planned_done(made: Forecast, state: State, settings: Settings) -> list[str]:
    """Return what is to come once the planned tokens are trained."""
    plan = settings.plan
    if plan is None or state.planned_us is None:
        return []
    source = plan.sources.get("later_stages", "assumed")
    share = f"later stages, {state.later_ratio:.0%} ({source})"
    none = "set plan.later_stages = 0 if there are none"
    if made.basis == "exact":
        left = tokens_said(state.left_tokens or 0.0)
        return [
            f"All planned tokens were trained on {day(state.planned_us)} UTC; {share}, are not part of "
            f"it: {left} tokens of them were not seen. If they come, the finish moves; {none}."
        ]
    until = made.finish_us.p50 if made.finish_us is not None else None
    return [
        f"All planned tokens were trained on {day(state.planned_us)} UTC; {share}, are expected on top "
        f"until {day(until)}: {none}."
    ]


def _long(days: float, digits: int) -> str:
    """Return a time without a sign: in days, in hours below one, in minutes below an hour."""
    size = abs(days)
    if size >= 1:
        return f"{size:.{digits}f} days"
    if size >= 1 / 24:
        return f"{size * 24:.1f} hours"
    minutes = max(1, round(size * 1440))
    return "1 minute" if minutes == 1 else f"{minutes} minutes"


def _on_plan(late: float, plan: Plan, state: State, plan_finish_us: int) -> bool:
    """Tell whether the finish is the plan's as far as anybody would say: an hour, and 0.5 % of its length."""
    begun = (
        (plan.start - _EPOCH) // dt.timedelta(microseconds=1) if plan.start is not None else state.start_us
    )
    length = (plan_finish_us - begun) / _DAY_US if begun is not None else 0.0
    return abs(late) < max(_MINUTE, min(0.05, 0.005 * length))


def _behind(made: Forecast, state: State, settings: Settings, plan_finish_us: int | None) -> list[str]:
    plan = settings.plan
    if plan is None or plan_finish_us is None or made.days_behind_plan is None:
        return []
    late = made.days_behind_plan
    if made.basis == "exact":
        word = "after" if late > 0 else "before"
        text = f"{_long(late, 1)} {word} the plan, which has these tokens by {day(plan_finish_us)}"
        if _on_plan(late, plan, state, plan_finish_us):
            text = f"On plan, which has these tokens by {day(plan_finish_us)}"
        return [text + "."]
    word = "behind" if late > 0 else "ahead of"
    text = f"{_long(late, 1)} {word} the plan, which ends on {day(plan_finish_us)}"
    if _on_plan(late, plan, state, plan_finish_us):
        text = f"On plan, which ends on {day(plan_finish_us)}"
    if made.inputs is None:
        return [text + "."]
    text += f" with the same {tokens_said(made.inputs.target_tokens)} tokens"
    if plan.later_fraction > 0:
        text += f" (later stages of {plan.later_fraction:.0%} among them)"
    start = None if plan.start is None else (plan.start - _EPOCH) // dt.timedelta(microseconds=1)
    if start is None or state.as_of_us <= start:
        return [text + "."]
    whole = made.inputs.target_tokens
    gone, length = state.as_of_us - start, max(1, plan_finish_us - start)
    gap = made.inputs.done_tokens / (whole * min(1.0, gone / length)) - 1
    side = "fewer" if gap < 0 else "more"
    after = f"after {gone / _DAY_US:.1f} days"
    text += (
        f". {abs(gap):.0%} {side} tokens than planned {after}"
        if abs(gap) >= 0.005
        else f". As many tokens as planned {after}"
    )
    ahead_us = (made.finish_us.p50 or 0) - made.as_of_us if made.finish_us is not None else 0
    expected = (whole - made.inputs.done_tokens) / max(1, ahead_us) * _DAY_US  # the pace that P50 stands for
    planned = whole / length * _DAY_US
    if late > 0:
        if plan_finish_us <= state.as_of_us:
            return [text + ". The plan's day has passed: no rate can catch up with it."]
        needed = (whole - made.inputs.done_tokens) / (plan_finish_us - state.as_of_us) * _DAY_US
        if needed / expected - 1 >= 0.005:
            a_day = tokens_said(expected)
            text += f". To catch up, {needed / expected - 1:+.0%} on the expected {a_day} tokens a day"
    if (gap < 0) != (late > 0) and abs(gap) >= 0.005:
        other = "more" if expected > planned else "less"
        text += (
            f". From now on {tokens_said(expected)} tokens a day are expected, {other} than the plan's "
            f"{tokens_said(planned)}: that outweighs it"
        )
    return [text + "."]


def _chances(made: Forecast, settings: Settings) -> list[str]:
    plan = settings.plan
    found = []
    if plan is not None and plan.deadline is not None and made.by_deadline_ratio is not None:
        at = (plan.deadline - _EPOCH) // dt.timedelta(microseconds=1)
        if made.basis == "exact":
            found.append(_kept(made.by_deadline_ratio, f"the deadline {day(at)}"))
        elif at <= made.as_of_us:
            found.append(f"The deadline {day(at)} has passed.")
        else:
            found.append(f"{chance(made.by_deadline_ratio)} to be done by the deadline {day(at)}.")
    end = settings.reservation.end_us
    if end is not None and made.by_reservation_end_ratio is not None:
        if made.basis == "exact":
            found.append(_kept(made.by_reservation_end_ratio, f"the end of the reservation, {day(end)}"))
        elif end <= made.as_of_us:
            found.append(f"The reservation ended on {day(end)}.")
        else:
            found.append(
                f"{chance(made.by_reservation_end_ratio)} to be done before the reservation ends, {day(end)}."
            )
    if plan is not None and plan.budget is not None and made.within_budget_ratio is not None:
        if made.basis == "exact":
            side = "Within" if made.within_budget_ratio else "Over"
            return [*found, f"{side} the budget of {plan.budget:,.0f} {plan.currency}."]
        found.append(f"{chance(made.within_budget_ratio)} to stay within {plan.budget:,.0f} {plan.currency}.")
    return found


def _kept(ratio: float, limit: str) -> str:
    """Return what is known of a limit, once the finish is."""
    return f"Done before {limit}." if ratio else f"Done after {limit}."


def chance(ratio: float) -> str:
    """Return a probability in words; a simulation never proves that something cannot be."""
    if ratio < 0.01:
        return "Less than 1 % probability"
    if ratio > 0.99:
        return "More than 99 % probability"
    return f"{ratio:.0%} probability"


def _state(made: Forecast, state: State) -> list[str]:
    if made.basis == "exact":
        return []
    hours = state.quiet_s / 3600
    found = []
    if state.phase == "stalled":
        found.append(f"No progress for {hours:.1f} h: the range counts on what such stops have cost.")
    elif state.phase == "down":
        found.append(f"Down, no progress for {hours:.1f} h: the range counts on what such stops have cost.")
    elif state.phase == "waiting":
        found.append("No attempt was seen yet.")
    if not state.stretches and state.start_us is not None:
        whose = "The attempt has not" if state.attempts == 1 else f"None of {state.attempts} attempts has"
        found.append(f"{whose} reached a step yet.")
    return found


def _moved(made: Forecast) -> str:
    move = made.move
    assert move is not None
    days = move.us / 86_400e6
    parts = sorted(move.parts, key=lambda p: -abs(p.us))
    told = ", ".join(f"{called(p)} {p.us / 86_400e6:+.2f}" for p in parts if abs(p.us) >= 0.005 * 86_400e6)
    side = "later" if days > 0 else "earlier"
    text = f"Since {day(move.since_us)} the middle moved {_long(days, 2)} {side}"
    if abs(days) < _MINUTE:
        text = f"Since {day(move.since_us)} the middle has not moved"
    return f"{text} (days: {told})." if told else f"{text}."


def called(part: Part) -> str:
    """Return a part's name for people: goodput here is of the calendar to come, not of allocated time."""
    return "productive share" if part.name == "goodput" else part.name


def span(q: Quantiles | None, digits: int = 0, unit: str = "") -> str:
    """Return "p50 (p10 to p90)"."""
    if q is None or q.p50 is None or q.p10 is None:
        return "not known"
    if q.p10 == q.p90:
        return f"{q.p50:,.{digits}f}{unit}"
    high = "more than can be said" if q.p90 is None else f"{q.p90:,.{digits}f}"
    return f"{q.p50:,.{digits}f}{unit} ({q.p10:,.{digits}f} to {high})"
