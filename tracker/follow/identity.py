"""Questions about content: is this what was read, does it continue a stream, is it a copy?

Edge: reads files. Every question is a generator that pauses when the poll's budget is used up,
so that a terabyte to compare never stops the sidecar.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import replace
from typing import Final, Literal

from tracker.follow import cursor as evidence
from tracker.follow.cursor import HEAD_BYTES, TAIL_BYTES, Cursor, fingerprint, fingerprint_length
from tracker.follow.files import File, Poll, Pool
from tracker.follow.lines import BLOCK_BYTES
from tracker.follow.source import GZIP_MAGIC, GzipSource, Unreadable
from tracker.follow.streams import Streams

_MANY: Final = 256
"""Files with the same beginning up to which a new one is compared with thirty-two of them; with
eight where there are more, so that ten thousand ranks with one banner do not stop the sidecar."""
_FIRST_BLOCK_BYTES: Final = 4096

Verdict = Literal["same", "differs", "unsure"]


class Identity:
    """Answers from content. Methods raise OSError, and Unreadable."""

    def __init__(self, pool: Pool, streams: Streams, poll: Poll) -> None:
        self._pool = pool
        self._streams = streams
        self._poll = poll

    def length(self, file: File) -> Generator[None, None, int | None]:
        """Return the content's length; None for a packed file that is not complete."""
        source = self._pool.get(file)
        if not isinstance(source, GzipSource):
            return file.size
        if file.length_of == file.stamp:
            return file.length
        while not source.ended:
            if self._poll.spent():
                yield
                again = self._pool.get(file)
                if not isinstance(again, GzipSource):
                    raise FileNotFoundError("written anew while it was read")
                source = again
            before = source.reached
            source.advance()
            self._poll.spend(source.reached - before)
        if not (source.complete or self._poll.final):
            file.problem = "is an incomplete gzip file (still being written, or cut off)"
            return None
        file.length, file.length_of = source.reached, file.stamp
        return file.length

    def begins(self, file: File) -> Generator[None, None, bytes | None]:
        """Return the digest of the file's first line; None while it has none."""
        if not file.size:
            return None
        if (yield from self.length(file)) is None:
            return None
        head = self._pool.get(file).read(0, HEAD_BYTES)
        if head.startswith(GZIP_MAGIC) and not file.packed:  # it was empty when it was opened
            self._pool.close(file)
            if (yield from self.length(file)) is None:
                return None
            head = self._pool.get(file).read(0, HEAD_BYTES)
        whole = b"\n" in head or len(head) == HEAD_BYTES
        if not head or not (whole or self._poll.final):
            return None
        file.head = fingerprint(head)
        return evidence.first_line(head)

    def starts(self, file: File) -> bytes:
        """Return the digest of what the content begins with now."""
        return evidence.first_line(self._pool.get(file).read(0, HEAD_BYTES))

    def holds(self, file: File, one: Cursor) -> Generator[None, None, bool | None]:
        """Tell whether the file's content up to the cursor is what was read; None: cannot tell.

        A plain file is compared in its first 256 bytes and in the last 4,096 before the offset,
        a packed one throughout.
        """
        length = yield from self.length(file)
        if length is None:
            return None
        if not file.packed:
            length = os.fstat(self._pool.get(file).fd).st_size
        if length < one.offset or not self.head_matches(file, one):
            return False
        if file.packed and not one.copy:
            total = yield from self._checksum(file, 0, one.offset, 0)
            if total != one.checksum:
                return False
        return self.tail_matches(file, one)

    def head_matches(self, file: File, one: Cursor) -> bool:
        """Compare the beginning with the fingerprint."""
        size = fingerprint_length(one.fingerprint)
        return fingerprint(self._pool.get(file).read(0, size)) == one.fingerprint

    def tail_matches(self, file: File, one: Cursor) -> bool:
        """Compare the bytes before the offset with their digest."""
        return self.tail(file, one.offset) == one.tail

    def tail(self, file: File, offset: int) -> bytes:
        """Return the digest of the last bytes before an offset."""
        size = min(TAIL_BYTES, offset)
        data = self._pool.get(file).read(offset - size, size)
        return evidence.digest(data) if data else b""

    def continues(self, file: File, name: bytes) -> Generator[None, None, Cursor | None]:
        """Return the longest stream without a file that this file's content continues.

        Here the check sum of everything that was read is compared too: the file has another
        inode, or comes from another time.
        """
        length = yield from self.length(file)
        if length is None:
            return None
        known = file.alias.covered if file.alias is not None else 0  # read as another stream
        alike = [
            one
            for one in self._streams.orphans(name)
            if known <= one.offset <= length and self.head_matches(file, one)
        ]
        if not file.packed:
            alike = [one for one in alike if self.tail_matches(file, one)]
        found = None
        total: int | None = 0
        at = 0
        for one in alike:
            total = yield from self._checksum(file, at, one.offset, total)
            at = one.offset
            if total == one.checksum and self.tail_matches(file, one):
                found = one
        return found

    def _checksum(
        self, file: File, start: int, end: int, total: int | None
    ) -> Generator[None, None, int | None]:
        """Return the check sum of the content up to ``end``, given that up to ``start``."""
        while start < end and total is not None:
            if self._poll.spent():
                yield
            block = self._pool.get(file).read(start, min(BLOCK_BYTES, end - start))
            if not block:
                return None
            total = evidence.checksum(block, total)
            start += len(block)
            self._poll.spend(len(block))
        return total

    def original(self, file: File, name: bytes) -> Generator[None, None, tuple[Verdict, File | None, int]]:
        """Return the file that feeds a stream which this file's content is a part of, or extends.

        The verdict is ``unsure`` while one that could be it cannot be compared.
        """
        differ: set[tuple[int, int]] = set()
        while True:
            likely = [f for f in self._likeliest(file, name) if (id(f), f.feeds) not in differ]
            attached = self._streams.attached
            for other in likely:
                feeds = other.feeds
                verdict, agreed = yield from self.compare(file, other, 0)
                if verdict != "differs":
                    return verdict, other, agreed
                differ.add((id(other), feeds))
            if attached == self._streams.attached:  # while this paused, other files may have come
                return "differs", None, 0

    def _likeliest(self, file: File, name: bytes) -> list[File]:
        """Return the few files worth a comparison.

        The one that rotation would have copied comes first, then its other rotations, then those
        of like size.
        """
        head = self._pool.get(file).read(0, HEAD_BYTES)
        heads: dict[int, bytes] = {}
        family, length = file.family, file.length
        others = self._streams.fed(name, file.head)
        limit = 32 if len(others) <= _MANY else 8
        if len(others) > _MANY:
            others = self._streams.kin(name, file.head, family) + others[-_MANY:]
        alike = {}
        for other in others:
            consumed = other.stream.fingerprint if other.stream is not None else b""
            known = max(consumed, other.head)  # a fingerprint begins with its length
            size = fingerprint_length(known)
            if size not in heads:
                heads[size] = fingerprint(head[:size])
            if size > len(head) or heads[size] == known:
                alike[id(other)] = other
        return sorted(
            alike.values(),
            key=lambda f: (
                f.family != family,
                not f.path.endswith(b"/" + family),
                abs(f.length - length),
                f.path,
            ),
        )[:limit]

    def compare(self, file: File, other: File, start: int) -> Generator[None, None, tuple[Verdict, int]]:
        """Compare two contents over their common length from ``start`` on, byte by byte.

        Returns the verdict and up to where they agree.
        """
        lengths = [(yield from self.length(file))]
        try:
            lengths.append((yield from self.length(other)))
        except FileNotFoundError:
            return "unsure", start
        except (OSError, Unreadable):
            return "differs", start  # what cannot be read keeps no other file waiting
        if lengths[0] is None or lengths[1] is None:
            return "unsure", start
        if lengths[1] < (other.stream.offset if other.stream else 0):
            return "unsure", start
        at, end, size = start, min(lengths[0], lengths[1]), _FIRST_BLOCK_BYTES
        while at < end:
            if self._poll.spent():
                yield
                if other.stream is None:
                    return "unsure", at
            size = min(size, end - at)
            left = self._pool.get(file).read(at, size)
            try:
                right = self._pool.get(other).read(at, size)
            except FileNotFoundError:
                return "unsure", at
            except (OSError, Unreadable):
                return "differs", at
            self._poll.spend(len(left) + len(right))
            common = min(len(left), len(right))
            if left[:common] != right[:common]:
                # Trap: the other may have been truncated a moment ago; then it proves nothing.
                stream = other.stream
                sound = stream is not None and (yield from self.holds(other, stream))
                return ("differs" if sound else "unsure"), at
            if common < size:
                return "unsure", at + common
            at += common
            size = min(size * 4, BLOCK_BYTES)
        # While this paused, the other may have handed its stream on.
        return ("same" if other.stream is not None else "unsure"), at

    def still_agrees(self, file: File, other: File) -> bool:
        """Look whether two plain files that agreed up to ``file.agreed`` still do, at both ends."""
        if file.packed or other.packed or not 0 < file.agreed <= min(file.length, other.length):
            return False
        left, right = self._pool.get(file), self._pool.get(other)
        tail = max(0, file.agreed - TAIL_BYTES)
        return left.read(0, HEAD_BYTES) == right.read(0, HEAD_BYTES) and left.read(
            tail, file.agreed - tail
        ) == right.read(tail, file.agreed - tail)

    def copied_from(self, file: File, name: bytes) -> Cursor | None:
        """Return the stream whose rows already cover a file that was stored as its copy.

        Its original is gone and was read further than this file goes. A copy that was still being
        made when it was last seen was finished before that reading; what is younger is no copy,
        but a run that began with the same banner.
        """
        alias = file.alias
        if alias is None or alias.original is None:
            return None
        for one in self._streams.orphans(name):
            if (
                one.stream_id == alias.original
                and one.offset > file.length
                and (file.length == alias.offset or file.mtime_us <= one.mtime_seen_us)
            ):
                return one
        return None

    def position(self, file: File, one: Cursor, offset: int) -> Cursor:
        """Return a cursor moved to an offset of this file, its evidence read again."""
        head = self._pool.get(file).read(0, min(HEAD_BYTES, offset))
        tail = self.tail(file, offset)
        return replace(one, offset=offset, fingerprint=fingerprint(head), tail=tail)
