"""Logs: followed as they grow, recognised by their first bytes, parsed block by block.

Edge: reads files through the follower. Which collector reads a file of an `auto` source is a function of
its first 256 KiB. While a file is shorter, the answer is provisional; when more bytes change it, the file
is read again from its start. The same happens when the collector's version, its zone or its options changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from tracker.core.records import Json
from tracker.core.segments import Segmenter
from tracker.follow import Chunk, Cursor, Follower, Health
from tracker.follow.glob import unrotated
from tracker.ingest.health import Unrecognised
from tracker.ingest.live import Live, LiveStreams
from tracker.ingest.pending import Pending
from tracker.ingest.plan import Detect, Plan
from tracker.ingest.position import from_json, to_json
from tracker.ingest.take import take
from tracker.interfaces import Collector
from tracker.store import NewStream, StoredStream, StreamBatch
from tracker.store.rows import LARGEST_OFFSET

HEAD_BYTES: Final = 256 * 1024
"""What decides about the collector."""
__SHOWN: Final = 100
_SHOWN: Final = 100

Adopt = Callable[[Plan, Collector, str], None]
"""Takes over a file that turned out to be a document: (plan, collector, path)."""


class Logs:
    """All followed files. `pump` reads what is new, `settle` decides again who reads young files."""

    def __init__(
        self,
        plans: Iterable[Plan],
        by_name: dict[str, Collector],
        detect: Detect,
        pending: Pending,
        load: Callable[[int], StoredStream],
        adopt: Adopt,
        *,
        root: Path,
        stored: Iterable[StoredStream],
        skip: Collection[Path] = (),
    ) -> None:
        self._plans = tuple(plan for plan in plans if plan.followed)
        self._all = {plan.index: plan for plan in plans}
        self._by_name = by_name
        self._detect = detect
        self._pending = pending
        self._adopt = adopt
        self._live = LiveStreams(load, self._plan_of, by_name)
        self._stale: set[int] = set()
        """Streams to be read again from their start, once their file is known."""
        self._young: dict[int, int] = {}
        """Streams whose head may still decide otherwise: bytes that the present answer saw."""
        self._grown: set[int] = set()
        """Young streams that hold more than their answer saw."""
        self._touched: set[int] = set()
        """Those that grew in the last pump."""
        self._unknown: dict[int, Unrecognised] = {}
        self._documents: set[str] = set()
        self._sources: dict[int, int] = {}
        """Sources of stored streams, until their files were met."""
        self.rewound = False
        """Whether the last pump or settling sent a stream back to its start."""
        cursors = []
        places = {plan.index: place for place, plan in enumerate(self._plans)}
        homes: dict[int, int] = {}
        for stream in stored:
            self._sources[stream.stream_id] = stream.source
            if stream.kind in ("document", "scheduler"):
                self._documents.add(str(stream.position.get("path", "")))
                continue
            cursor = from_json(stream.stream_id, stream.position)
            if cursor is not None:
                cursors.append(cursor)
                if stream.source in places:
                    homes[stream.stream_id] = places[stream.source]
                self._remember(stream, cursor)
        self._follower = Follower(
            [plan.source.pattern or "" for plan in self._plans],
            root=root,
            cursors=cursors,
            homes=homes,
            count_lines=False,
            skip=skip,
        )

    def _remember(self, stream: StoredStream, cursor: Cursor) -> None:
        """Note what is to be decided again about a stored stream."""
        plan = self._all.get(stream.source)
        if stream.kind != "log" or plan is None or not plan.followed:
            return
        stream_id = stream.stream_id
        collector = self._by_name.get(stream.collector or "")
        if plan.collector is not None:
            same = collector is plan.collector and stream.evidence.get("inputs") == plan.inputs(
                plan.collector
            )
            if not same or stream.offset != cursor.offset:
                self._stale.add(stream_id)
            return
        seen = stream.evidence.get("seen")
        seen = seen if isinstance(seen, int) else 0
        if collector is None:
            self._young[stream_id] = seen
            self._grown.add(stream_id)  # this release may know it
            self._unknown[stream_id] = Unrecognised(path=cursor.path, why=str(stream.evidence.get("why", "")))
            return
        if stream.evidence.get("inputs") != plan.inputs(collector) or stream.offset != cursor.offset:
            self._stale.add(stream_id)  # the latter: killed between a new decision and the reading
        if seen < HEAD_BYTES:
            self._young[stream_id] = seen
            if cursor.offset > seen:
                self._grown.add(stream_id)

    # -- reading -------------------------------------------------------------------------------------

    def pump(self, *, now_us: int, now_s: float, final: bool, max_bytes: int) -> Iterator[int]:
        """Read what is new into the pending batches; yield the bytes of each block, which may be stored."""
        self._touched.clear()
        self.rewound = False
        for chunk in self._follower.poll(now_us=now_us, now_s=now_s, final=final, max_bytes=max_bytes):
            stream_id = self._chunk(chunk)
            if stream_id in self._young and chunk.cursor.offset > self._young[stream_id]:
                self._grown.add(stream_id)
                self._touched.add(stream_id)
            yield len(chunk.data)
        if self._sources:
            self._move_sources()
        self._again(self._stale)

    def stop(self) -> None:
        """End the present pump after this block: the next one goes on there."""
        self._follower.stop()

    def settle(self, *, quiet_only: bool) -> bool:
        """Decide again about young files; tell whether one is to be read again because of it.

        With `quiet_only`, files that grew by little since the last answer wait until they rest.
        """
        some = False
        for stream_id in sorted(self._grown):
            live = self._live.get(stream_id)
            seen = self._young[stream_id]
            if quiet_only and stream_id in self._touched and live.offset - seen < seen >> 4:
                continue
            head = self._follower.head(stream_id, min(HEAD_BYTES, live.offset))
            if head is None:
                continue  # its file is not there now
            self._grown.discard(stream_id)
            some |= self._decide(live, head)
        return some

    def _chunk(self, chunk: Chunk) -> int:
        """Take one chunk; return the number of its stream, 0 where it has none."""
        cursor = chunk.cursor
        plan = None if chunk.pattern is None else self._plans[chunk.pattern]
        if cursor.path in self._documents and cursor.stream_id is None:
            return 0
        if cursor.stream_id is None:
            live = self._first_sight(chunk, plan or self._plans[0])
            if live is None:
                return 0
        else:
            live = self._live.get(cursor.stream_id)
            if plan is not None and live.source != plan.index:
                self._move(live, plan)
            if live.kind == "copy" and not cursor.copy and cursor.path not in self._documents:
                self._no_copy(live, chunk)  # it differs from what it was a copy of
        if live.stream_id in self._stale:
            return live.stream_id  # it will come again, from its start
        live.offset = cursor.offset
        if live.kind == "copy" or live.collector is None or cursor.offset > LARGEST_OFFSET:
            batch = self._batch(live, chunk, parsed=0 if live.collector is None else cursor.offset)
            if live.kind != "copy":
                batch.lines += chunk.lines
            return live.stream_id
        if live.restart and chunk.data:
            live.restart = False
            live.begin()
            batch = self._batch(live, chunk, parsed=cursor.offset)
            self._pending.restart(batch, live.segmenter)
            self._sign(live, batch)
        batch = self._batch(live, chunk, parsed=cursor.offset)
        before = batch.rows
        if chunk.data:
            live.context.offset = chunk.offset
            take(live.collector, chunk.data, live.context, live.segmenter, batch)
            batch.lines += chunk.lines
        batch.skipped += bool(chunk.too_long_bytes) + bool(chunk.nul_bytes)
        self._pending.added(batch.rows - before)
        return live.stream_id

    def _first_sight(self, chunk: Chunk, plan: Plan) -> Live | None:
        """Register a file that nobody knew; None where it is a document."""
        cursor = chunk.cursor
        name = _name(cursor.path)
        live = Live(
            stream_id=0,
            plan=plan,
            source=plan.index,
            kind="copy" if cursor.copy else "log",
            collector=None,
            context=plan.context(name),
            segmenter=Segmenter(),
        )
        if not cursor.copy and not self._recognise(live, chunk):
            return None
        live.stream_id = cursor.stream_id = self._pending.new_id()
        self._live.keep(live)
        new = NewStream(
            source=plan.index,
            kind="copy" if cursor.copy else "log",
            identity=cursor.fingerprint.hex(),
            file_name=name,
            written_us=min(cursor.mtime_us, cursor.first_seen_us),
            seen_us=cursor.first_seen_us,
            first_size=cursor.length_seen or cursor.size_seen,
        )
        batch = self._batch(live, chunk, parsed=0, new=new)
        if not cursor.copy:
            self._sign(live, batch)
            self._mind(live)
        return live

    def _no_copy(self, live: Live, chunk: Chunk) -> None:
        """Let a stream that held no rows be a log of its own from here on, which is its start."""
        live.kind = "log"
        if self._recognise(live, chunk):
            live.begin()
            self._sign(live, self._batch(live, chunk, parsed=0))
            self._mind(live)
        else:
            live.kind = "copy"

    def _recognise(self, live: Live, chunk: Chunk) -> bool:
        """Set who reads a file that begins with this chunk; False where it is a document."""
        plan = live.plan
        live.collector = plan.collector
        if plan.collector is None:
            head = chunk.data[:HEAD_BYTES]
            verdict = self._detect(head)
            live.collector, live.why, live.seen = verdict.collector, verdict.text, len(head)
            if live.collector is not None and not live.collector.followed:
                self._documents.add(chunk.cursor.path)
                self._adopt(plan, live.collector, chunk.cursor.path)
                live.collector = None
                return False
        return True

    def _mind(self, live: Live) -> None:
        """Remember that more bytes may change who reads a file."""
        if live.plan.collector is None and live.seen < HEAD_BYTES:
            self._young[live.stream_id] = live.seen

    def _batch(self, live: Live, chunk: Chunk, *, parsed: int, new: NewStream | None = None) -> StreamBatch:
        cursor = chunk.cursor
        batch = self._pending.batch(
            live.stream_id,
            position=to_json(cursor),
            offset=parsed,
            context=live.context.state,
            segmenter=None if live.kind == "copy" else live.segmenter,
            new=new,
        )
        batch.identity = cursor.fingerprint.hex()
        batch.file_name = live.context.file_name = _name(cursor.path)
        return batch

    # -- deciding ------------------------------------------------------------------------------------

    def _decide(self, live: Live, head: bytes) -> bool:
        """Let the head say who reads a stream; tell whether it is to be read again."""
        verdict = self._detect(head)
        stream_id = live.stream_id
        self._young[stream_id] = len(head)
        if len(head) >= HEAD_BYTES:
            del self._young[stream_id]
        changed = verdict.collector is not live.collector
        if not changed and (verdict.text, len(head)) == (live.why, live.seen):
            return False
        live.why, live.seen = verdict.text, len(head)
        batch = self._pending.known(stream_id)
        if batch is None:
            stored = self._live.load(stream_id)
            batch = self._pending.batch(
                stream_id,
                position=stored.position,
                offset=stored.offset,
                context=live.context.state,
                segmenter=live.segmenter,
            )
        if not changed:
            self._sign(live, batch)
            return False
        live.collector = verdict.collector
        live.begin()
        batch.context, batch.offset = live.context.state, 0
        self._pending.restart(batch, live.segmenter)
        if live.collector is not None and not live.collector.followed:
            path = str(batch.position.get("path", ""))
            self._documents.add(path)
            self._adopt(live.plan, live.collector, path)
            live.collector, live.kind = None, "copy"
            self._young.pop(stream_id, None)
        self._sign(live, batch)
        if live.collector is None:
            return False
        self._stale.add(stream_id)
        self._again({stream_id})
        return self.rewound

    def _sign(self, live: Live, batch: StreamBatch) -> None:
        """Say in a batch who reads the stream, and why."""
        collector = live.collector
        batch.kind = "copy" if live.kind == "copy" else "log"
        batch.collector = None if collector is None else collector.name
        batch.parser_version = None if collector is None else collector.version
        evidence: dict[str, Json] = {}
        if live.plan.collector is None:
            evidence = {"seen": live.seen, "why": live.why}
        if collector is not None:
            evidence["inputs"] = live.plan.inputs(collector)
        batch.evidence = evidence
        if collector is None and live.kind == "log":
            self._unknown[live.stream_id] = Unrecognised(
                path=str(batch.position.get("path", "")), why=live.why
            )
        else:
            self._unknown.pop(live.stream_id, None)

    def _again(self, stream_ids: set[int]) -> None:
        """Have streams read from their start, where their file is there; else what is stored stays."""
        if not stream_ids:
            return
        for stream_id in self._follower.rewind(stream_ids):
            self.rewound = True
            live = self._live.get(stream_id)
            live.restart = True
            if live.plan.collector is not None:
                live.collector = live.plan.collector
            self._stale.discard(stream_id)

    def _move_sources(self) -> None:
        """Let streams belong to the source whose pattern finds them now."""
        for health in self._follower.streams():
            if health.stream_id in self._sources and health.pattern is not None:
                plan = self._plans[health.pattern]
                if self._sources[health.stream_id] != plan.index:
                    self._move(self._live.get(health.stream_id), plan)
        self._sources.clear()

    def _move(self, live: Live, plan: Plan) -> None:
        """Give a stream to another source: it may have another collector, zone or options."""
        batch = self._pending.known(live.stream_id)
        stored = self._live.load(live.stream_id)
        live.plan, live.source = plan, plan.index
        self._sources.pop(live.stream_id, None)
        if batch is None:
            batch = self._pending.batch(
                live.stream_id,
                position=stored.position,
                offset=stored.offset,
                context=live.context.state,
                segmenter=live.segmenter,
            )
        batch.source = plan.index
        cursor = from_json(live.stream_id, stored.position)
        if cursor is not None:
            self._remember(replace(stored, source=plan.index), cursor)

    def shrink(self) -> None:
        """Forget the parsers of streams that rest; called when nothing waits to be stored."""
        self._live.shrink()

    def _plan_of(self, source: int) -> Plan:
        """Return the plan of a stored stream; any, until its file is met, where its source is gone."""
        plan = self._all.get(source)
        return plan if plan is not None and plan.followed else self._plans[0]

    # -- for people ----------------------------------------------------------------------------------

    @property
    def caught_up(self) -> bool:
        """Whether the last look left nothing unread for want of budget."""
        return self._follower.caught_up

    @property
    def next_look_s(self) -> float | None:
        """When a doubt can be settled, on the monotonic clock."""
        return self._follower.next_look_s

    def health(self) -> Health:
        """Return the follower's figures."""
        return self._follower.health()

    def pattern_of(self, plan: Plan) -> int | None:
        """Return the place of a source among the follower's patterns."""
        return self._plans.index(plan) if plan in self._plans else None

    @property
    def unrecognised(self) -> tuple[tuple[Unrecognised, ...], int]:
        """Return some of the files that nobody reads, and how many there are."""
        return tuple(list(self._unknown.values())[:_SHOWN]), len(self._unknown)

    def close(self) -> None:
        """Let go of every file."""
        self._follower.close()


def _name(path: str) -> str:
    base = path.rsplit("/", 1)[-1]
    return unrotated(base.encode("utf-8", "surrogateescape")).decode("utf-8", "replace")
