"""A forecast on one screen: the answer, its range, why, and what it rests on.

Pure. Rounding only; every number comes finished.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from reports.numbers import UNKNOWN, hours, moment, per_cent, scaled
from reports.tables import Table
from tracker.core.forecast.value import Forecast, Quantiles
from tracker.core.forecast.words import called

if TYPE_CHECKING:  # a forecast alone loads neither replay nor history
    from tracker.core.forecast.backtest import Replay
    from tracker.core.forecast.history import History, Kept
    from tracker.core.forecast.score import Score
    from tracker.core.snapshot import Snapshot

Pair = tuple[str, str]
_LINES = {
    "from_start": "from the start",
    "last_7_days": "last seven days",
    "step_rate": "step rate, no failures",
}
_DAY_US = 86_400e6


def forecast_pairs(snapshot: Snapshot, forecast: Forecast) -> list[Pair]:
    """Return what `tracker forecast` prints."""
    pairs = [
        ("run", f"{snapshot.run}, {snapshot.state}"),
        ("as of", moment(snapshot.as_of_us)),
    ]
    if forecast.basis == "none":
        pairs.append(("finish", UNKNOWN))
        pairs.append(("why", "\n".join(forecast.reasons)))
        return pairs
    pairs += [
        ("finish", _finish(forecast.finish_us)),
        ("GPU-hours", _span(forecast.gpu_hours)),
        ("cost", _span(forecast.cost, f" {forecast.currency}")),
        ("energy", _span(forecast.energy_mwh, " MWh")),
    ]
    if forecast.inputs is not None:
        pairs.append(("counts on", _inputs(forecast)))
    if forecast.drivers:
        shares = [(d.name, f"{d.share_ratio:.0%}") for d in forecast.drivers]
        told = ", ".join(f"{name} {share}" for name, share in shares if share != "0%")
        pairs.append(("range from", told))
    if forecast.lines_us:
        told = "\n".join(f"{moment(at)}  {_LINES[name]}" for name, at in forecast.lines_us.items())
        pairs.append(("straight lines", told))
    pairs.append(("in words", "\n".join(forecast.sentences)))
    if forecast.move is not None:
        parts = [p for p in forecast.move.parts if abs(p.us) >= 0.005 * _DAY_US]
        if parts:
            told = "\n".join(f"{p.us / _DAY_US:+8.2f} days  {called(p)}: {p.why}" for p in parts)
            pairs.append(("moved by", told))
    if forecast.assumptions:
        pairs.append(("believed", "\n".join(forecast.assumptions)))
    if forecast.flagged:
        pairs.append(("not used", "\n".join(forecast.flagged)))
    if forecast.reasons:
        pairs.append(("not known", "\n".join(forecast.reasons)))
    return pairs


def _finish(q: Quantiles | None) -> str:
    if q is None or q.p50 is None:
        return "not in sight"
    middle = moment(round(q.p50))
    if q.p10 == q.p90:
        return middle
    high = "not in sight" if q.p90 is None else moment(round(q.p90))
    return f"{middle}  (P10 {moment(round(q.p10 or q.p50))}, P90 {high})"


def _span(q: Quantiles | None, unit: str = "") -> str:
    if q is None or q.p50 is None:
        return UNKNOWN
    if q.p10 == q.p90:
        return f"{hours(q.p50)}{unit}"
    return f"{hours(q.p50)}{unit}  (P10 {hours(q.p10)}, P90 {hours(q.p90)})"


def _inputs(forecast: Forecast) -> str:
    i = forecast.inputs
    assert i is not None
    text = (
        f"{scaled(i.target_tokens - i.done_tokens)} tokens left at {i.rate:,.0f} a second and GPU on "
        f"{i.gpus:,} GPUs, {per_cent(i.goodput_ratio)} of the calendar productive"
    )
    if i.mtbf_gpu_hours is not None:
        text += f"; a stop every {hours(i.mtbf_gpu_hours / i.gpus)} h"
    if i.restart_s is not None:
        text += f" that costs {hours(i.restart_s / 3600)} h"
    if i.mtbf_gpu_hours is not None and i.merged_launches:
        what = "launch that kept no step is" if i.merged_launches == 1 else "launches that kept no step are"
        text += (
            f". {i.merged_launches:,} {what} part of the stop before, "
            "where the MTBF of `tracker status` counts each"
        )
    return text


def what_if_table(
    now: Forecast, then: Forecast, change: Mapping[str, Quantiles], asked: Mapping[str, str]
) -> Table:
    """Return the forecast as it is beside the one under choices."""
    rows = [
        ("finish", _finish(now.finish_us), _finish(then.finish_us), _change(change.get("days"), " days")),
        ("GPU-hours", _span(now.gpu_hours), _span(then.gpu_hours), _change(change.get("gpu_hours"), " h")),
        ("cost", _span(now.cost), _span(then.cost), _change(change.get("cost"), f" {now.currency}")),
        ("energy", _span(now.energy_mwh), _span(then.energy_mwh), _change(change.get("energy_mwh"), " MWh")),
    ]
    return Table(
        title="What if " + ", ".join(f"{k} = {v}" for k, v in asked.items()),
        headings=("", "as it is", "what if", "change (P10, P90)"),
        rows=rows,
        notes=(
            "Both sides are played with the same luck. A change is the median of the differences, play by "
            "play: the two medians beside it need not differ by just that.",
        ),
    )


def _change(q: Quantiles | None, unit: str) -> str:
    if q is None or q.p50 is None or q.p10 is None or q.p90 is None:
        return UNKNOWN
    middle, low, high = (_signed(v, days=unit == " days") for v in (q.p50, q.p10, q.p90))
    return f"{middle}{unit} ({low}, {high})"


def _signed(value: float, *, days: bool) -> str:
    if days:
        return f"{value:+,.2f}"
    text = hours(abs(value))
    return text if text.strip("0.") == "" else f"{'-' if value < 0 else '+'}{text}"


def history_table(history: History, whole: int) -> Table:
    """Return how the forecast moved and why, newest last; beside it the error, once the truth is known."""
    truth = history.truth
    rows = []
    for kept in history.kept:
        f = kept.forecast
        q = f.finish_us or Quantiles(p10=None, p50=None, p90=None)
        cells = [moment(round(v)) if v is not None else UNKNOWN for v in (q.p10, q.p50, q.p90)]
        move, most = kept.move, kept.most
        why = "" if most is None else f"{called(most)} {most.us / _DAY_US:+.2f}"
        row = (moment(f.as_of_us), *cells, "" if move is None else f"{move.us / _DAY_US:+.2f}", why)
        rows.append(row if truth is None else (*row, *_judgement(kept)))
    title = f"{whole:,} forecasts that were kept"
    if len(rows) < whole:
        title += f", {len(rows)} of them evenly chosen (--json has all)"
    if truth is not None:
        title += f". The run finished on {moment(truth.finish_us)}: days early (-) or late (+)"
    headings = ("as of", "P10", "P50", "P90", ">moved, days", "mostly by")
    judged = (">error", "in range", ">pinball") if truth is not None else ()
    notes = ("* made for another target than the run ended with: not judged",)
    other = any(kept.other_target for kept in history.kept)
    return Table(title=title, headings=(*headings, *judged), rows=rows, notes=notes if other else ())


def _judgement(kept: Kept) -> tuple[str, str, str]:
    if kept.error_us is None or kept.pinball_us is None:
        return ("*" if kept.other_target else UNKNOWN, "", "")
    inside = "yes" if kept.inside else "no"
    return (f"{kept.error_us / _DAY_US:+.2f}", inside, f"{kept.pinball_us / _DAY_US:.3f}")


def kept_score_table(history: History) -> Table:
    """Return the score of all kept forecasts of a finished run."""
    assert history.score is not None
    assert history.truth is not None
    return scores(history.score, (history.truth.finish_us - history.truth.start_us) / _DAY_US)


def backtest_table(replay: Replay) -> Table:
    """Return the replay: at each moment what was forecast, and by how many days it missed."""
    truth = replay.truth_us
    rows = []
    for row in replay.rows:
        f = row.forecast
        q = f.finish_us
        assert q is not None
        inside = q.p10 is not None and q.p90 is not None and q.p10 <= truth <= q.p90
        rows.append((
            moment(f.as_of_us),
            per_cent(row.done_ratio),
            *(_miss(v, truth) for v in (q.p10, q.p50, q.p90)),
            "yes" if inside else "no",
            *(_miss(f.lines_us.get(name), truth) for name in _LINES),
        ))
    what = "the finish of its planned " if replay.finished else ""
    what += f"{scaled(replay.target_tokens)} tokens{'' if replay.finished else ', what it has by now'}"
    return Table(
        title=f"Replayed against {what}, reached {moment(truth)}. Days early (-) or late (+)",
        headings=("as of", ">done", ">P10", ">P50", ">P90", "in range", *(f">{n}" for n in _LINES.values())),
        rows=rows,
    )


def _miss(at: float | None, truth: int) -> str:
    return UNKNOWN if at is None else f"{(at - truth) / _DAY_US:+.2f}"


def score_table(replay: Replay) -> Table:
    """Return the score of a replay."""
    if replay.score is None:
        return Table(title="No moment had a measured range to score.")
    return scores(replay.score, (replay.truth_us - replay.start_us) / _DAY_US)


def scores(score: Score, days: float) -> Table:
    """Return a score as a table, errors in days."""
    rows = [
        (
            "forecast",
            per_cent(score.coverage_80),
            per_cent(score.coverage_50),
            f"{score.pinball * days:.3f}",
            "",
            f"{score.median_error * days:.2f}",
            f"{score.bias * days:+.2f}",
        )
    ]
    for name, title in _LINES.items():
        line = score.lines.get(name)
        if line is not None:
            rows.append((
                title,
                "",
                "",
                f"{line.pinball * days:.3f}",
                f"{line.pinball_with_range * days:.3f}",
                f"{line.median_error * days:.2f}",
                f"{line.bias * days:+.2f}",
            ))
    return Table(
        title=f"Score over {score.count} moments of one run (they are not independent), in days",
        headings=("", ">P10-P90", ">P25-P75", ">pinball", ">with best range", ">median error", ">bias"),
        rows=rows,
        notes=("P10-P90 should hold the truth in 80 % of many runs, P25-P75 in 50 %.",),
    )
