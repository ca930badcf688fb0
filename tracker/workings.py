"""What the sidecar's process tells of itself, whatever runs it follows: configs, requests, logins.

Pure: values only. Counters run from the start of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Samples = Iterable[tuple[tuple[str, ...], float | int | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workings:
    """The process at one moment."""

    runs: int = 0
    """How many it follows."""
    configs_ok: bool | None = None
    """Whether the last reading of the configs took all of them; None before the first."""
    configs_read_us: int | None = None
    """When all of them were last taken."""
    web_config_ok: bool | None = None
    """Whether the web config that stands in the file is the one that counts; None without one."""
    web_config_read_us: int | None = None
    """When a web config was last taken."""
    certificate_end_us: int | None = None
    """When the certificate of the web config expires; None without one."""
    answers: Mapping[int, int] = field(default_factory=dict)
    """Answers sent, by HTTP status."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Connections that ended without an answer, by reason."""
    logins_failed: Mapping[str, int] = field(default_factory=dict)
    """By reason."""


@dataclass(frozen=True, slots=True)
class ProcessFamily:
    """One metric family without a run."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    samples: Callable[[Workings], Samples]
    labels: tuple[str, ...] = ()
    values: str = ""
    """What its labels may be, for the reference."""


def _one(read: Callable[[Workings], float | int | None]) -> Callable[[Workings], Samples]:
    return lambda now: [((), read(now))]


def _seconds(us: int | None) -> float | None:
    return us / 1e6 if us is not None else None


def _flag(value: bool | None) -> int | None:
    return int(value) if value is not None else None


def _by(counts: Mapping[str, int] | Mapping[int, int]) -> Samples:
    return [((str(key),), count) for key, count in sorted(counts.items())]


REFUSED: Final = ("busy", "handshake", "timeout")
"""Reasons why a connection ends without an answer: no place free, no TLS, too slow."""
FAILED: Final = ("none", "wrong", "limited", "busy")
"""Reasons why a login fails: no name and password sent, the wrong ones, too many guesses, no time to look."""

PROCESS_FAMILIES: Final = (
    ProcessFamily("tracker_runs", "gauge", "Runs that this process follows.", _one(lambda now: now.runs)),
    ProcessFamily("tracker_config_last_reload_successful", "gauge",
                  "1 if the last reading of the configs took all of them. A config that is not taken leaves "
                  "what was before.", _one(lambda now: _flag(now.configs_ok))),
    ProcessFamily("tracker_config_last_reload_success_timestamp_seconds", "gauge",
                  "When all configs were last taken.", _one(lambda now: _seconds(now.configs_read_us))),
    ProcessFamily("tracker_web_config_last_reload_successful", "gauge",
                  "1 if the web config (TLS, logins) that stands in the file is the one that counts: a "
                  "broken one leaves what was before. No sample without one.",
                  _one(lambda now: _flag(now.web_config_ok))),
    ProcessFamily("tracker_web_config_last_reload_success_timestamp_seconds", "gauge",
                  "When a web config was last taken.", _one(lambda now: _seconds(now.web_config_read_us))),
    ProcessFamily("tracker_web_certificate_expiry_timestamp_seconds", "gauge",
                  "When the certificate of the web config expires; of a chain, the first that does. No "
                  "sample without one.", _one(lambda now: _seconds(now.certificate_end_us))),
    ProcessFamily("tracker_http_responses_total", "counter", "Answers sent, by HTTP status.",
                  lambda now: _by(now.answers), ("code",), "200, 401, 404 ..."),
    ProcessFamily("tracker_http_refused_connections_total", "counter",
                  "Connections that ended without an answer to a request.",
                  lambda now: _by(now.refused), ("reason",), ", ".join(REFUSED)),
    ProcessFamily("tracker_http_failed_logins_total", "counter", "Requests that were not let in.",
                  lambda now: _by(now.logins_failed), ("reason",), ", ".join(FAILED)),
)  # fmt: skip
