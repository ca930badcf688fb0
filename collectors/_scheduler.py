"""What Slurm, submitit, Lightning, Kubernetes and the kernel's memory killer print into a job's log.

Pure. Stamps of slurmstepd are local time without a zone. `CANCELLED ... DUE TO TIME LIMIT` may follow a
success: it says how the allocation ended, not that the training failed. Tasks that end with Terminated
were told to, because another one failed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from collectors._clock import STAMP, stamp_us
from collectors._lines import Hit, Rule, rule
from collectors._trouble import MOST_COUNTED, leaving, trouble
from tracker.core.records import Kind, Record

_END_OF: Final = {
    "": "operator",
    "TIME LIMIT": "time_limit",
    "PREEMPTION": "preempted",
    "JOB REQUEUE": "operator",
}
_SAME_END_US: Final = 300_000_000


def _cancelled(hit: Hit) -> Iterable[Record]:
    """The step's line and the job's come both, and from several nodes: one end."""
    hit.done = True
    at = hit.group("at")
    at_us = stamp_us(at, hit.context) if at else None
    why = (hit.word("why") or "").partition(",")[0]
    said = hit.state.setdefault("cancelled", {})
    assert isinstance(said, dict)
    before = said.get(why)
    if why in said and (at_us is None or not isinstance(before, int) or abs(at_us - before) <= _SAME_END_US):
        return
    if len(said) < MOST_COUNTED:
        said[why] = at_us
    job = hit.word("job")
    if hit.state.get("job") != job:
        hit.state["job"] = job
        yield hit.event(Kind.SETTING, at_us=at_us, job_id=job)
    end = _END_OF.get(why, "failed")
    yield hit.event(Kind.EXIT, at_us=at_us, end_kind=end, cause=end if end != "failed" else "unknown")


_RROR: Final = b"rror"
_STEP: Final = rb"\*\*\* (?:JOB|STEP) (?P<job>\d{1,12})\S{0,32} (?:ON (?P<host>\S{1,64}) )?"
_TASKS: Final = rb"srun: error: (?P<host>[\w.-]{1,64}): tasks? (?P<rank>\d{1,7})[\d,-]{0,200}: "
_SIGNAL: Final = rb"Caught signal SIG\w{1,12} on \S{1,64}: this job is "

SCHEDULER: Final[tuple[Rule, ...]] = (
    rule(
        b"CANCELLED AT",
        _STEP
        + rb"CANCELLED AT (?P<at>"
        + STAMP
        + rb")(?: DUE TO (?P<why>[A-Z][A-Z ]{0,60}(?:, [^*]{0,60})?))? \*\*\*",
        _cancelled,
    ),
    trouble(
        b"MEMORY ERROR AT",
        _STEP + rb"UNCORRECTABLE MEMORY ERROR AT (?P<at>" + STAMP + rb")",
        "system_memory",
        0.8,
        within=_RROR,
        fatal=True,
    ),
    trouble(b"FAILED (non-zero", _STEP + rb"FAILED \(non-zero", "unknown", 0.1, within=_RROR, fatal=True),
    trouble(
        b"Node failure on",
        rb"error: Node failure on (?P<host>[\w.-]{1,64})",
        "unknown",
        0.5,
        within=_RROR,
        fatal=True,
    ),
    trouble(
        b"oom_kill event",
        rb"Detected \d{1,6} oom_kill event",
        "out_of_memory",
        0.9,
        within=_RROR,
        fatal=True,
    ),
    trouble(b"oom-kill", rb"oom-kill(?::constraint| event\(s\))", "out_of_memory", 0.9, fatal=True),
    trouble(
        b"Out of memory: Killed",
        rb"Out of memory: Killed process \d{1,10}",
        "out_of_memory",
        0.9,
        within=b"Killed",
        fatal=True,
    ),
    trouble(b"OOMKilled", rb"\bOOMKilled\b", "out_of_memory", 0.9, within=b"Killed", fatal=True),
    trouble(b": Out Of Memory", _TASKS + rb"Out Of Memory", "out_of_memory", 0.8, within=_RROR, fatal=True),
    trouble(b": Segmentation", _TASKS + rb"Segmentation fault", "software", 0.4, within=_RROR, fatal=True),
    trouble(b": Bus error", _TASKS + rb"Bus error", "software", 0.3, within=_RROR, fatal=True),
    trouble(
        b": Exited with exit code",
        _TASKS + rb"Exited with exit code \d",
        "unknown",
        0.2,
        within=_RROR,
        fatal=True,
    ),
    trouble(b": Killed", _TASKS + rb"Killed", "unknown", 0.2, within=_RROR, fatal=True),
    trouble(b": Aborted", _TASKS + rb"Aborted", "unknown", 0.1, within=_RROR, fatal=True),
    leaving(b"job is preempted", _SIGNAL + rb"preempted", "preempted", within=b": this job is "),
    leaving(b"job is timed-out", _SIGNAL + rb"timed-out", "time_limit", within=b": this job is "),
    leaving(b"requeued SLURM job", rb"requeued SLURM job \d", "time_limit"),
)
