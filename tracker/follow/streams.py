"""The streams by what their content begins with: those that a file feeds, and those that none does.

Pure. Streams whose contents could be the same, or a part of one another, share their first line.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracker.follow.cursor import HEAD_BYTES, Cursor, fingerprint_length
from tracker.follow.files import File


class Streams:
    """An index that keeps ten thousand files with one banner apart cheaply."""

    def __init__(self, cursors: Iterable[Cursor]) -> None:
        self._fed: dict[bytes, dict[bytes, dict[int, File]]] = {}
        """First line, then the whole head (empty while shorter), then the file."""
        self._group_of: dict[int, bytes] = {}
        self._orphans: dict[bytes, list[Cursor]] = {}
        self._by_inode: dict[int, list[Cursor]] = {}
        self.orphaned = 0
        """How often a stream lost its file: a task that paused looks again."""
        self.attached = 0
        """How often a file was found to feed a stream: likewise."""
        for one in cursors:
            self.add_orphan(one)

    def orphans(self, first_line: bytes) -> list[Cursor]:
        """Return the streams without a file that begin so, the shortest first."""
        found = self._orphans.get(first_line, [])
        return sorted(found, key=lambda c: (c.offset, c.stream_id or 0))

    def is_orphan(self, one: Cursor) -> bool:
        """Tell whether no file feeds this stream."""
        return any(c is one for c in self._orphans.get(one.first_line, ()))

    def stored_for(self, file: File) -> list[Cursor]:
        """Return the cursors without a file that name this inode, the likeliest first."""
        device, inode = file.key
        return sorted(
            self._by_inode.get(inode, ()),
            key=lambda c: (c.copy, c.device != device, -c.generation, -(c.stream_id or 0)),
        )

    def all_orphans(self) -> list[Cursor]:
        """Return every cursor that no file has claimed."""
        return [one for group in self._by_inode.values() for one in group]

    def add_orphan(self, one: Cursor) -> None:
        """Keep a stream that no file feeds now."""
        self.orphaned += 1
        self._by_inode.setdefault(one.inode, []).append(one)
        if not one.copy:
            self._orphans.setdefault(one.first_line, []).append(one)

    def remove_orphan(self, one: Cursor) -> None:
        """Take a stream back."""
        _discard(self._by_inode, one.inode, one)
        _discard(self._orphans, one.first_line, one)

    def feed(self, file: File, one: Cursor) -> None:
        """Let a file feed a stream."""
        file.stream = one
        file.feeds += 1
        self.attached += 1
        heads = (one.fingerprint, file.head)
        whole = next((h for h in heads if fingerprint_length(h) == HEAD_BYTES), b"")
        self._group_of[id(file)] = whole
        self._fed.setdefault(one.first_line, {}).setdefault(whole, {})[id(file)] = file

    def unfeed(self, file: File) -> Cursor:
        """End that; return the stream."""
        one = file.stream
        assert one is not None
        groups = self._fed[one.first_line]
        whole = self._group_of.pop(id(file))
        del groups[whole][id(file)]
        if not groups[whole]:
            del groups[whole]
            if not groups:
                del self._fed[one.first_line]
        file.stream = None
        return one

    def fed(self, first_line: bytes, head: bytes = b"") -> list[File]:
        """Return the files whose streams begin so; with a whole head, those that can match it."""
        groups = self._fed.get(first_line, {})
        if fingerprint_length(head) == HEAD_BYTES:
            return [*groups.get(head, {}).values(), *groups.get(b"", {}).values()]
        return [file for group in groups.values() for file in group.values()]


def _discard(index: dict[Any, list[Cursor]], name: object, one: Cursor) -> None:
    kept = [c for c in index.get(name, ()) if c is not one]
    if kept:
        index[name] = kept
    else:
        index.pop(name, None)
