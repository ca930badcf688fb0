"""How numbers are written for people: rounding lives here, and nowhere else.

Pure. What is unknown is an em dash.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

UNKNOWN: Final = "—"
_SCALES: Final = ((1e15, "P"), (1e12, "T"), (1e9, "B"), (1e6, "M"))


def count(value: float | None) -> str:
    """Return a count in full, with commas.

    >>> count(48100), count(None)
    ('48,100', '—')
    """
    return UNKNOWN if value is None else f"{value:,.0f}"


def scaled(value: float | None) -> str:
    """Return a large count with four digits and its scale.

    >>> scaled(4e12), scaled(139_400_000), scaled(12_345)
    ('4.000T', '139.4M', '12,345')
    """
    if value is None:
        return UNKNOWN
    for scale, letter in _SCALES:
        if abs(value) >= scale * 0.99995:
            number = value / scale
            return f"{number:.3f}{letter}" if number < 99.995 else f"{number:,.1f}{letter}"
    return f"{value:,.0f}"


def hours(value: float | None) -> str:
    """Return hours with as many decimals as they are worth.

    >>> hours(315_470.4), hours(12.345), hours(0.01234), hours(0)
    ('315,470', '12.3', '0.012', '0')
    """
    if value is None:
        return UNKNOWN
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 99.95:
        return f"{value:,.0f}"
    if size >= 0.9995:
        return f"{value:.1f}"
    return f"{value:.3f}"


def per_cent(ratio: float | None) -> str:
    """Return a ratio in per cent.

    >>> per_cent(0.3452), per_cent(1.0), per_cent(0.0004)
    ('34.5 %', '100.0 %', '0.0 %')
    """
    return UNKNOWN if ratio is None else f"{ratio * 100:.1f} %"


def factor(value: float | None) -> str:
    """Return a factor.

    >>> factor(1.0612)
    '1.06'
    """
    return UNKNOWN if value is None else f"{value:.2f}"


def seconds(value: float | None) -> str:
    """Return a short time.

    >>> seconds(14.0274), seconds(0.0123)
    ('14.03 s', '0.012 s')
    """
    if value is None:
        return UNKNOWN
    return f"{value:.2f} s" if value >= 1 else f"{value:.3f} s"


def moment(at_us: int | None) -> str:
    """Return a moment in UTC, to the second.

    >>> moment(1_767_225_600_400_000)
    '2026-01-01 00:00:00Z'
    """
    if at_us is None:
        return UNKNOWN
    when = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=at_us)
    return f"{when.isoformat(sep=' ', timespec='seconds')[:19]}Z"


def size(bytes_: int | None) -> str:
    """Return an amount of data.

    >>> size(88_000_000), size(512)
    ('88.0 MB', '512 bytes')
    """
    if bytes_ is None:
        return UNKNOWN
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if bytes_ >= scale:
            return f"{bytes_ / scale:.1f} {unit}"
    return f"{bytes_} bytes"
