"""A plan made from a short measured run: its rates, and where every value is from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.core.run_story import (
    H100,
    MODEL,
    planned,
    settings_of,
    story,
)
from tests.core.story import SEQUENCE, facts, tell
from tracker.core.errors import InvalidValue
from tracker.core.hardware import peak_flop_per_s
from tracker.core.prices import PriceStep
from tracker.core.run_plan import plan_beside_run, plan_from_run, plan_of, trained_precision
from tracker.core.settings import Model, Settings


def test_a_plan_from_a_run_has_its_rates_and_says_so() -> None:
    """Hours per 1e12 tokens are the measured ones; each value says where it is from."""
    ran = story(plan=None)
    got = plan_from_run(ran, {"tokens": 4e12, "later_stages": 0.0})

    assert got.plan.gpu_hours_per_trillion_tokens() == pytest.approx(ran.per_trillion.realised)
    where = {t.name: t.where for t in got.taken}
    assert where["mfu"] == where["goodput"] == "measured"
    assert (where["tokens"], where["later_stages"], where["gpus"]) == ("flag", "flag", "config")
    assert where["rnd_multiplier"] == "default"
    assert got.plan.sources["mfu"].startswith("measured on story, ")
    assert {"mfu", "goodput"}.isdisjoint(got.plan.assumed)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({}, id="an-allowance"),
        pytest.param({"layers": 24, "hidden_size": 2048}, id="exact-attention-from-the-log"),
        pytest.param({"layers": 24}, id="layers-without-a-width"),
    ],
)
def test_the_measured_rate_survives_another_flop_count(said: dict[str, Any]) -> None:
    """MFU is restated for the plan's method: tokens a GPU-second are what was measured."""
    ran = story(plan=None, said=({}, said))
    got = plan_from_run(ran, {"tokens": 4e12})

    assert got.plan.gpu_hours_per_trillion_tokens() == pytest.approx(ran.per_trillion.realised)
    attention = next(t for t in got.taken if t.name == "attention")
    exact = "hidden_size" in said
    assert (attention.value, attention.where) == (
        ("6N+attention_full", "log") if exact else ("6N*(1+a)", "default")
    )


def test_a_flag_wins_over_what_was_measured() -> None:
    """And is called a flag."""
    got = plan_from_run(story(), {"mfu": 0.4, "gpus": 2048})

    assert (float(got.plan.mfu), got.plan.gpus) == (0.4, 2048)
    assert {t.name: t.where for t in got.taken}["mfu"] == "flag"
    assert "mfu" in got.plan.assumed
    assert any("Measured on 8 GPUs, planned on 2,048" in c for c in got.cautions)
    assert any("says little about weeks" in c for c in got.cautions)


def test_another_model_takes_the_ratio_as_it_is() -> None:
    """A pilot of 1B lends its MFU to a plan of 13B."""
    ran = story()
    got = plan_from_run(ran, {"active_params": 13e9})

    assert float(got.plan.mfu) == pytest.approx(ran.mfu.productive_ratio)


def test_a_pilot_without_parameters_is_measured_by_the_plans() -> None:
    """The config may leave them out; a flag gives them."""
    ran = story(plan=None, model=Model(sequence_length=SEQUENCE))
    got = plan_from_run(ran, {"active_params": 1e9, "tokens": 1e12, "attn_overhead": 0.0})

    assert ran.mfu.productive_ratio is None
    assert got.plan.gpu_hours_per_trillion_tokens() == pytest.approx(ran.per_trillion.realised)


def test_a_run_without_a_step_measures_nothing() -> None:
    """Refused, with what is missing."""
    with pytest.raises(InvalidValue, match="no attempt seen yet"):
        plan_from_run(tell(facts(rows=[]), 10, plan=planned()))


def test_flags_replace_values_of_the_config_and_their_sources() -> None:
    """A source speaks of the value that it stood beside."""
    settings = Settings(
        run="r", model=MODEL, hardware=H100,
        plan=planned(mfu=0.3, goodput=0.8, sources={"mfu": "pilot", "goodput": "pilot"}),
    )  # fmt: skip
    got = plan_of(settings, {"mfu": 0.4})

    assert (float(got.mfu), float(got.goodput)) == (0.4, 0.8)
    assert got.sources == {"goodput": "pilot"}
    priced = plan_of(replace(settings, plan=planned(gpu_hour_price=None, prices=(
        PriceStep(gpu_hour_price=1.0),))), {"gpu_hour_price": 2.0})  # fmt: skip
    assert (priced.gpu_hour_price, priced.prices) == (2.0, ())


def test_a_config_without_a_plan_still_has_model_and_hardware() -> None:
    """Peak with its device, so that its power is known."""
    got = plan_of(Settings(run="r", model=MODEL, hardware=H100), {"tokens": 1e12})

    assert got.active_params == 1e9
    assert got.peak == peak_flop_per_s("h100-sxm", "bf16")
    assert got.power_w == 700
    other = plan_of(Settings(run="r", hardware=replace(H100, peak_flop_per_s=800e12)))
    assert other.peak is not None
    assert (other.peak.tflop_per_s, other.peak.gpu) == (800, "h100-sxm")


def test_the_logs_precision_counts_for_the_check() -> None:
    """The config names the reference; the log says what trains."""
    ran = story(said=({}, {"precision": "fp8"}))

    assert trained_precision(ran, settings_of(ran)) == "fp8"
    odd = story(said=({}, {"precision": "mixed-something"}))
    assert trained_precision(odd, settings_of(odd)) == "bf16"


def test_a_plan_without_a_start_begins_with_the_first_attempt() -> None:
    """On its GPUs, where the config says none: so a young config still has a planned finish."""
    bare = planned(start=None, gpus=None)
    ran = story(plan=bare)
    whole = planned().finish_at()

    assert whole is not None
    assert ran.plan_finish_us == round(whole.timestamp() * 1e6)
    assert plan_beside_run(ran).finish_at() == whole
    assert tell(facts(rows=[]), 10, plan=bare).plan_finish_us is None
