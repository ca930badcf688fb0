"""The long-running loop of `tracker run`: read, store, bring the snapshot up to date, show it, wait.

Edge. One thread reads and writes; the server's threads only take what it left. Whatever fails is told on
the page and tried again: the numbers of the last good moment stay up meanwhile.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from tracker.answers import Answers
from tracker.config import Config
from tracker.core.errors import TrackerError
from tracker.core.facts import Facts
from tracker.core.forecast.value import Forecast
from tracker.core.records import Reading
from tracker.core.snapshot import Snapshot
from tracker.exporter import Exporter
from tracker.notify import notify
from tracker.scheduler import Jobs
from tracker.serve import Server
from tracker.vitals import Vitals

FRESH_S: Final = 5.0
"""A snapshot is made anew at least that often: time passes even where no line comes."""
SHARE: Final = 200.0
"""Between two snapshots passes at least this many times what one took: half a per cent of a core."""
_MOST_BETWEEN_S: Final = 30.0
_RETRY_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
_CHECKPOINT_S: Final = 300.0
FORECAST_S: Final = 900.0
"""Between two forecasts; the first is made once all sources were read."""
_FORECAST_RETRY_S: Final = 30.0
_LOOK_S: Final = 0.2
_LAST_S: Final = 0.3
"""How long is read on at most once told to stop."""
_STOP_EVERY: Final = 0xFFF
_log = logging.getLogger(__name__)


class Stopped(Exception):
    """The process was told to stop while something long went on."""


class SidecarClock(Protocol):
    """What the loop needs of a clock, besides `interfaces.Clock`."""

    @property
    def stopped(self) -> bool:
        """Whether the process has been told to stop."""
        ...

    def now_us(self) -> int:
        """Return wall time, microseconds since 1970, UTC."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds that never go back."""
        ...

    def cpu_s(self) -> float:
        """Return seconds that the calling thread has worked."""
        ...

    def wait(self, seconds: float) -> bool:
        """Sleep, or return True at once when told to stop, False when woken."""
        ...

    def wake(self) -> None:
        """End the present wait, or the next one."""
        ...


class Work(Protocol):
    """An open store with all that works on it; `app.open_work` makes one."""

    def read(self, *, enough: Callable[[], bool]) -> tuple[bool, str]:
        """Read a bounded amount and store it, less where `enough` says so in between; return whether there
        is more to read now, and why nothing could be stored, which may pass.

        Raises the store's other errors; then close this, and open a new one later.
        """
        ...

    def revision(self) -> int:
        """Return a number that grows with every change of the facts."""
        ...

    def snapshot(self, *, as_of_us: int, facts: Callable[[Facts], Facts]) -> Snapshot:
        """Return the run as the store has it; `facts` may stand between the store and the core."""
        ...

    def vitals(self) -> Vitals:
        """Return what is known of reading and storing."""
        ...

    def tidy(self) -> None:
        """Keep the store small: checkpoint its log."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class Outlook(Protocol):
    """Where forecasts come from; `tracker/outlook.py` asks a child process."""

    problem: str
    """Why the last one failed; empty where it did not."""

    @property
    def busy(self) -> bool:
        """Whether one is being made."""
        ...

    def begin(self, as_of_us: int) -> None:
        """Ask for the forecast of a moment; never waits."""
        ...

    def poll(self) -> Forecast | None:
        """Return one that was not there at the last call; never waits."""
        ...

    def close(self) -> None:
        """End what is under way."""
        ...


class Sidecar:
    """One run, followed until the clock says stop."""

    def __init__(
        self,
        config: Config,
        *,
        clock: SidecarClock,
        exporter: Exporter,
        render: Callable[[str, Snapshot | None, Vitals], str],
        open_work: Callable[[], Work],
        outlook: Outlook | None = None,
    ) -> None:
        """Put the parts together; without an outlook nothing is forecast. Raises ListenError."""
        run = config.settings.run
        self._clock = clock
        self._poll_s = config.poll_s
        self._open_work = open_work
        self._answers = Answers(run, exporter, render, clock=clock, linger_s=config.serve.linger_s)
        self._server = Server(config.serve.listen, self._answers, clock=clock)
        self._jobs = Jobs(clock, wake=clock.wake)
        self._jobs.every("checkpoint", _CHECKPOINT_S, self._tidy)
        self._outlook = outlook
        self._forecast: Forecast | None = None
        self._asked_s = float("-inf")
        self._store = config.store
        self._work: Work | None = None
        self._snapshot: Snapshot | None = None
        self._revision = -1
        self._snapshot_s: float | None = None
        self._made_s = 0.0
        self._read_all = False
        """Whether every source was read to its end once."""
        self._shown_all = False
        """Whether a snapshot was made after that."""
        self._store_errors = 0
        self._failed_in_a_row = 0
        self._problem = ""

    def run(self) -> None:
        """Serve and follow until told to stop. Raises what makes a start impossible."""
        self._server.start()
        try:
            _log.info("listening on http://%s/", self._server.listen)
            if not self._server.listen.is_loopback:
                _log.warning("listening on %s", self._server.listen.exposure)
            self._work = self._open_work()
            self._jobs.start()
            notify("READY=1")
            while not self._clock.stopped:
                if self._clock.wait(self._turn()):
                    break
            self._last_turn()
        except Stopped:
            pass
        finally:
            notify("STOPPING=1")
            self._jobs.stop()
            if self._outlook is not None:
                self._outlook.close()
            self._close_work()
            self._server.stop()

    def _turn(self) -> float:
        """Do one round; return how long to wait for the next one."""
        try:
            return self._round()
        except Stopped:
            raise
        except TrackerError as error:
            return self._fail(str(error))
        except Exception as error:
            _log.exception("a round failed")
            return self._fail(f"internal error, see the log: {type(error).__name__}: {error}")

    def _round(self) -> float:
        if self._work is None:
            self._work = self._open_work()
        work = self._work
        if self._snapshot is None:
            self._refresh(work)
            self._publish(work.vitals(), store_up=True)  # what is stored is there before anything is read
        more, problem = work.read(enough=lambda: self._clock.stopped)
        if self._clock.stopped:
            return 0.0
        if problem:
            return self._stumble(problem, work.vitals())
        self._read_all |= not more
        self._jobs.run_due()
        if self._due(work, more=more):
            self._refresh(work)
        looking = self._look_ahead()
        self._failed_in_a_row, self._problem = 0, ""
        self._publish(work.vitals(), store_up=True)
        notify("WATCHDOG=1")
        return 0.0 if more else min(self._poll_s, _LOOK_S) if looking else self._poll_s

    def _look_ahead(self) -> bool:
        """Take a forecast that is there, ask for the next where it is due; tell whether one is made now."""
        outlook = self._outlook
        if outlook is None or not self._shown_all:
            return False
        made = outlook.poll()
        if made is not None:
            self._forecast = made
        now_s = self._clock.monotonic_s()
        every_s = FORECAST_S if self._forecast is not None and not outlook.problem else _FORECAST_RETRY_S
        if not outlook.busy and now_s - self._asked_s >= every_s:
            self._asked_s = now_s
            outlook.begin(self._clock.now_us())
        return outlook.busy

    def _due(self, work: Work, *, more: bool) -> bool:
        since_s = self._clock.monotonic_s() - self._made_s
        apart_s = min(max(SHARE * (self._snapshot_s or 0.0), min(1.0, self._poll_s)), _MOST_BETWEEN_S)
        if since_s < apart_s or (more and since_s < FRESH_S):
            return self._read_all and not self._shown_all
        return since_s >= FRESH_S or work.revision() != self._revision

    def _refresh(self, work: Work) -> None:
        began_s = self._clock.cpu_s()
        revision = work.revision()
        self._snapshot = work.snapshot(as_of_us=self._clock.now_us(), facts=self._stoppable)
        self._made_s = self._clock.monotonic_s()
        self._snapshot_s = self._clock.cpu_s() - began_s
        self._revision = revision
        self._shown_all = self._read_all

    def _stoppable(self, facts: Facts) -> Facts:
        return _Stoppable(facts, lambda: self._clock.stopped)

    def _fail(self, problem: str) -> float:
        """Close everything after an error, to open it anew."""
        vitals = self._work.vitals() if self._work is not None else Vitals()
        self._close_work()
        return self._stumble(problem, vitals)

    def _stumble(self, problem: str, vitals: Vitals) -> float:
        """Keep the last numbers up, say what is wrong; return when to try again."""
        if problem != self._problem:
            _log.warning("%s", problem)
        self._problem = problem
        self._store_errors += 1
        self._publish(vitals, store_up=False)
        wait_s = _RETRY_S[min(self._failed_in_a_row, len(_RETRY_S) - 1)]
        self._failed_in_a_row += 1
        return wait_s

    def _publish(self, vitals: Vitals, *, store_up: bool) -> None:
        foreseen = self._outlook is None or self._forecast is not None
        ready = self._shown_all and self._snapshot is not None and foreseen
        unforeseen = self._outlook.problem if self._outlook is not None else ""
        why = ""
        if not ready:
            why = self._problem or ("the sources are being read" if not self._read_all else "no snapshot yet")
            if self._shown_all and not foreseen and not self._problem:
                why = unforeseen or "the first forecast is being made"
        snapshot = self._snapshot
        disk_free, disk_size = _disk(self._store.parent)
        self._answers.publish(
            snapshot and replace(snapshot, forecast=self._forecast),
            replace(
                vitals,
                ready=ready,
                why_not_ready=why,
                jobs=self._jobs.vitals(),
                snapshot_s=self._snapshot_s,
                store_up=store_up,
                store_errors=self._store_errors,
                store_bytes=_size(self._store),
                wal_bytes=_size(Path(f"{self._store}-wal")) or 0,
                disk_free_bytes=disk_free,
                disk_size_bytes=disk_size,
                problems=(*(problem for problem in (self._problem, unforeseen) if problem), *vitals.problems),
            ),
        )

    def _tidy(self) -> None:
        if self._work is not None:
            self._work.tidy()

    def _last_turn(self) -> None:
        """Take what the job wrote as it ended; what is too much for now is read at the next start."""
        if self._work is None or not self._read_all:
            return
        until_s = self._clock.monotonic_s() + _LAST_S
        try:
            self._work.read(enough=lambda: self._clock.monotonic_s() >= until_s)
        except TrackerError as error:
            _log.warning("%s", error)

    def _close_work(self) -> None:
        work, self._work = self._work, None
        if work is None:
            return
        try:
            work.close()
        except TrackerError as error:
            _log.warning("%s", error)


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
