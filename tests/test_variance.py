"""Variance from plan: parts that sum exactly, each for its own reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.core.errors import InvalidValue
from tracker.core.variance import FACTORS, Factors, plan_factors, variance


def planned(**over: float) -> Factors:
    """The plan's side."""
    values = {
        "tokens": 4e12, "flop_per_token": 81.9e9, "peak_flop_per_s": 989e12, "mfu_ratio": 0.35,
        "goodput_ratio": 0.9, "gpus": 1024,
    }  # fmt: skip
    return plan_factors(**{**values, **over})


def test_the_plans_side_is_the_plans_hours_and_days() -> None:
    """292,102 billed hours; 11.89 days."""
    plan = planned()

    assert round(plan.gpu_hours) == 292102
    assert plan.days == pytest.approx(292102 / 1024 / 24, rel=1e-5)
    assert plan.goodput_ratio == pytest.approx(0.9)


def test_a_run_as_planned_has_no_variance() -> None:
    """Every part is zero."""
    v = variance(planned(), planned())

    assert (v.gpu_us, v.wall_us) == (0, 0)
    assert {(p.gpu_us, p.wall_us) for p in v.parts} == {(0, 0)}


@pytest.mark.parametrize(
    ("change", "part"),
    [
        pytest.param({"mfu_ratio": 0.30}, "mfu", id="slower-steps"),
        pytest.param({"tokens": 5e12}, "tokens", id="a-longer-target"),
        pytest.param({"overhead_ratio": 0.2}, "goodput", id="more-overhead"),
        pytest.param({"redo_ratio": 0.05}, "redo", id="redone-work"),
        pytest.param({"gpus": 900}, "gpus", id="fewer-gpus"),
        pytest.param({"availability_ratio": 0.9}, "availability", id="gaps-between-attempts"),
        pytest.param({"flop_per_token": 90e9}, "flop", id="a-larger-model"),
    ],
)
def test_one_change_is_one_part(change: dict[str, float], part: str) -> None:
    """The others are exactly zero, and it is the whole difference, worse than planned."""
    plan = planned()
    values = {
        "tokens": 4e12, "flop_per_token": 81.9e9, "peak_flop_per_s": 989e12, "mfu_ratio": 0.35,
        "redo_ratio": 0.0, "overhead_ratio": plan.overhead_ratio, "gpus": 1024,
    }  # fmt: skip
    run = Factors(**{**values, **change})  # type: ignore[arg-type]
    v = variance(plan, run)
    moved = [p.name for p in v.parts if p.gpu_us or p.wall_us]

    assert moved == [part]
    assert v.days == pytest.approx(run.days - plan.days)
    assert v.wall_us > 0


def test_the_gpu_count_costs_days_not_gpu_hours() -> None:
    """Half the GPUs, twice the days, the same hours."""
    plan = planned()
    run = planned(gpus=512)
    v = variance(plan, run)

    assert v.gpu_us == 0
    assert v.days == pytest.approx(plan.days)


def test_each_part_names_its_biggest_cause() -> None:
    """By bucket, by interruption cause, by the figures."""
    run = Factors(
        tokens=4e12, flop_per_token=81.9e9, peak_flop_per_s=989e12, mfu_ratio=0.31, redo_ratio=0.04,
        overhead_ratio=0.12, gpus=1000, availability_ratio=0.95,
        redo_by={"gpu_hbm": 30.0, "network": 10.0}, overhead_by={"idle": 5.0, "startup": 15.0},
        tail_ratio=0.02, tail_by={"stalled": 9.0, "network": 1.0},
    )  # fmt: skip
    causes = {p.name: p.cause for p in variance(planned(), run).parts}

    assert causes["redo"] == "gpu_hbm: 75% of redone work"
    assert causes["goodput"] == "startup: 75% of other unproductive time"
    assert causes["tail"] == "stalled: 90% of time after the last step"
    assert causes["mfu"] == "MFU 0.310, planned 0.350"
    assert causes["gpus"] == "1,000 GPUs held, planned 1,024"
    assert causes["tokens"] == "target unchanged"
    assert causes["availability"] == "an allocation was held 95.0% of the time"


def test_a_planned_redo_is_no_variance() -> None:
    """A plan whose failure model expects redone work is charged only for what exceeds it."""
    plan = planned(planned_redo_ratio=0.04)

    assert plan.redo_ratio == 0.04
    assert plan.goodput_ratio == pytest.approx(0.9)


def test_unproductive_time_without_a_breakdown_says_so() -> None:
    """No cause is made up."""
    run = Factors(
        tokens=4e12,
        flop_per_token=81.9e9,
        peak_flop_per_s=989e12,
        mfu_ratio=0.35,
        overhead_ratio=0.2,
        gpus=1024,
    )
    causes = {p.name: p.cause for p in variance(planned(), run).parts}

    assert causes["goodput"] == "other unproductive time, not broken down"
    assert causes["tail"] == "no stall"


@pytest.mark.parametrize("name", ["tokens", "flop_per_token", "peak_flop_per_s", "mfu_ratio", "gpus"])
def test_a_factor_of_zero_is_refused(name: str) -> None:
    """It would divide."""
    values = {
        "tokens": 1.0, "flop_per_token": 1.0, "peak_flop_per_s": 1.0, "mfu_ratio": 1.0, "gpus": 1.0,
        name: 0.0,
    }  # fmt: skip
    with pytest.raises(InvalidValue, match=f"{name} = 0"):
        Factors(**values)  # type: ignore[arg-type]


SIDE = st.builds(
    Factors,
    tokens=st.floats(1e9, 1e14),
    flop_per_token=st.floats(1e9, 1e13),
    peak_flop_per_s=st.floats(1e14, 3e15),
    mfu_ratio=st.floats(0.01, 1),
    redo_ratio=st.floats(0, 3),
    tail_ratio=st.floats(0, 3),
    overhead_ratio=st.floats(0, 3),
    gpus=st.floats(1, 200_000),
    availability_ratio=st.floats(0.05, 1),
)


@given(plan=SIDE, run=SIDE)
def test_the_parts_sum_to_the_total_exactly(plan: Factors, run: Factors) -> None:
    """In integers: no residue, whatever the sides; and the total is the difference."""
    v = variance(plan, run)

    assert [p.name for p in v.parts] == list(FACTORS)
    assert sum(p.gpu_us for p in v.parts) == v.gpu_us
    assert sum(p.wall_us for p in v.parts) == v.wall_us
    scale = max(plan.gpu_hours, run.gpu_hours)
    assert v.gpu_hours == pytest.approx(run.gpu_hours - plan.gpu_hours, abs=1e-9 * scale + 1e-6)
    assert v.days == pytest.approx(run.days - plan.days, abs=1e-9 * max(plan.days, run.days) + 1e-6)


@given(plan=SIDE, run=SIDE)
def test_swapping_the_sides_turns_every_sign(plan: Factors, run: Factors) -> None:
    """Nothing depends on which side is called first, to rounding."""
    there, back = variance(plan, run), variance(run, plan)
    scale = max(abs(p.gpu_us) for p in (*there.parts, *back.parts))
    for a, b in zip(there.parts, back.parts, strict=True):
        assert abs(a.gpu_us + b.gpu_us) <= 2 + 1e-9 * scale


@given(plan=SIDE, run=SIDE)
def test_a_worse_factor_never_counts_as_a_gain(plan: Factors, run: Factors) -> None:
    """Each part's sign is its own factor's."""
    parts = {p.name: p for p in variance(plan, run).parts}
    if run.mfu_ratio < plan.mfu_ratio:
        assert parts["mfu"].gpu_us >= 0
    if run.tokens < plan.tokens:
        assert parts["tokens"].wall_us <= 0
    if run.redo_ratio > plan.redo_ratio:
        assert parts["redo"].gpu_us >= 0
    if run.gpus > plan.gpus:
        assert parts["gpus"].wall_us <= 0
