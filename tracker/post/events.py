"""What happened to a run since it was last looked at: stalled, recovered, down, restarted, finished, late.

Pure. What was told is a small value that the store keeps in the same transaction as the letters about it, so
a restart of the tracker neither repeats an event nor loses one.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tracker.core.documents import iso
from tracker.core.interruptions import Interruption
from tracker.core.ledger import AttemptLine
from tracker.core.records import Json
from tracker.core.run_standing import late_days
from tracker.core.snapshot import Snapshot

TEXT_CHARS: Final = 300
"""Words of a log are cut to this before they travel."""
_SETTLED: Final = ("starting", "running")
_LASTS_US: Final = 120_000_000
"""How long a stall lasts past its limit until it is told, as by the alert: a save of a quick run is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Where a run stood when it was last looked at."""

    state: str
    attempts: int = 0
    attempt: str = ""
    """Name of the last attempt, as no reading of the logs changes it."""
    stalled_us: int | None = None
    """The last sign of progress before the stall that was told last."""
    behind: bool = False

    def to_json(self) -> dict[str, Json]:
        """Return it as plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Told:
        """Return what `to_json` described; unknown keys are passed over."""
        return cls(**{name: body[name] for name in cls.__dataclass_fields__ if name in body})


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing to tell."""

    name: str
    """One of `kinds.WEBHOOK_EVENTS`."""
    id: str
    """The same event has the same one, whoever finds it."""
    at_us: int
    """When it happened, as far as the logs say; else when it was seen."""
    text: str
    """One or two sentences; words of a log in it are bounded, and still hostile."""
    details: Mapping[str, Json] = field(default_factory=dict)


def look(told: Told | None, snapshot: Snapshot, *, behind_plan_days: float) -> tuple[Told, tuple[Event, ...]]:
    """Return where the run stands, and what happened since.

    At the first look only what is wrong now is told: nobody wants the history of a run that is new to us.
    """
    last = snapshot.attempts[-1] if snapshot.attempts else None
    names = _names(snapshot)
    name = names[-1] if names else ""
    before = told if told is not None else Told(state="", attempts=len(names), attempt=name)
    found: list[Event] = []
    if last is not None:
        found += _restarts(before, snapshot, names)
        found += _states(before, snapshot, last, name, first=told is None)
    late, event = _plan(before, snapshot, behind_plan_days)
    found += event
    stalled_us = before.stalled_us
    state = _state(snapshot, last)
    if state == "stalled" and last is not None:
        stalled_us = last.progress_us
    now = Told(
        state=state,
        attempts=len(names),
        attempt=name,
        stalled_us=stalled_us,
        behind=late,
    )
    return now, tuple(found)


def _state(snapshot: Snapshot, last: AttemptLine | None) -> str:
    """Return the state that people are told of: a stall counts once it has lasted."""
    if snapshot.state != "stalled" or last is None:
        return snapshot.state
    since = last.progress_us if last.progress_us is not None else last.start_us
    lasted_us = snapshot.as_of_us - since - (last.stall_limit_us or 0)
    return "stalled" if lasted_us >= _LASTS_US else "running"


def _names(snapshot: Snapshot) -> list[str]:
    """Return a name of its own for each attempt: logs of one job that begin alike give the same one."""
    seen: Counter[str] = Counter()
    names = []
    for line in snapshot.attempts:
        seen[line.name] += 1
        names.append(line.name if seen[line.name] == 1 else f"{line.name} #{seen[line.name]}")
    return names


def _restarts(before: Told, snapshot: Snapshot, names: Sequence[str]) -> list[Event]:
    known = names.index(before.attempt) + 1 if before.attempt in names else before.attempts
    fresh = snapshot.attempts[max(known, 1) :]  # the very first attempt is a start, no restart
    if not fresh:
        return []
    line = fresh[-1]
    text = f"{snapshot.run} restarted: attempt {line.number} began {iso(line.start_us)}."
    if len(fresh) > 1:
        text = (
            f"{snapshot.run} restarted {len(fresh)} times: attempt {line.number} began {iso(line.start_us)}."
        )
    stop = _stop_of(snapshot, line.number - 1)
    details: dict[str, Json] = {"attempt": line.number, "restarts": len(fresh)}
    if stop is not None:
        text += f" {_why(stop)}"
        details |= {"cause": stop.cause, "kind": stop.kind}
    return [_event("restarted", snapshot, line.start_us, text, details, key=names[-1])]


def _states(before: Told, snapshot: Snapshot, last: AttemptLine, name: str, *, first: bool) -> list[Event]:
    same = name == before.attempt
    state, was = _state(snapshot, last), before.state if same else ""
    details: dict[str, Json] = {"attempt": last.number, "last_step": snapshot.steps.last}
    if state == "stalled" and (was != "stalled" or last.progress_us != before.stalled_us):
        since = last.progress_us if last.progress_us is not None else last.start_us
        text = f"{snapshot.run} is stalled: attempt {last.number} has made no progress since {iso(since)}."
        return [_event("stalled", snapshot, since, text, details, key=f"{name} {since}")]
    if state == "down" and was != "down":
        at_us = last.end_us if last.end_us is not None else snapshot.as_of_us
        stop = _stop_of(snapshot, last.number)
        text = f"{snapshot.run} is down: attempt {last.number} ended {iso(at_us)}."
        if stop is not None:
            text += f" {_why(stop)}"
            details |= {"cause": stop.cause, "kind": stop.kind, "evidence": _cut(stop.evidence)}
        return [_event("down", snapshot, at_us, text, details, key=f"{name} {last.end_us}")]
    if first:
        return []
    if state == "finished" and before.state != "finished":
        at_us = last.end_us if last.end_us is not None else snapshot.as_of_us
        text = f"{snapshot.run} is finished: attempt {last.number} ended {iso(at_us)}."
        return [_event("finished", snapshot, at_us, text, details, key=name)]
    if state in _SETTLED and was == "stalled":
        at_us = last.progress_us if last.progress_us is not None else snapshot.as_of_us
        text = f"{snapshot.run} makes progress again, in the same attempt {last.number}."
        return [_event("recovered", snapshot, at_us, text, details, key=f"{name} {before.stalled_us}")]
    return []


def _plan(before: Told, snapshot: Snapshot, limit_days: float) -> tuple[bool, list[Event]]:
    """Tell once that the plan is missed; again only after it was within half the limit in between."""
    made = snapshot.forecast
    late = late_days(snapshot)
    if made is None or late is None:
        return before.behind, []
    if before.behind:
        return late > limit_days / 2, []
    if late <= limit_days:
        return False, []
    words = " ".join(made.sentences[:2])
    text = f"{snapshot.run} is behind its plan. {words}"
    details: dict[str, Json] = {
        "days_behind_plan": late,
        "finish_at_p50": iso(_whole(made.finish_us.p50)) if made.finish_us is not None else None,
    }
    return True, [_event("behind_plan", snapshot, made.as_of_us, text, details, key=str(made.as_of_us))]


def _event(
    name: str, snapshot: Snapshot, at_us: int, text: str, details: Mapping[str, Json], *, key: str
) -> Event:
    digest = hashlib.sha256("\0".join((snapshot.run, name, key)).encode("utf-8", "replace")).hexdigest()
    return Event(name=name, id=digest[:24], at_us=at_us, text=_cut(text, 1000), details=details)


def _stop_of(snapshot: Snapshot, attempt: int) -> Interruption | None:
    return next((stop for stop in snapshot.interruptions if stop.attempt == attempt), None)


def _why(stop: Interruption) -> str:
    evidence = _cut(stop.evidence)
    said = f' Evidence: "{evidence}"' if evidence else ""
    return f"Attempt {stop.attempt} ended {iso(stop.at_us)}, {stop.kind}, cause {stop.cause}.{said}"


def _cut(text: str, limit: int = TEXT_CHARS) -> str:
    """Return words as one bounded, printable line."""
    plain = "".join(c if c.isprintable() else " " for c in text[: limit * 2]).strip()
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def _whole(at_us: float | None) -> int | None:
    return round(at_us) if at_us is not None else None
