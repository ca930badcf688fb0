"""Fifty who read a store while a real sidecar writes it: all see whole states, none is refused."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.torture.sidecar import Sidecar, ask
from tests.torture.stage import PLOTS, Stage
from tracker import app
from tracker.core.book import Book
from tracker.core.summary import snapshot
from tracker.export.tables import TABLES, seen
from tracker.store import Reader
from tracker.store import health as store_health

pytestmark = pytest.mark.slow

READERS = 50
LOOKS = 3
FAR_US = 1_800_000_000_000_000


@contextmanager
def live(folder: Path, seconds: float) -> Iterator[tuple[Sidecar, threading.Event]]:
    """A sidecar beside a run that is written, rotated and rescheduled for so long; then the event is set."""
    stage = Stage(PLOTS[0], folder, seed=3)
    stage.configs()
    sidecar = Sidecar(folder, foresees=False)
    over = threading.Event()

    def write() -> None:
        try:
            stage.play(len(stage.todo), seconds)
        finally:
            over.set()

    writer = threading.Thread(target=write)
    try:
        sidecar.until(lambda: sidecar.url is not None, "to listen")
        stage.play(30, 0.1)
        sidecar.until(lambda: (sidecar.metric("training_step") or 0) > 0, "to show a step")
        writer.start()
        yield sidecar, over
        over.set()
        writer.join()
        assert sidecar.stop() == 0
    finally:
        sidecar.end()


class Crowd:
    """Readers of all kinds, each in a thread of its own, and what is wrong with what they saw."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "tracker.db"
        self.config = app.load_config(folder / "run.toml")
        self.faults: list[str] = []
        self.looks: Counter[str] = Counter()
        self._numbers = itertools.count()

    def facts(self) -> None:
        """Rows against the counts and positions that belong to them, all in one state that only grows."""
        with Reader(self.store) as reader:
            before = (0, 0)
            for _ in range(3):
                with reader.snapshot():
                    wrong = store_health._inconsistencies(reader._connection)
                    now = (reader.revision(), sum(one.readings for one in reader.reports()))
                    again = (reader.revision(), sum(one.readings for one in reader.reports()))
                if wrong or now != again or now < before:
                    self.faults.append(f"half a state: {wrong}, {before}, {now}, {again}")
                before = now

    def status(self) -> None:
        """A ledger that closes, and steps that are those of the readings of the same state."""
        with Reader(self.store) as reader, reader.snapshot():
            run = snapshot(Book(self.config.settings), reader, as_of_us=FAR_US)
            last = max(self._steps(reader), default=0)
        buckets = sum(value for name, value in run.wall_us.items() if name != "allocated")
        if buckets != run.wall_us["allocated"]:
            self.faults.append(f"the ledger does not close: {run.wall_us}")
        if (run.steps.last or 0) > last:
            self.faults.append(f"step {run.steps.last} of a state whose last record is of {last}")

    @staticmethod
    def _steps(reader: Reader) -> Iterator[int]:
        for stream in reader.streams():
            yield from (one.step for one in reader.readings(stream.stream_id))
            yield from (one.step for one in reader.events(stream.stream_id) if one.step is not None)

    def export(self) -> None:
        """A table with every reading of its state once."""
        with Reader(self.store) as reader, reader.snapshot():
            expected = sum(one.readings for one in reader.reports())
            rows = list(TABLES["readings"].rows(seen(self.config.settings, reader, as_of_us=FAR_US)))
        if len(rows) > expected:
            self.faults.append(f"{len(rows)} rows of {expected} readings")

    def backup(self) -> None:
        """A copy that is whole."""
        copy = self.folder / f"copy-{next(self._numbers)}.db"
        store_health.backup(self.store, copy)
        self.faults += [f"a backup: {fault}" for fault in store_health.check(copy)]

    def check(self) -> None:
        """`db check` finds nothing wrong with a store that is being written."""
        self.faults += [f"db check: {fault}" for fault in store_health.check(self.store)]

    def command(self, *words: str) -> None:
        """A command in a process of its own."""
        status, _, err = ask(self.folder, *words)
        if status != 0:
            self.faults.append(f"{words}: {err[-500:]}")

    def every(self, name: str, look: Callable[[], None], over: threading.Event) -> threading.Thread:
        """Look a few times, while it is written."""

        def go() -> None:
            for _ in range(LOOKS):
                try:
                    look()
                except Exception as error:
                    self.faults.append(f"{name}: {type(error).__name__}: {error}")
                self.looks[name] += 1
                if over.wait(1.0):
                    return

        thread = threading.Thread(target=go, name=name)
        thread.start()
        return thread


def test_fifty_readers_see_whole_states_only(tmp_path: Path) -> None:
    """Status, export, backup, check, report and scrapes beside the writing: no error, no fault."""
    with live(tmp_path, 4.0) as (sidecar, over):
        crowd = Crowd(tmp_path)
        looks: list[tuple[str, Callable[[], None]]] = [
            ("status --json", lambda: crowd.command("status", "--config", "run.toml", "--json")),
            ("report", lambda: crowd.command("report", "--config", "run.toml", "--out", "r.html")),
            ("scrape", lambda: _scraped(sidecar, crowd)),
        ]
        kinds = itertools.cycle([
            ("facts", crowd.facts),
            ("status", crowd.status),
            ("export", crowd.export),
            ("backup", crowd.backup),
            ("check", crowd.check),
        ])
        looks += itertools.islice(kinds, READERS - len(looks))
        threads = [crowd.every(name, look, over) for name, look in looks]
        for thread in threads:
            thread.join()
        sidecar.until(sidecar.caught_up, "to catch up")

    assert crowd.faults == []
    assert len(threads) == READERS
    assert set(crowd.looks) >= {"facts", "status", "export", "backup", "check", "report", "scrape"}
    assert store_health.check(crowd.store) == []


def _scraped(sidecar: Sidecar, crowd: Crowd) -> None:
    answer = sidecar.get("/metrics")
    if answer is None or answer[0] != 200 or "# TYPE training_net_tokens gauge" not in answer[1]:
        crowd.faults.append(f"/metrics: {answer}")
    time.sleep(0.05)
