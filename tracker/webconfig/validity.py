"""From when to when the certificates of a PEM file count, and what to say of that.

Edge: reads the file. The two dates are read out of the certificate's own form (DER), because the standard
library tells them of the other side's certificate only.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tracker import smallfile

SOON_US: Final = 14 * 86_400_000_000
_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----")
_SEQUENCE, _VERSION = 0x30, 0xA0
_SHORT, _LONG = 0x17, 0x18
_DATES: Final = {
    _SHORT: re.compile(rb"(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z"),
    _LONG: re.compile(rb"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z"),
}


@dataclass(frozen=True, slots=True)
class Validity:
    """The time in which all certificates of a file count."""

    file: Path
    start_us: int
    end_us: int

    def said(self, now_us: int) -> tuple[Literal["wrong", "note"], str] | None:
        """Return what is wrong at a moment, or will be soon; None where nothing is."""
        if now_us >= self.end_us:
            return "wrong", f"{self.file}: expired at {_shown(self.end_us)}: clients refuse it. Renew it"
        if now_us < self.start_us:
            return "wrong", (
                f"{self.file}: does not count before {_shown(self.start_us)}: clients refuse it until then. "
                "See this machine's clock"
            )
        if now_us >= self.end_us - SOON_US:
            return "note", f"{self.file}: expires at {_shown(self.end_us)}. Renew it before"
        return None


def validity(file: Path) -> Validity | None:
    """Return from when to when a file's certificates count together; None where that cannot be told."""
    try:
        text = smallfile.read(file, limit=smallfile.LARGEST_CERTIFICATES)
        spans = [_span(base64.b64decode(found[1])) for found in _PEM.finditer(text)]
    except (OSError, ValueError, IndexError, binascii.Error):
        return None
    if not spans:
        return None
    return Validity(file, max(start for start, _ in spans), min(end for _, end in spans))


def _span(der: bytes) -> tuple[int, int]:
    """Return both dates of a certificate, in microseconds; ValueError or IndexError where it is none."""
    _, body, _ = _part(der)
    _, body, _ = _part(body)  # what is signed
    tag, _, after = _part(body)
    rest = after if tag == _VERSION else body
    for _ in ("serial number", "algorithm", "issuer"):
        _, _, rest = _part(rest)
    tag, dates, _ = _part(rest)
    if tag != _SEQUENCE:
        raise ValueError
    tag, start, rest = _part(dates)
    start_us = _moment_us(tag, start)
    tag, end, _ = _part(rest)
    return start_us, _moment_us(tag, end)


def _part(der: bytes) -> tuple[int, bytes, bytes]:
    """Return the tag and the content of what stands first, and what follows it."""
    tag, size, at = der[0], der[1], 2
    if size & 0x80:
        count = size & 0x7F
        size, at = int.from_bytes(der[2 : 2 + count], "big"), 2 + count
    if at + size > len(der):
        raise ValueError
    return tag, der[at : at + size], der[at + size :]


def _moment_us(tag: int, text: bytes) -> int:
    said = _DATES[tag].fullmatch(text) if tag in _DATES else None
    if said is None:
        raise ValueError
    year, *rest = (int(part) for part in said.groups())
    if tag == _SHORT:  # two digits: by X.509 they mean 1950 to 2049
        year += 1900 if year >= 50 else 2000
    month, day, hour, minute, second = rest
    return int(dt.datetime(year, month, day, hour, minute, second, tzinfo=dt.UTC).timestamp()) * 1_000_000


def _shown(at_us: int) -> str:
    return f"{dt.datetime.fromtimestamp(at_us // 1_000_000, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
