"""How the sidecar talks: one line an event on standard error, with nothing that a terminal would obey.

Edge.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Final

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _Plain(logging.Formatter):
    """Times in UTC; control characters of messages, which may hold a log's words, as question marks."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def set_up() -> None:
    """Log to standard error, from now on, what is worth a person's while."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Plain(_FORMAT, "%Y-%m-%dT%H:%M:%SZ"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.raiseExceptions = False  # a full disk under the log must not stop the sidecar
