"""A migrated store in one call, and facts to put into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tracker.core.records import Event, Kind, Reading
from tracker.store import NewStream, Store, StreamBatch, Writer
from tracker.store.migrate import migrate

T0 = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z


def make_store(folder: Path, name: str = "tracker.db") -> Path:
    """Return the path of a new, empty store."""
    path = folder / name
    migrate(path)
    return path


def reading(number: int, **changes: Any) -> Reading:
    """Return the n-th line of a well-behaved log: 10 steps of 1.5 s, 200 bytes a line."""
    fields: dict[str, Any] = {
        "offset": number * 200,
        "at_us": T0 + number * 15_000_000,
        "step": (number + 1) * 10,
        "step_time_us": 1_500_000,
        "samples": (number + 1) * 10 * 1024,
        "batch": 1024,
        "reported_flop_per_s": 412.3e12,
        **changes,
    }
    return Reading(**fields)


def event(number: int, kind: Kind = Kind.NOTE, **changes: Any) -> Event:
    """Return an event on the n-th line."""
    return Event(**{"offset": number * 200, "kind": kind, "at_us": T0 + number * 15_000_000, **changes})


def add_stream(writer: Writer, **changes: Any) -> int:
    """Register one log that its collector is known of."""
    fields: dict[str, Any] = {
        "source": 0,
        "collector": "megatron",
        "parser_version": 1,
        "identity": "ab12",
        "file_name": "train.log",
        "written_us": T0,
        "seen_us": T0,
        **changes,
    }
    stream_id = writer.next_stream_id()
    writer.commit([batch(stream_id, new=NewStream(**fields), offset=0)])
    return stream_id


def batch(stream_id: int, *, offset: int = 10**9, **changes: Any) -> StreamBatch:
    """Return a batch of a stream; its position is far ahead unless said."""
    return StreamBatch(**{
        "stream_id": stream_id,
        "position": {"at": offset},
        "offset": offset,
        "context": {},
        **changes,
    })


ARRIVAL = frozenset({"seen_us", "first_size"})


def dump(path: Path, *, without: frozenset[str] = ARRIVAL) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of a store as Python values, save columns that only tell when we looked."""
    with Store.open_reader(path) as reader:
        connection = reader._connection
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {}
        for table in sorted(tables):
            if table.startswith(("sqlite_", "_sqlite", "state", "fold_mark")):
                continue
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            kept = ", ".join(c for c in columns if c not in without and not c.endswith("revision"))
            found[table] = sorted(connection.execute(f"SELECT {kept} FROM {table}").fetchall(), key=repr)
        return found
