"""Whether the lines' clock and this machine's agree, as far as lines dated in the future can tell.

Pure. Nothing here changes a figure: what is dated after `as_of` does not count, whichever clock is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tracker.core.facts import Stream

AHEAD_US: Final = 60_000_000
"""Clocks of nodes that are kept in time differ by less."""
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
        lead_s = self.lead_us // 1_000_000
        said = f"{lead_s // 3600} h {lead_s % 3600 // 60:02d} min" if lead_s >= 3600 else f"{lead_s} s"
        zone = _ZONES_US - _NEAR_A_ZONE_US <= self.lead_us <= 14 * 3_600_000_000 and (
            (self.lead_us + _NEAR_A_ZONE_US) % _ZONES_US <= 2 * _NEAR_A_ZONE_US
        )
        cause = (
            "is its zone the one of [run] timezone (or of its source)?"
            if zone
            else "compare its node's clock with this machine's"
        )
        return (
            f"source {self.source}: {self.file_name!r} has lines dated {said} after now, which do not count "
            f"until then: {cause}"
        )


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
