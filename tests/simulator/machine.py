"""A training run as a state machine on a simulated clock: what really happened, to the microsecond.

Pure. Nothing here knows what a log line looks like; `sight.py` says what a log can tell of it, `truth.py`
what the ledger must say, and the writers turn it into text.

    queue -> allocation -> start-up phases -> step (evaluation, save, act of fate)* -> death -> detection
          -> restart inside the job, or the job's end and back to the queue

All times are integer microseconds since 1970, UTC. Allocations begin and end on whole seconds, as the
scheduler records them.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final

from tests.simulator.parameters import Act, Parameters

SECOND: Final = 1_000_000
_ENOUGH: Final = 5_000
"""Attempts: a run that needs more never makes progress."""


@dataclass(slots=True, kw_only=True)
class Job:
    """One allocation: a row of the scheduler."""

    job_id: str
    submit_us: int
    start_us: int
    end_us: int | None = None
    """None: still running when the observation ends."""
    gpus: int = 0
    """As allocated, hot spares included."""
    state: str = "RUNNING"
    exit_code: str = "0:0"
    comment: str = ""


@dataclass(slots=True, kw_only=True)
class Block:
    """A save or an evaluation: training waits from start to end."""

    kind: str
    """"save" or "eval"."""
    step: int
    start_us: int
    end_us: int | None = None
    """None: cut off by the process's death."""
    asynchronous: bool = False
    durable_us: int | None = None
    """When the checkpoint could be loaded again; None: never (or no save)."""


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One process: what it did and how it ended."""

    number: int
    """1, 2, 3 ... in order of time."""
    job: Job
    in_job: bool
    """Restarted inside its job: no new allocation."""
    start_us: int
    """The first line of the process, where in_job; else the start of the allocation."""
    world: int
    resume_step: int = 0
    resume_samples: int = 0
    phases: list[tuple[str, int, int]] = field(default_factory=list)
    """(name, start, end) of what was completed before the first step."""
    first_line_us: int | None = None
    """When the process first printed."""
    load_us: int | None = None
    """When the checkpoint was loaded (or was found missing)."""
    train_us: int | None = None
    """When the first step began."""
    ends: list[int] = field(default_factory=list)
    """End of step resume_step + 1 + i."""
    durations: list[int] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    """Samples consumed, over all attempts, after each step."""
    batches: list[int] = field(default_factory=list)
    skipped: set[int] = field(default_factory=set)
    """Steps whose update was dropped."""
    nan: set[int] = field(default_factory=set)
    """Steps whose loss was not a number."""
    blocks: list[Block] = field(default_factory=list)
    death_us: int | None = None
    """When progress stopped."""
    gone_us: int | None = None
    """When its processes were gone and the last line was printed."""
    end_us: int | None = None
    """End of its share of the allocation; None: still running when the observation ends."""
    end_kind: str | None = None
    """One of `tracker.core.records.END_KINDS`."""
    cause: str | None = None
    """What went wrong, by the names of `parameters.CAUSES`, or None."""
    how: str = ""
    """Which words the text needs: crash, hang, silent, exit_duration, sigterm, cancel, limit, done ..."""

    @property
    def last_step(self) -> int:
        """Return the last step that was executed, logged or not."""
        return self.resume_step + len(self.ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A simulated run, as far as it was observed."""

    parameters: Parameters
    attempts: tuple[Attempt, ...]
    jobs: tuple[Job, ...]
    now_us: int
    """The end of the observation."""
    inherited_samples: int


@dataclass(slots=True, kw_only=True)
class _Checkpoint:
    step: int
    samples: int
    attempt: int
    durable_us: int


@dataclass(slots=True)
class _End:
    """How an attempt ends, and what comes next."""

    how: str
    kind: str
    cause: str | None
    death_us: int
    detect_us: int
    in_job: bool = False
    state: str = "FAILED"
    exit_code: str = "1:0"
    act: Act | None = None


class _Machine:
    def __init__(self, parameters: Parameters) -> None:
        self.p = parameters
        self.random = random.Random(f"{parameters.preset}/{parameters.seed}")
        self.now = parameters.start_us
        self.horizon = (
            parameters.start_us + _us(parameters.horizon_s) if parameters.horizon_s is not None else None
        )
        self.world = parameters.gpus
        self.attempts: list[Attempt] = []
        self.jobs: list[Job] = []
        self.acts = list(parameters.acts)
        self.next_job = 48_211 + 7 * parameters.seed
        self.inherited = self._samples_of(parameters.inherited_steps)
        start = _Checkpoint(step=parameters.inherited_steps, samples=self.inherited, attempt=0, durable_us=0)
        self.checkpoints = [start]
        self.lineage = [start]
        """Checkpoints that lie on the branch as it stands, in order of steps."""

    # ------------------------------------------------------------------ small draws

    def _around(self, mean_s: float, spread: float) -> int:
        return _us(mean_s * math.exp(self.random.gauss(0.0, spread)))

    def _batch(self, samples: int) -> int:
        p = self.p
        if p.ramp_from is None or samples >= p.ramp_samples:
            return p.batch
        rungs = max((p.batch - p.ramp_from) // p.ramp_by, 1)
        return min(p.ramp_from + p.ramp_by * (samples * rungs // p.ramp_samples), p.batch)

    def _samples_of(self, steps: int) -> int:
        samples = 0
        for _ in range(steps):
            samples += self._batch(samples)
        return samples

    # ------------------------------------------------------------------ the run

    def run(self) -> Run:
        job: Job | None = None
        end: _End | None = None
        while len(self.attempts) < _ENOUGH:
            if self.horizon is not None and self.now >= self.horizon:
                break
            in_job = job is not None and end is not None and end.in_job
            if not in_job:
                job = self._allocate(job, end)
            assert job is not None
            attempt = self._launch(job, end, in_job=in_job)
            end = self._live(attempt, doomed=self._doomed(end))
            if end is None:
                break  # observed no further, or stalled for good
            self._finish(attempt, end)
            if end.how == "done":
                break
        else:
            raise ValueError(
                f"{_ENOUGH} attempts and still not done: make failures rarer or saves more frequent"
            )
        over = max((a.end_us or self.now) for a in self.attempts)
        now = self.horizon if self.horizon is not None else over + 3600 * SECOND
        return Run(
            parameters=self.p,
            attempts=tuple(self.attempts),
            jobs=tuple(self.jobs),
            now_us=now,
            inherited_samples=self.inherited,
        )

    def _doomed(self, end: _End | None) -> bool:
        return end is not None and end.kind == "failed" and self.random.random() < self.p.early_death_share

    def _allocate(self, before: Job | None, end: _End | None) -> Job:
        p, rng = self.p, self.random
        wait_s = p.queue_s * rng.paretovariate(1.7) * 0.4
        if before is not None and rng.random() < 0.1:
            wait_s = rng.uniform(1.0, 5.0)  # the next one was already waiting
        submit = self.now
        start = _ceil_second(submit + _us(wait_s))
        keep = before is not None and end is not None and end.kind in ("failed", "preempted")
        if keep and rng.random() < p.requeue_share:
            assert before is not None
            job_id = before.job_id
        else:
            job_id = str(self.next_job)
            self.next_job += rng.randint(1, 40)
        job = Job(job_id=job_id, submit_us=submit, start_us=start, gpus=self.world + p.spares)
        self.jobs.append(job)
        return job

    def _launch(self, job: Job, end: _End | None, *, in_job: bool) -> Attempt:
        p = self.p
        point = self._resume_from(end)
        if in_job:
            start = self.now + max(self._around(p.restart_s, p.startup_spread), SECOND)
        else:
            start = job.start_us
        attempt = Attempt(
            number=len(self.attempts) + 1,
            job=job,
            in_job=in_job,
            start_us=start,
            world=self.world,
            resume_step=point.step,
            resume_samples=point.samples,
        )
        if in_job:
            self.attempts[-1].end_us = start
        self.attempts.append(attempt)
        self.now = start
        return attempt

    def _resume_from(self, end: _End | None) -> _Checkpoint:
        act = end.act if end is not None else None
        if act is not None and act.what == "rollback":
            steps = [c.step for c in self.lineage]
            return self.lineage[max(bisect_right(steps, act.to_step) - 1, 0)]
        if act is not None and act.what == "rejoin":
            top = self.lineage[-1].step
            for point in reversed(self.checkpoints):  # the latest attempt that executed it
                if top < point.step <= act.to_step and point not in self.lineage:
                    return point
            raise ValueError(f"nothing to rejoin at or below step {act.to_step}")
        return self.lineage[-1]

    def _cut(self, point: _Checkpoint) -> None:
        """Make the branch that ends in a checkpoint the one that stands."""
        if point in self.lineage:
            del self.lineage[self.lineage.index(point) + 1 :]
            return
        branch = [point]
        while branch[0].attempt:
            attempt = self.attempts[branch[0].attempt - 1]
            own = [c for c in self.checkpoints if c.attempt == attempt.number and c.step < branch[0].step]
            branch = own + branch
            below = [
                c
                for c in self.checkpoints
                if c.attempt < attempt.number
                and (c.step, c.samples) == (attempt.resume_step, attempt.resume_samples)
            ]
            branch.insert(0, below[-1])
        self.lineage = branch

    # ------------------------------------------------------------------ one life

    def _live(self, attempt: Attempt, *, doomed: bool) -> _End | None:
        p, rng = self.p, self.random
        stop = self._fate(attempt)
        if doomed:
            whole = p.prolog_s + p.init_s + p.build_s + p.load_s
            strike = attempt.start_us + _us(rng.uniform(0.3, 0.9) * whole)
            if stop is None or strike < stop.death_us:
                stop = self._failure(strike, self._cause(in_start_up=True))
        point = self._point(attempt)
        t = attempt.start_us
        first = not attempt.in_job
        fresh = attempt.resume_step == 0
        phases = [
            ("prolog", p.prolog_s if first else 0.0),
            ("init", p.init_s),
            ("build", p.build_s),
            ("load", p.load_s * (0.1 if fresh else 1.0)),
            ("data", p.data_s),
        ]
        for name, mean_s in phases:
            took = self._around(mean_s, p.startup_spread) if mean_s else 0
            if stop is not None and t + took > stop.death_us:
                self.now = stop.death_us
                if attempt.first_line_us is None:  # nothing ran yet: nothing to restart, nobody to wait for
                    stop.in_job = False
                    if stop.how == "hang":
                        return self._failure(stop.death_us, "node")
                return stop
            if self.horizon is not None and t + took > self.horizon:
                return None
            attempt.phases.append((name, t, t + took))
            t += took
            if name == "prolog":
                attempt.first_line_us = t
            elif name == "load":
                attempt.load_us = t
                self._cut(point)
        attempt.train_us = t
        return self._train(attempt, t, stop)

    def _point(self, attempt: Attempt) -> _Checkpoint:
        wanted = (attempt.resume_step, attempt.resume_samples)
        for known in (self.lineage, self.checkpoints):
            for point in reversed(known):
                if (point.step, point.samples) == wanted:
                    return point
        raise AssertionError("resumed from nowhere")

    def _train(self, a: Attempt, t: int, stop: _End | None) -> _End | None:
        p, rng = self.p, self.random
        gauss, chance = rng.gauss, rng.random
        begin = a.first_line_us or t
        leave = begin + _us(p.exit_after_h * 3600) if p.exit_after_h is not None else None
        far = 2**62
        death = stop.death_us if stop is not None else far
        horizon = self.horizon if self.horizon is not None else far
        step, samples = a.resume_step, a.resume_samples
        slow_until = -1
        writing: list[Block] = []
        act = self.acts[0] if self.acts else None
        scale = p.step_s * SECOND * p.gpus / a.world / p.batch
        extra = self._around(p.first_step_s, 0.2)
        while step < p.total_steps:
            batch = self._batch(samples)
            took = scale * batch * (1.0 + p.drift * step / 1000.0) * max(gauss(1.0, p.noise), 0.5)
            if step >= slow_until and chance() < p.slow_share:
                slow_until = step + p.slow_steps
            if step < slow_until:
                took *= p.slow_factor
            duration = int(took) + extra
            extra = 0
            if t + duration > death:
                assert stop is not None
                self.now = death
                return stop
            t += duration
            step += 1
            samples += batch
            a.ends.append(t)
            a.durations.append(duration)
            a.samples.append(samples)
            a.batches.append(batch)
            if p.skip_share and chance() < p.skip_share:
                a.skipped.add(step)
            if p.nan_share and chance() < p.nan_share:
                a.nan.add(step)
            if writing and t >= writing[0].start_us + _us(p.async_block_s + p.async_write_s):
                self._durable(a, writing.pop(0), t)
            if t > horizon:
                return None
            done = step == p.total_steps
            if p.eval_interval and step % p.eval_interval == 0:
                t = self._block(a, "eval", step, t, death)
                if t < 0:
                    assert stop is not None
                    return stop
            due = act is not None and step == act.step
            orderly = due and act is not None and act.what in ("gpus", "maintenance", "preempt")
            over = leave is not None and t >= leave
            if step % p.save_interval == 0 or done or orderly or over:
                t = self._block(a, "save", step, t, death)
                if t < 0:
                    assert stop is not None
                    return stop
                block = a.blocks[-1]
                if block.asynchronous:
                    writing.append(block)
                else:
                    self._durable(a, block, t)
            if done or orderly or over:
                for block in writing:
                    t = max(t, block.start_us + _us(p.async_block_s + p.async_write_s))
                    self._durable(a, block, t)
            if done:
                return _End(
                    "done", "completed", None, t, self._teardown(), state="COMPLETED", exit_code="0:0"
                )
            if due:
                assert act is not None
                del self.acts[0]
                return self._act(act, t)
            if over:
                return _End(
                    "exit_duration",
                    "time_limit",
                    None,
                    t,
                    self._teardown(),
                    state="COMPLETED",
                    exit_code="0:0",
                )
        raise AssertionError("a run that starts at its end")

    def _block(self, a: Attempt, kind: str, step: int, t: int, death: int) -> int:
        """Add a block; return when training goes on, or -1 where the process dies in it."""
        p = self.p
        asynchronous = kind == "save" and p.asynchronous
        mean_s = p.eval_s if kind == "eval" else p.async_block_s if asynchronous else p.save_s
        took = self._around(mean_s, 0.1)
        block = Block(kind=kind, step=step, start_us=t, asynchronous=asynchronous)
        a.blocks.append(block)
        if t + took > death:
            self.now = death
            return -1
        block.end_us = t + took
        return t + took

    def _durable(self, a: Attempt, block: Block, t: int) -> None:
        block.durable_us = t
        point = _Checkpoint(
            step=block.step,
            samples=a.samples[block.step - a.resume_step - 1],
            attempt=a.number,
            durable_us=t,
        )
        self.checkpoints.append(point)
        self.lineage.append(point)

    def _finish(self, attempt: Attempt, end: _End) -> None:
        attempt.death_us = end.death_us
        attempt.gone_us = end.death_us + end.detect_us
        attempt.end_kind, attempt.cause, attempt.how = end.kind, end.cause, end.how
        self.now = attempt.gone_us
        if end.act is not None and end.act.what == "gpus":
            self.world = end.act.gpus
        if end.in_job:
            return  # the next launch sets the end
        job = attempt.job
        job.end_us = _ceil_second(attempt.gone_us)
        job.state, job.exit_code = end.state, end.exit_code
        if end.act is not None and end.act.what == "maintenance":
            job.comment = "maintenance"
        attempt.end_us = job.end_us
        self.now = job.end_us

    # ------------------------------------------------------------------ what goes wrong

    def _teardown(self) -> int:
        return self._around(9.0, 0.3)

    def _cause(self, *, in_start_up: bool = False) -> str:
        names = [n for n in self.p.causes if not (in_start_up and n in ("network", "nccl_watchdog"))]
        return self.random.choices(names, [self.p.causes[n] for n in names])[0]

    def _failure(self, at_us: int, cause: str, *, in_job: bool | None = None) -> _End:
        """Return the end that a failure of a cause brings."""
        p, rng = self.p, self.random
        if cause == "node":
            detect = self._around(p.node_timeout_s, 0.2)
            return _End("silent", "failed", "node", at_us, detect, state="NODE_FAIL", exit_code="0:0")
        stay = rng.random() < p.in_job_share if in_job is None else in_job
        if cause in ("network", "nccl_watchdog"):
            detect = _us(p.watchdog_s) + self._around(20.0, 0.3)
            return _End("hang", "failed", cause, at_us, detect, in_job=stay, exit_code="6:0")
        return _End("crash", "failed", cause, at_us, self._around(p.detect_s, 0.4), in_job=stay)

    def _fate(self, attempt: Attempt) -> _End | None:
        """Return what will end the attempt by chance or by limit, unless something else does before."""
        p, rng = self.p, self.random
        ends: list[_End] = []
        if p.mtbf_h is not None:
            mean = p.mtbf_h * 3600 / math.gamma(1 + 1 / p.failure_shape)
            strike = attempt.start_us + max(_us(rng.weibullvariate(mean, p.failure_shape)), SECOND)
            ends.append(self._failure(strike, self._cause()))
        if p.preempt_per_day:
            strike = attempt.start_us + _us(rng.expovariate(p.preempt_per_day / 86_400))
            ends.append(self._preempted(strike))
        end = min(ends, key=lambda e: e.death_us, default=None)
        if p.time_limit_h is None:
            return end
        limit = attempt.job.start_us + _us(p.time_limit_h * 3600)
        if end is None or end.death_us >= limit:
            return _End(
                "limit", "time_limit", None, limit, self._around(4.0, 0.3), state="TIMEOUT", exit_code="0:0"
            )
        if end.death_us + end.detect_us > limit:  # still hanging, or being noticed, when the limit came
            return _End(
                "limit",
                "time_limit",
                end.cause,
                end.death_us,
                limit - end.death_us,
                state="TIMEOUT",
                exit_code="0:0",
            )
        if end.in_job and end.death_us + end.detect_us + _us(4 * p.restart_s) > limit:
            end.in_job = False
        return end

    def _preempted(self, at_us: int) -> _End:
        return _End(
            "preempt",
            "preempted",
            "preempted",
            at_us,
            self._around(30.0, 0.1),
            state="PREEMPTED",
            exit_code="0:0",
        )

    def _act(self, act: Act, t: int) -> _End:
        """Return how an act ends the attempt that has just done its step."""
        soon = t + _us(self.p.step_s * self.random.uniform(0.2, 0.9))
        if act.what == "crash":
            end = self._failure(soon, act.cause, in_job=act.in_job)
        elif act.what == "hang":
            end = self._failure(soon, "nccl_watchdog", in_job=act.in_job)
        elif act.what == "silent":
            end = self._failure(soon, "node")
        elif act.what == "stall":
            end = _End("stall", "failed", None, soon, 400 * 86_400 * SECOND)
        elif act.what == "preempt":
            end = self._preempted(t)
            end.how = "preempt_saved"
        elif act.what in ("gpus", "maintenance"):
            kind = "operator" if act.what == "gpus" else "host_maintenance"
            end = _End(
                "cancel_saved", kind, None, t, self._teardown(), state="CANCELLED by 1001", exit_code="0:15"
            )
        else:
            end = _End(
                "cancel",
                "operator",
                None,
                soon,
                self._around(5.0, 0.3),
                state="CANCELLED by 1001",
                exit_code="0:0",
            )
        end.act = act
        return end


def simulate(parameters: Parameters) -> Run:
    """Play a run to its end, or to the end of the observation."""
    return _Machine(parameters).run()


def _us(seconds: float) -> int:
    return round(seconds * SECOND)


def _ceil_second(us: int) -> int:
    return -(-us // SECOND) * SECOND
