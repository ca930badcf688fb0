"""The daily report of a store: opened, asked at several moments, put together.

Edge: reads the store. numpy is loaded for the forecasts, so the sidecar's own process imports nothing of it.
"""

from __future__ import annotations

from tracker.config import Config
from tracker.core.book import Book
from tracker.core.daily import DAY_US, Daily, Health, daily, history_moments
from tracker.core.facts import Facts
from tracker.core.series import Series, series
from tracker.forecasting import Asked, ask
from tracker.marks import StoredMarks
from tracker.store import Reader


def daily_of_store(config: Config, *, as_of_us: int) -> Daily:
    """Return the report's value of an existing store."""
    with Reader(config.store) as reader, reader.snapshot():
        rejects = reader.reject_counts()
        unread = tuple(sorted(r.file_name for r in reader.reports() if r.collector is None and r.lines))
        book = Book(config.settings, marks=StoredMarks(reader))
        return daily_of(book, reader, as_of_us=as_of_us, rejects=rejects, unrecognised=unread)


def daily_of(
    book: Book,
    facts: Facts,
    *,
    as_of_us: int,
    rejects: dict[str, int] | None = None,
    unrecognised: tuple[str, ...] = (),
) -> Daily:
    """Return the report's value of facts; every earlier moment is asked again, never looked up."""
    first = _began_us(ask(book, facts, as_of_us=as_of_us))
    until = as_of_us
    asked: dict[int, Asked] = {}
    wanted = {as_of_us - DAY_US, as_of_us - 2 * DAY_US} if first is not None else set()
    moments = history_moments(first, until)
    for at_us in sorted({*moments, *(at for at in wanted if first is not None and at > first)}):
        asked[at_us] = ask(book, facts, as_of_us=at_us)  # the book goes on from the one before
    found = rejects or {}
    now = ask(book, facts, as_of_us=as_of_us, since_us=as_of_us - DAY_US, rejects=sum(found.values()))
    before, earlier = asked.get(as_of_us - DAY_US), asked.get(as_of_us - 2 * DAY_US)
    quiet = now.snapshot.last_reading_us
    return daily(
        now.snapshot,
        before=before.snapshot if before is not None else None,
        earlier=earlier.snapshot if earlier is not None else None,
        history=[asked[at].forecast for at in moments],
        series=_series(book, facts, now, as_of_us),
        health=Health(
            files=len(facts.streams()),
            unrecognised=unrecognised,
            rejects=found,
            quiet_s=None if quiet is None else max(0, as_of_us - quiet) / 1e6,
        ),
    )


def _began_us(asked: Asked) -> int | None:
    lines = asked.snapshot.attempts
    return min(line.start_us for line in lines) if lines else None


def _series(book: Book, facts: Facts, now: Asked, as_of_us: int) -> Series:
    return series(book.open(facts, as_of_us=as_of_us), facts, now.snapshot)
