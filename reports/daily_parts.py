"""The sections of the daily report after the first: ledger, speed, attempts, plan, and what stands behind.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reports.daily_figures import BUCKET_WORDS
from reports.daily_words import (
    Dates,
    a_cause,
    cause,
    length,
    many,
    minus,
    money,
    number,
    share_of,
    short,
    signed,
    whole_per_cent,
)
from reports.numbers import UNKNOWN, count, hours, per_cent, scaled
from reports.page import Block, Notes, Paragraph, shortened
from reports.tables import Table
from tracker.core.chain import Chain
from tracker.core.daily import Daily
from tracker.core.interruptions import Interruption
from tracker.core.ledger import BUCKETS
from tracker.core.run_money import Loss

_STOPS: Final = 8
_CAUSES: Final = 6
_CHANGES: Final = 6
_WARNINGS: Final = 4
_EVIDENCE: Final = 70
_MEANING: Final = {
    "productive": "work that is in the model",
    "lost": "work that a restart threw away",
    "startup": "from the allocation to the first step",
    "checkpoint": "training stood still for a save",
    "evaluation": "validation",
    "tail": "from the last sign of progress to the end",
    "pending": "since the last sign of progress, within the usual",
    "idle": "paid for, and not training",
    "other": "not explained",
}


# -- ledger -----------------------------------------------------------------------------------------


def ledger_blocks(daily: Daily, when: Dates) -> list[Block]:
    """Return what was allocated and what became of it, last day and whole run."""
    s = daily.snapshot
    whole = s.gpu_us
    if not s.attempts:
        return []
    if whole is None:
        return [
            Paragraph(
                text="GPU-hours are not known: neither scheduler nor log says how many GPUs there are. "
                "Set hardware.gpus.",
                tone="warning",
            )
        ]
    if not whole["allocated"]:
        return []
    found: list[Block] = [Paragraph(text=text) for text in _spent_words(daily)]
    day = daily.day.gpu_us if daily.day is not None else None
    shown = [n for n in BUCKETS if n == "productive" or whole[n] or (day is not None and day[n])]
    headings = [
        "",
        *([">last day", ">share"] if day is not None else []),
        ">whole run",
        ">share",
        "what it is",
    ]
    rows = []
    for name in shown:
        row = [BUCKET_WORDS[name]]
        if day is not None:
            row += [_hours(day[name]), _share(day[name], day["allocated"])]
        rows.append([*row, _hours(whole[name]), _share(whole[name], whole["allocated"]), _MEANING[name]])
    foot = ["allocated"]
    if day is not None:
        foot += [_hours(day["allocated"]), _share(day["allocated"], day["allocated"])]
    foot += [_hours(whole["allocated"]), "100.0 %", ""]
    notes = []
    if day is not None and any(day[n] < 0 for n in BUCKETS):
        notes.append(
            "Below zero: time that was counted so a day ago and is not any more. Work of earlier days that a "
            "restart threw away in this one is lost in this one."
        )
    found.append(Table(title="GPU-hours", headings=headings, rows=rows, foot=foot, notes=notes))
    return found


def _spent_words(daily: Daily) -> list[str]:
    day = daily.day
    if day is None:
        return []
    if not day.gpu_us["allocated"]:
        return ["Nothing was allocated in the last day."]
    found = []
    spent = f"The last day took {_hours(day.gpu_us['allocated'])} GPU-hours"
    if day.cost is not None and daily.money is not None:
        spent += f", {money(day.cost, daily.money.currency)}"
    if day.goodput_ratio is not None and day.goodput_ratio >= 0:
        spent += f"; {whole_per_cent(day.goodput_ratio)} of them are in the model"
    found.append(spent + ".")
    costly = [g for g in day.stops if g.gpu_hours]
    if costly:
        told = ", ".join(
            f"{a_cause(g.cause) if g.count == 1 else f'{number(g.count)} {cause(g.cause, g.count)}'} "
            f"{hours(g.gpu_hours)}"
            for g in costly[:4]
        )
        found.append(f"What stops cost, in GPU-hours with redone work and restart: {told}.")
    return found


def _hours(gpu_us: int) -> str:
    return minus(hours(gpu_us / 3.6e9))


def _share(part: int, whole: int) -> str:
    return share_of(part, whole) if whole else UNKNOWN


# -- speed ------------------------------------------------------------------------------------------


def speed_blocks(daily: Daily, when: Dates) -> list[Block]:
    """Return step time and MFU in words."""
    s = daily.snapshot
    found: list[Block] = []
    if s.mfu.productive_ratio is None and s.step_time_s is None:
        if s.attempts and s.steps.processed == 0:
            return [Paragraph(text="No step was seen yet.")]
        return []
    told = []
    if s.step_time_s is not None:
        told.append(f"A step takes {s.step_time_s:.3g} s")
    if s.mfu.recent_ratio is not None:
        told.append(f"MFU is {per_cent(s.mfu.recent_ratio)} in the last hour of work")
    if s.mfu.productive_ratio is not None:
        told.append(f"{per_cent(s.mfu.productive_ratio)} over all productive time")
    if s.mfu.allocated_ratio is not None:
        told.append(f"{per_cent(s.mfu.allocated_ratio)} of all that was allocated")
    text = ", ".join(told)
    found.append(Paragraph(text=text[:1].upper() + text[1:] + "."))
    if s.reported.flop_per_s is not None and s.reported.explained:
        claim = f"The log claims {s.reported.flop_per_s / 1e12:,.1f} TFLOP/s per GPU"
        if s.reported.ours_flop_per_s is not None:
            claim += f"; ours is {s.reported.ours_flop_per_s / 1e12:,.1f} by {s.mfu.flop_method}"
        found.append(Paragraph(text=f"{claim}. {s.reported.explained}"))
    if daily.shifts:
        found.append(_changes_table(daily, when))
    return found


def _changes_table(daily: Daily, when: Dates) -> Table:
    told = daily.shifts[-_CHANGES:]
    left = len(daily.shifts) - len(told)
    rows = []
    for c in told:
        pace = c.sort != "operating_point"
        evidence = "; ".join(c.what) if not pace else (c.evidence[0] if c.evidence else c.hint)
        rows.append((
            when.time(c.at_us),
            {"slower": "slower", "faster": "faster", "operating_point": "other setting"}[c.sort],
            signed(f"{abs(c.ratio - 1) * 100:.1f} %", c.ratio - 1) if pace else UNKNOWN,
            f"{c.step_time_before_s:.3g} → {c.step_time_after_s:.3g} s",
            signed(hours(abs(c.gpu_hours)), c.gpu_hours) if c.gpu_hours is not None else UNKNOWN,
            when.time(c.ended_us) if c.ended_us is not None else "lasts",
            shortened(evidence, _EVIDENCE) or UNKNOWN,
        ))
    notes = [f"{many(left, 'earlier one is', 'earlier ones are').capitalize()} not shown."] if left else []
    if daily.changes.gpu_hours:
        notes.append(f"Slow-downs have cost {hours(daily.changes.gpu_hours)} GPU-hours so far.")
    return Table(
        title="When it became slower or faster",
        headings=(
            "at",
            "what",
            ">time for the same work",
            ">step",
            ">GPU-hours so far",
            "until",
            "what the logs say",
        ),
        rows=rows,
        notes=notes,
    )


# -- attempts ---------------------------------------------------------------------------------------


def attempts_blocks(daily: Daily, when: Dates) -> list[Block]:
    """Return the interruptions of the last day, how often they come, and from what."""
    s = daily.snapshot
    if not s.attempts:
        return []
    found: list[Block] = [Paragraph(text=_attempts_words(daily, when))]
    table = _stops_table(daily, when)
    if table is not None:
        found.append(table)
    if daily.causes.total:
        found.append(_causes_table(daily))
    return found


def _attempts_words(daily: Daily, when: Dates) -> str:
    s = daily.snapshot
    unexpected = sum(1 for stop in s.interruptions if stop.kind == "unexpected")
    planned = len(s.interruptions) - unexpected
    text = (
        f"{many(len(s.attempts), 'attempt', 'attempts').capitalize()} since "
        f"{when.time(s.attempts[0].start_us)}, {many(unexpected, 'unexpected stop', 'unexpected stops')}"
    )
    if planned:
        text += f" and {number(planned)} planned"
    rate = daily.failures
    if rate is not None and rate.rate.job_hours is not None:
        low, high = (rate.widened or rate.rate).job_hours_interval
        text += (
            f". One every {hours(rate.rate.job_hours)} h of the job (90 %: {hours(low)} to {hours(high)} h)"
        )
        if rate.rate.device_hours is not None:
            text += f", {hours(rate.rate.device_hours)} hours of a GPU"
    elif s.mtbf.device_hours_ci90[0] is not None:
        low = s.mtbf.device_hours_ci90[0]
        text += f". With 95 % confidence a GPU runs more than {hours(low)} hours before one"
    if daily.failures is not None and daily.failures.widened is not None:
        text += "; the interval is widened because they come in bunches"
    return text + "."


def _stops_table(daily: Daily, when: Dates) -> Table | None:
    s = daily.snapshot
    pairs = list(zip(s.interruptions, daily.losses, strict=True))
    title = "Latest interruptions"
    if daily.day is not None:
        within = [pair for pair in pairs if pair[0].at_us > daily.day.start_us]
        if not within:
            return None
        title, pairs = "Interruptions of the last day", within
    if not pairs:
        return None
    shown = pairs[-_STOPS:]
    left = len(pairs) - len(shown)
    priced = daily.money is not None and daily.money.total is not None
    currency = daily.money.currency if daily.money is not None else ""
    return Table(
        title=title,
        headings=("at", ">attempt", "cause", ">silent", ">restart", ">redone steps", ">GPU-hours",
                  *([f">{currency}"] if priced else []), "evidence"),
        rows=[_stop_row(stop, loss, when, priced) for stop, loss in shown],
        notes=[f"{many(left, 'earlier one is', 'earlier ones are').capitalize()} not shown."] if left else [],
    )  # fmt: skip


def _stop_row(stop: Interruption, loss: Loss | None, when: Dates, priced: bool) -> list[str]:
    name = cause(stop.cause)
    return [
        when.time(stop.at_us),
        str(stop.attempt),
        name + (" (planned)" if stop.kind == "planned" else ""),
        _short(stop.detect_s),
        _short(stop.restart_s),
        count(stop.redo_steps),
        hours(loss.gpu_hours) if loss is not None else UNKNOWN,
        *([count(loss.cost if loss is not None else None)] if priced else []),
        shortened(stop.evidence, _EVIDENCE) or UNKNOWN,
    ]


def _short(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _causes_table(daily: Daily) -> Table:
    t = daily.causes
    seen = [row for row in t.rows if row.count][:_CAUSES]
    rest = t.total - sum(row.count for row in seen)
    rows = [
        (
            cause(row.cause),
            count(row.count),
            per_cent(row.share),
            count(row.published_count),
            per_cent(row.published_share),
        )
        for row in seen
    ]
    if rest:
        rows.append(("other causes", count(rest), "", "", ""))
    return Table(
        title="Causes of unexpected stops, beside Llama 3 405B",
        headings=("cause", ">here", ">share", ">there", ">share"),
        rows=rows,
        foot=("all", count(t.total), per_cent(1.0), count(t.published.total), per_cent(1.0)),
        notes=[
            f"GPU-caused: {per_cent(t.gpu_share)} here, {per_cent(t.published.gpu_share)} there, both by "
            f"counts. Published for 54 days on 16,384 H100s."
        ],
    )


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
    "goodput": "other unproductive time",
    "gpus": "GPU count",
    "availability": "time without an allocation",
}


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
                _in_words(p.cause),
            )
            for p in shown
        ],
        foot=(
            "all", signed(hours(abs(v.gpu_hours)), v.gpu_hours), signed(f"{abs(v.days):.2f}", v.days), "",
        ),
    )  # fmt: skip


def _in_words(said: str) -> str:
    """Return a cause with its first word, a cause or a bucket, as people say it."""
    name, colon, rest = said.partition(":")
    if not colon:
        return said
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
        f"{_short((given.stall_min or 0.0) * 60)}. With a stop every {hours((a.mtbf_min or 0.0) / 60)} h the "
        f"best interval is {a.best_interval_min:.0f} min"
    )
    if a.best_interval_range_min is not None and a.best_interval_range_min[1] is not None:
        text += f" ({a.best_interval_range_min[0]:.0f} to {a.best_interval_range_min[1]:.0f})"
    if a.gain_ratio < 0.001:
        return f"{text}: nothing to gain."
    text += f". It would give {per_cent(a.gain_ratio)} more steps in the same hours"
    if a.gpu_hours_saved is not None:
        which = {"to go": "still to come", "so far": "so far", "given": "given"}[found.gpu_hours_are]
        text += f": {hours(a.gpu_hours_saved)} of the {scaled(found.gpu_hours)} GPU-hours {which}"
        if a.money_saved is not None and daily.money is not None:
            text += f", {money(a.money_saved, daily.money.currency)}"
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
