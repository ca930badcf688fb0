"""What a run cost and drew: by hand, and sums for any run and any prices."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.run_story import (
    H100,
    START,
    any_run,
    lengths,
    planned,
    story,
)
from tests.core.story import PEAK, Log, facts, row, tell
from tracker.core.hardware import peak_flop_per_s
from tracker.core.prices import PriceStep
from tracker.core.records import Kind
from tracker.core.run_money import by_day, costs, drawn
from tracker.core.settings import Hardware, Reservation


def test_costs_by_attempt_and_interruption() -> None:
    """0.001 a GPU-second: 8.0 and 7.2; the stop cost 90 + 300 + 100 seconds of 8 GPUs."""
    got = costs(story())

    assert got is not None
    assert got.attempts == (pytest.approx(8.0), pytest.approx(7.2))
    assert got.total == pytest.approx(15.2)
    assert got.currency == "USD"
    assert got.per_trillion_tokens == pytest.approx(15.2 * 1e12 / 130_000)
    (loss,) = got.losses
    assert loss is not None
    assert loss.cost == pytest.approx(3.92)
    assert loss.gpu_hours == pytest.approx(8 * 490 / 3600)


def test_a_price_that_changes_counts_from_its_moment_on() -> None:
    """Twice the price from second 600 on: 4.8 + 6.4 for the first attempt, 14.4 for the second."""
    steps = (
        PriceStep(gpu_hour_price=3.6),
        PriceStep(gpu_hour_price=7.2, since=START + dt.timedelta(seconds=600)),
    )
    got = costs(story(plan=planned(gpu_hour_price=None, prices=steps, currency="EUR")))

    assert got is not None
    assert got.attempts == (pytest.approx(11.2), pytest.approx(14.4))
    assert (got.currency, got.total) == ("EUR", pytest.approx(25.6))


def test_a_reservation_costs_what_no_attempt_held() -> None:
    """10 GPUs for 2,100 s are 21.0; the stop also made them wait 200 s."""
    got = costs(story(billing="reservation", reservation=Reservation(gpus=10)))

    assert got is not None
    assert got.total == pytest.approx(21.0)
    assert got.reserved == pytest.approx(21.0 - 15.2)
    assert got.losses[0] is not None
    assert got.losses[0].cost == pytest.approx(3.92 + 2.0)


def test_no_price_is_no_money_but_hours() -> None:
    """Null, never zero; the days keep their GPU-hours."""
    got = story(plan=planned(gpu_hour_price=None))
    money = costs(got)

    assert money is not None
    assert (money.total, money.attempts, money.per_trillion_tokens) == (None, (None, None), None)
    assert money.losses[0] is not None
    assert money.losses[0].cost is None
    assert [(d.gpu_us, d.cost) for d in by_day(got)] == [(8 * 1900 * 10**6, None)]


def test_days_are_cut_at_midnight() -> None:
    """An attempt over midnight is in both days, second by second."""
    log = Log(now=86_000).launch(resume=0).at(86_100).event(Kind.TRAIN_START).train(range(10, 101, 10), 0)
    got = tell(facts(log, rows=[row("A", 86_000, None)]), 87_100, plan=planned(), hardware=H100)

    assert [(d.date.day, d.gpu_us // 10**6, d.cost) for d in by_day(got)] == [
        (1, 8 * 400, pytest.approx(3.2)), (2, 8 * 700, pytest.approx(5.6)),
    ]  # fmt: skip


@given(
    parts=lengths,
    prices=st.lists(st.floats(0, 10), min_size=1, max_size=4),
    reserved=st.one_of(st.none(), st.integers(1, 32)),
)
def test_costs_sum_to_the_total_whatever_the_prices(
    parts: list[tuple[int, int, int, int]], prices: list[float], reserved: int | None
) -> None:
    """By attempt and by day; the days' GPU-time sums to the allocation exactly."""
    steps = tuple(
        PriceStep(gpu_hour_price=p, since=None if i == 0 else START + dt.timedelta(seconds=150 * i))
        for i, p in enumerate(prices)
    )
    more: dict[str, Any] = {"plan": planned(gpu_hour_price=None, prices=steps)}
    if reserved is not None:
        more |= {"billing": "reservation", "reservation": Reservation(gpus=reserved)}
    got = any_run(parts, **more)
    money, days = costs(got), by_day(got)

    assert money is not None
    assert money.total == pytest.approx(sum(c or 0 for c in money.attempts) + (money.reserved or 0))
    assert money.total == pytest.approx(sum(d.cost or 0 for d in days), abs=1e-9)
    assert got.gpu_us is not None
    assert sum(d.gpu_us for d in days) == got.gpu_us["allocated"]


def test_energy_by_tdp_says_so() -> None:
    """15,200 GPU-seconds at 700 W, times the facility."""
    got = drawn(story(plan=planned(peak=peak_flop_per_s("h100-sxm", "bf16"), facility_overhead=1.3,
                                   carbon_kg_per_mwh=400)))  # fmt: skip

    assert got is not None
    assert got.power_from == "TDP"
    assert got.mwh == pytest.approx(15_200 / 3600 * 700 * 1.3 / 1e6)
    assert got.carbon_t == pytest.approx(got.mwh * 0.4)
    without = drawn(story(plan=None))
    assert without is not None
    assert without.mwh == pytest.approx(15_200 / 3600 * 700 / 1e6)


@pytest.mark.parametrize(
    ("said", "power_w", "word"),
    [
        pytest.param(({"gpu_power_w": 600}, {}), (8000 * 600 + 7200 * 500) / 15_200, "measured in part",
                     id="in-one-attempt"),
        pytest.param(({"gpu_power_w": 600}, {"gpu_power_w": 620}), (8000 * 600 + 7200 * 620) / 15_200,
                     "measured", id="in-both"),
        pytest.param(({}, {}), 500, "plan", id="only-planned"),
    ],
)  # fmt: skip
def test_measured_power_counts_where_the_log_has_it(
    said: tuple[dict[str, Any], dict[str, Any]], power_w: float, word: str
) -> None:
    """The plan's 500 W stand in for the rest."""
    got = drawn(story(said=said, plan=planned(gpu_power_w=500)))

    assert got is not None
    assert (got.power_w, got.power_from) == (pytest.approx(power_w), word)


def test_no_power_is_no_energy() -> None:
    """An unnamed device has no TDP."""
    assert drawn(story(hardware=Hardware(peak_flop_per_s=PEAK, gpus=8))) is None
