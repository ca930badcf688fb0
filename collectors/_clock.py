"""How a printed time becomes UTC microseconds.

Pure. Most frameworks print local time without a zone: the zone comes from the context. Traps: the hour that
exists twice when summer time ends (the previous stamp decides), the hour that never exists (read with the
offset before the change), whole seconds (the caller flags them), months that are not (None).

`context.state["clock"]` is the last stamp read, UTC microseconds.
"""

from __future__ import annotations

import datetime as dt
import re
from functools import lru_cache
from typing import Final

from tracker.core.records import EARLIEST_US, LATEST_US
from tracker.interfaces import Context

STAMP: Final = rb"\d{4}-\d\d-\d\d[ T_]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
"""The common stamp: 2026-03-02 10:00:28, with T or _ between, with a fraction or without."""
ZONE: Final = rb"(?:Z|[+-]\d\d:?\d\d)"

_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - naive on purpose: local wall time counts from here
_MINUTE_US: Final = 60_000_000
_HOUR_US: Final = 3_600_000_000
_OUT_OF_ORDER_US: Final = 120_000_000  # writers of one file lag each other by less than this
_DAY_US: Final = 24 * _HOUR_US
_HALF_YEAR_US: Final = 183 * _DAY_US


def wall_us(text: bytes) -> int | None:
    """Return a `STAMP` as microseconds of its own wall clock; None where there is no such time.

    >>> wall_us(b"1970-01-02 00:00:00.5")
    86400500000
    >>> wall_us(b"2026-13-02 00:00:00") is None
    True
    """
    try:
        moment = dt.datetime.fromisoformat(text.decode("ascii").replace("_", "T"))
    except ValueError:
        return None
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


@lru_cache(maxsize=4096)
def _offsets_us(zone: dt.tzinfo, hour: int) -> tuple[int, ...]:
    """Return the zone's offsets that hold in a wall-clock hour: one almost always, more around a change."""
    found: list[int] = []
    for minute in (0, 15, 30, 45, 59):
        for fold in (0, 1):
            offset = _offset_us(zone, hour * _HOUR_US + minute * _MINUTE_US, fold)
            if offset not in found:
                found.append(offset)
    return tuple(found)


def _offset_us(zone: dt.tzinfo, wall: int, fold: int) -> int:
    moment = (_EPOCH + dt.timedelta(microseconds=wall)).replace(tzinfo=zone, fold=fold)
    offset = moment.utcoffset()
    return 0 if offset is None else offset // dt.timedelta(microseconds=1)


def local_us(wall: int, context: Context) -> int | None:
    """Return wall-clock microseconds of the context's zone as UTC, and remember it; None outside 2000..2100.

    Where the time exists twice, the first one that is not before the previous stamp is taken.
    """
    if not EARLIEST_US <= wall < LATEST_US:
        return None
    state = context.state
    offsets = _offsets_us(context.zone, wall // _HOUR_US)
    if len(offsets) == 1:
        at_us = wall - offsets[0]
    else:
        first = wall - _offset_us(context.zone, wall, 0)
        second = wall - _offset_us(context.zone, wall, 1)
        before = state.get("clock")
        at_us = first
        if first < second and isinstance(before, int) and first < before - _OUT_OF_ORDER_US:
            at_us = second
    state["clock"] = at_us
    return at_us


def stamp_us(text: bytes, context: Context) -> int | None:
    """Return a `STAMP`, with a `ZONE` or without, as UTC microseconds; None where it is no usable time.

    >>> from zoneinfo import ZoneInfo
    >>> berlin = Context(zone=ZoneInfo("Europe/Berlin"))
    >>> stamp_us(b"2026-07-01 12:00:00", berlin) == wall_us(b"2026-07-01 10:00:00")
    True
    >>> stamp_us(b"2026-07-01T12:00:00.25+02:00", Context()) == wall_us(b"2026-07-01 10:00:00.25")
    True
    """
    minute = _minute_us(context.zone, text[:17])  # a look-up, for nearly all stamps of a log
    within = _SECONDS.fullmatch(text, 17)
    if minute is not None and within is not None:
        seconds, fraction = within.groups(b"")
        context.state["clock"] = at_us = minute + int(seconds + fraction[:6].ljust(6, b"0"))
        return at_us
    tail = text[19:]
    if tail and (zone := _ZONED.search(tail)):
        wall = wall_us(text[: 19 + zone.start()])
        if wall is None or not EARLIEST_US <= wall < LATEST_US:
            return None
        if sign := zone[1]:
            shift = int(zone[2]) * 60 + int(zone[3])
            wall -= (-shift if sign == b"-" else shift) * _MINUTE_US
        context.state["clock"] = wall
        return wall
    wall = wall_us(text)
    return None if wall is None else local_us(wall, context)


def minute_of(text: bytes, context: Context) -> int | None:
    """Return the UTC microseconds of a minute `2026-07-01 12:00:`, for those who add the seconds themselves.

    None where it is none, and around a change of the zone's offset: then `stamp_us` must tell.
    """
    return _minute_us(context.zone, text)


@lru_cache(maxsize=1024)
def _minute_us(zone: dt.tzinfo, minute: bytes) -> int | None:
    """Return the UTC microseconds of a minute `2026-07-01 12:00:`; None where the long way must tell."""
    if _MINUTE.fullmatch(minute) is None:
        return None
    wall = wall_us(minute + b"00")
    if wall is None or not EARLIEST_US <= wall < LATEST_US:
        return None
    offsets = _offsets_us(zone, wall // _HOUR_US)
    return wall - offsets[0] if len(offsets) == 1 else None


_SECONDS: Final = re.compile(rb"([0-5]\d)(?:[.,](\d{1,9}))?")
_MINUTE: Final = re.compile(rb"\d{4}-\d\d-\d\d[ T_]\d\d:\d\d:")
_ZONED: Final = re.compile(rb"(?:Z|([+-])(\d\d):?(\d\d))$")


def short_us(month: int, day: int, time: bytes, context: Context) -> int | None:
    """Return a stamp without a year, such as `E602 11:18:53.865680`: the previous stamp tells the year.

    Where no stamp came before, the source's option `year` (kept as `state["year"]`) says it, else None:
    there is nothing to take the year from. Logs go forward.
    """
    before = context.state.get("clock")
    if not isinstance(before, int):
        stated = context.state.get("year")
        wall = wall_us(b"%04d-%02d-%02d %s" % (stated, month, day, time)) if isinstance(stated, int) else None
        return None if wall is None else local_us(wall, context)
    year = (_EPOCH + dt.timedelta(microseconds=before)).year
    for candidate in (year - 1, year, year + 1):
        wall = wall_us(b"%04d-%02d-%02d %s" % (candidate, month, day, time))
        if wall is not None and before - _DAY_US <= wall <= before + _HALF_YEAR_US:
            return local_us(wall, context)
    return None


def whole_second(text: bytes) -> bool:
    """Return whether a stamp has no fraction of a second.

    >>> whole_second(b"2026-07-01 12:00:00"), whole_second(b"2026-07-01 12:00:00,250")
    (True, False)
    """
    return b"." not in text and b"," not in text
