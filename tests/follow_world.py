"""A store, a clock and the ways of log rotation, for the tests of ``tracker.follow``."""

from __future__ import annotations

import dataclasses
import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tracker.follow import Chunk, Cursor, Follower

BANNER = b"".join(b"| argument_%02d ........................ the same in every run |\n" % i for i in range(8))
FIELDS = [field.name for field in dataclasses.fields(Cursor)]


class World:
    """A follower whose chunks are stored as an ingest would, and that can be killed."""

    def __init__(self, root: Path, *patterns: str, **options: Any) -> None:
        self.root = root
        self.patterns = patterns or ("*.log",)
        self.options = options
        self.now_s = 1000.0
        self.cursors: dict[int, tuple[object, ...]] = {}
        self.content: dict[int, bytearray] = {}
        self.chunks: list[Chunk] = []
        self.follower = self._new()

    def _new(self) -> Follower:
        return Follower(self.patterns, root=self.root, cursors=self.stored(), **self.options)

    def stored(self) -> list[Cursor]:
        """Return the cursors as a store gives them back."""
        rows = self.cursors.values()
        return [Cursor(**dict(zip(FIELDS, row, strict=True))) for row in rows]  # type: ignore[arg-type]

    def restart(self) -> None:
        """Kill the follower; what is stored is all that the next one knows."""
        self.follower.close()
        self.follower = self._new()

    def iterate(self, **options: Any) -> Iterator[Chunk]:
        """Poll and store chunk by chunk."""
        now_us = int(self.now_s * 1e6) + 10**15
        for chunk in self.follower.poll(now_us=now_us, now_s=self.now_s, **options):
            self.store(chunk)
            yield chunk

    def poll(self, **options: Any) -> bytes:
        """Poll once; return the data."""
        return b"".join(chunk.data for chunk in self.iterate(**options))

    def store(self, chunk: Chunk) -> None:
        """Commit rows and cursor together, and hold them to the contract."""
        cursor = chunk.cursor
        before = None
        if cursor.stream_id is None:
            cursor.stream_id = len(self.cursors) + 1
            self.content[cursor.stream_id] = bytearray()
        else:
            before = Cursor(**dict(zip(FIELDS, self.cursors[cursor.stream_id], strict=True)))  # type: ignore[arg-type]
        if chunk.data:
            assert not cursor.copy
            start = before.offset if before is not None and not before.copy else 0
            assert chunk.offset - chunk.nul_bytes == start
        row = dataclasses.astuple(cursor)
        assert all(isinstance(value, int | str | bytes | None) for value in row)
        assert all(-(1 << 63) <= value < 1 << 63 for value in row if isinstance(value, int))
        cursor.path.encode()
        self.cursors[cursor.stream_id] = row
        self.content[cursor.stream_id] += chunk.data
        self.chunks.append(chunk)

    def tick(self, seconds: float = 1.0) -> None:
        """Let time pass."""
        self.now_s += seconds

    def settle(self, **options: Any) -> bytes:
        """Poll until nothing is in doubt and nothing is left."""
        data = b""
        for _ in range(200):
            data += self.poll(**options)
            if self.follower.caught_up and self.follower.next_look_s is None:
                return data
            self.tick()
        raise AssertionError("never settles")

    def streams(self) -> list[bytes]:
        """Return the content of every stream that has any, in order of content."""
        return sorted(bytes(content) for content in self.content.values() if content)

    def reasons(self) -> dict[str, str]:
        """Return what cannot be read, and why."""
        return {one.path: one.reason for one in self.follower.health().unreadable}


def append(path: Path, data: bytes) -> None:
    """Write as a job does that opens its log for appending."""
    with path.open("ab") as file:
        file.write(data)


def packed(data: bytes) -> bytes:
    """Return a gzip of some bytes, the same each time."""
    return gzip.compress(data, 1, mtime=0)


def pack(path: Path, target: Path | None = None) -> Path:
    """Replace a file by its gzip, as logrotate does."""
    target = target or path.with_name(path.name + ".gz")
    target.write_bytes(packed(path.read_bytes()))
    path.unlink()
    return target


def copy_truncate(path: Path, target: Path) -> None:
    """Rotate in place."""
    target.write_bytes(path.read_bytes())
    os.truncate(path, 0)
