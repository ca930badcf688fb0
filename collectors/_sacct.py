"""One job as sacct tells it: which fields say what, and what to believe where they disagree.

Pure. A job is a mapping from field names (lower case) to text; the JSON output is turned into the same.

What is believed:
- A job without a start, a pending one and a step (`.batch`, `.extern`, `.0`) is no allocation. A job that
  was cancelled while it waited has a start in older Slurm, but no node and no time: `data["never_ran"]`.
- The end is start + elapsed + suspended where the job is over and sacct gives an elapsed time. It is what
  sacct bills; the printed end is missing after some node failures, is later than that for requeued jobs,
  and is ambiguous in the hour that a clock is set back. A printed end that differs is kept in `data`.
- GPUs are what was allocated (AllocTRES, else AllocGRES); what was asked for counts only where the
  output has no allocated field at all. ReqGRES is for each node, the others are totals.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Final

from tracker.core.records import EARLIEST_US, LATEST_US, Json, SchedulerRow

UNFINISHED: Final = frozenset({
    "RUNNING",
    "SUSPENDED",
    "COMPLETING",
    "CONFIGURING",
    "RESIZING",
    "STAGE_OUT",
    "SIGNALING",
    "STOPPED",
})
_WAITING: Final = frozenset({"PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
_NOTHING: Final = frozenset({"", "none", "unknown", "n/a", "(null)", "invalid", "none assigned"})
_DURATION: Final = re.compile(r"(?:([0-9]{1,6})-)?(?:([0-9]{1,6}):)?([0-9]{1,6}):([0-9]{1,2})(?:\.[0-9]+)?")
_ISO: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([+-][0-9]{2}:?[0-9]{2}|Z)?"
)
_GPU_TRES: Final = re.compile(r"(?:^|,)gres/gpu(?::[^=,]*)?=([0-9]{1,9})(?=,|$)")
_GPU_TOTAL: Final = re.compile(r"(?:^|,)gres/gpu=([0-9]{1,9})(?=,|$)")
_GPU_GRES: Final = re.compile(
    r"(?:^|,)(?:gres/|gres:)?gpu(?::[A-Za-z][^:,()=]*)?(?:[:=]([0-9]{1,9}))?(?:\([^)]*\))?(?=,|$)"
)
_NODE_TRES: Final = re.compile(r"(?:^|,)node=([0-9]{1,9})(?=,|$)")
_CANCELLED_BY: Final = re.compile(r"CANCELLED by (\S+)", re.I)


class Unusable(ValueError):
    """A row that is ours and cannot be used; its text is the reason."""


def allocation(job: Mapping[str, str], zone: dt.tzinfo) -> SchedulerRow | None:
    """Return the allocation that a row describes; None if there was none. Raises Unusable."""
    shown, raw = job.get("jobid", "").strip(), job.get("jobidraw", "").strip()
    if not (shown or raw):
        raise Unusable("row without a job id")
    if "." in shown or "." in raw or "[" in shown:
        return None
    state, by = _state(job.get("state", ""))
    start_us = _start(job, zone)
    if start_us is None or state in _WAITING:
        return None
    end_us, recorded_us = _end(job, state, start_us, zone)
    nodes = _nodes(job)
    return SchedulerRow(
        job_id=raw or shown.removesuffix("+0"),
        start_us=start_us,
        end_us=end_us,
        name=job.get("jobname", "")[:200],
        state=state,
        submit_us=time_us(job.get("submit", ""), zone),
        gpus=_gpus(job, nodes),
        nodes=nodes,
        exit_code=job.get("exitcode", "")[:40],
        reason=_word(job.get("reason", "")),
        comment="; ".join(filter(None, (_word(job.get(k, "")) for k in _COMMENTS))),
        data=_data(job, shown, by, recorded_us),
    )


_COMMENTS: Final = ("comment", "admincomment", "systemcomment")
_KEPT: Final = {
    "partition": "partition",
    "nodelist": "node_list",
    "cluster": "cluster",
    "restarts": "restarts",
}


def _data(job: Mapping[str, str], shown: str, by: str, recorded_us: int | None) -> dict[str, Json]:
    data: dict[str, Json] = {ours: word for key, ours in _KEPT.items() if (word := _word(job.get(key, "")))}
    for ours, keys in (("elapsed_s", ("elapsed", "elapsedraw")), ("limit_s", ("timelimit",))):
        if (found := _first_duration(job, keys)) is not None:
            data[ours] = found
    array, _, task = shown.partition("_")
    if task:
        data["array_job_id"], data["array_task_id"] = array, task
    het, _, part = shown.partition("+")
    if part:
        data["het_job_id"], data["het_offset"] = het, part
    if by:
        data["cancelled_by"] = by
    if _never_ran(job):
        data["never_ran"] = True
    if recorded_us is not None:
        data["recorded_end_us"] = recorded_us
    return data


def _end(job: Mapping[str, str], state: str, start_us: int, zone: dt.tzinfo) -> tuple[int | None, int | None]:
    """Return the end, and the printed one where it differs."""
    if state in UNFINISHED:
        return None, None
    printed_us = time_us(job.get("end", ""), zone)
    elapsed_s = _first_duration(job, ("elapsed", "elapsedraw"))
    end_us = printed_us
    if elapsed_s is not None:
        end_us = start_us + (elapsed_s + (_first_duration(job, ("suspended",)) or 0)) * 1_000_000
    if end_us is not None and end_us < start_us:
        raise Unusable("end before start")
    if end_us is not None and end_us >= LATEST_US:
        raise Unusable("time stamp outside 2000..2100")
    return end_us, printed_us if printed_us != end_us else None


def _start(job: Mapping[str, str], zone: dt.tzinfo) -> int | None:
    """Return the start; where the clock was set back, the one of the two that end - elapsed tells."""
    first_us = time_us(job.get("start", ""), zone)
    second_us = time_us(job.get("start", ""), zone, fold=1)
    if first_us is None or second_us is None or first_us == second_us:
        return first_us
    elapsed_s = _first_duration(job, ("elapsed", "elapsedraw"))
    for fold in (0, 1):
        end_us = time_us(job.get("end", ""), zone, fold=fold)
        if end_us is not None and elapsed_s is not None and end_us - elapsed_s * 1_000_000 == second_us:
            return second_us
    return first_us


def _never_ran(job: Mapping[str, str]) -> bool:
    nowhere = job.get("allocnodes", "") == "0" or job.get("nodelist", "").lower() == "none assigned"
    return nowhere and not _first_duration(job, ("elapsed", "elapsedraw"))


def _state(text: str) -> tuple[str, str]:
    """Return the state without its tail, and who cancelled.

    >>> _state("CANCELLED by 32874"), _state("NODE_FAIL"), _state("CANCELLED+")
    (('CANCELLED', '32874'), ('NODE_FAIL', ''), ('CANCELLED', ''))
    """
    by = _CANCELLED_BY.match(text.strip())
    return (text.upper().split() or [""])[0].rstrip("+")[:40], by[1][:40] if by else ""


def time_us(text: str, zone: dt.tzinfo, *, fold: int = 0) -> int | None:
    """Return a moment; text without a zone is local to `zone`. None for None, Unknown and 0.

    Raises Unusable for what is no time, or one outside 2000..2100.
    """
    text = text.strip()
    if text.lower() in _NOTHING or text == "0":
        return None
    if text.isascii() and text.isdigit() and len(text) < 12:
        at_us = int(text) * 1_000_000
    elif _ISO.fullmatch(text):
        try:
            moment = dt.datetime.fromisoformat(text)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone, fold=fold)
            at_us = (moment - _EPOCH) // dt.timedelta(microseconds=1)
        except (ValueError, OverflowError):
            raise Unusable("a time that cannot be read") from None
    else:
        raise Unusable("a time that cannot be read")
    if not EARLIEST_US <= at_us < LATEST_US:
        raise Unusable("time stamp outside 2000..2100")
    return at_us


_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def duration_s(text: str) -> int | None:
    """Return seconds of [DD-[HH:]]MM:SS[.mmm] or of plain seconds; None for anything else.

    >>> [duration_s(t) for t in ("1-02:03:04", "00:20:32", "20:32", "00:00.001", "16637", "UNLIMITED")]
    [93784, 1232, 1232, 0, 16637, None]
    """
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) < 12:
        return int(text)
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _first_duration(job: Mapping[str, str], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        if (found := duration_s(job.get(key, ""))) is not None:
            return found
    return None


def _gpus(job: Mapping[str, str], nodes: int | None) -> int | None:
    allocated = job.get("alloctres", "") or job.get("allocgres", "")
    if allocated or "alloctres" in job or "allocgres" in job:
        return gpus_of(job.get("alloctres", "")) or gpus_of(job.get("allocgres", ""))
    asked = gpus_of(job.get("reqtres", ""))
    if asked is None and (each := gpus_of(job.get("reqgres", ""))) is not None:
        asked = each * (nodes or 1)
    return asked


def gpus_of(text: str) -> int | None:
    """Return the GPUs in a TRES or GRES text: the total, else the sum over types; None where none stand.

    >>> gpus_of("cpu=64,gres/gpu:h100=16,gres/gpu=16,node=2"), gpus_of("gres/gpu:a100=4,gres/gpu:h100=8")
    (16, 12)
    >>> gpus_of("gpu:8"), gpus_of("gpu:h100:4"), gpus_of("gpu"), gpus_of("cpu=4,mem=1G")
    (8, 4, 1, None)
    """
    total = _GPU_TOTAL.search(text) or None
    counts = [int(total[1])] if total else [int(n) for n in _GPU_TRES.findall(text)]
    counts = counts or [int(n or 1) for n in _GPU_GRES.findall(text)]
    return sum(counts) or None


def _nodes(job: Mapping[str, str]) -> int | None:
    for key in ("allocnodes", "nnodes"):
        text = job.get(key, "").strip()
        if text.isascii() and text.isdigit():
            return int(text[:9])
    found = _NODE_TRES.search(job.get("alloctres", ""))
    return int(found[1]) if found else None


def _word(text: str) -> str:
    text = text.strip()
    return "" if text.lower() in _NOTHING else text[:500]
