"""The web config file of the Prometheus exporters: TLS, logins and headers of the HTTP server."""

from __future__ import annotations

from tracker.webconfig.certificates import load
from tracker.webconfig.live import WebConfig
from tracker.webconfig.parse import WebConfigError, WebSettings, parse
from tracker.webconfig.validity import Validity, validity

__all__ = ["Validity", "WebConfig", "WebConfigError", "WebSettings", "load", "parse", "validity"]
