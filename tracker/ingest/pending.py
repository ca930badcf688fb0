"""What was read and is not stored yet: one batch for each stream, committed together.

Edge: writes the store. After an error nothing of it may be used again: what was read is read again.
"""

from __future__ import annotations

from collections import Counter

from tracker.core.records import Json
from tracker.core.segments import Segmenter
from tracker.store import NewStream, StreamBatch, Writer


class Pending:
    """Collects batches until `commit`."""

    def __init__(self, store: Writer) -> None:
        self._store = store
        self._batches: dict[int, StreamBatch] = {}
        self._segmenters: dict[int, Segmenter] = {}
        self._next_id = store.next_stream_id()
        self.rows = 0
        self.readings = 0
        """Stored since the start of the process."""
        self.rejects: Counter[str] = Counter()
        """Stored since the start of the process, by reason."""
        self.lines = 0
        self.commits = 0

    def new_id(self) -> int:
        """Give out the number of a new stream."""
        self._next_id += 1
        return self._next_id - 1

    def batch(
        self,
        stream_id: int,
        *,
        position: dict[str, Json],
        offset: int,
        context: dict[str, Json],
        segmenter: Segmenter | None,
        new: NewStream | None = None,
    ) -> StreamBatch:
        """Return the batch of a stream, brought forward to a position; `context` is read at the commit."""
        batch = self._batches.get(stream_id)
        if batch is None:
            batch = StreamBatch(
                stream_id=stream_id, new=new, position=position, offset=offset, context=context
            )
            self._batches[stream_id] = batch
        else:
            batch.position, batch.offset, batch.context = position, offset, context
        if segmenter is not None:
            self._segmenters[stream_id] = segmenter
        return batch

    def known(self, stream_id: int) -> StreamBatch | None:
        """Return the batch that waits for a stream."""
        return self._batches.get(stream_id)

    def restart(self, batch: StreamBatch, segmenter: Segmenter) -> None:
        """Let a stream begin anew: nothing that waits, and nothing that is stored, of it holds."""
        self.rows -= batch.rows - len(batch.scheduler_rows)
        batch.reset = True
        batch.readings, batch.events, batch.rejects, batch.astray = [], [], [], []
        batch.segments, batch.lines, batch.skipped = [], 0, 0
        self._segmenters[batch.stream_id] = segmenter

    def added(self, rows: int) -> None:
        """Count rows that wait."""
        self.rows += rows

    @property
    def empty(self) -> bool:
        """Tell whether nothing waits."""
        return not self._batches

    def commit(self) -> int:
        """Store everything in one transaction; return how many rows. Raises StoreError."""
        if not self._batches:
            return 0
        for stream_id, segmenter in self._segmenters.items():
            batch = self._batches[stream_id]
            batch.segments = [one for one in segmenter.segments if one.ordinal in segmenter.dirty]
        self._store.commit(self._batches.values())
        rows = self.rows
        for batch in self._batches.values():
            self.readings += len(batch.readings)
            self.lines += batch.lines
            self.rejects.update(reject.reason for reject in batch.rejects)
        for segmenter in self._segmenters.values():
            del segmenter.segments[:-1]
            segmenter.dirty.clear()
        self._batches.clear()
        self._segmenters.clear()
        self.rows = 0
        self.commits += 1
        return rows

    def forget(self) -> None:
        """Drop what waits, after an error; the numbers of new streams are given out again."""
        self._batches.clear()
        self._segmenters.clear()
        self.rows = 0
        self._next_id = self._store.next_stream_id()
