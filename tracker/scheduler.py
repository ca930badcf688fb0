"""Periodic work: when a job is due, and how the last time went. The one module that knows APScheduler.

Edge. APScheduler only says *that* something is due; the sidecar's own loop does it, between two reads, so
that one thread writes and one thread checkpoints. A job that fails is logged, measured and tried again
the next time; it stops no other.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tracker.core.errors import TrackerError
from tracker.interfaces import Clock
from tracker.lean import without
from tracker.vitals import JobVitals

with without("asyncio", "concurrent.futures.process", "ssl"):
    from apscheduler.executors.debug import DebugExecutor
    from apscheduler.schedulers.background import BackgroundScheduler
    from apscheduler.triggers.cron import CronTrigger
    from apscheduler.triggers.interval import IntervalTrigger

_log = logging.getLogger(__name__)
_DEFAULTS: Final = {"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
"""A moment that was missed is made up for, once, however often it was missed."""
_ABRUPT_S: Final = 30.0


@dataclass(slots=True)
class _Job:
    name: str
    trigger: Any
    work: Callable[[], None]
    last_success_us: int | None = None
    last_duration_s: float | None = None
    failures: int = 0


class Jobs:
    """Named jobs, each with its own rhythm. Add them, `start`, then call `run_due` from the loop.

    `wake` is called, from another thread, when something becomes due.
    """

    def __init__(self, clock: Clock, *, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._jobs: dict[str, _Job] = {}
        self._due: deque[str] = deque()
        self._offset_s = self._wall_minus_steady()
        logging.getLogger("apscheduler").setLevel(logging.WARNING)
        self._scheduler = BackgroundScheduler(
            executors={"default": DebugExecutor()}, job_defaults=_DEFAULTS, timezone=dt.UTC, daemon=True
        )

    def every(self, name: str, seconds: float, work: Callable[[], None], *, at_once: bool = False) -> None:
        """Do something every so many seconds, the first time now or after one interval."""
        self._add(_Job(name, IntervalTrigger(seconds=seconds, timezone=dt.UTC), work))
        if at_once:
            self._due.append(name)

    def daily(self, name: str, at: dt.time, zone: dt.tzinfo, work: Callable[[], None]) -> None:
        """Do something once a day at a time of a zone. Whether the day still owes it, the work decides."""
        self._add(_Job(name, CronTrigger(hour=at.hour, minute=at.minute, timezone=zone), work))

    def start(self) -> None:
        """Begin to count."""
        self._scheduler.start()

    def stop(self) -> None:
        """Stop counting; a job that runs in the loop is not touched."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def run_due(self) -> bool:
        """Do what is due; tell whether there was anything."""
        self._mind_the_clock()
        some = False
        while self._due:
            some = True
            self._run(self._jobs[self._due.popleft()])
        return some

    def vitals(self) -> tuple[JobVitals, ...]:
        """Return how each job went the last time."""
        return tuple(
            JobVitals(
                name=job.name,
                last_success_us=job.last_success_us,
                last_duration_s=job.last_duration_s,
                failures=job.failures,
            )
            for job in self._jobs.values()
        )

    def _add(self, job: _Job) -> None:
        self._jobs[job.name] = job
        self._scheduler.add_job(
            self._call, trigger=job.trigger, args=[job.name], id=job.name, replace_existing=True
        )

    def _call(self, name: str) -> None:
        if name not in self._due:
            self._due.append(name)
        self._wake()

    def _run(self, job: _Job) -> None:
        began_s = self._clock.monotonic_s()
        try:
            job.work()
        except TrackerError as error:
            job.failures += 1
            _log.warning("job %s failed: %s", job.name, error)
        except Exception:
            job.failures += 1
            _log.exception("job %s failed", job.name)
        else:
            job.last_success_us = self._clock.now_us()
        job.last_duration_s = self._clock.monotonic_s() - began_s

    def _wall_minus_steady(self) -> float:
        return self._clock.now_us() / 1e6 - self._clock.monotonic_s()

    def _mind_the_clock(self) -> None:
        """Count anew where the wall clock was set: a job due at a moment of the old time would not come."""
        offset_s = self._wall_minus_steady()
        if abs(offset_s - self._offset_s) < _ABRUPT_S:
            return
        _log.warning("the clock was set by %+.0f s", offset_s - self._offset_s)
        self._offset_s = offset_s
        for job in self._jobs.values():
            self._scheduler.reschedule_job(job.name, trigger=job.trigger)
