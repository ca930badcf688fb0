"""The ledger as tables for people: where every GPU-hour went, by attempt and in total.

Pure. All rounding is by `reports/numbers.py`; the figures behind are exact and sum exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reports.numbers import UNKNOWN, count, hours, moment, per_cent
from reports.tables import Table
from tracker.core.ledger import BUCKETS, AttemptLine
from tracker.core.snapshot import Snapshot

MEANING: Final = {
    "productive": "work that is in the model",
    "lost": "work that a restart threw away",
    "startup": "from the allocation to the first step",
    "checkpoint": "training stood still for a save",
    "evaluation": "validation",
    "tail": "from the last sign of progress to the end",
    "pending": "since the last sign of progress, still within the usual",
    "idle": "paid for and not in any attempt",
    "other": "not explained",
}
_BAR: Final = 30


def attempts_table(snapshot: Snapshot) -> Table:
    """Return one row an attempt; columns of buckets that are empty throughout are left out."""
    gpu_us = snapshot.gpu_us
    shown = [
        name for name in BUCKETS if name == "productive" or (gpu_us is not None and gpu_us.get(name, 0) > 0)
    ]
    rows = [_row(line, shown, snapshot.mfu.peak_flop_per_s) for line in snapshot.attempts]
    foot = ["", "", "all", "", "", ""]
    foot += [_hours(gpu_us, "allocated"), *(_hours(gpu_us, name) for name in shown)]
    return Table(
        title="GPU-hours by attempt",
        headings=[
            ">#", "job", "start", "end", ">GPUs", ">last step", ">allocated", *(f">{name}" for name in shown),
            ">MFU", "ended",
        ],
        rows=rows,
        foot=[*foot, per_cent(snapshot.mfu.productive_ratio), ""],
        notes=_notes(snapshot),
    )  # fmt: skip


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


def _row(line: AttemptLine, shown: list[str], peak_flop_per_s: float | None) -> list[str]:
    ended = "running" if line.running else (line.end_kind or UNKNOWN)
    if line.stalled:
        ended = "stalled"
    if line.cause is not None and line.cause != line.end_kind:
        ended += f" ({line.cause})"
    return [
        str(line.number),
        line.job_id or "",
        moment(line.start_us) + (" ~" if line.estimated else ""),
        moment(line.end_us) if line.end_us is not None else "",
        count(line.gpus),
        count(line.last_step),
        _hours(line.gpu_us, "allocated"),
        *(_hours(line.gpu_us, name) for name in shown),
        per_cent(line.mfu_ratio(peak_flop_per_s)),
        ended,
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
