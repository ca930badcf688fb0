"""When the run became slower or faster, by how much, what it has cost since, and what it may come from.

Pure, given its Facts. Step times are watched in cells of five minutes (core/cells.py) by a robust CUSUM
(core/cusum.py), each operating point by itself: another GPU count, sequence length, batch or layout is
named as what it is, and never compared with the one before. A cell counts once its five minutes are over,
so what was named stays named. How often it is wrong, and how soon it is right: docs/changes.md.

    cost of a slower pace = GPU time of the steps since x (1 - old pace / pace held), until the pace is back
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final, Literal

from tracker.core.book import Opened
from tracker.core.cells import CELL_US, Cell, cells
from tracker.core.cusum import Cusum
from tracker.core.facts import Facts
from tracker.core.metrics import mfu
from tracker.core.records import Event, Kind
from tracker.core.snapshot import Snapshot

Sort = Literal["slower", "faster", "operating_point"]

_SAME_BATCH: Final = 0.1
"""A batch within this share of the point's own is the same point (packed sequences vary)."""
_BACK: Final = 0.25
"""A pace within this part of a shift from where it was is back."""
_NEAR_US: Final = 600 * 1_000_000
_CLEAN: Final = 12
_RECENT: Final = 24
_LASTING: Final = 12
"""Cells that a pace must have held to be the one the run is measured by."""
_MOST_SIGNS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of pace, or of the operating point."""

    sort: Sort
    at_us: int
    """Best estimate of when."""
    earliest_us: int
    latest_us: int
    """It lies between these two."""
    seen_us: int
    """End of the reading that made it plain."""
    attempt: int
    """The attempt that trained after it."""
    step_time_before_s: float
    step_time_after_s: float
    """Median of the cells until its end or the next change."""
    ratio: float
    """Time for the same work after / before; of an operating point: time of a step after / before."""
    mfu_before_ratio: float | None
    mfu_after_ratio: float | None
    ended_us: int | None = None
    """When the pace was back, or the operating point became another; None while it lasts."""
    gpu_hours: float | None = None
    """What it has cost so far, training GPUs; negative where it saved. None for an operating point."""
    what: tuple[str, ...] = ()
    """Of an operating point: what became what."""
    evidence: tuple[str, ...] = ()
    """What the logs say of that moment: facts, no verdict."""
    hint: str = ""
    """What such a change usually comes from, hedged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes in order of time, and what they come to now."""

    changes: tuple[Change, ...] = ()
    pace_ratio: float | None = None
    """Time for the same work now / at the best pace this operating point held for an hour; 1 at best."""
    slower_open: int = 0
    """Slow-downs that last."""
    gpu_hours: float = 0.0
    """What all slow-downs have cost so far, training GPUs."""
    last_at_us: int | None = None
    """Of the last slower or faster."""


@dataclass(slots=True)
class _Regime:
    """A stretch of one operating point at one pace; `values` are logarithms of time for the same work."""

    begun: int
    cells: list[Cell] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    change: Change | None = None
    before: float = 0.0
    """Level that the shift which began it came from."""

    @property
    def level(self) -> float:
        return median(self.values)


@dataclass(slots=True)
class _Track:
    """One operating point: its watch and its regimes. `batch` is what its first cell had."""

    batch: int | None
    watch: Cusum = field(default_factory=Cusum)
    cells: list[Cell] = field(default_factory=list)
    regimes: list[_Regime] = field(default_factory=list)
    recent: list[bool] = field(default_factory=list)

    def usable(self, cell: Cell) -> bool:
        """Whether a cell's step times are of steps alone; where hardly any is, all are taken."""
        self.recent.append(cell.blurred)
        del self.recent[:-_RECENT]
        return not cell.blurred or self.recent.count(False) < min(_CLEAN, len(self.recent) // 2)


def changes(opened: Opened, facts: Facts, snapshot: Snapshot) -> Changes:
    """Return the changes of the run as of the snapshot's moment."""
    return changes_of(cells(opened, facts, snapshot), opened, facts, snapshot)


def changes_of(fine: Sequence[Cell], opened: Opened, facts: Facts, snapshot: Snapshot) -> Changes:
    """Return the changes that cells of `CELL_US` show."""
    peak = snapshot.mfu.peak_flop_per_s
    found, tracks, now = _follow(fine, opened.as_of_us, peak)
    paces = [change for track in tracks for change in _priced(track, peak)]
    paces = [replace(change, evidence=_evidence(change, opened, facts)) for change in paces]
    paces = [replace(change, hint=_hint(change)) for change in paces]
    listed = sorted([*found, *paces], key=lambda change: (change.at_us, change.sort))
    return Changes(
        changes=tuple(listed),
        pace_ratio=None if now is None else _pace(now),
        slower_open=sum(1 for c in paces if c.sort == "slower" and c.ended_us is None),
        gpu_hours=math.fsum(c.gpu_hours or 0.0 for c in paces if c.sort == "slower"),
        last_at_us=max((c.at_us for c in paces), default=None),
    )


def _value(cell: Cell) -> float | None:
    """Return the logarithm of the time for the same work: of a step, by its batch where that is known."""
    if cell.step_time_us is None or cell.step_time_us <= 0:
        return None
    return math.log(cell.step_time_us / (cell.batch or 1))


def _follow(
    fine: Sequence[Cell], as_of_us: int, peak: float | None
) -> tuple[list[Change], list[_Track], _Track | None]:
    """Go through the cells in time; return changes of the operating point, and what each point held."""
    points: dict[object, list[_Track]] = {}
    order: list[_Track] = []
    found: list[Change] = []
    last: tuple[_Track, Cell] | None = None
    held = 0
    for cell in fine:
        value = _value(cell)
        if value is None or (cell.until_us // CELL_US + 1) * CELL_US > as_of_us:
            continue
        track = _track(points, order, cell)
        if last is not None and last[0] is not track:
            ramp = held < _CLEAN and bool(found) and _batch_only(found[-1])
            one = _point_change(last[1], cell, peak)
            if ramp and _batch_only(one):
                one = _joined(found.pop(), one)
            found.append(one)
            held = 0
        last, held = (track, cell), held + 1
        if not cell.first and track.usable(cell):
            _watch(track, cell, value)
    return found, order, None if last is None else last[0]


def _track(points: dict[object, list[_Track]], order: list[_Track], cell: Cell) -> _Track:
    """Return the operating point of a cell; a batch near one that was seen is that one."""
    tracks = points.setdefault((cell.world, tuple(sorted(cell.point.items()))), [])
    for track in reversed(tracks):
        if track.batch == cell.batch or (
            track.batch and cell.batch and abs(cell.batch - track.batch) <= _SAME_BATCH * track.batch
        ):
            return track
    tracks.append(_Track(batch=cell.batch))
    order.append(tracks[-1])
    return tracks[-1]


def _watch(track: _Track, cell: Cell, value: float) -> None:
    """Give a cell to its point's watch, and cut the regime where that names a shift."""
    track.cells.append(cell)
    if not track.regimes:
        track.regimes.append(_Regime(begun=0))
    track.regimes[-1].cells.append(cell)
    track.regimes[-1].values.append(value)
    shift = track.watch.feed(value, (cell.step_time_us or 0.0) * cell.steps / CELL_US)
    if shift is None:
        return
    regime = track.regimes[-1]
    cut = max(1, shift.at - regime.begun)
    after = _Regime(
        begun=regime.begun + cut,
        cells=regime.cells[cut:],
        values=regime.values[cut:],
        before=median(regime.values[:cut]),
    )
    del regime.cells[cut:], regime.values[cut:]
    earliest = track.cells[max(0, shift.first - 1)]
    latest = track.cells[min(shift.last, len(track.cells) - 1)]
    first = track.cells[after.begun]
    after.change = Change(
        sort="slower" if shift.after > shift.before else "faster",
        at_us=first.from_us,
        earliest_us=min(earliest.from_us, first.from_us),
        latest_us=max(latest.until_us, first.from_us),
        seen_us=cell.until_us,
        attempt=first.attempt,
        step_time_before_s=0.0,
        step_time_after_s=0.0,
        ratio=1.0,
        mfu_before_ratio=None,
        mfu_after_ratio=None,
    )
    track.regimes.append(after)


def _priced(track: _Track, peak: float | None) -> Iterator[Change]:
    """Yield the changes of pace of one point, each with its levels, its end and its cost."""
    for index, regime in enumerate(track.regimes):
        change = regime.change
        if change is None:
            continue
        before, after = regime.before, regime.level
        far = after - before
        ended: int | None = None
        cost_us: float | None = 0.0
        for later in track.regimes[index:]:
            held = later.level
            if (held - before) / far <= _BACK if far else True:
                ended = later.cells[0].from_us
                break
            part = min(held, after) if far > 0 else max(held, after)
            for cell in later.cells:
                if cost_us is None or cell.world is None:
                    cost_us = None
                    break
                cost_us += cell.work_us * cell.world * (1 - math.exp(before - part))
        earlier = track.regimes[index - 1]
        yield replace(
            change,
            step_time_before_s=_step_time(earlier.cells),
            step_time_after_s=_step_time(regime.cells),
            ratio=math.exp(far),
            mfu_before_ratio=_mfu(earlier.cells, peak),
            mfu_after_ratio=_mfu(regime.cells, peak),
            ended_us=ended,
            gpu_hours=None if cost_us is None else cost_us / 3.6e9,
        )


def _pace(track: _Track) -> float | None:
    """Return the pace now over the best that lasted, as time for the same work."""
    lasting = [r.level for r in track.regimes if len(r.values) >= _LASTING]
    return math.exp(max(0.0, track.regimes[-1].level - min(lasting))) if lasting else None


def _step_time(held: Sequence[Cell]) -> float:
    return median(cell.step_time_us or 0.0 for cell in held) / 1e6


def _mfu(held: Sequence[Cell], peak: float | None) -> float | None:
    """Return MFU at the median step time of some cells of one operating point."""
    told = [
        cell.tokens * cell.flop_per_token / cell.steps / cell.world
        for cell in held
        if cell.tokens is not None and cell.flop_per_token is not None and cell.world and cell.steps
    ]
    step_s = _step_time(held)
    if peak is None or len(told) < len(held) or not step_s:
        return None
    return mfu(flop=median(told), gpu_us=round(step_s * 1e6), peak_flop_per_s=peak)


# -- operating points ---------------------------------------------------------------------------------


def _parts(cell: Cell) -> dict[str, str]:
    parts = dict(cell.point)
    if cell.world is not None:
        parts["gpus"] = str(cell.world)
    if cell.batch is not None:
        parts["batch"] = str(cell.batch)
    return parts


def _point_change(before: Cell, after: Cell, peak: float | None) -> Change:
    one, other = _parts(before), _parts(after)
    names = [name for name in dict.fromkeys([*one, *other]) if one.get(name) != other.get(name)]
    what = tuple(f"{name} {one.get(name, 'not stated')} -> {other.get(name, 'not stated')}" for name in names)
    return Change(
        sort="operating_point",
        at_us=after.from_us,
        earliest_us=before.from_us,
        latest_us=after.until_us,
        seen_us=after.until_us,
        attempt=after.attempt,
        step_time_before_s=_step_time([before]),
        step_time_after_s=_step_time([after]),
        ratio=(after.step_time_us or 0.0) / (before.step_time_us or 1.0),
        mfu_before_ratio=_mfu([before], peak),
        mfu_after_ratio=_mfu([after], peak),
        what=what,
        hint="Another operating point: its pace is not compared with the one before.",
    )


def _batch_only(change: Change) -> bool:
    return len(change.what) == 1 and change.what[0].startswith("batch ")


def _joined(one: Change, other: Change) -> Change:
    """Return two steps of a ramp as one change."""
    begun, ended = one.what[0].split(" -> ")[0], other.what[0].split(" -> ")[-1]
    return replace(
        other,
        at_us=one.at_us,
        earliest_us=one.earliest_us,
        step_time_before_s=one.step_time_before_s,
        ratio=other.step_time_after_s / one.step_time_before_s if one.step_time_before_s else 1.0,
        mfu_before_ratio=one.mfu_before_ratio,
        what=(f"{begun} -> {ended}",),
        hint="A ramp of the batch: its paces are not compared with each other.",
    )


# -- evidence -----------------------------------------------------------------------------------------


def _evidence(change: Change, opened: Opened, facts: Facts) -> tuple[str, ...]:
    """Return what the logs say of the time around a change."""
    low, high = change.earliest_us - _NEAR_US, change.latest_us + _NEAR_US
    said = []
    begun = opened.entries[change.attempt - 1].closed.first_us
    if change.attempt > 1 and begun is not None and low <= begun <= high:
        said.append(f"attempt {change.attempt} began there: it may run on other nodes")
    causes: dict[str, int] = {}
    for event in _signs(change, opened, facts):
        if event.at_us is not None and low <= event.at_us <= high:
            cause = event.data.get("cause")
            name = cause if isinstance(cause, str) and cause else "unknown"
            causes[name] = causes.get(name, 0) + 1
    for name, count in sorted(causes.items())[:_MOST_SIGNS]:
        said.append(f"log lines that tell of {name} within ten minutes of it: {count}")
    if not said:
        said.append("no restart and no sign of trouble within ten minutes of it")
    return tuple(said)


def _signs(change: Change, opened: Opened, facts: Facts) -> Iterator[Event]:
    entry = opened.entries[change.attempt - 1]
    for piece in [*entry.attempt.pieces, *entry.attempt.extra, *opened.evidence]:
        seen = piece.segment.seen_at_us
        if seen is not None and seen < change.earliest_us - _NEAR_US:
            continue
        found = facts.events(piece.stream.stream_id, start=piece.segment.first_offset, end=piece.end_offset)
        for event in found:
            if event.kind is Kind.FAILURE and (event.at_us or 0) <= opened.as_of_us:
                yield event


_HINTS: Final[Mapping[str, str]] = {
    "slower": "A slow node or a degraded link is the usual cause: compare the ranks' step times, GPU clocks "
    "and temperatures, and link errors of that moment.",
    "slower restart": "A slow node among those of the new launch is the usual cause, else a changed setting "
    "that the log does not state: compare the node list and the ranks' step times with the attempt before.",
    "slower signs": "The lines above may tell the cause; a slow node or a degraded link is the usual one.",
    "faster": "A slow node or link may have recovered, or other load may have gone.",
    "faster restart": "The new launch may have left a slow node behind, or runs with another setting.",
    "faster signs": "The lines above may tell the cause.",
}


def _hint(change: Change) -> str:
    """Return the usual cause of such a change, said with care."""
    first = change.evidence[0] if change.evidence else ""
    rest = " restart" if first.startswith("attempt ") else " signs" if first.startswith("log lines") else ""
    return _HINTS[f"{change.sort}{rest}"]
