"""The configuration as one frozen value: what the core needs, and what the edges need.

Pure.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tracker.config.kinds import WEBHOOK_EVENTS, Listen
from tracker.core.records import Json
from tracker.core.settings import Settings
from tracker.daily import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One [[source]]: where to read, and how."""

    number: int
    """1, 2, 3 ... as they stand in the file."""
    collector: str
    """A collector's name, or "auto"."""
    pattern: str | None = None
    """Glob, from the folder of the config file; None where a command is read."""
    command: tuple[str, ...] | None = None
    """Program and arguments; None where files are read."""
    interval_s: float = 60.0
    timeout_s: float = 30.0
    zone: dt.tzinfo = dt.UTC
    """Zone of its times that carry none."""
    options: Mapping[str, Json] = field(default_factory=dict)
    """Keys of its collector, as plain JSON."""
    shown: str = ""
    """The path or command as it stands in the file, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serve:
    """The [serve] table."""

    listen: Listen = field(default=Listen("127.0.0.1", 9109))
    linger_s: float = 3600.0
    web_config: Path | None = None
    """A web config file: TLS, logins, headers."""
    file_sd: Path | None = None
    """An entry for Prometheus' file discovery."""
    announce: Listen | None = None
    """What to tell there instead of `listen`; port 0: the real one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The [limits] table: how far the sidecar stands back behind the job."""

    nice: int = 10
    oom_score_adj: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """The [report.mail] table. It holds no secret: the password stays in its file or variable."""

    host: str
    port: int
    sender: str
    to: tuple[str, ...]
    tls: str = "starttls"
    ca_file: Path | None = None
    user: str | None = None
    password_file: Path | None = None
    password_env: str | None = None
    reply_to: str | None = None
    on_uncertain: str = "resend"
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """One [[webhook]]. It holds no secret: the URL stays in its file or variable."""

    name: str
    url_file: Path | None = None
    url_env: str | None = None
    shape: str = "generic"
    events: tuple[str, ...] = WEBHOOK_EVENTS
    behind_plan_days: float = 1.0
    most_per_hour: int = 12
    on_uncertain: str = "resend"
    plain_http: bool = False
    ca_file: Path | None = None
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The [report] table."""

    at: dt.time = dt.time(7, 0)
    zone: dt.tzinfo = dt.UTC
    directory: Path = Path("reports-out")
    paper: str = "a4"
    """a4 or letter."""
    mail: Mail | None = None
    schedules: tuple[Schedule, ...] = ()
    """What is made and when; the loader puts a daily one where the file lists none."""
    time_limit_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A whole config file, checked."""

    path: Path
    """The file itself, absolute."""
    folder: Path
    """Where its relative paths start, absolute."""
    settings: Settings
    zone: dt.tzinfo = dt.UTC
    """[run] timezone."""
    until_us: int | None = None
    """[run] until: no answer is of a later moment."""
    sources: tuple[Source, ...] = ()
    poll_s: float = 1.0
    """[ingest] poll_s: seconds between two looks at the files."""
    store: Path
    """The SQLite file, absolute."""
    serve: Serve = field(default_factory=Serve)
    limits: Limits = field(default_factory=Limits)
    report: Report | None = None
    webhooks: tuple[Webhook, ...] = ()
    warnings: tuple[str, ...] = ()
    """What is allowed and probably not meant."""

    def moment_us(self, now_us: int) -> int:
        """Return the moment that an answer is of: the one asked for, or the end of a run that is history."""
        return now_us if self.until_us is None else min(now_us, self.until_us)
