"""What a perfect collector would read of a run: its facts without any text between.

Pure. For tests that need many runs fast, or a ledger without a collector. The stamps have the resolution
of the format (`sight.py`); offsets are made up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.simulator.machine import Attempt, Job, Run
from tests.simulator.sight import SIGHTS, Sight, logged
from tracker.core.records import Event, Flag, Kind, Reading, SchedulerRow

CAUSE_OF = {"node": None}
"""What a log can tell of a cause of the simulator where the names differ: a silent host tells nothing."""


@dataclass(slots=True)
class _Line:
    at_us: int
    order: int
    what: str
    step: int = 0
    attempt: Attempt | None = None
    duration_us: int | None = None
    asynchronous: bool = False


def observe(
    run: Run, *, until_us: int | None = None
) -> tuple[dict[str, list[Reading | Event]], list[SchedulerRow]]:
    """Return the records of every log file, by its name, and the scheduler's rows, as of a moment."""
    now = run.now_us if until_us is None else until_us
    look = SIGHTS[run.parameters.style]
    files: dict[str, list[Reading | Event]] = {}
    for attempt in run.attempts:
        name = log_name(run, attempt)
        own = files.setdefault(name, [])
        for record in _records(run, attempt, look, now):
            own.append(
                record._replace(offset=len(own) * 100)
                if isinstance(record, Reading)
                else _moved(record, len(own) * 100)
            )
    return {name: own for name, own in files.items() if own}, rows(run, until_us=now)


def rows(run: Run, *, until_us: int | None = None) -> list[SchedulerRow]:
    """Return the scheduler's rows as of a moment: a job that ends later is still running."""
    now = run.now_us if until_us is None else until_us
    if not run.parameters.scheduler:
        return []
    return [_scheduler_row(run, job, now) for job in run.jobs if job.start_us <= now]


def log_name(run: Run, attempt: Attempt) -> str:
    """Return the base name of the file that an attempt writes to."""
    if run.parameters.files == "per_attempt":
        first = next(a for a in run.attempts if a.job is attempt.job)
        return f"pretrain-{attempt.job.job_id}-{first.number:02d}.log"
    return "train.log"


def _scheduler_row(run: Run, job: Job, now: int) -> SchedulerRow:
    ended = job.end_us is not None and job.end_us <= now
    return SchedulerRow(
        job_id=job.job_id,
        start_us=job.start_us,
        end_us=job.end_us if ended else None,
        name="pretrain",
        state=job.state.split()[0] if ended else "RUNNING",
        submit_us=job.submit_us // 1_000_000 * 1_000_000,
        gpus=job.gpus,
        nodes=-(-job.gpus // run.parameters.gpus_per_node),
        exit_code=job.exit_code if ended else "0:0",
        comment=job.comment,
    )


def _moved(event: Event, offset: int) -> Event:
    return Event(
        offset=offset, kind=event.kind, at_us=event.at_us, step=event.step, duration_us=event.duration_us,
        data=event.data, text=event.text,
    )  # fmt: skip


def _stamp(at_us: int, resolution_us: int | None) -> int | None:
    return None if resolution_us is None else at_us // resolution_us * resolution_us


def _records(run: Run, a: Attempt, look: Sight, now: int) -> Iterator[Reading | Event]:
    for at_us, record in sorted(_timed(run, a, look), key=lambda pair: pair[0]):
        if at_us <= now:
            yield record


def _timed(run: Run, a: Attempt, look: Sight) -> Iterator[tuple[int, Reading | Event]]:
    """Yield (true time, record); equal times stay in the order of yielding."""
    p = run.parameters
    if a.first_line_us is None:
        return

    def event(kind: Kind, at_us: int, resolution: int | None, **more: object) -> tuple[int, Event]:
        return at_us, Event(offset=0, kind=kind, at_us=_stamp(at_us, resolution), **more)  # type: ignore[arg-type]

    if a.in_job:
        yield event(Kind.RESTART, a.start_us, look.event_us)
    first = a.first_line_us
    yield event(Kind.LAUNCH, first, look.event_us if look.first_line_timed else None)
    yield event(
        Kind.SETTING,
        first,
        None,
        data={
            "gpus": a.world,
            "sequence_length": p.sequence_length,
            "global_batch_size": p.batch,
            "log_interval": p.log_interval,
        },
    )
    for name, _, end in a.phases:
        if name == "init" or (name == "build" and look.build_timed):
            yield event(Kind.SIGN, end, look.event_us)
        elif name == "load":
            yield event(Kind.RESUME, end, look.event_us, step=a.resume_step)
    if a.train_us is not None:
        yield event(Kind.TRAIN_START, a.train_us, look.event_us)
    yield from readings(run, a, look)
    for block in a.blocks:
        took = block.end_us - block.start_us if block.end_us is not None else None
        more = {"async": True} if block.asynchronous else {}
        if block.kind == "save":
            saves = look.stamp_us if look.saves_timed else None
            yield event(Kind.SAVE_START, block.start_us, saves, step=block.step)
            if block.end_us is not None:
                yield event(Kind.SAVE_END, block.end_us, saves, step=block.step, duration_us=took, data=more)
            if block.asynchronous and block.durable_us is not None:
                yield event(Kind.SAVE_DURABLE, block.durable_us, saves, step=block.step)
        elif block.end_us is not None:
            known = took if look.evaluation_timed else None
            yield event(Kind.EVAL_END, block.end_us, None, step=block.step, duration_us=known)
    if a.gone_us is not None:
        yield from _end(a, look, event)


def _end(a: Attempt, look: Sight, event: object) -> Iterator[tuple[int, Event]]:
    assert a.gone_us is not None
    assert callable(event)
    if a.how == "done":
        yield event(Kind.COMPLETED, a.gone_us, look.event_us)
    elif a.how in ("exit_duration", "preempt_saved", "cancel_saved", "cancel", "limit", "preempt"):
        kind = "time_limit" if a.how == "exit_duration" else a.end_kind
        yield event(Kind.EXIT, a.gone_us, look.event_us, data={"end_kind": kind})
    elif a.how in ("crash", "hang") and a.cause is not None:
        yield event(Kind.FAILURE, a.gone_us, None, data={"cause": a.cause, "confidence": 0.9, "fatal": True})


def readings(run: Run, a: Attempt, look: Sight) -> Iterator[tuple[int, Reading]]:
    """Yield (true time, reading) for each training line of an attempt, in order."""
    p = run.parameters
    base = a.resume_step
    flags = int(Flag.STEP_TIME_EXCLUDES if look.excludes else Flag.STEP_TIME_INCLUDES)
    if look.stamp_us == 1_000_000:
        flags |= int(Flag.WHOLE_SECOND)
    since, since_us = base, a.train_us or 0
    spent, done = 0, base
    for step in logged(p, a, look):
        spent += sum(a.durations[done - base : step - base])
        done = step
        extra = look.extra_first and step == base + 1 and step % p.log_interval != 0
        end = a.ends[step - base - 1]
        elapsed = spent if look.excludes else end - since_us
        yield (
            end,
            Reading(
                0,
                _stamp(end, look.stamp_us),
                step,
                step_time_us=elapsed // (step - since),
                samples=a.samples[step - base - 1],
                batch=a.batches[step - base - 1],
                skipped=sum(1 for s in range(since + 1, step + 1) if s in a.skipped),
                flags=flags | (int(Flag.EXTRA) if extra else 0) | (int(Flag.NAN) if step in a.nan else 0),
            ),
        )
        if not extra:
            since, since_us, spent = step, end, 0
