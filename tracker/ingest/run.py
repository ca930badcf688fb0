"""The whole way in: follow, recognise, parse, cut into segments, store; one pass at a time.

Edge. Position and rows of a block commit in one transaction. Where the store cannot be written, what was
read is forgotten and read again from the stored positions, so nothing is lost, doubled or piled up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tracker.config.model import Source
from tracker.ingest.documents import Documents
from tracker.ingest.health import IngestHealth, Pass, SourceHealth
from tracker.ingest.logs import Logs
from tracker.ingest.pending import Pending
from tracker.ingest.plan import Detect, plans, renumbered, source_keys
from tracker.interfaces import Clock, Collector
from tracker.store import Writer, own_files
from tracker.store.errors import PASSING, StoreError, StoreReadOnly
from tracker.store.writer import SOURCES

FLUSH_ROWS: Final = 5_000
FLUSH_S: Final = 1.0
PASS_BYTES: Final = 32 << 20
"""How much one `poll` reads at most, so that whoever asked gets a word in."""
_TOLD_S: Final = 0.1
_LOOKS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far `once` is."""

    read_bytes: int
    lag_bytes: int
    """Still to be read, as far as known."""


Told = Callable[[Progress], None]
Enough = Callable[[], bool]
"""Asked after each block: whether to stop here, and leave the rest to a later pass."""


class Ingest:
    """Reads the sources of one config into one store.

    The caller holds the store's `RunLock`: two of these on one store would read everything twice.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        collectors: Mapping[str, Collector],
        detect: Detect,
        store: Writer,
        clock: Clock,
        *,
        root: Path,
        skip: Collection[Path] = (),
    ) -> None:
        """`root` is the config's folder, from which patterns start; `detect` says who reads a file.

        `skip`: files that no pattern means; the store's own are always among them.
        """
        self._plans = plans(sources, collectors)
        self._keys = source_keys(sources)
        self._by_name = dict(collectors)
        self._detect = detect
        self._store = store
        self._clock = clock
        self._root = root
        self._skip = (*skip, *own_files(store.path))
        self._problem: str | None = None
        self._last_pass_us: int | None = None
        self._read_bytes = 0
        self._last_commit_s = clock.monotonic_s()
        self._pending = Pending(store)
        self._number_sources()
        self._begin()

    def _number_sources(self) -> None:
        """Let stored streams follow their source when its place in the config changed."""
        text = self._store.meta(SOURCES)
        before: list[str] = json.loads(text) if text is not None else []
        if before != self._keys:
            gone = [key for key in before if key not in self._keys]
            self._store.set_sources(json.dumps(self._keys + gone), renumbered(before, self._keys))

    def _begin(self) -> None:
        """Start from what is stored."""
        self._pending.forget()
        stored = self._store.streams()
        self._documents = Documents(
            self._plans, self._by_name, self._pending, root=self._root, stored=stored, skip=self._skip
        )
        self._logs = Logs(
            self._plans,
            self._by_name,
            self._detect,
            self._pending,
            self._store.stream,
            self._documents.adopt,
            root=self._root,
            stored=stored,
            skip=self._skip,
        )

    # -- passes --------------------------------------------------------------------------------------

    def poll(self, *, enough: Enough = lambda: False) -> Pass:
        """Look at everything once and store what is new, as far as `PASS_BYTES` reach; never waits.

        `enough` ends it after the present block: what was read is stored, and `more` is true.
        """
        return self._guarded(
            lambda: self._pass(max_bytes=PASS_BYTES, final=False, settled=False, enough=enough)
        )

    def once(self, *, final: bool = False, told: Told | None = None) -> Pass:
        """Read all sources to their end; `final` takes unterminated last lines too. Raises StoreError."""
        rows = read = 0
        looks, least = 0, 1 << 62
        while True:
            one = self._pass(max_bytes=PASS_BYTES, final=final, settled=True, wait=True, told=told)
            rows, read = rows + one.rows, read + one.read_bytes
            if one.more:
                continue
            look_s, left = self._logs.next_look_s, self._logs.health().lag_bytes
            if left < least:
                looks, least = 0, left  # a look that brought something: there may be more behind it
            if look_s is None or looks >= _LOOKS:
                return Pass(rows=rows, read_bytes=read)
            looks += 1
            self._clock.wait(max(0.0, look_s - self._clock.monotonic_s()) + 0.01)

    def _guarded(self, work: Callable[[], Pass]) -> Pass:
        """Do a pass; a store that cannot be written for now is a fact, not an end."""
        try:
            if self._problem is not None:
                self._begin()
            found = work()
        except PASSING as error:
            self._problem = str(error)
            self._documents.close()
            self._logs.close()
            return Pass(problem=self._problem, broken=isinstance(error, StoreReadOnly))
        self._problem = None
        return found

    def _pass(
        self,
        *,
        max_bytes: int,
        final: bool,
        settled: bool,
        wait: bool = False,
        told: Told | None = None,
        enough: Enough = lambda: False,
    ) -> Pass:
        now_us, now_s = self._clock.now_us(), self._clock.monotonic_s()
        rows = read = 0
        told_s = now_s
        cut_short = False
        for size in self._logs.pump(now_us=now_us, now_s=now_s, final=final, max_bytes=max_bytes):
            read += size
            self._read_bytes += size
            moment_s = self._clock.monotonic_s()
            if self._pending.rows >= FLUSH_ROWS or moment_s - self._last_commit_s >= FLUSH_S:
                rows += self._commit(moment_s)
            if told is not None and moment_s - told_s >= _TOLD_S:
                told_s = moment_s
                told(Progress(read_bytes=self._read_bytes, lag_bytes=self._logs.health().lag_bytes))
            if not cut_short and enough():
                cut_short = True
                self._logs.stop()
        before = self._documents.read_bytes
        if not cut_short:
            self._documents.look(now_us=now_us, now_s=now_s, wait=wait)
        read += self._documents.read_bytes - before
        caught_up = self._logs.caught_up
        again = self._logs.settle(quiet_only=not (settled and caught_up))
        rows += self._commit(self._clock.monotonic_s())
        more = again or cut_short or not caught_up or self._logs.rewound
        if not more:
            self._last_pass_us = self._clock.now_us()
        if told is not None:
            told(Progress(read_bytes=self._read_bytes, lag_bytes=self._logs.health().lag_bytes))
        return Pass(rows=rows, read_bytes=read, more=more)

    def _commit(self, now_s: float) -> int:
        self._last_commit_s = now_s
        rows = self._pending.commit()
        self._logs.shrink()
        return rows

    # -- for people ----------------------------------------------------------------------------------

    def health(self) -> IngestHealth:
        """Return counters, and the state as of the last pass."""
        follower = self._logs.health()
        shown, number = self._logs.unrecognised
        problems = self._documents.problems
        by_reason = dict(follower.unreadable_by_reason)
        for why in problems.values():
            by_reason[why] = by_reason.get(why, 0) + 1
        sources = []
        for plan in self._plans:
            place = self._logs.pattern_of(plan)
            if place is not None:
                pattern = follower.patterns[place]
                sources.append(
                    SourceHealth(
                        number=plan.source.number,
                        files=pattern.files,
                        lag_bytes=pattern.lag_bytes,
                        up=pattern.files > 0,
                        problem=None if pattern.files else "no file matches",
                    )
                )
            elif plan.source.command is not None:
                up, problem = self._documents.command_problem(plan)
                sources.append(SourceHealth(number=plan.source.number, up=up, problem=problem))
            else:
                files = self._documents.files.get(plan.index, 0)
                sources.append(
                    SourceHealth(
                        number=plan.source.number,
                        files=files,
                        up=files > 0,
                        problem=None if files else "no file matches",
                    )
                )
        return IngestHealth(
            lines=self._pending.lines,
            read_bytes=self._read_bytes + self._documents.read_bytes,
            readings=self._pending.readings,
            rejects=dict(self._pending.rejects),
            commits=self._pending.commits,
            lag_bytes=follower.lag_bytes,
            lag_nul_bytes=follower.lag_nul_bytes,
            files=follower.files,
            rotations=follower.rotations,
            truncations=follower.truncations,
            skipped_bytes=dict(follower.skipped_bytes),
            unreadable=(
                *((one.path, one.reason) for one in follower.unreadable),
                *sorted(problems.items()),
            )[:100],
            unreadable_by_reason=by_reason,
            unrecognised=shown,
            unrecognised_files=number,
            sources=tuple(sources),
            last_pass_us=self._last_pass_us,
            problem=self._problem,
        )

    def close(self) -> None:
        """Let go of files and commands. What was read is stored already."""
        try:
            self._documents.close()
        finally:
            self._logs.close()


__all__ = ["Ingest", "Progress", "StoreError"]
