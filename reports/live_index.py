"""The page of several runs: one row each, the one that needs somebody first.

Pure.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reports.daily_words import Dates, dates, length
from reports.html_blocks import sign, text
from reports.html_document import header, live_document, pill
from reports.numbers import UNKNOWN, hours, per_cent
from tracker.core.run_standing import ended_short, late_days
from tracker.core.snapshot import Snapshot

EVERY_S: Final = 10
_RANK: Final = {"down": 0, "stalled": 1, "waiting": 3, "starting": 3, "running": 3, "finished": 4}
"""Where a state stands in the list; what is late or has trouble with its tracker stands at 2."""
_LATE_DAYS: Final = 1.0
_NEAR_US: Final = 2 * 86_400e6
"""A finish that is surer than this is told with its hours."""
_TROUBLE: Final = 200
"""Characters of what is wrong."""
_HEADINGS: Final = (
    "run", "state", "finish, 80 % (UTC)", "beside the plan", ">goodput", ">lost GPU-hours",
    "last reading (UTC)",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRow:
    """One run."""

    run: str
    path: str
    """Of its page."""
    snapshot: Snapshot | None
    problems: tuple[str, ...] = ()
    """What is wrong with its tracker now."""


def index_page(rows: Sequence[IndexRow], *, version: str, links: Sequence[tuple[str, str]] = ()) -> str:
    """Return the page."""
    ill = sum(1 for row in rows if _rank(row) < 3)
    said = f"{len(rows)} runs, {ill if ill else 'none'} to look at"
    headings = (*_HEADINGS, *(("trouble",) if any(row.problems for row in rows) else ()))
    names = "".join(f'<th scope="col">{text(name.removeprefix(">"))}' for name in headings)
    numeric = " ".join(f"n{n}" for n, name in enumerate(headings, start=1) if name.startswith(">"))
    body = "".join(_row(row, len(headings)) for row in sorted(rows, key=_order))
    foot = "".join(f'<li><a href="{text(path)}">{text(words)}</a>' for words, path in links)
    inside = (
        f'{header("Training runs", "", f"<p role=status>{said}</p>")}<main id="main">'
        '<section><div class="scroll" tabindex="0" role="region" aria-label="All runs">'
        f'<table class="index {numeric}"><caption class="sr">All runs, the one that needs somebody first'
        f"</caption><thead><tr>{names}<tbody>{body}</table></div></section></main>"
        f"<footer><ul>{foot}</ul><p>run-telemetry {text(version)}</p></footer>"
    )
    return live_document("Training runs", inside, every_s=EVERY_S, version=version)


def _rank(row: IndexRow) -> int:
    if row.snapshot is None:
        return 2 if row.problems else 3
    rank = _RANK.get(row.snapshot.state, 3)
    late = row.snapshot.state != "finished" and _late(row.snapshot) >= _LATE_DAYS
    return min(rank, 2) if row.problems or late else rank


def _order(row: IndexRow) -> tuple[int, float, str]:
    """Worst first: by state, then the latest against its plan, then by name."""
    late = _late(row.snapshot) if row.snapshot is not None else 0.0
    return _rank(row), -late, row.run


def _late(snapshot: Snapshot) -> float:
    late = late_days(snapshot)
    return late if late is not None else 0.0


def _row(row: IndexRow, columns: int) -> str:
    s = row.snapshot
    link = f'<a href="{text(row.path)}">{text(row.run)}</a>'
    trouble = "; ".join(row.problems)[:_TROUBLE]
    warned = f"{sign('warning')}{text(trouble)}" if trouble else ""
    if s is None:
        cells = [pill("waiting"), *[UNKNOWN] * 5, warned]
    else:
        when = dates(dt.UTC, "UTC", s.as_of_us)
        lost = None if s.gpu_us is None else s.gpu_us["lost"] / 3.6e9
        cells = [
            pill(s.state),
            text(_finish(s, when)),
            _beside_plan(s),
            text(per_cent(s.goodput_ratio)),
            text(hours(lost)),
            text(when.time(s.last_reading_us) if s.last_reading_us is not None else UNKNOWN),
            warned,
        ]
    told = "".join(f"<td>{cell}" for cell in cells[: columns - 1])
    return f'<tr id="{text(row.path)}"><th scope="row">{link}{told}'


def _finish(snapshot: Snapshot, when: Dates) -> str:
    found = snapshot.forecast.finish_us if snapshot.forecast is not None else None
    if found is None or found.p50 is None:
        return UNKNOWN
    if found.p10 == found.p90:
        return when.time(found.p50)
    near = found.p10 is not None and found.p90 is not None and found.p90 - found.p10 < _NEAR_US
    said = when.time if near else when.short_day
    return f"{said(found.p10)} to {said(found.p90)}"


def _beside_plan(snapshot: Snapshot) -> str:
    late = late_days(snapshot)
    if ended_short(snapshot):
        return f"{sign('warning')}ended before its target"
    if late is None:
        return UNKNOWN
    said = f"{length(late)} {'late' if late > 0 else 'early'}"
    return f"{sign('warning') if late >= _LATE_DAYS else ''}{text(said)}"
