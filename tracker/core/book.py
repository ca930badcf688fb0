"""Keeps a run's answer up to date: facts in, snapshot out, at a cost that does not grow with the run.

Pure, given its Facts and Marks. Attempts, their lineage and their folds follow from the facts, the
settings and `as_of` alone. A fold that was already made is gone on with; one whose premises changed
(a resume cut its steps, the scheduler told of an earlier start) is made again, from a mark if there is
one. Marks are a cache: with or without them the answer is the same, to the byte.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol

from tracker.core.attempts import Attempt, begin_at_windows, join
from tracker.core.close import Closed, close
from tracker.core.facts import Facts, Stream
from tracker.core.fold import Fold, Frame
from tracker.core.history import as_known, known, shorten, superseded
from tracker.core.interruptions import Verdict
from tracker.core.lineage import Lineage, trace
from tracker.core.pieces import Piece, sort_pieces
from tracker.core.records import Event
from tracker.core.settings import Settings

_LONG_QUIET_US: Final = 24 * 3600 * 1_000_000
MARK_EVERY: Final = 32_768
SEAL_FROM: Final = 500
"""Readings; a shorter attempt is folded again faster than it is looked up."""
FOLD_VERSION: Final = 6
"""Raised when the same records fold into other numbers or are written another way: older marks are
ignored."""


class Marks(Protocol):
    """Where folds are remembered. A cache: losing it costs time, nothing else."""

    def best(self, key: str, digest: str, *, step: int | None, at_us: int | None) -> bytes | None:
        """Return the latest mark with mark.step <= step and mark.at_us <= at_us (None: no bound)."""
        ...

    def put(self, key: str, digest: str, *, step: int, at_us: int, body: bytes) -> None:
        """Remember a fold."""
        ...


@dataclass(slots=True)
class Entry:
    """One attempt, folded and brought to `as_of`."""

    key: str
    attempt: Attempt
    fold: Fold
    closed: Closed
    usual_gap_us: int | None = None
    """What the attempts before it say of a usual gap, and of a usual start-up: `close` was told so."""
    usual_startup_us: int | None = None


@dataclass(slots=True)
class Opened:
    """The run as its facts have it at one moment; `core/summary.py` makes a Snapshot of it."""

    as_of_us: int
    entries: list[Entry]
    lineage: Lineage
    evidence: list[Piece]
    unmatched: list[str]
    warnings: list[str]


class Book:
    """Folds the attempts of one run. Keep it: the next `open` costs only what is new."""

    def __init__(self, settings: Settings, *, marks: Marks | None = None) -> None:
        self.settings = settings
        self._marks = marks
        self._folds: dict[str, Fold] = {}
        self._work: dict[int, tuple[int, int]] = {}
        self._reached_us: int | None = None
        """The latest moment that was asked for: no fold holds anything after it."""
        self._sealed: dict[str, tuple[object, ...]] = {}
        """How far the folds reach that were remembered whole."""
        self.verdicts: dict[str, tuple[object, Verdict | None]] = {}
        """Why attempts ended, beside what that was judged from (a cache of core/summary.py)."""
        self.told: dict[str, tuple[object, object]] = {}
        """What attempts' readings tell a forecast, beside what that follows from (core/forecast/state.py)."""

    def open(self, facts: Facts, *, as_of_us: int) -> Opened:
        """Return the run as of a moment; what lies after it is ignored."""
        rows = superseded([
            as_known(row, as_of_us)
            for row in facts.scheduler_rows()
            if row.start_us <= as_of_us and not row.data.get("never_ran")
        ])
        streams = [known(facts, stream, as_of_us) for stream in facts.streams()]

        def work_before(stream: Stream, offset: int) -> int:
            return self._work_before(facts, stream, offset)

        found = sort_pieces(streams, rows, self.settings, work_before)
        found.training = [piece for piece in found.training if piece.at_us <= as_of_us]
        attempts, unmatched = join(found, rows, self.settings)
        attempts = [attempt for attempt in attempts if attempt.start_us <= as_of_us]
        warnings = list(found.warnings)
        for attempt in attempts:
            if attempt.end_us is not None and attempt.end_us > as_of_us:
                attempt.end_us = None
            warnings += self._count_gpus(attempt)
        lineage = trace(attempts)
        begin_at_windows(attempts)
        entries = self._fold_all(facts, attempts, lineage, as_of_us)
        if shorten(facts, ((entry.attempt, entry.fold) for entry in entries)):
            lineage = trace(attempts)
            entries = self._fold_all(facts, attempts, lineage, as_of_us)
        self._reached_us = as_of_us
        warnings += lineage.warnings
        for number, entry in enumerate(entries, 1):
            warnings += _entry_warnings(number, entry)
        return Opened(
            as_of_us=as_of_us,
            entries=entries,
            lineage=lineage,
            evidence=found.evidence,
            unmatched=unmatched,
            warnings=list(dict.fromkeys(warnings)),
        )

    def _work_before(self, facts: Facts, stream: Stream, offset: int) -> int:
        held = self._work.get(stream.stream_id)
        if held is not None and held[0] == offset:
            return held[1]
        work, step = 0, None
        for reading in facts.readings(stream.stream_id, end=offset):
            if reading.step_time_us is not None:
                since = step if step is not None and step < reading.step else reading.step - 1
                work += reading.step_time_us * (reading.step - since)
            step = reading.step
        self._work[stream.stream_id] = (offset, work)
        return work

    def _count_gpus(self, attempt: Attempt) -> list[str]:
        """Set billed and training GPUs: scheduler before log before config."""
        stated = attempt.settings.get("gpus")
        world = stated if isinstance(stated, int) and stated > 0 else None
        billed = attempt.row.gpus if attempt.row is not None else None
        attempt.gpus = billed or world or self.settings.hardware.gpus
        attempt.world = world if world is not None else attempt.gpus
        if attempt.gpus is not None and attempt.world is not None and attempt.world > attempt.gpus:
            attempt.world = attempt.gpus
            return [
                f"job {attempt.job_id}: the log trains on {world} GPUs, the scheduler bills {billed}: "
                f"{billed} counted",
                *self._contradictions(attempt),
            ]
        return self._contradictions(attempt)

    def _contradictions(self, attempt: Attempt) -> list[str]:
        """Name both values where the log says something else than the config, or than another log."""
        model, hardware = self.settings.model, self.settings.hardware
        configured = {
            "sequence_length": ("model.sequence_length", model.sequence_length),
            "global_batch_size": ("model.global_batch_size", model.global_batch_size),
            "tokens_per_step": ("model.tokens_per_step", model.tokens_per_step),
        }
        found = []
        for name, (key, value) in configured.items():
            said = attempt.settings.get(name)
            if said is not None and value is not None and said != value:
                found.append(f"{key} = {value} in the config, {said} in the log: the log's is used")
        if hardware.gpus is not None and hardware.gpus not in (attempt.gpus, attempt.world):
            found.append(
                f"hardware.gpus = {hardware.gpus} in the config, {attempt.gpus} by log or scheduler: "
                f"the latter is used"
            )
        for other in attempt.extra:
            one, two = attempt.pieces[0].settings.get("gpus"), other.settings.get("gpus")
            if one is not None and two is not None and one != two:
                found.append(f"two logs of one launch say {one} and {two} GPUs: {one} used")
        return found

    def _fold_all(
        self, facts: Facts, attempts: list[Attempt], lineage: Lineage, as_of_us: int
    ) -> list[Entry]:
        entries: list[Entry] = []
        odometers: dict[int, int | None] = {}
        kept: dict[str, Fold] = {}
        usual_gap: int | None = None
        startups: list[int] = []
        following = dict(zip(lineage.path, lineage.path[1:], strict=False))
        before = {child: parent for parent, child in following.items()}
        for index, attempt in enumerate(attempts):
            parent = before.get(index)
            frame = self._frame(attempt, odometers.get(parent) if parent is not None else None)
            key = _key(attempt)
            fold = self._fold(facts, attempt, frame, key, as_of_us)
            kept[key] = fold
            if index + 1 < len(attempts):
                self._seal(fold, key, attempt)
            last = attempt.last
            if last is not None and last.at_us is None and attempt.row is None and attempt.end_us is not None:
                attempt.end_us = max(attempt.end_us, fold.at or 0)  # only the fold knows how long it ran
            usual_startup = sorted(startups)[(len(startups) - 1) // 2] if startups else None
            closed = close(
                fold,
                end_us=attempt.end_us if attempt.end_us is not None else as_of_us,
                running=attempt.running,
                usual_gap_us=usual_gap,
                usual_startup_us=usual_startup,
            )
            entries.append(Entry(key, attempt, fold, closed, usual_gap, usual_startup))
            if index in following:
                resumed = attempts[following[index]].resume_step or 0
                odometers[index] = _odometer_at(fold, resumed)
            if len(fold.gaps) >= 3:
                usual_gap = sorted(fold.gaps)[(len(fold.gaps) - 1) // 2]
            if closed.first_us is not None:
                startups.append(closed.startup_us)
        self._folds = kept
        return entries

    def _frame(self, attempt: Attempt, resume_tokens: int | None) -> Frame:
        model = self.settings.model
        length = attempt.settings.get("sequence_length")
        batch = attempt.settings.get("global_batch_size")
        per_step = attempt.settings.get("tokens_per_step")
        length = length if isinstance(length, int) and length > 0 else model.sequence_length
        for piece in attempt.pieces[:1]:
            if piece.segment.resume_tokens is not None:
                resume_tokens = piece.segment.resume_tokens
            elif piece.segment.resume_samples is not None and length is not None:
                resume_tokens = piece.segment.resume_samples * length
        return Frame(
            start_us=attempt.start_us,
            resume_step=attempt.resume_step or 0,
            cut=attempt.cut,
            resume_tokens=resume_tokens,
            sequence_length=length,
            batch=batch if isinstance(batch, int) and batch > 0 else model.global_batch_size,
            tokens_per_step=per_step if isinstance(per_step, int) and per_step > 0 else model.tokens_per_step,
        )

    def _fold(self, facts: Facts, attempt: Attempt, frame: Frame, key: str, as_of_us: int) -> Fold:
        fold = self._brought(facts, attempt, self._folds.get(key), frame, key, as_of_us)
        if _astray(attempt, fold) != fold.astray:  # it holds a stamp that was not believed later
            fold = self._brought(facts, attempt, _bare(frame, attempt), frame, key, as_of_us)
        return fold

    def _brought(
        self, facts: Facts, attempt: Attempt, fold: Fold | None, frame: Frame, key: str, as_of_us: int
    ) -> Fold:
        back = self._reached_us is not None and as_of_us < self._reached_us
        if fold is None or fold.frame != frame or (back and fold.at is not None and fold.at > as_of_us):
            fold = self._begin(frame, key, attempt, as_of_us)
        digest = _digest(frame, attempt)
        while fold.piece < len(attempt.pieces):
            piece = attempt.pieces[fold.piece]
            news = piece.segment.last_offset >= fold.offset
            for done in feed(fold, facts, piece, as_of_us) if news else ():
                if not done:
                    return fold
                if fold.readings % MARK_EVERY == 0:
                    self._mark(fold, key, digest)
            if fold.piece + 1 == len(attempt.pieces):
                break
            fold.piece += 1
            fold.offset = attempt.pieces[fold.piece].segment.first_offset
        return fold

    def _begin(self, frame: Frame, key: str, attempt: Attempt, as_of_us: int) -> Fold:
        if self._marks is not None and attempt.pieces:
            sealed = self._marks.best(
                f"{key} whole", _whole_digest(frame, attempt), step=None, at_us=as_of_us
            )
            fold = _revived(frame, sealed)
            if fold is not None:
                self._sealed[key] = _extent(fold)
                return fold
            body = self._marks.best(key, _digest(frame, attempt), step=frame.cut, at_us=as_of_us)
            fold = _revived(frame, body)
            if fold is not None:
                return fold
        return _bare(frame, attempt)

    def _seal(self, fold: Fold, key: str, attempt: Attempt) -> None:
        """Remember the whole fold of an attempt that others followed: it changes only with its premises.

        Its moment is that of the last line it holds, so that no earlier question finds it.
        """
        if self._marks is None or fold.readings < SEAL_FROM or fold.at is None:
            return
        extent = _extent(fold)
        if self._sealed.get(key) == extent:
            return
        self._sealed[key] = extent
        body = fold.to_bytes()
        at_us = max(fold.at, attempt.seen_us or 0)
        self._marks.put(
            f"{key} whole", _whole_digest(fold.frame, attempt), step=fold.step, at_us=at_us, body=body
        )

    def remember(self, entry: Entry) -> None:
        """Mark an attempt's fold as it stands, whatever the usual distance between marks."""
        self._mark(entry.fold, entry.key, _digest(entry.fold.frame, entry.attempt))

    def _mark(self, fold: Fold, key: str, digest: str) -> None:
        cut = fold.frame.cut
        if self._marks is None or fold.at is None or (cut is not None and fold.step > cut):
            return
        self._marks.put(key, digest, step=fold.step, at_us=fold.at, body=fold.to_bytes())


def feed(fold: Fold, facts: Facts, piece: Piece, as_of_us: int) -> Iterator[bool]:
    """Feed the fold what is new of a piece. Yield True for each reading taken, False at `as_of`.

    Of a line that yields both, the reading comes first: what begins on its line begins after its steps.
    What stands after the first later stamp was not written yet.
    """
    stream_id, end = piece.stream.stream_id, piece.end_offset
    events: list[Event] = []
    for event in facts.events(stream_id, start=fold.offset, end=end):
        if event.at_us is not None and event.at_us > as_of_us:
            end = event.offset
            break
        events.append(event)
    taken = 0
    for reading in facts.readings(stream_id, start=fold.offset, end=end):
        while taken < len(events) and events[taken].offset < reading.offset:
            fold.event(events[taken])
            fold.offset = events[taken].offset + 1
            taken += 1
        if (reading.at_us is not None and reading.at_us > as_of_us) or not fold.reading(
            reading, until_us=as_of_us
        ):
            yield False
            return
        same_line = taken < len(events) and events[taken].offset == reading.offset
        fold.offset = reading.offset if same_line else reading.offset + 1
        yield True
    for event in events[taken:]:
        fold.event(event)
        fold.offset = event.offset + 1


def _bare(frame: Frame, attempt: Attempt) -> Fold:
    fold = Fold(frame=frame)
    if attempt.pieces:
        fold.offset = attempt.pieces[0].segment.first_offset
    return fold


def _astray(attempt: Attempt, fold: Fold) -> int:
    """Return how many readings with stamps that are not believed lie in what a fold holds."""
    if fold.piece >= len(attempt.pieces):
        return fold.astray
    now = attempt.pieces[fold.piece].segment
    if now.astray and fold.offset <= now.astray_offset:
        return fold.astray  # it has not come that far
    return sum(piece.segment.astray for piece in attempt.pieces[: fold.piece + 1])


def _key(attempt: Attempt) -> str:
    """Return a name for an attempt that no reading of it changes."""
    if attempt.pieces:
        piece = attempt.pieces[0]
        return f"{piece.stream.stream_id}:{piece.segment.ordinal}"
    assert attempt.row is not None
    return f"job {attempt.row.job_id} {attempt.row.start_us}"


def _digest(frame: Frame, attempt: Attempt) -> str:
    """Return what a mark's fold depended on, besides the records themselves and the cut."""
    parts = [FOLD_VERSION, repr(replace(frame, cut=None))]
    parts += [
        (p.stream.identity, p.stream.parser_version, p.segment.ordinal, p.segment.first_offset)
        for p in attempt.pieces[:1]
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _whole_digest(frame: Frame, attempt: Attempt) -> str:
    """Return what the whole fold of an attempt depended on: its cut and all its files besides."""
    parts: list[object] = [_digest(frame, attempt), frame.cut]
    parts += [(p.stream.identity, p.segment.ordinal, p.segment.first_offset) for p in attempt.pieces]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _revived(frame: Frame, body: bytes | None) -> Fold | None:
    """Return the fold that a mark holds; None where there is none, or where its bytes were damaged."""
    if body is None:
        return None
    try:
        return Fold.from_bytes(frame, body)
    except (zlib.error, ValueError, TypeError):  # a cache: it is made again
        return None


def _extent(fold: Fold) -> tuple[object, ...]:
    return fold.frame, fold.piece, fold.offset, fold.readings


def _odometer_at(fold: Fold, step: int) -> int | None:
    """Return the token odometer at a step that a later attempt resumed from."""
    known_at = fold.cut_odometer
    if known_at is None:
        return None
    if step > fold.step:
        per_step = fold.per_step(None)
        return None if per_step is None else known_at + per_step * (step - fold.step)
    return known_at


def _entry_warnings(number: int, entry: Entry) -> list[str]:
    warnings = []
    if entry.closed.clipped_us > 2_000_000:
        warnings.append(
            f"attempt {number}: its log goes on {entry.closed.clipped_us / 1e6:.0f} s beyond the end of its "
            f"allocation ({entry.attempt.end_from}); the excess is not counted"
        )
    quiet = entry.closed.tail_us if entry.attempt.running and entry.closed.stalled else 0
    if quiet > _LONG_QUIET_US and entry.attempt.row is None:
        warnings.append(
            f"attempt {number}: its log has no end line and no scheduler row tells of its end, so "
            f"{quiet / 3.6e9:,.0f} h of silence are counted: add the scheduler as a source, or set run.until"
        )
    for back_us, since in ((entry.fold.skew_us, ""), (entry.fold.righted_us, ", and was right again later")):
        if back_us:
            warnings.append(f"attempt {number}: the log's clock was set back by {back_us / 1e6:.0f} s{since}")
    if entry.fold.astray:
        count = entry.fold.astray
        lines = "1 line is" if count == 1 else f"{count:,} lines are"
        warnings.append(
            f"attempt {number}: the log's clock was set forward at step {entry.fold.astray_step:,}, and was "
            f"right again later: {lines} dated far ahead, which is not believed"
        )
    return warnings
