"""Where the ticks of an axis stand, and what they say.

Pure.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from reports.daily_words import Dates
from reports.page import Axis, Tick

_DAY_US: Final = 86_400_000_000
_MINUTE_STEPS: Final = (5, 10, 15, 30)
_HOUR_STEPS: Final = (1, 2, 3, 6, 12)
_DAY_STEPS: Final = (1, 2, 3, 7, 14)
_MONTH_STEPS: Final = (1, 2, 3, 6, 12, 24, 60)


def number_axis(
    low: float, high: float, said: Callable[[float], str], *, title: str = "", most: int = 5
) -> Axis:
    """Return an axis over numbers with round ticks, widened to hold the outermost."""
    step = _step(high - low, most)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(Tick(at=n * step, text=said(n * step)) for n in range(first, last + 1))
    return Axis(low=first * step, high=last * step, ticks=ticks, title=title)


def from_zero(high: float, said: Callable[[float], str], *, title: str = "", most: int = 5) -> Axis:
    """Return an axis from zero with a little room above the highest value, and round ticks below it.

    >>> [tick.text for tick in from_zero(4.0, "{:g}".format).ticks]
    ['0', '1', '2', '3', '4']
    """
    step = _step(high, most)
    ticks = tuple(Tick(at=n * step, text=said(n * step)) for n in range(math.floor(high * 1.001 / step) + 1))
    return Axis(low=0.0, high=high * 1.1 or 1.0, ticks=ticks, title=title)


def _step(span: float, most: int) -> float:
    if span <= 0 or not math.isfinite(span):
        return 1.0
    size = 10.0 ** math.floor(math.log10(span / most))
    return next(size * k for k in (1, 2, 5, 10, 20) if span / (size * k) <= most)


def time_ticks(low_us: float, high_us: float, when: Dates, *, most: int = 6) -> tuple[Tick, ...]:
    """Return ticks at round moments of the zone: minutes, hours, days or months, few enough to read."""
    span = high_us - low_us
    for minutes in (*_MINUTE_STEPS, *(60 * hours for hours in _HOUR_STEPS)):
        if span / (minutes * 6e7) <= most:
            return _within_days(low_us, high_us, when, minutes)
    for days in _DAY_STEPS:
        if span / (days * _DAY_US) <= most:
            return _days(low_us, high_us, when, days)
    for months in _MONTH_STEPS:
        if span / (months * 30.4 * _DAY_US) <= most:
            return _months(low_us, high_us, when, months)
    return _months(low_us, high_us, when, 120)


def time_axis(low_us: float, high_us: float, when: Dates, *, title: str = "", most: int = 6) -> Axis:
    """Return an axis over time, as wide as it is asked for."""
    return Axis(low=low_us, high=high_us, ticks=time_ticks(low_us, high_us, when, most=most), title=title)


def _us(when: dt.datetime) -> float:
    return (when - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) / dt.timedelta(microseconds=1)


def _within_days(low: float, high: float, when: Dates, step: int) -> tuple[Tick, ...]:
    """Return ticks every so many minutes of the local day, the date with the first of each day."""
    each = min(step, 60)
    start = when.at(low).astimezone(dt.UTC).replace(minute=0, second=0, microsecond=0)
    found: list[Tick] = []
    for number in range(int((high - low) / (each * 6e7)) + 60 // each + 1):
        at = start + dt.timedelta(minutes=each * number)
        local = at.astimezone(when.zone)
        minute = 60 * local.hour + local.minute
        if minute % step == 0 and low <= _us(at) <= high:
            new = not found or minute == 0
            text = f"{local:%H:%M}" + (f"\n{local.day} {local:%b}" if new else "")
            found.append(Tick(at=_us(at), text=text))
    return tuple(found)


def on_one_line(axis: Axis) -> Axis:
    """Return an axis whose ticks have the date before the time: for one that stands upright."""
    return replace(
        axis,
        ticks=tuple(replace(tick, text=" ".join(reversed(tick.text.split("\n")))) for tick in axis.ticks),
    )


def _days(low: float, high: float, when: Dates, step: int) -> tuple[Tick, ...]:
    first = when.at(low).date()
    found = []
    for n in range(int((high - low) / _DAY_US) + 2):
        day = first + dt.timedelta(days=n)
        at = _us(dt.datetime(day.year, day.month, day.day, tzinfo=when.zone))
        if day.toordinal() % step == 0 and low <= at <= high:
            found.append(Tick(at=at, text=when.short_day(at)))
    return tuple(found)


def _months(low: float, high: float, when: Dates, step: int) -> tuple[Tick, ...]:
    start, end = when.at(low), when.at(high)
    found: list[Tick] = []
    for index in range(start.year * 12 + start.month - 1, end.year * 12 + end.month + 1):
        if index % step:
            continue
        local = dt.datetime(index // 12, index % 12 + 1, 1, tzinfo=when.zone)
        if low <= _us(local) <= high:
            text = f"{local:%b}" + (f"\n{local.year}" if not found or local.month == 1 else "")
            found.append(Tick(at=_us(local), text=text))
    return tuple(found)
