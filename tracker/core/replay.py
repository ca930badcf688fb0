"""A run replayed: its snapshot at one moment after the other, each as the facts of that moment had it.

Pure, given its Facts. `snapshot(as_of=t)` for every t gives the same, from the start each time; here the
past goes on from where it was. Most moments only add readings to the attempt that runs: then one fold is
gone on with, one line of the ledger is made anew, and the rest stands. Whatever else happens (a launch, an
end, evidence, a word of the scheduler or of a person) opens the book again.

A record is known from its stamp on, and never before what stands above it in its file. Warnings are those
of the last time that the book was opened.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from tracker.core.book import Book, Entry, Marks, Opened
from tracker.core.close import close
from tracker.core.facts import Facts
from tracker.core.fold import Fold
from tracker.core.fold_many import take
from tracker.core.history import NEVER_US, Growing
from tracker.core.lineage import extend
from tracker.core.past import Past, RecentMarks
from tracker.core.pieces import is_training
from tracker.core.records import Event, Kind, Reading
from tracker.core.settings import Settings
from tracker.core.snapshot import Snapshot
from tracker.core.step_samples import StepSample, StepSamples
from tracker.core.summary import Judged, judge, line_of, step_time, summed

MS_US: Final = 1000
_MARK_EVERY: Final = 2048
"""Readings between two marks of the attempt that runs, at least."""
_LIGHT: Final = frozenset({
    Kind.SAVE_START, Kind.SAVE_END, Kind.SAVE_DURABLE, Kind.EVAL_START, Kind.EVAL_END, Kind.NOTE, Kind.SIGN,
})  # fmt: skip
"""Events that change the running attempt's own fold, and nothing else."""


class Stop(NamedTuple):
    """One moment of the walk."""

    snapshot: Snapshot
    samples: StepSamples
    """The readings since the moment before it."""
    opened: bool
    """Whether something besides readings has happened since the moment before it."""


class Replay:
    """A run's past, read forward once. Its facts must not change meanwhile."""

    def __init__(self, settings: Settings, facts: Facts, *, marks: Marks | None = None) -> None:
        self._book = Book(settings, marks=marks if marks is not None else RecentMarks())
        self._past = Past(facts)
        self._waiting = sorted(
            (one for file in self._past.files for one in file.growing if one.whole.seen_at_us is not None),
            key=lambda one: one.begins_us,
            reverse=True,
        )
        """Segments of which nothing is known yet, the next one last."""
        self._growing: list[Growing] = []
        turns = {row.start_us for row in self._past.rows} | {one.made_us for one in self._past.said}
        turns |= {row.end_us for row in self._past.rows if row.end_us is not None}
        self._turns = sorted(turns, reverse=True)
        """Moments at which the scheduler or a person said something, the next one last."""
        self._clocked = all(
            one.whole.last is None or one.whole.last[1] is not None
            for file in self._past.files
            for one in file.growing
            if is_training(one.whole)
        ) and all(
            one.whole.start_at_us is not None
            for file in self._past.files
            for one in file.growing
            if is_training(one.whole)
        )
        ends = [row.end_us if row.end_us is not None else row.start_us for row in self._past.rows]
        ends += [one.whole.seen_at_us or 0 for file in self._past.files for one in file.growing]
        self._ends_us = max(ends, default=None)
        self._dirty = True
        self._run: Judged | None = None
        self._live: Growing | None = None
        """The segment whose readings only lengthen the attempt that runs."""
        self._marked = 0
        """How many readings its fold held when it was last remembered."""
        self.opened = 0
        """How often the book was opened."""

    @property
    def begins_us(self) -> int | None:
        """Return the earliest moment of which anything is known; None without facts."""
        known = [row.start_us for row in self._past.rows if not row.data.get("never_ran")]
        known += [one.begins_us for one in self._waiting if one.begins_us > 0]
        return min(known, default=None)

    @property
    def ends_us(self) -> int | None:
        """Return the latest moment of which any fact tells; None without facts."""
        return self._ends_us

    def walk(self, moments: Iterator[int], *, since_us: int = 0) -> Iterator[Stop]:
        """Yield the run at each of some moments (rising, whole milliseconds), with the readings between.

        Readings before `since_us` are taken in, and not told.
        """
        for moment in moments:
            samples = StepSamples()
            opened = self.opened
            self._go_on(moment, samples, since_us)
            yield Stop(self._snapshot(moment), samples, self.opened > opened)

    # -- forward ------------------------------------------------------------------------------------

    def _go_on(self, until_us: int, samples: StepSamples, since_us: int) -> None:
        """Take in what is known by a moment."""
        while True:
            if self._only_live(until_us, samples, since_us):
                continue
            due = self._next_due()
            if due > until_us:
                return
            moment = -(-due // MS_US) * MS_US
            if self._take(moment) and moment >= since_us:
                samples.append(self._sample(moment))

    def _next_due(self) -> int:
        due = min((one.due_us for one in self._growing), default=NEVER_US)
        if self._waiting:
            due = min(due, self._waiting[-1].begins_us)
        return min(due, self._turns[-1]) if self._turns else due

    def _only_live(self, until_us: int, samples: StepSamples, since_us: int) -> bool:
        """Take in plain readings of the attempt that runs, while nothing else is due; tell if any."""
        live = self._live
        if live is None or self._dirty or self._run is None:
            return False
        others = [one.due_us for one in self._growing if one is not live]
        if self._waiting:
            others.append(self._waiting[-1].begins_us)
        if self._turns:
            others.append(self._turns[-1])
        until_us = min([until_us, *(due - MS_US for due in others)])
        entry = self._run.opened.entries[-1]
        fold, attempt, lineage = entry.fold, entry.attempt, self._run.opened.lineage
        before = self._before(entry)
        taken = False
        while live.due_us <= until_us:
            if before is not None:
                extend(lineage, attempt)
                if self._many(live, entry, before, until_us, samples, since_us):
                    taken = True
                    continue
            moment = -(-live.due_us // MS_US) * MS_US
            if moment > until_us:
                break
            plain = True
            told = False
            while live.due_us <= moment:
                record = live.next
                if isinstance(record, Reading):
                    if record.at_us is None:
                        plain = False
                    told = True
                elif record is None or record.kind not in _LIGHT:
                    plain = False
                if not plain:
                    break
                live.take()
                self._fold(fold, live, record)
            if live.done and live.waiting:
                plain = False
            taken = True
            if not plain:
                rest = self._take(moment)
                self._dirty = True
                if (rest or told) and moment >= since_us:
                    samples.append(self._sample(moment))
                return True
            if told and moment >= since_us:
                extend(lineage, attempt)
                if before is None or fold.stops:
                    samples.append(self._sample(moment))
                else:
                    samples.append(_quick(moment, entry, lineage.end_step, before))
        if taken:
            extend(lineage, attempt)
        return taken

    def _many(
        self,
        live: Growing,
        entry: Entry,
        before: tuple[int, int, float | None],
        until_us: int,
        samples: StepSamples,
        since_us: int,
    ) -> bool:
        """Take in usual readings of the attempt that runs in one go; tell if there were any."""
        fold, attempt = entry.fold, entry.attempt
        if fold.dark_net or fold.dark_lost:
            return False
        readings = live.plain(until_us // MS_US * MS_US)
        if not readings:
            return False
        net_less = before[0] + fold.tokens_net - (fold.odometer or 0)
        odometers = take(fold, readings)
        if not odometers:
            return False
        if len(odometers) < len(readings):
            del readings[len(odometers) :]
        live.take_plain(readings)
        after, last = live.next, readings[-1]
        fold.offset = last.offset if after is not None and after.offset == last.offset else last.offset + 1
        floor = max(attempt.last_step or 0, attempt.resume_step or 0)
        some = StepSamples(
            [-(-(r.at_us or 0) // MS_US) * MS_US for r in readings],
            [max(r.step, floor) for r in readings],
            [odometer + net_less for odometer in odometers],
            [odometer + net_less + before[1] - before[0] + fold.tokens_lost for odometer in odometers],
            [(r.step_time_us or 0) / 1e6 for r in readings],
        )
        times = some.at_us
        if times[0] < since_us:
            first = bisect_left(times, since_us)
            for column in some.columns():
                del column[:first]
        if not times:
            return True
        risen = len(set(times)) == len(times) and (not samples.at_us or samples.at_us[-1] < times[0])
        if risen:
            for column, more in zip(samples.columns(), some.columns(), strict=True):
                column += more
        else:
            for sample in some:
                samples.append(sample)
        return True

    @staticmethod
    def _fold(fold: Fold, live: Growing, record: Reading | Event | None) -> None:
        """Give the fold a record, as `book` does."""
        if isinstance(record, Reading):
            fold.reading(record)
            after = live.next
            same_line = isinstance(after, Event) and after.offset == record.offset
            fold.offset = record.offset if same_line else record.offset + 1
        elif record is not None:
            fold.event(record)
            fold.offset = record.offset + 1

    def _take(self, moment: int) -> bool:
        """Take in all that is due by a moment, whatever it is; tell whether a reading was among it."""
        told = False
        self._dirty = True
        while self._turns and self._turns[-1] <= moment:
            self._turns.pop()
        while self._waiting and self._waiting[-1].begins_us <= moment:
            one = self._waiting.pop()
            one.begin()
            self._growing.append(one)
        for one in self._growing:
            while one.due_us <= moment:
                told = isinstance(one.take(), Reading) or told
        self._growing = [one for one in self._growing if not one.done]
        return told

    # -- answers ------------------------------------------------------------------------------------

    def _sample(self, moment: int) -> StepSample:
        made = self._snapshot(moment)
        tokens = made.tokens
        return StepSample(moment, made.steps.last, tokens.net, tokens.processed, made.step_time_s)

    def _snapshot(self, moment: int) -> Snapshot:
        self._past.as_of_us = moment
        if self._dirty or self._run is None or not self._goes_on(self._run.opened):
            opened = self._book.open(self._past, as_of_us=moment)
            self.opened += 1
            self._run = judge(self._book, self._past, opened)
            self._dirty = False
            self._live = self._find_live(opened)
            self._marked = opened.entries[-1].fold.readings if opened.entries else 0
        else:
            self._run = _later(self._run, moment)
            entries = self._run.opened.entries
            if entries and entries[-1].fold.readings >= self._marked + _MARK_EVERY:
                self._marked = entries[-1].fold.readings
                self._book.remember(entries[-1])
        return summed(self._run)

    def _goes_on(self, opened: Opened) -> bool:
        """Tell whether only time has passed, or readings of the last attempt were added."""
        running = [n for n, entry in enumerate(opened.entries) if entry.attempt.running]
        if not self._clocked or running not in ([], [len(opened.entries) - 1]):
            return False
        return not running or _caught_up(opened.entries[-1])

    def _find_live(self, opened: Opened) -> Growing | None:
        if not self._clocked or not opened.entries or not self._goes_on(opened):
            return None
        entry = opened.entries[-1]
        attempt, fold, path = entry.attempt, entry.fold, opened.lineage.path
        if not attempt.running or not attempt.pieces or path[-1:] != [len(opened.entries) - 1]:
            return None
        segment = attempt.pieces[-1].segment
        live = next((one for one in self._growing if one.segment is segment), None)
        fits = (
            fold.first_us is not None
            and any(piece.segment.second_step is not None for piece in attempt.pieces)
            and not any(p.segment.fatal or p.segment.end_kind for p in [*attempt.pieces, *attempt.extra])
        )
        return live if fits and live is not None and not live.waiting else None

    def _before(self, live: Entry) -> tuple[int, int, float | None] | None:
        """Return net and processed tokens and the step time of all attempts before the one that runs.

        None where the short way would not do: tokens unknown, or steps that no window covers.
        """
        assert self._run is not None
        if self._run.opened.lineage.unseen_steps:
            return None
        net = processed = 0
        for line in self._run.lines[:-1]:
            if line.tokens_net is None or line.tokens_processed is None:
                return None
            net += line.tokens_net
            processed += line.tokens_processed
        return net, processed, step_time(self._run.opened.entries[:-1])


def _caught_up(entry: Entry) -> bool:
    """Tell whether the fold holds all that is known of its attempt."""
    pieces, fold = entry.attempt.pieces, entry.fold
    return not pieces or (fold.piece == len(pieces) - 1 and fold.offset > pieces[-1].segment.last_offset)


def _quick(moment: int, entry: Entry, end_step: int, before: tuple[int, int, float | None]) -> StepSample:
    """Return what the snapshot would say step by step, from the running attempt's fold alone."""
    fold = entry.fold
    tokens = fold.tokens()
    net = processed = None
    if tokens is not None:
        net, processed = before[0] + tokens[0], before[1] + tokens[0] + tokens[1]
    own = step_time([entry])
    return StepSample(moment, end_step, net, processed, own if own is not None else before[2])


def _later(run: Judged, moment: int) -> Judged:
    """Return the run at a later moment at which nothing but its last attempt has changed."""
    opened = run.opened
    opened.as_of_us = moment
    if not opened.entries or not opened.entries[-1].attempt.running:
        return run
    entry = opened.entries[-1]
    entry.closed = close(
        entry.fold,
        end_us=moment,
        running=True,
        usual_gap_us=entry.usual_gap_us,
        usual_startup_us=entry.usual_startup_us,
    )
    line = line_of(len(run.lines), entry, None, run.flops[-1])
    return replace(run, lines=(*run.lines[:-1], line))
