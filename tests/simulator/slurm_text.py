"""The scheduler's word: `sacct --parsable2` as it would print at a moment.

Pure. Times are UTC without a zone, in whole seconds, as sacct prints local time. Steps (`.batch`,
`.extern`, `.0`) come with every job; another user's job is there too.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

from tests.simulator.machine import SECOND, Job, Run

HEADER: Final = (
    "JobID|JobName|User|State|ExitCode|Submit|Start|End|Elapsed|AllocTRES|NNodes|Reason|Comment|NodeList"
)


def sacct(run: Run, now_us: int) -> str:
    """Return the whole answer of sacct at a moment."""
    lines = [HEADER]
    for job in run.jobs:
        if job.submit_us <= now_us:
            lines += _job(run, job, now_us)
    return "\n".join(lines) + "\n"


def when(us: int | None) -> str:
    """Return a time as sacct prints it."""
    if us is None:
        return "Unknown"
    return dt.datetime.fromtimestamp(us // SECOND, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _job(run: Run, job: Job, now: int) -> list[str]:
    p = run.parameters
    nodes = -(-job.gpus // p.gpus_per_node)
    tres = f"billing={job.gpus * 16},cpu={nodes * 96},gres/gpu={job.gpus},mem={nodes}T,node={nodes}"
    submit = when(job.submit_us)
    if job.start_us > now:
        return [
            f"{job.job_id}|pretrain|trainer|PENDING|0:0|{submit}|Unknown|Unknown|00:00:00||{nodes}"
            f"|Resources||None assigned"
        ]
    ended = job.end_us is not None and job.end_us <= now
    end_us = job.end_us if ended else None
    state = job.state if ended else "RUNNING"
    code = job.exit_code if ended else "0:0"
    took = _elapsed((end_us if end_us is not None else now) - job.start_us)
    start, end = when(job.start_us), when(end_us)
    node = f"node-[0001-{nodes:04d}]"
    step_state = "CANCELLED" if state.startswith("CANCELLED") else state
    rest = f"{submit}|{start}|{end}|{took}"
    inner = f"{start}|{start}|{end}|{took}"
    return [
        f"{job.job_id}|pretrain|trainer|{state}|{code}|{rest}|{tres}|{nodes}|None|{job.comment}|{node}",
        f"{job.job_id}.batch|batch||{step_state}|{code}|{inner}"
        f"|cpu=96,gres/gpu={p.gpus_per_node},mem=1T,node=1|1|||node-0001",
        f"{job.job_id}.extern|extern||{'COMPLETED' if ended else 'RUNNING'}|0:0|{inner}"
        f"|{tres}|{nodes}|||{node}",
        f"{job.job_id}.0|python3||{step_state}|{code}|{inner}|{tres}|{nodes}|||{node}",
    ]


def _elapsed(us: int) -> str:
    minutes, seconds = divmod(us // SECOND, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    clock = f"{hours:02d}:{minutes:02d}:{seconds:02d}"
    return f"{days}-{clock}" if days else clock
