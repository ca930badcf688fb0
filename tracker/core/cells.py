"""A run's readings summed by time: a million lines as cells of some minutes, weighed as the ledger has it.

Pure, given its Facts. A cell is one stretch of the calendar in one attempt. Its work and tokens are the
attempt's own by the ledger, shared out by what the lines of the cell say; so cells sum to the ledger.
Series for figures and the search for changes both start here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tracker.core.book import Entry, Opened
from tracker.core.facts import Facts
from tracker.core.forecast.blocks import Bucket, Walk, bucketed
from tracker.core.forecast.state import Bucketed
from tracker.core.pieces import Piece
from tracker.core.records import Event, Flag, Json, Kind
from tracker.core.snapshot import Snapshot

MINUTE_US: Final = 60_000_000
CELL_US: Final = 5 * MINUTE_US
_ROUNDING_US: Final = 1_000_000
"""Stamps of whole seconds may make a stretch that much too short."""
_CLOCKLESS_READ: Final = 200_000
"""Lines without a clock that are read one by one; a longer file becomes one cell."""
_STOPS: Final = {
    Kind.SAVE_START: "checkpoint",
    Kind.SAVE_END: "checkpoint",
    Kind.EVAL_START: "evaluation",
    Kind.EVAL_END: "evaluation",
}
_POINT: Final = (
    "sequence_length", "gpu_name", "precision", "tensor_parallel", "pipeline_parallel", "data_parallel",
    "context_parallel", "expert_parallel", "micro_batch_size", "recompute",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one attempt did in one stretch of the calendar."""

    attempt: int
    """Its number: 1, 2, 3 ..."""
    from_us: int
    """End of the cell before, or start of the attempt's first window."""
    until_us: int
    """Stamp of its last reading."""
    readings: int
    """Lines with a step time."""
    steps: int
    net_steps: int
    """Those that are in the model."""
    work_us: float
    """Wall time of its steps, without saves and evaluations."""
    step_time_us: float | None
    """Mean of the printed step times, else time over steps."""
    tokens: float | None
    """Of all its steps."""
    net_tokens: float | None
    flop_per_token: float | None
    gpus: int | None
    """Billed."""
    world: int | None
    """Training."""
    batch: int | None
    """Tokens in a step, else sequences in a step, as the lines have it."""
    checkpoint: bool
    """Whether a save fell into it."""
    evaluation: bool
    first: bool
    """Whether it holds the attempt's first readings: compilation and warm-up are in its step times."""
    blurred: bool
    """Whether its step times may hold the time of saves and evaluations."""
    point: Mapping[str, str] = field(default_factory=dict)
    """The operating point besides batch and GPUs, as far as the log states it."""


def cells(opened: Opened, facts: Facts, snapshot: Snapshot, *, width_us: int = CELL_US) -> list[Cell]:
    """Return the cells of all attempts, in the order of their time."""
    found: list[Cell] = []
    for number, entry in enumerate(opened.entries, 1):
        line = snapshot.attempts[number - 1]
        flop = line.flop / line.tokens_net if line.flop is not None and line.tokens_net else None
        flop = snapshot.mfu.flop_per_token if flop is None else flop
        found += _of_attempt(entry, facts, number, flop, width_us, opened.as_of_us)
    return found


@dataclass(slots=True)
class _Row:
    from_us: int
    until_us: int
    readings: int
    low: int
    high: int
    mean_us: float | None
    tokens: float | None
    batch: int | None
    held: set[str]
    excludes: bool


def _of_attempt(
    entry: Entry, facts: Facts, number: int, flop: float | None, width_us: int, as_of_us: int
) -> Iterator[Cell]:
    attempt, closed, frame = entry.attempt, entry.closed, entry.fold.frame
    if closed.first_us is None or closed.steps_net + closed.steps_lost <= 0:
        return
    rows = list(_rows(entry, facts, width_us, as_of_us))
    work_us = closed.productive_us + closed.lost_us
    shares = [(row.mean_us or 0.0) * (row.high - row.low) for row in rows]
    whole = sum(shares)
    tokens = None if closed.tokens_net is None else closed.tokens_net + (closed.tokens_lost or 0)
    own = [row.tokens if row.tokens is not None else float(row.high - row.low) for row in rows]
    if any(row.tokens is None for row in rows):
        own = [float(row.high - row.low) for row in rows]
    all_own = sum(own)
    said = {name: _word(attempt.settings[name]) for name in _POINT if attempt.settings.get(name) is not None}
    kept_to = closed.step if frame.cut is None else frame.cut
    for index, row in enumerate(rows):
        steps = row.high - row.low
        net_steps = min(max(kept_to - row.low, 0), steps)
        cell_tokens = None if tokens is None or all_own <= 0 else own[index] * tokens / all_own
        yield Cell(
            attempt=number,
            from_us=row.from_us,
            until_us=row.until_us,
            readings=row.readings,
            steps=steps,
            net_steps=net_steps,
            work_us=shares[index] / whole * work_us if whole > 0 else work_us * steps / max(1, all_own),
            step_time_us=row.mean_us,
            tokens=cell_tokens,
            net_tokens=None if cell_tokens is None else cell_tokens * net_steps / steps,
            flop_per_token=flop,
            gpus=attempt.gpus,
            world=attempt.world,
            batch=row.batch,
            checkpoint="checkpoint" in row.held,
            evaluation="evaluation" in row.held,
            first=index == 0,
            blurred=bool(row.held) and not row.excludes,
            point=said,
        )


def _word(value: Json) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _rows(entry: Entry, facts: Facts, width_us: int, as_of_us: int) -> Iterator[_Row]:
    """Yield the attempt's cells as its lines tell them; what only a save tells of comes last."""
    attempt, closed, frame = entry.attempt, entry.closed, entry.fold.frame
    walk, at = Walk.of(frame, closed.step), closed.first_us or frame.start_us
    mean: float | None = None
    per_step: int | None = None
    for piece in attempt.pieces:
        found, events = _read(facts, piece, at, width_us, as_of_us)
        stops = _stopped(events, width_us)
        first = piece.segment.first_reading
        excludes = first is not None and bool(first.flags & Flag.STEP_TIME_EXCLUDES)
        for bucket, low, high, own in walk.over(b for b in found if b.end_us is not None):
            assert bucket.end_us is not None
            end, count = max(bucket.end_us, at), high - low
            timed = bucket.step_time_count
            most = (end - at + _ROUNDING_US) / count
            mean = min(bucket.step_time_sum_us / timed, most) if timed else (end - at) / count
            per_step = bucket.tokens_per_step or bucket.batch
            yield _Row(
                from_us=at, until_us=end, readings=max(timed, 1), low=low, high=high, mean_us=mean,
                tokens=own, batch=per_step, held=_held(stops, at, end, width_us),
                excludes=excludes and timed > 0,
            )  # fmt: skip
            at = end
    if walk.step < closed.step and closed.progress_us is not None:
        end = max(closed.progress_us, at)
        mean = mean if mean is not None else (end - at) / (closed.step - walk.step)
        yield _Row(at, end, 1, walk.step, closed.step, mean, None, per_step, {"checkpoint"}, excludes=False)


def _read(
    facts: Facts, piece: Piece, at: int, width_us: int, as_of_us: int
) -> tuple[Sequence[Bucket], list[Event]]:
    stream_id, start, end = piece.stream.stream_id, piece.segment.first_offset, piece.end_offset
    events = [
        e
        for e in facts.events(stream_id, start=start, end=end)
        if e.at_us is not None and e.at_us <= as_of_us
    ]
    if piece.segment.first is None:
        return (), events
    if piece.segment.first[1] is None:
        return _clockless(facts, piece, at, width_us, as_of_us), events
    if isinstance(facts, Bucketed):
        found = facts.buckets(stream_id, start=start, end=end, width_us=width_us, until_us=as_of_us)
    else:
        readings = facts.readings(stream_id, start=start, end=end)
        found = bucketed(readings, width_us=width_us, until_us=as_of_us)
    return found, events


def _clockless(facts: Facts, piece: Piece, at: int, width_us: int, as_of_us: int) -> Sequence[Bucket]:
    """Return the buckets of a log without a clock: the printed step times are its clock."""
    segment, last = piece.segment, piece.segment.last_reading
    stream_id, end = piece.stream.stream_id, piece.end_offset
    if segment.readings > _CLOCKLESS_READ:
        whole = bucketed([last] if last is not None else (), width_us=width_us, until_us=as_of_us)
        return [bucket._replace(end_us=at + segment.work_us) for bucket in whole]
    dated, step, now = [], None, at
    for reading in facts.readings(stream_id, start=segment.first_offset, end=end):
        steps = 1 if step is None else max(0, reading.step - step)
        now += (reading.step_time_us or 0) * steps
        step = reading.step
        dated.append(reading._replace(at_us=now))
    return bucketed(dated, width_us=width_us, until_us=as_of_us)


def _stopped(events: Sequence[Event], width_us: int) -> dict[str, list[tuple[int, int]]]:
    """Return the spans of saves and of evaluations."""
    found: dict[str, list[tuple[int, int]]] = {"checkpoint": [], "evaluation": []}
    for event in events:
        name = _STOPS.get(event.kind)
        if name is None or event.at_us is None:
            continue
        found[name].append((event.at_us - (event.duration_us or 0), event.at_us))
    return found


def _held(stops: Mapping[str, list[tuple[int, int]]], start: int, end: int, width_us: int) -> set[str]:
    """Return which stops fell into a span; what lies before it is dropped, spans come in order."""
    held: set[str] = set()
    for name, spans in stops.items():
        while spans and spans[0][1] < start:
            spans.pop(0)
        if spans and spans[0][0] <= end:
            held.add(name)
    return held
