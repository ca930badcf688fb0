"""Which report is due: schedules, their moments, and what a table of made reports still owes.

Pure. A timer only wakes; what is owed follows from the schedule, the moment and the table alone. Days that
were missed owe one report, the newest. A day has one moment, also where clocks change.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
"""In the order of `datetime.weekday`. Names, for numbers mean Sunday here and Monday there."""
LATE_US: Final = 3_600_000_000
"""A report made later than this after its moment tells of when it is made, not of its moment."""
LONGEST_WAIT_US: Final = 2 * 86_400_000_000
"""No try is put off for longer: a stored moment further ahead was written under a wrong clock."""
FIRST_RETRY_US: Final = 60_000_000
LAST_RETRY_US: Final = 3_600_000_000
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_US: Final = dt.timedelta(microseconds=1)
_SECOND_US: Final = 1_000_000
_LOOK_BACK: Final = 9
"""Days; in any eight there is one of every name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A report that comes again and again."""

    name: str = "daily"
    """Letters, digits and "-"; one of its kind in a config."""
    days: tuple[str, ...] = DAYS
    """Names of `DAYS`."""
    at: dt.time = dt.time(7, 0)
    zone: dt.tzinfo = dt.UTC
    to: tuple[str, ...] = ()
    """Mail addresses; none: it is written and not mailed."""

    @property
    def zone_name(self) -> str:
        """Return what the zone is called in the table."""
        return str(self.zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One day's moment of a schedule."""

    kind: str
    """Name of the schedule."""
    day: str
    """Date in its zone, ISO 8601."""
    zone: str
    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A day in the table of reports."""

    kind: str
    day: str
    zone: str
    state: str
    """"making" (begun, perhaps killed), "made" or "failed"."""
    as_of_us: int
    """The moment that the report tells of: fixed when it was begun, so that a second try says the same."""
    not_before_us: int
    """When it may be tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A report to be made now."""

    slot: Slot
    as_of_us: int


def moment(schedule: Schedule, day: dt.date) -> int:
    """Return the moment of a day, microseconds since 1970 UTC.

    A time that the clocks jump over comes as much later as they jump; one that comes twice is the first.
    """
    local = dt.datetime.combine(day, schedule.at, tzinfo=schedule.zone)
    return (local.astimezone(dt.UTC) - _EPOCH) // _US


def newest(schedule: Schedule, now_us: int) -> Slot:
    """Return the latest moment of a schedule that has come."""
    today = _date(schedule, now_us) + dt.timedelta(days=1)
    for back in range(_LOOK_BACK + 1):
        day = today - dt.timedelta(days=back)
        if DAYS[day.weekday()] in schedule.days:
            at_us = moment(schedule, day)
            if at_us <= now_us:
                return Slot(kind=schedule.name, day=day.isoformat(), zone=schedule.zone_name, at_us=at_us)
    raise AssertionError("every week has every day")


def following(schedule: Schedule, now_us: int) -> int:
    """Return the next moment of a schedule after now."""
    today = _date(schedule, now_us) - dt.timedelta(days=1)
    for ahead in range(_LOOK_BACK + 2):
        day = today + dt.timedelta(days=ahead)
        if DAYS[day.weekday()] in schedule.days:
            at_us = moment(schedule, day)
            if at_us > now_us:
                return at_us
    raise AssertionError("every week has every day")


def owed(schedule: Schedule, rows: Iterable[Row], *, now_us: int) -> Due | None:
    """Return the report that a schedule owes now; None where it is made, or must wait for its next try.

    A date that was reported under another zone or at another time is not reported again.
    """
    slot = newest(schedule, now_us)
    begun = None
    for row in rows:
        if row.kind == slot.kind and row.day == slot.day:
            if row.state == "made":
                return None
            if row.zone == slot.zone:
                begun = row
    if begun is None:
        late = now_us - slot.at_us > LATE_US
        return Due(slot=slot, as_of_us=now_us - now_us % _SECOND_US if late else slot.at_us)
    if now_us < begun.not_before_us <= now_us + LONGEST_WAIT_US:
        return None
    return Due(slot=slot, as_of_us=begun.as_of_us)


def next_look(schedule: Schedule, rows: Iterable[Row], *, now_us: int) -> int:
    """Return when to ask `owed` again, where it owes nothing now."""
    slot = newest(schedule, now_us)
    waits = [
        row.not_before_us
        for row in rows
        if (row.kind, row.day, row.zone) == (slot.kind, slot.day, slot.zone) and row.state != "made"
    ]
    return min([following(schedule, now_us), *(at for at in waits if at > now_us)])


def retry_us(attempts: int) -> int:
    """Return how long a report waits after so many failed tries: a minute, doubled up to an hour.

    >>> retry_us(1) // 1_000_000, retry_us(3) // 1_000_000, retry_us(50) // 1_000_000
    (60, 240, 3600)
    """
    return int(min(FIRST_RETRY_US << min(max(attempts - 1, 0), 10), LAST_RETRY_US))


def date_of(at_us: int, zone: dt.tzinfo = dt.UTC) -> dt.date:
    """Return the date of a moment in a zone."""
    return (_EPOCH + at_us * _US).astimezone(zone).date()


def _date(schedule: Schedule, now_us: int) -> dt.date:
    return date_of(now_us, schedule.zone)
