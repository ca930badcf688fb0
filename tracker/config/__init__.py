"""The config file: TOML in, one checked and typed value out; every error names the key and the remedy.

Edge: `load` reads one file.
"""

from __future__ import annotations

from tracker.config.check import ConfigError
from tracker.config.kinds import Listen
from tracker.config.load import load, parse
from tracker.config.model import Config, Limits, Mail, Report, Serve, Source, Webhook

__all__ = [
    "Config",
    "ConfigError",
    "Limits",
    "Listen",
    "Mail",
    "Report",
    "Serve",
    "Source",
    "Webhook",
    "load",
    "parse",
]
