"""The store's marks as the core asks for them: where long folds are remembered between two starts.

Edge: reads and writes the store. A cache: no answer depends on it.
"""

from __future__ import annotations

from tracker.store import Mark, Reader, Writer


class StoredMarks:
    """The store's marks as the core asks for them; without a writer they are only read.

    New ones wait in memory until `flush`: the core makes them while a snapshot of the store is being
    read, and nothing may be written then.
    """

    def __init__(self, reader: Reader, writer: Writer | None = None) -> None:
        self._reader = reader
        self._writer = writer
        self._new: dict[tuple[str, str], list[Mark]] = {}

    def best(self, key: str, digest: str, *, step: int | None, at_us: int | None) -> bytes | None:
        """Return the latest mark with mark.step <= step and mark.at_us <= at_us (None: no bound)."""
        for mark in reversed(self._reader.marks(key, digest)):
            if _within(mark.step, step) and _within(mark.at_us, at_us):
                return mark.body
        return None

    def put(self, key: str, digest: str, *, step: int, at_us: int, body: bytes) -> None:
        """Remember a fold."""
        if self._writer is not None:
            mark = Mark(position=at_us, step=step, at_us=at_us, body=body)
            self._new.setdefault((key, digest), []).append(mark)

    def flush(self) -> None:
        """Store what waits."""
        if self._writer is None:
            return
        while self._new:
            (key, digest), marks = self._new.popitem()
            self._writer.put_marks(key, digest, marks)


def _within(value: int | None, bound: int | None) -> bool:
    return bound is None or (value is not None and value <= bound)
