"""Which stream each file holds: the decisions, and what is kept about them.

Edge: reads files through ``identity``. The rule is that streams are the longest contents that are
or were there. A file whose bytes are all the beginning of another's is a copy and is not read; a
file that continues the content of one that is gone takes over its stream, whatever its name, inode
and packing; any other file is a new stream. A file that contradicts its own past is doubted first
and believed at a second look.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from tracker.follow.census import Census
from tracker.follow.cursor import Chunk, Cursor
from tracker.follow.files import File, Poll, Pool, Work
from tracker.follow.glob import reason, unrotated
from tracker.follow.health import Counters
from tracker.follow.identity import Identity
from tracker.follow.source import Unreadable
from tracker.follow.streams import Streams

_DOUBT_S: Final = 10.0
"""How long a file that contradicts its cursor, and cannot be read to see why, keeps its stream."""


class Settler:
    """Keeps every file's stream, twin or doubt up to date."""

    def __init__(self, census: Census, pool: Pool, streams: Streams, poll: Poll, counters: Counters) -> None:
        self.copies: set[File] = set()
        self._census = census
        self._pool = pool
        self._streams = streams
        self._poll = poll
        self._counters = counters
        self._identity = Identity(pool, streams, poll)
        self._doubted: set[File] = set()
        self._awake: set[File] = set()
        self._unclear: set[bytes] = set()
        """First lines of files that may continue a stream, which this poll cannot tell."""

    def settle(self) -> Iterator[Chunk]:
        """Settle the identity of every file that changed; yield cursors of copies to store."""
        final = self._poll.final
        self._awake.update(
            file
            for file in self._census.files.values()
            if file.checked != file.stamp or (final and file.unresolved)
        )
        self._awake |= self._doubted
        for file in self._pick(lambda f: f.stream is not None):
            self._run(file, self._confirm)
        for file in self._pick(lambda f: f.unresolved):
            self._guess_by_inode(file)
        for file in self._pick(lambda f: f.lost is not None):
            self._recheck_lost(file)
        # A stream that lost its file goes to the file that continues it, the longest one first; only
        # when that is settled for all can what is left be a copy or something new.
        if all([self._run(f, self._claim) for f in self._pick(lambda f: f.unresolved)]):
            claims = self._pick(lambda f: f.unresolved and f.claim is not None)
            claims.sort(key=lambda f: -(f.claim.offset if f.claim is not None else 0))
            if all([self._run(file, self._take) for file in claims]):
                for file in self._pick(lambda f: f.unresolved and f.checked != f.stamp):
                    self._run(file, self._place)
        self._unclear.clear()
        for file in self._pick(lambda f: f.alias_due):
            yield from self._store_alias(file)
        self._awake.clear()

    def follow_copies(self) -> bool:
        """Compare copies on as they and their originals grow; tell whether something came of it."""
        before = self._counters.rotations, len(self.copies)
        for file in sorted(self.copies, key=lambda f: f.order):
            twin = file.twin
            if twin is None or twin.doubted_s is not None or twin.checked != twin.stamp:
                continue
            if file.compared != (file.stamp, twin.stamp):
                self._run(file, self._compare_on)
        for file in self.copies:
            file.alias_due = file.alias_due or self._covered(file) > (
                file.alias.covered if file.alias is not None else 0
            )
        due = [f for f in self.copies if f.alias_due and id(f) not in self._poll.failed]
        self._awake.update(due)
        return bool(due) or before != (self._counters.rotations, len(self.copies))

    def drop(self, file: File) -> None:
        """Forget a file that is gone; its stream waits for another file to continue it."""
        file.stop_task()
        self._pool.close(file)
        self._release(file)
        self._unpair(file)
        self._doubted.discard(file)
        self._awake.discard(file)
        del self._census.files[file.key]

    def intact(self, file: File) -> bool:
        """Tell whether a plain file still holds what its cursor says; raises OSError."""
        one = file.stream
        assert one is not None
        if not one.offset:
            return self._identity.starts(file) == one.first_line
        return self._identity.head_matches(file, one) and self._identity.tail_matches(file, one)

    def tail(self, file: File, offset: int) -> bytes:
        """Return the digest of the bytes before an offset; raises OSError."""
        return self._identity.tail(file, offset)

    def trouble(self, file: File, error: OSError | Unreadable) -> None:
        """Note why a file cannot be read; it is tried again at every poll, or when it changes."""
        self._pool.close(file)
        if isinstance(error, Unreadable):
            file.problem = str(error)
            file.checked = file.settled = file.stamp
        elif isinstance(error, FileNotFoundError):  # renamed since the look: the next one tells
            self._poll.short |= self._poll.look_again(self._poll.now_s)
        else:
            file.problem = reason(error)
        since = file.doubted_s
        if since is not None and self._poll.now_s - since > _DOUBT_S:
            self._trust(file)
            self._release(file)  # other files with this beginning have waited long enough

    def seen(self, file: File, one: Cursor) -> Cursor:
        """Return a cursor with the file's whereabouts of now."""
        return replace(
            one,
            device=file.key[0],
            inode=file.key[1],
            path=self._census.shown(file.path),
            size_seen=file.size,
            length_seen=file.length,
            mtime_seen_us=file.mtime_us,
        )

    # -- one file at a time ----------------------------------------------------------------------

    def _pick(self, wanted: Callable[[File], bool]) -> list[File]:
        return sorted(filter(wanted, self._awake), key=lambda f: f.order)

    def _run(self, file: File, task: Callable[[File], Work]) -> bool:
        """Work on a file until done or out of budget; tell whether it is done."""
        if file.task is None:
            file.task = task(file)
        try:
            next(file.task)
        except StopIteration:
            file.task = None
            return True
        except (OSError, Unreadable) as error:
            file.task = None
            self.trouble(file, error)
            return True
        return False

    def _confirm(self, file: File) -> Work:
        """See that a changed file still holds what was read; doubt first, believe later."""
        one = file.stream
        assert one is not None
        holds = yield from self._identity.holds(file, one)
        if holds and not one.offset and self._identity.starts(file) != one.first_line:
            self._release(file)  # nothing was read yet, so nothing is contradicted
            return
        if not holds and not file.outside:
            if file.doubted_s is None:
                file.doubted_s = self._poll.now_s
                self._doubted.add(file)
            if not self._poll.look_again(file.doubted_s):
                return
            if file.gone_s is None:
                self._pool.close(file)  # a new descriptor: a network file system asks its server
            holds = yield from self._identity.holds(file, one)
        if holds:
            file.checked = file.stamp
            self._trust(file)
        elif holds is None:
            self._trust(file)
            self._release(file)  # packed, not complete: when it is, it may claim the stream again
        elif file.outside:
            self._release(file)  # the inode belongs to a stranger now
        else:
            self._replaced(file)

    def _trust(self, file: File) -> None:
        file.doubted_s = None
        self._doubted.discard(file)

    def _replaced(self, file: File) -> None:
        """Believe that a file was truncated, or written anew: it holds another stream now."""
        self._counters.truncations += 1
        self._trust(file)
        self._release(file)
        self._pool.close(file)
        file.generation += 1
        file.first_seen_us, file.first_mtime_us = self._poll.now_us, file.mtime_us
        file.head, file.alias = b"", None

    def _guess_by_inode(self, file: File) -> None:
        """Try the stored streams that name this inode; what stands still needs no reading."""
        likely = []
        for one in self._streams.stored_for(file):
            seen = (one.device, one.size_seen, one.mtime_seen_us)
            unchanged = seen == (file.key[0], file.size, file.mtime_us)
            family = unrotated(os.path.basename(os.fsencode(one.path)))
            if one.generation < file.generation or not (unchanged or file.outside or family == file.family):
                continue  # a number used again, or a move: ``_claim`` compares all that was read
            likely.append(one)
            holds = True if unchanged else self._plainly_holds(file, one)
            if holds is None:
                return
            if not holds:
                continue
            if one.copy:
                file.alias = one
                self._streams.remove_orphan(one)
                return
            self._attach(file, one)
            file.checked = file.stamp
            if unchanged:
                file.settled = file.stamp if one.offset == one.length_seen else None
                if one.length_seen != one.size_seen:
                    file.packed, file.length, file.length_of = True, one.length_seen, file.stamp
            return
        if file.outside:
            self.drop(file)
        elif self._census.looks == 1 and not file.packed:
            # It contradicts the store, which may be the file system's fault: doubt it as well.
            for one in likely:
                if not one.copy and one.device == file.key[0]:
                    self._attach(file, one)
                    self._run(file, self._confirm)
                    return

    def _plainly_holds(self, file: File, one: Cursor) -> bool | None:
        """Compare a plain file; a packed one is left to ``_claim``. None: it cannot be read."""
        try:
            source = self._pool.get(file)
            if file.packed or os.fstat(source.fd).st_size < one.offset:
                return False
            return self._identity.head_matches(file, one) and self._identity.tail_matches(file, one)
        except (OSError, Unreadable) as error:
            self.trouble(file, error)
            return None

    def _recheck_lost(self, file: File) -> None:
        """A copy whose original is gone has changed: begin again."""
        file.lost = None
        if file.alias is not None and self._plainly_holds(file, file.alias) is False:
            file.alias = None

    def _claim(self, file: File) -> Work:
        """Find the stream without a file that this file continues."""
        if file.claimed == (self._streams.orphaned, file.stamp):
            return
        name = yield from self._identity.begins(file)
        if name is None:
            file.checked = file.settled = file.stamp
            return
        file.checked = None
        if file.alias is not None and not (yield from self._identity.holds(file, file.alias)):
            file.alias = None
        found_at = self._streams.orphaned, file.stamp
        file.claim = yield from self._identity.continues(file, name)
        file.claimed = found_at

    def _take(self, file: File) -> Work:
        """Let a file go on with the stream it claims, unless it is a copy after all."""
        one = file.claim
        assert one is not None
        if self._in_doubt(one.first_line):
            return
        # A stream that stopped within a banner is continued by every run with that banner: a file
        # that is all contained in another is that one's copy.
        verdict, _, agreed = yield from self._identity.original(file, one.first_line)
        if file.claimed != (self._streams.orphaned, file.stamp):
            self._unclear.add(one.first_line)
            self._poll.short = True
        elif verdict == "unsure":
            self._unclear.add(one.first_line)
            self._poll.look_again(self._poll.now_s)
        elif not self._streams.is_orphan(one):
            file.claim = file.claimed = None  # another file was faster
            self._unclear.add(one.first_line)
            self._poll.short = True
        elif verdict == "same" and agreed == file.length:
            file.claim = None
        else:
            self._attach(file, one)
            file.checked = file.stamp
            self._counters.rotations += 1

    def _place(self, file: File) -> Work:
        """Make a file a copy of another, or the first file of a new stream."""
        name = yield from self._identity.begins(file)
        if name is None or self._in_doubt(name):
            return
        verdict, other, agreed = yield from self._identity.original(file, name)
        if file.claimed != (self._streams.orphaned, file.stamp):
            self._poll.short = True  # a stream lost its file while this paused
            return
        if verdict == "unsure":
            self._poll.look_again(self._poll.now_s)
        if verdict == "unsure" or self._in_doubt(name):
            return
        file.checked = file.stamp
        if other is not None:
            file.twin, file.agreed, file.compared = other, agreed, None
            self.copies.add(file)
            # Stored before more of the original is read: should that be truncated while we are
            # down, the copy must still be known for one.
            file.alias_due = agreed == file.length
        elif (lost := self._identity.copied_from(file, name)) is not None:
            file.lost = lost
        else:
            self._attach(file, self._new_stream(file, name))
            file.alias = None
            self._counters.streams += 1

    def _in_doubt(self, name: bytes) -> bool:
        """Tell whether a stream that begins so may be about to change its file."""
        return name in self._unclear or any(
            other.stream is not None and other.stream.first_line == name for other in self._doubted
        )

    def _new_stream(self, file: File, name: bytes) -> Cursor:
        return Cursor(
            stream_id=file.alias.stream_id if file.alias is not None else None,
            first_line=name,
            device=file.key[0],
            inode=file.key[1],
            path=self._census.shown(file.path),
            first_seen_us=file.first_seen_us,
            mtime_us=file.first_mtime_us,
            generation=file.generation,
        )

    def _attach(self, file: File, one: Cursor) -> None:
        self._streams.remove_orphan(one)
        file.moved = one.offset > 0 and (one.device, one.inode) != file.key
        file.generation = one.generation
        file.forget_reading()
        file.claim = file.claimed = None
        self._streams.feed(file, one)

    def _release(self, file: File) -> None:
        """Take the stream from a file; its copies know from now on that it is gone."""
        file.checked = file.settled = None
        if file.stream is None:
            return
        one = self._streams.unfeed(file)
        if one.offset or one.stream_id is not None:
            self._streams.add_orphan(one)
        for copy in [c for c in self.copies if c.twin is file]:
            self._unpair(copy)
            if copy.length <= copy.agreed and copy.length < one.offset:
                copy.lost, copy.alias_due = one, True
                copy.checked = copy.stamp

    def _unpair(self, file: File) -> None:
        file.twin, file.checked = None, None
        self.copies.discard(file)
        self._awake.add(file)

    # -- copies ----------------------------------------------------------------------------------

    def _compare_on(self, file: File) -> Work:
        twin = file.twin
        assert twin is not None
        # Trap: the copy may have been replaced; its inode may even be another file's by now.
        stamps = file.stamp, twin.stamp
        known = self._identity.still_agrees(file, twin)
        verdict, file.agreed = yield from self._identity.compare(file, twin, file.agreed if known else 0)
        if file.twin is not twin or verdict == "unsure":
            return
        if verdict == "differs":
            self._unpair(file)
            file.alias = file.alias if known else None
            return
        if stamps != (file.stamp, twin.stamp):  # they grew while this paused
            self._poll.short = True
            return
        file.compared = stamps
        if file.length > twin.length:
            self._exchange(file, twin)
        else:
            file.alias_due = file.alias is None or file.alias.offset != file.length

    def _covered(self, file: File) -> int:
        """Return how much of a copy was read as its original's stream."""
        original = file.lost or (file.twin.stream if file.twin is not None else None)
        return min(file.agreed, file.length, original.offset) if original is not None else 0

    def _exchange(self, file: File, twin: File) -> None:
        """The copy holds more than the original: the stream goes on there."""
        if not twin.packed:
            status = self._pool.status(twin)
            if status is None or status.st_size != twin.length:
                file.compared = None
                return
        one = self._streams.unfeed(twin)
        self._unpair(file)
        self._attach(file, one)
        file.checked, twin.checked = file.stamp, twin.stamp
        self._counters.rotations += 1
        twin.agreed = twin.length
        self.copies.add(twin)
        for copy in self.copies:
            if copy is twin or copy.twin is twin:
                copy.twin, copy.compared = file, None
                copy.agreed = min(copy.agreed, twin.length)

    def _store_alias(self, file: File) -> Iterator[Chunk]:
        """Have it stored that a file's content is known, before its original can go away."""
        file.alias_due = False
        original = file.lost or (file.twin.stream if file.twin is not None else None)
        if original is None:
            return
        alias = file.alias
        if alias is None:
            alias = replace(self._new_stream(file, original.first_line), copy=True)
        try:
            alias = self._identity.position(file, self.seen(file, alias), file.length)
            alias.covered, alias.original = self._covered(file), original.stream_id
        except (OSError, Unreadable) as error:
            self.trouble(file, error)
            self._poll.failed.add(id(file))
            return
        file.alias = alias
        yield Chunk(cursor=alias, offset=alias.offset, data=b"", pattern=file.found_by)
