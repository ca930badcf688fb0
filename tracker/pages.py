"""The sidecar's pages: the report of each run as it stands, drawn when somebody asks, once for all who do.

Edge: looks for the latest printed report in the folder that a config names. What is drawn is kept until its
run has something new, so that fifty open browsers cost as much as one.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import stat
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote

from reports.daily import daily_page
from reports.html_document import LIVE_POLICY
from reports.live import Frame, run_page
from reports.live_index import IndexRow, index_page
from reports.live_parts import SourceLine
from tracker.answers import Shown, run_path
from tracker.core.beside import Beside
from tracker.core.daily import Health

_KEPT: Final = 16
"""Pages kept drawn; of more runs, those not asked for lately are drawn anew."""
_DOCUMENTS: Final = (
    ("Status", "status"), ("Ledger", "ledger"), ("Interruptions", "interruptions"), ("Forecast", "forecast"),
)  # fmt: skip
_EVERYWHERE: Final = (("Metrics", "/metrics"), ("Readiness", "/readyz"), ("Health", "/healthz"))
_NO_PAST: Final = Beside()
_LARGEST_REPORT: Final = 32 << 20


class Past(Protocol):
    """Where the past of a run comes from; `beside.Past` is one."""

    latest: Beside
    """What is known of it now."""

    def want(self) -> None:
        """Hear that somebody looks."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What the page of one run needs to know of its config."""

    zone: dt.tzinfo = dt.UTC
    """Dates are written in it."""
    reports: Path | None = None
    """Folder of the printed reports; None where none are made."""
    past: Past | None = None


class HtmlPages:
    """Draws the pages for people. Called from the server's threads."""

    policy: str = LIVE_POLICY
    """The Content-Security-Policy of every page."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._lock = threading.Lock()
        self._drawn: OrderedDict[str, _Drawn] = OrderedDict()
        self._about: dict[str, About] = {}
        self._printed: dict[str, bool] = {}
        self._looking: set[str] = set()

    def tell(self, run: str, about: About) -> None:
        """Say what the page of a run needs to know."""
        self._about[run] = about

    def run(self, shown: Shown, *, alone: bool) -> str:
        """Return the page of one run, `alone` or one of several."""
        vitals, about = shown.vitals, self._about.get(shown.run, About())
        beside = _NO_PAST
        if about.past is not None:
            about.past.want()
            beside = about.past.latest
        printed = self._look(shown.run, about.reports)
        same = (shown.snapshot, beside)
        key = (alone, printed, vitals.problems, vitals.why_not_ready, vitals.sources)
        with self._lock:
            kept = self._drawn.get(shown.run)
            if kept is not None and all(map(_is, kept.same, same)) and kept.key == key:
                self._drawn.move_to_end(shown.run)
                return kept.page
            made = self._draw(shown, about, beside, alone=alone, printed=printed)
            self._drawn[shown.run] = _Drawn(same, key, made)
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

    def _look(self, run: str, folder: Path | None) -> bool:
        """Tell whether there is a printed report: as was known where somebody is looking, perhaps in vain.

        A folder on a file system that hangs then holds one thread, and no page.
        """
        if folder is None:
            return False
        if run not in self._looking:
            self._looking.add(run)
            self._printed[run] = _latest(run, folder) is not None
            self._looking.discard(run)
        return self._printed.get(run, False)

    def report(self, run: str) -> tuple[str, bytes] | None:
        """Return name and content of the latest printed report of a run; None where there is none."""
        path = _latest(run, self._about.get(run, About()).reports)
        return None if path is None else (path.name, path.read_bytes())

    def _draw(self, shown: Shown, about: About, beside: Beside, *, alone: bool, printed: bool) -> str:
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
                *((("Latest report (PDF)", f"/report.pdf{asked}"),) if printed else ()),
            ),
            without=vitals.why_not_ready,
        )  # fmt: skip
        if snapshot is None:
            return run_page(shown.run, None, None, frame)
        quiet = snapshot.last_reading_us
        health = Health(
            rejects=vitals.rejects,
            quiet_s=None if quiet is None else max(0, snapshot.as_of_us - quiet) / 1e6,
            problems=vitals.problems,
        )
        made = beside.with_snapshot(snapshot, health=health)
        page = daily_page(made, zone=about.zone, zone_name=str(about.zone))
        return run_page(shown.run, page, snapshot, frame)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A page, and what it was drawn from."""

    same: tuple[Any, ...]
    """As long as they are these very objects."""
    key: tuple[Any, ...]
    page: str


def _is(one: object, other: object) -> bool:
    return one is other


def _latest(run: str, folder: Path | None) -> Path | None:
    """Return the newest PDF that is a report of this run: a file of its own, under the name we give it."""
    if folder is None:
        return None
    from tracker.post.names import base_name

    ours = re.compile(re.escape(base_name(run, "daily", "")) + r"([a-z0-9-]+-)?(\d{4}-\d\d-\d\d)\.pdf")
    found: list[tuple[str, int, str]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                match = ours.fullmatch(entry.name)
                told = entry.stat(follow_symlinks=False) if match else None
                if match and told and stat.S_ISREG(told.st_mode) and 0 < told.st_size <= _LARGEST_REPORT:
                    found.append((match[2], told.st_mtime_ns, entry.name))
    except OSError:
        return None
    return folder / max(found)[2] if found else None
