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
    owner: str
    name: str
    trigger: Any
    work: Callable[[], None]
    last_success_us: int | None = None
    last_duration_s: float | None = None
    failures: int = 0


class Jobs:
    """The jobs of all runs, each with its own rhythm. Add them by `of(run)`, and `start`.

    `wake` is called, from another thread, when something becomes due; `run_due` is for the loop.
    """

    def __init__(self, clock: Clock, *, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._jobs: dict[str, dict[str, _Job]] = {}
        self._due: dict[str, deque[str]] = {}
        self._offset_s = self._wall_minus_steady()
        logging.getLogger("apscheduler").setLevel(logging.WARNING)
        self._scheduler = BackgroundScheduler(
            executors={"default": DebugExecutor()}, job_defaults=_DEFAULTS, timezone=dt.UTC, daemon=True
        )

    def of(self, owner: str) -> RunJobs:
        """Return the jobs of one run, or of whoever this is."""
        self._jobs.setdefault(owner, {})
        self._due.setdefault(owner, deque())
        return RunJobs(self, owner)

    def start(self) -> None:
        """Begin to count."""
        self._scheduler.start()

    def stop(self) -> None:
        """Stop counting; a job that runs in the loop is not touched."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def add(self, owner: str, name: str, trigger: Any, work: Callable[[], None], *, at_once: bool) -> None:
        """Keep a job, and count its time from now on."""
        self._jobs[owner][name] = _Job(owner, name, trigger, work)
        self._scheduler.add_job(
            self._call, trigger=trigger, args=[owner, name], id=_id(owner, name), replace_existing=True
        )
        if at_once:
            self._due[owner].append(name)

    def forget(self, owner: str) -> None:
        """Let go of the jobs of one run."""
        for name in self._jobs.pop(owner, {}):
            self._scheduler.remove_job(_id(owner, name))
        self._due.pop(owner, None)

    def is_due(self, owner: str) -> bool:
        """Tell whether a job of this run waits to be done."""
        return bool(self._due.get(owner))

    def run_due(self, owner: str) -> bool:
        """Do what is due of one run; tell whether there was anything."""
        self._mind_the_clock()
        some = False
        while self._due[owner]:
            some = True
            self._run(self._jobs[owner][self._due[owner].popleft()])
        return some

    def vitals(self, owner: str) -> tuple[JobVitals, ...]:
        """Return how each job of one run went the last time."""
        return tuple(
            JobVitals(
                name=job.name,
                last_success_us=job.last_success_us,
                last_duration_s=job.last_duration_s,
                failures=job.failures,
            )
            for job in self._jobs.get(owner, {}).values()
        )

    def _call(self, owner: str, name: str) -> None:
        due = self._due.get(owner)
        if due is not None and name not in due:
            due.append(name)
        self._wake()

    def _run(self, job: _Job) -> None:
        began_s = self._clock.monotonic_s()
        try:
            job.work()
        except TrackerError as error:
            job.failures += 1
            _log.warning("%sjob %s failed: %s", _of(job.owner), job.name, error)
        except Exception:
            job.failures += 1
            _log.exception("%sjob %s failed", _of(job.owner), job.name)
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
        for jobs in self._jobs.values():
            for job in jobs.values():
                self._scheduler.reschedule_job(_id(job.owner, job.name), trigger=job.trigger)


class RunJobs:
    """The jobs of one run."""

    def __init__(self, jobs: Jobs, owner: str) -> None:
        self._jobs = jobs
        self._owner = owner

    def every(self, name: str, seconds: float, work: Callable[[], None], *, at_once: bool = False) -> None:
        """Do something every so many seconds, the first time now or after one interval."""
        trigger = IntervalTrigger(seconds=seconds, timezone=dt.UTC)
        self._jobs.add(self._owner, name, trigger, work, at_once=at_once)

    def daily(self, name: str, at: dt.time, zone: dt.tzinfo, work: Callable[[], None]) -> None:
        """Do something once a day at a time of a zone. Whether the day still owes it, the work decides."""
        trigger = CronTrigger(hour=at.hour, minute=at.minute, timezone=zone)
        self._jobs.add(self._owner, name, trigger, work, at_once=False)

    @property
    def due(self) -> bool:
        """Whether one waits to be done."""
        return self._jobs.is_due(self._owner)

    def run_due(self) -> bool:
        """Do what is due; tell whether there was anything."""
        return self._jobs.run_due(self._owner)

    def vitals(self) -> tuple[JobVitals, ...]:
        """Return how each job went the last time."""
        return self._jobs.vitals(self._owner)

    def stop(self) -> None:
        """Let go of them all."""
        self._jobs.forget(self._owner)


def _id(owner: str, name: str) -> str:
    return f"{owner}\0{name}"


def _of(owner: str) -> str:
    return f"{owner}: " if owner else ""
