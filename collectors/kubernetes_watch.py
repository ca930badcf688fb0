"""Kubernetes objects, one a line: `kubectl get events --watch -o json | jq -c .`, event exporters.

Pure. A watch tells the same event again each time its count goes up, and the same pod at each change: told
once is enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from collectors._kube import as_event, said_by
from tracker.core.records import Record, Reject
from tracker.interfaces import Collector, Context, Evidence

_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
_MOST: Final = 128
_AGAIN_US: Final = 240_000_000


def parse(block: bytes, context: Context) -> Iterator[Record]:
    """Yield the events of a block of lines."""
    seen = context.state.setdefault("seen", {})
    assert isinstance(seen, dict)
    begin = 0
    while begin < len(block):
        end = block.find(b"\n", begin)
        end = len(block) if end < 0 else end
        line, offset = block[begin:end], context.offset + begin
        begin = end + 1
        if b'"kind"' not in line and b'"reason"' not in line:
            continue
        try:
            body = _DECODER.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            if line.lstrip()[:1] == b"{":
                yield Reject(offset, line[:200], "torn JSON line")
            continue
        if "kind" not in body and "involvedObject" in body:
            body["kind"] = "Event"  # as exporters write it
        for one in said_by(body, context):
            before = seen.pop(one.key, None)
            seen[one.key] = one.at_us
            if len(seen) > _MOST:
                del seen[next(iter(seen))]
            known = before if isinstance(before, int) else None
            if known is not None and one.at_us is not None and abs(one.at_us - known) <= _AGAIN_US:
                continue
            yield as_event(one, offset)


def detect(head: bytes) -> Evidence | None:
    """Find an object a line."""
    lines = [line for line in head.split(b"\n")[:100] if line.strip()][:50]
    ours = sum(_LINE.match(line) is not None for line in lines)
    if lines and ours * 2 > len(lines):
        return Evidence(score=93, text=f"Kubernetes objects ({ours} of the first {len(lines)} lines)")
    return None


_LINE: Final = re.compile(
    rb'\{(?=[^\n]{0,65536}?"(?:involvedObject|regarding|containerStatuses)")'
    rb'(?=[^\n]{0,65536}?"(?:reason|apiVersion)")'
)

COLLECTOR: Final = Collector(
    name="kubernetes_watch",
    framework="Kubernetes: objects of a watch, one a line",
    version=1,
    parse=parse,
    detect=detect,
    knows=("causes of failures", "preemption", "time", "host"),
    notes="Evidence only.",
)
