"""Where a run stands: due tokens, recent stops, checkpoints, and None for what is unknown."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_exporter import FULL, H_US, NOON_US, PLAN, stop
from tracker.core.forecast.value import Forecast, Quantiles
from tracker.core.plan import Plan
from tracker.core.plan_parts import PlanStage
from tracker.core.run_failures import run_advice, run_failures
from tracker.core.run_money import costs, drawn
from tracker.core.run_plan import plan_for
from tracker.core.run_standing import (
    DAY_US,
    Checkpoints,
    Planned,
    Standing,
    due_tokens,
    ended_short,
    late_days,
    run_standing,
)
from tracker.core.settings import Settings
from tracker.core.snapshot import Snapshot, Tokens

BARE = Snapshot(run="r", as_of_us=0, state="waiting")
START_US = round(PLAN.start.timestamp() * 1e6) if PLAN.start else 0


def test_nothing_is_known_of_a_run_without_facts() -> None:
    """Only the two counts of interruptions are: there was none."""
    assert run_standing(BARE) == Standing(planned=Planned(), checkpoints=Checkpoints())


def test_a_plan_alone_says_what_it_plans() -> None:
    """The worked example: 315,470 GPU-hours at 2 a piece."""
    found = run_standing(replace(BARE, settings=Settings(run="r", plan=PLAN))).planned

    assert found.goodput_ratio == 0.9
    assert found.mfu_ratio == 0.35
    assert found.mtbf_s == 3 * 3600
    assert found.checkpoint_interval_s == 1800
    assert found.gpu_hours == pytest.approx(315_470, abs=1)
    assert found.cost == pytest.approx(630_940, abs=1)
    assert found.energy_mwh == pytest.approx(315_470 * 700 / 1e6, rel=1e-5)
    assert found.redone_ratio == pytest.approx(8 * 15 / 1440)


@pytest.mark.parametrize(
    ("days", "tokens"),
    [
        pytest.param(-1.0, None, id="nothing-is-due-before-the-start"),
        pytest.param(0.0, 0.0, id="none-at-the-start"),
        pytest.param(5.945, 2e12, id="half-after-half-the-main-stage"),
        pytest.param(12.5, 4e12, id="the-later-stages-fraction-adds-time-and-no-tokens"),
        pytest.param(400.0, 4e12, id="never-more-than-the-target"),
    ],
)
def test_due_tokens(days: float, tokens: float | None) -> None:
    """12.84 days with 8 % of later stages: the target is due after 11.89."""
    found = due_tokens(PLAN, START_US + round(days * DAY_US))

    assert found == (None if tokens is None else pytest.approx(tokens, rel=1e-3))


def test_listed_stages_follow_each_other_each_at_its_pace() -> None:
    """The second one on half the GPUs takes twice as long for the same tokens."""
    stages = (PlanStage(name="a", tokens=2e12), PlanStage(name="b", tokens=2e12, gpus=512))
    plan = replace(PLAN, stages=stages)
    first = plan.estimate()
    assert first is not None
    days = first.stages[0].days
    assert days is not None

    assert due_tokens(plan, START_US + round(days * DAY_US)) == pytest.approx(2e12)
    assert due_tokens(plan, START_US + round(2 * days * DAY_US)) == pytest.approx(3e12)


@given(st.floats(0.01, 0.99), st.floats(0.01, 3.0))
def test_the_plan_for_tokens_is_what_is_due_after_its_days(share: float, ahead: float) -> None:
    """Stages that differ in pace and GPUs: hours and days are those of the stages gone through."""
    stages = (PlanStage(name="a", tokens=2e12, mfu=0.4), PlanStage(name="b", tokens=2e12, gpus=512, mfu=0.2))
    plan = replace(PLAN, stages=stages)
    part, rest = plan_for(plan, share * 4e12), plan_for(plan, (1 - share) * 4e12, after=share * 4e12)
    whole = plan.estimate()
    assert part is not None
    assert part.days is not None
    assert rest is not None
    assert whole is not None

    assert due_tokens(plan, START_US + round(part.days * DAY_US)) == pytest.approx(share * 4e12, rel=1e-6)
    assert part.billed_gpu_hours + rest.billed_gpu_hours == pytest.approx(whole.final_gpu_hours)
    assert part.mfu_ratio == pytest.approx(0.4) if share <= 0.5 else 0.2 < part.mfu_ratio < 0.4
    beyond = plan_for(plan, ahead * 4e12, after=4e12)
    assert beyond is not None
    assert beyond.billed_gpu_hours == pytest.approx(ahead * whole.final_gpu_hours)


def test_the_plan_for_the_target_and_its_later_stages_is_the_whole_plan() -> None:
    plan = replace(PLAN, later_stages=0.08)
    whole, some = plan_for(plan, 4e12 * 1.08), plan_for(plan, 4e12)
    assert whole is not None
    assert some is not None
    assert whole.days is not None

    assert whole.billed_gpu_hours == pytest.approx(plan.final_gpu_hours())
    assert whole.days == pytest.approx(plan.days())
    assert some.billed_gpu_hours == pytest.approx(whole.billed_gpu_hours / 1.08)
    assert plan_for(plan, 0.0) is None


@pytest.mark.parametrize(
    ("net", "state", "basis", "late"),
    [
        pytest.param(4e12, "finished", "exact", 0.5, id="a-finished-one-by-the-plan-for-its-tokens"),
        pytest.param(4e12, "running", "measured", -0.45, id="a-running-one-by-the-whole-plan"),
        pytest.param(5e12, "running", "exact", -0.45, id="one-past-its-target-by-the-plan-for-all-of-it"),
        pytest.param(2e12, "finished", "exact", None, id="one-that-ended-short-by-nothing"),
    ],
)
def test_how_late_a_run_is(net: float, state: str, basis: str, late: float | None) -> None:
    """The plan has 4e12 tokens in 11.89 days and 8 % of later stages until 12.84; the median is at 12.39."""
    made = Forecast(
        as_of_us=NOON_US,
        basis=basis,
        finish_us=Quantiles.exact(START_US + 12.39 * DAY_US),
        days_behind_plan=-0.45,
    )
    assert FULL.settings is not None
    run = replace(
        FULL,
        state=state,
        forecast=made,
        settings=replace(FULL.settings, plan=replace(PLAN, later_stages=0.08)),
        tokens=Tokens(net=round(net), inherited=0, planned=round(4e12)),
    )

    assert late_days(run) == (None if late is None else pytest.approx(late, abs=0.01))
    assert ended_short(run) is (late is None)


@given(st.floats(0, 30), st.floats(0, 30))
def test_due_tokens_never_shrink(a: float, b: float) -> None:
    """However far apart two moments are."""
    early, late = sorted((a, b))
    first = due_tokens(PLAN, START_US + round(early * DAY_US))
    second = due_tokens(PLAN, START_US + round(late * DAY_US))

    assert first is not None
    assert second is not None
    assert 0 <= first <= second <= 4e12


def test_due_tokens_need_a_gpu_count() -> None:
    """Without one there is no pace."""
    assert due_tokens(replace(PLAN, gpus=None), NOON_US) is None
    assert due_tokens(Plan(), NOON_US) is None


def test_the_schedule_counts_inherited_tokens() -> None:
    """They count toward the target, so they count here."""
    due = due_tokens(PLAN, FULL.as_of_us)
    assert due is not None
    tokens = Tokens(net=round(due / 2), inherited=round(due / 4), planned=round(4e12))

    assert run_standing(replace(FULL, tokens=tokens)).schedule_ratio == pytest.approx(0.75)
    assert run_standing(replace(FULL, tokens=Tokens(net=5))).schedule_ratio is None


def test_recent_interruptions_are_the_unexpected_ones_of_the_window() -> None:
    """An hour ago to the microsecond is outside; planned ones never count."""
    stops = tuple(
        replace(stop(i + 1, kind, "gpu"), at_us=NOON_US - back)
        for i, (kind, back) in enumerate([
            ("unexpected", 0),
            ("unexpected", H_US),
            ("unexpected", 30 * H_US),
            ("planned", 0),
        ])
    )
    found = run_standing(replace(FULL, interruptions=stops))

    assert (found.unexpected_1h, found.unexpected_24h) == (1, 2)
    assert found.last_unexpected_us == NOON_US


def test_figures_are_those_of_the_other_modules() -> None:
    """Nothing is computed twice: cost, energy, MTBF and advice are theirs."""
    found = run_standing(FULL)
    money, energy, failures, advice = costs(FULL), drawn(FULL), run_failures(FULL), run_advice(FULL)
    assert money is not None
    assert energy is not None
    assert failures is not None
    assert advice is not None

    assert found.cost == money.total
    assert (found.energy_mwh, found.power_from) == (energy.mwh, energy.power_from)
    rate = failures.widened or failures.rate
    assert found.mtbf_interval_s == tuple(
        None if hours is None else hours * 3600 for hours in rate.job_hours_interval
    )
    assert advice.advice.best_interval_min is not None
    assert found.checkpoints.best_interval_s == advice.advice.best_interval_min * 60
    assert found.checkpoints.gain_ratio == advice.advice.gain_ratio
    assert found.checkpoints.interval_s == 2 * 0.75 * 3600 / 12


def test_the_last_attempt_tells_the_stall_limit() -> None:
    """And when it began; progress is the latest of all."""
    found = run_standing(FULL)

    assert found.stall_limit_us == 435_000_000
    assert found.last_attempt_start_us == NOON_US - H_US
    assert found.last_progress_us == NOON_US - 20_000_000


def test_a_deadline_and_a_budget_come_from_the_plan() -> None:
    """As they stand there."""
    planned = run_standing(FULL).planned

    assert planned.deadline_us == round(dt.datetime(2026, 1, 18, tzinfo=dt.UTC).timestamp() * 1e6)
    assert planned.budget == 700_000
