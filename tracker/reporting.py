"""The daily report of a store: opened, asked at several moments, put together, and written to files.

Edge: reads the store, writes files. numpy is loaded for the forecasts, so the sidecar's own process imports
nothing of it.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracker.atomic import replacing
from tracker.config import Config
from tracker.core.book import Book
from tracker.core.cells import CELL_US, cells
from tracker.core.changes import Changes, changes_of
from tracker.core.daily import DAY_US, Daily, Health, daily, history_moments
from tracker.core.facts import Facts
from tracker.core.records import Event
from tracker.core.series import Series, series, series_of, width_for
from tracker.core.summary import snapshot
from tracker.forecasting import Asked, ask
from tracker.marks import StoredMarks
from tracker.store import Reader, given_up, report_failures

if TYPE_CHECKING:
    from reports.page import Page
    from reports.typst_page import Paper

ENDINGS: Final = ("txt", "html", "pdf")
"""In the order of writing: what needs least comes first, and is there also where the rest fails."""
_MAIL_SECTIONS: Final = ("key-figures", "finish", "ledger", "attempts")
_MAIL_FIGURES: Final = ("finish", "waterfall")
_MAIL_WIDTH_PX: Final = 1184
_MOST_EVENTS: Final = 100_000
"""Kept while a report is made: some 50 MB at most."""


def daily_of_store(config: Config, *, as_of_us: int) -> Daily:
    """Return the report's value of an existing store."""
    with Reader(config.store) as reader, reader.snapshot():
        rejects = reader.reject_counts()
        unread = tuple(sorted(r.file_name for r in reader.reports() if r.collector is None and r.lines))
        book = Book(config.settings, marks=StoredMarks(reader))
        problems = _problems(reader, as_of_us)
        return daily_of(
            book, _Held(reader), as_of_us=as_of_us, rejects=rejects, unrecognised=unread, problems=problems
        )


class _Held:
    """A store's facts, each asked for once: a report looks at the same ones as of a dozen moments."""

    def __init__(self, reader: Reader) -> None:
        self.readings = reader.readings
        self.buckets = reader.buckets
        self.streams = cache(reader.streams)
        self.scheduler_rows = cache(reader.scheduler_rows)
        self.corrections = cache(reader.corrections)
        self._reader = reader
        self._events: dict[tuple[int, int, int | None], list[Event]] = {}
        self._left = _MOST_EVENTS

    def events(self, stream_id: int, *, start: int = 0, end: int | None = None) -> Iterator[Event]:
        """Yield the events with start <= offset < end, in file order."""
        known = self._events.get((stream_id, start, end))
        if known is None:
            known = list(self._reader.events(stream_id, start=start, end=end))
            if len(known) < self._left:
                self._left -= len(known) + 1
                self._events[stream_id, start, end] = known
        return iter(known)


def _problems(reader: Reader, as_of_us: int) -> tuple[str, ...]:
    """Return what went wrong with reports and messages in the day before, in sentences."""
    since_us = as_of_us - DAY_US - DAY_US // 8  # the report of yesterday, also where clocks changed
    found = []
    for row in report_failures(reader, since_us=since_us, until_us=as_of_us):
        how = "is not whole" if row.state == "made" else "could not be made"
        found.append(f"The {row.kind} report of {row.day} {how}: {row.problem.rstrip('.')}.")
    lost: dict[tuple[str, str], int] = {}
    for channel, _, error in given_up(reader, since_us=since_us, until_us=as_of_us):
        lost[channel, error] = lost.get((channel, error), 0) + 1
    found += [
        f"{channel}: {count} given up: {error.rstrip('.')}." for (channel, error), count in lost.items()
    ]
    return tuple(found)


def daily_of(
    book: Book,
    facts: Facts,
    *,
    as_of_us: int,
    rejects: dict[str, int] | None = None,
    unrecognised: tuple[str, ...] = (),
    problems: tuple[str, ...] = (),
) -> Daily:
    """Return the report's value of facts; every earlier moment is asked again, never looked up."""
    shot = snapshot(book, facts, as_of_us=as_of_us)
    first = min((line.start_us for line in shot.attempts), default=None)
    ended = shot.last_reading_us if shot.state == "finished" else None
    moments = history_moments(first, as_of_us if ended is None else ended)
    yesterday, before_that = as_of_us - DAY_US, as_of_us - 2 * DAY_US
    wanted = {at for at in (yesterday, before_that) if first is not None and at > first}
    # the book goes on from one moment to the next
    asked = {at: ask(book, facts, as_of_us=at) for at in sorted({*moments, *wanted})}
    before, earlier = asked.get(yesterday), asked.get(before_that)
    found = rejects or {}
    now = ask(
        book,
        facts,
        as_of_us=as_of_us,
        rejects=sum(found.values()),
        earlier=before.forecast if before is not None else None,
    )
    quiet = now.snapshot.last_reading_us
    over_time, changed = _over_time(book, facts, now, as_of_us)
    return daily(
        now.snapshot,
        before=before.snapshot if before is not None else None,
        earlier=earlier.snapshot if earlier is not None else None,
        history=[one.forecast for one in asked.values()],
        series=over_time,
        changes=changed,
        health=Health(
            files=len(facts.streams()),
            unrecognised=unrecognised,
            rejects=found,
            problems=problems,
            quiet_s=None if quiet is None else max(0, as_of_us - quiet) / 1e6,
        ),
    )


def _over_time(book: Book, facts: Facts, now: Asked, as_of_us: int) -> tuple[Series, Changes]:
    opened = book.open(facts, as_of_us=as_of_us)
    fine = cells(opened, facts, now.snapshot)
    width_us = width_for(opened)
    if width_us < CELL_US:
        over_time = series(opened, facts, now.snapshot)
    else:
        over_time = series_of(fine, opened, now.snapshot, width_us=width_us)
    return over_time, changes_of(fine, opened, facts, now.snapshot)


# -- files ------------------------------------------------------------------------------------------


def page_of(made: Daily, config: Config) -> Page:
    """Return the report as a page, with dates in the report's zone."""
    from reports.daily import daily_page

    zone = config.report.zone if config.report is not None else config.zone
    return daily_page(made, zone=zone, zone_name=str(zone))


def write(
    page: Page, base: Path, *, endings: tuple[str, ...] = ENDINGS, paper: Paper = "a4", mail: bool = False
) -> Iterator[Path]:
    """Write a page's documents beside each other, each whole or not at all; yield each as it is there.

    `base` is the path without an ending. Raises OSError, and NotRendered for the PDF and the pictures: all
    that needs neither is there by then.
    """
    if "txt" in endings:
        from reports.text import text_of

        yield _put(base, "txt", text_of(page).encode())
    if "html" in endings:
        from reports.html_document import document

        yield _put(base, "html", document(page).encode("utf-8", "replace"))
    failed = (yield from _mail(page, base)) if mail else ""
    if "pdf" in endings:
        from tracker.rendering import NotRendered, pdf

        try:
            yield _put(base, "pdf", pdf(page, paper=paper))
        except NotRendered as error:
            raise NotRendered("; ".join(text for text in (str(error), failed) if text)) from None
    if failed:
        raise NotRendered(failed)


def _mail(page: Page, base: Path) -> Generator[Path, None, str]:
    """Write what a mail of the page is made of: its HTML, pictures named in it, and its subject.

    Return why there are no pictures, empty where there are: a figure without one is told in words.
    """
    from reports.html_mail import mail_html
    from tracker.rendering import NotRendered, pictures

    found, failed = {}, ""
    try:
        found = pictures(page, _MAIL_FIGURES, width_px=_MAIL_WIDTH_PX)
    except NotRendered as error:
        failed = str(error)
    for name, body in found.items():
        yield _put(base, f"{name}.png", body)
    body_html = mail_html(page, images={name: name for name in found}, sections=_MAIL_SECTIONS)
    yield _put(base, "mail.html", body_html.encode("utf-8", "replace"))
    subject = f"{page.run}: {page.verdict.partition(';')[0].rstrip('.')}"
    yield _put(base, "mail.json", json.dumps({"subject": subject}).encode())
    return failed


def _put(base: Path, ending: str, body: bytes) -> Path:
    path = base.with_name(f"{base.name}.{ending}")
    with replacing(path) as file:
        file.write(body)
    return path
