"""What numbers may be: the range checks the calculators share, with their messages.

Pure. Each returns its number as a float or raises InvalidValue; none repairs a value.
"""

from __future__ import annotations

import math

from tracker.core.errors import InvalidValue

_WHOLE = 1 << 53
"""Below it a float holds every whole number."""


def finite(name: str, value: object, expected: str = "a finite number", remedy: str = "") -> float:
    """Return value as a float, or say that it is not a finite number (bool counts as wrong)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidValue(name, value, expected, remedy)
    try:
        number = float(value)
    except OverflowError:
        raise InvalidValue(name, value, expected, remedy) from None
    if not math.isfinite(number):
        raise InvalidValue(name, value, expected, remedy)
    return number


def positive(name: str, value: object, expected: str = "a number above 0", remedy: str = "") -> float:
    """Return value as a float above zero."""
    number = finite(name, value, expected, remedy)
    if number <= 0:
        raise InvalidValue(name, value, expected, remedy)
    return number


def not_negative(
    name: str, value: object, expected: str = "a number of 0 or more", remedy: str = ""
) -> float:
    """Return value as a float of zero or more."""
    if type(value) is float and 0.0 <= value < math.inf:
        return value
    number = finite(name, value, expected, remedy)
    if number < 0:
        raise InvalidValue(name, value, expected, remedy)
    return number


def count(name: str, value: object, *, least: int = 1, remedy: str = "") -> int:
    """Return value as a whole number of at least `least`."""
    if type(value) is int and least <= value < _WHOLE:
        return value
    expected = f"a whole number of {least} or more"
    number = finite(name, value, expected, remedy)
    if number != math.floor(number) or number < least:
        raise InvalidValue(name, value, expected, remedy)
    return int(value) if isinstance(value, int) else int(number)


def ratio(name: str, value: object) -> float:
    """Return value as a ratio above 0 and up to 1; a per cent figure is named as one.

    >>> ratio("plan.mfu", 0.35)
    0.35
    >>> ratio("plan.mfu", 35)
    Traceback (most recent call last):
    ...
    tracker.core.errors.InvalidValue: plan.mfu = 35: expected a ratio above 0 and up to 1. It \
looks like a percentage: write 0.35 for 35 %
    """
    expected = "a ratio above 0 and up to 1"
    number = finite(name, value, expected)
    if 1 < number <= 100:
        raise InvalidValue(
            name,
            value,
            expected,
            f"It looks like a percentage: write {number / 100:g} for {number:g} %",
        )
    if number <= 0 or number > 1:
        raise InvalidValue(name, value, expected)
    return number
