"""The tables that can be exported: which columns each has, and its rows.

Pure, given its Facts. A unit stands in its column's name. A moment is two columns: ISO 8601 in UTC, and
integer microseconds. What is unknown is None, never 0. Text may be a log's and is hostile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tracker.core.book import Book, Opened
from tracker.core.documents import iso
from tracker.core.facts import Facts
from tracker.core.ledger import BUCKETS
from tracker.core.records import Flag
from tracker.core.settings import Settings
from tracker.core.snapshot import Snapshot
from tracker.core.summary import judge, summed
from tracker.core.windows import windows_of

Cell = None | bool | int | float | str
Row = tuple[Cell, ...]
Kind = Literal["text", "moment", "integer", "number", "boolean"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Seen:
    """What rows are made of: one moment of a run."""

    facts: Facts
    opened: Opened
    snapshot: Snapshot
    as_of_us: int


@dataclass(frozen=True, slots=True)
class Table:
    """One table."""

    doc: str
    columns: tuple[Column, ...]
    rows: Callable[[Seen], Iterator[Row]]


def seen(settings: Settings, facts: Facts, *, as_of_us: int) -> Seen:
    """Open a run at a moment."""
    book = Book(settings)
    opened = book.open(facts, as_of_us=as_of_us)
    return Seen(facts, opened, summed(judge(book, facts, opened)), as_of_us)


def _columns(words: str) -> tuple[Column, ...]:
    """Return columns written as name:kind; `at` stands for `at` and `at_us`."""
    found: list[Column] = []
    kinds: Mapping[str, Kind] = {"t": "text", "i": "integer", "n": "number", "b": "boolean"}
    for word in words.split():
        name, _, kind = word.partition(":")
        if kind == "m":
            found += [Column(name, "moment"), Column(f"{name}_us", "integer")]
        else:
            found.append(Column(name, kinds[kind]))
    return tuple(found)


def _at(at_us: int | None) -> tuple[str | None, int | None]:
    return iso(at_us), at_us


_FLAGS: Final = tuple((int(flag), (flag.name or "").lower()) for flag in Flag if flag)


def _readings(of: Seen) -> Iterator[Row]:
    run = of.snapshot.run
    for number, entry in enumerate(of.opened.entries, 1):
        for extra, piece in [(False, p) for p in entry.attempt.pieces] + [
            (True, p) for p in entry.attempt.extra
        ]:
            stream, segment = piece.stream, piece.segment
            end = piece.end_offset if piece.end_offset is not None else segment.last_offset + 1
            for r in of.facts.readings(stream.stream_id, start=segment.first_offset, end=end):
                if r.at_us is not None and r.at_us > of.as_of_us:
                    break
                flags = " ".join(name for bit, name in _FLAGS if r.flags & bit) if r.flags else None
                yield (
                    run, number, extra, stream.file_name, r.offset, *_at(r.at_us), r.step, r.step_time_us,
                    r.samples, r.tokens, r.batch, r.tokens_per_step, r.skipped, r.reported_flop_per_s, flags,
                )  # fmt: skip


def _windows(of: Seen) -> Iterator[Row]:
    run = of.snapshot.run
    for number, entry in enumerate(of.opened.entries, 1):
        world = entry.attempt.world
        for w in windows_of(of.facts, entry, as_of_us=of.as_of_us):
            yield (
                run, number, w.first_step, w.last_step, *_at(w.start_us), *_at(w.end_us),
                w.productive_us, w.lost_us, w.checkpoint_us, w.evaluation_us, w.other_us,
                w.steps_net, w.steps_lost, w.tokens_net, w.tokens_lost, world,
            )  # fmt: skip


def _attempts(of: Seen) -> Iterator[Row]:
    peak = of.snapshot.mfu.peak_flop_per_s
    for line in of.snapshot.attempts:
        yield (
            of.snapshot.run, line.number, line.job_id, *_at(line.start_us), *_at(line.end_us),
            line.start_from, line.estimated, line.running, line.gpus, line.world, line.resumed_from,
            line.last_step, line.steps_net, line.steps_lost, line.tokens_net, line.tokens_processed,
            line.end_kind, line.cause, line.step_time_s, line.mfu_ratio(peak), line.hours_per_trillion,
            None if line.gpu_us is None else line.gpu_us["allocated"], line.wall_us["allocated"],
        )  # fmt: skip


def _ledger(of: Seen) -> Iterator[Row]:
    run, total = of.snapshot.run, of.snapshot.gpu_us
    for line in of.snapshot.attempts:
        for bucket in BUCKETS:
            wall = line.wall_us.get(bucket)
            yield run, line.number, bucket, None if line.gpu_us is None else line.gpu_us[bucket], wall
    if total is None:
        return
    held = sum(line.gpu_us["idle"] for line in of.snapshot.attempts if line.gpu_us is not None)
    if total["idle"] != held:  # the reservation's time that no attempt held
        yield run, None, "idle", total["idle"] - held, None


def _interruptions(of: Seen) -> Iterator[Row]:
    for stop in of.snapshot.interruptions:
        said = of.snapshot.corrections.get(stop.attempt)
        yield (
            of.snapshot.run, stop.number, stop.attempt, *_at(stop.at_us), *_at(stop.began_us), stop.kind,
            stop.cause, stop.confidence, stop.detect_s, stop.restart_s, stop.redo_steps, stop.redo_gpu_hours,
            stop.manual, stop.evidence or None, None if said is None else said.by,
            None if said is None else said.note or None,
        )  # fmt: skip


TABLES: Final[Mapping[str, Table]] = {
    "readings": Table(
        "Every log line that was read as an odometer; `extra` ones repeat another file's account.",
        _columns(
            "run:t attempt:i extra:b file:t offset_bytes:i at:m step:i step_time_us:i samples:i tokens:i "
            "batch_sequences:i tokens_per_step:i skipped_steps:i reported_flop_per_s:n flags:t"
        ),
        _readings,
    ),
    "windows": Table(
        "The steps between two readings of an attempt, with their wall time by what became of it.",
        _columns(
            "run:t attempt:i first_step:i last_step:i start:m end:m productive_us:i lost_us:i "
            "checkpoint_us:i evaluation_us:i other_us:i steps_net:i steps_lost:i tokens_net:i tokens_lost:i "
            "training_gpus:i"
        ),
        _windows,
    ),
    "attempts": Table(
        "One row for each launch of the job.",
        _columns(
            "run:t attempt:i job_id:t start:m end:m start_from:t estimated:b running:b gpus:i "
            "training_gpus:i resumed_from_step:i last_step:i steps_net:i steps_lost:i tokens_net:i "
            "tokens_processed:i end_kind:t cause:t step_time_s:n mfu_ratio:n gpu_hours_per_trillion_tokens:n "
            "allocated_gpu_us:i allocated_wall_us:i"
        ),
        _attempts,
    ),
    "ledger": Table(
        "Every GPU-microsecond by attempt and bucket; the column sums to the allocation. "
        "A row without an attempt is what a billed reservation held beyond them.",
        _columns("run:t attempt:i bucket:t gpu_us:i wall_us:i"),
        _ledger,
    ),
    "interruptions": Table(
        "Why attempts ended, with the line that proves it.",
        _columns(
            "run:t interruption:i attempt:i at:m began:m kind:t cause:t confidence_ratio:n detect_s:n "
            "restart_s:n redo_steps:i redo_gpu_hours:n manual:b evidence:t corrected_by:t correction_note:t"
        ),
        _interruptions,
    ),
}
