"""The plan: the worked example, stages, dates, money, energy, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plans import JANUARY, worked
from tracker.core.errors import InvalidValue
from tracker.core.hardware import peak_flop_per_s
from tracker.core.plan import Plan, PlanFailures, PlanStage
from tracker.core.prices import PriceStep


def test_the_worked_example() -> None:
    """315,470 and 473,205 H100-hours; 12.84 days on 1,024 GPUs."""
    e = worked().estimate()
    assert e is not None
    assert e.days is not None

    assert e.six_n_flop == pytest.approx(3.12e23)
    assert e.model_flop == pytest.approx(3.276e23)
    assert round(e.step_gpu_hours / 1e3) == 263
    assert round(e.final_gpu_hours) == 315470
    assert round(e.programme_gpu_hours) == 473205
    assert round(e.days, 2) == 12.84


def test_the_main_stage_alone_sets_the_rate() -> None:
    """1e12 F / (3600 P m g): later stages and the multiplier do not enter."""
    by_formula = 1e12 * 81.9e9 / (3600 * 989e12 * 0.35 * 0.90)

    assert worked().gpu_hours_per_trillion_tokens() == pytest.approx(by_formula)
    assert worked(later_stages=1.0, rnd_multiplier=9).gpu_hours_per_trillion_tokens() == pytest.approx(
        by_formula
    )
    assert worked(tokens=None).gpu_hours_per_trillion_tokens() == pytest.approx(by_formula)


def test_the_multiplier_enters_programme_hours_only() -> None:
    """Not the run, not its days."""
    one, two = worked(rnd_multiplier=1).estimate(), worked(rnd_multiplier=2).estimate()
    assert one is not None
    assert two is not None

    assert two.programme_gpu_hours == 2 * one.programme_gpu_hours
    assert (two.final_gpu_hours, two.days) == (one.final_gpu_hours, one.days)


def test_what_is_left_out_is_listed_as_assumed() -> None:
    """Five defaults; giving one its source takes it off the list."""
    silent = worked()
    said = worked(mfu=0.35, goodput=0.9, sources={"mfu": "measured on 512 GPUs"})

    assert silent.assumed == ("mfu", "goodput", "attn_overhead", "later_stages", "rnd_multiplier")
    assert all(a.is_default for a in silent.assumptions)
    assert "mfu" not in said.assumed
    assert "goodput" in said.assumed, "given without a source is still assumed"
    given = {a.name: a.is_default for a in said.assumptions}
    assert (given["goodput"], given["later_stages"]) == (False, True)


def test_exact_attention_is_no_assumption() -> None:
    """With layers the allowance is not used and not listed."""
    plan = worked(layers=40, hidden_size=5120, sequence_length=8192)
    flop = plan.flop()
    assert flop is not None

    assert flop.method == "6N+attention_full"
    assert "attn_overhead" not in plan.assumed


def test_layers_without_a_sequence_length_wait_for_the_log() -> None:
    """The log may bring it; until then the allowance counts, and the method says so."""
    flop = worked(layers=40, hidden_size=5120).flop()
    assert flop is not None

    assert flop.method == "6N*(1+a)"


def test_stages_sum_and_each_has_its_own_sequence_and_gpus() -> None:
    """Days add stage by stage; the longest stage sets the rate."""
    plan = worked(
        tokens=None,
        layers=40,
        hidden_size=5120,
        sequence_length=8192,
        stages=(
            PlanStage(name="pre-training", tokens=3.2e12),
            PlanStage(name="extension", tokens=0.6e12, sequence_length=131072, gpus=2048),
            PlanStage(name="annealing", tokens=0.2e12, mfu=0.40),
        ),
    )
    e = plan.estimate()
    assert e is not None

    assert plan.target_tokens == 4e12
    assert e.main.name == "pre-training"
    assert e.stages[1].flop.value > e.stages[0].flop.value
    assert e.stages[2].step_gpu_hours == pytest.approx(e.stages[2].ideal_gpu_hours / 0.40)
    assert e.days == pytest.approx(sum(s.billed_gpu_hours / (s.gpus or 0) / 24 for s in e.stages))
    assert plan.later_fraction == 0, "the list stands: no fraction on top"
    assert "later_stages" not in plan.assumed


def test_a_fraction_said_beside_listed_stages_counts() -> None:
    """Post-training as a fraction on top of a list."""
    stages = (PlanStage(name="a", tokens=3e12), PlanStage(name="b", tokens=1e12))
    bare, with_tail = worked(stages=stages).estimate(), worked(stages=stages, later_stages=0.1).estimate()
    assert bare is not None
    assert with_tail is not None

    assert with_tail.final_gpu_hours == pytest.approx(1.1 * bare.final_gpu_hours)


def test_stages_that_do_not_sum_to_the_target_are_refused() -> None:
    """The message does the sum."""
    with pytest.raises(InvalidValue) as caught:
        worked(stages=(PlanStage(name="a", tokens=3e12), PlanStage(name="b", tokens=0.5e12)))

    message = str(caught.value)
    assert "a 3e+12 + b 5e+11 = 3.5e+12" in message
    assert "expected stages that sum to plan.tokens = 4e+12" in message
    assert "differ by -5e+11 tokens" in message


def test_the_finish_includes_later_stages() -> None:
    """Start plus 12.84 days."""
    finish = worked(start=JANUARY).finish_at()
    assert finish is not None

    assert (finish - JANUARY).total_seconds() / 86_400 == pytest.approx(12.8365, abs=1e-4)


def test_days_on_another_number_of_gpus() -> None:
    """Half the GPUs, twice the days."""
    plan = worked()

    assert plan.days(512) == pytest.approx(2 * (plan.days() or 0))


def test_money_and_energy_of_the_final_run() -> None:
    """At 2 an hour and 700 W, GPUs only; the facility's overhead comes on top."""
    plan = worked(gpu_hour_price=2.0, peak=peak_flop_per_s("h100-sxm"))

    assert plan.cost() == pytest.approx(2 * 315470, rel=1e-6)
    assert plan.energy_mwh() == pytest.approx(315470 * 700 / 1e6, rel=1e-6)
    assert replace(plan, facility_overhead=1.25).energy_mwh() == pytest.approx(
        1.25 * 315470 * 0.0007, rel=1e-6
    )


def test_a_price_that_changes_is_spread_over_the_run() -> None:
    """Half the run at 2, half at 4."""
    plan = worked(start=JANUARY)
    finish = plan.finish_at()
    assert finish is not None
    middle = JANUARY + (finish - JANUARY) / 2
    steps = (PriceStep(gpu_hour_price=2.0), PriceStep(gpu_hour_price=4.0, since=middle))

    assert replace(plan, prices=steps).cost() == pytest.approx(3 * 315470, rel=1e-4)


def test_unknown_is_none_never_zero() -> None:
    """No peak, no hours; no price, no cost; no TDP, no energy; no GPUs, no days."""
    bare = Plan(active_params=13e9, tokens=4e12)

    assert bare.missing == ("peak",)
    assert bare.estimate() is None
    assert (bare.model_flop(), bare.final_gpu_hours(), bare.days(), bare.finish_at()) == (None,) * 4
    plan = worked(gpus=None)
    assert (plan.days(), plan.cost(), plan.energy_mwh()) == (None, None, None)
    assert Plan().gpu_hours_per_trillion_tokens() is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param({"mfu": 35}, "plan.mfu = 35: expected a ratio above 0 and up to 1. It looks like a "
                     "percentage: write 0.35 for 35 %", id="mfu-in-per-cent"),
        pytest.param({"mfu": 1.2}, r"plan.mfu = 1.2: .*write 0.012 for 1.2 %", id="mfu-above-one"),
        pytest.param({"mfu": 0}, "plan.mfu = 0: expected a ratio above 0", id="mfu-zero"),
        pytest.param({"mfu": math.nan}, "plan.mfu = nan", id="mfu-nan"),
        pytest.param({"goodput": 90}, "write 0.9 for 90 %", id="goodput-in-per-cent"),
        pytest.param({"goodput": 101}, r"plan.goodput = 101: expected a ratio .* up to 1$", id="beyond"),
        pytest.param({"tokens": -1}, "plan.tokens = -1: expected a number of tokens above 0", id="tokens"),
        pytest.param({"tokens": 0}, "plan.tokens = 0", id="no-tokens"),
        pytest.param({"tokens": math.inf}, "plan.tokens = inf", id="infinite-tokens"),
        pytest.param({"active_params": True}, "plan.active_params = True", id="a-truth-is-no-number"),
        pytest.param({"gpus": 0}, "plan.gpus = 0: expected a whole number of 1 or more", id="no-gpus"),
        pytest.param({"gpus": 1.5}, "plan.gpus = 1.5", id="broken-gpus"),
        pytest.param({"total_params": 12e9}, "expected at most total_params = 1.2e", id="active-above-total"),
        pytest.param({"attn_overhead": 5}, "plan.attn_overhead = 5: .*write 0.05 for 5 %", id="allowance"),
        pytest.param({"later_stages": -0.1}, "plan.later_stages = -0.1", id="negative-stages"),
        pytest.param({"rnd_multiplier": 0.5}, "plan.rnd_multiplier = 0.5: expected 1 or", id="multiplier"),
        pytest.param({"facility_overhead": 0.9}, "facility_overhead = 0.9: expected a ratio", id="pue"),
        pytest.param({"facility_overhead": 30}, "not a percentage", id="pue-in-per-cent"),
        pytest.param({"budget": 0}, "plan.budget = 0", id="no-budget"),
        pytest.param({"gpu_hour_price": -2}, "plan.gpu_hour_price = -2", id="negative-price"),
        pytest.param({"start": datetime(2026, 1, 5)}, "expected a time with a zone", id="naive-start"),  # noqa: DTZ001
        pytest.param({"layers": 40}, "model.layers = 40: expected hidden_size, or heads", id="layers-alone"),
        pytest.param({"gpu_hour_price": 2, "prices": (PriceStep(gpu_hour_price=1),)}, "not both", id="two"),
    ],
)  # fmt: skip
def test_what_a_plan_refuses(values: dict[str, Any], message: str) -> None:
    """Each with the name, the value, what was expected, and what to do."""
    with pytest.raises(InvalidValue, match=message):
        worked(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param({"tokens": -1}, "plan.stage 'x'.tokens = -1", id="negative-tokens"),
        pytest.param({"tokens": 1e12, "gpus": 0}, "plan.stage 'x'.gpus = 0", id="no-gpus"),
        pytest.param({"tokens": 1e12, "mfu": 40}, "plan.stage 'x'.mfu = 40: .*0.4 for 40 %", id="mfu"),
        pytest.param({"tokens": 1e12, "goodput": 0}, "plan.stage 'x'.goodput = 0", id="goodput"),
        pytest.param(
            {"tokens": 1e12, "sequence_length": 0}, "plan.stage 'x'.sequence_length = 0", id="length"
        ),
    ],
)
def test_what_a_stage_refuses(values: dict[str, Any], message: str) -> None:
    """Named by the stage."""
    with pytest.raises(InvalidValue, match=message):
        PlanStage(name="x", **values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param({"per_day": -1}, "plan.failures.per_day = -1", id="negative-rate"),
        pytest.param(
            {"checkpoint_interval_min": 0}, "plan.failures.checkpoint_interval_min = 0", id="no-interval"
        ),
        pytest.param(
            {"checkpoint_stall_min": 40}, "expected at most checkpoint_interval_min = 30", id="stall"
        ),
        pytest.param(
            {"checkpoint_interval_min": 200}, "at most the mean time between failures, 180 min", id="mtbf"
        ),
    ],
)
def test_what_the_failure_model_refuses(values: dict[str, Any], message: str) -> None:
    """An interval longer than the MTBF is beyond the model."""
    inputs = {"per_day": 8, "restart_min": 10, "checkpoint_interval_min": 30, **values}
    with pytest.raises(InvalidValue, match=message):
        PlanFailures(**inputs)


RATIO = st.floats(0.01, 1.0)


@given(n=st.floats(1e8, 1e13), d=st.floats(1e9, 1e14), m=RATIO, g=RATIO, s=st.floats(0, 2), r=st.floats(1, 5))
def test_the_links_of_the_chain(n: float, d: float, m: float, g: float, s: float, r: float) -> None:
    """ideal = step m; step = billed g; final = billed (1 + s); programme = final r; the rate law."""
    plan = worked(active_params=n, tokens=d, mfu=m, goodput=g, later_stages=s, rnd_multiplier=r)
    e = plan.estimate()
    assert e is not None

    assert e.step_gpu_hours * m == pytest.approx(e.ideal_gpu_hours)
    assert e.billed_gpu_hours * g == pytest.approx(e.step_gpu_hours)
    assert e.billed_gpu_hours * (1 + s) == pytest.approx(e.final_gpu_hours)
    assert e.final_gpu_hours * r == pytest.approx(e.programme_gpu_hours)
    assert e.gpu_hours_per_trillion_tokens * m * g == pytest.approx(
        1e12 * e.main.flop.value / (3600 * 989e12)
    )


@given(parts=st.lists(st.floats(1e9, 1e13), min_size=1, max_size=6))
def test_cutting_a_run_into_equal_stages_changes_no_hours(parts: list[float]) -> None:
    """Stages at one sequence length, MFU and goodput add up to the whole."""
    stages = tuple(PlanStage(name=str(i), tokens=t) for i, t in enumerate(parts))
    cut = worked(tokens=None, stages=stages).estimate()
    whole = worked(tokens=sum(parts), later_stages=0).estimate()
    assert cut is not None
    assert whole is not None

    assert cut.final_gpu_hours == pytest.approx(whole.final_gpu_hours)
    assert cut.days == pytest.approx(whole.days)


def test_a_finish_beyond_the_calendar_is_unknown() -> None:
    """No overflow: a plan of ten thousand years has no date."""
    plan = worked(gpus=1, tokens=1e16, start=JANUARY)

    assert plan.finish_at() is None
