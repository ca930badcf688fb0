"""The words of a generic JSON-lines log: the documented records of the `jsonl` collector, one a line.

Pure. Every line has a clock in UTC with microseconds; saves and evaluations say when they begin and end.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Iterator

from tests.simulator.machine import SECOND, Attempt, Run
from tests.simulator.records import CAUSE_OF, readings
from tests.simulator.sight import SIGHTS

Said = tuple[int, str]


def lines(run: Run, a: Attempt, rng: random.Random) -> Iterator[Said]:
    """Yield (moment, text) of all that an attempt prints; moments need not be in order."""
    p = run.parameters
    if a.first_line_us is None:
        return
    if a.in_job:
        yield _line("restart", a.start_us)
    else:
        yield _line("attempt", a.first_line_us, job_id=a.job.job_id)
    yield _line(
        "setting",
        a.first_line_us,
        gpus=a.world,
        sequence_length=p.sequence_length,
        tensor_parallel=p.tensor_parallel,
        log_interval=p.log_interval,
    )
    for name, _, end in a.phases:
        if name in ("init", "build"):
            yield _line("event", end, event="sign", text=f"{name} done")
        elif name == "load":
            resumed = {"samples": a.resume_samples} if a.resume_step else {}
            yield _line("event", end, event="resume", step=a.resume_step, **resumed)
    if a.train_us is not None:
        yield _line("event", a.train_us, event="train_start")
    yield from _work(run, a, rng)
    if a.gone_us is None:
        return
    if a.how == "done":
        yield _line("event", a.gone_us, event="completed")
    elif a.how in ("exit_duration", "preempt_saved", "cancel_saved", "cancel", "limit", "preempt"):
        yield _line("end", a.gone_us, end_kind=a.end_kind)
    elif a.how in ("crash", "hang") and CAUSE_OF.get(a.cause or "", a.cause) is not None:
        yield _line("event", a.gone_us, event="failure", cause=a.cause, fatal=True)


def _work(run: Run, a: Attempt, rng: random.Random) -> Iterator[Said]:
    for at_us, reading in readings(run, a, SIGHTS["jsonl"]):
        assert reading.step_time_us is not None
        yield _line(
            "reading",
            at_us,
            step=reading.step,
            tokens=(reading.samples or 0) * run.parameters.sequence_length,
            step_time_s=reading.step_time_us / 1e6,
            global_batch_size=reading.batch,
            skipped=reading.skipped,
            loss=round(2.0 + rng.random() / 10, 4),
        )
    for block in a.blocks:
        word = "checkpoint" if block.kind == "save" else "evaluation"
        yield _line("event", block.start_us, event=f"{word}_start", step=block.step)
        if block.end_us is not None:
            more = {"async": True} if block.asynchronous else {}
            yield _line("event", block.end_us, event=f"{word}_end", step=block.step, **more)
        if block.asynchronous and block.durable_us is not None:
            yield _line("event", block.durable_us, event="checkpoint_durable", step=block.step)


def _line(kind: str, at_us: int, **more: object) -> Said:
    moment = dt.datetime.fromtimestamp(at_us // SECOND, dt.UTC)
    stamp = f"{moment:%Y-%m-%dT%H:%M:%S}.{at_us % SECOND:06d}Z"
    return at_us, json.dumps({"kind": kind, "at": stamp, **more}) + "\n"
