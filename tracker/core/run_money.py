"""What a run has cost and drawn so far: by attempt, by day, by token, by interruption; money and energy.

Pure. A price that changes applies from its moment on; GPU-hours of an attempt are spread evenly over it.
What the reservation holds beyond the attempts is a cost of its own, so that the parts sum to the total.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from tracker.core.energy import carbon_t, energy_mwh
from tracker.core.hardware import lookup
from tracker.core.interruptions import Interruption
from tracker.core.ledger import AttemptLine, reservation_span
from tracker.core.prices import Prices
from tracker.core.settings import Settings
from tracker.core.snapshot import Snapshot

EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
US_PER_H: Final = 3_600_000_000
_DAY_US: Final = 24 * US_PER_H
_LONG_H: Final = 1e6
"""A calendar ends; a run of a century keeps today's price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """One day, UTC."""

    date: dt.date
    gpu_us: int
    """GPU-microseconds that were paid for in it."""
    cost: float | None
    """Money; None without a price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What one interruption cost: from the last sign of progress to the step where it would have been."""

    gpu_hours: float
    """Detection, restart (a billed reservation waits too) and redone steps."""
    cost: float | None
    """Money; None without a price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What was paid for; the attempts and the reservation's rest sum to the total."""

    currency: str
    total: float | None
    """Money so far, pending time included; None without a price."""
    attempts: tuple[float | None, ...]
    """By attempt, in their order."""
    reserved: float | None
    """Of the reservation's time that no attempt held."""
    gpu_hour_price: float | None
    """Mean price paid."""
    per_trillion_tokens: float | None
    """Of 1e12 retained tokens, pending time left out."""
    losses: tuple[Loss | None, ...]
    """By interruption, in their order; None where no GPU count is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Energy of the GPU-hours so far."""

    mwh: float
    """With the facility overhead."""
    power_w: float
    """Mean power of one GPU that was counted with."""
    power_from: Literal["measured", "measured in part", "plan", "TDP"]
    """Where that is from: the log, plan.gpu_power_w, or the hardware table (then an upper bound)."""
    facility_overhead: float
    carbon_t: float | None
    """Tonnes of CO2 equivalent; None without a grid intensity."""


@dataclass(frozen=True, slots=True)
class _Held:
    """GPUs held over a span; a negative count takes back what another span counts already."""

    start_us: int
    end_us: int
    gpus: int

    def within(self, start_us: int, end_us: int) -> int:
        return max(0, min(self.end_us, end_us) - max(self.start_us, start_us)) * self.gpus

    def cost(self, prices: Prices) -> float:
        hours = (self.end_us - self.start_us) * self.gpus / US_PER_H
        return prices.cost(hours, start=moment(self.start_us), end=moment(self.end_us)) or 0.0

    def part(self, start_us: int, end_us: int) -> _Held | None:
        start, end = max(self.start_us, start_us), min(self.end_us, end_us)
        return _Held(start, end, self.gpus) if end > start else None


def moment(at_us: int) -> dt.datetime:
    """Return microseconds since 1970 as an aware time."""
    return EPOCH + dt.timedelta(microseconds=at_us)


def stamp(at_us: int) -> str:
    """Return microseconds since 1970 as ISO 8601, to the second.

    >>> stamp(1_767_225_600_400_000)
    '2026-01-01T00:00:00Z'
    """
    return f"{moment(at_us):%Y-%m-%dT%H:%M:%SZ}"


def costs(snapshot: Snapshot) -> Costs | None:
    """Return what the run has cost so far; None where no GPU count is known. Money needs a price.

    The answer for the latest snapshots is remembered: every part of a page asks for it.
    """
    for known, found in tuple(_remembered):
        if known is snapshot:
            return found
    made = _costs(snapshot)
    _remembered.append((snapshot, made))
    return made


_remembered: Final[deque[tuple[Snapshot, Costs | None]]] = deque(maxlen=2)


def _costs(snapshot: Snapshot) -> Costs | None:
    if snapshot.gpu_us is None:
        return None
    prices = _prices(snapshot)
    span = _span(snapshot)
    waits = _Held(*span) if span is not None else None
    mine, more, total = _paid(snapshot, prices)
    hours = snapshot.gpu_us["allocated"] / US_PER_H
    price = total / hours if total is not None and hours else None
    rate = snapshot.per_trillion.realised
    return Costs(
        currency=_currency(snapshot),
        total=total,
        attempts=mine,
        reserved=more,
        gpu_hour_price=price,
        per_trillion_tokens=rate * price if rate is not None and price is not None else None,
        losses=tuple(_loss(snapshot, stop, prices, waits) for stop in snapshot.interruptions),
    )


def spent(snapshot: Snapshot) -> float | None:
    """Return the money so far: `costs(snapshot).total`, without what each interruption cost."""
    return None if snapshot.gpu_us is None else _paid(snapshot, _prices(snapshot))[2]


def _paid(
    snapshot: Snapshot, prices: Prices | None
) -> tuple[tuple[float | None, ...], float | None, float | None]:
    """Return money by attempt, of the reservation's rest, and in total."""
    if prices is None:
        return (None,) * len(snapshot.attempts), None, None
    mine: tuple[float | None, ...]
    if prices.is_flat:
        price = prices.steps[0].gpu_hour_price
        mine = tuple(
            None if line.gpus is None else line.wall_us["allocated"] * line.gpus / US_PER_H * price
            for line in snapshot.attempts
        )
    else:
        mine = tuple(
            None if h is None else _cost(h, prices) for h in (_held(line) for line in snapshot.attempts)
        )
    more = math.fsum(h.cost(prices) for h in _reserved(snapshot))
    return mine, more, math.fsum([*(c for c in mine if c is not None), more])


@lru_cache(maxsize=4096)
def _cost(held: _Held, prices: Prices) -> float:
    return held.cost(prices)


def price_to_come(snapshot: Snapshot, gpu_hours: float) -> float | None:
    """Return the mean price of GPU-hours spent from `as_of` on, by the GPUs of the latest attempt.

    Without a GPU count it is the price at `as_of`; None without a price.
    """
    prices = _prices(snapshot)
    if prices is None:
        return None
    start = moment(snapshot.as_of_us)
    gpus = next((line.gpus for line in reversed(snapshot.attempts) if line.gpus), None)
    if gpus is None or not 0 < gpu_hours / gpus < _LONG_H:
        return prices.at(start)
    end = start + dt.timedelta(hours=gpu_hours / gpus)
    return (prices.cost(gpu_hours, start=start, end=end) or 0.0) / gpu_hours


def by_day(snapshot: Snapshot) -> tuple[Day, ...]:
    """Return what was paid for on each day, UTC; the days sum to the run's allocation and its cost."""
    if snapshot.gpu_us is None:
        return ()
    prices = _prices(snapshot)
    held = [h for line in snapshot.attempts if (h := _held(line)) is not None] + _reserved(snapshot)
    parts: dict[int, list[_Held]] = {}
    for h in held:
        for number in range(h.start_us // _DAY_US, max(h.end_us - 1, h.start_us) // _DAY_US + 1):
            part = h.part(number * _DAY_US, (number + 1) * _DAY_US)
            if part is not None:
                parts.setdefault(number, []).append(part)
    return tuple(
        Day(
            date=moment(number * _DAY_US).date(),
            gpu_us=sum((p.end_us - p.start_us) * p.gpus for p in found),
            cost=None if prices is None else math.fsum(p.cost(prices) for p in found),
        )
        for number, found in sorted(parts.items())
    )


def drawn(snapshot: Snapshot) -> Drawn | None:
    """Return the energy of the GPU-hours so far; None where neither power nor GPU count is known."""
    if snapshot.gpu_us is None or snapshot.settings is None:
        return None
    plan = snapshot.settings.plan
    known = plan.power_w if plan is not None else _tdp(snapshot.settings)
    overhead = plan.facility_overhead if plan is not None else 1.0
    grid = plan.carbon_kg_per_mwh if plan is not None else None
    rest_us = snapshot.gpu_us["allocated"]
    measured_us, watts = 0, 0.0
    for line in snapshot.attempts:
        if line.power_w is not None and line.gpu_us is not None:
            measured_us += line.gpu_us["allocated"]
            watts += line.power_w * line.gpu_us["allocated"]
    if rest_us <= 0 or (known is None and measured_us < rest_us):
        return None
    power = (watts + (known or 0.0) * (rest_us - measured_us)) / rest_us
    mwh = energy_mwh(gpu_hours=rest_us / US_PER_H, power_w=power, facility_overhead=overhead)
    return Drawn(
        mwh=mwh,
        power_w=power,
        power_from="measured"
        if measured_us == rest_us
        else "measured in part"
        if measured_us
        else "plan"
        if plan is not None and plan.gpu_power_w is not None
        else "TDP",
        facility_overhead=overhead,
        carbon_t=None if grid is None else carbon_t(mwh=mwh, kg_per_mwh=grid),
    )


def _tdp(settings: Settings) -> float | None:
    if settings.hardware.gpu is None:
        return None
    tdp = lookup(settings.hardware.gpu).tdp_w
    return tdp.value if tdp is not None else None


def _prices(snapshot: Snapshot) -> Prices | None:
    plan = snapshot.settings.plan if snapshot.settings is not None else None
    return plan.price_list if plan is not None else None


def _currency(snapshot: Snapshot) -> str:
    plan = snapshot.settings.plan if snapshot.settings is not None else None
    return plan.currency if plan is not None else "USD"


def _held(line: AttemptLine) -> _Held | None:
    if line.gpus is None:
        return None
    return _Held(line.start_us, line.start_us + line.wall_us["allocated"], line.gpus)


def _reserved(snapshot: Snapshot) -> list[_Held]:
    """Return the reservation and, negative, the attempts inside it; nothing where it holds no more."""
    assert snapshot.gpu_us is not None
    own = sum(line.gpu_us["allocated"] for line in snapshot.attempts if line.gpu_us is not None)
    span = _span(snapshot)
    if span is None or snapshot.gpu_us["allocated"] <= own:
        return []
    start, end, gpus = span
    inside = [
        part
        for line in snapshot.attempts
        if (h := _held(line)) is not None and (part := h.part(start, end)) is not None
    ]
    return [_Held(start, end, gpus), *(_Held(h.start_us, h.end_us, -h.gpus) for h in inside)]


def _loss(snapshot: Snapshot, stop: Interruption, prices: Prices | None, waits: _Held | None) -> Loss | None:
    """Return the tail of the attempt that ended, the start-up of the next, and the redone steps."""
    ended = snapshot.attempts[stop.attempt - 1]
    if ended.gpu_us is None:
        return None
    parts = [
        (stop.at_us, ended.gpu_us["tail"] / US_PER_H),
        (stop.at_us, stop.redo_gpu_hours or 0.0),
    ]
    if stop.attempt < len(snapshot.attempts):
        following = snapshot.attempts[stop.attempt]
        if following.gpu_us is not None:
            parts.append((following.start_us, following.gpu_us["startup"] / US_PER_H))
        if waits is not None:
            parts.append((stop.at_us, waits.within(stop.at_us, following.start_us) / US_PER_H))
    return Loss(
        gpu_hours=math.fsum(hours for _, hours in parts),
        cost=None
        if prices is None
        else math.fsum(hours * prices.at(moment(at_us)) for at_us, hours in parts if hours),
    )


def _span(snapshot: Snapshot) -> tuple[int, int, int] | None:
    if snapshot.settings is None:
        return None
    return reservation_span(snapshot.attempts, snapshot.settings, snapshot.as_of_us)
