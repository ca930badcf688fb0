"""Kubernetes objects as `kubectl get pods,events -o json` prints them: how pods ended, and why.

Pure. The whole document, read again when it changes; events stand in the order of their time. Traps: the
cluster forgets events after an hour and pods when they are deleted, so a document that is asked again loses
what it once told: keep a copy, or read the log that `kubernetes_watch` reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from collectors._kube import as_event, said_by
from tracker.core.records import Record, Reject
from tracker.interfaces import Collector, Context, Evidence


def parse(block: bytes, context: Context) -> Iterator[Record]:
    """Yield the events of a document; an offset is only the place in their order."""
    try:
        body = json.loads(block)
    except (ValueError, RecursionError):
        if block.strip():
            yield Reject(0, block[:200], "not JSON")
        return
    if not isinstance(body, dict):
        yield Reject(0, block[:200], "no Kubernetes object")
        return
    found = {(one.key, one.at_us): one for one in said_by(body, context)}
    ordered = sorted(found.values(), key=lambda one: (one.at_us is None, one.at_us or 0, one.key))
    for place, one in enumerate(ordered):
        yield as_event(one, place)


def detect(head: bytes) -> Evidence | None:
    """Find a list of objects, a pod or an event, at the start of a document."""
    if head.lstrip()[:1] != b"{":
        return None
    if b'"apiVersion"' in head and (found := _KIND.search(head)):
        pretty = head.lstrip()[1:2] in b"\r\n " or b'"items"' in head
        if pretty:
            return Evidence(score=91, text=found[0].decode())
    return None


_KIND: Final = re.compile(rb'"kind": ?"(?:List|Pod|Event|PodList|EventList)"')

COLLECTOR: Final = Collector(
    name="kubernetes",
    framework="Kubernetes: kubectl get pods,events -o json",
    version=1,
    parse=parse,
    detect=detect,
    kind="document",
    knows=("causes of failures", "preemption", "time", "host"),
    notes=(
        "Evidence only. The cluster forgets events after an hour: to keep them, append "
        "`kubectl get events --watch -o json | jq -c .` to a file and read that with kubernetes_watch."
    ),
)
