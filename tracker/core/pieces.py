"""Which stretches of which files are training, when each began, and which allocation it ran on.

Pure. A piece is one segment of one file. Its place in time is its first stamp; without any clock it is
the scheduler's, else `started_at` of its source, else the file's own time (an estimate, and marked so).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tracker.core.facts import Stream
from tracker.core.records import Json, SchedulerRow
from tracker.core.segments import Segment
from tracker.core.settings import Settings

SLACK_US: Final = 120 * 1_000_000
"""Clocks of a log and of its scheduler may differ by this much and still be the same moment."""
_WRITTEN_SLACK_US: Final = 600 * 1_000_000
_JOB_IN_NAME: Final = re.compile(r"\d+(?:_\d+)?")


@dataclass(slots=True, kw_only=True)
class Piece:
    """One segment of one file, placed in time."""

    stream: Stream
    segment: Segment
    end_offset: int | None
    """First offset that is no longer its own; None: the file's end."""
    at_us: int
    """When it began, as well as it is known."""
    time_from: str
    """"log", "scheduler", "config" or "file"."""
    row: SchedulerRow | None = None
    settings: dict[str, Json] = field(default_factory=dict)
    """What its file has said so far: a process that prints no banner keeps its forerunner's."""

    @property
    def has_clock(self) -> bool:
        """Tell whether any of its lines had a stamp."""
        return self.segment.start_at_us is not None

    @property
    def seen_us(self) -> int:
        """Return its last stamp, or what the printed step times make of it."""
        segment = self.segment
        seen = segment.seen_at_us
        if segment.last is not None and segment.last[1] is None:  # steps after the last stamp
            begun = segment.train_start_us or segment.start_at_us or self.at_us
            return max(seen or 0, begun + segment.work_us)
        return seen if seen is not None else self.at_us

    @property
    def key(self) -> tuple[int, str, int]:
        """Return what orders pieces: by time, then by content; never by arrival."""
        return self.at_us, self.stream.identity, self.segment.ordinal


@dataclass(slots=True)
class Sorted:
    """All segments, told apart."""

    training: list[Piece] = field(default_factory=list)
    evidence: list[Piece] = field(default_factory=list)
    """Files that speak of a job without being its training log (kernel messages, a launcher)."""
    warnings: list[str] = field(default_factory=list)


WorkBefore = Callable[[Stream, int], int]
"""(stream, offset) -> printed step times added up over the readings before that offset."""


def is_training(segment: Segment) -> bool:
    """Tell whether a segment is a process that trained or meant to."""
    return (
        segment.readings > 0 or segment.begun_by in ("launch", "restart") or segment.resume_step is not None
    )


def sort_pieces(
    streams: Iterable[Stream], rows: Sequence[SchedulerRow], settings: Settings, work_before: WorkBefore
) -> Sorted:
    """Return the pieces of all streams in time order, each with its scheduler row where one fits."""
    found = Sorted()
    by_id: dict[str, list[SchedulerRow]] = {}
    for known in rows:
        by_id.setdefault(known.job_id, []).append(known)
        array, task = known.data.get("array_job_id"), known.data.get("array_task_id")
        if array is not None and task is not None:
            by_id.setdefault(f"{array}_{task}", []).append(known)
    for stream in sorted(streams, key=lambda s: (s.identity, s.file_name)):
        clock_us: int | None = None
        said: dict[str, Json] = {}
        for index, segment in enumerate(stream.segments):
            kept = {k: v for k, v in said.items() if k != "job_id"} if segment.begun_by == "launch" else said
            said = {**kept, **segment.settings}
            after = stream.segments[index + 1 : index + 2]
            end_offset = after[0].first_offset if after else None
            row = _row_by_id(stream, segment, said.get("job_id"), by_id, found.warnings)
            at_us, time_from = _when(stream, segment, row, clock_us, settings, work_before)
            piece = Piece(
                stream=stream,
                segment=segment,
                end_offset=end_offset,
                at_us=at_us,
                time_from=time_from,
                row=row,
                settings=said,
            )
            clock_us = max(piece.seen_us, at_us)
            (found.training if is_training(segment) else found.evidence).append(piece)
    found.training.sort(key=lambda p: p.key)
    found.evidence.sort(key=lambda p: p.key)
    _rows_by_time(found, rows, settings)
    return found


def _row_by_id(
    stream: Stream,
    segment: Segment,
    stated: Json,
    by_id: dict[str, list[SchedulerRow]],
    warnings: list[str],
) -> SchedulerRow | None:
    """Return the row of the job id that the log states or its name holds, if the log lies inside it.

    A requeued job keeps its id: a row that the log's first line lies outside of is of another launch.
    """
    ids = [str(stated)] if stated is not None else []
    outside = None
    for job_id in ids + _JOB_IN_NAME.findall(stream.file_name):
        rows = by_id.get(job_id)
        if not rows:
            continue
        at_us = segment.start_at_us
        if at_us is None:
            written = [row for row in rows if _within(stream.written_us, row)]
            written = [row for row in written if _within(stream.written_us, row, 0)] or written
            if len(stream.segments) == 1 and written:
                return written[0]
            return rows[min(segment.ordinal, len(rows) - 1)]
        fitting = [row for row in rows if _within(at_us, row)]
        if fitting:
            return ([row for row in fitting if _within(at_us, row, 0)] or fitting)[-1]
        outside = outside or job_id
    if outside is not None:
        warnings.append(
            f"a log of job {outside} begins outside every allocation that the scheduler tells of that job: "
            f"its own times are used. A requeued job has a row for each launch only with sacct --duplicates; "
            f"or the zone of the log or of the scheduler is another"
        )
    return None


def _within(at_us: int, row: SchedulerRow, slack_us: int = SLACK_US) -> bool:
    return row.start_us - slack_us <= at_us and (row.end_us is None or at_us <= row.end_us + slack_us)


def _when(
    stream: Stream,
    segment: Segment,
    row: SchedulerRow | None,
    clock_us: int | None,
    settings: Settings,
    work_before: WorkBefore,
) -> tuple[int, str]:
    if segment.start_at_us is not None:
        return segment.start_at_us, "log"
    if row is not None:
        before = clock_us if clock_us is not None and _within(clock_us, row) else row.start_us
        return max(row.start_us, before), "scheduler"
    if clock_us is not None:
        return clock_us, "file"
    if stream.source < len(settings.sources):
        started = settings.sources[stream.source].started_at_us
        if started is not None:
            return started, "config"
    return stream.written_us - work_before(stream, stream.first_size), "file"


def _rows_by_time(found: Sorted, rows: Sequence[SchedulerRow], settings: Settings) -> None:
    """Give pieces without a job id the row in whose time they lie."""
    names = {source.job_name for source in settings.sources if source.job_name}
    names |= {piece.row.name for piece in found.training if piece.row is not None and piece.row.name}
    usable = [row for row in rows if not names or row.name in names]
    taken = {(piece.row.job_id, piece.row.start_us) for piece in found.training if piece.row is not None}
    for piece in found.training:
        if piece.row is not None or not usable:
            continue
        if piece.has_clock:
            fitting = [row for row in usable if _within(piece.at_us, row)]
        else:
            written = piece.stream.written_us
            fitting = [row for row in usable if _within(written, row, _WRITTEN_SLACK_US)]
            fitting = [row for row in fitting if (row.job_id, row.start_us) not in taken] or fitting
        if not fitting:
            continue
        exact = [row for row in fitting if _within(piece.at_us, row, 0)] if piece.has_clock else []
        best = (exact or fitting)[-1]
        if len({r.name for r in fitting}) > 1:
            found.warnings.append(
                f"job {best.job_id} was taken for a log without a job id, though {len(fitting)} jobs ran at "
                f"that time: set job_name of the scheduler's [[source]]"
            )
        piece.row = best
        taken.add((best.job_id, best.start_us))
        if not piece.has_clock:
            piece.at_us, piece.time_from = best.start_us, "scheduler"
    found.training.sort(key=lambda p: p.key)
