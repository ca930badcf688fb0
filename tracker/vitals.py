"""What the tracker knows of its own workings: read, rejected, late, failed, stored.

Pure: values only. Counters run from the start of the process; the rest is as of the last pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceVitals:
    """One [[source]]."""

    number: int
    """1, 2, 3 ... as in the config."""
    collector: str = "auto"
    shown: str = ""
    """Its path or command, for people."""
    up: bool = False
    """Whether the last pass could read it: a file was found and opened, or the command succeeded."""
    files: int = 0
    lag_bytes: int = 0
    """There and not yet read; an unterminated last line counts."""
    rejected_lines: int = 0
    """Over the life of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobVitals:
    """One periodic job."""

    name: str
    last_success_us: int | None = None
    last_duration_s: float | None = None
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelVitals:
    """One way out: mail, or a webhook."""

    channel: str
    """"mail", or "webhook NAME"."""
    queued: int = 0
    sent: int = 0
    dead: int = 0
    """Given up: refused for good, or held because nobody knows whether it arrived."""
    oldest_us: int | None = None
    """When the one that waits longest was queued; None where none waits."""
    last_sent_us: int | None = None
    failures: Mapping[str, int] = field(default_factory=dict)
    """Failed tries over the life of the store, by reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportVitals:
    """One schedule of reports."""

    schedule: str
    last_made_us: int | None = None
    failed_tries: int = 0
    """Of the report that is due now; 0 once it is made."""
    next_us: int | None = None
    """Next moment of the schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """One run's tracker at one moment."""

    ready: bool = False
    """Whether all sources were read to their end once, and a first snapshot is there."""
    why_not_ready: str = ""
    read_lines: int = 0
    read_bytes: int = 0
    stored_readings: int = 0
    rotations: int = 0
    truncations: int = 0
    skipped_bytes: Mapping[str, int] = field(default_factory=dict)
    """By reason."""
    rejects: Mapping[str, int] = field(default_factory=dict)
    """Lines that looked like ours and could not be used, by reason, over the life of the store."""
    unreadable_files: Mapping[str, int] = field(default_factory=dict)
    """Files that the last pass could not read, by reason."""
    unrecognised_files: int = 0
    """Files of `auto` sources that no collector reads."""
    sources: tuple[SourceVitals, ...] = ()
    jobs: tuple[JobVitals, ...] = ()
    channels: tuple[ChannelVitals, ...] = ()
    reports: tuple[ReportVitals, ...] = ()
    last_pass_us: int | None = None
    """When the sources were last looked at, successfully."""
    snapshot_s: float | None = None
    """Processor time that the last snapshot took to make."""
    store_up: bool | None = None
    """Whether the last use of the store succeeded."""
    store_errors: int = 0
    store_bytes: int | None = None
    wal_bytes: int | None = None
    disk_free_bytes: int | None = None
    """On the store's file system, for this user."""
    disk_size_bytes: int | None = None
    problems: tuple[str, ...] = ()
    """What is wrong now, in sentences."""
