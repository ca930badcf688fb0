"""What the follower can say about itself, for metrics and for ``tracker check``.

Pure. Counters run from the start of the process; the rest is as of the last poll.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """What cannot shrink while the process lives."""

    rotations: int = 0
    """Streams that went on under another name or in another file."""
    truncations: int = 0
    """Files whose content was replaced in place (truncate, copy-truncate, inode used again)."""
    streams: int = 0
    """Streams met for the first time."""
    skipped_bytes: dict[str, int] = field(default_factory=lambda: {"too_long": 0, "nul": 0})
    """Bytes consumed but not handed out, by reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternHealth:
    """One pattern of the configuration."""

    pattern: str
    files: int
    """Files it means now, copies included."""
    read_bytes: int
    lines: int
    lag_bytes: int
    """Bytes that are there and not consumed yet, unterminated last lines included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHealth:
    """One stream that a file holds now."""

    stream_id: int | None
    """As the store gave it; None before it did."""
    path: str
    pattern: int | None
    """Place of the first pattern that means the file; None where a rename took it out of all."""
    offset: int
    lag_bytes: int
    generation: int
    doubted: bool
    """Whether the file contradicts what was read and waits for a second look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A path that was meant and could not be read at the last poll."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One look at the follower."""

    files: int
    """Regular files known now."""
    open_files: int
    """Descriptors held now."""
    followed: int
    """Files that feed a stream."""
    copies: int
    """Files not read because all they hold is held, or was read, elsewhere."""
    waiting: int
    """Files with no whole line yet, and packed files that are not complete."""
    lag_bytes: int
    lag_nul_bytes: int
    """Of these: NUL bytes that end a file, and what waits behind NUL bytes for a second look at them."""
    read_bytes: int
    lines: int
    rotations: int
    truncations: int
    new_streams: int
    skipped_bytes: dict[str, int]
    """By reason: ``too_long``, ``nul``."""
    patterns: tuple[PatternHealth, ...]
    unreadable: tuple[Unreadable, ...]
    """By path, at most a hundred."""
    unreadable_by_reason: dict[str, int]
    """All of them, counted."""
