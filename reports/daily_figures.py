"""The bars of the daily report as drawings: the waterfall of GPU-hours, the attempts as a time line.

Pure: coordinates are finished numbers of the core. One without data is None, never empty axes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Final

from reports.daily_axes import time_axis
from reports.daily_words import Dates, cause, minus, share_of
from reports.numbers import hours
from reports.page import MOST_HINTS, Axis, Bar, Drawing, Figure, Key, Mark, Panel, Role, Tick
from tracker.core.daily import DAY_US, Daily
from tracker.core.ledger import BUCKETS
from tracker.core.snapshot import Snapshot
from tracker.core.strip import strip

_HOUR_US: Final = 3_600_000_000
BUCKET_WORDS: Final[Mapping[str, str]] = {
    "productive": "productive",
    "lost": "lost work",
    "startup": "start-up",
    "checkpoint": "checkpoints",
    "evaluation": "evaluation",
    "tail": "after last step",
    "pending": "pending",
    "idle": "idle",
    "other": "unexplained",
}
_ROLES: Final[Mapping[str, Role]] = {
    "productive": "productive",
    "lost": "lost",
    "startup": "startup",
    "checkpoint": "checkpoint",
    "evaluation": "evaluation",
    "tail": "tail",
    "pending": "pending",
    "idle": "idle",
    "other": "other",
}
_CLASSES: Final[tuple[tuple[Role, str, frozenset[str]], ...]] = (
    ("cause_gpu", "GPU", frozenset({
        "gpu", "gpu_hbm", "gpu_sram", "gpu_system_processor", "gpu_thermal", "silent_data_corruption",
    })),
    ("cause_network", "network", frozenset({"nic", "network", "nccl_watchdog"})),
    ("cause_host", "host", frozenset({
        "host_maintenance", "ssd", "power_supply", "chassis", "io_board", "cpu", "system_memory", "preempted",
    })),
    ("cause_storage", "storage", frozenset({"storage"})),
    ("cause_software", "software", frozenset({"software", "dependency", "out_of_memory", "divergence"})),
    ("cause_planned", "planned stop", frozenset()),
    ("cause_unknown", "cause unknown", frozenset()),
)  # fmt: skip
_ROWS: Final = 10
_TOO_THIN: Final = 0.0005
_ROW_US: Final = (6 * _HOUR_US, DAY_US, 7 * DAY_US, 28 * DAY_US, 364 * DAY_US)


# -- where the time went ----------------------------------------------------------------------------


def waterfall_figure(daily: Daily) -> Figure | None:
    """Return the way from allocated to productive GPU-hours, of the last day and of the whole run."""
    whole = daily.snapshot.gpu_us
    if whole is None or not whole["allocated"]:
        return None
    day = daily.day.gpu_us if daily.day is not None and daily.day.gpu_us["allocated"] > 0 else None
    sides = [("Whole run", whole)] if day is None else [("Last day", day), ("Whole run", whole)]
    lost = [name for name in BUCKETS if name != "productive" and any(gpu_us[name] for _, gpu_us in sides)]
    spent = [name for name in lost if any(abs(g[name]) >= _TOO_THIN * g["allocated"] for _, g in sides)]
    panels = tuple(
        _waterfall(title, gpu_us, spent, named=number == 0) for number, (title, gpu_us) in enumerate(sides)
    )
    told = "; ".join(
        f"{title.lower()}: {hours(gpu_us['allocated'] / 3.6e9)} GPU-hours allocated, of them "
        + ", ".join(
            f"{hours(gpu_us[name] / 3.6e9)} {BUCKET_WORDS[name]}"
            for name in ("productive", *lost)
            if gpu_us[name]
        )
        for title, gpu_us in sides
    )
    return Figure(
        name="waterfall",
        alt=told[:1].upper() + told[1:] + ".",
        caption="From allocated to productive GPU-hours. "
        + (
            "All parts sum to the allocation exactly."
            if len(spent) == len(lost)
            else "Parts too thin to draw are in the table."
        ),
        drawing=Drawing(panels=panels, beside=len(panels) > 1, height_ratio=0.028 * (len(spent) + 3)),
    )


def _waterfall(title: str, gpu_us: Mapping[str, int], spent: Sequence[str], *, named: bool) -> Panel:
    whole = gpu_us["allocated"]
    left = whole
    rows: list[tuple[str, float, float, Role, int]] = [("allocated", 0.0, float(whole), "muted", whole)]
    for name in spent:
        after = left - gpu_us[name]
        rows.append((
            BUCKET_WORDS[name],
            float(min(left, after)),
            float(max(left, after)),
            _ROLES[name],
            gpu_us[name],
        ))
        left = after
    kept = gpu_us["productive"]
    rows.append(("productive", float(min(0, kept)), float(max(0, kept)), "productive", kept))
    low = min(0.0, *(r[1] for r in rows))
    high = max(float(whole), *(r[2] for r in rows))
    return Panel(
        x=Axis(low=low, high=high * 1.3),
        y=Axis(
            low=-0.6,
            high=len(rows) - 0.4,
            flipped=True,
            ticks=tuple(Tick(at=float(n), text=row[0] if named else "") for n, row in enumerate(rows)),
        ),
        title=title,
        bars=tuple(
            Bar(
                x0=x0,
                x1=x1,
                y0=n - 0.36,
                y1=n + 0.36,
                role=role,
                label=_amount(value, whole, share=n > 0),
                outline=n == 0,
            )
            for n, (_, x0, x1, role, value) in enumerate(rows)
        ),
        grid="none",
    )


def _amount(gpu_us: int, whole: int, *, share: bool) -> str:
    amount = minus(hours(gpu_us / 3.6e9))
    return f"{amount} · {share_of(gpu_us, whole)}" if share else amount


# -- attempts ---------------------------------------------------------------------------------------


def attempts_figure(daily: Daily, when: Dates) -> Figure | None:
    """Return the attempts as a time line in rows of a day, a week or more, their ends by cause."""
    s = daily.snapshot
    pieces = strip(s)
    if not pieces or pieces[-1].end_us - pieces[0].start_us < 60_000_000:
        return None
    start, row_us, rows = _rows(pieces[0].start_us, max(p.end_us for p in pieces), when)
    bars: list[Bar] = []
    for piece in pieces:
        first, last = (piece.start_us - start) // row_us, (piece.end_us - 1 - start) // row_us
        for n in range(max(0, first), min(rows - 1, last) + 1):
            begun = start + n * row_us
            x0, x1 = max(piece.start_us - begun, 0), min(piece.end_us - begun, row_us)
            bars.append(_piece(x0, x1, n, piece.what, piece.attempt))
    marks, used = [], set()
    hinted = len(s.interruptions) <= MOST_HINTS
    for stop in s.interruptions:
        role, _ = cause_class(stop.kind, stop.cause)
        used.add(role)
        n = min(rows - 1, (stop.at_us - start) // row_us)
        marks.append(
            Mark(
                x=float(stop.at_us - start - n * row_us),
                y=float(n),
                role=role,
                shape="tick",
                hint=f"{when.time(stop.at_us)}: {cause(stop.cause)}" if hinted else "",
            )
        )
    whats = {piece.what for piece in pieces}
    keys = [Key(role=_ROLES[what], text=BUCKET_WORDS[what]) for what in BUCKETS if what in whats]
    keys += [Key(role=role, text=text) for role, text, _ in _CLASSES if role in used]
    return Figure(
        name="attempts",
        alt=_attempts_said(s, when),
        caption=f"Each row is {_row_said(row_us)}; a stroke is an interruption, in the colour of its cause.",
        drawing=Drawing(
            panels=(
                Panel(
                    x=_within(row_us, start, when),
                    y=Axis(
                        low=-0.6,
                        high=rows - 0.4,
                        flipped=True,
                        ticks=tuple(
                            Tick(at=float(n), text=_row_name(start + n * row_us, row_us, when))
                            for n in range(rows)
                        ),
                    ),
                    bars=tuple(bars),
                    marks=tuple(marks),
                    grid="x",
                ),
            ),
            height_ratio=0.06 + 0.032 * max(rows, 2),
            keys=tuple(keys),
        ),
    )


def _piece(x0: int, x1: int, row: int, what: str, attempt: int) -> Bar:
    tall = 0.34 if what in ("productive", "lost") else 0.2
    hint = f"attempt {attempt}: {BUCKET_WORDS[what]}"
    return Bar(float(x0), float(x1), row - tall, row + tall, _ROLES[what], "", hint)


def cause_class(kind: str, name: str) -> tuple[Role, str]:
    """Return the colour and the name of a cause's group."""
    if kind == "planned":
        return "cause_planned", "planned stop"
    found = next((row for row in _CLASSES if name in row[2]), _CLASSES[-1])
    return found[0], found[1]


def _rows(first_us: int, last_us: int, when: Dates) -> tuple[int, int, int]:
    """Return where the first row begins, how long a row is, and how many there are."""
    span = last_us - first_us
    if span <= 12 * _HOUR_US:
        return first_us, span, 1
    for row_us in _ROW_US:
        start = _row_start(first_us, row_us, when)
        rows = -(-(last_us - start) // row_us)
        if rows <= _ROWS:
            return start, row_us, rows
    row_us = -(-span // _ROWS)
    return first_us, row_us, _ROWS


def _row_start(at_us: int, row_us: int, when: Dates) -> int:
    local = when.at(at_us)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    if row_us < DAY_US:
        midnight = midnight.replace(hour=local.hour // 6 * 6)
    elif row_us > DAY_US:
        midnight -= dt.timedelta(days=local.weekday())
    return round((midnight - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) / dt.timedelta(microseconds=1))


def _within(row_us: int, start: int, when: Dates) -> Axis:
    if row_us == DAY_US:
        ticks = [Tick(at=float(h * _HOUR_US), text=f"{h:02d}:00") for h in range(0, 25, 4)]
    elif row_us == 7 * DAY_US:
        names = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
        ticks = [Tick(at=float(n * DAY_US), text=name) for n, name in enumerate(names)]
    elif row_us == 6 * _HOUR_US:
        ticks = [Tick(at=float(h * _HOUR_US), text=f"+{h} h") for h in range(7)]
    elif row_us < DAY_US:
        found = time_axis(float(start), float(start + row_us), when, most=8).ticks
        ticks = [Tick(at=tick.at - start, text=tick.text) for tick in found]
    else:
        step = max(1, row_us // DAY_US // 7)
        ticks = [Tick(at=float(n * step * DAY_US), text=f"day {n * step + 1}") for n in range(7)]
    return Axis(low=0.0, high=float(row_us), ticks=tuple(ticks))


def _row_name(at_us: int, row_us: int, when: Dates) -> str:
    if row_us < DAY_US and row_us != 6 * _HOUR_US:
        return ""
    return when.time(at_us) if row_us < DAY_US else when.short_day(at_us)


def _row_said(row_us: int) -> str:
    said = {6 * _HOUR_US: "six hours", DAY_US: "a day", 7 * DAY_US: "a week", 28 * DAY_US: "four weeks"}
    return said.get(row_us, "the whole run" if row_us <= 12 * _HOUR_US else f"{row_us // DAY_US} days")


def _attempts_said(s: Snapshot, when: Dates) -> str:
    count = len(s.attempts)
    text = f"{count} attempt{'s' if count != 1 else ''} since {when.time(s.attempts[0].start_us)}"
    by: dict[str, int] = {}
    for stop in s.interruptions:
        name = cause_class(stop.kind, stop.cause)[1]
        by[name] = by.get(name, 0) + 1
    if by:
        told = ", ".join(
            f"{n} {name}" for name, n in sorted(by.items(), key=lambda item: (-item[1], item[0]))
        )
        text += f"; {len(s.interruptions)} interruption{'s' if len(s.interruptions) != 1 else ''}: {told}"
    return text + "."
