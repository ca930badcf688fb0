"""A run's folder, its store and its sources, read by the real follower and the real collectors."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import collectors
from tests.store_help import T0, make_store
from tracker.config.model import Source
from tracker.ingest import Ingest, IngestHealth, Pass
from tracker.interfaces import Collector
from tracker.store import Store, Writer

BY_NAME = {one.name: one for one in collectors.BUILTIN}


@dataclass
class TestClock:
    """Time passes when somebody waits, or asks."""

    __test__ = False
    us: int = T0 + 365 * 86_400_000_000

    def now_us(self) -> int:
        return self.us

    def monotonic_s(self) -> float:
        self.us += 10
        return self.us / 1e6

    def wait(self, seconds: float) -> bool:
        self.us += int(seconds * 1e6) + 1
        return False


@dataclass
class World:
    """A folder with logs beside a store; `open` starts an ingestion as a process would."""

    folder: Path
    sources: Sequence[Source]
    known: Mapping[str, Collector] = field(default_factory=lambda: dict(BY_NAME))
    clock: TestClock = field(default_factory=TestClock)
    store_name: str = "tracker.db"
    writer: Writer | None = None
    ingest: Ingest | None = None

    @property
    def store(self) -> Path:
        return self.folder / self.store_name

    def open(self) -> Ingest:
        if not self.store.exists():
            make_store(self.folder, self.store_name)
        self.writer = Store.open_writer(self.store)
        self.ingest = Ingest(
            self.sources,
            self.known,
            lambda head: collectors.detect(head, self.known.values()),
            self.writer,
            self.clock,
            root=self.folder,
        )
        return self.ingest

    def close(self) -> None:
        if self.ingest is not None and self.writer is not None:
            self.ingest.close()
            self.writer.close()
        self.ingest = None

    def once(self, *, final: bool = False) -> Pass:
        """Read all once, in an ingestion of its own."""
        try:
            return self.open().once(final=final)
        finally:
            self.close()

    def poll(self) -> Pass:
        """Let the running ingestion look, until it has nothing more to do."""
        if self.ingest is None:
            self.open()
        assert self.ingest is not None
        for _ in range(100):
            self.clock.wait(1.1)
            found = self.ingest.poll()
            if not found.more:
                return found
        raise AssertionError("it never rests")

    def open_health(self) -> IngestHealth:
        """Return the health of the ingestion that is open."""
        assert self.ingest is not None
        return self.ingest.health()

    def write(self, name: str, data: bytes, *, append: bool = False) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab" if append else "wb") as file:
            file.write(data)
        return path


def source(
    number: int = 1, *, collector: str = "auto", pattern: str | None = "*.log", **changes: Any
) -> Source:
    """Return one [[source]]."""
    return Source(**{
        "number": number,
        "collector": collector,
        "pattern": pattern,
        "zone": dt.UTC,
        "shown": pattern or "a command",
        **changes,
    })


def world(folder: Path, *sources: Source, **changes: Any) -> World:
    """Return a world with these sources, an `auto` one over *.log by default."""
    return World(folder, sources or (source(),), **changes)
