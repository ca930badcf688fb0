"""Forecasts of odd runs: long stalls, unpaid pauses, stages of other sizes, choices that change nothing."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.core.story import facts, row
from tests.test_forecast import asked, settings, steady, told
from tracker.core.errors import InvalidValue
from tracker.core.forecast.choices import KEYS, LIMITS, parse
from tracker.core.forecast.model import play
from tracker.core.forecast.prior import DEFAULT
from tracker.core.forecast.state import StageLeft, State
from tracker.core.forecast.value import Quantiles
from tracker.core.records import Kind
from tracker.core.settings import Reservation
from tracker.forecasting import Asked

YEAR_S = 365 * 86_400


@pytest.mark.parametrize("quiet_s", [3600, 30 * 86_400, 10 * YEAR_S], ids=["an hour", "a month", "ten years"])
def test_goodput_to_come_is_a_share_however_long_the_run_stands_still(quiet_s: float) -> None:
    """It counts from the next step on: what is left of the stop is told beside it."""
    made = told(facts(steady()), 5100 + quiet_s)

    assert made.inputs is not None
    assert 0.5 < made.inputs.goodput_ratio <= 1


def test_a_pause_without_an_allocation_costs_its_start_up_only() -> None:
    """Five days down are not paid: 700 steps of 10 s, a start-up and redone work on 8 GPUs are."""
    log = steady(300)
    log.at(3200).event(Kind.EXIT, end_kind="failed")
    got = asked(facts(log, rows=[row("1", 0, 3200)]), 432_000)

    assert got.state.phase == "down"
    assert got.forecast.gpu_hours is not None
    spent, work_s = 8 * 3200 / 3600, 7000
    assert got.forecast.gpu_hours.p50 == pytest.approx(spent + 8 * (work_s + 1200) / 3600, rel=0.25)


def test_a_hang_that_holds_its_gpus_is_paid() -> None:
    """The attempt runs: what stands still is allocated."""
    got = asked(facts(steady()), 432_000)

    assert got.state.phase == "stalled"
    assert got.forecast.gpu_hours is not None
    assert (got.forecast.gpu_hours.p50 or 0) > 8 * 432_000 / 3600


def two_stages(second: int) -> State:
    state = asked(facts(steady()), 5100).state
    one = StageLeft(name="one", tokens=1e9, cost_factor=1.0, gpus=None, current=True)
    two = StageLeft(name="two", tokens=1e10, cost_factor=1.0, gpus=second, current=False)
    return replace(state, stages=(one, two))


def test_a_stage_on_more_gpus_fails_as_often_as_its_gpus_do() -> None:
    """The same GPU-hours of work take the same number of stops, whatever the number of GPUs."""
    by_chance = replace(DEFAULT, planned_days=1e9)  # planned stops come by the calendar
    few, many = (play(two_stages(gpus), plan_rate=None, priors=by_chance) for gpus in (8, 800))

    stops = [float(p.drivers["stops"].mean()) / (p.stop_s or math.nan) for p in (few, many)]
    assert stops[1] == pytest.approx(stops[0], rel=0.2)
    assert many.wall_s.mean() < 0.3 * few.wall_s.mean()


def changed(got: Asked, **choice: str) -> tuple[Quantiles, Quantiles]:
    other = got.under(choice)
    assert other is not None
    return other.change["days"], other.change["gpu_hours"]


def test_the_present_gpus_change_nothing_where_spares_are_held() -> None:
    """8 of 10 allocated GPUs train: asking for 8 is asking for what is."""
    got = asked(facts(steady()), 5100)
    got = replace(got, state=replace(got.state, gpus=10))

    for what in changed(got, gpus="8"):
        assert (what.p10, what.p50, what.p90) == (0, 0, 0)


def test_more_gpus_need_a_larger_reservation() -> None:
    """Ten reserved GPUs do not hold 80: those are paid, and the change is that of the two totals."""
    config = replace(settings(), billing="reservation", reservation=Reservation(gpus=10))
    got = asked(facts(steady()), 5100, config)
    other = got.under({"gpus": "80"})

    assert other is not None
    assert other.forecast.finish_us is not None
    assert got.state.spent_gpu_hours is not None
    assert other.forecast.gpu_hours is not None
    ahead_h = ((other.forecast.finish_us.p50 or 0) - got.state.as_of_us) / 3.6e9
    assert other.forecast.gpu_hours.p50 == pytest.approx(got.state.spent_gpu_hours + 80 * ahead_h, rel=1e-6)
    now = got.forecast.gpu_hours
    assert now is not None
    expected = (other.forecast.gpu_hours.p50 or 0) - (now.p50 or 0)
    assert other.change["gpu_hours"].p50 == pytest.approx(expected, abs=1.0)


@pytest.mark.parametrize("key", sorted(KEYS))
def test_a_choice_that_nobody_can_mean_names_its_limits(key: str) -> None:
    """A billion minutes, a thousandth of a second: no answer in millions of years."""
    low, high = LIMITS[key]
    for value in (low / 10, high * 10):
        with pytest.raises(InvalidValue, match=f"--what-if {key}"):
            parse({key: str(value)}, mfu_now=0.4)
    parse({key: str(low)}, mfu_now=0.4)
    parse({key: str(high)}, mfu_now=0.4)


def test_a_range_without_an_end_is_said_in_words() -> None:
    """Never "between a day and not in sight"."""
    made = told(facts(steady()), 5100 + 10 * YEAR_S)

    assert made.finish_us is not None
    assert made.finish_us.p90 is None
    assert "takes over 20 years" in made.sentences[0]
    assert "not in sight" not in made.sentences[0]


def test_a_target_that_is_passed_says_what_its_hours_are_of() -> None:
    """The date is the target's, the hours are the run's until now."""
    made = told(facts(steady()), 5100, settings(tokens=2e5))

    assert made.basis == "exact"
    assert "until now" in made.sentences[0]
