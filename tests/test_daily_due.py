"""Which report is due: one a day, also where clocks change, the tracker slept, or the config changed."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracker.daily import (
    DAYS,
    LATE_US,
    LONGEST_WAIT_US,
    Due,
    Row,
    Schedule,
    following,
    moment,
    newest,
    next_look,
    owed,
    retry_us,
)

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
BERLIN = ZoneInfo("Europe/Berlin")


def us(text: str) -> int:
    """A moment, in UTC."""
    return int(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp()) * 1_000_000


def at(hour: int, minute: int = 0, *, zone: dt.tzinfo = BERLIN, days: tuple[str, ...] = DAYS) -> Schedule:
    return Schedule(at=dt.time(hour, minute), zone=zone, days=days)


class Table:
    """The table of reports, and what was made when."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, str], Row] = {}
        self.made: list[tuple[int, Due]] = []

    def look(self, schedule: Schedule, now_us: int, *, fails: bool = False) -> Due | None:
        due = owed(schedule, self.rows.values(), now_us=now_us)
        if due is not None:
            slot = due.slot
            state = "failed" if fails else "made"
            not_before_us = now_us + retry_us(1)
            row = Row(kind=slot.kind, day=slot.day, zone=slot.zone, state=state, as_of_us=due.as_of_us,
                      not_before_us=not_before_us)  # fmt: skip
            self.rows[slot.kind, slot.day, slot.zone] = row
            if not fails:
                self.made.append((now_us, due))
        return due

    @property
    def days(self) -> list[str]:
        return [due.slot.day for _, due in self.made]


@pytest.mark.parametrize(
    ("now", "day", "moment_of"),
    [
        pytest.param("2026-01-05T05:59", "2026-01-04", "2026-01-04T06:00", id="a-minute-before"),
        pytest.param("2026-01-05T06:00", "2026-01-05", "2026-01-05T06:00", id="at-the-minute"),
        pytest.param("2026-01-05T22:59", "2026-01-05", "2026-01-05T06:00", id="late-in-the-day"),
        pytest.param("2026-01-05T23:30", "2026-01-05", "2026-01-05T06:00", id="after-midnight-there"),
        pytest.param("2026-07-05T05:00", "2026-07-05", "2026-07-05T05:00", id="in-summer-time"),
    ],
)
def test_the_newest_moment(now: str, day: str, moment_of: str) -> None:
    """07:00 in Berlin is 06:00 UTC in winter and 05:00 in summer."""
    slot = newest(at(7), us(now))

    assert (slot.day, slot.at_us, slot.zone) == (day, us(moment_of), "Europe/Berlin")


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        pytest.param("2026-03-28", "2026-03-28T01:30", id="the-day-before-spring"),
        pytest.param(
            "2026-03-29", "2026-03-29T01:30", id="spring-02:30-does-not-exist-and-comes-an-hour-later"
        ),
        pytest.param("2026-10-25", "2026-10-25T00:30", id="autumn-02:30-comes-twice-and-the-first-counts"),
        pytest.param("2026-10-26", "2026-10-26T01:30", id="the-day-after-autumn"),
    ],
)
def test_days_on_which_clocks_change_have_one_moment(day: str, expected: str) -> None:
    """Even for a time that the config warns of."""
    assert moment(at(2, 30), dt.date.fromisoformat(day)) == us(expected)


@pytest.mark.parametrize("hour", [2, 3, 7, 23])
def test_a_year_of_hours_owes_every_day_once(hour: int) -> None:
    """Both changes of clocks included."""
    table, schedule = Table(), at(hour, 30)
    for now_us in range(us("2026-01-01T12:00"), us("2027-01-01T12:00"), HOUR_US):
        table.look(schedule, now_us)

    assert table.days[0] in ("2025-12-31", "2026-01-01")
    assert len(table.days) == len(set(table.days))
    first = dt.date.fromisoformat(table.days[0])
    assert table.days == [(first + dt.timedelta(days=n)).isoformat() for n in range(len(table.days))]
    assert len(table.days) in (365, 366)


def test_days_that_were_missed_owe_one_report_the_newest() -> None:
    """And it tells of when it is made."""
    table = Table()
    table.look(at(7), us("2026-01-05T06:00"))
    assert table.look(at(7), us("2026-01-09T15:00")) is not None
    assert table.look(at(7), us("2026-01-09T15:01")) is None

    (_, first), (_, second) = table.made
    assert (first.slot.day, first.as_of_us) == ("2026-01-05", us("2026-01-05T06:00"))
    assert (second.slot.day, second.as_of_us) == ("2026-01-09", us("2026-01-09T15:00"))


def test_a_report_in_time_tells_of_its_moment_and_a_late_one_of_now() -> None:
    """An hour is the limit."""
    base = us("2026-01-05T06:00")
    in_time = owed(at(7), [], now_us=base + LATE_US)
    late = owed(at(7), [], now_us=base + LATE_US + 1)

    assert in_time is not None
    assert late is not None
    assert (in_time.as_of_us, late.as_of_us) == (base, base + LATE_US)  # in whole seconds


def test_one_that_was_begun_is_begun_again_for_the_same_moment() -> None:
    """After its wait; so both tries say the same."""
    table, base = Table(), us("2026-01-05T06:00")
    table.look(at(7), base + 5, fails=True)

    assert table.look(at(7), base + 6) is None
    assert next_look(at(7), table.rows.values(), now_us=base + 6) == base + 5 + retry_us(1)
    again = table.look(at(7), base + 3 * HOUR_US)
    assert again is not None
    assert again.as_of_us == base


def test_one_that_fails_all_day_gives_way_to_the_next_day() -> None:
    """Nobody wants two."""
    table = Table()
    for hour in range(30):
        table.look(at(7), us("2026-01-05T06:00") + hour * HOUR_US, fails=hour < 26)

    assert table.days == ["2026-01-06"]


@pytest.mark.parametrize(
    ("then", "when", "expected"),
    [
        pytest.param(at(9), "2026-01-05T09:00", None, id="later-time-the-same-day-is-made-already"),
        pytest.param(at(5), "2026-01-05T09:00", None, id="earlier-time-likewise"),
        pytest.param(at(9), "2026-01-06T08:00", "2026-01-06", id="the-next-day-at-the-new-time"),
        pytest.param(at(7, zone=ZoneInfo("America/New_York")), "2026-01-05T13:00", None,
                     id="the-same-date-in-another-zone-is-not-told-twice"),
        pytest.param(at(7, zone=ZoneInfo("America/New_York")), "2026-01-06T12:00", "2026-01-06",
                     id="the-next-date-in-the-new-zone"),
        pytest.param(at(7, zone=ZoneInfo("Pacific/Auckland")), "2026-01-05T18:00", "2026-01-06",
                     id="a-zone-where-it-is-tomorrow-already"),
    ],
)  # fmt: skip
def test_a_time_or_zone_changed_in_the_config(then: Schedule, when: str, expected: str | None) -> None:
    """No date is reported twice, none is left out."""
    table = Table()
    table.look(at(7), us("2026-01-05T06:00"))
    due = table.look(then, us(when))

    assert (due.slot.day if due else None) == expected


def test_a_clock_that_was_a_year_ahead_for_a_moment_keeps_nothing_up() -> None:
    """One report too many, and all the others."""
    table, schedule = Table(), at(7)
    for hour in range(24 * 20):
        now_us = us("2026-01-01T00:00") + hour * HOUR_US
        table.look(schedule, now_us + 365 * DAY_US if hour == 100 else now_us)

    assert sorted(set(table.days)) == sorted(table.days)
    assert [day for day in table.days if day < "2026-02"] == [
        "2025-12-31", *(f"2026-01-{day:02}" for day in range(1, 21)),
    ]  # fmt: skip


def test_a_retry_written_under_a_wrong_clock_does_not_wait_for_a_year() -> None:
    """A wait longer than any honest one is none."""
    slot = newest(at(7), us("2026-01-05T07:00"))
    row = Row(kind="daily", day=slot.day, zone=slot.zone, state="failed", as_of_us=slot.at_us,
              not_before_us=us("2027-01-01T00:00"))  # fmt: skip

    assert owed(at(7), [row], now_us=us("2026-01-05T07:00")) is not None
    soon = replace(row, not_before_us=us("2026-01-05T07:00") + LONGEST_WAIT_US)
    assert owed(at(7), [soon], now_us=us("2026-01-05T07:00")) is None


def test_a_weekly_report_comes_on_its_days_by_name() -> None:
    """2026-01-05 is a Monday."""
    table, schedule = Table(), at(7, days=("monday", "thursday"))
    for hour in range(24 * 14):
        table.look(schedule, us("2026-01-05T06:00") + hour * HOUR_US)

    assert table.days == ["2026-01-05", "2026-01-08", "2026-01-12", "2026-01-15"]


ZONES = st.sampled_from([
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu",
    "America/St_Johns", "Africa/Casablanca", "Pacific/Chatham",
])  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(
    zone=ZONES, minute=st.integers(0, 1439), seed=st.integers(0, 2**32), start=st.integers(2011, 2035),
    days=st.sets(st.sampled_from(DAYS), min_size=1),
)  # fmt: skip
def test_whoever_looks_now_and_then_gets_every_newest_day_once(
    zone: str, minute: int, seed: int, start: int, days: set[str]
) -> None:
    """Any zone, any time, any naps: no day twice, and after every look nothing is owed."""
    chance = random.Random(seed)
    schedule = Schedule(at=dt.time(minute // 60, minute % 60), zone=ZoneInfo(zone), days=tuple(days))
    table, now_us = Table(), us(f"{start}-01-01T00:00")
    for _ in range(100):
        slot = newest(schedule, now_us)
        ahead = following(schedule, now_us)
        assert slot.at_us <= now_us < ahead
        assert ahead - slot.at_us <= 8 * DAY_US
        table.look(schedule, now_us)
        assert slot.day == table.days[-1] or slot.day in table.days
        assert owed(schedule, table.rows.values(), now_us=now_us) is None
        assert next_look(schedule, table.rows.values(), now_us=now_us) == ahead
        now_us += chance.choice([HOUR_US // 3, 5 * HOUR_US, DAY_US, 3 * DAY_US])

    assert len(table.days) == len(set(table.days))
