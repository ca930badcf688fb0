"""Pieces joined into attempts: one launch of the job each, with the start and end of its allocation.

Pure. Several files of one launch (a log that was rotated, a log of every node) become one attempt;
several launches inside one allocation become several, with no time between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from tracker.core.pieces import Piece, Sorted
from tracker.core.records import Json, Reading, SchedulerRow
from tracker.core.settings import Settings

_CONTINUES_US: Final = 120 * 1_000_000
_LOOK_BACK: Final = 4
ENDED_STATES: Final = frozenset(
    {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY",
     "BOOT_FAIL", "DEADLINE", "REQUEUED", "REVOKED", "LAUNCH_FAILED"}
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One launch of the job. Moments are UTC microseconds."""

    pieces: list[Piece]
    """Its log, file after file; empty where only the scheduler knows of it."""
    extra: list[Piece] = field(default_factory=list)
    """Files that tell the same again (other nodes): evidence, not counted twice."""
    row: SchedulerRow | None = None
    start_us: int = 0
    start_from: str = "log"
    """"scheduler", "log", "config" or "file"."""
    end_us: int | None = None
    """None while it runs."""
    end_from: str = "log"
    settings: dict[str, Json] = field(default_factory=dict)
    gpus: int | None = None
    """GPUs that are billed: the scheduler's word, else the log's, else the config's."""
    world: int | None = None
    """GPUs that train."""
    resume_step: int | None = None
    resume_from: str = ""
    """How R is known: "log", "checkpoint", "interval", "fresh", "lineage" (what was stated cannot be)."""
    parent: int | None = None
    """Index of the attempt whose step R it went on from."""
    cut: int | None = None
    """Its steps up to here are in the lineage; None: all of them."""
    retained: bool = False
    """Whether it is on the lineage's path."""
    last_step: int | None = None
    """Highest step it is known to have executed."""

    @property
    def running(self) -> bool:
        """Tell whether it has no end yet."""
        return self.end_us is None

    @property
    def first(self) -> Reading | None:
        """Return its first reading."""
        return next((p.segment.first_reading for p in self.pieces if p.segment.first is not None), None)

    @property
    def last(self) -> Reading | None:
        """Return its last reading."""
        for piece in reversed(self.pieces):
            if piece.segment.last is not None:
                return piece.segment.last_reading
        return None

    @property
    def seen_us(self) -> int | None:
        """Return the moment of its last stamped line."""
        return max((piece.seen_us for piece in self.pieces), default=None)

    @property
    def ended(self) -> bool:
        """Tell whether any account of it says that the process ended, or could not go on."""
        told = [self.pieces[-1], *self.extra] if self.pieces else self.extra
        return any(piece.segment.end_kind is not None or piece.segment.fatal for piece in told)

    @property
    def estimated(self) -> bool:
        """Tell whether its times are an estimate (a log without a clock)."""
        return any(not piece.has_clock for piece in self.pieces)

    @property
    def job_id(self) -> str | None:
        """Return the scheduler's id of its job, else the log's."""
        if self.row is not None:
            return self.row.job_id
        stated = self.settings.get("job_id")
        return None if stated is None else str(stated)

    @property
    def completed(self) -> bool:
        """Tell whether its log says that training was done."""
        return any(p.segment.completed for p in [*self.pieces, *self.extra])


def join(found: Sorted, rows: Sequence[SchedulerRow], settings: Settings) -> tuple[list[Attempt], list[str]]:
    """Return the attempts in time order, and the ids of scheduler rows that match nothing."""
    attempts: list[Attempt] = []
    for piece in found.training:
        for attempt in reversed(attempts[-_LOOK_BACK:]):
            if _same_again(attempt, piece):
                _add_extra(attempt, piece)
                break
            if _continues(attempt, piece):
                attempt.pieces.append(piece)
                attempt.row = attempt.row or piece.row
                break
        else:
            attempts.append(Attempt(pieces=[piece], row=piece.row))
    _attach_rest(found, attempts)
    unmatched = _rows_alone(attempts, rows, settings)
    for attempt in attempts:
        for piece in [*attempt.extra, *attempt.pieces]:
            attempt.settings.update(piece.settings)
    attempts.sort(key=_order)
    _span(attempts)
    attempts.sort(key=lambda a: (a.start_us, *_order(a)[1:]))
    return attempts, unmatched


def _order(attempt: Attempt) -> tuple[int, str, int]:
    if attempt.pieces:
        return attempt.pieces[0].key
    assert attempt.row is not None
    return attempt.row.start_us, attempt.row.job_id, 0


def _same_again(attempt: Attempt, piece: Piece) -> bool:
    """Tell whether a piece is another file's account of the same launch."""
    first, last, new = attempt.first, attempt.last, piece.segment.first_reading
    if any(p.stream.stream_id == piece.stream.stream_id for p in [*attempt.pieces, *attempt.extra]):
        return False
    if first is None or last is None:
        return False
    if new is None:
        known = attempt.pieces[0]
        return (
            piece.row is not None
            and piece.row is known.row
            and abs(piece.at_us - known.at_us) <= _CONTINUES_US
        )
    overlap = new.step <= last.step and (piece.segment.last or list(new))[2] >= first.step
    resumed = piece.segment.resume_step
    if not overlap or (resumed is not None and first.step <= resumed < new.step):
        return False  # who went on from a step did not print it: this is another launch, while one still ran
    if new.at_us is None or last.at_us is None or first.at_us is None:
        if attempt.row is not None and attempt.row is piece.row:
            return True
        other = piece.stream.collector != attempt.pieces[0].stream.collector
        return other and piece.row is None and piece.segment.begun_by == "file"
    return first.at_us - _CONTINUES_US <= new.at_us <= last.at_us


def _add_extra(attempt: Attempt, piece: Piece) -> None:
    """Keep the fullest account as the attempt's own, but for one that tells of its start."""
    main = attempt.pieces[0]
    fuller = len(attempt.pieces) == 1 and piece.segment.readings > main.segment.readings
    if fuller and not main.segment.launched and (piece.has_clock or not main.has_clock):
        attempt.pieces, piece = [piece], main
    attempt.extra.append(piece)
    attempt.row = attempt.row or piece.row


def _continues(attempt: Attempt, piece: Piece) -> bool:
    """Tell whether a piece is the next file of the same process (its log was rotated)."""
    before, segment = attempt.pieces[-1], piece.segment
    if (
        segment.ordinal != 0
        or segment.begun_by != "file"
        or segment.resume_step is not None
        or before.stream.stream_id == piece.stream.stream_id
        or before.stream.source != piece.stream.source
        or before.end_offset is not None
        or before.segment.end_kind is not None
        or (piece.row is not None and attempt.row is not None and piece.row is not attempt.row)
    ):
        return False
    last, new = attempt.last, segment.first_reading
    if new is None or before.segment.fatal:
        return False
    if last is None:  # rotated during start-up
        resumed = before.segment.resume_step
        return before.segment.launched and new.step > (resumed or 0) and piece.at_us >= before.seen_us
    if new.step <= last.step:
        return False
    if new.at_us is None or last.at_us is None:
        return attempt.row is not None and attempt.row is piece.row
    work = (new.step_time_us or last.step_time_us or 0) * (new.step - last.step)
    return 0 <= new.at_us - last.at_us <= 2 * work + _CONTINUES_US


def _attach_rest(found: Sorted, attempts: list[Attempt]) -> None:
    """Join what a log said after it was rotated, where that has neither a reading nor a clock."""
    rest = []
    for piece in found.evidence:
        for attempt in reversed(attempts):
            before = attempt.pieces[-1] if attempt.pieces else None
            if (
                before is not None
                and not piece.has_clock
                and piece.segment.ordinal == 0
                and before.stream.stream_id != piece.stream.stream_id
                and before.stream.source == piece.stream.source
                and before.stream.file_name == piece.stream.file_name
                and before.end_offset is None
                and before.segment.end_kind is None
            ):
                piece.at_us = before.seen_us
                attempt.pieces.append(piece)
                break
        else:
            rest.append(piece)
    found.evidence = rest


def begin_at_windows(attempts: list[Attempt]) -> None:
    """Start attempts whose first line is a reading where that reading's steps began.

    The boundary to the attempt before, where no time lies between them, moves with it.
    """
    for before, attempt in zip([None, *attempts], attempts, strict=False):
        first = attempt.first
        if (
            first is None
            or first.at_us is None
            or attempt.start_us != first.at_us
            or not first.step_time_us
            or attempt.start_from != "log"
            or attempt.resume_step is None
        ):
            continue
        start = first.at_us - first.step_time_us * max(0, first.step - attempt.resume_step)
        if before is not None and before.end_us == attempt.start_us:
            last = before.last.at_us if before.last is not None else None
            start = max(start, before.start_us, last if last is not None else start)
            before.end_us = start
        elif attempt.row is not None:
            start = max(start, attempt.row.start_us)
        attempt.start_us = start


def _rows_alone(attempts: list[Attempt], rows: Sequence[SchedulerRow], settings: Settings) -> list[str]:
    """Add attempts that only the scheduler knows; return the ids of rows that are none."""
    names = {source.job_name for source in settings.sources if source.job_name}
    names |= {a.row.name for a in attempts if a.row is not None and a.row.name}
    taken = {(a.row.job_id, a.row.start_us) for a in attempts if a.row is not None}
    unmatched = []
    for row in rows:
        if (row.job_id, row.start_us) in taken:
            continue
        if row.name and row.name in names:
            attempts.append(Attempt(pieces=[], row=row))
        else:
            unmatched.append(row.job_id)
    return unmatched


def _span(attempts: list[Attempt]) -> None:
    """Set start and end of every attempt; they come in time order."""
    for attempt in attempts:
        if attempt.pieces:
            attempt.start_us = attempt.pieces[0].at_us
            attempt.start_from = attempt.pieces[0].time_from
    by_row: dict[tuple[str, int], list[Attempt]] = {}
    for attempt in attempts:
        if attempt.row is not None:
            by_row.setdefault((attempt.row.job_id, attempt.row.start_us), []).append(attempt)
    for group in by_row.values():
        _span_row(group, any(a.start_us > group[-1].start_us and a not in group for a in attempts))
    for index, attempt in enumerate(attempts):
        if attempt.row is None:
            _span_log(attempt, attempts[index + 1 :])


def _told_its_end(attempt: Attempt, later: bool) -> bool:
    """Tell whether a log has ended and others have begun, though the scheduler's row is still open."""
    return later and bool(attempt.pieces) and attempt.ended


def _span_row(group: list[Attempt], later: bool) -> None:
    """Tile one allocation with the launches inside it. `later`: other attempts began after it."""
    row = group[0].row
    assert row is not None
    group[0].start_us, group[0].start_from = row.start_us, "scheduler"
    for before, attempt in pairwise(group):
        begin = attempt.pieces[0].segment.begin_at_us if attempt.pieces else None
        boundary = begin if begin is not None else attempt.start_us
        boundary = max(boundary, before.start_us)
        if row.end_us is not None:
            boundary = min(boundary, max(row.end_us, before.start_us))
        attempt.start_us, before.end_us, before.end_from = boundary, boundary, "log"
    last = group[-1]
    last.end_us, last.end_from = row.end_us, "scheduler"
    if row.end_us is None and (row.state in ENDED_STATES or _told_its_end(last, later)):
        last.end_us, last.end_from = max(last.seen_us or row.start_us, last.start_us), "log"


def _span_log(attempt: Attempt, later: list[Attempt]) -> None:
    """End an attempt that no scheduler row tells of: by its end line, else by the next attempt."""
    piece = attempt.pieces[-1]
    segment = piece.segment
    after = later[0] if later else None
    seen = max(attempt.seen_us or attempt.start_us, attempt.start_us)
    in_place = after is not None and _same_allocation(attempt, after)
    if attempt.ended and not in_place:
        told = [p.segment.end_at_us for p in attempt.extra] + [segment.end_at_us]
        attempt.end_us = max(seen, *(at_us or seen for at_us in told))
    elif after is not None:
        begin = after.pieces[0].segment.begin_at_us if after.pieces else None
        boundary = begin if begin is not None and in_place else after.start_us
        attempt.end_us = max(boundary, attempt.start_us)
        if in_place:
            after.start_us = attempt.end_us
        else:
            attempt.end_us = max(attempt.end_us, seen)


def _same_allocation(attempt: Attempt, after: Attempt) -> bool:
    if not after.pieces:
        return False
    one, two = attempt.pieces[-1], after.pieces[0]
    if one.stream.stream_id == two.stream.stream_id and two.segment.begun_by in ("restart", "step_back"):
        return True
    return attempt.job_id is not None and attempt.job_id == after.job_id
