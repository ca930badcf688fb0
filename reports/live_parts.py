"""Parts of the status page that a printed report has no room for: every attempt, every stop with its proof.

Pure: finished numbers in, HTML out. Bounded: a run of thousands of attempts shows its latest ones, and says
where the others are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from reports.daily_words import cause
from reports.html_blocks import table, text
from reports.ledger import attempts_table
from reports.numbers import UNKNOWN, count, hours, moment, per_cent, size
from reports.page import clean
from reports.tables import Table
from tracker.core.interruptions import Interruption
from tracker.core.run_money import Loss, costs
from tracker.core.snapshot import Snapshot

MOST_ATTEMPTS: Final = 200
MOST_STOPS: Final = 40
_EVIDENCE: Final = 10_000
_EVIDENCE_OF_ALL: Final = 20_000
"""Characters of proof on one page, shared among the stops shown."""
_MANUAL: Final = {True: "yes", False: "no", None: "not known"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """One [[source]] as the tracker reads it now."""

    number: int
    collector: str
    shown: str
    """Its path or command."""
    up: bool
    files: int
    lag_bytes: int


def attempts(snapshot: Snapshot) -> str:
    """Return the ledger by attempt, the latest first."""
    if not snapshot.attempts:
        return "<p>No attempt was seen yet.</p>"
    made = attempts_table(snapshot, latest=MOST_ATTEMPTS)
    notes, total = list(made.notes), len(snapshot.attempts)
    if total > MOST_ATTEMPTS:
        notes.append(f"The latest {MOST_ATTEMPTS} of {count(total)} attempts; `tracker ledger` shows all.")
    return table(replace(made, rows=list(reversed(made.rows)), notes=notes))


def stops(snapshot: Snapshot) -> str:
    """Return the interruptions, the latest first; each opens to the line that proves its cause."""
    found = snapshot.interruptions
    if not found:
        return "<p>No attempt has ended before the end of training.</p>"
    money = costs(snapshot)
    losses: Sequence[Loss | None] = money.losses if money is not None else [None] * len(found)
    shown = list(zip(found, losses, strict=True))[::-1][:MOST_STOPS]
    most = max(200, min(_EVIDENCE, _EVIDENCE_OF_ALL // len(shown)))
    currency = money.currency if money is not None else ""
    items = "".join(_stop(stop, loss, snapshot, currency, most) for stop, loss in shown)
    rest = (
        f'<p class="notes">The latest {MOST_STOPS} of {count(len(found))}; '
        "<code>tracker interruptions</code> shows all.</p>"
        if len(found) > MOST_STOPS
        else ""
    )
    return f'<ul class="stops">{items}</ul>{rest}'


def _stop(stop: Interruption, loss: Loss | None, snapshot: Snapshot, currency: str, most: int) -> str:
    lost = loss.gpu_hours if loss is not None else None
    said = snapshot.corrections.get(stop.attempt)
    name = cause(stop.cause)
    star = " (corrected)" if stop.judged is not None else ""
    pairs = [
        ("Kind", stop.kind),
        ("How sure", per_cent(stop.confidence)),
        ("Until it was noticed", _time(stop.detect_s)),
        ("Until it trained again", _time(stop.restart_s)),
        ("Steps done again", count(stop.redo_steps)),
        ("GPU-hours done again", hours(stop.redo_gpu_hours)),
        ("A person had to act", _MANUAL[stop.manual]),
    ]
    if loss is not None and loss.cost is not None:
        pairs.insert(6, ("Cost", f"{count(loss.cost)} {currency}"))
    if said is not None:
        pairs.append(("Said by a person", f"{said.note} ({said.by}, {moment(said.made_us)})"))
    if stop.judged is not None:
        pairs.append(("The evidence alone says", f"{cause(stop.judged.cause)}, {stop.judged.kind}"))
    planned = ", planned" if stop.kind == "planned" else ""
    facts = "".join(f"<dt>{text(key)}<dd>{text(value)}" for key, value in pairs)
    proof = f"<pre>{text(_clipped(stop.evidence, most))}</pre>" if stop.evidence else "<p>No line tells.</p>"
    return (
        f'<li id="stop-{stop.number}"><details><summary><span class="dim">{stop.number}</span>'
        f"<span>{text(moment(stop.at_us)[:16])}</span>"
        f'<span class="cause">{text(name + star)}</span>'
        f'<span class="dim">ended attempt {stop.attempt}{planned}</span>'
        f'<span class="cost">{_gpu_hours(lost)}</span></summary>'
        f'<div class="proof"><p class="dim">The line that proves it:</p>{proof}<dl>{facts}</dl></div>'
        "</details>"
    )


def _gpu_hours(value: float | None) -> str:
    return f"{hours(value)} GPU-h" if value is not None else UNKNOWN


def _time(seconds: float | None) -> str:
    """Return a length of time in the unit that reads best."""
    if seconds is None:
        return UNKNOWN
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _clipped(evidence: str, most: int) -> str:
    said = clean(evidence)
    return said if len(said) <= most else said[: most - 1] + "…"


def sources(found: Sequence[SourceLine]) -> str:
    """Return what the tracker reads, and whether it can."""
    if not found:
        return ""
    return table(
        Table(
            title="What the tracker reads",
            headings=(">#", "collector", "source", "read at the last look", ">files", ">not yet read"),
            rows=[
                (
                    str(one.number),
                    one.collector,
                    one.shown,
                    "yes" if one.up else "NO",
                    count(one.files),
                    size(one.lag_bytes),
                )
                for one in found
            ],
        )
    )
