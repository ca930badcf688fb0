"""Follow sets of files as a long-running sidecar meets them, and hand out their whole lines.

Edge: reads files and folders; no clock, no SQL, no format. One ``poll`` looks at every file the
patterns mean (``census``, status only), settles which stream each changed file holds (``settle``),
and reads what is new (``reading``), oldest file first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tracker.follow.census import Census
from tracker.follow.cursor import Chunk, Cursor
from tracker.follow.files import Poll, Pool
from tracker.follow.health import Counters, Health, PatternHealth, StreamHealth, Unreadable
from tracker.follow.reading import Reader
from tracker.follow.settle import Settler
from tracker.follow.source import Unreadable as CannotRead
from tracker.follow.streams import Streams

NO_LIMIT: Final = 1 << 62
_IDLE_S: Final = 60.0
"""After how long without a read a descriptor is let go."""
_UNREADABLE_SHOWN: Final = 100
_PASSES: Final = 100
"""How often one poll follows a stream from copy to copy."""


class Follower:
    """Reads every stream behind some patterns once, in pieces, across restarts.

    A chunk counts as consumed when it is handed out. Where storing one fails, drop the follower
    and build a new one from the stored cursors: nothing is lost or doubled.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        *,
        root: Path,
        cursors: Iterable[Cursor] = (),
        homes: Mapping[int, int] | None = None,
        rotated: bool = True,
        skip: Collection[Path] = (),
        max_open: int = 64,
        second_look_s: float = 1.0,
        count_lines: bool = True,
    ) -> None:
        """Take globs relative to ``root`` and every cursor the store holds for them.

        ``homes``: the number of the pattern that each stream belongs to. The file of a stream that
        has none is read on only where a pattern means it; without ``homes`` all are searched for.
        ``rotated``: also read ``train.log.1`` and its like where the pattern means ``train.log``.
        ``skip``: files that are not read, whatever the patterns say.
        ``second_look_s``: after how long a file that contradicts its cursor is believed.
        ``count_lines``: keep ``Health.lines``, at a third of the reading time.
        """
        self._count_lines = count_lines
        self._homes = homes
        self._counters = Counters()
        self._poll = Poll(second_look_s=second_look_s)
        self._pool = Pool(max_open, self._poll)
        self._census = Census(list(patterns), root, rotated=rotated, pool=self._pool, skip=skip)
        self._streams = Streams(cursors)
        self._settler = Settler(self._census, self._pool, self._streams, self._poll, self._counters)
        self._reader = Reader(self._pool, self._settler, self._poll)
        self._bytes = self._lines = 0
        self._bytes_by_pattern = [0] * len(patterns)
        self._lines_by_pattern = [0] * len(patterns)

    def poll(
        self,
        *,
        now_us: int,
        now_s: float | None = None,
        final: bool = False,
        max_bytes: int = NO_LIMIT,
    ) -> Iterator[Chunk]:
        """Look once at everything and yield what is new; raises nothing that a file can cause.

        ``now_us`` is the wall clock, kept as ``first_seen_us``. ``now_s`` is a monotonic clock,
        for second looks and lingering; without it the wall clock serves. ``final`` takes
        unterminated last lines and incomplete gzip files as they are, and believes at once.
        ``max_bytes`` bounds the bytes read by this poll, roughly; ``caught_up`` tells whether
        it was enough. Each file is read to the size it had when the poll began.
        """
        poll = self._poll
        poll.now_us, poll.final = now_us, final
        poll.now_s = now_us / 1e6 if now_s is None else now_s
        poll.left_bytes, poll.short, poll.next_look_s = max(max_bytes, 1), False, None
        poll.failed.clear()
        for file in self._census.look(poll):
            self._settler.drop(file)
        if self._census.looks == 1:
            self._census.search(self._streams.all_orphans(), self._homes, poll)
        for _ in range(_PASSES):
            yield from self._settler.settle()
            yield from self._read_all()
            if not self._settler.follow_copies():
                break
        else:
            poll.short = True
        self._pool.close_idle(poll.now_s - _IDLE_S)

    def stop(self) -> None:
        """End the poll under way after the present chunk, as where ``max_bytes`` is used up."""
        self._poll.left_bytes, self._poll.short = 0, True

    @property
    def caught_up(self) -> bool:
        """Whether the last poll left nothing undone that the next one can do at once."""
        return not self._poll.short

    @property
    def next_look_s(self) -> float | None:
        """When, on the monotonic clock, a poll can settle what the last one doubted; else None."""
        return self._poll.next_look_s

    def head(self, stream_id: int, size: int) -> bytes | None:
        """Return the first bytes of a stream again; None where no file feeds it now, or it fails."""
        for file in self._census.files.values():
            if file.stream is not None and file.stream.stream_id == stream_id:
                try:
                    return self._pool.get(file).read(0, size)
                except (OSError, CannotRead) as error:
                    self._settler.trouble(file, error)
        return None

    def rewind(self, stream_ids: Collection[int]) -> set[int]:
        """Read streams again from their start, beginning with the next poll.

        Returns those that a file feeds now; the others stay where they are. The cursors in the
        store may stay as well until the first chunk comes.
        """
        found = set()
        for file in self._census.files.values():
            one = file.stream
            if one is None or one.stream_id is None or one.stream_id not in stream_ids:
                continue
            file.stream = replace(one, offset=0, checksum=0, tail=b"")
            file.forget_reading()
            found.add(one.stream_id)
        return found

    def close(self) -> None:
        """Let go of every file."""
        for file in self._census.files.values():
            file.stop_task()
        self._pool.close_idle(float("inf"))

    def health(self) -> Health:
        """Return counters and state as of the last poll."""
        files = list(self._census.files.values())
        patterns = self._census.patterns
        lag, number = [0] * len(patterns), [0] * len(patterns)
        for file in files:
            if file.pattern is not None:
                number[file.pattern] += 1
                lag[file.pattern] += file.lag_bytes
        problems = dict(self._census.scan.problems)
        problems.update({file.path: file.problem for file in files if file.problem})
        shown = sorted((self._census.shown(path), why) for path, why in problems.items())
        return Health(
            files=len(files),
            open_files=len(self._pool),
            followed=sum(file.stream is not None for file in files),
            copies=sum(file.twin is not None or file.lost is not None for file in files),
            waiting=sum(file.unresolved for file in files),
            lag_bytes=sum(file.lag_bytes for file in files),
            lag_nul_bytes=sum(file.lag_nul_bytes for file in files),
            read_bytes=self._bytes,
            lines=self._lines,
            rotations=self._counters.rotations + self._census.renames,
            truncations=self._counters.truncations,
            new_streams=self._counters.streams,
            skipped_bytes=dict(self._counters.skipped_bytes),
            patterns=tuple(
                PatternHealth(
                    pattern=pattern.text,
                    files=number[i],
                    read_bytes=self._bytes_by_pattern[i],
                    lines=self._lines_by_pattern[i],
                    lag_bytes=lag[i],
                )
                for i, pattern in enumerate(patterns)
            ),
            unreadable=tuple(Unreadable(path=p, reason=w) for p, w in shown[:_UNREADABLE_SHOWN]),
            unreadable_by_reason=dict(Counter(why for _, why in shown)),
        )

    def streams(self) -> Iterator[StreamHealth]:
        """Yield the state of each stream that a file feeds now, oldest file first."""
        for file in sorted(self._census.files.values(), key=lambda f: f.order):
            if file.stream is not None:
                yield StreamHealth(
                    stream_id=file.stream.stream_id,
                    pattern=file.found_by,
                    path=self._census.shown(file.path),
                    offset=file.stream.offset,
                    lag_bytes=file.lag_bytes,
                    generation=file.stream.generation,
                    doubted=file.doubted_s is not None,
                )

    def _read_all(self) -> Iterator[Chunk]:
        """Read every file that has something new, oldest first."""
        todo = [f for f in self._census.files.values() if self._reader.readable(f)]
        for file in sorted(todo, key=lambda f: f.order):
            before = file.stream.offset if file.stream is not None else 0
            try:
                for chunk in self._reader.read(file):
                    self._count(file.pattern, chunk, chunk.cursor.offset - before)
                    before = chunk.cursor.offset
                    yield chunk
            except (OSError, CannotRead) as error:
                self._settler.trouble(file, error)

    def _count(self, pattern: int | None, chunk: Chunk, consumed: int) -> None:
        lines = chunk.lines if self._count_lines else 0
        self._bytes += consumed
        self._lines += lines
        if pattern is not None:
            self._bytes_by_pattern[pattern] += consumed
            self._lines_by_pattern[pattern] += lines
        self._counters.skipped_bytes["too_long"] += chunk.too_long_bytes
        self._counters.skipped_bytes["nul"] += chunk.nul_bytes
