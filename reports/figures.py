"""How the calculators' figures are written for people: significant digits, big counts, wrapped notes.

Pure. What is unknown is an em dash.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable

from reports.numbers import UNKNOWN

NOTE_WIDTH = 100


def figure(value: float | None, digits: int = 3) -> str:
    """Return a number with `digits` significant digits below its integers, commas above.

    Raises OverflowError for one that is not finite: no table shows it.

    >>> figure(315470.4), figure(12.8365, 4), figure(3.276e23), figure(0.387), figure(None)
    ('315,470', '12.84', '3.28e23', '0.387', '—')
    """
    if value is None:
        return UNKNOWN
    if not math.isfinite(value):
        raise OverflowError("a figure is not finite")
    size = abs(value)
    if size >= 1e15 or 0 < size < 1e-4:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    if size >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def plain(value: float | None) -> str:
    """Return a published number as it stands, without rounding it away.

    >>> plain(2250.0), plain(494.5), plain(None)
    ('2,250', '494.5', '—')
    """
    return UNKNOWN if value is None else f"{value:,g}" if abs(value) < 1e6 else f"{value:,.0f}"


def quantity(value: float | None) -> str:
    """Return parameters or tokens as people write them.

    >>> quantity(405e9), quantity(15.6e12), quantity(1.59e9), quantity(8192)
    ('405B', '15.6T', '1.59B', '8192')
    """
    if value is None:
        return UNKNOWN
    for size, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.5g}{suffix}"
    return f"{value:.6g}"


def span(low: float, high: float | None) -> str:
    """Return an interval; an open end is said in words.

    >>> span(46.7, 55.0), span(3.2, None)
    ('46.7 to 55', 'at least 3.2')
    """
    return f"at least {figure(low)}" if high is None else f"{figure(low)} to {figure(high)}"


def text(value: object) -> str:
    """Return a cell; None is an em dash."""
    if value is None or value == "":
        return UNKNOWN
    return f"{value:,}" if isinstance(value, int) else str(value)


def notes(sentences: Iterable[str]) -> tuple[str, ...]:
    """Return sentences as wrapped lines, one item each."""
    return tuple(
        line
        for sentence in sentences
        if sentence
        for line in textwrap.wrap(sentence, NOTE_WIDTH, initial_indent="- ", subsequent_indent="  ")
    )
