"""The composition root: a config file becomes real edges, and the parts that need each other meet.

Edge. Commands call this; nothing here is imported by the parts.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from tracker import config as configuration
from tracker import trial
from tracker.config import Config
from tracker.core.book import Book
from tracker.core.facts import Facts, Stream
from tracker.core.records import Event, Reading, SchedulerRow
from tracker.core.snapshot import Snapshot
from tracker.core.summary import snapshot
from tracker.interfaces import Collector, Context
from tracker.store import Mark, Reader, Writer, stored_version
from tracker.trial import Trial


@cache
def collectors() -> Mapping[str, Collector]:
    """Return every collector by name. Loading them takes a moment, so only who needs them asks."""
    from collectors import BUILTIN

    return {collector.name: collector for collector in BUILTIN}


def load_config(path: Path) -> Config:
    """Read a config file; ConfigError names every fault."""
    return configuration.load(path, collectors)


def try_file(
    path: Path, *, name: str | None, zone: dt.tzinfo, told: Callable[[int], None] | None = None
) -> Trial:
    """Read one file by the collector of that name, or by the one that recognises it."""
    from collectors import detect, named

    head = trial.head_of(path)
    detection = detect(head, collectors().values())
    chosen = named(name, collectors().values()) if name is not None else detection.collector
    evidence = detection.text if name is None else f"you named it (on its own: {detection.text})"
    if chosen is None:
        return Trial(collector=None, evidence=evidence)
    context = Context(zone=zone, file_name=path.name)
    return trial.run(path, chosen, context=context, evidence=evidence, told=told)


def snapshot_now(config: Config, *, as_of_us: int) -> Snapshot:
    """Return the run as the store has it; a store that is not there yet is a run without facts."""
    if not stored_version(config.store):
        return snapshot(Book(config.settings), NoFacts(), as_of_us=as_of_us)
    with Reader(config.store) as reader:
        return snapshot_of(Book(config.settings, marks=StoredMarks(reader)), reader, as_of_us=as_of_us)


def snapshot_of(book: Book, reader: Reader, *, as_of_us: int) -> Snapshot:
    """Return the run as one committed state of an open store has it."""
    with reader.snapshot():
        rejects = sum(reader.reject_counts().values())
        return snapshot(book, reader, as_of_us=as_of_us, rejects=rejects)


class NoFacts:
    """The facts of a store that does not exist."""

    def streams(self) -> Sequence[Stream]:
        """Return none."""
        return ()

    def scheduler_rows(self) -> Sequence[SchedulerRow]:
        """Return none."""
        return ()

    def readings(self, stream_id: int, *, start: int = 0, end: int | None = None) -> Iterator[Reading]:
        """Return none."""
        return iter(())

    def events(self, stream_id: int, *, start: int = 0, end: int | None = None) -> Iterator[Event]:
        """Return none."""
        return iter(())


class StoredMarks:
    """The store's marks as the core asks for them; without a writer they are only read.

    New ones wait in memory until `flush`: the core makes them while a snapshot of the store is being
    read, and nothing may be written then.
    """

    def __init__(self, reader: Reader, writer: Writer | None = None) -> None:
        self._reader = reader
        self._writer = writer
        self._new: dict[tuple[str, str], list[Mark]] = {}

    def best(self, key: str, digest: str, *, step: int | None, at_us: int | None) -> bytes | None:
        """Return the latest mark with mark.step <= step and mark.at_us <= at_us (None: no bound)."""
        for mark in reversed(self._reader.marks(key, digest)):
            if _within(mark.step, step) and _within(mark.at_us, at_us):
                return mark.body
        return None

    def put(self, key: str, digest: str, *, step: int, at_us: int, body: bytes) -> None:
        """Remember a fold."""
        if self._writer is not None:
            mark = Mark(position=at_us, step=step, at_us=at_us, body=body)
            self._new.setdefault((key, digest), []).append(mark)

    def flush(self) -> None:
        """Store what waits."""
        if self._writer is None:
            return
        while self._new:
            (key, digest), marks = self._new.popitem()
            self._writer.put_marks(key, digest, marks)


def _within(value: int | None, bound: int | None) -> bool:
    return bound is None or (value is not None and value <= bound)


_: type[Facts] = NoFacts
