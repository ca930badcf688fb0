"""Simulated runs for the forecast study: a world of its own, which the forecast's model does not assume.

Pure but for its random numbers. Nothing of tracker/core/forecast is imported here. A run is 256 to 16,384
GPUs for days to months, and what happens to it has other shapes than the model's:

    failures   Weibull gaps (shape 0.55-1.0) whose scale itself changes: early life, bad weeks (a two-state
               process), per-device rates log-uniform over the published range (Meta RSC-1 and RSC-2,
               Llama 3, Delta: 25,000 to 280,000 GPU-hours)
    cost       detection by kind (crash, hang, dead host), restarts that fail again, a queue, and a Pareto
               tail of long outages; redone work from where the last save really was
    rate       batch ramp at first (fewer tokens a second), slow drift either way, jumps (a new version, a
               slow node until it is found), hourly noise with memory
    planned    time limits that end jobs on the clock, maintenance days
    people     rollbacks on a loss spike, far below the last save

What comes out are records as a collector would give them, for the whole run; the forecaster gets them
through `Book.open(as_of)`.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from tracker.core.records import Event, Flag, Kind, Reading, SchedulerRow

S = 1_000_000
H = 3600.0
DAY = 86400.0
START_US = 1_767_225_600 * S
EXCLUDES = int(Flag.STEP_TIME_EXCLUDES)
SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9)
PLAIN = "plain"
FULL = "full"
FRAIL = "frail"


@dataclass(slots=True)
class StudyRun:
    """One run: its records by file, the scheduler's rows, and the truth."""

    name: str
    gpus: int
    target_tokens: int
    sequence: int
    files: dict[str, list[Reading | Event]]
    rows: list[SchedulerRow]
    start_us: int
    finish_us: int
    marks_us: dict[float, int]
    """When a reading first told that share of the target, whether those steps were kept or not."""
    kinds: frozenset[str]
    """ramp, drift, planned, rollback: what the run had."""


def study_run(seed: int, *, world: str = FULL) -> StudyRun:
    """Play one run. `world` PLAIN leaves out ramps, drift, planned stops and rollbacks.

    FRAIL has them, and stops that come as often as in young or buggy jobs: 3,000 to 25,000 GPU-hours apart.
    """
    return _World(seed, full=world != PLAIN, frail=world == FRAIL).play()


class _World:
    def __init__(self, seed: int, *, full: bool, frail: bool) -> None:
        self.seed, self.full = seed, full
        rng = self.rng = random.Random(f"forecast-study/{seed}")
        self.gpus = 2 ** rng.choice(range(8, 15))
        self.work_days = math.exp(rng.uniform(math.log(4), math.log(60)))
        low, high = (3e3, 25e3) if frail else (25e3, 280e3)
        device_h = math.exp(rng.uniform(math.log(low), math.log(high)))
        self.mtbf_s = max(device_h / self.gpus, 1.2) * H
        self.shape = rng.uniform(0.55, 1.0)
        self.early = rng.uniform(1.0, 3.0)
        self.early_days = rng.uniform(0.5, 6.0)
        self.bad = rng.uniform(1.5, 4.0)
        self.bad_until = -1.0
        self.next_bad = rng.expovariate(1 / (12 * DAY))
        self.detect = math.exp(rng.uniform(math.log(60), math.log(600)))
        self.startup = math.exp(rng.uniform(math.log(240), math.log(1800)))
        self.hang_s = rng.choice([600.0, 1800.0, 1800.0, 3600.0])
        self.queue = math.exp(rng.uniform(math.log(20), math.log(1200)))
        self.refail = rng.uniform(0.02, 0.2)
        self.outage_share = rng.uniform(0.002, 0.02)
        self.save_every = rng.choice([0.25, 0.5, 1.0, 1.0, 2.0, 3.0]) * H
        if self.mtbf_s < 6 * H:
            self.save_every = min(self.save_every, 0.5 * H)
        self.save_s = math.exp(rng.uniform(math.log(2), math.log(90)))
        self.eval_every = rng.choice([0.0, 2.0, 6.0, 12.0]) * H
        self.eval_s = rng.uniform(60, 600)
        kinds = set()
        self.ramp = 0.0
        self.drift = 0.0
        self.limit = 0.0
        self.maintain = 0.0
        self.rollbacks = 0.0
        if full:
            if rng.random() < 0.35:
                self.ramp, self.ramp_low = rng.uniform(0.01, 0.08), rng.uniform(0.45, 0.85)
                kinds.add("ramp")
            if rng.random() < 0.6:
                self.drift = rng.gauss(0, 0.05)
                kinds.add("drift")
            if rng.random() < 0.4:
                self.limit = rng.choice([24, 48, 72]) * H
                kinds.add("planned")
            if rng.random() < 0.35:
                self.maintain = rng.uniform(8, 30) * DAY
                kinds.add("planned")
            if rng.random() < 0.4:
                self.rollbacks = math.exp(rng.uniform(math.log(1 / 40), math.log(1 / 6)))  # a day
                kinds.add("rollback")
        self.kinds = frozenset(kinds)
        self.jump_every = math.exp(rng.uniform(math.log(4), math.log(40))) * DAY
        self.jump_sd = rng.uniform(0.005, 0.03)
        self.noise_sd = rng.uniform(0.002, 0.012)
        self.tokens_per_step = 4_194_304
        self.step_s = rng.uniform(2.0, 8.0)
        self.steps = max(200, round(self.work_days * DAY / self.step_s))
        self.level, self.jump_left = 0.0, rng.expovariate(1 / self.jump_every)
        self.ar = 0.0
        self.slow_left = 0.0
        self.slow = 0.0
        self.chunk_s = 0.5 * H

    def pace(self, share: float, seconds: float) -> float:
        """Return seconds a step for the next stretch."""
        rng = self.rng
        self.ar = 0.7 * self.ar + rng.gauss(0, self.noise_sd)
        self.jump_left -= seconds
        if self.jump_left < 0:
            self.level += rng.gauss(-0.15 * self.jump_sd, self.jump_sd)
            self.jump_left = rng.expovariate(1 / self.jump_every)
        self.slow_left -= seconds
        if self.slow_left < 0:
            self.slow = 0.0
            if rng.random() < seconds / (9 * DAY):
                self.slow, self.slow_left = rng.uniform(0.02, 0.15), rng.expovariate(1 / (14 * H))
        log = self.level + self.drift * share + self.ar + self.slow
        pace = self.step_s * math.exp(log)
        if self.ramp and share < self.ramp:
            pace /= self.ramp_low + (1 - self.ramp_low) * share / self.ramp
        return pace

    def gap(self, at_s: float) -> float:
        """Return the time to the next failure."""
        rng = self.rng
        while self.next_bad < at_s:
            self.bad_until = self.next_bad + rng.expovariate(1 / (3 * DAY))
            self.next_bad = self.bad_until + rng.expovariate(1 / (12 * DAY))
        mean = self.mtbf_s / (1 + (self.early - 1) * math.exp(-at_s / (self.early_days * DAY)))
        if at_s < self.bad_until:
            mean /= self.bad
        return max(rng.weibullvariate(mean / math.gamma(1 + 1 / self.shape), self.shape), 30.0)

    def pause(self) -> tuple[float, float]:
        """Return how long a failure goes unnoticed, and how long until the next launch."""
        rng = self.rng
        if rng.random() < 0.25:
            detect = self.hang_s * rng.uniform(1.0, 1.3)
        else:
            detect = rng.expovariate(1 / self.detect) + 15
        wait = rng.expovariate(1 / self.queue) + 10
        if rng.random() < self.outage_share:
            wait += min(2 * H * rng.paretovariate(1.1), 6 * DAY)
        return detect, wait

    def play(self) -> StudyRun:
        rng = self.rng
        files: dict[str, list[Reading | Event]] = {}
        rows: list[SchedulerRow] = []
        t, step, number = 0.0, 0, 0
        saved = [0]
        next_maintain = self.maintain * rng.uniform(0.3, 1.0) if self.maintain else math.inf
        next_rollback = rng.expovariate(self.rollbacks / DAY) if self.rollbacks else math.inf
        worked = 0.0
        reached: dict[float, float] = {}
        history: list[tuple[float, int]] = []  # (time, step) as readings had them, lineage cut on resume
        gpus = self.gpus
        since_save = since_eval = 0.0
        while step < self.steps:
            number += 1
            resume = saved[-1]
            step = resume
            history = [(a, s) for a, s in history if s <= resume]
            begun = t
            log: list[Reading | Event] = []
            ends = self.gap(t)
            startup = self.startup * math.exp(rng.gauss(0, 0.25))
            kind = "fail"
            dead = begun + startup + ends
            if number > 1 and rng.random() < self.refail:
                dead = begun + startup * rng.uniform(0.2, 0.9)
            if self.limit and dead > begun + self.limit:
                dead, kind = begun + self.limit, "limit"
            if dead > next_maintain > begun + startup:
                dead, kind = next_maintain, "maintain"
            roll = False
            if begun + 20 < dead:
                self._add(log, Kind.LAUNCH, begun + 20)
                self._add(log, Kind.SETTING, begun + 20, gpus=gpus)
            if begun + 0.8 * startup < dead:
                self._add(log, Kind.RESUME, begun + 0.8 * startup, step=resume)
            t = min(begun + startup, dead)
            since_save = since_eval = 0.0
            while t < dead and step < self.steps:
                pace = self.pace(step / self.steps, self.chunk_s)
                room = min(self.chunk_s, self.save_every - since_save)
                count = max(1, min(round(room / pace), self.steps - step))
                took = count * pace
                if t + took > dead:
                    done = int((dead - t) / pace)
                    t = dead
                    step += done  # executed, not told
                    break
                t += took
                step += count
                worked += took
                since_save += took
                since_eval += took
                log.append(
                    Reading(
                        100 * len(log), START_US + round(t * S), step, round(pace * S), flags=EXCLUDES,
                        tokens_per_step=self.tokens_per_step,
                    )
                )  # fmt: skip
                history.append((t, step))
                for share in SHARES:
                    if step >= share * self.steps:
                        reached.setdefault(share, t)
                if since_save >= self.save_every - pace or step == self.steps:
                    t += self.save_s
                    self._add(log, Kind.SAVE_END, t, step=step, duration_us=round(self.save_s * S))
                    saved.append(step)
                    since_save = 0.0
                if self.eval_every and since_eval >= self.eval_every:
                    took = self.eval_s * rng.uniform(0.9, 1.2)
                    t += took
                    self._add(log, Kind.EVAL_END, t, duration_us=round(took * S))
                    since_eval = 0.0
                if worked > next_rollback and len(saved) > 4:
                    next_rollback = worked + rng.expovariate(self.rollbacks / DAY)
                    roll, kind, dead = True, "operator", t
                    break
            files[f"train-{number}.log"] = log
            if step >= self.steps:
                self._add(log, Kind.COMPLETED, t)
                rows.append(self._row(number, begun, t + 30, "COMPLETED", gpus))
                break
            state = {"fail": "FAILED", "limit": "TIMEOUT", "maintain": "CANCELLED", "operator": "CANCELLED"}
            detect, wait = (5.0, rng.expovariate(1 / self.queue) + 10) if kind != "fail" else self.pause()
            if kind == "maintain":
                wait += rng.uniform(4, 14) * H
                next_maintain = t + self.maintain * rng.uniform(0.8, 1.2)
            if roll:
                wait += rng.expovariate(1 / (1.5 * H))
                back = rng.uniform(0.5, 14) * H
                target = step - back / self.step_s
                saved = [s for s in saved if s <= max(target, 0)] or [0]
            t = max(t, begun + 30) if kind == "fail" else t
            end = t + detect
            rows.append(self._row(number, begun, end, state[kind], gpus))
            t = end + wait
        return StudyRun(
            name=f"study-{self.seed}",
            gpus=self.gpus,
            target_tokens=self.steps * self.tokens_per_step,
            sequence=4096,
            files={name: log for name, log in files.items() if log},
            rows=rows,
            start_us=START_US,
            finish_us=START_US + round(history[-1][0] * S),
            marks_us={share: START_US + round(at * S) + S for share, at in reached.items()},
            kinds=self.kinds,
        )

    def _add(
        self, log: list[Reading | Event], kind: Kind, t: float, *, step: int | None = None,
        duration_us: int | None = None, **data: int,
    ) -> None:  # fmt: skip
        log.append(
            Event(
                offset=100 * len(log), kind=kind, at_us=START_US + round(t * S), step=step,
                duration_us=duration_us, data=data,
            )
        )  # fmt: skip

    def _row(self, number: int, begun: float, end: float, state: str, gpus: int) -> SchedulerRow:
        return SchedulerRow(
            job_id=str(1000 + number),
            start_us=START_US + round(begun * S),
            end_us=START_US + round(end * S),
            gpus=gpus,
            state=state,
            name="train",
        )
