"""What torchrun (torch.distributed.elastic) reports about its workers.

Pure. One report a node; its last block is the first failure seen there. Only signals tell something: a plain
exit code 1 has its reason in the worker's own lines, and -15 was told to stop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from collectors._clock import STAMP, stamp_us
from collectors._lines import Hit, Make, Rule, rule, started
from collectors._trouble import Trouble, failure, silent, trouble
from tracker.core.records import Kind, Record

_LINES: Final = 60
_FIELD: Final = re.compile(
    rb"\s{1,4}(?P<name>time|host|rank|exitcode) {0,12}: (?P<value>[^\n]{1,200})|\s{0,4}Root Cause \(first"
)
_CODE: Final = re.compile(rb"-?\d{1,4}")
_AT: Final = re.compile(rb"(?P<at>" + STAMP + rb")$")
_BY_SIGNAL: Final = {
    # abort: mostly by the watchdog, of a rank that waited for another one; so it is no root
    -6: Trouble(cause="nccl_watchdog", confidence=0.4, fatal=True),
    -9: Trouble(cause="out_of_memory", confidence=0.4, fatal=True, root=True),
    -7: Trouble(cause="out_of_memory", confidence=0.3, fatal=True, root=True),  # no shared memory left
    -11: Trouble(cause="software", confidence=0.4, fatal=True, root=True),
}
_BY_CODE: Final = Trouble(cause="unknown", confidence=0.2, fatal=True)  # the worker's own lines say why
_EARLIER_TOLD: Final = 8
_TOLD_TO_STOP: Final = -15


def of_exit_code(code: int) -> Trouble | None:
    """Return what a worker's exit code proves; None where it was told to stop, or ended well.

    >>> of_exit_code(-9).cause, of_exit_code(-15)
    ('out_of_memory', None)
    """
    return None if code in (0, _TOLD_TO_STOP) else _BY_SIGNAL.get(code, _BY_CODE)


def _begin(hit: Hit) -> Iterable[Record]:
    hit.done = True
    hit.open("report", _LINES)
    hit.state["report"] = {}
    return ()


def _field(hit: Hit) -> Iterable[Record]:
    found = _FIELD.match(hit.text)
    report = hit.state.get("report")
    if found is None or not isinstance(report, dict):
        return ()
    if found["name"] is None:
        report["root"] = True
        return ()
    name, value = found["name"].decode(), found["value"].strip().decode("utf-8", "replace")
    report[name] = value
    if name != "exitcode" or "root" not in report:
        return ()
    hit.close("report")
    del hit.state["report"]
    number = _CODE.match(value.encode())
    code = int(number[0]) if number else 1
    what = of_exit_code(code)
    if what is None:
        return ()
    rank = _CODE.match(str(report.get("rank", "")).encode())
    hit.match = _AT.match(str(report.get("time", "")).encode()) or hit.match
    return failure(
        hit,
        f"exit {code}{_earlier(hit)}",
        what,
        rank=int(rank[0]) if rank else None,
        host=report.get("host"),
        exit_code=code,
    )


def _restarting(hit: Hit) -> Iterable[Record]:
    """The agent starts the workers again inside the job; the agent of every node says so."""
    hit.done = True
    before, at_us = hit.state.get("restart"), hit.stamp_us()
    if isinstance(before, list):
        then: Any = before[0]
        offset: Any = before[1]
        near = at_us - then <= 60_000_000 if at_us and then else hit.offset - offset <= 65_536
        if near:
            return
    hit.state["restart"] = [at_us, hit.offset]
    started(hit.state)
    for key in ("banner", "step", "resumed"):
        hit.state.pop(key, None)
    hit.state["first"] = True
    yield hit.event(Kind.RESTART)


def _earlier(hit: Hit) -> str:
    """Return what tells a failure before all reported so far from those; nodes report in any order."""
    at = hit.match.groupdict().get("at")
    at_us = stamp_us(at, hit.context) if at else None
    said = hit.state.setdefault("events", {})
    if at_us is None or not isinstance(said, dict):
        return ""
    first, told = said.get("first exit"), said.get("earlier exits")
    told = told if isinstance(told, int) else 0
    before = isinstance(first, int) and at_us < first and told < _EARLIER_TOLD
    if before or first is None:
        said["first exit"] = at_us
    if before:
        said["earlier exits"] = told + 1
    return f" {told}" if before else ""


TORCHRUN: Final[tuple[Rule, ...]] = (
    rule(b"ChildFailedError", rb"ChildFailedError: *$", _begin, within=b"rror"),
    rule(b"will restart worker", rb"will restart worker group", _restarting),
    rule(
        b"[NestedRestarter]",  # nvidia-resiliency-ext, around any framework
        rb"\[NestedRestarter\] name=\[\w{1,40}\] state=handling stage=starting\b",
        _restarting,
    ),
    trouble(b"orker group ", rb"[Ww]orker group (?:FAILED|failed)\b", "unknown", 0.1, fatal=True),
    silent(b"SignalException", rb"SignalException: Process \d", within=b"xception"),
)

FOLLOWERS: Final[dict[str, Make]] = {"report": _field}
"""For a `Reader`: who takes the lines of the report."""
