r"""Where lines end: whole lines out of a stream that is still being written.

Edge: reads through the source it is given. Lines end at ``\n`` only (``\r`` moves a progress bar,
U+2028 is text). Memory stays below three blocks however long a line is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

BLOCK_BYTES: Final = 512 * 1024
"""Bytes a read asks for. Below the line limit, so a block that holds a line end holds no line
that is too long."""
_GLANCE_BYTES: Final = 4 * 1024
LINE_BYTES: Final = 1024 * 1024
"""How much of a line is kept."""


class Source(Protocol):
    """Bytes of a stream by offset, after decompression."""

    def read(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes; fewer only at the end. Raises OSError."""

    def after_hole(self, position: int) -> int:
        """Return where data may begin again, at or after a position that reads as NUL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Whole lines and the raw range they came from."""

    start: int
    """Offset of ``data[0]``."""
    end: int
    """Offset of the next unread byte."""
    data: bytes
    too_long_bytes: int = 0
    nul_bytes: int = 0
    raw: bool = True
    """Whether ``data`` is exactly the bytes from ``start`` to ``end``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """No whole line yet."""

    scanned: int
    """No line ends before this offset."""
    more: bool = False
    """Whether the search stopped at its budget, not at the end of the data."""
    nul: bool = False
    """Whether nothing but NUL bytes is left."""


def cut(
    source: Source,
    *,
    offset: int,
    end: int,
    scanned: int,
    final: bool,
    budget: int,
    believe_hole: Callable[[int, int], bool],
) -> Cut | Wait:
    """Return the next whole lines of ``source`` between ``offset`` and ``end``.

    ``offset`` is where a line begins; ``scanned`` is what an earlier ``Wait`` returned.
    ``believe_hole(start, stop)`` is asked before NUL bytes at the start of a line are skipped.
    Raises OSError.
    """
    start = offset
    block = source.read(start, min(_GLANCE_BYTES, end - start))
    if block.startswith(b"\0"):
        start = _end_of_hole(source, offset, end)
        if start >= end:
            return Wait(scanned=offset, nul=True)
        if not believe_hole(offset, start):
            return Wait(scanned=offset)
        block = source.read(start, min(_GLANCE_BYTES, end - start))
        # Where each line begins so, one is taken at a time: not a whole block is read for each.
    if b"\n\0" not in block and (start > offset or len(block) == _GLANCE_BYTES):
        block = source.read(start, min(BLOCK_BYTES, end - start))
    stop = block.rfind(b"\n") + 1
    if stop:
        if b"\0" in block:
            hole = block.find(b"\n\0")
            stop = hole + 1 if hole >= 0 else stop
        data = block if stop == len(block) else block[:stop]
        return Cut(start=start, end=start + stop, data=data, nul_bytes=start - offset)
    return _one_line(source, offset, start, end, max(start + len(block), scanned), final=final, budget=budget)


def _one_line(
    source: Source, offset: int, start: int, end: int, scanned: int, *, final: bool, budget: int
) -> Cut | Wait:
    """Return the line at ``start``, which does not end within a block, however long it is."""
    limit = scanned + budget
    stop = 0
    while scanned < end and not stop:
        if scanned >= limit:
            return Wait(scanned=scanned, more=True)
        block = source.read(scanned, min(BLOCK_BYTES, end - scanned))
        if not block:
            break
        feed = block.find(b"\n")
        stop = scanned + feed + 1 if feed >= 0 else 0
        scanned += len(block)
    terminated = bool(stop)
    if not terminated:
        if not final or scanned <= start:
            return Wait(scanned=scanned)
        stop = scanned
    kept = min(stop - start - terminated, LINE_BYTES)
    data = source.read(start, kept)
    if len(data) < kept:
        return Wait(scanned=start)
    return Cut(
        start=start,
        end=stop,
        data=data + b"\n" if terminated else data,
        too_long_bytes=stop - start - terminated - kept,
        nul_bytes=start - offset,
        raw=kept == stop - start - terminated,
    )


def _end_of_hole(source: Source, start: int, end: int) -> int:
    """Return the offset of the first byte that is not NUL, or ``end``."""
    size = _GLANCE_BYTES
    while start < end:
        start = source.after_hole(start)
        if start >= end:
            break
        block = source.read(start, min(size, end - start))
        size = BLOCK_BYTES
        text = block.lstrip(b"\0")
        start += len(block) - len(text)
        if text or not block:
            return start if text else end
    return end
