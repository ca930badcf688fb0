"""TensorBoard's event files: records with checksums, and the few fields of the messages in them.

Pure. A record is its length (8 bytes, little end first), the masked CRC-32C of the length, the data, the
masked CRC-32C of the data. The data is an Event: field 1 wall time (double, epoch seconds), 2 step, 3 file
version, 5 a Summary of values: 1 tag, 2 simple value (float), 8 a tensor. Other fields are passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from tracker.core.checksum import crc32c, masked

_HEAD: Final = 12
_FOOT: Final = 4
CHECKED_BYTES: Final = 16_384
"""Larger records hold pictures, histograms or graphs: nothing that is used here."""
_TAG_BYTES: Final = 200
_VALUES: Final = 256
_FLOAT, _DOUBLE, _INT32, _INT64 = 1, 2, 3, 9
_FORMATS: Final = {_FLOAT: "<f", _DOUBLE: "<d", _INT32: "<i", _INT64: "<q"}


class Frame(NamedTuple):
    """One record of a file."""

    offset: int
    """Where it begins, in its block."""
    data: bytes | None
    """None: damaged."""
    lost: bool = False
    """Its length is damaged, so nothing after it can be found."""


class Scalar(NamedTuple):
    """One number that was logged."""

    tag: str
    value: float


class Logged(NamedTuple):
    """What an Event says, as far as it is of use."""

    wall_s: float
    step: int
    version: str
    scalars: tuple[Scalar, ...]


class Damaged(ValueError):
    """Data that is no message."""


def frames(block: bytes) -> Iterator[Frame]:
    """Yield the records of a block; a torn one at its end yields nothing."""
    at = 0
    while len(block) - at >= _HEAD:
        head = block[at : at + 8]
        if masked(crc32c(head)) != int.from_bytes(block[at + 8 : at + _HEAD], "little"):
            yield Frame(at, None, lost=True)
            return
        length = int.from_bytes(head, "little")
        end = at + _HEAD + length
        if end + _FOOT > len(block):
            return
        if length <= CHECKED_BYTES:
            data = block[at + _HEAD : end]
            good = masked(crc32c(data)) == int.from_bytes(block[end : end + _FOOT], "little")
            yield Frame(at, data if good else None)
        at = end + _FOOT


def logged(data: bytes) -> Logged:
    """Return what an Event says; raises Damaged."""
    wall_s, step, version = 0.0, 0, ""
    scalars: tuple[Scalar, ...] = ()
    for number, kind, value in _fields(data):
        if number == 1 and kind == 1:
            wall_s = struct.unpack("<d", value)[0]
        elif number == 2 and kind == 0:
            step = _signed(int.from_bytes(value, "little"))
        elif number == 3 and kind == 2:
            version = value[:_TAG_BYTES].decode("utf-8", "replace")
        elif number == 5 and kind == 2:
            scalars = tuple(_summary(value))
    return Logged(wall_s, step, version, scalars)


def _summary(data: bytes) -> Iterator[Scalar]:
    for count, (number, kind, value) in enumerate(_fields(data)):
        if count >= _VALUES:
            return
        if number == 1 and kind == 2 and (found := _value(value)) is not None:
            yield found


def _value(data: bytes) -> Scalar | None:
    tag, number = "", None
    for field, kind, value in _fields(data):
        if field == 1 and kind == 2:
            tag = value[:_TAG_BYTES].decode("utf-8", "replace")
        elif field == 2 and kind == 5:
            number = struct.unpack("<f", value)[0]
        elif field == 8 and kind == 2:
            number = _tensor(value)
    return Scalar(tag, number) if tag and number is not None else None


def _tensor(data: bytes) -> float | None:
    """Return the number of a tensor that is a single one."""
    kind, content, listed = 0, b"", None
    for field, wire, value in _fields(data):
        if field == 1 and wire == 0:
            kind = int.from_bytes(value, "little")
        elif field == 4 and wire == 2:
            content = value
        elif field == 5 and wire in (2, 5) and len(value) == 4:
            listed = struct.unpack("<f", value)[0]
        elif field == 6 and wire in (1, 2) and len(value) == 8:
            listed = struct.unpack("<d", value)[0]
    form = _FORMATS.get(kind)
    if form is None:
        return None
    if len(content) == struct.calcsize(form):
        return float(struct.unpack(form, content)[0])
    return listed


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield (field number, wire type, bytes); a varint as 8 bytes, little end first. Raises Damaged."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, 0, (value & (1 << 64) - 1).to_bytes(8, "little")
            continue
        if wire == 2:
            length, at = _varint(data, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise Damaged("a wire type that there is not")
        if at + length > end:
            raise Damaged("a field that is longer than its message")
        yield key >> 3, wire, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise Damaged("a number without an end")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
