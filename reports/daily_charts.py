"""The curves of the daily report as drawings: finish as forecast, tokens, MFU and step time.

Pure: coordinates are finished numbers of the core. One without data is None, never empty axes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from reports.daily_axes import from_zero, number_axis, on_one_line, time_axis
from reports.daily_words import Dates, short
from reports.numbers import per_cent, scaled
from reports.page import Band, Drawing, Figure, Line, Mark, Panel, Role, Rule, Words
from tracker.core.changes import Change
from tracker.core.daily import DAY_US, Daily
from tracker.core.forecast.value import Forecast
from tracker.core.series import Point

_SETTLED: Final = 3
_CHANGES_SHOWN: Final = 8


# -- when it finishes -------------------------------------------------------------------------------


def finish_figure(daily: Daily, when: Dates) -> Figure | None:
    """Return how the forecast finish moved, with its range; None for fewer than three forecasts."""
    now = daily.forecast
    told = [f for f in (*daily.history, *((now,) if now is not None else ())) if _middle(f) is not None]
    told = [f for f in told if f.basis == "measured"]
    if len(told) < 3:
        return None
    plan = daily.plan.finish_us if daily.plan is not None and not daily.ended_short else None
    exact = _middle(now) if now is not None and now.basis == "exact" else None
    low, high = _reach(told, [at for at in (plan, exact) if at is not None])
    last = told[-1]
    x_low, x_high = float(told[0].as_of_us), float(last.as_of_us)
    q = last.finish_us
    assert q is not None
    rules = []
    if plan is not None:
        rules.append(Rule(at=float(plan), across="y", role="plan", label=f"plan {when.short_day(plan)}"))
    if exact is not None:
        ended = "ended" if daily.ended_short else "finished"
        rules.append(
            Rule(at=exact, across="y", role="good", label=f"{ended} {when.short_day(exact)}", dashed=False)
        )
    panel = Panel(
        x=time_axis(x_low, x_high, when, title="forecast made on", most=5),
        y=on_one_line(time_axis(low, high, when, most=5)),
        title="Finish, as forecast over time",
        bands=(Band(points=tuple(_ranges(told, low, high)), role="forecast", label="80 % range"),),
        rules=tuple(rules),
        lines=(
            Line(
                points=tuple((float(f.as_of_us), _clip(_middle(f) or 0.0, low, high)) for f in told),
                role="forecast",
            ),
        ),
        marks=(
            Mark(
                x=x_high,
                y=_clip(q.p50 or 0.0, low, high),
                role="forecast",
                label=when.short_day(q.p50),
            ),
        ),
        grid="both",
    )
    first = told[0]
    alt = (
        f"Median forecast finish: {when.short_day(_middle(first))} as told on "
        f"{when.time(first.as_of_us)}, {when.short_day(q.p50)} as told on {when.time(last.as_of_us)}, "
        f"80 percent of outcomes: {when.span(q.p10, q.p90)}."
    )
    if plan is not None:
        alt += f" The plan finishes on {when.short_day(plan)}."
    return Figure(
        name="finish",
        alt=alt,
        caption="Median forecast and its 80 % range, each made with what was known on that day.",
        drawing=Drawing(panels=(panel,), height_ratio=0.54),
    )


def _middle(f: Forecast) -> float | None:
    return f.finish_us.p50 if f.finish_us is not None else None


def _reach(told: Sequence[Forecast], also: Sequence[float]) -> tuple[float, float]:
    """Return the span to show: all medians, the last range; early ranges may reach beyond."""
    last = told[-1].finish_us
    assert last is not None
    middles = [m for f in told if (m := _middle(f)) is not None]
    seen = [*middles, *also, *(v for v in (last.p10, last.p90) if v is not None)]
    low, high = min(seen), max(seen)
    pad = max(0.12 * (high - low), 0.02 * DAY_US)
    return low - pad, high + pad


def _ranges(told: Sequence[Forecast], low: float, high: float) -> list[tuple[float, float, float]]:
    found = []
    for f in told:
        q = f.finish_us
        assert q is not None
        bottom = q.p10 if q.p10 is not None else low
        top = q.p90 if q.p90 is not None else high
        found.append((float(f.as_of_us), _clip(bottom, low, high), _clip(top, low, high)))
    return found


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def tokens_figure(daily: Daily, when: Dates) -> Figure | None:
    """Return tokens in the model over time, against the plan, with the way to the target."""
    s, plan, f = daily.snapshot, daily.plan, daily.forecast
    points = [(float(p.at_us), p.tokens_net) for p in daily.series.points if p.tokens_net is not None]
    if len(points) < 3:
        return None
    target = plan.target_tokens if plan is not None else None
    aim = plan.all_tokens if plan is not None else None
    start = float(daily.series.points[0].from_us)
    done = points[-1][1]
    ends = [points[-1][0], float(s.as_of_us) if s.state != "finished" else points[-1][0]]
    lines, bands, marks, rules, words = [], [], [], [], []
    if plan is not None and plan.line:
        line = tuple((float(at), due) for at, due in plan.line)
        lines.append(Line(points=line, role="plan", dashed=True))
        start, ends = min(start, line[0][0]), [*ends, line[-1][0]]
    q = f.finish_us if f is not None and f.basis in ("measured", "plan") else None
    if q is not None and q.p10 is not None and q.p50 is not None and q.p90 is not None and aim:
        now = float(s.as_of_us)
        bands.append(Band(points=_fan(now, done, aim, q.p10, q.p90), role="forecast", label="80 %"))
        lines.append(Line(points=((now, done), (q.p50, aim)), role="forecast", dashed=True))
        marks.append(Mark(x=q.p50, y=aim, role="forecast", label=when.short_day(q.p50)))
        ends.append(q.p90)
    if target:
        rules.append(Rule(at=target, across="y", role="muted", label=f"target {short(target)}"))
    lines.append(Line(points=tuple(points), role="run"))
    marks.append(Mark(x=points[-1][0], y=done, role="run", label=short(done)))
    top = max([done, *([aim] if aim else [])])
    if lines[0].role == "plan":
        wide = max(ends) - start
        above = daily.pace in ("behind", "far behind", "on plan")
        whole = (lines[0].points[0], lines[0].points[-1])
        words.append(_on_plan(whole, above=above and _room_left(whole, start, wide)))
    panel = Panel(
        x=time_axis(start, max(ends), when, most=5),
        y=from_zero(top, short),
        title="Tokens in the model",
        bands=tuple(bands),
        rules=tuple(rules),
        lines=tuple(lines),
        marks=tuple(marks),
        words=tuple(words),
        grid="both",
    )
    said = ["Tokens in the model"]
    said += (
        ["dashed: the plan's way" + (", its later stages with it" if aim != target else "")] if words else []
    )
    said += ["shaded: 80 % of outcomes on the way to the target"] if bands else []
    alt = f"Tokens in the model: {scaled(done)} on {when.time(points[-1][0])}"
    if plan is not None and plan.tokens_due is not None:
        alt += f"; {scaled(plan.tokens_due)} were due by the plan"
    if target:
        alt += f"; the target is {scaled(target)}"
    return Figure(
        name="tokens",
        alt=alt + ".",
        caption="; ".join(said) + ".",
        drawing=Drawing(panels=(panel,), height_ratio=0.54),
    )


def _on_plan(line: Sequence[tuple[float, float]], *, above: bool) -> Words:
    (x0, y0), (x1, y1) = line
    if above:
        return Words(x=x0 + 0.5 * (x1 - x0), y=y0 + 0.57 * (y1 - y0), text="plan", role="plan", anchor="end")
    return Words(x=x0 + 0.6 * (x1 - x0), y=y0 + 0.52 * (y1 - y0), text="plan", role="plan")


def _room_left(line: Sequence[tuple[float, float]], start: float, wide: float) -> bool:
    """Tell whether a word fits between the axis and the middle of a line."""
    return (line[0][0] + line[1][0]) / 2 - start > 0.15 * wide


def _fan(
    now: float, done: float, target: float, p10: float, p90: float
) -> tuple[tuple[float, float, float], ...]:
    if p90 <= now or p10 <= now:
        return ((now, done, target), (max(p90, now + 1), target, target))
    low = done + (target - done) * (p10 - now) / (p90 - now)
    return ((now, done, done), (p10, low, target), (p90, target, target))


# -- how fast it is ---------------------------------------------------------------------------------


def speed_figure(daily: Daily, when: Dates) -> Figure | None:
    """Return MFU and step time over time; None for fewer than three points."""
    points = _settled(daily.series.points)
    panels = []
    mfu = [(p, p.mfu_ratio) for p in points if p.mfu_ratio is not None]
    step = [(p, p.step_time_s) for p in points if p.step_time_s is not None]
    if len(mfu) >= 3:
        plan = daily.plan.mfu_ratio if daily.plan is not None else None
        panels.append(_over_time(mfu, when, daily, "MFU of executed steps", _ratio, plan=plan))
    if len(step) >= 3:
        panels.append(_over_time(step, when, daily, "Step time", _seconds))
    if not panels:
        return None
    s = daily.snapshot
    told = []
    if s.mfu.productive_ratio is not None:
        told.append(f"MFU over time: {per_cent(s.mfu.productive_ratio)} over all productive time")
    if s.step_time_s is not None:
        told.append(f"the last step took {_seconds(s.step_time_s)}")
    told += [f"{_changed(c)} on {when.time(c.at_us)}" for c in daily.shifts[-3:]]
    alt = "; ".join(told) or "Step time over time"
    return Figure(
        name="speed",
        alt=alt[:1].upper() + alt[1:] + ".",
        caption=f"Each point is {_each(points, daily.series.width_s)}; saves and evaluations are left "
        "out, gaps are times without a step.",
        drawing=Drawing(panels=tuple(panels), height_ratio=0.2 * len(panels) + 0.05),
    )


def _settled(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points without the first of each attempt, which holds its warm-up."""
    count: dict[int, int] = {}
    for point in points:
        count[point.attempt] = count.get(point.attempt, 0) + 1
    seen: set[int] = set()
    kept = []
    for point in points:
        if point.attempt in seen or (count[point.attempt] < _SETTLED and len(points) < _SETTLED * 2):
            kept.append(point)
        seen.add(point.attempt)
    return tuple(kept)


def _changed(change: Change) -> str:
    """Return a change of pace in three words."""
    if change.sort == "operating_point":
        return "other operating point"
    return f"steps {abs(change.ratio - 1) * 100:.0f} % {change.sort}"


_CHANGES: Final[Mapping[str, Role]] = {"slower": "problem", "faster": "good", "operating_point": "muted"}


def _change_rules(daily: Daily, low: float, high: float) -> tuple[Rule, ...]:
    """Return an upright line for each change; where a slow-down ended, a line without a word."""
    shown = [c for c in daily.changes.changes if low <= c.at_us <= high][-2 * _CHANGES_SHOWN :]
    named = set(daily.shifts[-_CHANGES_SHOWN:])
    return tuple(
        Rule(at=float(c.at_us), across="x", role=_CHANGES[c.sort], label=_percent(c, named)) for c in shown
    )


def _percent(change: Change, named: Collection[Change]) -> str:
    if change.sort == "operating_point" or change not in named:
        return ""
    return f"{'+' if change.ratio > 1 else '−'}{abs(change.ratio - 1) * 100:.0f} %"


def _ratio(value: float) -> str:
    return f"{value * 100:.3g} %"


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value < 1000 else f"{value:,.0f} s"


def _each(points: Sequence[Point], width_s: int) -> str:
    """Return what a point of the curves is: where lines are farther apart than stretches, it is one line."""
    apart = sorted(p.at_us - p.from_us for p in points)[len(points) // 2] / 1e6
    return "a line of the log" if apart > 1.5 * width_s else f"a mean over {_width(width_s)} of training"


def _width(width_s: int) -> str:
    for unit_s, one, several in (
        (86400, "a day", "days"),
        (3600, "an hour", "hours"),
        (60, "a minute", "minutes"),
    ):
        if width_s >= unit_s:
            return one if width_s < 2 * unit_s else f"{width_s / unit_s:g} {several}"
    return "a second" if width_s == 1 else f"{width_s} seconds"


def _over_time(
    told: Sequence[tuple[Point, float]],
    when: Dates,
    daily: Daily,
    title: str,
    said: object,
    *,
    plan: float | None = None,
) -> Panel:
    assert callable(said)
    values = sorted(value for _, value in told)
    low, high = values[len(values) // 50], values[-1 - len(values) // 50]
    seen = [low, high, *([plan] if plan is not None and 0.6 * low < plan < 1.6 * high else [])]
    pad = max(0.15 * (max(seen) - min(seen)), 0.04 * max(seen))
    y = number_axis(max(0.0, min(seen) - pad), max(seen) + pad, said, most=3)
    runs: list[list[tuple[float, float]]] = []
    before: Point | None = None
    for point, value in told:
        at = (point.from_us + point.at_us) / 2
        if (
            before is None
            or point.attempt != before.attempt
            or (point.from_us - before.at_us > 3 * daily.series.width_s * 1e6)
        ):
            runs.append([])
        runs[-1].append((at, _clip(value, y.low, y.high)))
        before = point
    return Panel(
        x=time_axis(float(told[0][0].from_us), float(told[-1][0].at_us), when, most=8),
        y=y,
        title=title,
        rules=(
            *(
                (Rule(at=plan, across="y", role="plan", label=f"plan {said(plan)}"),)
                if plan is not None and y.low <= plan <= y.high
                else ()
            ),
            *_change_rules(daily, told[0][0].from_us, told[-1][0].at_us),
        ),
        lines=tuple(Line(points=tuple(run), role="run", thin=True) for run in runs),
        marks=(),
        grid="both",
    )
