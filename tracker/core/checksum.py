"""CRC-32C as TensorBoard's event files keep it.

Pure. Who cuts such files and who reads them must agree on it.
"""

from __future__ import annotations

from typing import Final


def _table() -> tuple[int, ...]:
    found = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        found.append(value)
    return tuple(found)


_TABLE: Final = _table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of some bytes.

    Source: RFC 3720, B.4 (polynomial and check values).

    >>> hex(crc32c(b"123456789")), hex(crc32c(bytes(32)))
    ('0xe3069283', '0x8a9136aa')
    """
    value, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """Return a checksum rotated and shifted, so that one over data that holds checksums stays good.

    >>> hex(masked(0xE3069283))
    '0xc78ab0e5'
    """
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
