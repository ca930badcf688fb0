"""Where records end: whole records out of an event file (TensorBoard's) that is still being written.

Edge: reads through the source it is given. Such a file is no text: a record is its length (8 bytes, little
end first), a checksum of the length, the data, a checksum of the data. Line feeds and NUL bytes in it mean
nothing. What is torn waits; what is damaged cannot be cut, for nothing else says where the next one begins.
"""

from __future__ import annotations

from typing import Final

from tracker.core.checksum import crc32c, masked
from tracker.follow.lines import BLOCK_BYTES, Cut, Source, Wait

HEAD: Final = 12
FOOT: Final = 4
SNIFF_BYTES: Final = 64
_MARK: Final = b"brain.Event:"


def holds_records(head: bytes) -> bool:
    """Tell whether a file that begins so is an event file: its first record names the version.

    >>> holds_records(bytes(8) + b"crc." + b"         brain.Event:2")
    True
    >>> holds_records(b"step: 1")
    False
    """
    return _MARK in head[HEAD:SNIFF_BYTES]


def cut_records(source: Source, *, offset: int, end: int) -> Cut | Wait:
    """Return the next whole records between ``offset`` and ``end``; raises OSError.

    A record larger than a block (a picture, a graph) is passed over. From a damaged length on, all that is
    there is one piece.
    """
    block = source.read(offset, min(BLOCK_BYTES, end - offset))
    at = 0
    while len(block) - at >= HEAD:
        length = length_of(block, at)
        if length is None:
            if not any(block[at : at + HEAD]):  # space that the file system gave and nobody filled yet
                break
            if at:
                break  # the whole ones first
            return Cut(start=offset, end=offset + len(block), data=block)
        total = HEAD + length + FOOT
        if at + total > len(block):
            if not at and total > BLOCK_BYTES and offset + total <= end:
                return Cut(
                    start=offset + total, end=offset + total, data=b"", too_long_bytes=total, raw=False
                )
            break
        at += total
    if not at:
        return Wait(scanned=offset)
    return Cut(start=offset, end=offset + at, data=block[:at])


def length_of(block: bytes, at: int) -> int | None:
    """Return the length of the data of the record at a place; None where its checksum denies it."""
    head = block[at : at + HEAD]
    if masked(crc32c(head[:8])) != int.from_bytes(head[8:], "little"):
        return None
    return int.from_bytes(head[:8], "little")
