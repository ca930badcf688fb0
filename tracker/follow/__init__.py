"""Files as a sidecar meets them: late, growing, rotated, truncated, packed, unreadable.

Edge: reads files, asks no clock. ``Follower.poll`` yields whole lines with the cursor that stands
after them; docs/following-files.md says what is guaranteed.
"""

from __future__ import annotations

from tracker.follow.cursor import Chunk, Cursor
from tracker.follow.follower import Follower
from tracker.follow.health import Health, PatternHealth, StreamHealth, Unreadable

__all__ = [
    "Chunk",
    "Cursor",
    "Follower",
    "Health",
    "PatternHealth",
    "StreamHealth",
    "Unreadable",
]
