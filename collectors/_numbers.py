"""Numbers and text as JSON writers leave them: 1280, 1280.0, "1280", NaN, "nan", true, half a character.

Pure.
"""

from __future__ import annotations

import math


def count(value: object) -> int | None:
    """Return a count, >= 0; None where the value is none.

    >>> count(1280.0), count("1280"), count(0.5), count(True), count(float("nan")), count(-1)
    (1280, 1280, None, None, None, None)
    """
    found = integer(value)
    return None if found is None or found < 0 else found


def integer(value: object) -> int | None:
    """Return a whole number, however large and of any sign; None where the value is none.

    >>> integer(-3), integer("1e9"), integer("2,048"), integer("0x10"), integer([1])
    (-3, 1000000000, 2048, None, None)
    """
    if isinstance(value, int):
        return None if isinstance(value, bool) else value
    if isinstance(value, str):
        text = value.strip().replace(",", "")
        if (
            text.isascii()
            and text.lstrip("+-").isdigit()
            and len(text) < 40
            and text[1:].isdigit() | (len(text) == 1)
        ):
            return int(text)
    found = number(value)
    return int(found) if found is not None and found == int(found) else None


def number(value: object) -> float | None:
    """Return a finite number, also from text; None where the value is none.

    >>> number(0.5), number("1e3"), number("nan"), number(True), number(None), number("1_0")
    (0.5, 1000.0, None, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str) and ("_" in value or len(value) > 40):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def storable(text: str, longest: int = 120) -> str:
    """Return bounded text that UTF-8 can hold: JSON may smuggle half of a surrogate pair in.

    >>> storable("a" + chr(0xD800) + "b"), storable("word " * 9, 6)
    ('a?b', 'word w')
    """
    return text[:longest].encode("utf-8", "replace").decode()
