"""Interruptions as a table for people: when, why, how sure, what it cost, and the line that proves it.

Pure. All rounding is by `reports/numbers.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reports.numbers import UNKNOWN, count, hours, moment, per_cent, seconds
from reports.tables import Table
from tracker.core.corrections import Correction
from tracker.core.interruptions import Interruption
from tracker.core.run_money import costs
from tracker.core.snapshot import Snapshot

_EVIDENCE: Final = 90
_MANUAL: Final = {True: "yes", False: "no", None: UNKNOWN}


def interruptions_table(snapshot: Snapshot) -> Table:
    """Return one row an interruption, oldest first."""
    stops = snapshot.interruptions
    money = costs(snapshot)
    priced = money is not None and money.total is not None
    losses = money.losses if priced and money is not None else ()
    costs_shown = [[count(loss.cost if loss else None)] for loss in losses] or [[] for _ in stops]
    unexpected = sum(1 for stop in stops if stop.kind == "unexpected")
    notes = [note for stop in stops if (note := _note(stop, snapshot.corrections.get(stop.attempt)))]
    if not stops:
        notes.append("no attempt has ended before the end of training")
    return Table(
        title=f"{len(stops)} interruptions, {unexpected} of them unexpected" if len(stops) != 1 else
        f"1 interruption, {'unexpected' if unexpected else 'planned'}",
        headings=(
            ">id", "at", ">attempt", "kind", "cause", ">sure", ">detect", ">restart", ">redo steps",
            ">redo GPU-h", *([f">{money.currency}"] if priced and money is not None else []), "by hand",
            "evidence",
        ),
        rows=[_row(stop, paid) for stop, paid in zip(stops, costs_shown, strict=True)],
        notes=notes,
    )  # fmt: skip


def _row(stop: Interruption, paid: Sequence[str]) -> tuple[str, ...]:
    evidence = stop.evidence if len(stop.evidence) <= _EVIDENCE else stop.evidence[: _EVIDENCE - 3] + "..."
    return (
        str(stop.number),
        moment(stop.at_us),
        str(stop.attempt),
        stop.kind,
        stop.cause + ("*" if stop.judged is not None else ""),
        per_cent(stop.confidence),
        seconds(stop.detect_s),
        seconds(stop.restart_s),
        count(stop.redo_steps),
        hours(stop.redo_gpu_hours),
        *paid,
        _MANUAL[stop.manual],
        evidence,
    )


def _note(stop: Interruption, said: Correction | None) -> str:
    """Return what a person said of an interruption, and what the evidence says."""
    if said is None:
        return ""
    judged = stop.judged
    before = "" if judged is None else f" (the evidence says {judged.kind}, {judged.cause})"
    star = "*" if judged is not None else ""
    return f"{star}{stop.number}: {said.note} - {said.by}, {moment(said.made_us)}{before}"
