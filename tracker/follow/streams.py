"""The streams by what their content begins with: those that a file feeds, and those that none does.

Edge by its neighbours only; no I/O here. Streams whose contents could be the same, or a part of one
another, share their first line.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from tracker.follow.cursor import HEAD_BYTES, Cursor, fingerprint_length
from tracker.follow.files import File

T = TypeVar("T")


class Groups(Generic[T]):
    """Things by name, in order; a name with one thing (nearly all of them) costs no container."""

    def __init__(self) -> None:
        self._single: dict[Hashable, T] = {}
        self._several: dict[Hashable, dict[int, T]] = {}

    def add(self, name: Hashable, one: T) -> None:
        """Put a thing under a name."""
        several = self._several.get(name)
        if several is not None:
            several[id(one)] = one
        elif name in self._single:
            first = self._single.pop(name)
            self._several[name] = {id(first): first, id(one): one}
        else:
            self._single[name] = one

    def discard(self, name: Hashable, one: T) -> None:
        """Take it away, if it is there."""
        several = self._several.get(name)
        if several is not None:
            several.pop(id(one), None)
            if not several:
                del self._several[name]
        elif self._single.get(name) is one:
            del self._single[name]

    def get(self, name: Hashable) -> list[T]:
        """Return what is under a name."""
        several = self._several.get(name)
        if several is not None:
            return list(several.values())
        return [self._single[name]] if name in self._single else []

    def all(self) -> list[T]:
        """Return everything."""
        several = [one for group in self._several.values() for one in group.values()]
        return [*self._single.values(), *several]


class Streams:
    """An index that keeps ten thousand files with one banner apart cheaply."""

    def __init__(self, cursors: Iterable[Cursor]) -> None:
        self._fed: Groups[File] = Groups()
        """By first line."""
        self._by_head: Groups[File] = Groups()
        """By the whole head; by first line while that is all there is."""
        self._kin: Groups[File] = Groups()
        """The same, and by the name without what rotation added."""
        self._orphans: Groups[Cursor] = Groups()
        self._by_inode: Groups[Cursor] = Groups()
        self.orphaned = 0
        """How often a stream lost its file: a task that paused looks again."""
        self.attached = 0
        """How often a file was found to feed a stream: likewise."""
        for one in cursors:
            self.add_orphan(one)

    def orphans(self, first_line: bytes) -> list[Cursor]:
        """Return the streams without a file that begin so, the shortest first."""
        return sorted(self._orphans.get(first_line), key=lambda c: (c.offset, c.stream_id or 0))

    def is_orphan(self, one: Cursor) -> bool:
        """Tell whether no file feeds this stream."""
        return any(c is one for c in self._orphans.get(one.first_line))

    def stored_for(self, file: File) -> list[Cursor]:
        """Return the cursors without a file that name this inode, the likeliest first."""
        device, inode = file.key
        return sorted(
            self._by_inode.get(inode),
            key=lambda c: (c.copy, c.device != device, -c.generation, -(c.stream_id or 0)),
        )

    def all_orphans(self) -> list[Cursor]:
        """Return every cursor that no file has claimed."""
        return self._by_inode.all()

    def add_orphan(self, one: Cursor) -> None:
        """Keep a stream that no file feeds now."""
        self.orphaned += 1
        self._by_inode.add(one.inode, one)
        if not one.copy:
            self._orphans.add(one.first_line, one)

    def remove_orphan(self, one: Cursor) -> None:
        """Take a stream back."""
        self._by_inode.discard(one.inode, one)
        self._orphans.discard(one.first_line, one)

    def feed(self, file: File, one: Cursor) -> None:
        """Let a file feed a stream."""
        file.stream = one
        file.feeds += 1
        self.attached += 1
        file.group = one.first_line, file.family
        for head in (one.fingerprint, file.head):
            if fingerprint_length(head) == HEAD_BYTES:
                file.group = head, file.family
        self._fed.add(one.first_line, file)
        self._by_head.add(file.group[0], file)
        self._kin.add(file.group, file)

    def unfeed(self, file: File) -> Cursor:
        """End that; return the stream."""
        one = file.stream
        assert one is not None
        self._fed.discard(one.first_line, file)
        self._by_head.discard(file.group[0], file)
        self._kin.discard(file.group, file)
        file.stream = None
        return one

    def fed(self, first_line: bytes, head: bytes = b"") -> list[File]:
        """Return the files whose streams begin so; with a whole head, those that can match it."""
        if fingerprint_length(head) == HEAD_BYTES:
            return self._by_head.get(head) + self._by_head.get(first_line)
        return self._fed.get(first_line)

    def kin(self, first_line: bytes, head: bytes, family: bytes) -> list[File]:
        """Return those of them that rotation made of one file."""
        return self._kin.get((head, family)) + self._kin.get((first_line, family))
