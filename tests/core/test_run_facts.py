"""A run by every definition, its chain, and its difference from the plan: by hand, and for any run."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.run_story import (
    ALLOCATED_S,
    H100,
    PRODUCTIVE_S,
    START,
    any_run,
    first,
    lengths,
    planned,
    second,
    settings_of,
    story,
)
from tests.core.story import PEAK, SEQUENCE, T0, facts, row, tell, us
from tracker.core.chain import chain_of_plan
from tracker.core.definitions import goodput_definitions
from tracker.core.errors import InvalidValue
from tracker.core.plan import Plan, PlanFailures, PlanStage
from tracker.core.run_facts import (
    chain_of_run,
    chains_of,
    nominal_of,
    nominal_shares,
    other_target,
    planned_factors,
    point_of,
    run_factors,
    run_facts,
    run_variance,
    shorter_target,
)
from tracker.core.run_money import costs, drawn
from tracker.core.settings import Hardware, Model, Reservation
from tracker.core.snapshot import Snapshot


def ratios(snapshot: Snapshot, **more: Any) -> dict[str, float | None]:
    return {d.name: d.ratio for d in goodput_definitions(run_facts(snapshot, **more))}


def test_the_story_by_every_definition() -> None:
    """1,300 productive seconds of 1,900 allocated, of 2,100 on the clock; 300 lost, 10 saving."""
    got = ratios(story())

    assert got["allocated"] == pytest.approx(PRODUCTIVE_S / ALLOCATED_S) == story().goodput_ratio
    assert got["wall_clock"] == pytest.approx(1300 / 2100)
    assert got["without_rescheduling"] == pytest.approx(1300 / 1900)
    assert got["nominal_step_time"] == pytest.approx(130 * 10 / 2100)
    assert got["redo_ignored"] == pytest.approx(1600 / 1900)
    assert got["checkpoints_productive"] == pytest.approx(1310 / 1900)
    assert got["checkpointed_only"] == pytest.approx((1300 - 800) / 1900)


def test_spares_are_idle_and_the_clock_does_not_see_them() -> None:
    """10 GPUs billed, 8 train: our goodput falls by a fifth, wall clock stays."""
    rows = [row("A", 0, 1000, gpus=10), row("B", 1200, None, gpus=10)]
    got = tell(facts(first(), second(), rows=rows), 2100, plan=planned(), hardware=H100)

    assert ratios(got)["allocated"] == pytest.approx(0.8 * 1300 / 1900) == got.goodput_ratio
    assert ratios(got)["wall_clock"] == pytest.approx(1300 / 2100)


def test_without_a_gpu_count_the_definitions_are_of_wall_time() -> None:
    """The ratio is known though GPU-hours are not."""
    rows = [row("A", 0, 1000, gpus=None), row("B", 1200, None, gpus=None)]
    made = facts(first(gpus=None), second(gpus=None), rows=rows)
    got = tell(made, 2100, hardware=Hardware(peak_flop_per_s=PEAK))

    assert got.gpu_us is None
    assert ratios(got)["allocated"] == pytest.approx(1300 / 1900)
    assert costs(got) is None
    assert drawn(got) is None


def test_a_billed_reservation_counts_in_the_definitions_as_in_the_ledger() -> None:
    """One figure, two ways."""
    got = story(billing="reservation", reservation=Reservation(gpus=10))

    assert ratios(got)["allocated"] == pytest.approx(got.goodput_ratio)


def test_faster_than_the_nominal_step_is_said_and_not_clipped() -> None:
    """At 12 s a step the second attempt did 960 s of work in 900; ours stays below 1."""
    one, two = nominal_shares(story(), nominal_step_s=12)

    assert (one.nominal_ratio, one.reason) == (pytest.approx(0.6), "")
    assert two.nominal_ratio == pytest.approx(960 / 900)
    assert two.reason == "faster than the nominal step (10 s)"
    assert two.ours_ratio == pytest.approx(800 / 900)


def test_early_steps_of_smaller_batches_are_called_a_warm_up() -> None:
    """The first attempt begins at step 0."""
    share = nominal_shares(story(), nominal_step_s=40)[0]

    assert share.nominal_ratio == pytest.approx(2.0)
    assert share.reason.startswith("batch warm-up: faster than the nominal step")


def test_the_runs_own_nominal_step_is_the_usual_one() -> None:
    """All steps took 10 s; a run without steps has none."""
    assert nominal_of(story()) == pytest.approx(10.0)
    assert nominal_of(tell(facts(rows=[]), 10)) is None
    assert nominal_shares(tell(facts(rows=[]), 10)) == ()


@pytest.mark.parametrize("step_s", [0, -1, float("nan")])
def test_a_nominal_step_of_no_time_is_refused(step_s: float) -> None:
    """With a sentence."""
    with pytest.raises(InvalidValue, match="nominal_step_s"):
        nominal_shares(story(), nominal_step_s=step_s)


def test_the_runs_chain_has_its_own_hours_price_and_power() -> None:
    """Both laws of the chain hold on it."""
    got, run = chain_of_run(story()), story()

    assert got.step_gpu_hours == pytest.approx(8 * 1300 / 3600)
    assert got.billed_gpu_hours == pytest.approx(8 * 1900 / 3600)
    assert got.mfu_ratio == pytest.approx(run.mfu.productive_ratio)
    assert got.goodput_ratio == pytest.approx(run.goodput_ratio)
    assert got.mfu_allocated_ratio == pytest.approx((got.mfu_ratio or 0) * (got.goodput_ratio or 0))
    assert got.gpu_hours_per_trillion_tokens == pytest.approx(run.per_trillion.realised)
    assert got.cost_per_trillion_tokens == pytest.approx((run.per_trillion.realised or 0) * 3.6)
    assert "2026-01-01T00:35:00Z" in got.caveat


def test_plan_and_run_stand_in_one_table() -> None:
    """The plan first; a run that has not begun is no row."""
    assert [c.kind for c in chains_of(story())] == ["plan", "run"]
    assert [c.kind for c in chains_of(tell(facts(rows=[]), 10, plan=planned()))] == ["plan"]
    assert chains_of(story())[0] == chain_of_plan(planned())


def test_the_runs_side_of_the_variance_is_the_ledger() -> None:
    """Its GPU-hours are allocated without pending; its days are the calendar from the planned start."""
    factors = run_factors(story(), plan=planned())

    assert factors is not None
    assert factors.gpu_hours == pytest.approx(8 * 1900 / 3600)
    assert factors.days == pytest.approx(2100 / 86_400)
    assert factors.gpus == pytest.approx(8)
    assert factors.availability_ratio == pytest.approx(1900 / 2100)
    assert factors.redo_by == {"unknown": pytest.approx(8 * 300 / 3600)}
    assert factors.tail_ratio * 1300 == pytest.approx(sum(factors.tail_by.values()) / 8e6)


def test_a_late_start_is_days_and_no_gpu_hours() -> None:
    """A run that was to begin an hour earlier is an hour late; its hours do not change."""
    on_time = run_variance(story())
    late = run_variance(story(plan=planned(start=START - dt.timedelta(hours=1))))

    assert on_time is not None
    assert late is not None
    assert late.gpu_us == on_time.gpu_us
    assert late.days - on_time.days == pytest.approx(1 / 24)


def test_days_late_do_not_depend_on_how_the_run_is_billed() -> None:
    """A reservation from an hour before the planned start costs hours, and makes nothing late."""
    early = Reservation(start_us=us(-3600), gpus=8)
    alone, held = run_variance(story()), run_variance(story(billing="reservation", reservation=early))

    assert alone is not None
    assert held is not None
    assert held.days == pytest.approx(alone.days)
    assert held.gpu_hours - alone.gpu_hours == pytest.approx(8 * (3600 + 200) / 3600)
    parts = {p.name: p for p in held.parts}
    assert parts["gpus"].gpu_hours == pytest.approx(0)
    assert parts["availability"].cause == "GPUs were held for 2.71 times the run's calendar"


def test_a_plan_that_came_true_has_no_variance_in_its_rates() -> None:
    """Planned as it ran: the total is zero, and what failed is set against what was planned to fail."""
    ran = story()
    assert ran.mfu.productive_ratio is not None
    assert ran.goodput_ratio is not None
    as_it_ran = planned(mfu=ran.mfu.productive_ratio, goodput=ran.goodput_ratio)
    got = run_variance(replace(ran, settings=replace(settings_of(ran), plan=as_it_ran)))

    assert got is not None
    assert got.gpu_hours == pytest.approx(0, abs=1e-9)
    parts = {p.name: p for p in got.parts}
    assert parts["mfu"].gpu_us == 0
    failed = parts["redo"].gpu_hours + parts["tail"].gpu_hours
    assert failed == pytest.approx(-parts["goodput"].gpu_hours)
    assert parts["redo"].gpu_hours == pytest.approx(8 * 300 / 3600)
    assert parts["redo"].cause == "unknown: 100% of redone work"
    assert parts["goodput"].cause.startswith("startup: ")


def test_listed_stages_are_planned_as_far_as_they_were_gone_through() -> None:
    """300,000 tokens of the first stage and as many of the second, at half its MFU and twice its goodput."""
    stages = (
        PlanStage(name="a", tokens=3e5, mfu=0.4, goodput=0.45),
        PlanStage(name="b", tokens=7e5, mfu=0.2, goodput=0.9),
    )
    plan = planned(stages=stages)
    first, both = planned_factors(plan, tokens=2e5), planned_factors(plan, tokens=6e5)
    second, whole = planned_factors(plan, tokens=3e5, after=3e5), planned_factors(plan)
    assert first is not None
    assert both is not None
    assert second is not None
    assert whole is not None

    assert (first.mfu_ratio, first.goodput_ratio) == pytest.approx((0.4, 0.45))
    assert (second.mfu_ratio, second.goodput_ratio) == pytest.approx((0.2, 0.9))
    assert both.mfu_ratio == pytest.approx(2 / (1 / 0.4 + 1 / 0.2))
    assert whole.tokens == 1e6
    assert whole.gpu_hours == pytest.approx(plan.final_gpu_hours())


def test_redone_work_that_the_failure_model_expects_is_planned() -> None:
    """86.4 failures a day at an interval of 10 minutes redo 30 % of the allocation."""
    side = planned_factors(
        planned(goodput=0.5, failures=PlanFailures(per_day=86.4, restart_min=1, checkpoint_interval_min=10))
    )

    assert side is not None
    assert side.redo_ratio == pytest.approx(0.3 / 0.5)
    assert side.goodput_ratio == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("said", "target"),
    [
        pytest.param({"target_tokens": 2_000_000}, 2e6, id="tokens"),
        pytest.param({"target_samples": 3000}, 3000 * SEQUENCE, id="samples"),
        pytest.param({"target_steps": 5000}, 5000 * SEQUENCE, id="steps"),
        pytest.param({"target_steps": 1000}, None, id="the-plan's-own"),
        pytest.param({}, None, id="not-said"),
    ],
)
def test_a_target_that_the_log_states_is_told_from_the_plans(
    said: dict[str, Any], target: float | None
) -> None:
    """1e6 tokens are planned; steps are whole, so nearly that is that."""
    assert other_target(story(said=({}, said))) == target


@pytest.mark.parametrize(
    ("said", "stages", "target"),
    [
        pytest.param(290_000, (), 290_000.0, id="well below the plan"),
        pytest.param(980_000, (), None, id="nearly the plan"),
        pytest.param(2_000_000, (), None, id="above the plan"),
        pytest.param(300_000, (300_000, 700_000), None, id="the first stage"),
        pytest.param(700_000, (300_000, 700_000), None, id="a stage by itself"),
        pytest.param(500_000, (300_000, 700_000), 500_000.0, id="within a stage"),
    ],
)
def test_a_log_that_ends_before_the_target_is_told(
    said: int, stages: tuple[int, ...], target: float | None
) -> None:
    """1e6 tokens are planned."""
    ran = story(said=({}, {"target_tokens": said}))
    listed = tuple(PlanStage(name=f"s{n}", tokens=n) for n in stages)

    assert (
        shorter_target(replace(ran, settings=replace(settings_of(ran), plan=planned(stages=listed))))
        == target
    )


def test_another_target_is_a_part_of_the_variance() -> None:
    """Twice the tokens at the same rates is twice the hours; the parts still sum."""
    ran = story(said=({}, {"target_tokens": 2_000_000}))
    got = run_variance(ran, tokens=other_target(ran))

    assert got is not None
    tokens = next(p for p in got.parts if p.name == "tokens")
    assert tokens.gpu_us > 0
    assert tokens.cause == "target changed by +1e+06 tokens"
    assert sum(p.gpu_us for p in got.parts) == got.gpu_us


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"plan": None}, id="no-plan"),
        pytest.param({"plan": Plan(gpus=8)}, id="a-plan-without-a-target"),
        pytest.param({"model": Model(sequence_length=SEQUENCE)}, id="no-parameters"),
        pytest.param({"hardware": Hardware(gpus=8)}, id="no-peak"),
        pytest.param({"as_of": 50}, id="no-step-yet"),
    ],
)
def test_an_unknown_side_has_no_variance(more: dict[str, Any]) -> None:
    """None, never zero."""
    assert run_variance(story(**more)) is None


@given(parts=lengths, mfu=st.floats(1e-6, 1), goodput=st.floats(0.05, 1), gpus=st.integers(1, 64))
def test_the_parts_of_any_runs_variance_sum_exactly(
    parts: list[tuple[int, int, int, int]], mfu: float, goodput: float, gpus: int
) -> None:
    """In whole GPU-microseconds and microseconds; the total is run minus plan."""
    plan = planned(mfu=mfu, goodput=goodput, gpus=gpus)
    ran = any_run(parts, plan=plan)
    got = run_variance(ran)

    if got is None:
        assert not ran.tokens.seen
        return
    side = run_factors(ran, plan=plan)
    assert side is not None
    theirs = planned_factors(plan, tokens=side.tokens)
    assert theirs is not None
    assert sum(p.gpu_us for p in got.parts) == got.gpu_us
    assert sum(p.wall_us for p in got.parts) == got.wall_us
    assert got.gpu_hours == pytest.approx(side.gpu_hours - theirs.gpu_hours, rel=1e-6, abs=1e-6)
    assert all(p.cause for p in got.parts)


def test_a_runs_operating_point_is_comparable() -> None:
    """Under the names that references are compared by."""
    assert point_of(story()) == {
        "gpu": "h100-sxm", "precision": "bf16", "sequence_length": SEQUENCE, "global_batch": SEQUENCE,
    }  # fmt: skip
    assert us(0) == T0
