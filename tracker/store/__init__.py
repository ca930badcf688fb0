"""The facts in one SQLite file: one way in (`Writer`), one way out (`Reader`).

Edge. Here and nowhere else is SQL. docs/store.md explains what is stored.
"""

from __future__ import annotations

from pathlib import Path

from tracker.store.batch import Changes, Mark, NewStream, StoredStream, StreamBatch, StreamChange
from tracker.store.connection import Journal
from tracker.store.forecasts import keep_forecast
from tracker.store.fresh import migrate_in_child
from tracker.store.lock import WAIT_S, Owner, RunLock, own_files, running
from tracker.store.outbox import Address, Letter, Outbox, Settled, Waiting
from tracker.store.outcomes import (
    ChannelState,
    ReportRow,
    given_up,
    outbox_state,
    report_failures,
    report_rows,
)
from tracker.store.reader import Reader, Rejected, StreamReport
from tracker.store.schema import SCHEMA_VERSION, stored_version
from tracker.store.writer import Writer


class Store:
    """The two ways to open a store. `migrate_in_child` makes it, or brings it up to date, before."""

    @staticmethod
    def open_writer(
        path: str | Path, *, durable: bool = False, journal: Journal | None = None, wait_s: float = WAIT_S
    ) -> Writer:
        """Open an existing store to write it; see `Writer`."""
        return Writer(path, durable=durable, journal=journal, wait_s=wait_s)

    @staticmethod
    def open_reader(path: str | Path) -> Reader:
        """Open an existing store to read it; see `Reader`."""
        return Reader(path)


__all__ = [
    "SCHEMA_VERSION",
    "Address",
    "Changes",
    "ChannelState",
    "Journal",
    "Letter",
    "Mark",
    "NewStream",
    "Outbox",
    "Owner",
    "Reader",
    "Rejected",
    "ReportRow",
    "RunLock",
    "Settled",
    "Store",
    "StoredStream",
    "StreamBatch",
    "StreamChange",
    "StreamReport",
    "Waiting",
    "Writer",
    "given_up",
    "keep_forecast",
    "migrate_in_child",
    "outbox_state",
    "own_files",
    "report_failures",
    "report_rows",
    "running",
    "stored_version",
]
