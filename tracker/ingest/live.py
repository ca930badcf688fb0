"""Streams as they are being read: parser memory and segments, a bounded number of them in memory.

Pure, given how to load one from the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tracker.core.segments import Segmenter
from tracker.ingest.plan import Plan
from tracker.interfaces import Collector, Context
from tracker.store import StoredStream

LIVE_STREAMS: Final = 512
"""Streams kept in memory; the others come back from the store when they grow."""


@dataclass(slots=True)
class Live:
    """One stream as it is being read."""

    stream_id: int
    plan: Plan
    source: int
    """Index of the source that the store has for it; the plan's, unless the config changed."""
    kind: str
    collector: Collector | None
    context: Context
    segmenter: Segmenter
    seen: int = 0
    """Bytes of the head that decided about the collector."""
    why: str = ""
    offset: int = 0
    """Bytes handed out by the follower."""
    restart: bool = False
    """The next lines are the stream's first."""

    def begin(self) -> None:
        """Forget what was parsed: the stream starts anew."""
        self.context = self.plan.context(self.context.file_name)
        self.segmenter = Segmenter()


class LiveStreams:
    """The streams in memory, the last used ones."""

    def __init__(
        self,
        load: Callable[[int], StoredStream],
        plan_of: Callable[[int], Plan],
        by_name: Mapping[str, Collector],
    ) -> None:
        """`plan_of` gives the plan for the index of a source, also of one that is gone."""
        self.load = load
        self._plan_of = plan_of
        self._by_name = by_name
        self._live: dict[int, Live] = {}

    def __len__(self) -> int:
        return len(self._live)

    def get(self, stream_id: int) -> Live:
        """Return a stream, from the store if need be."""
        live = self._live.pop(stream_id, None)
        if live is None:
            live = self._revive(self.load(stream_id))
        self._live[stream_id] = live
        return live

    def keep(self, live: Live) -> None:
        """Add a stream that is new."""
        self._live[live.stream_id] = live

    def shrink(self) -> None:
        """Forget those that rest longest; only while nothing waits to be stored."""
        spare = len(self._live) - LIVE_STREAMS
        if spare > 0:
            for stream_id in [s for s, live in self._live.items() if not live.restart][:spare]:
                del self._live[stream_id]

    def _revive(self, stored: StoredStream) -> Live:
        plan = self._plan_of(stored.source)
        context = plan.context(stored.file_name)
        context.state, context.offset = stored.context, stored.offset
        seen, offset = stored.evidence.get("seen"), stored.position.get("offset")
        return Live(
            stream_id=stored.stream_id,
            plan=plan,
            source=stored.source,
            kind=stored.kind,
            collector=self._by_name.get(stored.collector or ""),
            context=context,
            segmenter=Segmenter(stored.last_segment),
            seen=seen if isinstance(seen, int) else 0,
            why=str(stored.evidence.get("why", "")),
            offset=offset if isinstance(offset, int) else 0,
        )
