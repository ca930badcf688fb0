"""One run as the sidecar keeps it: read, store, bring the snapshot up to date, forecast, say so.

Edge. A member works only when it is visited, in the sidecar's own thread, a bounded slice at a time.
Whatever fails here is told on this run's page and tried again later; the numbers of the last good moment
stay up meanwhile, and no other run notices.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from tracker.answers import Shown
from tracker.config import Config
from tracker.core.errors import TrackerError
from tracker.core.facts import Facts
from tracker.core.records import Reading
from tracker.core.snapshot import Snapshot
from tracker.foresight import Foresight
from tracker.gate import Gate
from tracker.parts import Edges, RunNow, SidecarClock, Work
from tracker.scheduler import RunJobs
from tracker.vitals import Vitals

FRESH_S: Final = 5.0
"""A snapshot is made anew at least that often: time passes even where no line comes ..."""
FRESH_OF_MANY_S: Final = 15.0
"""... and where runs are many, a second later for each of them, up to this: an interval of scraping."""
FRESH_FINISHED_S: Final = 60.0
SHARE: Final = 200.0
"""Between two snapshots passes at least this many times what one took, with its page: half a per cent of a
core."""
SHARE_OF_MANY: Final = 50.0
"""Likewise for all runs together, where there are more than four: two per cent."""
_MOST_BETWEEN_S: Final = 30.0
_MOST_BETWEEN_OF_MANY_S: Final = 60.0
_RETRY_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
_CHECKPOINT_S: Final = 300.0
LOOK_S: Final = 0.2
"""How often something under way beside the reading is looked at."""
_STOP_EVERY: Final = 0xFFF
_log = logging.getLogger(__name__)


class Stopped(Exception):
    """The process was told to stop while something long went on."""


class Member:
    """One run. `visit` it when `due`; `close` it in the end."""

    def __init__(
        self,
        config: Config,
        edges: Edges,
        *,
        clock: SidecarClock,
        gate: Gate,
        jobs: RunJobs,
        publish: Callable[[Shown], None],
        known: bool = False,
    ) -> None:
        """Open nothing yet; `publish` takes what is to be shown of the run.

        `known`: it is shown already, by another config; that stands until there are new numbers.
        """
        self.config = config
        self.run = config.settings.run
        self._clock = clock
        self._open_work = edges.open_work
        self._foresight = (
            Foresight(edges.outlook, clock=clock, gate=gate) if edges.outlook is not None else None
        )
        self._parts = edges.parts
        self._jobs = jobs
        self._jobs.every("checkpoint", _CHECKPOINT_S, self._tidy, at_once=True)
        for part in self._parts:
            part.attend(self._jobs)
        self._publish_to = publish
        self._work: Work | None = None
        self._snapshot: Snapshot | None = None
        self._shown: Snapshot | None = None
        self._revision = -1
        self._snapshot_s: float | None = None
        self._made_s = 0.0
        self._made_cost_s = 0.0
        """Processor time of the last snapshot and of all that was made of it."""
        self._read_all = False
        """Whether every source was read to its end once."""
        self._shown_all = False
        """Whether a snapshot was made after that."""
        self._store_up = True
        self._store_errors = 0
        self._failed_in_a_row = 0
        self._problem = ""
        self._finished_s: float | None = None
        self._read_at_s = float("-inf")
        self._read_bytes = 0
        self.rest_cost_s = 0.0
        """Processor time of the last look that found nothing new."""
        self.neighbours = 0
        """How many other runs the process has."""
        self.between_s = 0.0
        """The least time between two looks; the sidecar sets it where runs are many."""
        self.leaves_s: float | None = None
        """When it goes, because its config is gone; None where it stays. Till then it is read and shown, and
        nothing is begun for it: whatever child would be sent could not read its config."""
        if not known:
            self._publish(Vitals(), ready=False, why="starting")

    # -- when ----------------------------------------------------------------------------------------

    @property
    def next_s(self) -> float:
        """When, on the steady clock, the next visit is due."""
        if self._busy:
            return min(self._read_at_s, self._clock.monotonic_s() + LOOK_S)
        return self._read_at_s

    @property
    def due(self) -> bool:
        """Whether a visit is worth while now."""
        return self._busy or self._reads

    @property
    def _reads(self) -> bool:
        """Whether the sources are to be looked at now: a periodic job is done between two reads."""
        return (self._store_up and self._jobs.due) or self._clock.monotonic_s() >= self._read_at_s

    @property
    def ready(self) -> bool:
        """Whether everything that is there was read, and the numbers shown are made of it, forecast too."""
        foreseen = self._foresight is None or self._foresight.latest is not None
        return self._shown_all and self._snapshot is not None and foreseen

    @property
    def _busy(self) -> bool:
        foresees = self._foresight is not None and self._foresight.wants
        return foresees or any(part.busy for part in self._parts)

    # -- what ----------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the store now; raises what is wrong with it."""
        self._work = self._open_work()

    def visit(self, *, most_s: float | None = None) -> None:
        """Do what is due; reading ends after `most_s`, and goes on at the next visit."""
        reads = self._reads
        wait_s = self._guarded(lambda: self._round(most_s) if reads else self._glance())
        if wait_s is not None:
            self._read_at_s = self._clock.monotonic_s() + wait_s

    def last_words(self, *, most_s: float) -> None:
        """Take what the job wrote as it ended; what is too much for now is read at the next start."""
        if self._work is None or not self._read_all:
            return
        until_s = self._clock.monotonic_s() + most_s
        try:
            self._work.read(enough=lambda: self._clock.monotonic_s() >= until_s)
        except TrackerError as error:
            _log.warning("%s: %s", self.run, error)

    def close(self) -> None:
        """End what is under way, and give everything back; what fails at that is said, and stops no other."""
        self._ending(self._jobs.stop)
        if self._foresight is not None:
            self._ending(self._foresight.close)
        for part in self._parts:
            self._ending(part.close)
        self._close_work()

    def _guarded(self, work: Callable[[], float | None]) -> float | None:
        try:
            return work()
        except Stopped:
            raise
        except TrackerError as error:
            return self._fail(str(error))
        except Exception as error:
            _log.exception("%s: a round failed", self.run)
            return self._fail(f"internal error, see the log: {type(error).__name__}: {error}")

    def _round(self, most_s: float | None) -> float:
        began_s, began_cpu_s = self._clock.monotonic_s(), self._clock.cpu_s()
        if self._work is None:
            self._work = self._open_work()
        work = self._work
        if self._snapshot is None:
            self._refresh(work)
            self._say(work.vitals())  # what is stored is there before anything is read
        more, problem = work.read(
            enough=lambda: (
                self._clock.stopped or (most_s is not None and self._clock.monotonic_s() - began_s >= most_s)
            )
        )
        if self._clock.stopped:
            return 0.0
        if problem:
            return self._stumble(problem, work.vitals())
        self._read_all |= not more
        self._jobs.run_due()
        rested = not self._due(work, more=more)
        refresh_cpu_s = self._clock.cpu_s()
        if not rested:
            self._refresh(work)
        self._failed_in_a_row, self._problem, self._store_up = 0, "", True
        self._look_around()
        vitals = work.vitals()
        self._say(vitals)
        if not rested:
            self._made_cost_s = self._clock.cpu_s() - refresh_cpu_s
        elif vitals.read_bytes == self._read_bytes:
            self.rest_cost_s = self._clock.cpu_s() - began_cpu_s
        self._read_bytes = vitals.read_bytes
        return 0.0 if more else max(self.config.poll_s, self.between_s)

    def _glance(self) -> None:
        """Look at what is under way beside the reading."""
        another = self._look_around()
        if another or (self._foresight is not None and not self._foresight.busy):
            self._say(self._work.vitals() if self._work is not None else Vitals())

    def _look_around(self) -> bool:
        """Give what goes on beside the reading its turn; tell whether another forecast came."""
        another = self._foresight is not None and self._foresight.turn(
            self._now(), revision=self._revision, runs=self.neighbours + 1
        )
        if another:
            self._compose()
        now = self._now()
        for part in self._parts:
            try:
                part.turn(now)
            except TrackerError as error:
                part.problem = str(error)
            except Exception as error:
                if not part.problem:
                    _log.exception("%s: a part of the run failed", self.run)
                part.problem = f"internal error, see the log: {type(error).__name__}: {error}"
        return another

    def _now(self) -> RunNow:
        return RunNow(
            as_of_us=self._moment_us(),
            snapshot=self._shown,
            settled=self._shown_all,
            store_up=self._store_up,
            leaving=self.leaves_s is not None,
        )

    def _due(self, work: Work, *, more: bool) -> bool:
        since_s = self._clock.monotonic_s() - self._made_s
        share = max(SHARE, SHARE_OF_MANY * (self.neighbours + 1))
        most_s = _MOST_BETWEEN_OF_MANY_S if share > SHARE else _MOST_BETWEEN_S
        apart_s = min(max(share * self._made_cost_s, min(1.0, self.config.poll_s)), most_s)
        if since_s < apart_s or (more and since_s < FRESH_S):
            return self._read_all and not self._shown_all
        fresh_s = min(FRESH_S + self.neighbours, FRESH_OF_MANY_S)
        if self._snapshot is not None and self._snapshot.state == "finished":
            fresh_s = FRESH_FINISHED_S
        return since_s >= fresh_s or work.revision() != self._revision

    def _refresh(self, work: Work) -> None:
        began_s = self._clock.cpu_s()
        revision = work.revision()
        self._snapshot = work.snapshot(as_of_us=self._moment_us(), facts=self._stoppable)
        self._made_s = self._clock.monotonic_s()
        self._snapshot_s = self._clock.cpu_s() - began_s
        self._revision = revision
        self._shown_all = self._read_all
        self._compose()

    def _stoppable(self, facts: Facts) -> Facts:
        return _Stoppable(facts, lambda: self._clock.stopped)

    def _moment_us(self) -> int:
        return self.config.moment_us(self._clock.now_us())

    # -- trouble -------------------------------------------------------------------------------------

    def _fail(self, problem: str) -> float:
        """Close everything after an error, to open it anew."""
        vitals = self._work.vitals() if self._work is not None else Vitals()
        self._close_work()
        return self._stumble(problem, vitals)

    def _stumble(self, problem: str, vitals: Vitals) -> float:
        """Keep the last numbers up, say what is wrong; return when to try again."""
        if problem != self._problem:
            _log.warning("%s: %s", self.run, problem)
        self._problem = problem
        self._store_up = False
        self._store_errors += 1
        self._look_around()
        self._say(vitals)
        wait_s = _RETRY_S[min(self._failed_in_a_row, len(_RETRY_S) - 1)]
        self._failed_in_a_row += 1
        return wait_s

    # -- what is shown -------------------------------------------------------------------------------

    def _compose(self) -> None:
        """Put snapshot and forecast together; only when one is new, so that faces can tell by identity."""
        latest = self._foresight.latest if self._foresight is not None else None
        self._shown = self._snapshot and replace(self._snapshot, forecast=latest)

    def _say(self, vitals: Vitals) -> None:
        unforeseen = self._foresight.problem if self._foresight is not None else ""
        ready, why = self.ready, ""
        if not ready:
            why = self._problem or ("the sources are being read" if not self._read_all else "no snapshot yet")
            if self._shown_all and not self._problem:
                why = unforeseen or "the first forecast is being made"
        disk_free, disk_size = _disk(self.config.store.parent)
        vitals = replace(
            vitals,
            jobs=self._jobs.vitals(),
            snapshot_s=self._snapshot_s,
            store_up=self._store_up,
            store_errors=self._store_errors,
            store_bytes=_size(self.config.store),
            wal_bytes=_size(Path(f"{self.config.store}-wal")) or 0,
            disk_free_bytes=disk_free,
            disk_size_bytes=disk_size,
        )
        for part in self._parts:
            vitals = part.told(vitals)
        own = (self._problem, unforeseen, *(part.problem for part in self._parts), *vitals.problems)
        problems = tuple(dict.fromkeys(problem for problem in own if problem))  # parts may find the same
        self._publish(replace(vitals, problems=problems), ready=ready, why=why)

    def _publish(self, vitals: Vitals, *, ready: bool, why: str) -> None:
        """Show this from now on. A run that finished stays on the metrics page for its linger time."""
        snapshot, now_s = self._shown, self._clock.monotonic_s()
        if snapshot is None or snapshot.state != "finished":
            self._finished_s = None
        elif self._finished_s is None:
            self._finished_s = now_s
        gone = self._finished_s is not None and now_s - self._finished_s > self.config.serve.linger_s
        vitals = replace(vitals, ready=ready, why_not_ready=why)
        self._publish_to(Shown(run=self.run, snapshot=snapshot, vitals=vitals, lingers=not gone))

    # -- the store -----------------------------------------------------------------------------------

    def _tidy(self) -> None:
        if self._work is not None:
            self._work.tidy()

    def _close_work(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            self._ending(work.close)

    def _ending(self, close: Callable[[], None]) -> None:
        """Close one thing; whatever is wrong with it."""
        try:
            close()
        except TrackerError as error:
            _log.warning("%s: %s", self.run, error)
        except Exception:
            _log.exception("%s: something was not closed well", self.run)


class _Stoppable:
    """Facts whose long readings end when the process is told to stop."""

    def __init__(self, facts: Facts, stopped: Callable[[], bool]) -> None:
        self._facts = facts
        self._stopped = stopped
        self.streams = facts.streams
        self.scheduler_rows = facts.scheduler_rows
        self.events = facts.events
        self.corrections = facts.corrections

    def readings(self, stream_id: int, *, start: int = 0, end: int | None = None) -> Iterator[Reading]:
        """Yield the readings; raise Stopped in between."""
        for number, reading in enumerate(self._facts.readings(stream_id, start=start, end=end)):
            if not number & _STOP_EVERY and self._stopped():
                raise Stopped
            yield reading


def _disk(path: Path) -> tuple[int | None, int | None]:
    """Return what is free, and the whole, of a file system, for this user; bytes."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None, None
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


def _size(path: Path) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:
        return None
