"""How far a stream has been read, and the evidence that a file still holds that stream.

Pure. A stream is a sequence of bytes that one writer appended, whatever its file is called now and
however it is packed. ``Cursor`` is what must outlive the process; every field but the kept facts
and the whereabouts is a function of the content before ``offset`` alone, so reading in pieces,
after a crash or all at once ends in the same cursor.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import Final

HEAD_BYTES: Final = 256
"""How much of a stream's beginning its fingerprint covers."""
TAIL_BYTES: Final = 4096
"""How much before the offset the tail digest covers: several lines, so that two runs that print
the same banner, or the same final lines, differ."""
_LENGTH_BYTES: Final = 2
_SIGNED_LIMIT: Final = 1 << 63
_NUL: Final = bytes(64 * 1024)


@dataclass(slots=True, kw_only=True)
class Cursor:
    """Everything that must be stored for one stream; plain values only."""

    stream_id: int | None = None
    """Given by the store. Set it on ``chunk.cursor`` before asking for the next chunk."""
    first_line: bytes
    """Digest of the first line (of 256 bytes at most): streams that could be equal share it."""
    fingerprint: bytes = b""
    """Length and digest of the first 256 bytes, of fewer while fewer have been read."""
    tail: bytes = b""
    """Digest of the last 4,096 bytes before ``offset``, of fewer while fewer have been read."""
    checksum: int = 0
    """CRC-32 of everything before ``offset``, skipped bytes included."""
    device: int
    """Device of the file, as a signed 64-bit number (an SQLite integer)."""
    inode: int
    """Inode of the file, as a signed 64-bit number."""
    path: str
    """Last seen path, for people; relative to the root where it is below it; always valid text."""
    offset: int = 0
    """Offset of the next unread byte, after decompression; just after a line's end (or after an
    unterminated line that ``final`` took)."""
    size_seen: int = 0
    """Size of the file on disk when it was last read, in bytes."""
    length_seen: int = 0
    """The same after decompression."""
    mtime_seen_us: int = 0
    """Its modification time then, microseconds since 1970."""
    first_seen_us: int
    """When the caller first met the stream, microseconds since 1970. A kept fact: never revised."""
    mtime_us: int
    """Modification time at first sight, microseconds since 1970. A kept fact: never revised."""
    generation: int = 0
    """How many streams the same file held before this one (truncations)."""
    copy: bool = False
    """True for a file all of whose bytes up to ``offset`` another one had too: no rows."""
    covered: int = 0
    """Of a copy: the bytes that were read, as the other file's stream."""
    original: int | None = None
    """Of a copy: that stream's number; None while it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Whole lines of one stream, and where that leaves it.

    ``data`` may be empty: then only the cursor changed (the stream goes on in another file) and
    is to be stored all the same.
    """

    cursor: Cursor
    """The cursor after this chunk: store it in the transaction that stores the chunk's rows."""
    offset: int
    """Offset of ``data[0]`` in the stream, after decompression."""
    data: bytes
    """Lines, each ending in a line feed, except the last one of a ``final`` reading. A line
    longer than the limit is a chunk of its own: its beginning, and a line feed."""
    too_long_bytes: int = 0
    """Bytes left out of the single, over-long line in ``data``."""
    nul_bytes: int = 0
    """NUL bytes before ``offset`` that were skipped: a hole, not text."""
    pattern: int | None = None
    """Place of the first pattern that means the file; None where a rename took it out of all."""

    @property
    def lines(self) -> int:
        """Number of lines in ``data``; counted at each call."""
        return self.data.count(b"\n") + (not self.data.endswith(b"\n") and bool(self.data))


def fingerprint(head: bytes) -> bytes:
    """Return length and digest of up to the first 256 bytes of a stream.

    >>> fingerprint(b"a" * 300) == fingerprint(b"a" * 256)
    True
    >>> fingerprint(b"")
    b''
    """
    head = head[:HEAD_BYTES]
    return len(head).to_bytes(_LENGTH_BYTES, "big") + digest(head) if head else b""


def fingerprint_length(value: bytes) -> int:
    """Return how many bytes a fingerprint covers.

    >>> fingerprint_length(fingerprint(b"iteration 1\\n"))
    12
    """
    return int.from_bytes(value[:_LENGTH_BYTES], "big")


def digest(data: bytes) -> bytes:
    """Return 16 bytes that stand for ``data``."""
    return hashlib.blake2b(data, digest_size=16).digest()


def first_line(head: bytes) -> bytes:
    """Return the digest of the first line in ``head``, of its first 256 bytes if it is longer."""
    return digest(head[: head.find(b"\n", 0, HEAD_BYTES) + 1 or HEAD_BYTES])


def checksum(data: bytes, before: int = 0) -> int:
    """Return the CRC-32 of ``data`` after bytes whose CRC-32 is ``before``."""
    return zlib.crc32(data, before)


def checksum_of_nul(size: int, before: int = 0) -> int:
    """Return the CRC-32 of ``size`` NUL bytes after bytes whose CRC-32 is ``before``.

    >>> checksum_of_nul(70_000, 7) == checksum(bytes(70_000), 7)
    True
    """
    while size:
        step = min(size, len(_NUL))
        before = zlib.crc32(_NUL[:step], before)
        size -= step
    return before


def signed(value: int) -> int:
    """Return an unsigned 64-bit number as the signed one that a database integer holds.

    Network file systems hand out inode numbers with the highest bit set.

    >>> signed(2**64 - 1), signed(7)
    (-1, 7)
    """
    return value - 2 * _SIGNED_LIMIT if value >= _SIGNED_LIMIT else value
