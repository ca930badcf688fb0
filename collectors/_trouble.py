"""How a line becomes evidence of trouble: a cause, how far the line proves it, and one event of a thousand.

Pure. A line gives one event at most, by the first rule that fits. Of equal lines the first is kept until the
next progress, so that a thousand ranks make one event; the others are counted in `context.state["events"]`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from collectors._clock import stamp_us
from collectors._lines import Hit, Make, Rule, rule
from collectors._text import whole
from tracker.core.records import Json, Kind, Record

MOST_COUNTED: Final = 64
VICTIM: Final = 0.2
"""Confidence of a line that tells what happened to this process because of another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What one kind of line proves."""

    cause: str
    confidence: float
    """How far the line alone proves the cause: 0.9 a fault of a part, 0.2 a victim's last words."""
    fatal: bool = False
    """The process cannot go on."""
    root: bool = False
    """The line names the first failure, not what followed from it."""


def failure(hit: Hit, key: str, what: Trouble, **more: Json) -> Iterable[Record]:
    """Return the failure that a line proves, or nothing where the same was said since the last progress.

    `key` is the kind of line. The pattern's groups `rank`, `host` and `at` go into the event.
    """
    hit.done = True
    said = hit.state.setdefault("events", {})
    assert isinstance(said, dict)
    key = f"{what.cause} {key}"
    count = said.get(key)
    if isinstance(count, int):
        said[key] = count + 1
    if count is not None or len(said) >= MOST_COUNTED:
        return ()
    said[key] = 1
    groups = hit.match.groupdict()
    host, at = groups.get("host"), groups.get("at")
    data: dict[str, Json] = {
        "cause": what.cause,
        "confidence": what.confidence,
        "fatal": what.fatal or None,
        "root": what.root or None,
        "rank": whole(groups.get("rank")) if groups.get("rank") else global_rank(hit.line.label),
        "host": host.decode("utf-8", "replace") if host else None,
    }
    at_us = stamp_us(at, hit.context) if at else None
    return (hit.event_of(Kind.FAILURE, data | more, at_us=at_us),)


def global_rank(label: bytes) -> int | None:
    """Return the global rank that a label states; srun labels and local ranks state none.

    >>> global_rank(b"rank12"), global_rank(b"default7")
    (12, None)
    """
    return whole(label[4:].strip(b" :")) if label.startswith(b"rank") else None


def ends(hit: Hit, key: str) -> bool:
    """Return whether an end of the process is news: it is said once by each rank, node and step."""
    hit.done = True
    said = hit.state.setdefault("ends", [])
    assert isinstance(said, list)
    if key in said or len(said) >= MOST_COUNTED:
        return False
    said.append(key)
    return True


def trouble(
    gate: bytes,
    pattern: bytes,
    cause: str,
    confidence: float,
    *,
    within: bytes | None = None,
    fatal: bool = False,
    root: bool = False,
) -> Rule:
    """Return a rule that makes one failure of a line."""
    what = Trouble(cause=cause, confidence=confidence, fatal=fatal, root=root)
    key = gate.decode()

    def make(hit: Hit) -> Iterable[Record]:
        return failure(hit, key, what)

    return rule(gate, pattern, make, within=within)


def leaving(gate: bytes, pattern: bytes, end_kind: str, *, within: bytes | None = None) -> Rule:
    """Return a rule for a line with which a process ends in good order; the reason is also the cause."""

    def make(hit: Hit) -> Iterable[Record]:
        if ends(hit, end_kind):
            yield hit.event(Kind.EXIT, end_kind=end_kind, cause=end_kind)

    return rule(gate, pattern, make, within=within)


def silent(gate: bytes, pattern: bytes, *, within: bytes | None = None) -> Rule:
    """Return a rule that settles a line: it is no trouble, whatever the rules after it would say."""
    return rule(gate, pattern, _nothing, within=within)


def _nothing(hit: Hit) -> Iterable[Record]:
    hit.done = True
    return ()


MAKES_NOTHING: Final[Make] = _nothing
