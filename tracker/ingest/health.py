"""What ingestion can say about itself, for metrics, `check` and people.

Pure: values only.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHealth:
    """One [[source]] as of the last pass."""

    number: int
    """1, 2, 3 ... as in the config."""
    files: int = 0
    lag_bytes: int = 0
    """There and not yet read; an unterminated last line counts."""
    up: bool = False
    """Whether a file was found and could be read, or the command answered."""
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrecognised:
    """A file of an `auto` source that no collector reads (yet)."""

    path: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestHealth:
    """Counters run from the start of the process; the rest is as of the last pass."""

    lines: int = 0
    read_bytes: int = 0
    readings: int = 0
    rejects: dict[str, int] = field(default_factory=dict)
    """By reason, since the start of the process."""
    commits: int = 0
    lag_bytes: int = 0
    lag_nul_bytes: int = 0
    """Of these: NUL bytes that end a file, and what waits behind NUL bytes for a second look at them."""
    files: int = 0
    rotations: int = 0
    truncations: int = 0
    skipped_bytes: dict[str, int] = field(default_factory=dict)
    unreadable: tuple[tuple[str, str], ...] = ()
    """Path and reason, at most a hundred."""
    unreadable_by_reason: dict[str, int] = field(default_factory=dict)
    unrecognised: tuple[Unrecognised, ...] = ()
    """At most a hundred."""
    unrecognised_files: int = 0
    """All of them."""
    sources: tuple[SourceHealth, ...] = ()
    last_pass_us: int | None = None
    """When the last pass that stored all it read ended."""
    problem: str | None = None
    """Why the last pass could not store what it read; it is read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One look at all sources."""

    rows: int = 0
    """Rows stored."""
    read_bytes: int = 0
    more: bool = False
    """There is more to read now: call again without waiting."""
    problem: str | None = None
    """The store could not be written, for now."""
    broken: bool = False
    """Not for want of room or of a turn: what is open of it is no good any more, and keeps its disk busy."""
