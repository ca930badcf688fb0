"""Facts as of a moment that moves forward, and marks that are kept on the way. Pure, given its Facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tracker.core.corrections import Correction
from tracker.core.facts import Facts, Stream
from tracker.core.history import Growing
from tracker.core.records import SchedulerRow

_MARKS_KEPT: Final = 64
_WHOLE: Final = " whole"
"""How the book names marks of attempts that others followed."""


@dataclass(slots=True)
class _File:
    """One stream and its segments as they grow."""

    stream: Stream
    growing: list[Growing]

    def now(self, as_of_us: int) -> Stream:
        """Return it as `history.known` does."""
        kept = []
        past = False
        for one in self.growing:
            seen = one.whole.seen_at_us
            if seen is None:
                if not past:
                    kept.append(one.whole)
            elif seen <= as_of_us:
                kept.append(one.whole)
            else:
                past = True
                if one.begun:
                    kept.append(one.segment)
        return replace(self.stream, segments=tuple(kept))


class Past:
    """The facts of a moment that moves forward: what `Book.open` reads."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.rows = list(facts.scheduler_rows())
        self.said = list(facts.corrections())
        self.as_of_us = 0
        self.files: list[_File] = []
        for stream in facts.streams():
            ends = [segment.first_offset for segment in stream.segments[1:]]
            spans = zip(stream.segments, [*ends, None], strict=True)
            self.files.append(
                _File(stream, [Growing(facts, stream.stream_id, segment, end) for segment, end in spans])
            )
        self.readings = facts.readings
        self.events = facts.events

    def streams(self) -> Sequence[Stream]:
        """Return the streams as they stood."""
        return [file.now(self.as_of_us) for file in self.files]

    def scheduler_rows(self) -> Sequence[SchedulerRow]:
        """Return all rows: the book knows what to make of later ones."""
        return self.rows

    def corrections(self) -> Sequence[Correction]:
        """Return all of them, likewise."""
        return self.said


class RecentMarks:
    """Marks of the attempt that runs, in memory: a resume that cuts it need not fold it from its start."""

    def __init__(self) -> None:
        self._key = ""
        self._held: list[tuple[str, int, int, bytes]] = []

    def best(self, key: str, digest: str, *, step: int | None, at_us: int | None) -> bytes | None:
        """Return the latest mark that lies within the bounds."""
        if key != self._key:
            return None
        for own, to_step, to_us, body in reversed(self._held):
            if own == digest and (step is None or to_step <= step) and (at_us is None or to_us <= at_us):
                return body
        return None

    def put(self, key: str, digest: str, *, step: int, at_us: int, body: bytes) -> None:
        """Remember a fold, and forget other attempts' and some of the older ones."""
        if key.endswith(_WHOLE):
            return
        if key != self._key:
            self._key, self._held = key, []
        self._held.append((digest, step, at_us, body))
        if len(self._held) > _MARKS_KEPT:
            del self._held[: _MARKS_KEPT // 2 : 2]
