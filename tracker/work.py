"""An open store with all that works on it: the ingestion that fills it, the book that answers from it.

Edge. Whoever holds one is the only writer of facts: it holds the store's run lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Final, Self

from tracker.config import Config
from tracker.core.book import Book
from tracker.core.clocks import Arrivals, ahead
from tracker.core.documents import iso
from tracker.core.facts import Facts, Stream
from tracker.core.snapshot import Snapshot
from tracker.core.summary import snapshot
from tracker.interfaces import Clock, Collector
from tracker.marks import StoredMarks
from tracker.store import Reader, RunLock, Writer, migrate_in_child
from tracker.store.errors import StoreReadOnly
from tracker.store.lock import WAIT_S
from tracker.vitals import SourceVitals, Vitals

if TYPE_CHECKING:
    from tracker.ingest import Ingest, IngestHealth, Progress
    from tracker.ingest.plan import Detect

_A_MOMENT_US: Final = 90_000_000
"""Between two snapshots, of many runs too; after a longer pause nobody knows when a line came."""
Formats = Callable[[], "tuple[Mapping[str, Collector], Detect]"]
"""Gives the collectors by name, and who tells which one reads a file."""


def as_it_is(facts: Facts) -> Facts:
    """Put nothing between the store and the core."""
    return facts


class OneState:
    """The facts of one committed state, for the time that it is looked at: its streams are read once."""

    def __init__(self, reader: Reader) -> None:
        self.streams = cache(reader.streams)
        self.readings = reader.readings
        self.events = reader.events
        self.scheduler_rows = reader.scheduler_rows
        self.corrections = reader.corrections


class OpenWork:
    """Opens everything, making or migrating the store first; close it, or use it as a context manager."""

    def __init__(self, config: Config, *, clock: Clock, formats: Formats, wait_s: float = WAIT_S) -> None:
        """Raises the store's errors: in use, newer, not to be written ...

        `wait_s`: how long to wait for another process that is writing the store.

        `formats` is asked at the first reading: loading every collector takes a quarter of a second, and
        what is stored can be shown before.
        """
        self._config = config
        self._clock = clock
        self._formats = formats
        self._ingest: Ingest | None = None
        self._rejects: dict[str, int] = {}
        self._rejects_of: dict[int, int] = {}
        self._dated: tuple[str, ...] = ()
        """Which sources have lines of the future, or lines that come late by as much each time."""
        self._arrivals = Arrivals()
        self._whole = False
        """Whether everything that is there was read at the last pass."""
        self._followed_us: int | None = None
        """When a snapshot was made of all that was there."""
        migrate_in_child(config.store)
        with ExitStack() as opened:
            self._lock = RunLock(config.store, started_at=iso(clock.now_us()) or "")
            opened.callback(self._lock.close)
            self._writer = opened.enter_context(Writer(config.store, wait_s=wait_s, owner=self._lock))
            self._reader = opened.enter_context(Reader(config.store))
            self._marks = StoredMarks(self._reader, self._writer)
            self._book = Book(config.settings, marks=self._marks)
            self._opened = opened.pop_all()

    @property
    def _intake(self) -> Ingest:
        """The ingestion, begun when it is first needed."""
        if self._ingest is None:
            from tracker.ingest import Ingest

            collectors, detect = self._formats()
            config = self._config
            self._ingest = Ingest(
                config.sources,
                collectors,
                detect,
                self._writer,
                self._clock,
                root=config.folder,
                skip=(config.path,),
            )
            self._opened.callback(self._ingest.close)
        return self._ingest

    def read(self, *, enough: Callable[[], bool] = lambda: False) -> tuple[bool, str]:
        """Read what is new and store it: whether there is more to read now, and why nothing was stored.

        `enough` is asked after each block, and ends the pass. A store that broke is found out even where
        nothing is to be stored.
        """
        self._writer.look()
        done = self._intake.poll(enough=enough)
        if done.broken:
            raise StoreReadOnly(done.problem or "the store cannot be written")
        self._whole = not done.more and not done.problem
        return done.more, done.problem or ""

    def read_all(self, *, final: bool, told: Callable[[Progress], None] | None = None) -> None:
        """Read every source to its end."""
        self._intake.once(final=final, told=told)

    def revision(self) -> int:
        """Return a number that grows with every change of the facts."""
        return self._reader.revision()

    def snapshot(self, *, as_of_us: int, facts: Callable[[Facts], Facts] = as_it_is) -> Snapshot:
        """Return the run as the store has it; `facts` may stand between the store and the core."""
        known = OneState(self._reader)
        with self._reader.snapshot():
            self._rejects = self._reader.reject_counts()
            self._rejects_of = self._reader.rejects_by_source()
            self._look_at_clocks(known.streams())
            made = snapshot(self._book, facts(known), as_of_us=as_of_us, rejects=sum(self._rejects.values()))
        self._marks.flush()
        return made

    def _look_at_clocks(self, streams: Sequence[Stream]) -> None:
        now_us = self._clock.now_us()
        before_us = self._followed_us
        followed = before_us is not None and 0 <= now_us - before_us <= _A_MOMENT_US
        behind = self._arrivals.look(streams, now_us, followed=followed)
        self._followed_us = now_us if self._whole else None
        said = [one.sentence for one in ahead(streams, now_us)]
        self._dated = (*said, *(one.sentence for one in behind))

    def health(self) -> IngestHealth:
        """Return what the ingestion knows of itself."""
        return self._intake.health()

    def vitals(self) -> Vitals:
        """Return what is known of reading and storing."""
        if self._ingest is None:
            return Vitals(rejects=self._rejects)
        health = self._ingest.health()
        by_number = {source.number: source for source in self._config.sources}
        return Vitals(
            read_lines=health.lines,
            read_bytes=health.read_bytes,
            stored_readings=health.readings,
            rotations=health.rotations,
            truncations=health.truncations,
            skipped_bytes=health.skipped_bytes,
            rejects=self._rejects,
            unreadable_files=health.unreadable_by_reason,
            unrecognised_files=health.unrecognised_files,
            sources=tuple(
                SourceVitals(
                    number=source.number,
                    collector=by_number[source.number].collector,
                    shown=by_number[source.number].shown,
                    up=source.up,
                    files=source.files,
                    lag_bytes=source.lag_bytes,
                    rejected_lines=self._rejects_of.get(source.number - 1, 0),
                )
                for source in health.sources
            ),
            last_pass_us=health.last_pass_us,
            problems=(
                *(f"source {source.number}: {source.problem}" for source in health.sources if source.problem),
                *self._dated,
            ),
        )

    def tidy(self) -> None:
        """Keep the store small: cut its write-ahead log."""
        self._writer.checkpoint(truncate=True)

    def close(self) -> None:
        """Give everything back; the store's log is cut first, where that is possible."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
