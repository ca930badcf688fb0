"""The ledger as tables for people: where every GPU-hour went, by attempt and in total.

Pure. All rounding is by `reports/numbers.py`; the figures behind are exact and sum exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reports.numbers import UNKNOWN, count, hours, moment, per_cent
from reports.tables import Table
from tracker.core.ledger import BUCKETS, AttemptLine
from tracker.core.run_money import by_day, costs
from tracker.core.snapshot import Snapshot

MEANING: Final = {
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
_SHORT: Final = {
    "productive": "prod.", "lost": "lost", "startup": "start", "checkpoint": "ckpt", "evaluation": "eval",
    "tail": "tail", "pending": "pend.", "idle": "idle", "other": "other",
}  # fmt: skip
_BAR: Final = 30


def attempts_table(snapshot: Snapshot, *, latest: int | None = None) -> Table:
    """Return one row an attempt; columns of buckets that are empty throughout are left out.

    With `latest`, rows of that many attempts, in their order; the last row is of the whole run all the same.
    """
    gpu_us, lines = snapshot.gpu_us, snapshot.attempts
    listed = lines if latest is None else lines[max(0, len(lines) - latest) :]
    shown = [
        name for name in BUCKETS if name == "productive" or (gpu_us is not None and gpu_us.get(name, 0) > 0)
    ]
    money = costs(snapshot)
    priced = money is not None and money.total is not None
    paid = money.attempts if priced and money is not None else ()
    starts = [line.start_us for line in lines]
    years = {moment(at_us)[:4] for at_us in (min(starts), max(starts))} if starts else set()
    when = "UTC" if len(years) != 1 else f"UTC, {years.pop()}"
    headings = [
        ">#",
        "job",
        "start",
        ">GPUs",
        ">step",
        ">all",
        *(f">{_SHORT[n]}" for n in shown),
        ">MFU",
        *([f">{money.currency}"] if priced and money is not None else []),
        "end",
    ]
    foot = ["", "all", "", "", "", _hours(gpu_us, "allocated"), *(_hours(gpu_us, name) for name in shown)]
    return Table(
        title=f"GPU-hours by attempt (start in {when})",
        headings=headings,
        rows=[
            _row(
                line,
                shown,
                snapshot.mfu.peak_flop_per_s,
                with_year="," not in when,
                paid=[count(paid[line.number - 1])] if priced else [],
            )
            for line in listed
        ],
        foot=[
            *foot,
            per_cent(snapshot.mfu.productive_ratio),
            *([count(money.total)] if priced and money is not None else []),
            "",
        ],
        notes=_notes(snapshot),
    )


def total_table(snapshot: Snapshot) -> Table:
    """Return one row a bucket, with its share of the allocation."""
    gpu_us = snapshot.gpu_us
    if gpu_us is None:
        return Table(title="The whole run", headings=("bucket", ">GPU-hours"), rows=[("allocated", UNKNOWN)])
    whole = gpu_us["allocated"]
    rows = []
    for name in BUCKETS:
        share = gpu_us[name] / whole if whole else None
        bar = "█" * round(_BAR * (share or 0.0))
        rows.append((name, hours(gpu_us[name] / 3.6e9), per_cent(share), MEANING[name], bar))
    return Table(
        title="The whole run",
        headings=("bucket", ">GPU-hours", ">share", "what it is", ""),
        rows=rows,
        foot=("allocated", hours(whole / 3.6e9), per_cent(1.0 if whole else None), "", ""),
    )


def days_table(snapshot: Snapshot) -> Table:
    """Return what was paid for on each day, UTC."""
    money = costs(snapshot)
    if money is None:
        return Table(title="By day (UTC)", headings=("day", ">GPU-hours"), rows=[])
    priced = money.total is not None
    return Table(
        title="By day (UTC)",
        headings=("day", ">GPU-hours", *([f">{money.currency}"] if priced else [])),
        rows=[
            (day.date.isoformat(), hours(day.gpu_us / 3.6e9), *([count(day.cost)] if priced else []))
            for day in by_day(snapshot)
        ],
        foot=("all", _hours(snapshot.gpu_us, "allocated"), *([count(money.total)] if priced else [])),
        notes=[] if priced else ["No price: set plan.gpu_hour_price or [[plan.price]]."],
    )


def _row(
    line: AttemptLine,
    shown: list[str],
    peak_flop_per_s: float | None,
    *,
    with_year: bool,
    paid: list[str],
) -> list[str]:
    start = moment(line.start_us)[0 if with_year else 5 : 16]
    ended = "running" if line.running else (line.cause or line.end_kind or UNKNOWN)
    return [
        str(line.number),
        line.job_id or "",
        start + (" ~" if line.estimated else ""),
        count(line.gpus),
        count(line.last_step),
        _hours(line.gpu_us, "allocated"),
        *(_hours(line.gpu_us, name) for name in shown),
        per_cent(line.mfu_ratio(peak_flop_per_s)),
        *paid,
        "stalled" if line.stalled else ended,
    ]


def _notes(snapshot: Snapshot) -> list[str]:
    notes = []
    if any(line.estimated for line in snapshot.attempts):
        notes.append("~ estimated: the log carries no clock.")
    if snapshot.attempts and snapshot.gpu_us is None:
        notes.append("No GPU count: neither scheduler nor log says it. Set hardware.gpus.")
    return notes


def _hours(gpu_us: Mapping[str, int] | None, name: str) -> str:
    return UNKNOWN if gpu_us is None else hours(gpu_us[name] / 3.6e9)
