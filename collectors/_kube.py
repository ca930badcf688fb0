"""What Kubernetes objects tell of trouble: how a container ended, why a pod went, what its node reports.

Pure. Times are UTC by definition. Exit code 143 was told to stop; 1 has its reason in the program's own log;
137 without OOMKilled is a kill that may have many reasons. A pod that was preempted, drained or too late
ended in good order: its condition `DisruptionTarget` or its reason says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from collectors._clock import stamp_us
from collectors._numbers import integer, storable
from collectors._trouble import Trouble
from tracker.core.records import EVIDENCE_CHARS, Event, Json, Kind
from tracker.interfaces import Context

_KILLED: Final = Trouble(cause="out_of_memory", confidence=0.95, fatal=True)
_BY_CODE: Final = {
    137: Trouble(cause="unknown", confidence=0.2, fatal=True),
    139: Trouble(cause="software", confidence=0.4, fatal=True),
    135: Trouble(cause="out_of_memory", confidence=0.3, fatal=True),  # bus error: no shared memory left
    134: Trouble(cause="nccl_watchdog", confidence=0.4, fatal=True),  # abort: mostly the watchdog's
}
_OTHER_CODE: Final = Trouble(cause="unknown", confidence=0.1, fatal=True)
_TOLD_TO_STOP: Final = (0, 143)

_REASONS: Final = {
    "OOMKilling": Trouble(cause="out_of_memory", confidence=0.9, fatal=True),
    "SystemOOM": Trouble(cause="out_of_memory", confidence=0.8, fatal=True),
    "NodeNotReady": Trouble(cause="unknown", confidence=0.5, fatal=True),
    "NodeLost": Trouble(cause="unknown", confidence=0.5, fatal=True),
    "Rebooted": Trouble(cause="unknown", confidence=0.5, fatal=True),
    "TaintManagerEviction": Trouble(cause="unknown", confidence=0.3, fatal=True),
    "DeletionByTaintManager": Trouble(cause="unknown", confidence=0.3, fatal=True),
    "KernelDeadlock": Trouble(cause="unknown", confidence=0.4, fatal=True),
    "FilesystemIsReadOnly": Trouble(cause="storage", confidence=0.6, fatal=True),
    "FailedMount": Trouble(cause="storage", confidence=0.4),
}
_LEAVES: Final = {
    "Preempted": "preempted",
    "PreemptionByScheduler": "preempted",
    "EvictionByEvictionAPI": "host_maintenance",
    "DeadlineExceeded": "time_limit",
    "NodeShutdown": "host_maintenance",
    "Shutdown": "host_maintenance",
}
_RANKS: Final = ("training.kubeflow.org/replica-index", "batch.kubernetes.io/job-completion-index")


class Said(NamedTuple):
    """One thing that an object tells."""

    at_us: int | None
    kind: Kind
    data: dict[str, Json]
    text: str
    key: str
    """The same for the same thing told again."""


def said_by(body: Mapping[str, Any], context: Context, *, depth: int = 3) -> Iterator[Said]:
    """Yield what an object, or a list of them, tells; what is no pod and no event tells nothing."""
    kind = body.get("kind")
    if not depth:
        return
    if isinstance(items := body.get("items"), list):
        inner = str(kind).removesuffix("List")
        for item in items:
            if isinstance(item, dict):
                yield from said_by({"kind": inner, **item}, context, depth=depth - 1)
    elif kind == "Pod":
        yield from _pod(body, context)
    elif kind == "Event":
        yield from _event(body, context)
    elif isinstance(wrapped := body.get("object"), dict):  # a watch with --output-watch-events
        yield from said_by(wrapped, context, depth=depth - 1)


def _pod(body: Mapping[str, Any], context: Context) -> Iterator[Said]:
    meta, status, spec = _dict(body, "metadata"), _dict(body, "status"), _dict(body, "spec")
    name, where = _word(meta.get("name")), {"host": _word(spec.get("nodeName")) or None, "rank": _rank(meta)}
    reason, message = _word(status.get("reason")), _word(status.get("message"))
    for condition in _dicts(status.get("conditions")):
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            why, more = _word(condition.get("reason")), _word(condition.get("message"))
            at_us = _time(condition.get("lastTransitionTime"), context)
            yield from _because(name, why, more or message, at_us, where)
    if reason and reason not in ("NodeLost",):
        yield from _because(name, reason, message, _ended(status, context), where)
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in _dicts(status.get(key)):
            for state in ("lastState", "state"):
                yield from _container(name, container, _dict(container, state), context, where)


def _container(
    pod: str,
    container: Mapping[str, Any],
    state: Mapping[str, Any],
    context: Context,
    where: Mapping[str, Json],
) -> Iterator[Said]:
    ended = _dict(state, "terminated")
    code = integer(ended.get("exitCode"))
    reason = _word(ended.get("reason"))
    if code is None or (code in _TOLD_TO_STOP and reason != "OOMKilled"):
        return
    what = _KILLED if reason == "OOMKilled" else _BY_CODE.get(code, _OTHER_CODE)
    at_us = _time(ended.get("finishedAt"), context)
    text = f"pod {pod}, container {_word(container.get('name'))}: {reason or 'terminated'}, exit code {code}"
    if message := _word(ended.get("message")):
        text += f": {message}"
    yield _failure(what, at_us, text, f"{pod} {container.get('name')} {code}", {**where, "exit_code": code})


def _event(body: Mapping[str, Any], context: Context) -> Iterator[Said]:
    about = _dict(body, "involvedObject") or _dict(body, "regarding")
    name = _word(about.get("name"))
    source = _dict(body, "source")
    host = _word(source.get("host")) or (name if about.get("kind") == "Node" else "")
    times = (
        _dict(body, "series").get("lastObservedTime"),
        body.get("lastTimestamp"),
        body.get("eventTime"),
        body.get("firstTimestamp"),
        _dict(body, "metadata").get("creationTimestamp"),
    )
    at_us = next((found for text in times if (found := _time(text, context)) is not None), None)
    message = _word(body.get("message")) or _word(body.get("note"))
    yield from _because(name, _word(body.get("reason")), message, at_us, {"host": host or None})


def _because(
    name: str, reason: str, message: str, at_us: int | None, where: Mapping[str, Json]
) -> Iterator[Said]:
    """Yield what a reason tells: an end in good order, trouble, or nothing."""
    text = f"{name}: {reason}" + (f": {message}" if message else "")
    lower = message.lower()
    end = _LEAVES.get(reason)
    if reason == "TerminationByKubelet":
        end = "host_maintenance" if "shutdown" in lower else None
        reason = "Evicted" if end is None else reason
    if end is not None:
        yield Said(at_us, Kind.EXIT, {"end_kind": end, "cause": end}, _bounded(text), f"{name} {end}")
    elif reason == "Evicted":
        cause = "out_of_memory" if "memory" in lower else "storage" if "storage" in lower else "unknown"
        what = Trouble(cause=cause, confidence=0.7 if cause != "unknown" else 0.3, fatal=True)
        yield _failure(what, at_us, text, f"{name} evicted", where)
    elif (trouble := _REASONS.get(reason)) is not None:
        yield _failure(trouble, at_us, text, f"{name} {reason}", where)


def _failure(what: Trouble, at_us: int | None, text: str, key: str, more: Mapping[str, Json]) -> Said:
    data: dict[str, Json] = {"cause": what.cause, "confidence": what.confidence, "fatal": what.fatal or None}
    data.update(more)
    return Said(at_us, Kind.FAILURE, {k: v for k, v in data.items() if v is not None}, _bounded(text), key)


def as_event(said: Said, offset: int) -> Event:
    """Return it as the event that stands at an offset."""
    return Event(offset=offset, kind=said.kind, at_us=said.at_us, data=said.data, text=said.text)


def _ended(status: Mapping[str, Any], context: Context) -> int | None:
    """Return when a pod's last container ended, else when its last condition changed."""
    ends = [
        _time(_dict(_dict(one, "state"), "terminated").get("finishedAt"), context)
        for one in _dicts(status.get("containerStatuses"))
    ]
    changes = [_time(one.get("lastTransitionTime"), context) for one in _dicts(status.get("conditions"))]
    known = [at for at in ends if at is not None] or [at for at in changes if at is not None]
    return max(known, default=None)


def _rank(meta: Mapping[str, Any]) -> int | None:
    both = {**_dict(meta, "labels"), **_dict(meta, "annotations")}
    return next((found for key in _RANKS if (found := integer(both.get(key))) is not None), None)


def _time(text: object, context: Context) -> int | None:
    return stamp_us(text.encode("utf-8", "replace"), context) if isinstance(text, str) and text else None


def _word(value: object) -> str:
    return storable(value.strip(), EVIDENCE_CHARS) if isinstance(value, str) else ""


def _bounded(text: str) -> str:
    return " ".join(text.split())[:EVIDENCE_CHARS]


def _dict(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = body.get(key)
    return found if isinstance(found, dict) else {}


def _dicts(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
