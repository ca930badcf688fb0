"""Whether the lines' clock and this machine's agree: lines of the future, lines that come late each time.

Pure. Nothing here changes a figure: what is dated after `as_of` does not count, whichever clock is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tracker.core.facts import Stream

AHEAD_US: Final = 60_000_000
"""Clocks of nodes that are kept in time differ by less."""
BEHIND_US: Final = 300_000_000
"""A clock that is behind by less makes no difference that anybody would notice."""
LOOKS: Final = 4
_ALIKE_US: Final = 120_000_000
_ZONES_US: Final = 15 * 60_000_000
"""Zones differ by multiples of this."""
_NEAR_A_ZONE_US: Final = 2 * 60_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """Lines of a source that are dated after now."""

    source: int
    """1, 2, 3 ... as in the config."""
    file_name: str
    lead_us: int
    """How far its newest stamp lies in the future."""

    @property
    def sentence(self) -> str:
        """What is wrong, and what to do."""
        return (
            f"source {self.source}: {self.file_name!r} has lines dated {_said(self.lead_us)} after now, "
            f"which do not count until then: {_cause(self.lead_us)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """Lines of a file that come as long after the time they carry, each time."""

    source: int
    """1, 2, 3 ... as in the config."""
    file_name: str
    late_us: int

    @property
    def sentence(self) -> str:
        """What is wrong, and what to do."""
        return (
            f"source {self.source}: lines of {self.file_name!r} come {_said(self.late_us)} after the time "
            f"they carry, each time: {_cause(self.late_us)}"
        )


def _said(length_us: int) -> str:
    seconds = length_us // 1_000_000
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min" if seconds >= 3600 else f"{seconds} s"


def _cause(length_us: int) -> str:
    zone = _ZONES_US - _NEAR_A_ZONE_US <= length_us <= 14 * 3_600_000_000 and (
        (length_us + _NEAR_A_ZONE_US) % _ZONES_US <= 2 * _NEAR_A_ZONE_US
    )
    if zone:
        return "is its zone the one of [run] timezone (or of its source)?"
    return "compare its node's clock with this machine's"


def ahead(streams: Sequence[Stream], now_us: int) -> list[Ahead]:
    """Return, for each source, the file with the newest stamp where that lies more than a minute ahead.

    `now_us`: this machine's clock, microseconds since 1970 UTC.
    """
    worst: dict[int, Ahead] = {}
    for stream in streams:
        seen = [segment.seen_at_us for segment in stream.segments if segment.seen_at_us is not None]
        lead_us = max(seen, default=now_us) - now_us
        known = worst.get(stream.source)
        if lead_us > AHEAD_US and (
            known is None or (lead_us, stream.file_name) > (known.lead_us, known.file_name)
        ):
            worst[stream.source] = Ahead(
                source=stream.source + 1, file_name=stream.file_name, lead_us=lead_us
            )
    return [worst[source] for source in sorted(worst)]


class Arrivals:
    """How long after the time they carry lines come, where that is known: while they are read as they come.

    Lines that wait in a buffer come late too, but each time by something else.
    """

    def __init__(self) -> None:
        self._newest: dict[int, int] = {}
        self._late: dict[int, list[int]] = {}

    def look(self, streams: Sequence[Stream], now_us: int, *, followed: bool) -> list[Behind]:
        """Return which files' lines came late by as much at the last few looks.

        `followed`: all that was there at the look before, a moment ago, had been read then. So what is new
        came since. `now_us`: this machine's clock.
        """
        worst: dict[int, Behind] = {}
        for stream in streams:
            name = stream.stream_id
            newest = max((s.seen_at_us for s in stream.segments if s.seen_at_us is not None), default=None)
            before = self._newest.get(name)
            if newest is None:
                continue
            self._newest[name] = newest
            late = self._late.setdefault(name, [])
            if before is None or not followed:
                late.clear()
            elif newest > before:
                late.append(now_us - newest)
                del late[:-LOOKS]
            if len(late) < LOOKS or min(late) < BEHIND_US or max(late) - min(late) > _ALIKE_US:
                continue
            known = worst.get(stream.source)
            if known is None or (min(late), stream.file_name) > (known.late_us, known.file_name):
                worst[stream.source] = Behind(
                    source=stream.source + 1, file_name=stream.file_name, late_us=min(late)
                )
        return [worst[source] for source in sorted(worst)]
