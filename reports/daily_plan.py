"""The last sections of the daily report: cost and the plan, and what stands behind the numbers.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from reports.daily_figures import BUCKET_WORDS
from reports.daily_words import (
    Dates,
    brief,
    cause,
    every,
    length,
    many,
    money,
    short,
    signed,
)
from reports.numbers import UNKNOWN, count, hours, per_cent, scaled
from reports.page import Block, Notes, Paragraph, shortened
from reports.tables import Table
from tracker.core.chain import Chain
from tracker.core.daily import Daily
from tracker.core.variance import VariancePart

_WARNINGS: Final = 4


# -- cost and plan ----------------------------------------------------------------------------------


def plan_blocks(daily: Daily, when: Dates) -> list[Block]:
    """Return cost and energy, the difference from the plan in parts, published runs, checkpoint advice."""
    found: list[Block] = []
    paid = _paid_words(daily)
    if paid:
        found.append(Paragraph(text=paid))
    if daily.snapshot.attempts and daily.plan is None:
        found.append(Paragraph(text="There is no plan, so nothing is compared with one: set [plan]."))
    if daily.variance is not None:
        found.append(_variance_table(daily))
    if daily.snapshot.per_trillion.realised is not None:
        found.append(_rates_table(daily))
    advice = _advice_words(daily)
    if advice:
        found.append(Paragraph(text=advice))
    return found


def _paid_words(daily: Daily) -> str:
    parts = []
    paid, energy = daily.money, daily.energy
    if paid is not None and paid.total is not None:
        text = f"{money(paid.total, paid.currency)} so far"
        if paid.per_trillion_tokens is not None:
            text += f", {money(paid.per_trillion_tokens, paid.currency)} per 10¹² tokens"
        parts.append(text)
    if energy is not None:
        text = f"{hours(energy.mwh)} MWh, at {energy.power_w:,.0f} W a GPU ({_POWER[energy.power_from]})"
        if energy.facility_overhead != 1.0:
            text += f" with a facility overhead of {energy.facility_overhead:g}"
        if energy.carbon_t is not None:
            text += f", {hours(energy.carbon_t)} t CO₂e"
        parts.append(text)
    if not parts:
        return ""
    return "; ".join(parts) + "."


_POWER: Final = {
    "measured": "measured",
    "measured in part": "measured in part",
    "plan": "as planned",
    "TDP": "its TDP: an upper bound",
}
_FACTORS: Final = {
    "tokens": "target",
    "flop": "FLOPs per token",
    "mfu": "MFU",
    "redo": "redone work",
    "tail": "standing still after the last step",
    "goodput": "other unproductive time",
    "gpus": "GPU count",
    "availability": "time without an allocation",
}


_ALLOWED: Final = (
    "What the plan allows for stops and stalls is counted in other unproductive time; what [plan.failures] "
    "expects of redone work, in redone work."
)
_PER_CENT: Final = re.compile(r"(\d)%")


def _variance_table(daily: Daily) -> Table:
    v = daily.variance
    assert v is not None
    shown = [p for p in v.parts if p.gpu_us or p.wall_us]
    return Table(
        title="Against the plan, for the tokens trained so far (plus is more, or later)",
        headings=("part", ">GPU-hours", ">days", "biggest cause"),
        rows=[
            (
                _FACTORS.get(p.name, p.name),
                signed(hours(abs(p.gpu_hours)), p.gpu_hours),
                signed(f"{abs(p.days):.2f}", p.days),
                _in_words(p),
            )
            for p in shown
        ],
        foot=(
            "all", signed(hours(abs(v.gpu_hours)), v.gpu_hours), signed(f"{abs(v.days):.2f}", v.days), "",
        ),
        notes=[_ALLOWED] if any(p.name == "goodput" for p in shown) else [],
    )  # fmt: skip


def _in_words(part: VariancePart) -> str:
    """Return a part's biggest cause as people say it."""
    if part.name == "mfu":
        return f"MFU {per_cent(part.actual)}, planned {per_cent(part.planned)}"
    name, colon, rest = _PER_CENT.sub(r"\1 %", part.cause).partition(":")
    if not colon:
        return name
    return f"{BUCKET_WORDS.get(name) or cause(name)}:{rest}"


def _rates_table(daily: Daily) -> Table:
    rows = [
        _rate_row(chain, daily.sizes.get(chain.name), daily.differs.get(chain.name, ()))
        for chain in daily.chains
    ]
    return Table(
        title="GPU-hours per 10¹² tokens: plan, run, and published runs that stand near",
        headings=("", ">active", ">GPU-hours", ">MFU", ">goodput", ">MFU, allocated", "what differs"),
        rows=rows,
        notes=[
            "GPU-hours per token grow with the model: compare the share of peak over all allocated time, and "
            "mind what differs. Published runs by 6N; what a source does not split is a dash."
        ],
    )


def _rate_row(chain: Chain, size: float | None, differs: Sequence[str]) -> list[str]:
    name = {"plan": "the plan", "run": "this run"}.get(chain.kind, chain.name)
    return [
        name,
        short(size),
        hours(chain.gpu_hours_per_trillion_tokens),
        per_cent(chain.mfu_ratio),
        per_cent(chain.goodput_ratio),
        per_cent(chain.mfu_allocated_ratio),
        "; ".join(differs),
    ]


def _advice_words(daily: Daily) -> str:
    found = daily.advice
    if found is None:
        return ""
    a, given = found.advice, found.given
    if a.best_interval_min is None or given.interval_min is None or a.gain_ratio is None:
        return ""
    text = (
        f"Checkpoints: one every {given.interval_min:.0f} min of training now, and each stalls it for "
        f"{brief((given.stall_min or 0.0) * 60)}. With a stop every {every((a.mtbf_min or 0.0) / 60)} the "
        f"best interval is {a.best_interval_min:.0f} min"
    )
    if a.best_interval_range_min is not None and a.best_interval_range_min[1] is not None:
        text += f" ({a.best_interval_range_min[0]:.0f} to {a.best_interval_range_min[1]:.0f})"
    if a.gain_ratio < 0.001:
        return f"{text}: nothing to gain."
    text += f". It would give {per_cent(a.gain_ratio)} more steps in the same hours"
    if a.gpu_hours_saved is not None:
        which = {
            "to go": "still to come at the present rate",
            "so far": "so far",
            "given": "given",
        }[found.gpu_hours_are]
        text += f": {hours(a.gpu_hours_saved)} of the {scaled(found.gpu_hours)} GPU-hours {which}"
        if a.money_saved is not None and daily.money is not None:
            text += f", or {money(a.money_saved, daily.money.currency)}"
    return text + "."


# -- what stands behind -----------------------------------------------------------------------------


def behind_blocks(daily: Daily, when: Dates) -> list[Block]:
    """Return what is not known, how well the tracker could see, and the conventions."""
    s = daily.snapshot
    found: list[Block] = []
    for problem in daily.health.problems[:_WARNINGS]:
        found.append(Paragraph(text=shortened(problem, 300), tone="warning"))
    if s.unknown:
        found.append(Notes(title="Not known", items=tuple(shortened(t, 300) for t in s.unknown[:_WARNINGS])))
    reasons = daily.forecast.reasons if daily.forecast is not None and daily.forecast.basis != "none" else ()
    told = [*s.warnings[:_WARNINGS], *reasons]
    if len(s.warnings) > _WARNINGS:
        told.append(f"and {len(s.warnings) - _WARNINGS} more: see `tracker status`")
    if told:
        found.append(Notes(title="To know", items=tuple(shortened(t, 300) for t in told)))
    found.append(Notes(title="The tracker", items=tuple(_health_words(daily, when))))
    if s.attempts:
        found.append(Notes(title="How it is counted", items=tuple(_conventions(daily))))
    return found


def _health_words(daily: Daily, when: Dates) -> list[str]:
    health, s = daily.health, daily.snapshot
    read = f"{many(health.files, 'file', 'files').capitalize()} with records"
    if s.last_reading_us is not None:
        read += f", last sign of progress {when.time(s.last_reading_us)}"
        if health.quiet_s is not None:
            read += f", {length(health.quiet_s / 86400)} before this report"
    found = [read + "."]
    rejects = sum(health.rejects.values())
    if rejects:
        top = ", ".join(f"{count(n)} {reason}" for reason, n in list(health.rejects.items())[:3])
        found.append(f"{count(rejects)} lines could not be used ({shortened(top, 120)}).")
    if health.unrecognised:
        names = ", ".join(shortened(name, 40) for name in health.unrecognised[:3])
        found.append(f"No collector reads {many(len(health.unrecognised), 'file', 'files')}: {names}.")
    if s.unmatched_jobs:
        found.append(f"{count(len(s.unmatched_jobs))} scheduler rows belong to no attempt.")
    return found


def _conventions(daily: Daily) -> list[str]:
    s = daily.snapshot
    settings = s.settings
    m = s.mfu
    found = [
        "Goodput: GPU-time of steps that are in the model over all that was allocated; what is pending "
        "counts in neither."
    ]
    if m.peak_flop_per_s is not None:
        source = f" ({shortened(m.peak_source, 100)})" if m.peak_source else ""
        found.append(
            f"MFU: model FLOPs of kept tokens over the dense peak of {m.peak_flop_per_s / 1e12:,g} TFLOP/s "
            f"in {m.reference_precision}{source}; FLOPs by {m.flop_method}, "
            f"{_flop(m.flop_per_token)} a token; recomputation never counts. By plain 6N: "
            f"{per_cent(m.six_n_productive_ratio)}."
        )
    trained = s.operating_point.get("precision")
    if trained and trained != m.reference_precision and m.peak_flop_per_s is not None:
        found.append(
            f"It trains in {shortened(trained, 20)}; the peak is that of {m.reference_precision}, so this "
            "MFU is a common reference, not the share of what the device can do."
        )
    if settings is not None:
        billed = "each attempt’s allocation" if settings.billing == "attempt" else "the whole reservation"
        found.append(f"Billed: {billed}, scheduler’s GPU count first, then the log’s, then the config’s.")
    if daily.failures is not None and daily.failures.rate.job_hours is not None:
        found.append(
            "Time between stops: all hours that attempts held, start-up and standing still included, over "
            "the unexpected stops."
        )
    others = [d for d in daily.definitions[1:] if d.ratio is not None][:4]
    if others:
        told = ", ".join(f"{d.name} {per_cent(d.ratio)}" for d in others)
        found.append(f"Goodput by other definitions: {told}.")
    if daily.plan is not None and daily.plan.assumed:
        found.append(f"In the plan without a source: {', '.join(daily.plan.assumed)}.")
    if daily.forecast is not None and daily.forecast.assumptions:
        found += [f"Forecast: {shortened(text, 260)}." for text in daily.forecast.assumptions[:3]]
    found.append(
        "P10, P50, P90: the truth lies below with 10, 50 and 90 % probability. Changes are told against a "
        "day before, made again from what was known then."
    )
    return found


def _flop(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value / 1e9:,.4g} GFLOP"
