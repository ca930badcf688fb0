"""The follower's cursor as plain JSON, and back.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Final

from tracker.core.records import Json
from tracker.follow import Cursor
from tracker.store.errors import StoreCorrupt

_FIELDS: Final = tuple(field for field in fields(Cursor) if field.name != "stream_id")
_BYTES: Final = frozenset(field.name for field in _FIELDS if field.type == "bytes")
_NEEDED: Final = frozenset(
    field.name for field in _FIELDS if field.default is MISSING and field.default_factory is MISSING
)


def to_json(cursor: Cursor) -> dict[str, Json]:
    """Return a cursor without its number; bytes as hex."""
    return {
        field.name: getattr(cursor, field.name).hex() if field.name in _BYTES else getattr(cursor, field.name)
        for field in _FIELDS
    }


def from_json(stream_id: int, position: Mapping[str, Json]) -> Cursor | None:
    """Return the cursor of a stored stream; None where it is none (a document's position is not)."""
    if not position.keys() >= _NEEDED:
        return None
    words: dict[str, Any] = {}
    for field in _FIELDS:
        if field.name in position:
            value = position[field.name]
            try:
                words[field.name] = bytes.fromhex(str(value)) if field.name in _BYTES else value
            except ValueError as error:
                raise StoreCorrupt(
                    f"the read position of stream {stream_id} is damaged ({field.name} is not hexadecimal). "
                    "Restore a backup with `tracker db restore`, or move the store away and let the logs be "
                    "read again."
                ) from error
    return Cursor(stream_id=stream_id, **words)
