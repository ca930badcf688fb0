"""A run's failures and the advice that follows from them, by hand."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from tests.core.run_story import (
    H100,
    START,
    any_run,
    planned,
    second,
    story,
)
from tests.core.story import Log, facts, row, tell
from tracker.core.goodput_model import checkpoint_advice
from tracker.core.plan import PriceStep
from tracker.core.records import Kind
from tracker.core.run_failures import FEW_GAPS, run_advice, run_causes, run_checkpoints, run_failures
from tracker.core.settings import Reservation
from tracker.core.snapshot import Snapshot


def test_restart_save_and_interval_are_the_runs_own() -> None:
    """90 s of tail and 100 of start-up; one save of 10 s in 1,600 s of steps; one failure in 1,900 s."""
    got = run_checkpoints(story())

    assert got is not None
    assert got.restart_min == pytest.approx(190 / 60)
    assert got.stall_min == pytest.approx(10 / 60)
    assert got.interval_min == pytest.approx(1600 / 60)
    assert got.failures_per_day == pytest.approx(86_400 / 1900)
    assert got.shares is not None
    shares = got.shares
    assert shares.restart_ratio == pytest.approx(290 / 1900)
    assert shares.redo_ratio == pytest.approx(300 / 1900)
    assert shares.goodput_ratio + shares.restart_ratio + shares.redo_ratio + shares.checkpoint_ratio + (
        shares.rest_ratio
    ) == pytest.approx(1)


def test_the_advice_is_the_calculators() -> None:
    """Same inputs, same answer; its range is that of the failures seen, its worth what is to come."""
    ran = story()
    got, rate = run_advice(ran), run_failures(ran)

    assert got is not None
    assert rate is not None
    low, high = rate.rate.job_hours_interval
    assert high is not None
    to_go = (1e6 - 130_000) * (ran.per_trillion.realised or 0) / 1e12
    alone = checkpoint_advice(
        failures_per_day=86_400 / 1900, restart_min=190 / 60, checkpoint_stall_min=10 / 60,
        checkpoint_interval_min=1600 / 60, mtbf_range_min=(low * 60, high * 60), gpu_hours=to_go,
        gpu_hour_price=3.6,
    )  # fmt: skip
    for name in ("best_interval_min", "daly_min", "gain_ratio", "gpu_hours_saved", "money_saved"):
        assert getattr(got.advice, name) == pytest.approx(getattr(alone, name)), name
    assert got.advice.best_interval_range_min == pytest.approx(alone.best_interval_range_min)
    assert got.gpu_hours == pytest.approx(to_go)
    assert got.gpu_hours_are == "to go"
    assert got.gain_range is not None
    assert got.advice.gain_ratio is not None
    assert got.gain_range[0] <= got.advice.gain_ratio <= got.gain_range[1]
    assert got.advice.money_saved == pytest.approx((got.advice.gpu_hours_saved or 0) * 3.6)


def test_a_figure_given_stands_in_for_the_runs() -> None:
    """What if a save blocked for two seconds, every five minutes?"""
    got = run_advice(story(), stall_min=2 / 60, interval_min=5.0, gpu_hours=100.0, gpu_hour_price=1.0)

    assert got is not None
    assert (got.given.stall_min, got.given.interval_min) == (2 / 60, 5.0)
    assert (got.gpu_hours, got.gpu_hours_are) == (100.0, "given")


def test_a_log_without_saves_gives_no_advice_until_told() -> None:
    """The stall of a save is the one thing that cannot be guessed."""
    rows = [row("A", 0, 1000), row("B", 1200, None)]
    log = Log().launch(resume=0).at(100).event(Kind.TRAIN_START).train(range(10, 81, 10), 0)
    got = tell(facts(log, second(), rows=rows), 2100, plan=planned(), hardware=H100)

    assert run_advice(got) is None
    assert run_advice(got, stall_min=0.1, interval_min=10) is not None
    assert run_checkpoints(tell(facts(rows=[]), 10)) is None


def test_a_run_that_never_failed_has_a_bound() -> None:
    """No mean, a lower end; and the best interval is at least what that end asks for."""
    got = story(as_of=900)
    rate, advice = run_failures(got), run_advice(got)

    assert rate is not None
    assert (rate.rate.interruptions, rate.rate.job_hours) == (0, None)
    assert rate.rate.job_hours_interval[0] == pytest.approx(900 / 3600 / 2.995732, rel=1e-5)
    assert advice is not None
    assert advice.advice.best_interval_min is None
    assert (advice.advice.gain_ratio, advice.advice.money_saved, advice.gain_range) == (None, None, None)
    assert (advice.model_ratio, advice.losses.restart_ratio, advice.given.restart_min) == (None, None, None)
    assert advice.advice.best_interval_range_min is not None
    assert advice.advice.best_interval_range_min[1] is None


def bunched(waits: list[int]) -> Snapshot:
    """Attempts that each fail after so many steps of 10 s."""
    return any_run([(steps, 0, 0, 8) for steps in waits], plan=planned())


def test_failures_that_bunch_widen_the_interval() -> None:
    """Many short gaps and a few long ones, as real clusters have them; even gaps leave it as it is."""
    wild, even = run_failures(bunched([1, 1, 1, 300, 1, 1, 1, 300])), run_failures(bunched([40] * 8))

    assert wild is not None
    assert wild.gaps is not None
    assert wild.widened is not None
    assert wild.gaps.gaps == 7
    assert wild.gaps.index > 1
    assert wild.widened.job_hours == wild.rate.job_hours
    assert wild.widened.job_hours_interval[0] < wild.rate.job_hours_interval[0]
    assert even is not None
    assert even.gaps is not None
    assert even.gaps.coefficient_of_variation == pytest.approx(0, abs=1e-6)
    assert even.widened is None


def test_a_few_gaps_widen_nothing() -> None:
    """Four say nothing about how failures bunch."""
    got = run_failures(bunched([1, 1, 300, 1, 300]))

    assert got is not None
    assert got.gaps is not None
    assert got.gaps.gaps < FEW_GAPS
    assert got.widened is None


def test_the_status_and_the_calculator_have_one_mtbf() -> None:
    """The exact interval is the same figure in both."""
    ran = story()
    got = run_failures(ran)

    assert got is not None
    assert got.rate.device_hours == ran.mtbf.device_hours
    assert got.rate.device_hours_interval == ran.mtbf.device_hours_ci90
    assert got.rate.job_hours == ran.mtbf.job_hours


def test_root_causes_stand_beside_the_published_ones() -> None:
    """Counted as in the interruptions; by hand is unknown until somebody says it."""
    ran = story()
    by_hand = replace(ran, interruptions=tuple(replace(s, manual=True) for s in ran.interruptions))

    assert {r.cause: r.count for r in run_causes(ran).rows if r.count} == {"unknown": 1}
    assert run_causes(ran).manual is None
    assert run_causes(by_hand).manual == 1


def test_hours_to_come_are_worth_the_price_to_come() -> None:
    """Paid at 1 until now; from now on an hour costs 5, whatever the past mean is."""
    steps = (
        PriceStep(gpu_hour_price=1.0),
        PriceStep(gpu_hour_price=5.0, since=START + dt.timedelta(seconds=2100)),
    )
    got = run_advice(story(plan=planned(gpu_hour_price=None, prices=steps)))

    assert got is not None
    assert got.gpu_hours_are == "to go"
    assert got.gpu_hour_price == pytest.approx(5.0)
    assert got.advice.money_saved == pytest.approx(5 * (got.advice.gpu_hours_saved or 0))


def test_what_a_reservation_holds_beside_the_attempts_is_no_saving() -> None:
    """Its idle GPUs stay idle at any interval: same hours, same savings as without it."""
    alone = run_advice(story())
    held = run_advice(story(billing="reservation", reservation=Reservation(gpus=16)))

    assert alone is not None
    assert held is not None
    assert held.gpu_hours == pytest.approx(alone.gpu_hours)
    assert held.advice.gpu_hours_saved == pytest.approx(alone.advice.gpu_hours_saved)
