"""Event files as TensorBoard's writers make them, for tests."""

from __future__ import annotations

import struct

from tracker.core.checksum import crc32c, masked


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def sized(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def event(wall_s: float, step: int, body: bytes = b"") -> bytes:
    return b"\x09" + struct.pack("<d", wall_s) + (b"\x10" + varint(step) if step else b"") + body


def simple(tag: str, value: float) -> bytes:
    """A value as torch's SummaryWriter writes it."""
    return sized(1, sized(1, tag.encode()) + b"\x15" + struct.pack("<f", value))


def tensor(tag: str, value: float, *, content: bool = True) -> bytes:
    """A value as TensorFlow 2 writes it: a tensor of one float."""
    number = struct.pack("<f", value)
    body = b"\x08\x01" + b"\x12\x00" + (sized(4, number) if content else sized(5, number))
    return sized(1, sized(1, tag.encode()) + sized(8, body) + sized(9, sized(1, b"scalars")))


def record(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked(crc32c(head))) + data + struct.pack("<I", masked(crc32c(data)))


def start(wall_s: float) -> bytes:
    return record(event(wall_s, 0, sized(3, b"brain.Event:2")))


def scalars(wall_s: float, step: int, **values: float) -> bytes:
    """One event for each value, a millisecond apart, as most training code writes them."""
    return b"".join(
        record(
            event(wall_s + n / 1000, step, sized(5, simple(tag.replace("__", "/").replace("_", "-"), value)))
        )
        for n, (tag, value) in enumerate(values.items())
    )
