"""Lets one through at a time, in the order in which they came: heavy children of many runs.

Pure. Used from one thread only.
"""

from __future__ import annotations

from collections import deque


class Gate:
    """Whoever wants something heavy done asks `enter` at each of its turns, and says `leave` afterwards."""

    def __init__(self) -> None:
        self._queue: deque[object] = deque()

    def enter(self, who: object) -> bool:
        """Queue, where that is not done yet; tell whether it is this one's turn now, until it leaves."""
        if who not in self._queue:
            self._queue.append(who)
        return self._queue[0] is who

    def is_open_for(self, who: object) -> bool:
        """Tell whether it is this one's turn, or would be for it as the next."""
        return bool(self._queue) and self._queue[0] is who

    def leave(self, who: object) -> None:
        """Let the next one through; nothing where this one does not queue."""
        if who in self._queue:
            self._queue.remove(who)
