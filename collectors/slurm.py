"""Slurm accounting: `sacct --parsable2` in any order of fields, and `sacct --json`.

Pure. The whole output is read each time, from a file or a command. This module finds rows and names
their fields; `_sacct` knows what they mean.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from collectors._numbers import storable
from collectors._options import between, checked, columns
from collectors._sacct import Unusable, allocation
from tracker.core.records import Record, Reject, SchedulerRow
from tracker.interfaces import Collector, Context, Evidence

KNOWN_ORDER: Final = (
    "state", "jobid", "reqcpus", "reqmem", "reqnodes", "constraints", "submit", "eligible", "start",
    "elapsed", "suspended", "end", "exitcode", "derivedexitcode", "allocnodes", "ncpus", "maxdiskread",
    "maxdiskwrite", "maxpages", "maxrss", "maxvmsize", "cputime", "usercpu", "systemcpu", "totalcpu",
    "partition",
)  # fmt: skip
"""The order of a widely used parser's `--noheader` call; its last field may be absent."""

_DELIMITERS: Final = ("^|^", "|", "\t", ";", ",")
_LINE_BYTES: Final = 64 * 1024


def parse(block: bytes, context: Context) -> Iterable[Record]:
    """Return the allocations of one sacct output, one for each (job id, start)."""
    text = block.removeprefix(b"\xef\xbb\xbf").lstrip()
    found: dict[tuple[str, int], SchedulerRow] = {}
    rejects: list[Record] = []
    rows = _documents(text) if text[:1] in (b"{", b"[") else _table(block, context)
    for offset, line, job in rows:
        if isinstance(job, str):
            rejects.append(Reject(offset, line[:200], job))
            continue
        try:
            row = allocation(job, context.zone)
        except Unusable as reason:
            rejects.append(Reject(offset, line[:200], str(reason)))
            continue
        if row is not None:
            found.pop((row.job_id, row.start_us), None)  # the later row of one allocation knows more
            found[row.job_id, row.start_us] = row
    return [*rejects, *found.values()]


Row = tuple[int, bytes, Mapping[str, str] | str]
"""Where it stands, its bytes, and its fields or why there are none."""


# -- the table ---------------------------------------------------------------------------------------


def _table(block: bytes, context: Context) -> Iterable[Row]:
    delimiter = context.options.get("delimiter")
    names = _option_fields(context.options.get("fields"))
    split = delimiter if isinstance(delimiter, str) and delimiter else None
    offset, told = context.offset, False
    for line in block.split(b"\n"):
        here, offset = offset, offset + len(line) + 1
        text = line[:_LINE_BYTES].decode("utf-8", "replace").strip("\r\ufeff")
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        if text.startswith(("sacct: ", "slurm_", "Slurm accounting storage is disabled")):
            yield here, line, "sacct reports an error"
            continue
        split = split or _delimiter(text)
        cells = [cell.strip() for cell in text.split(split)]
        if _is_header(cells):
            names = [cell.lower().partition("%")[0] for cell in cells]
            told = False
            continue
        fields = names or _known(cells)
        if fields is None:
            yield here, line, "no header, and not the known order of fields"
        elif "start" not in fields:
            if not told:
                yield here, line, "no Start among the fields: ask sacct for it"
            told = True
        else:
            yield here, line, _cells(fields, cells)


def _cells(fields: Sequence[str], cells: Sequence[str]) -> Mapping[str, str] | str:
    """Name the cells; --parsable ends a row with one more delimiter."""
    if len(cells) == len(fields) + 1 and not cells[-1]:
        cells = cells[:-1]
    least = len(fields) - (fields is KNOWN_ORDER)
    if "constraints" in fields and len(cells) > least:
        cells = _constraints_joined(fields, cells, least)
    if len(cells) < least:
        return "fewer fields than there should be"
    if len(cells) > len(fields):
        return "more fields than there should be"
    return dict(zip(fields, cells, strict=False))


def _constraints_joined(fields: Sequence[str], cells: Sequence[str], least: int) -> Sequence[str]:
    """Put `a100|h100` together again: the features of a constraint are joined by the delimiter itself."""
    at = list(fields).index("constraints")
    after = next((i for i, name in enumerate(fields) if i > at and name in _TIMES), None)
    for more in range(len(cells) - least + 1):
        joined = [*cells[:at], "|".join(cells[at : at + more + 1]), *cells[at + more + 1 :]]
        if len(joined) <= len(fields) and (after is None or _TIME.match(joined[after])):
            return joined
    return cells


_TIMES: Final = ("submit", "eligible", "start", "end")
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-|[0-9]{9,11}$|Unknown$|None$|$")


def _known(cells: Sequence[str]) -> Sequence[str] | None:
    """Return the known order, if a row without a header has its look."""
    return (
        KNOWN_ORDER
        if 20 <= len(cells) <= 40 and cells[0].strip("+ ").replace("_", "")[:1].isupper()
        else None
    )


def _is_header(cells: Sequence[str]) -> bool:
    names = {cell.lower().partition("%")[0] for cell in cells}
    return bool(names & {"jobid", "jobidraw"}) and bool(
        names & {"state", "start", "end", "elapsed", "submit"}
    )


def _delimiter(text: str) -> str:
    for delimiter in _DELIMITERS:
        if delimiter in text:
            return delimiter
    return "|"


def _option_fields(option: object) -> list[str] | None:
    """Return the names of `fields`: a list, or one text as it was given to `sacct --format`."""
    if isinstance(option, str):
        option = option.split(",")
    if not isinstance(option, Sequence) or not option:
        return None
    return [str(name).strip().lower().partition("%")[0] for name in option]


# -- JSON --------------------------------------------------------------------------------------------


def _documents(text: bytes) -> Iterable[Row]:
    """Yield the jobs of every JSON document in the output (several calls may be appended)."""
    loose, rest = json.JSONDecoder(), text.decode("utf-8", "replace")
    while rest:
        try:
            body, end = loose.raw_decode(rest)
        except (ValueError, RecursionError):
            yield 0, rest[:200].encode(), "torn JSON"
            return
        rest = rest[end:].lstrip()
        jobs = body.get("jobs") if isinstance(body, dict) else body
        if not isinstance(jobs, list):
            yield 0, text[:200], "JSON without a list of jobs"
            continue
        for job in jobs:
            if isinstance(job, dict):
                yield 0, _text(job.get("job_id")).encode(), _fields(job)
            else:
                yield 0, b"", "a job that is no object"


def _fields(job: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the fields of a job in the words of the table."""
    times, array, het = _object(job, "time"), _object(job, "array"), _object(job, "het")
    state, comment, tres = job.get("state"), job.get("comment"), _object(job, "tres")
    state = state if isinstance(state, dict) else {"current": state}
    shown = job_id = _text(job.get("job_id"))
    if _count(array.get("job_id")) and _text(array.get("task_id")):
        shown = f"{_text(array.get('job_id'))}_{_text(array.get('task_id'))}"
    elif _count(het.get("job_id")):
        shown = f"{_text(het.get('job_id'))}+{_text(het.get('job_offset')) or '0'}"
    words = state.get("current")
    words = words if isinstance(words, list) else [words]
    killer = job.get("kill_request_user")
    current = _text(words[0]) if words else ""
    if current == "CANCELLED" and isinstance(killer, str) and killer:
        current = f"CANCELLED by {_text(killer)}"
    fields = {
        "jobid": shown, "jobidraw": job_id, "jobname": _text(job.get("name")), "state": current,
        "start": _text(times.get("start")), "end": _text(times.get("end")),
        "submit": _text(times.get("submission")), "elapsed": _text(times.get("elapsed")),
        "suspended": _text(times.get("suspended")), "allocnodes": _text(job.get("allocation_nodes")),
        "nodelist": _text(job.get("nodes")), "exitcode": _exit_code(job.get("exit_code")),
        "reason": _text(state.get("reason")), "partition": _text(job.get("partition")),
        "cluster": _text(job.get("cluster")), "restarts": _text(job.get("restart_cnt")),
    }  # fmt: skip
    if (minutes := _count(times.get("limit"))) is not None:
        fields["timelimit"] = str(minutes * 60)
    if "allocated" in tres:
        fields["alloctres"] = _tres(tres["allocated"])
    if "requested" in tres:
        fields["reqtres"] = _tres(tres["requested"])
    if isinstance(comment, str):
        comment = {"job": comment}
    for key, name in (("job", "comment"), ("administrator", "admincomment"), ("system", "systemcomment")):
        if isinstance(comment, dict):
            fields[name] = _text(comment.get(key))
    return fields


def _object(job: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = job.get(key)
    return found if isinstance(found, dict) else {}


def _count(value: object) -> int | None:
    """Return a number; newer Slurm writes {"set": true, "infinite": false, "number": 8}."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str:
    if isinstance(value, str):
        return storable(value, 500)
    count = _count(value)
    return "" if count is None else str(count)


def _tres(found: object) -> str:
    """Return [{"type": "gres", "name": "gpu", "count": 8}] as gres/gpu=8."""
    parts = []
    for part in found if isinstance(found, list) else []:
        if isinstance(part, dict):
            name = _text(part.get("name"))
            parts.append(f"{_text(part.get('type'))}{'/' + name if name else ''}={_text(part.get('count'))}")
    return ",".join(parts)


def _exit_code(code: object) -> str:
    if not isinstance(code, dict):
        return _text(code)
    signal = code.get("signal")
    signal = signal if isinstance(signal, dict) else {}
    number = _count(signal.get("id")) or _count(signal.get("signal_id")) or 0
    returned = _count(code.get("return_code"))
    return "" if returned is None else f"{returned}:{number}"


# -- detection ---------------------------------------------------------------------------------------


def detect(head: bytes) -> Evidence | None:
    """Find sacct's JSON, its header, or rows in the known order."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] == b"{":
        ours = b'"jobs"' in text and (b'"tres"' in text or b'"slurm"' in text.lower())
        return Evidence(score=95, text='a JSON object with "jobs" as of sacct') if ours else None
    for line in text.split(b"\n", 50)[:50]:
        row = line.decode("utf-8", "replace").strip()
        if not row or row.startswith("#"):
            continue
        cells = row.split(_delimiter(row))
        if _is_header(cells):
            return Evidence(score=95, text=f"a sacct header: {row[:80]}")
        if len(cells) in (25, 26) and _known(cells) and cells[6][4:5] == "-":
            return Evidence(score=90, text="rows of sacct in the known order")
        return None
    return None


COLLECTOR: Final = Collector(
    name="slurm",
    framework="Slurm accounting, sacct --parsable2 and --json, 20.02 to 25.05",
    version=1,
    parse=parse,
    detect=detect,
    kind="scheduler",
    knows=("allocation start and end", "gpus", "nodes", "state", "exit code"),
    options=("delimiter", "fields"),
    check=checked(delimiter=between, fields=columns(("JobID", "JobIDRaw"), ("Start",))),
    notes=(
        "sacct prints local time without a zone: set the source's timezone. Use -D (--duplicates), else "
        "earlier runs of a requeued job are missing. End is start + elapsed."
    ),
)
