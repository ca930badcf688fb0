"""Reading on: whole lines of one file, and the cursor after them.

Edge: reads files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tracker.follow import cursor as evidence
from tracker.follow.cursor import HEAD_BYTES, TAIL_BYTES, Chunk, Cursor, fingerprint
from tracker.follow.files import File, Hole, Poll, Pool
from tracker.follow.lines import BLOCK_BYTES, Cut, Wait, cut
from tracker.follow.records import SNIFF_BYTES, cut_records, holds_records
from tracker.follow.settle import Settler

_STRETCH_BYTES: Final = 32 << 20
"""How far one second look at NUL bytes reaches."""


class Reader:
    """Reads what is new in files whose identity is settled. Methods raise OSError, Unreadable."""

    def __init__(self, pool: Pool, settler: Settler, poll: Poll) -> None:
        self._pool = pool
        self._settler = settler
        self._poll = poll

    def readable(self, file: File) -> bool:
        """Tell whether there may be something to read."""
        one = file.stream
        return (
            one is not None
            and file.doubted_s is None
            and file.checked == file.stamp
            and (file.settled != file.stamp or (self._poll.final and one.offset < file.length))
        )

    def read(self, file: File) -> Iterator[Chunk]:
        """Yield what is new in a file, up to the length it has now."""
        one = file.stream
        assert one is not None
        while one.offset < file.length:
            if self._poll.spent():
                return
            found = self._cut(file, one)
            if isinstance(found, Wait):
                self._poll.spend(max(0, found.scanned - max(file.scanned, one.offset)))
                file.scanned, file.ends_in_nul = found.scanned, found.nul
                if found.more:
                    continue
                break
            after = self._after(file, one, found)
            # Trap: looking before reading would leave a moment for a truncation in between.
            if not file.packed and not self._settler.intact(file):
                file.checked = None
                self._poll.look_again(self._poll.now_s)
                return
            self._poll.spend(found.end - one.offset)
            file.stream = one = after
            file.moved, file.scanned, file.hole, file.ends_in_nul = False, 0, None, False
            yield Chunk(
                cursor=after,
                offset=found.start,
                data=found.data,
                too_long_bytes=found.too_long_bytes,
                nul_bytes=found.nul_bytes,
                pattern=file.found_by,
            )
            one = file.stream
        if file.moved:
            file.moved = False
            file.stream = one = self._settler.seen(file, one)
            yield Chunk(cursor=one, offset=one.offset, data=b"", pattern=file.found_by)
        if file.hole is None:
            file.settled = file.stamp
        if file.packed:
            self._pool.close(file)

    def _cut(self, file: File, one: Cursor) -> Cut | Wait:
        """Return the next whole lines; the next whole records of a file that is no text."""
        source = self._pool.get(file)
        if not file.packed and holds_records(source.read(0, SNIFF_BYTES)):
            return cut_records(source, offset=one.offset, end=file.length)
        return cut(
            source,
            offset=one.offset,
            end=file.length,
            scanned=min(file.scanned, file.length),
            final=self._poll.final,
            budget=max(self._poll.left_bytes, BLOCK_BYTES),
            believe_hole=lambda start, stop: self._believe_hole(file, start, stop),
        )

    def _believe_hole(self, file: File, start: int, stop: int) -> bool:
        """Skip NUL bytes only when they are still there at a second look.

        On a network file system a page may read as NUL before its text arrives. One second look settles
        all NUL bytes of the stretch behind: some writers put one before each line.
        """
        if file.packed or self._poll.final or stop <= file.nul_until:
            return True  # what was packed is whole
        hole = file.hole
        if hole is None or (hole.start, hole.stop) != (start, stop):
            end = min(file.length, stop + _STRETCH_BYTES)
            checksum = self._checksum(file, stop, end)
            file.hole = hole = Hole(
                start=start, stop=stop, end=end, checksum=checksum, seen_s=self._poll.now_s
            )
        if not self._poll.look_again(hole.seen_s):
            return False
        same = self._checksum(file, stop, hole.end) == hole.checksum
        file.nul_until = hole.end if same else stop
        return True

    def _checksum(self, file: File, start: int, end: int) -> int:
        """Return the checksum of a stretch of a file, as it reads now."""
        total, source = 0, self._pool.get(file)
        while start < end:
            block = source.read(start, min(BLOCK_BYTES, end - start))
            if not block:
                break
            total = evidence.checksum(block, total)
            start += len(block)
            self._poll.spend(len(block))
        return total

    def _after(self, file: File, one: Cursor, found: Cut) -> Cursor:
        """Return the cursor after some lines."""
        total = evidence.checksum_of_nul(found.nul_bytes, one.checksum)
        at = one.offset + found.nul_bytes
        if found.raw:
            total, at = evidence.checksum(found.data, total), found.end
        while at < found.end:
            block = self._pool.get(file).read(at, min(BLOCK_BYTES, found.end - at))
            if not block:
                raise FileNotFoundError("truncated while it was read")
            total = evidence.checksum(block, total)
            at += len(block)
        if found.raw and len(found.data) >= TAIL_BYTES:
            tail = evidence.digest(found.data[-TAIL_BYTES:])
        else:
            tail = self._settler.tail(file, found.end)
        head = one.fingerprint
        if one.offset < HEAD_BYTES:
            head = fingerprint(self._pool.get(file).read(0, min(HEAD_BYTES, found.end)))
        return replace(
            self._settler.seen(file, one),
            offset=found.end,
            fingerprint=head,
            tail=tail,
            checksum=total,
        )
