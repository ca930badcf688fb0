"""The words of the daily report: dates as people say them, causes by name, changes and amounts.

Pure. All rounding of the report is here and in `reports/numbers.py`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reports.numbers import UNKNOWN, hours, per_cent, scaled

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NUMBERS: Final = (
    "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
)  # fmt: skip

CAUSES: Final[Mapping[str, tuple[str, str]]] = {
    "gpu": ("GPU fault", "GPU faults"),
    "gpu_hbm": ("GPU memory fault", "GPU memory faults"),
    "gpu_sram": ("GPU SRAM fault", "GPU SRAM faults"),
    "gpu_system_processor": ("GPU system processor fault", "GPU system processor faults"),
    "gpu_thermal": ("overheated GPU", "overheated GPUs"),
    "silent_data_corruption": ("silent data corruption", "silent data corruptions"),
    "nic": ("network card fault", "network card faults"),
    "network": ("network fault", "network faults"),
    "nccl_watchdog": ("NCCL time-out", "NCCL time-outs"),
    "host_maintenance": ("host maintenance", "host maintenances"),
    "software": ("software error", "software errors"),
    "dependency": ("failed dependency", "failed dependencies"),
    "ssd": ("SSD fault", "SSD faults"),
    "power_supply": ("power supply fault", "power supply faults"),
    "chassis": ("chassis fault", "chassis faults"),
    "io_board": ("IO board fault", "IO board faults"),
    "cpu": ("CPU fault", "CPU faults"),
    "system_memory": ("system memory fault", "system memory faults"),
    "storage": ("storage failure", "storage failures"),
    "out_of_memory": ("out-of-memory error", "out-of-memory errors"),
    "preempted": ("preemption", "preemptions"),
    "time_limit": ("time limit", "time limits"),
    "operator": ("stop by hand", "stops by hand"),
    "divergence": ("divergence", "divergences"),
    "unknown": ("stop of unknown cause", "stops of unknown cause"),
}
"""One and several of each cause, as a person says it."""


_UNITS: Final = {"day": "days", "hour": "h", "minute": "min"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dates:
    """Writes moments in one zone."""

    zone: dt.tzinfo
    zone_name: str
    year: int
    """Dates of this year are written without it."""

    def at(self, at_us: float) -> dt.datetime:
        """Return a moment in the zone."""
        return (_EPOCH + dt.timedelta(microseconds=round(at_us))).astimezone(self.zone)

    def day(self, at_us: float | None) -> str:
        """Return "14 March", with the year where it is another one."""
        if at_us is None:
            return "not in sight"
        when = self.at(at_us)
        return f"{when.day} {when:%B}" + (f" {when.year}" if when.year != self.year else "")

    def short_day(self, at_us: float | None) -> str:
        """Return "14 Mar"."""
        if at_us is None:
            return "not in sight"
        when = self.at(at_us)
        return f"{when.day} {when:%b}" + (f" {when.year}" if when.year != self.year else "")

    def time(self, at_us: float | None) -> str:
        """Return "14 Mar 09:20"."""
        return self.short_day(at_us) + ("" if at_us is None else f" {self.at(at_us):%H:%M}")

    def us(self, moment: dt.datetime | None) -> float | None:
        """Return an aware moment as the core counts it."""
        return None if moment is None else (moment - _EPOCH) / dt.timedelta(microseconds=1)

    def span(self, low_us: float | None, high_us: float | None) -> str:
        """Return "12 Mar to 18 Mar", with times where both are of one day."""
        low, high = self.short_day(low_us), self.short_day(high_us)
        if low_us is not None and high_us is not None and low == high:
            return f"{low} {self.at(low_us):%H:%M} to {self.at(high_us):%H:%M}"
        return f"{low} to {high}"

    def full(self, at_us: float) -> str:
        """Return "14 March 2026, 09:20 UTC"."""
        when = self.at(at_us)
        return f"{when.day} {when:%B} {when.year}, {when:%H:%M} {self.zone_name}"


def dates(zone: dt.tzinfo, zone_name: str, as_of_us: int) -> Dates:
    """Return a writer of moments; the year of the report goes without saying."""
    year = (_EPOCH + dt.timedelta(microseconds=as_of_us)).astimezone(zone).year
    return Dates(zone=zone, zone_name=zone_name, year=year)


def number(value: int) -> str:
    """Return a small number in words.

    >>> number(3), number(40)
    ('three', '40')
    """
    return _NUMBERS[value] if 0 <= value < len(_NUMBERS) else f"{value:,}"


def many(count: int, one: str, several: str) -> str:
    """Return a count with its noun.

    >>> many(1, "day", "days"), many(4, "day", "days")
    ('one day', 'four days')
    """
    return f"{number(count)} {one if count == 1 else several}"


def cause(name: str, count: int = 1) -> str:
    """Return a cause as a person says it.

    >>> cause("nccl_watchdog", 3), cause("of tomorrow")
    ('NCCL time-outs', 'of tomorrow')
    """
    found = CAUSES.get(name)
    return name if found is None else found[0 if count == 1 else 1]


def a_cause(name: str) -> str:
    """Return one of a cause, with its article.

    >>> a_cause("nccl_watchdog"), a_cause("out_of_memory"), a_cause("host_maintenance")
    ('an NCCL time-out', 'an out-of-memory error', 'host maintenance')
    """
    said = cause(name)
    if name in ("host_maintenance", "silent_data_corruption", "divergence", "preempted"):
        return said
    return ("an " if said[0] in "aeiouAEIO" or said.startswith(("NCCL", "SSD")) else "a ") + said


def length(days: float) -> str:
    """Return a length of time as people say it.

    >>> length(4.2), length(3.0), length(0.4), length(0.01), length(45.3)
    ('4.2 days', 'three days', '9.6 hours', '14 minutes', '45 days')
    """
    value, unit = _in_unit(abs(days))
    text = f"{value:.1f}"
    if unit == "minute" or value >= 9.95 or text.endswith(".0"):
        return many(max(1, round(value)), unit, f"{unit}s")
    return f"{text} {unit}s"


def _in_unit(days: float) -> tuple[float, str]:
    if days >= 0.97:
        return days, "day"
    return (days * 24, "hour") if days >= 1 / 24 else (days * 1440, "minute")


def moved(days: float) -> str:
    """Return a move in a table, in the unit and with the decimals of `length`.

    >>> moved(-3.53), moved(0.03), moved(-0.2), moved(12.4)
    ('−3.5 days', '+43 min', '−4.8 h', '+12 days')
    """
    value, unit = _in_unit(abs(days))
    text = f"{value:.0f}" if unit == "minute" or value >= 9.95 else f"{value:.1f}"
    return f"{signed(text, days)} {_UNITS[unit]}"


def later_stages(ratio: float, *, assumed: bool) -> str:
    """Return what comes on top of the target, to stand behind it; empty where nothing does.

    >>> later_stages(0.08, assumed=True), later_stages(0.0, assumed=False)
    (', and 8 % later stages, assumed', '')
    """
    if not ratio:
        return ""
    return f", and {ratio * 100:.3g} % later stages{', assumed' if assumed else ''}"


def whole_per_cent(ratio: float | None) -> str:
    """Return a ratio in whole per cent.

    >>> whole_per_cent(0.874)
    '87 %'
    """
    return UNKNOWN if ratio is None else f"{ratio * 100:.0f} %"


def points(change: float | None) -> str:
    """Return a change of a ratio in percentage points, with its sign.

    >>> points(-0.048), points(0.0001), points(None)
    ('−4.8 points', '±0 points', '')
    """
    if change is None:
        return ""
    text = f"{abs(change) * 100:.1f}"
    if text == "0.0":
        return "±0 points"
    return f"{'+' if change > 0 else '−'}{text} points"


def signed(text: str, change: float) -> str:
    """Return text of a size with the sign of its change: a real minus, for print.

    >>> signed("4.8", -4.8)
    '−4.8'
    """
    return ("+" if change > 0 else "−") + text if text.strip("0.") else text


def minus(text: str) -> str:
    """Return a number with a real minus, and none before zero.

    >>> minus("-12.0"), minus("-0.0 %"), minus("5")
    ('−12.0', '0.0 %', '5')
    """
    if text.startswith("-") and not any(c in "123456789" for c in text):
        return text[1:]
    return text.replace("-", "−")


def every(job_hours: float) -> str:
    """Return how far apart things are, in the unit that reads best.

    >>> every(0.453), every(17.94)
    ('27 min', '17.9 h')
    """
    return f"{job_hours * 60:.0f} min" if job_hours < 1.5 else f"{hours(job_hours)} h"


def share_of(part: float, whole: float) -> str:
    """Return a part of a whole in per cent.

    >>> share_of(1, 8), share_of(-1, 100_000)
    ('12.5 %', '0.0 %')
    """
    return minus(per_cent(part / whole))


def apart(ratio: float | None, more: str = "above", less: str = "below") -> str:
    """Return how far a figure is from the plan's.

    >>> apart(1.031), apart(0.9), apart(1.0002)
    ('3.1 % above', '10 % below', 'equal to')
    >>> apart(101.3), apart(0.0000132)
    ('10,030 % above', 'nearly 100 % below')
    """
    if ratio is None:
        return ""
    off = ratio - 1
    text = f"{abs(off) * 100:.1f}" if abs(off) < 0.0995 else f"{abs(off) * 100:,.0f}"
    if text == "0.0":
        return "equal to"
    if text == "100" and 0 < ratio < 1:
        text = "nearly 100"
    return f"{text} % {more if off > 0 else less}"


def short(value: float | None) -> str:
    """Return a large count with at most three digits and its scale, for an axis or a card.

    >>> short(4e12), short(613.2e9), short(13e9), short(0), short(16_400)
    ('4T', '613B', '13B', '0', '16,400')
    """
    if value is None:
        return UNKNOWN
    for scale, letter in ((1e15, "P"), (1e12, "T"), (1e9, "B"), (1e6, "M")):
        if abs(value) >= scale * 0.9995:
            return f"{value / scale:.3g}{letter}"
    return f"{value:,.0f}"


def money(value: float | None, currency: str) -> str:
    """Return an amount of money.

    >>> money(77633.2, "USD"), money(2_540_000, "EUR"), money(None, "USD")
    ('77,633 USD', '2.540M EUR', '—')
    """
    if value is None:
        return UNKNOWN
    return f"{scaled(value)} {currency}"


def brief(seconds: float | None) -> str:
    """Return a time in a table: seconds, minutes or hours.

    >>> brief(20.0), brief(600.0), brief(7200.0)
    ('20 s', '10 min', '2.0 h')
    """
    if seconds is None:
        return UNKNOWN
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
