"""The sidecar's pages: the report of each run as it stands, drawn when somebody asks, once for all who do.

Edge: looks for the latest printed report in the folder that a config names. What is drawn is kept until its
run has something new, so that fifty open browsers cost as much as one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from reports.daily import daily_page
from reports.html_document import LIVE_POLICY
from reports.live import Frame, run_page
from reports.live_index import IndexRow, index_page
from reports.live_parts import SourceLine
from tracker.answers import Shown, run_path
from tracker.core.daily import Health, daily

_KEPT: Final = 16
"""Pages kept drawn; of more runs, those not asked for lately are drawn anew."""
_DOCUMENTS: Final = (
    ("Status", "status"), ("Ledger", "ledger"), ("Interruptions", "interruptions"), ("Forecast", "forecast"),
)  # fmt: skip
_EVERYWHERE: Final = (("Metrics", "/metrics"), ("Readiness", "/readyz"), ("Health", "/healthz"))


class HtmlPages:
    """Draws the pages for people. Called from the server's threads."""

    policy: str = LIVE_POLICY
    """The Content-Security-Policy of every page."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._lock = threading.Lock()
        self._drawn: OrderedDict[str, tuple[tuple[Any, ...], str]] = OrderedDict()

    def run(self, shown: Shown, *, alone: bool) -> str:
        """Return the page of one run, `alone` or one of several."""
        vitals = shown.vitals
        key = (shown.snapshot, alone, vitals.problems, vitals.why_not_ready, vitals.sources)
        with self._lock:
            kept = self._drawn.get(shown.run)
            if kept is not None and kept[0][0] is key[0] and kept[0][1:] == key[1:]:
                self._drawn.move_to_end(shown.run)
                return kept[1]
            made = self._draw(shown, alone)
            self._drawn[shown.run] = (key, made)
            while len(self._drawn) > _KEPT:
                self._drawn.popitem(last=False)
            return made

    def index(self, shown: Sequence[Shown]) -> str:
        """Return the page of several runs."""
        rows = [
            IndexRow(run=one.run, path=run_path(one.run), snapshot=one.snapshot, problems=one.vitals.problems)
            for one in shown
        ]
        return index_page(rows, version=self._version, links=(("Runs (JSON)", "/api/v1/runs"), *_EVERYWHERE))

    def _draw(self, shown: Shown, alone: bool) -> str:
        snapshot, vitals = shown.snapshot, shown.vitals
        asked = "" if alone else f"?run={quote(shown.run, safe='', errors='replace')}"
        frame = Frame(
            version=self._version,
            problems=vitals.problems,
            sources=tuple(
                SourceLine(
                    number=one.number, collector=one.collector, shown=one.shown, up=one.up, files=one.files,
                    lag_bytes=one.lag_bytes,
                )
                for one in vitals.sources
            ),
            home="" if alone else "/",
            links=(
                *((f"{words} (JSON)", f"/api/v1/{name}{asked}") for words, name in _DOCUMENTS),
                *_EVERYWHERE,
            ),
            without=vitals.why_not_ready,
        )  # fmt: skip
        if snapshot is None:
            return run_page(shown.run, None, None, frame)
        quiet = snapshot.last_reading_us
        health = Health(
            files=sum(one.files for one in vitals.sources),
            rejects=vitals.rejects,
            quiet_s=None if quiet is None else max(0, snapshot.as_of_us - quiet) / 1e6,
            problems=vitals.problems,
        )
        page = daily_page(daily(snapshot, health=health))
        return run_page(shown.run, page, snapshot, frame)
