"""MTBF, projections and root causes: the published figures, and real traces beside them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.core.definitions import AttemptFacts, RunFacts, goodput_definitions
from tracker.core.errors import InvalidValue
from tracker.core.failures import (
    PROJECTION_WARNING,
    Mtbf,
    cause_table,
    mtbf,
    outcome_shares,
    project,
)
from tracker.core.poisson import dispersion, normal_count_interval
from tracker.core.references import back_solve, root_cause_table


@pytest.fixture
def llama3() -> Mtbf:
    """The 54-day snapshot."""
    return mtbf(device_hours=54 * 24 * 16384, job_hours=54 * 24, interruptions=419)


def test_the_llama_3_snapshot(llama3: Mtbf) -> None:
    """50,677 device-hours (5.79 years), 3.09 h for the job, 3.789 per 1,000 node-days."""
    assert llama3.device_hours is not None
    assert llama3.device_years is not None
    assert llama3.job_hours is not None
    assert round(llama3.device_hours) == 50677
    assert round(llama3.device_years, 2) == 5.79
    assert round(llama3.job_hours, 2) == 3.09
    assert round(llama3.per_1000_node_days(), 3) == 3.789
    assert round(llama3.per_day) == 8


def test_the_interval_is_exact_and_holds_the_mean(llama3: Mtbf) -> None:
    """90 %: between 46,743 and 55,023 device-hours."""
    low, high = llama3.device_hours_interval
    assert high is not None

    assert (round(low), round(high)) == (46743, 55023)


@pytest.mark.parametrize(("gpus", "hours", "digits"), [(1024, 49.5, 1), (131072, 0.387, 3), (16384, 3.09, 2)])
def test_projected_to_other_sizes(llama3: Mtbf, gpus: int, hours: float, digits: int) -> None:
    """Device MTBF over the devices."""
    got = project(llama3, gpus)
    assert got.hours is not None

    assert round(got.hours, digits) == hours


def test_131072_gpus_would_be_interrupted_62_times_a_day(llama3: Mtbf) -> None:
    """As published."""
    per_day = project(llama3, 131072).per_day
    assert per_day is not None

    assert round(per_day) == 62


def test_a_projection_carries_its_warning() -> None:
    """Measured and projected figures of one cluster differ by 3.7: 7.9 h against 28.8 h."""
    assert "7.9 h" in PROJECTION_WARNING
    assert "28.8 h" in PROJECTION_WARNING
    projected = 24 * 1000 / (128 * 6.5)
    assert projected == pytest.approx(28.8, abs=0.05)


def test_no_failure_gives_a_bound_not_a_mean() -> None:
    """Unknown is None; at 90 % the MTBF is at least a third of the exposure."""
    rate = mtbf(device_hours=3000, job_hours=300, interruptions=0)

    assert rate.device_hours is None
    assert rate.job_hours is None
    assert rate.device_hours_interval == (pytest.approx(3000 / 2.9957, rel=1e-4), None)
    projected = project(rate, 100)
    assert (projected.hours, projected.per_day) == (None, None)
    assert projected.hours_interval[1] is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param(
            {"device_hours": 0}, "device_hours = 0: expected device-hours above 0", id="no-exposure"
        ),
        pytest.param({"job_hours": -1}, "job_hours = -1", id="negative-time"),
        pytest.param(
            {"interruptions": -1}, "interruptions = -1: expected a whole number of 0 or more", id="count"
        ),
        pytest.param(
            {"interruptions": 1.5}, "interruptions = 1.5: expected a whole number", id="broken-count"
        ),
        pytest.param({"dispersion": 0}, "dispersion = 0", id="no-dispersion"),
    ],
)
def test_bad_exposures_are_told(values: dict[str, float], message: str) -> None:
    """Name, value, expectation."""
    with pytest.raises(InvalidValue, match=message):
        mtbf(**{"device_hours": 10.0, "job_hours": 1.0, "interruptions": 1, **values})  # type: ignore[arg-type]


def test_no_gpus_cannot_be_projected_to(llama3: Mtbf) -> None:
    """Zero is refused."""
    with pytest.raises(InvalidValue, match="gpus = 0: expected a whole number of 1 or more"):
        project(llama3, 0)


@given(n=st.integers(0, 5000), gpus=st.integers(1, 100_000), days=st.floats(0.01, 1000))
def test_device_mtbf_is_job_mtbf_times_devices(n: int, gpus: int, days: float) -> None:
    """Also at both ends of the interval."""
    rate = mtbf(device_hours=days * 24 * gpus, job_hours=days * 24, interruptions=n)
    if rate.device_hours is not None and rate.job_hours is not None:
        assert rate.device_hours == pytest.approx(rate.job_hours * gpus)
    assert rate.device_hours_interval[0] == pytest.approx(rate.job_hours_interval[0] * gpus)


def test_shares_are_by_counts_and_the_printed_ones_are_kept() -> None:
    """148 of 419 is 35.3 %, printed as 30.1 %; the GPU share is 64.0 %, stated as 58.7 %."""
    table = root_cause_table()
    by_cause = {row.cause: row for row in table.rows}

    assert sum(row.count for row in table.rows) == table.total == 419
    assert round(by_cause["gpu"].count / table.total, 3) == 0.353
    assert by_cause["gpu"].printed_share == 0.301
    assert round(table.gpu_share, 3) == 0.640
    assert table.stated_gpu_share == 0.587
    printed = sum(row.printed_share for row in table.rows if row.category == "GPU")
    assert round(printed, 3) == 0.587, "the stated share is the sum of the printed ones"


def test_a_runs_causes_stand_beside_the_published_ones() -> None:
    """Own causes first by count, then the published ones that were not seen; all shares by counts."""
    table = cause_table({"network": 3, "gpu_hbm": 1, "out_of_memory": 2, "gpu": 0}, manual=2)

    assert [(r.cause, r.count) for r in table.rows[:4]] == [
        ("network", 3), ("out_of_memory", 2), ("gpu_hbm", 1), ("gpu", 0),
    ]  # fmt: skip
    assert table.rows[1].published_count is None
    assert table.rows[0].share == 0.5
    assert table.rows[0].published_share == pytest.approx(35 / 419)
    assert table.gpu_share == pytest.approx(1 / 6)
    assert table.manual_share == pytest.approx(1 / 3)
    assert table.published.manual == 3


def test_a_run_without_interruptions_has_no_shares() -> None:
    """None, not zero."""
    table = cause_table({})

    assert (table.total, table.gpu_share, table.manual_share) == (0, None, None)
    assert all(row.share is None for row in table.rows)


def test_more_manual_ones_than_there_were_is_refused() -> None:
    """Of three, at most three."""
    with pytest.raises(InvalidValue, match="manual = 4: expected at most the 3 interruptions"):
        cause_table({"gpu": 3}, manual=4)


@pytest.mark.shared
def test_the_published_table_is_the_recorded_one(shared_data: Path) -> None:
    """Counts, printed percentages and categories, row by row."""
    path = shared_data / "llama3_table" / "llama3_405b_interruptions.csv"
    with path.open(encoding="utf-8") as lines:
        recorded = [
            (row["category"], int(row["count_as_printed"]), float(row["percent_as_printed"]))
            for row in csv.DictReader(lines)
        ]

    got = [(r.category, r.count, round(100 * r.printed_share, 1)) for r in root_cause_table().rows]

    assert got == recorded


@pytest.mark.shared
def test_the_infinitehbd_trace(shared_data: Path) -> None:
    """584 faults: fleet MTBF 14.34 h, 4.18 per 1,000 node-days [3.84, 4.52], gaps' variation 1.76."""
    folder = shared_data / "infinitehbd"
    truth = json.loads((folder / "truth.json").read_text())
    trace = json.loads((folder / "fault_trace.json").read_text())
    starts = [e["event_time"] for e in trace if e["event_type"] == "fault_start"]
    days = max(e["event_time"] for e in trace)
    node_days = truth["node_days"]
    rate = mtbf(device_hours=node_days * 24, job_hours=days * 24, interruptions=len(starts))
    spread = dispersion(starts)
    assert spread is not None
    assert rate.job_hours is not None
    interval = normal_count_interval(len(starts))
    assert interval.high is not None

    assert len(starts) == truth["faults"] == 584
    assert round(rate.job_hours, 4) == truth["fleet_mtbf_h"]
    assert round(rate.per_1000_node_days(1), 4) == truth["faults_per_1000_node_days"]
    published = truth["poisson_95ci_faults_per_1000_node_days"]
    assert [round(1000 * v / node_days, 3) for v in (interval.low, interval.high)] == published
    assert round(spread.coefficient_of_variation, 3) == truth["inter_fault_gap_h_cv"]
    assert round(24 * spread.mean, 3) == truth["inter_fault_gap_h_mean"]
    assert spread.is_over_dispersed


@pytest.mark.shared
def test_over_dispersion_widens_the_traces_interval(shared_data: Path) -> None:
    """With the trace's own dispersion the interval is 1.76 times as wide."""
    truth = json.loads((shared_data / "infinitehbd" / "truth.json").read_text())
    hours = truth["node_days"] * 24
    plain = mtbf(device_hours=hours, job_hours=hours, interruptions=584)
    wide = mtbf(device_hours=hours, job_hours=hours, interruptions=584, dispersion=1.756**2)

    def width(rate: Mtbf) -> float:
        low, high = rate.device_hours_interval
        assert high is not None
        return high - low

    assert width(wide) / width(plain) == pytest.approx(1.76, abs=0.03)


@pytest.mark.shared
def test_the_glm_130b_log(shared_data: Path) -> None:
    """11 failures in 58.84 days on 96 nodes; 6N MFU 0.318; goodput 0.900 by nominal step time."""
    truth = json.loads((shared_data / "glm130b" / "truth.json").read_text())
    days = truth["window_days"]
    rate = mtbf(device_hours=days * 24 * 768, job_hours=days * 24, interruptions=truth["failures"])
    assert rate.job_hours is not None
    assert round(rate.job_hours / 24, 3) == truth["mtbf_days_failures"]
    assert round(rate.per_1000_node_days(8), 4) == truth["failures_per_1000_node_days"]

    tokens = truth["steps_at_last_restart"] * truth["tokens_per_step_if_seq_2048"]
    productive_h = truth["steps_at_last_restart"] * truth["step_s"] / 3600 * 768
    solved = back_solve(active_params=130e9, tokens=tokens, gpu_hours=productive_h, peak_tflop_per_s=312)
    assert solved.mfu_ratio is not None
    assert round(solved.mfu_ratio, 4) == truth["mfu_6N"]
    assert tokens == truth["tokens_at_last_restart"]
    assert round(tokens / (productive_h * 3600), 2) == truth["tokens_per_s_gpu"]

    span = truth["first_to_last_days"] * 86_400
    facts = RunFacts(
        attempts=(
            AttemptFacts(start_s=0, end_s=span, gpus=768, productive_gpu_s=0, allocated_gpu_s=span * 768),
        ),
        net_steps=truth["steps_at_last_restart"],
        nominal_step_s=truth["step_s"],
    )
    nominal = {d.name: d.ratio for d in goodput_definitions(facts)}["nominal_step_time"]
    assert nominal == pytest.approx(truth["goodput_first_to_last_restart"], abs=1e-4)


@pytest.mark.shared
def test_the_opt_175b_run(shared_data: Path) -> None:
    """33 of 56 days is 0.589; 4.59M GPU-hours per 1e12 tokens; 6N MFU 0.346 in the step, 0.204 billed."""
    truth = json.loads((shared_data / "opt175b" / "truth.json").read_text())
    wall, ideal = truth["gpu_hours_allocated_wall"], truth["gpu_hours_ideal"]
    billed = back_solve(active_params=175e9, tokens=300e9, gpu_hours=wall, peak_tflop_per_s=312)
    step = back_solve(active_params=175e9, tokens=300e9, gpu_hours=ideal, peak_tflop_per_s=312)
    assert billed.mfu_ratio is not None
    assert step.mfu_ratio is not None

    assert round(33 / 56, 3) == 0.589 == round(truth["goodput_vs_ideal"], 3)
    assert round(billed.gpu_hours_per_trillion_tokens) == truth["gpu_h_per_Ttok_wall"]
    assert round(step.gpu_hours_per_trillion_tokens) == truth["gpu_h_per_Ttok_ideal"]
    assert round(billed.mfu_ratio, 4) == truth["mfu_6N_wall"]
    assert round(step.mfu_ratio, 4) == truth["mfu_6N_ideal"]
    assert billed.mfu_ratio / step.mfu_ratio == pytest.approx(33 / 56)
    hfu = truth["stated_flops"] / (ideal * 3600 * 312e12)
    assert round(hfu, 3) == truth["hfu_ideal_vs_312"]


@pytest.mark.shared
@pytest.mark.parametrize("cluster", ["Seren", "Kalos", "Philly", "Helios"])
def test_the_acme_summary(shared_data: Path, cluster: str) -> None:
    """GPU-time by outcome, from GPU-seconds: failed jobs are many, their GPU-time is little."""
    folder = shared_data / "acme"
    truth = json.loads((folder / "truth.json").read_text())[cluster]
    with (folder / "cluster_summary.csv").open(encoding="utf-8") as lines:
        row = next(r for r in csv.DictReader(lines) if r["id"] == cluster)
    shares = outcome_shares(
        completed_gpu_s=float(row["complete_gpu_time"]),
        cancelled_gpu_s=float(row["cancel_gpu_time"]),
        failed_gpu_s=float(row["fail_gpu_time"]),
    )

    assert round(shares.gpu_hours, 1) == truth["gpu_hours_total"]
    assert round(shares.failed, 4) == truth["fail_share_gpu_time_recalc"]
    assert round(shares.cancelled, 4) == truth["cancel_share_recalc"]
    assert round(shares.completed, 4) == truth["complete_share_recalc"]
    assert shares.completed + shares.cancelled + shares.failed == pytest.approx(1)


@pytest.mark.shared
def test_median_repair_is_far_below_the_mean(shared_data: Path) -> None:
    """Restart times must not be summed up by a mean: 20.4 h against 132.8 h in the trace."""
    folder = shared_data / "infinitehbd"
    truth = json.loads((folder / "truth.json").read_text())
    trace = json.loads((folder / "fault_trace.json").read_text())
    down: dict[str, list[float]] = {}
    hours = []
    for event in trace:
        if event["event_type"] == "fault_start":
            down.setdefault(event["node_id"], []).append(event["event_time"])
        else:
            hours.append(24 * (event["event_time"] - down[event["node_id"]].pop(0)))

    assert sum(hours) / len(hours) == pytest.approx(truth["mttr_h_mean"], abs=0.05)
    assert median(hours) < 0.2 * sum(hours) / len(hours)
