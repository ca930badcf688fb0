"""The hardware table: exact names, dense peaks, sources, and the traps it recognises."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.core.errors import InvalidValue, TrackerError
from tracker.core.hardware import (
    AmbiguousGpu,
    UnknownGpu,
    UnknownPrecision,
    accelerators,
    canonical_precision,
    dense_matches,
    lookup,
    peak_flop_per_s,
    peak_given,
    sparse_matches,
    spec_sheet_ratio,
)


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        pytest.param("NVIDIA H100 80GB HBM3", "h100-sxm", id="nvidia-smi-and-torch"),
        pytest.param("nvidia_h100_80gb_hbm3", "h100-sxm", id="slurm-autodetected-gres"),
        pytest.param("NVIDIA H100 PCIe", "h100-pcie", id="the-pcie-board-is-another-row"),
        pytest.param("NVIDIA A100-SXM4-80GB", "a100-sxm", id="a100-as-torch-prints-it"),
        pytest.param("a100", "a100-sxm", id="short-name-with-one-peak"),
        pytest.param("NVIDIA H20", "h20", id="h20-is-not-h200"),
        pytest.param("NVIDIA H200", "h200-sxm", id="h200-is-not-h20"),
        pytest.param("NVIDIA GB200", "gb200", id="per-gpu-of-the-superchip"),
        pytest.param("AMD Instinct MI250X", "mi250x-gcd", id="logs-count-dies"),
        pytest.param("AMD Instinct MI300X", "mi300x", id="mi300x"),
        pytest.param("TPU v5 lite", "tpu-v5e", id="jax-device-kind"),
        pytest.param("trn2", "trainium2", id="instance-name"),
        pytest.param("  H100-SXM ", "h100-sxm", id="case-and-blanks-do-not-matter"),
    ],
)
def test_a_device_is_found_by_the_name_logs_print(printed: str, name: str) -> None:
    """Exact aliases, whatever the case and the separators."""
    assert lookup(printed).name == name


@pytest.mark.parametrize(
    ("gpu", "precision", "tflop_per_s"),
    [
        pytest.param("a100", "bf16", 312, id="a100"),
        pytest.param("h100-sxm", "bf16", 989, id="h100"),
        pytest.param("h100-sxm", "fp8", 1979, id="h100-fp8-is-dense"),
        pytest.param("h100-pcie", "bf16", 756, id="h100-pcie"),
        pytest.param("h100-nvl", "bf16", 835, id="h100-nvl"),
        pytest.param("h200", "bf16", 989, id="h200"),
        pytest.param("h800", "bf16", 989, id="h800"),
        pytest.param("h20", "bf16", 148, id="h20"),
        pytest.param("b200", "bf16", 2250, id="b200-uses-the-datasheet"),
        pytest.param("gb200", "bf16", 2500, id="gb200-uses-the-datasheet"),
        pytest.param("b300", "bf16", 2250, id="b300"),
        pytest.param("gb300", "bf16", 2500, id="gb300"),
        pytest.param("mi250x", "bf16", 383, id="mi250x-module"),
        pytest.param("mi250x-gcd", "bf16", 191.5, id="mi250x-die"),
        pytest.param("mi300x", "bf16", 1300, id="mi300x"),
        pytest.param("mi325x", "bf16", 1300, id="mi325x"),
        pytest.param("mi355x", "bf16", 2500, id="mi355x"),
        pytest.param("tpu-v4", "bf16", 275, id="tpu-v4"),
        pytest.param("tpu-v5e", "bf16", 197, id="tpu-v5e"),
        pytest.param("tpu-v5p", "bf16", 459, id="tpu-v5p"),
        pytest.param("tpu-v6e", "bf16", 918, id="tpu-v6e"),
        pytest.param("tpu-v7x", "bf16", 2307, id="tpu-v7x"),
        pytest.param("trainium2", "bf16", 667, id="trainium2"),
        pytest.param("gaudi2", "bf16", 432, id="gaudi2"),
        pytest.param("gaudi3", "bf16", 1677, id="gaudi3-as-shipped"),
    ],
)
def test_the_dense_peak_is_the_published_one(gpu: str, precision: str, tflop_per_s: float) -> None:
    """Peaks as listed, dense."""
    assert peak_flop_per_s(gpu, precision).tflop_per_s == tflop_per_s


@pytest.mark.parametrize(
    ("gpu", "other"),
    [
        pytest.param("b200", 2382, id="b200-boost-clock"),
        pytest.param("gb200", 2565, id="gb200-boost-clock"),
        pytest.param("gaudi3", 1835, id="gaudi3-planned-clock"),
        pytest.param("mi355x", 2300, id="mi355x-earlier-edition"),
        pytest.param("h800", 990, id="h800-rounded-up"),
    ],
)
def test_where_sources_disagree_both_stand(gpu: str, other: float) -> None:
    """The figure not used is kept with its source."""
    alternatives = peak_flop_per_s(gpu).alternatives

    assert other in [value / 1e12 for value, _ in alternatives]
    assert all(source.title for _, source in alternatives)


def test_every_value_names_its_source_and_the_day_it_was_read() -> None:
    """A value without a source stays out of the table."""
    for row in accelerators():
        figures = [*row.peaks.values(), *row.sparse.values()]
        figures += [f for f in (row.tdp_w, row.memory_gb) if f is not None]
        for figure in figures:
            assert figure.source.title, row.name
            assert figure.source.read == "2026-11-30", row.name
            assert figure.value > 0, row.name


def test_a_sparse_peak_is_never_a_dense_one() -> None:
    """No row's sparse figure is near its own dense figure (B300's FP4 comes closest, at 1.37)."""
    for row in accelerators():
        for precision, peak in row.sparse.items():
            assert peak.value > 1.3 * row.peaks[precision].value, row.name


def test_the_power_and_memory_of_an_h100() -> None:
    """700 W is what the Llama 3.1 card states."""
    row = lookup("h100-sxm")

    assert row.tdp_w is not None
    assert row.tdp_w.value == 700
    assert row.memory_gb is not None
    assert row.memory_gb.value == 80


def test_an_unknown_device_is_an_error_that_helps() -> None:
    """Never somebody else's chip: the message lists the nearest and the known, and what to set."""
    with pytest.raises(UnknownGpu) as caught:
        lookup("h100-smx")

    message = str(caught.value)
    assert "no accelerator 'h100-smx' on file" in message
    assert "Nearest: h100-sxm" in message
    assert "peak_tflops in [hardware]" in message
    assert isinstance(caught.value, TrackerError)


def test_a_short_name_with_several_peaks_is_asked_back() -> None:
    """H100 may be 989, 756 or 835."""
    with pytest.raises(AmbiguousGpu, match=r"'h100' may be h100-sxm .*h100-pcie .*h100-nvl"):
        lookup("h100")


def test_a_precision_the_device_lacks_is_an_error_with_the_known_ones() -> None:
    """An A100 has no FP8."""
    with pytest.raises(
        UnknownPrecision, match=r"a100-sxm at precision 'fp8' \(known for it: bf16, fp16"
    ) as told:
        peak_flop_per_s("a100", "fp8")
    assert "did you mean" not in str(told.value).lower()  # it is spelt right, and there is no such peak
    with pytest.raises(UnknownPrecision, match="Did you mean 'fp8'"):
        peak_flop_per_s("h100-sxm", "fp9")


def test_a_misspelt_precision_is_an_error_with_the_nearest() -> None:
    """bf61 is bf16."""
    with pytest.raises(InvalidValue, match=r"precision = 'bf61': expected one of .*did you mean 'bf16'\?"):
        canonical_precision("bf61")


@pytest.mark.parametrize(
    ("written", "name"),
    [("BF16", "bf16"), ("bfloat16", "bf16"), ("MXFP8", "fp8"), ("nvfp4", "fp4"), ("amp_fp8", "fp8")],
)
def test_precisions_have_the_names_configs_write(written: str, name: str) -> None:
    """MXFP8 runs on the FP8 units."""
    assert canonical_precision(written) == name


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_a_peak_is_a_positive_finite_number(value: float) -> None:
    """Anything else is refused with what to give."""
    with pytest.raises(InvalidValue, match="expected a peak above 0, in TFLOP/s"):
        peak_given(value)


def test_a_peak_in_flop_per_s_is_told() -> None:
    """989e12 is 989."""
    with pytest.raises(InvalidValue, match=r"It looks like FLOP/s: write 989 for 9\.89e"):
        peak_given(989e12)


def test_a_given_peak_says_that_it_was_given() -> None:
    """Its source is the user."""
    peak = peak_given(1000, "MXFP8")

    assert (peak.value, peak.precision, peak.source.mark, peak.gpu) == (1e15, "fp8", "given", None)


def test_the_sparse_peak_is_recognised_only_at_its_precision() -> None:
    """1,979 is the sparse BF16 figure and the dense FP8 one."""
    assert [r.name for r in sparse_matches(1979, "bf16")] == ["h100-sxm", "h200-sxm", "gh200", "h800"]
    assert sparse_matches(1979, "fp8") == ()
    assert [r.name for r in sparse_matches(3958, "fp8")] == ["h100-sxm", "h200-sxm"]


def test_a_dense_figure_of_another_device_is_no_sparse_one() -> None:
    """312 is the A100's dense BF16, though also its sparse TF32."""
    assert sparse_matches(312, "bf16") == ()
    assert next((p.gpu, p.precision) for p in dense_matches(1979)) == ("h100-sxm", "fp8")


def test_the_spec_sheet_ratio_of_a100_and_h100_is_about_3_2() -> None:
    """989 over 312."""
    assert spec_sheet_ratio("a100", "h100-sxm") == pytest.approx(3.17, abs=0.005)


@given(st.text(max_size=40))
def test_any_name_is_a_row_or_a_sentence(name: str) -> None:
    """No text makes a traceback."""
    try:
        told = lookup(name).title
    except (UnknownGpu, AmbiguousGpu) as error:
        told = str(error)

    assert told
