"""The sections of the daily report after the first: ledger, speed, attempts and interruptions.

Pure.
"""

from __future__ import annotations

from typing import Final

from reports.daily_figures import BUCKET_WORDS
from reports.daily_words import (
    Dates,
    a_cause,
    brief,
    cause,
    every,
    many,
    minus,
    money,
    number,
    share_of,
    signed,
    whole_per_cent,
)
from reports.ledger import MEANING
from reports.numbers import UNKNOWN, count, hours, per_cent
from reports.page import Block, Paragraph, shortened
from reports.tables import Table
from tracker.core.daily import Daily
from tracker.core.interruptions import Interruption
from tracker.core.ledger import BUCKETS
from tracker.core.run_money import Loss

_STOPS: Final = 8
_COSTLY: Final = 4
_CAUSES: Final = 6
_CHANGES: Final = 6
_EVIDENCE: Final = 70
_TOLD: Final = 0.001


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
        rows.append([*row, _hours(whole[name]), _share(whole[name], whole["allocated"]), MEANING[name]])
    foot = ["allocated"]
    if day is not None:
        foot += [_hours(day["allocated"]), _share(day["allocated"], day["allocated"])]
    foot += [_hours(whole["allocated"]), "100.0 %", ""]
    notes = []
    restated = daily.day.restated_us if daily.day is not None else {}
    told_of = [us for name, us in restated.items() if us < 0 and name != "pending"]  # pending always settles
    if day is not None and any(-us >= _TOLD * day["allocated"] for us in told_of):
        told = ", ".join(
            f"{signed(hours(abs(us) / 3.6e9), us)} {BUCKET_WORDS[name]}" for name, us in restated.items()
        )
        notes.append(
            f"Besides, a line of this day told what time before it was: {told}. That is in the whole run, "
            "and in no row of the last day."
        )
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
            for g in costly[:_COSTLY]
        )
        rest = costly[_COSTLY:]
        if rest:
            others = sum(g.count for g in rest)
            told += f", {number(others)} more {hours(sum(g.gpu_hours or 0.0 for g in rest))}"
        found.append(f"What stops cost, in GPU-hours with redone work and restart: {told}.")
    if daily.snapshot.state == "stalled":
        found.append(
            f"The stall that lasts is no stop yet: it is in the {_hours(day.gpu_us['tail'])} GPU-hours after "
            "the last step."
        )
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
        reach = f"{every(low)} to {every(high)}" if high is not None else f"more than {every(low)}"
        text += f". One every {every(rate.rate.job_hours)} of the job (90 %: {reach})"
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
        brief(stop.detect_s),
        brief(stop.restart_s),
        count(stop.redo_steps),
        hours(loss.gpu_hours) if loss is not None else UNKNOWN,
        *([count(loss.cost if loss is not None else None)] if priced else []),
        shortened(stop.evidence, _EVIDENCE) or UNKNOWN,
    ]


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
