"""A run's state in a dozen lines for people: Snapshot -> names and values.

Pure. All rounding is by `reports/numbers.py`; a figure always comes with its convention.
"""

from __future__ import annotations

from collections import Counter

from reports.daily_words import later_stages
from reports.numbers import UNKNOWN, count, factor, hours, moment, per_cent, scaled, seconds
from tracker.core.forecast.value import Forecast
from tracker.core.ledger import BUCKETS
from tracker.core.run_facts import run_variance
from tracker.core.run_money import costs, drawn
from tracker.core.snapshot import Snapshot

Pair = tuple[str, str]


def status_pairs(snapshot: Snapshot) -> list[Pair]:
    """Return what `tracker status` prints."""
    pairs = [
        ("run", snapshot.run),
        ("as of", moment(snapshot.as_of_us)),
        ("state", _state(snapshot)),
        ("tokens", _tokens(snapshot)),
        ("steps", _steps(snapshot)),
        ("GPU-hours", _gpu_hours(snapshot)),
        ("goodput", per_cent(snapshot.goodput_ratio)),
        ("MFU", _mfu(snapshot)),
        *_claim(snapshot),
        ("per 1e12 tokens", _per_trillion(snapshot)),
        ("step time", seconds(snapshot.step_time_s)),
        ("interruptions", _interruptions(snapshot)),
        ("MTBF", _mtbf(snapshot)),
    ]
    pairs += [(name, said) for name, said in (("cost", _cost(snapshot)), ("plan", _plan(snapshot))) if said]
    if snapshot.forecast is not None:
        pairs.append(("forecast", _forecast(snapshot.forecast)))
    if snapshot.operating_point:
        pairs.append(("trains on", _operating_point(snapshot)))
    if snapshot.rejects:
        pairs.append(("rejected", f"{count(snapshot.rejects)} lines: see `tracker check`"))
    if snapshot.unmatched_jobs:
        pairs.append(("unmatched jobs", _some(snapshot.unmatched_jobs)))
    said = snapshot.forecast.sentences[:2] if snapshot.forecast is not None else ()
    if warnings := [w for w in snapshot.warnings if w not in said]:
        pairs.append(("warnings", "\n".join(warnings)))
    if snapshot.unknown:
        pairs.append(("not known", "\n".join(snapshot.unknown)))
    return pairs


def _claim(snapshot: Snapshot) -> list[Pair]:
    """Return the framework's own claim beside ours, where the log makes one."""
    said = snapshot.reported
    if said.flop_per_s is None:
        return []
    text = f"{said.flop_per_s / 1e12:,.1f} TFLOP/s per GPU"
    if said.ours_flop_per_s is not None:
        text += f"; ours is {said.ours_flop_per_s / 1e12:,.1f} by {snapshot.mfu.flop_method}"
    return [("the log claims", f"{text}\n{said.explained}")]


def _forecast(forecast: Forecast) -> str:
    if forecast.sentences:
        return "\n".join(forecast.sentences[:2])
    return f"{UNKNOWN} ({forecast.reasons[0]})" if forecast.reasons else UNKNOWN


def _state(snapshot: Snapshot) -> str:
    text = snapshot.state
    if snapshot.attempts:
        text += f", {len(snapshot.attempts)} attempt{'s' if len(snapshot.attempts) > 1 else ''}"
    if snapshot.last_reading_us is not None:
        text += f", last reading {moment(snapshot.last_reading_us)}"
    return text


def _tokens(snapshot: Snapshot) -> str:
    tokens = snapshot.tokens
    if tokens.net is None:
        return UNKNOWN
    done = tokens.net + (tokens.inherited or 0)
    text = f"{scaled(done)} in the model"
    if tokens.planned:
        text += f", {per_cent(done / tokens.planned)} of {scaled(tokens.planned)} planned"
        plan = snapshot.settings.plan if snapshot.settings is not None else None
        if plan is not None:
            text += later_stages(plan.later_fraction, assumed="later_stages" in plan.assumed)
    if tokens.inherited:
        text += f" ({scaled(tokens.inherited)} from before the first attempt seen)"
    if tokens.processed is not None:
        text += f"; {scaled(tokens.processed)} processed"
    return text


def _steps(snapshot: Snapshot) -> str:
    steps = snapshot.steps
    text = f"{count(steps.net)} in the model, {count(steps.processed)} processed, last {count(steps.last)}"
    if steps.at_risk is not None:
        text += f", {count(steps.at_risk)} without a durable checkpoint"
    if steps.unseen:
        text += f", {count(steps.unseen)} unseen"
    return text


def _gpu_hours(snapshot: Snapshot) -> str:
    gpu_us = snapshot.gpu_us
    if gpu_us is None:
        return UNKNOWN
    parts = ", ".join(f"{hours(gpu_us[name] / 3.6e9)} {name}" for name in BUCKETS if gpu_us[name])
    return f"{hours(gpu_us['allocated'] / 3.6e9)} allocated" + (f": {parts}" if parts else "")


def _mfu(snapshot: Snapshot) -> str:
    mfu = snapshot.mfu
    if mfu.productive_ratio is None:
        return UNKNOWN
    peak = mfu.peak_flop_per_s
    reference = f"{mfu.reference_precision}, {UNKNOWN if peak is None else f'{peak / 1e12:g}'} TFLOP/s"
    return (
        f"{per_cent(mfu.productive_ratio)} productive, {per_cent(mfu.allocated_ratio)} allocated, "
        f"{per_cent(mfu.recent_ratio)} in the last hour of work\n"
        f"of the dense peak ({reference}), FLOPs by {mfu.flop_method}; "
        f"{per_cent(mfu.six_n_productive_ratio)} productive by 6N"
    )


def _per_trillion(snapshot: Snapshot) -> str:
    per = snapshot.per_trillion
    text = f"{hours(per.realised)} GPU-hours realised, {hours(per.recent)} in the last 24 h"
    if per.plan is not None:
        text += f", {hours(per.plan)} planned"
    if per.ratio_to_plan is not None:
        text += f" ({factor(per.ratio_to_plan)} of the plan)"
    return text if per.realised is not None or per.plan is not None else UNKNOWN


def _interruptions(snapshot: Snapshot) -> str:
    unexpected = Counter(s.cause for s in snapshot.interruptions if s.kind == "unexpected")
    planned = sum(1 for s in snapshot.interruptions if s.kind == "planned")
    text = f"{unexpected.total()} unexpected"
    if unexpected:
        text += " (" + ", ".join(f"{n} {cause}" for cause, n in unexpected.most_common()) + ")"
    return f"{text}, {planned} planned"


def _mtbf(snapshot: Snapshot) -> str:
    mtbf = snapshot.mtbf
    low, high = mtbf.device_hours_ci90
    if mtbf.job_hours is None:
        return f"above {hours(low)} device hours (90 %)" if low is not None else UNKNOWN
    text = f"{hours(mtbf.job_hours)} h of the job"
    if mtbf.device_hours is not None:
        text += f", {hours(mtbf.device_hours)} device hours (90 %: {hours(low)} to {hours(high)})"
    return text


def _cost(snapshot: Snapshot) -> str:
    """Return money and energy so far; empty where neither price nor power is known."""
    money, energy = costs(snapshot), drawn(snapshot)
    parts = []
    if money is not None and money.total is not None:
        parts.append(f"{money.total:,.0f} {money.currency} so far")
        if money.per_trillion_tokens is not None:
            parts.append(f"{money.per_trillion_tokens:,.0f} per 1e12 tokens")
    if energy is not None:
        power = "TDP" if energy.power_from == "TDP" else f"{energy.power_w:.0f} W, {energy.power_from}"
        parts.append(f"{hours(energy.mwh)} MWh (at {power})")
    return ", ".join(parts)


def _plan(snapshot: Snapshot) -> str:
    """Return how far the run is ahead of or behind its plan, and the biggest part of it."""
    found = run_variance(snapshot)
    if found is None:
        return ""
    late = "late" if found.wall_us > 0 else "early"
    more = "more" if found.gpu_us > 0 else "fewer"
    text = (
        f"{hours(abs(found.gpu_hours))} GPU-hours {more} than planned for these tokens, "
        f"{abs(found.days):.2f} days {late}"
    )
    part = max(found.parts, key=lambda p: abs(p.gpu_us))
    return f"{text}; biggest part: {part.name}, {part.cause}" if part.gpu_us else text


def _operating_point(snapshot: Snapshot) -> str:
    return ", ".join(f"{name} {value}" for name, value in snapshot.operating_point.items())


def _some(words: tuple[str, ...], most: int = 8) -> str:
    rest = len(words) - most
    return ", ".join(words[:most]) + (f" and {rest} more" if rest > 0 else "")
