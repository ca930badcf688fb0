"""What a store holds, told by content: two stores of the same logs compare equal whatever happened to them.

Edge: reads a store. Left out is what only says when somebody looked: time of arrival, the follower's
position and its evidence, revisions, handles given in order of arrival, caches, and what is no fact.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

from tracker.store import Store

Rows = dict[str, Counter[tuple[Any, ...]]]

_SHIFT: Final = 44
_STREAM: Final = (
    "source", "kind", "collector", "parser_version", "identity", "offset", "context", "lines", "readings",
    "events", "rejects", "skipped",
)  # fmt: skip
_BY_PLACE: Final = ("reading", "event", "reject")
_BY_STREAM: Final = ("segment", "reject_count", "scheduler_row")
_LEFT_OUT: Final = {"id", "stream_id", "revision"}


def content(path: Path) -> Rows:
    """Return the facts of a store, table by table, each row with its number."""
    found: Rows = {}
    with Store.open_reader(path) as reader:
        connection = reader._connection
        names: dict[int, tuple[Any, ...]] = {}
        for row in connection.execute("SELECT stream_id, source, identity, kind FROM stream"):
            names[row[0]] = tuple(row[1:])
        columns = ", ".join(_STREAM)
        found["stream"] = Counter(
            row for row in connection.execute(f"SELECT {columns} FROM stream WHERE kind <> 'copy'")
        )
        for table in (*_BY_PLACE, *_BY_STREAM):
            kept = [
                row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[1] not in _LEFT_OUT
            ]
            key = "id" if table in _BY_PLACE else "stream_id"
            rows = connection.execute(f"SELECT {key}, {', '.join(kept)} FROM {table}")
            found[table] = Counter(
                (names[row[0] >> _SHIFT], row[0] & ((1 << _SHIFT) - 1), *row[1:])
                if table in _BY_PLACE
                else (names[row[0]], *row[1:])
                for row in rows
            )
    return found


def differences(one: Rows, other: Rows, *, most: int = 12) -> list[str]:
    """Return what one store has and the other has not, in sentences; nothing where they are equal."""
    said = []
    for table in sorted({*one, *other}):
        a, b = one.get(table, Counter()), other.get(table, Counter())
        for row, count in (a - b).items():
            said.append(f"{table}: {count} more than undisturbed: {str(row)[:300]}")
        for row, count in (b - a).items():
            said.append(f"{table}: {count} fewer than undisturbed: {str(row)[:300]}")
    return said[:most] + ([f"... and {len(said) - most} more"] if len(said) > most else [])


def rows(one: Rows) -> int:
    """Return how many rows there are."""
    return sum(sum(table.values()) for table in one.values())
