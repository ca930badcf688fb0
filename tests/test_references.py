"""Published figures: back-solved as printed, reconciled, each with mark, source and caveat."""

from __future__ import annotations

import math

import pytest

from tracker.core.errors import InvalidValue
from tracker.core.reference_rows import MARKS
from tracker.core.references import (
    UnknownReference,
    back_solve,
    back_solve_run,
    delivered_by,
    differences,
    failure_statistics,
    find_run,
    operating_points,
    published_runs,
    reconciliation,
    root_cause_table,
    timings,
    together,
)

TABLE_30 = """
Tiny-64E     1.59  12.91   16   8  1/1 bf16  no  903 40.1 12.3
Small-64E    4.29  40.86  128  24  8/1 bf16  no  841 37.4 10.5
Medium-64E   7.37  70.22  128  16  8/2 bf16  no  853 37.9 10.5
Medium-96E   7.38 103.75  128  24  8/2 bf16  no  855 38.0 7.11
Medium-128E  7.38 137.27  128  24  8/4 bf16  no  843 37.5 5.38
Large-128E  15.14 295.99  512  32  8/4 bf16  no  768 34.1 5.12
Ultra-128E  58.36 1200    512  64  8/8 mxfp8 yes 858 38.1 4.86
Ultra-256E  58.41 2380    512  64 32/8 mxfp8 yes 689 30.6 2.45
"""


@pytest.mark.parametrize(
    ("key", "tflop_per_s", "share"),
    [
        pytest.param("llama-3.1-405b", 341, 0.345, id="405b"),
        pytest.param("llama-3.1-70b", 250, 0.253, id="70b"),
        pytest.param("llama-3.1-8b", 137, 0.139, id="8b"),
        pytest.param("deepseek-v3", 343, None, id="deepseek-v3-pre-training"),
        pytest.param("llama-2-70b", 136, 0.435, id="llama-2-on-a100"),
    ],
)
def test_back_solved_delivered_throughput(key: str, tflop_per_s: float, share: float | None) -> None:
    """TFLOP/s a GPU-hour and its share of the dense BF16 peak, as printed."""
    solved = back_solve_run(find_run(key))
    assert solved is not None
    assert solved.mfu_ratio is not None

    assert round(solved.delivered_tflop_per_s) == tflop_per_s
    if share is not None:
        assert round(solved.mfu_ratio, 3) == share


def test_the_five_runs_come_first_as_published() -> None:
    """Hours and tokens exactly as the cards and the report have them."""
    rows = [(r.key, r.gpu_hours, r.tokens) for r in published_runs()[:5]]

    assert rows == [
        ("llama-2-70b", 1_720_320, 2e12), ("llama-3.1-8b", 1.46e6, 15e12), ("llama-3.1-70b", 7.0e6, 15e12),
        ("llama-3.1-405b", 30.84e6, 15.6e12), ("deepseek-v3", 2.664e6, 14.8e12),
    ]  # fmt: skip
    llama = [h for key, h, _ in rows if key.startswith("llama-3.1") and h is not None]
    assert round(sum(llama) / 1e6, 1) == 39.3


def test_deepseek_v3_as_published() -> None:
    """180K an 1e12 tokens (3.7 days on 2,048); 2,788K hours with later stages are 5.576 million dollars."""
    run = find_run("DeepSeek-V3 (pre-training)")
    solved = back_solve_run(run)
    assert solved is not None
    assert run.gpu_hour_price is not None
    assert run.gpus is not None

    assert round(solved.gpu_hours_per_trillion_tokens) == 180_000
    assert round(180_000 / run.gpus / 24, 1) == 3.7
    assert (2664 + 119 + 5) * 1000 * run.gpu_hour_price == 5.576e6
    assert (run.active_params, run.total_params, run.precision) == (37e9, 671e9, "fp8")
    assert "Excludes research and ablations" in run.caveat
    assert "not a utilisation" in run.caveat


def test_the_405b_chain_reconciles() -> None:
    """3.8e25 at 400 TFLOP/s is 26.4M step-hours, over 0.9 is 29.3M; published 30.84M."""
    r = reconciliation()

    assert round(r.step_gpu_hours / 1e6, 1) == 26.4
    assert round(r.billed_gpu_hours / 1e6, 1) == 29.3
    assert r.published_gpu_hours == 30.84e6
    assert 0 < r.unexplained_ratio < 0.06


def test_the_operating_points_as_printed() -> None:
    """Eight rows of the B300 table; MFU follows from the rate over 2,250."""
    points = {p.name: p for p in operating_points()}
    for line in TABLE_30.split("\n"):
        if not line:
            continue
        name, active, total, gpus, batch, layout, precision, recompute, rate, mfu, ratio = line.split()
        p = points[name]
        assert p.active_params == pytest.approx(float(active) * 1e9)
        assert p.total_params == pytest.approx(float(total) * 1e9)
        assert (p.gpu, p.gpus, p.global_batch_mi_tokens) == ("b300", int(gpus), int(batch))
        assert (f"{p.ep}/{p.pp}", p.precision, p.recompute) == (layout, precision, recompute)
        assert (p.sequence_length, p.peak_tflop_per_s, p.tflop_per_s) == (8192, 2250, float(rate))
        assert p.mfu is not None
        assert p.activation_ratio is not None
        assert round(100 * p.mfu, 1) == float(mfu) == round(100 * float(rate) / 2250, 1)
        assert float(f"{100 * p.activation_ratio:.3g}") == float(ratio)
        assert p.routing is not None
        assert "random" in p.routing


def test_mxfp8_rows_are_references_not_utilisations() -> None:
    """Their ratio is against another precision's peak, and the row says so."""
    marked = {p.name for p in operating_points() if p.is_reference_only}

    assert marked == {"Ultra-128E", "Ultra-256E"}
    ultra = next(p for p in operating_points() if p.name == "Ultra-256E")
    assert "Best of nine steps, not stable" in ultra.caveat


def test_every_row_has_a_mark_a_source_and_a_caveat() -> None:
    """Primary, second-hand or derived: said on each."""
    for row in (*published_runs(), *operating_points(), *failure_statistics()):
        assert row.mark in MARKS, row.name
        assert row.source.title, row.name
        assert row.caveat, row.name
    for timing in timings():
        assert timing.mark in MARKS
        assert timing.source.title


def test_a_derived_row_says_how() -> None:
    """Its caveat holds the product."""
    for run in published_runs():
        if run.mark == "derived":
            assert " x " in run.caveat or " x " in run.counts or "chip" in run.caveat.lower(), run.key


def test_keys_are_unique() -> None:
    """A name asks for one row."""
    keys = [run.key for run in published_runs()]

    assert len(set(keys)) == len(keys)
    assert len({p.name for p in operating_points()}) == len(operating_points())


def test_runs_whose_figures_do_not_allow_it_are_not_back_solved() -> None:
    """Distilled students, a rate without hours, a device that may be half a module."""
    unsolved = {r.key for r in published_runs() if back_solve_run(r) is None}

    assert {"llama-3.2-1b", "deepseek-v2", "openeurollm-2b", "nemotron-4-340b"} <= unsolved


def test_published_figures_that_disagree_both_stand() -> None:
    """SmolLM3's blog and playbook; the two shares of GPU-caused interruptions."""
    hours = {r.key: r.gpu_hours for r in published_runs() if r.key.startswith("smollm3")}
    table = root_cause_table()

    assert hours == {"smollm3-3b-playbook": 276480, "smollm3-3b-blog": 221184}
    assert (round(table.gpu_share, 2), table.stated_gpu_share) == (0.64, 0.587)
    assert "Counts decide" in table.caveat


def test_measured_and_projected_failure_figures_are_kept_apart() -> None:
    """Meta's 7.9 h is measured; 1.8 h and 0.23 h are projected."""
    kinds = {f.job_mtbf_hours: f.kind for f in failure_statistics() if f.key.startswith("meta")}

    assert (kinds[7.9], kinds[1.8], kinds[0.23]) == ("measured", "projected", "projected")


def test_the_reference_of_a_device_is_the_one_the_conversion_names() -> None:
    """A100: Llama 2 70B; H100: Llama 3.1 405B."""
    assert delivered_by("a100")[0].key == "llama-2-70b"
    assert delivered_by("NVIDIA H100 80GB HBM3")[0].key == "llama-3.1-405b"


def test_a_device_without_a_run_is_told_with_those_that_have_one() -> None:
    """No rate is made up for it."""
    with pytest.raises(
        InvalidValue, match=r"gpu = 'b300': expected a device with a published run on file .*h800"
    ):
        delivered_by("b300")


def test_an_unknown_run_is_told_with_the_nearest() -> None:
    """By key or name."""
    with pytest.raises(UnknownReference, match=r"did you mean 'llama-2-70b'\?"):
        find_run("llama-2-70")


@pytest.mark.parametrize("field", ["active_params", "tokens", "gpu_hours"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_back_solving_refuses_what_is_not_positive(field: str, value: float) -> None:
    """By its name."""
    values = {"active_params": 1e9, "tokens": 1e12, "gpu_hours": 1e3, field: value}
    with pytest.raises(InvalidValue, match=field):
        back_solve(**values)


def test_differences_are_said_and_unknown_is_one() -> None:
    """Likes may be compared; a part that one side does not know is no agreement."""
    mine = {"gpu": "h100-sxm", "precision": "bf16", "sequence_length": 8192}

    assert differences(run=mine, reference=mine, names=("gpu", "precision", "sequence_length")) == ()
    assert differences(run=mine, reference={"gpu": "b300"}, names=("gpu", "precision", "routing")) == (
        "gpu: h100-sxm here, b300 there",
        "precision: bf16 here, unknown there",
        "routing: unknown on both sides",
    )


def test_the_sums_that_were_published_are_values() -> None:
    """39.3M hours of three models; 2,664K + 119K + 5K = 2,788K, 5.576 million dollars."""
    (llama,) = together()
    v3 = find_run("deepseek-v3")

    assert llama.gpu_hours == 39.3e6
    assert sum(find_run(key).gpu_hours or 0 for key in llama.runs) == pytest.approx(39.3e6)
    assert v3.stage_gpu_hours == {"pre-training": 2.664e6, "context extension": 119e3, "post-training": 5e3}
    assert sum((v3.stage_gpu_hours or {}).values()) == v3.total_gpu_hours == 2.788e6
    assert v3.total_cost == pytest.approx((v3.total_gpu_hours or 0) * (v3.gpu_hour_price or 0)) == 5.576e6
