"""The plan check: each classic mistake by its figures, and silence where there is none."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.plans import JANUARY, worked
from tracker.core.hardware import UnknownGpu, peak_flop_per_s, peak_given
from tracker.core.plan import PlanFailures, PlanStage
from tracker.core.plan_check import CODES, PlannedConversion, PlanWarning, check_plan, with_measured

FAILURES = PlanFailures(per_day=8, restart_min=10, checkpoint_interval_min=30, checkpoint_stall_min=0.5)


def codes(plan_values: dict[str, Any], **check: Any) -> list[str]:
    """The codes a plan brings."""
    return [w.code for w in check_plan(worked(**plan_values), **check)]


def only(plan_values: dict[str, Any], **check: Any) -> PlanWarning:
    """The single warning a plan brings."""
    (warning,) = check_plan(worked(**plan_values), **check)
    return warning


def test_the_worked_example_has_no_mistake() -> None:
    """Silence."""
    assert codes({}) == []


def test_every_code_of_the_contract_exists() -> None:
    """Eight by name, two more beside them."""
    assert CODES[:8] == (
        "sparse_peak", "total_params", "mfu_assumed_high", "goodput_unreachable", "precision_mismatch",
        "stages_left_out", "spec_sheet_conversion", "after_reservation",
    )  # fmt: skip


def test_a_sparse_peak() -> None:
    """1,979 with BF16, the default, is the H100's figure with sparsity: a factor of two."""
    warning = only({"peak": peak_given(1979)})

    assert warning.code == "sparse_peak"
    assert warning.factor == pytest.approx(2.0, abs=0.002)
    assert "hours come out 2.0 times too low. Use 989" in warning.message


@pytest.mark.parametrize(
    ("tflops", "precision", "gpu"),
    [
        pytest.param(624, "bf16", None, id="a100"),
        pytest.param(4500, "bf16", "b200", id="b200"),
        pytest.param(3958, "fp8", "h100-sxm", id="h100-fp8"),
        pytest.param(1513, "bf16", None, id="h100-pcie"),
    ],
)
def test_other_sparse_peaks(tflops: float, precision: str, gpu: str | None) -> None:
    """By the table, at their precision."""
    assert "sparse_peak" in codes({"peak": peak_given(tflops, precision)}, gpu=gpu)


@pytest.mark.parametrize(
    ("tflops", "precision"),
    [
        pytest.param(1979, "fp8", id="1979-is-dense-in-fp8"),
        pytest.param(989, "bf16", id="h100-dense"),
        pytest.param(2250, "bf16", id="b200-dense"),
        pytest.param(1234, "bf16", id="no-table-figure"),
    ],
)
def test_no_sparse_peak(tflops: float, precision: str) -> None:
    """Dense figures pass."""
    assert "sparse_peak" not in codes({"peak": peak_given(tflops, precision)})


def test_the_total_of_a_known_mixture() -> None:
    """671e9 is DeepSeek-V3's total; 37e9 are active: 18 times."""
    warning = only({"active_params": 671e9})

    assert warning.code == "total_params"
    assert "Hours come out 18.1 times too high. Give the active parameters" in warning.message
    assert warning.factor == pytest.approx(37 / 671)


@pytest.mark.parametrize(
    ("total", "names", "factor"),
    [
        pytest.param(235e9, ["Qwen3 235B-A22B"], 22 / 235, id="qwen3-to-its-digits"),
        pytest.param(236e9, ["DeepSeek-V2"], 21 / 236, id="deepseek-v2-to-its-digits"),
        pytest.param(235.5e9, ["Qwen3 235B-A22B", "DeepSeek-V2"], None, id="between-both"),
        pytest.param(1.2e12, ["Ultra-128E"], 58.36 / 1200, id="a-total-of-the-b300-table"),
        pytest.param(40.86e9, ["Small-64E"], 4.29 / 40.86, id="another-of-it"),
    ],
)
def test_a_total_names_every_model_it_may_be(total: float, names: list[str], factor: float | None) -> None:
    """The one that fits to its digits, else all that are near, and then no factor."""
    warning = only({"active_params": total})

    assert warning.code == "total_params"
    known = ("Qwen3 235B-A22B", "DeepSeek-V2", "Ultra-128E", "Small-64E")
    assert [name for name in known if name in warning.message] == names
    assert warning.factor == (None if factor is None else pytest.approx(factor))
    with_experts = only({"active_params": total, "experts": 128, "experts_per_token": 8})
    assert with_experts.factor == warning.factor


def test_a_mixture_that_states_its_experts() -> None:
    """Active equal to total with 64 experts is the total."""
    moe = {"active_params": 40e9, "total_params": 40e9, "experts": 64, "experts_per_token": 4}

    assert codes(moe) == ["total_params"]
    assert codes({**moe, "active_params": 4e9}) == []


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"active_params": 37e9, "total_params": 671e9}, id="active-given-beside-total"),
        pytest.param({"active_params": 70e9, "total_params": 70e9}, id="dense"),
        pytest.param({"active_params": 12.9e9}, id="dense-13b-near-some-mixture"),
        pytest.param({"active_params": 671e9, "total_params": 2e12}, id="a-larger-total-says-active"),
        pytest.param({"active_params": 235e9, "total_params": 235e9}, id="declared-dense"),
        pytest.param({"active_params": 70e9}, id="dense-70b-near-a-study"),
    ],
)
def test_no_total_params(values: dict[str, Any]) -> None:
    """A dense model, or active parameters said as such."""
    assert "total_params" not in codes(values)


def test_a_high_mfu_must_be_measured() -> None:
    """Above 0.5 it is believed only with a measurement."""
    assert codes({"mfu": 0.5}) == []
    assert codes({"mfu": 0.55}) == ["mfu_assumed_high"]
    assert codes({"mfu": 0.55, "sources": {"mfu": "Measured on 512 GPUs, 3 March"}}) == []
    assert codes({"mfu": 0.55, "sources": {"mfu": "not measured yet"}}) == ["mfu_assumed_high"]
    for text in ("unmeasured", "to be measured", "will be measured in May", "not yet measured",
                 "once measured, we shall see", "hasn't been measured", "never measured"):  # fmt: skip
        assert codes({"mfu": 0.55, "sources": {"mfu": text}}) == ["mfu_assumed_high"], text
    for text in ("measured", "MFU measured on 64 GPUs", "To be sure, we measured it twice",
                 "not yet at scale: measured on 8 GPUs"):  # fmt: skip
        assert codes({"mfu": 0.55, "sources": {"mfu": text}}) == [], text


def test_a_high_mfu_of_one_stage_counts_too() -> None:
    """Stages may carry their own."""
    stages = (PlanStage(name="a", tokens=3e12, mfu=0.6), PlanStage(name="b", tokens=1e12))

    assert codes({"stages": stages}) == ["mfu_assumed_high"]


def test_a_goodput_that_failures_do_not_allow() -> None:
    """0.90 against a model of 0.844; the message says what would reach further."""
    warning = only({"failures": FAILURES})

    assert warning.code == "goodput_unreachable"
    assert "above the 0.844" in warning.message
    assert "every 13.4 min would reach 0.870" in warning.message
    assert warning.factor == pytest.approx(0.9 / 0.8444, abs=1e-3)
    assert codes({"failures": FAILURES, "goodput": 0.84}) == []


def test_a_bf16_peak_for_an_fp8_run() -> None:
    """989 for an FP8 run, unless a note says why."""
    warning = only({"peak": peak_given(989, "fp8")})

    assert warning.code == "precision_mismatch"
    assert "its dense fp8 peak is 1,979" in warning.message
    assert codes({"peak": peak_given(989), "sources": {}}, precision="fp8") == ["precision_mismatch"]
    assert codes({"peak": peak_given(989, "fp8"), "sources": {"peak": "BF16 as a reference"}}) == []
    assert codes({"peak": peak_flop_per_s("h100-sxm", "fp8"), "mfu": 0.25}) == []
    assert codes({"peak": peak_given(989, "bf16")}, precision="mxfp8") == ["precision_mismatch"]


@pytest.mark.parametrize(
    ("values", "factor"),
    [
        pytest.param({}, 1.0, id="the-default-mfu-is-a-bf16-figure"),
        pytest.param({"mfu": 0.4}, None, id="of-a-given-one-nobody-knows"),
    ],
)
def test_a_bf16_peak_is_never_said_to_double_the_hours(values: dict[str, Any], factor: float | None) -> None:
    """The hours stand with a BF16-based MFU and halve with an FP8-based one."""
    warning = only({"peak": peak_given(989, "fp8"), **values}, gpu="h100-sxm")

    assert warning.factor == factor
    assert "989 TFLOP/s is the" in warning.message
    assert "bf16 peak" in warning.message
    assert "fp16" not in warning.message
    assert "with one against fp8 they are 0.5 of the plan's" in warning.message


@pytest.mark.parametrize("mfu", [0.35, 0.45])
def test_a_bf16_sized_mfu_on_an_fp8_peak(mfu: float) -> None:
    """0.35 of 1,979 is 0.70 of the BF16 peak: hours are half of what they will be."""
    warning = only({"peak": peak_flop_per_s("h100-sxm", "fp8"), "mfu": mfu})

    assert warning.code == "precision_mismatch"
    assert warning.factor is None, "which peak a given MFU is against, nobody knows"
    assert only({"peak": peak_flop_per_s("h100-sxm", "fp8")}).factor == pytest.approx(1979 / 989)
    assert "hours are 2.0 times too low" in warning.message
    assert "benchmarks reach 0.13 to 0.53 of the fp8 peak" in warning.message
    assert f"{mfu * 1979 / 989:.2f} of its bf16 peak" in warning.message
    measured = {"mfu": "measured on 64 GPUs, against the fp8 peak"}
    assert codes({"peak": peak_flop_per_s("h100-sxm", "fp8"), "mfu": mfu, "sources": measured}) == []
    assert codes({"peak": peak_given(1979, "fp8"), "mfu": 0.2}) == []


def test_a_device_whose_fp8_is_no_faster_has_no_mismatch() -> None:
    """A TPU v5p runs FP8 at the BF16 rate."""
    assert codes({"peak": peak_given(459, "fp8")}, gpu="tpu-v5p") == []


def test_stages_and_research_left_out() -> None:
    """Each alone, and both at once with both factors."""
    assert "later stages are left out" in only({"later_stages": 0}).message.lower()
    assert "research is left out" in only({"rnd_multiplier": 1.0}).message.lower()
    both = only({"later_stages": 0, "rnd_multiplier": 1.0})
    assert both.code == "stages_left_out"
    assert both.factor == pytest.approx(1.08 * 1.5)


def test_listed_stages_are_not_left_out() -> None:
    """Two stages suffice; one is a run without later stages."""
    two = (PlanStage(name="a", tokens=3e12), PlanStage(name="b", tokens=1e12))

    assert codes({"stages": two}) == []
    assert codes({"stages": (PlanStage(name="a", tokens=4e12),)}) == ["stages_left_out"]


def test_a_conversion_by_spec_sheets() -> None:
    """3.17 is the ratio of peaks; 2.5 is what runs deliver."""
    by_sheet = PlannedConversion(from_gpu="a100", to_gpu="h100-sxm", ratio=3.17)
    measured = PlannedConversion(from_gpu="a100", to_gpu="h100-sxm", ratio=2.5)

    assert codes({}, conversion=by_sheet) == ["spec_sheet_conversion"]
    assert only({}, conversion=by_sheet).factor == pytest.approx(3.17 / (341.36 / 135.66), rel=1e-3)
    assert "Hours are likely 1.26 times too low" in only({}, conversion=by_sheet).message
    assert codes({}, conversion=measured) == []
    assert codes({"sources": {"mfu": "A100 MFU scaled by the spec-sheet ratio"}}) == ["spec_sheet_conversion"]
    assert codes({"sources": {"peak": "datasheet"}}) == [], "a peak comes from a datasheet"


def test_the_other_way_round_hours_come_out_too_high() -> None:
    """0.79: an H100-hour makes fewer A100-hours than the sheets say."""
    back = only({}, conversion=PlannedConversion(from_gpu="h100-sxm", to_gpu="a100", ratio=312 / 989))

    assert back.factor == pytest.approx((312 / 989) / (135.66 / 341.36), rel=1e-3)
    assert "Hours are likely 1.26 times too high" in back.message


def test_without_both_runs_on_file_no_factor_is_made_up() -> None:
    """No run on B300 is on file; a source's words name no pair; one device is no conversion."""
    to_b300 = PlannedConversion(from_gpu="h100-sxm", to_gpu="b300", ratio=2250 / 989)

    assert only({}, conversion=to_b300).factor is None
    assert only({"sources": {"mfu": "A100 MFU scaled by the spec-sheet ratio"}}).factor is None
    assert codes({}, conversion=PlannedConversion(from_gpu="a100", to_gpu="a100-sxm", ratio=1.0)) == []


def test_a_conversion_from_an_unknown_device_is_told() -> None:
    """Not a traceback."""
    with pytest.raises(UnknownGpu):
        codes({}, conversion=PlannedConversion(from_gpu="a101", to_gpu="h100-sxm", ratio=3))


def test_a_finish_after_the_reservation() -> None:
    """12.84 days do not fit into ten."""
    end = datetime(2026, 1, 15, 8, tzinfo=UTC)
    warning = only({"start": JANUARY}, reservation_end=end)

    assert warning.code == "after_reservation"
    assert "2.8 days after the reservation ends" in warning.message
    assert codes({"start": JANUARY}, reservation_end=datetime(2026, 1, 20, tzinfo=UTC)) == []
    assert codes({}, reservation_end=end) == [], "without a start there is no finish to compare"


def test_a_finish_after_the_deadline_and_a_cost_above_the_budget() -> None:
    """Both are said."""
    values = {
        "start": JANUARY,
        "deadline": datetime(2026, 1, 10, tzinfo=UTC),
        "gpu_hour_price": 2.0,
        "budget": 500_000.0,
    }

    assert codes(values) == ["after_deadline", "over_budget"]
    late, dear = check_plan(worked(**values))
    assert "after the deadline (" in late.message
    assert dear.factor is None, "money is no ratio of hours"
    assert dear.money_factor == pytest.approx(315_470 * 2 / 500_000, rel=1e-5)


def test_failures_that_leave_no_time_are_said_so() -> None:
    """No interval reaches above 0: none is recommended."""
    hopeless = PlanFailures(per_day=100, restart_min=60, checkpoint_interval_min=10, checkpoint_stall_min=0.5)
    warning = only({"failures": hopeless})

    assert "would reach" not in warning.message
    assert "No checkpoint interval makes that work" in warning.message
    assert "without bound" in warning.message


def test_several_mistakes_are_all_named_in_order() -> None:
    """None hides another."""
    values = {
        "peak": peak_given(1979), "active_params": 671e9, "mfu": 0.6, "failures": FAILURES,
        "later_stages": 0, "start": JANUARY,
    }  # fmt: skip

    assert codes(values, reservation_end=JANUARY) == [
        "sparse_peak", "total_params", "mfu_assumed_high", "goodput_unreachable", "stages_left_out",
        "after_reservation",
    ]  # fmt: skip


def test_every_warning_says_a_reason_a_fix_and_fits_a_sentence() -> None:
    """Messages end with a full stop and hold more than the code."""
    values = {"peak": peak_given(1979), "mfu": 0.6, "failures": FAILURES, "rnd_multiplier": 1}
    for warning in check_plan(worked(**values)):
        assert warning.code in CODES
        assert warning.message.endswith(".")
        assert len(warning.message) > 80


def test_a_short_measured_run_fills_the_plan() -> None:
    """MFU and goodput with where they came from; the rest stays."""
    plan = with_measured(worked(mfu=0.6), mfu=0.41, goodput=None, source="64 GPUs, 2 h")

    assert (plan.mfu, plan.goodput) == (0.41, 0.9)
    assert plan.sources == {"mfu": "measured: 64 GPUs, 2 h"}
    assert "mfu" not in plan.assumed
    assert "goodput" in plan.assumed
