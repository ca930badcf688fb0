"""The files that are there now, the few descriptors held on them, and the poll that looks at them.

Edge: opens files through a bounded pool. One ``File`` is one inode, whatever its names.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Generator
from dataclasses import dataclass, field

from tracker.follow.cursor import Cursor, signed
from tracker.follow.glob import unrotated
from tracker.follow.source import GzipSource, PlainSource, open_file, source_of

Key = tuple[int, int]
"""Device and inode, signed."""
Stamp = tuple[int, int]
"""Size and modification time (ns): while they stand still, nothing is read."""
Work = Generator[None, None, None]
"""A task that stops at each ``yield`` when the poll's budget is used up."""


@dataclass(slots=True)
class Poll:
    """What one poll was given, and what it leaves undone."""

    now_us: int = 0
    now_s: float = 0.0
    final: bool = False
    second_look_s: float = 1.0
    left_bytes: int = 0
    short: bool = False
    """Whether something was left undone, for want of budget or because a name moved meanwhile."""
    failed: set[int] = field(default_factory=set)
    """Copies that could not be looked at: not again in this poll."""
    next_look_s: float | None = None
    """When a doubt of this poll can be settled, on the monotonic clock."""

    def spend(self, size: int) -> None:
        """Count bytes read."""
        self.left_bytes -= size

    def spent(self) -> bool:
        """Tell, and note, that the poll must stop here."""
        if self.left_bytes <= 0:
            self.short = True
        return self.left_bytes <= 0

    def look_again(self, since_s: float) -> bool:
        """Ask for a second look at what was first seen at ``since_s``; tell whether this is it."""
        at = since_s + self.second_look_s
        if self.final or self.now_s >= at:
            return True
        self.next_look_s = at if self.next_look_s is None else min(at, self.next_look_s)
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """NUL bytes at a line's start, and what stood behind them when they were first seen."""

    start: int
    stop: int
    end: int
    """How far the file was looked at."""
    checksum: int
    """Of the bytes from ``stop`` to ``end``."""
    seen_s: float


@dataclass(slots=True, eq=False)
class File:
    """What is known about one inode. It feeds a stream, or copies one, or is not understood yet."""

    key: Key
    path: bytes
    pattern: int | None
    """Number of the first pattern that means it, or did; None where that is not known."""
    stamp: Stamp
    """Size and modification time at the last look."""
    first_seen_us: int
    first_mtime_us: int

    # Whereabouts.
    family: bytes = b""
    """Its name without what rotation added."""
    previous_path: bytes | None = None
    round: int = 0
    """Number of the last look that met it."""
    gone_s: float | None = None
    """When its name was first missed, while a descriptor keeps it readable."""
    outside: bool = False
    """Whether a rename took it out of the patterns."""
    problem: str | None = None

    # Content.
    packed: bool = False
    length: int = 0
    """Length of the content; of a packed file only once ``length_of`` equals the stamp."""
    length_of: Stamp | None = None
    head: bytes = b""
    """Fingerprint of what is there, read or not; empty while not looked at."""

    # Identity.
    stream: Cursor | None = None
    """The stream this file feeds."""
    group: tuple[bytes, bytes] = (b"", b"")
    """Where ``Streams`` keeps it: the head (the first line while that is all), and the family."""
    feeds: int = 0
    """How many streams it was found to feed, one after the other."""
    generation: int = 0
    checked: Stamp | None = None
    """State at which identity was settled."""
    doubted_s: float | None = None
    """When the content was first seen to contradict the cursor."""
    moved: bool = False
    """Whether the store does not know yet that the stream is in this file."""
    task: Work | None = None
    claim: Cursor | None = None
    """The stream without a file that this file continues."""
    claimed: tuple[int, Stamp] | None = None
    """``Streams.orphaned`` and the file's state when that was found out."""

    # Copies.
    twin: File | None = None
    """The file that feeds the stream which this file's content is a part of, so far."""
    agreed: int = 0
    """Bytes known to be equal to the twin's."""
    compared: tuple[Stamp, Stamp] | None = None
    lost: Cursor | None = None
    """The stream all of whose bytes here were read from a file that is gone."""
    alias: Cursor | None = None
    """What the store holds for this file while it is a copy."""
    alias_due: bool = False

    # Reading.
    settled: Stamp | None = None
    """State at which all that can be read was read."""
    scanned: int = 0
    """No line ends between the cursor and here."""
    hole: Hole | None = None
    """NUL bytes at a line's start, while they are doubted."""
    nul_until: int = 0
    """NUL bytes before here stood unchanged at a second look."""
    ends_in_nul: bool = False
    """Whether all that is left to read are NUL bytes."""

    def forget_reading(self) -> None:
        """Begin anew what is kept about reading on: the cursor is another one."""
        self.settled, self.scanned, self.hole, self.nul_until, self.ends_in_nul = None, 0, None, 0, False

    @property
    def found_by(self) -> int | None:
        """Number of the first pattern that means it; None where a rename took it out of all."""
        return None if self.outside else self.pattern

    @property
    def size(self) -> int:
        """Bytes on disk at the last look."""
        return self.stamp[0]

    @property
    def mtime_us(self) -> int:
        """Modification time at the last look, microseconds since 1970."""
        return self.stamp[1] // 1000

    @property
    def unresolved(self) -> bool:
        """Whether nobody knows yet which stream this file belongs to."""
        return self.stream is None and self.twin is None and self.lost is None

    @property
    def order(self) -> tuple[int, int, bytes]:
        """Oldest first: the order of a history."""
        return (self.stamp[1], self.stamp[0], self.path)

    @property
    def awake(self) -> bool:
        """Whether there may be something to do; cheap, for it is asked of every file."""
        stamp = self.stamp
        return self.checked != stamp or self.settled != stamp

    @property
    def lag_bytes(self) -> int:
        """Bytes that are there and not consumed."""
        if self.stream is not None:
            return max(0, self.length - self.stream.offset)
        return self.size if self.unresolved else 0

    @property
    def lag_nul_bytes(self) -> int:
        """Of these: NUL bytes that end it, or all where NUL bytes before them wait for a second look."""
        return self.lag_bytes if self.ends_in_nul or self.hole is not None else 0

    def update(self, status: os.stat_result) -> bool:
        """Take a new status; tell whether it changed."""
        stamp = (status.st_size, status.st_mtime_ns)
        if stamp == self.stamp:
            return False
        self.stamp = stamp
        if not self.packed:
            self.length = status.st_size
        return True

    def stop_task(self) -> None:
        """Forget work begun on a state of the file that is no more."""
        if self.task is not None:
            self.task.close()
            self.task = None


def file_at(path: bytes, status: os.stat_result, *, pattern: int | None, now_us: int) -> File:
    """Return a file seen for the first time."""
    return File(
        key=key_of(status),
        path=path,
        family=unrotated(os.path.basename(path)),
        pattern=pattern,
        stamp=(status.st_size, status.st_mtime_ns),
        first_seen_us=now_us,
        first_mtime_us=status.st_mtime_ns // 1000,
        length=status.st_size,
    )


def key_of(status: os.stat_result) -> Key:
    """Return device and inode as database integers."""
    return signed(status.st_dev), signed(status.st_ino)


class Pool:
    """Open files, the least recently used closed first."""

    def __init__(self, limit: int, poll: Poll) -> None:
        self._limit = max(limit, 2)  # a comparison needs two
        self._poll = poll
        self._open: OrderedDict[Key, tuple[PlainSource | GzipSource, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, file: File) -> PlainSource | GzipSource:
        """Return the file's open stream. Raises OSError, Unreadable."""
        held = self._open.get(file.key)
        if held is not None:
            self._open[file.key] = (held[0], self._poll.now_s)
            self._open.move_to_end(file.key)
            return held[0]
        fd, status = open_file(file.path)
        try:
            if key_of(status) != file.key:
                raise FileNotFoundError(errno.ENOENT, "another file has this name now")
            source = source_of(fd)
        except BaseException:
            os.close(fd)
            raise
        while len(self._open) >= self._limit:
            _, (oldest, _) = self._open.popitem(last=False)
            os.close(oldest.fd)
        self._open[file.key] = (source, self._poll.now_s)
        packed = isinstance(source, GzipSource)
        if packed != file.packed:
            file.packed, file.length_of = packed, None
            file.length = 0 if packed else file.size
        file.problem = None
        return source

    def status(self, file: File) -> os.stat_result | None:
        """Return the status of a file that is held open, whether or not it still has a name."""
        held = self._open.get(file.key)
        if held is None:
            return None
        try:
            return os.fstat(held[0].fd)
        except OSError:
            self.close(file)
            return None

    def close(self, file: File) -> None:
        """Let go of a file."""
        held = self._open.pop(file.key, None)
        if held is not None:
            os.close(held[0].fd)

    def close_idle(self, before_s: float) -> None:
        """Let go of files not used since ``before_s``."""
        while self._open:
            key, (source, used_s) = next(iter(self._open.items()))
            if used_s >= before_s:
                return
            del self._open[key]
            os.close(source.fd)
