"""A container runtime's log file: each line stamped, long lines split in pieces.

Pure. `2019-04-30T02:12:41.8443515Z stdout P message`: P is a piece that goes on, F the last one of its line.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final

from tracker.interfaces import Context

_LINE: Final = (
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) "
    rb"(std(?:out|err)) ([FP]) ?"
)
CONTAINER: Final = re.compile(_LINE)
"""Matches the first line of such a file."""
_HELD: Final = 16_384


class Places:
    """Where joined lines stand in the file: at their last piece, so that places only grow."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._offsets: list[int] = []

    def add(self, start: int, offset: int) -> None:
        """Say that the joined text from `start` on stands at a place of the file."""
        self._starts.append(start)
        self._offsets.append(offset)

    def at(self, start: int) -> int:
        """Return the place of the file for a place of the joined text."""
        return self._offsets[max(bisect_right(self._starts, start) - 1, 0)] if self._offsets else 0


def joined(block: bytes, context: Context) -> tuple[bytes, Places]:
    """Return the block as lines of `<stamp> <message>`, pieces together; open ones wait in the state."""
    places = Places()
    lines: list[bytes] = []
    length = begin = 0
    held = context.state.setdefault("pieces", {})
    assert isinstance(held, dict)
    while begin < len(block):
        end = block.find(b"\n", begin)
        end = len(block) if end < 0 else end
        text = block[begin:end]
        offset = context.offset + begin
        begin = end + 1
        found = CONTAINER.match(text)
        if found is not None:
            stream = found[2].decode()
            begun = held.pop(stream, None)
            start = found[1] + b" " if begun is None else str(begun).encode("latin-1")
            text = start + text[found.end() :]
            if found[3] == b"P":
                held[stream] = text[:_HELD].decode("latin-1")
                continue
        places.add(length, offset)
        lines.append(text)
        length += len(text) + 1
    return b"\n".join(lines) + (b"\n" if lines else b""), places
