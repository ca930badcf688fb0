"""Open files as streams of bytes: plain ones by offset, gzip ones by offset after decompression.

Edge. Opens for reading only, never waits for a FIFO, never writes, and does not touch the access
time where the system lets it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import zlib
from typing import Final

from tracker.follow.lines import BLOCK_BYTES, LINE_BYTES

GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_OTHER_PACKINGS: Final = {
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\x04\x22\x4d\x18": "lz4",
}
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_KEEP_BYTES: Final = LINE_BYTES + 2 * BLOCK_BYTES
"""How far back a gzip source can read without starting again: one kept line."""
_LONG_BLOCKS: Final = 16
"""Whole blocks read one after another that are catching up, not following."""
_FOLIO_BYTES: Final = 4 << 20
"""The kernel keeps pages in groups up to half of this, and lets go of whole ones only."""
_forget = getattr(os, "posix_fadvise", None)


class Unreadable(Exception):
    """A file that cannot be followed as it is now, with the reason for people."""


def open_file(path: bytes) -> tuple[int, os.stat_result]:
    """Return a descriptor of the regular file at ``path`` and its status.

    Raises OSError, and ``Unreadable`` where the path leads to something else than a file.
    """
    try:
        fd = os.open(path, _FLAGS | os.O_NOATIME)
    except PermissionError as error:
        if error.errno != errno.EPERM:
            raise
        fd = os.open(path, _FLAGS)  # not the owner: the access time follows the mount's rule
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable(kind_of(status.st_mode))
    except BaseException:
        os.close(fd)
        raise
    return fd, status


def kind_of(mode: int) -> str:
    """Return why something that is not a regular file is not read."""
    if stat.S_ISDIR(mode):
        return "is a directory"
    if stat.S_ISFIFO(mode):
        return "is a named pipe"
    if stat.S_ISSOCK(mode):
        return "is a socket"
    return "is a device"


def source_of(fd: int) -> PlainSource | GzipSource:
    """Return the stream behind a descriptor, chosen by its first bytes, never by its name.

    Raises OSError, and ``Unreadable`` for a packing that is not supported.
    """
    magic = os.pread(fd, 8, 0)
    if magic.startswith(GZIP_MAGIC):
        return GzipSource(fd)
    for start, name in _OTHER_PACKINGS.items():
        if magic.startswith(start) and (start != b"BZh" or magic[3:7] == b"91AY"):
            raise Unreadable(f"is compressed with {name}: only gzip and plain text are read")
    return PlainSource(fd)


class PlainSource:
    """A file read as it is.

    Read through at length, as after a long pause, it leaves the page cache behind us as it found it, more or
    less: the job's own data belong there.
    """

    __slots__ = ("_at", "_blocks", "_end", "_since", "fd")
    complete = True

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._at = self._end = self._since = self._blocks = 0

    def read(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes at ``position``."""
        data = self._read(position, size)
        if size >= BLOCK_BYTES:
            self._leave_behind(position, len(data))
        return data

    def _leave_behind(self, position: int, length: int) -> None:
        """Let go of what was read of a long stretch before this block."""
        goes_on = self._at < position <= self._end and length >= BLOCK_BYTES
        self._blocks = self._blocks + 1 if goes_on else 0
        if not goes_on:
            self._since = position
        self._at, self._end = position, position + length
        if self._blocks > _LONG_BLOCKS and _forget is not None:
            with contextlib.suppress(OSError):
                _forget(self.fd, self._since, position - self._since, os.POSIX_FADV_DONTNEED)
            self._since = max(0, position - _FOLIO_BYTES)

    def _read(self, position: int, size: int) -> bytes:
        data = os.pread(self.fd, size, position)
        if len(data) < size and data:
            # A signal or a network file system may cut a read short of the end.
            rest = os.pread(self.fd, size - len(data), position + len(data))
            return data + rest if rest else data
        return data

    def after_hole(self, position: int) -> int:
        """Return where the file system says data begin; the position itself where it cannot."""
        try:
            return os.lseek(self.fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end
                return os.fstat(self.fd).st_size
            return position


class GzipSource:
    """A gzip file, members and all, read forwards; a read far back starts again."""

    __slots__ = ("_base", "_inflate", "_raw", "_raw_at", "_window", "complete", "ended", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.complete = False
        """Whether the last member ends with its check sum; known once ``ended``."""
        self._restart()

    def _restart(self) -> None:
        self._base = 0
        self._window = bytearray()
        self._raw_at = 0
        self._raw = b""
        self._inflate = zlib.decompressobj(wbits=31)
        self.ended = False

    @property
    def reached(self) -> int:
        """Bytes decompressed so far; the stream's length once ``ended``."""
        return self._base + len(self._window)

    def read(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes at ``position``; fewer only at the end of what unpacks."""
        if position < self._base:
            self._restart()
        while self.reached < position + size and not self.ended:
            self.advance(keep_from=position)
        start = position - self._base
        return bytes(self._window[start : start + size])

    def after_hole(self, position: int) -> int:
        """Return the position: a packed stream has no holes."""
        return position

    def advance(self, *, keep_from: int | None = None) -> None:
        """Decompress at most one block more; sets ``ended`` (and ``complete``) at the end."""
        try:
            self._window += self._next_block()
        except zlib.error:
            self.ended, self.complete = True, False
        oldest = self.reached - _KEEP_BYTES
        if keep_from is not None:
            oldest = min(oldest, keep_from)
        if oldest > self._base:
            del self._window[: oldest - self._base]
            self._base = oldest

    def _next_block(self) -> bytes:
        if self._inflate.eof:
            if not self._next_member():
                return b""
        elif not self._raw:
            self._raw = self._more()
        nothing_left = not self._raw
        data = self._inflate.decompress(self._raw, BLOCK_BYTES)
        self._raw = self._inflate.unconsumed_tail
        if self._inflate.eof:
            self._raw = self._inflate.unused_data
        elif nothing_left and not data:
            self.ended, self.complete = True, False
        return data

    def _next_member(self) -> bool:
        """Begin the next member; what follows the last one (padding, rubbish) is ignored."""
        raw = self._raw.lstrip(b"\0")
        while len(raw) < len(GZIP_MAGIC):
            more = self._more()
            if not more:
                break
            raw = (raw + more).lstrip(b"\0")
        if not raw.startswith(GZIP_MAGIC):
            # A lone beginning of a magic number is a member whose writing has just begun.
            self.ended, self.complete = True, not (raw and GZIP_MAGIC.startswith(raw))
            return False
        self._raw = raw
        self._inflate = zlib.decompressobj(wbits=31)
        return True

    def _more(self) -> bytes:
        raw = os.pread(self.fd, 64 * 1024, self._raw_at)
        self._raw_at += len(raw)
        return raw
