"""FLOP per token: each convention by hand, and against 216 measured rows."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.core.errors import InvalidValue
from tracker.core.flop import (
    FORMULAS,
    FlopMethod,
    attention_flop_per_token,
    flop_per_token,
    hardware_flop_per_token,
    megatron_flop_per_token,
    moe_params,
)

MPT = {
    "125m": (768, 12),
    "350m": (1024, 24),
    "760m": (1536, 24),
    "1b": (2048, 24),
    "3b": (2560, 32),
    "7b": (4096, 32),
    "13b": (5120, 40),
    "30b": (7168, 48),
    "70b": (8192, 80),
}
"""Width and layers of the models in the table."""

PEAK = {("a100", False): 312.0, ("h100", False): 989.5, ("h100", True): 1979.0}
"""The peaks its MFU was printed against: FP8 runs against the FP8 peak."""


def test_plain_6n() -> None:
    """Without layers or an allowance."""
    got = flop_per_token(active_params=13e9)

    assert (got.value, got.method, got.six_n) == (78e9, "6N", 78e9)


def test_an_allowance_of_zero_is_plain_6n() -> None:
    """The method never claims an allowance that is not there."""
    assert flop_per_token(active_params=13e9, attn_overhead=0).method == "6N"


def test_6n_with_an_allowance() -> None:
    """13e9 parameters and 5 %."""
    got = flop_per_token(active_params=13e9, attn_overhead=0.05)

    assert (got.value, got.method, got.six_n) == (pytest.approx(81.9e9), "6N*(1+a)", 78e9)


def test_layers_win_over_the_allowance() -> None:
    """Exact attention counts where the model's layers are known."""
    got = flop_per_token(
        active_params=7e9, attn_overhead=0.05, layers=32, hidden_size=4096, sequence_length=2048
    )

    assert got.method == "6N+attention_full"
    assert got.value == 6 * 7e9 + 12 * 32 * 4096 * 2048


def test_the_causal_mask_halves_attention_and_nothing_else() -> None:
    """Half of 12 L H Q T."""
    full = flop_per_token(active_params=7e9, layers=32, hidden_size=4096, sequence_length=8192)
    causal = flop_per_token(active_params=7e9, layers=32, hidden_size=4096, sequence_length=8192, causal=True)

    assert causal.method == "6N+attention_causal"
    assert full.value - causal.value == (full.value - 42e9) / 2


def test_heads_and_their_dimension_may_differ_from_the_width() -> None:
    """H Q counts, not the width, where both are known."""
    term = attention_flop_per_token(layers=2, hidden_size=100, heads=4, head_dim=50, sequence_length=10)

    assert term == 12 * 2 * 200 * 10


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        pytest.param({"layers": 32, "hidden_size": 4096}, "sequence_length beside it", id="no-sequence"),
        pytest.param(
            {"layers": 32, "sequence_length": 8}, "hidden_size, or heads and head_dim", id="no-width"
        ),
        pytest.param({"layers": 0, "hidden_size": 8, "sequence_length": 8}, "layers = 0", id="no-layers"),
    ],
)
def test_layers_need_their_sizes(sizes: dict[str, int], message: str) -> None:
    """A term that cannot be counted is refused, never dropped."""
    with pytest.raises(InvalidValue, match=message):
        flop_per_token(active_params=7e9, **sizes)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_parameters_are_positive_and_finite(value: float) -> None:
    """Anything else is refused."""
    with pytest.raises(InvalidValue, match=r"active_params = .*expected a number of parameters above 0"):
        flop_per_token(active_params=value)


def test_every_method_has_its_formula_and_source() -> None:
    """The four of the contract by name, and the others beside them."""
    assert [m.value for m in FlopMethod][:4] == ["6N", "6N*(1+a)", "6N+attention_full", "6N+attention_causal"]
    assert set(FORMULAS) == set(FlopMethod)


def test_megatrons_count_is_its_own_published_formula() -> None:
    """GPT-3 175B by 72 B s L h^2 (1 + s/6h + V/12Lh)-per-token, full attention, MLP of 4h, not gated."""
    h, layers, s, v = 12288, 96, 2048, 51200
    by_paper = 72 * layers * h * h * (1 + s / (6 * h) + v / (12 * layers * h))

    got = megatron_flop_per_token(
        layers=layers,
        hidden_size=h,
        ffn_hidden_size=4 * h,
        vocab_size=v,
        sequence_length=s,
        heads=96,
        gated=False,
        causal=False,
    )

    assert got == pytest.approx(by_paper, rel=1e-12)


def test_megatrons_count_of_a_mixture_takes_routed_and_shared_experts() -> None:
    """Two layers, one of them a mixture, by hand."""
    got = megatron_flop_per_token(
        layers=2,
        hidden_size=10,
        ffn_hidden_size=40,
        vocab_size=100,
        sequence_length=8,
        heads=2,
        moe_layers=1,
        moe_ffn_hidden_size=20,
        experts_per_token=4,
        shared_ffn_hidden_size=30,
    )
    attention = 2 * (10 * 30 + 100)
    mlp = 3 * 10 * 40 + 3 * 10 * (20 * 4 + 30)

    assert got == 6 * (attention + mlp + 10 * 100) + 6 * 2 * 10 * 8


def test_a_mixture_counts_active_parameters_not_stored_ones() -> None:
    """Routed experts count per token, shared ones always."""
    moe = moe_params(dense_params=1e9, expert_params=1e8, experts=64, experts_per_token=4, shared_experts=1)

    assert (moe.active, moe.total) == (1.5e9, 7.5e9)
    assert moe.activation_ratio == 0.2


def test_more_experts_than_there_are_cannot_be_routed_to() -> None:
    """Top-65 of 64."""
    with pytest.raises(InvalidValue, match="experts_per_token = 65: expected at most experts = 64"):
        moe_params(dense_params=1, expert_params=1, experts=64, experts_per_token=65)


def test_recomputation_is_hfu_never_mfu() -> None:
    """Full recomputation costs a second forward pass: 4/3."""
    assert hardware_flop_per_token(6e10, recomputed_forward_ratio=1.0) == pytest.approx(8e10)
    assert hardware_flop_per_token(6e10, recomputed_forward_ratio=0.0) == 6e10


@given(
    n=st.floats(1e6, 1e13),
    layers=st.integers(1, 200),
    width=st.integers(1, 40_000),
    t=st.integers(1, 200_000),
)
def test_conventions_are_ordered(n: float, layers: int, width: int, t: int) -> None:
    """6N never exceeds causal, causal never full; plain 6N is always beside them."""
    plain = flop_per_token(active_params=n)
    causal = flop_per_token(active_params=n, layers=layers, hidden_size=width, sequence_length=t, causal=True)
    full = flop_per_token(active_params=n, layers=layers, hidden_size=width, sequence_length=t)

    assert plain.value <= causal.value <= full.value
    assert plain.six_n == causal.six_n == full.six_n == plain.value


def _rows(shared_data: Path) -> list[dict[str, str]]:
    with (shared_data / "mfu_tables" / "llm_foundry.csv").open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.shared
def test_every_printed_mfu_follows_from_its_convention(shared_data: Path) -> None:
    """216 measured rows: 6N + full attention with N all parameters, within 0.11 points."""
    rows = _rows(shared_data)
    assert len(rows) == 216
    for row in rows:
        width, layers = MPT[row["Model"]]
        flop = flop_per_token(
            active_params=float(row["NumParams"]),
            layers=layers,
            hidden_size=width,
            sequence_length=int(row["SeqLen (T)"]),
        )
        gpu = row["GPU"].partition("_")[0]
        peak = PEAK[gpu, row["Precision"] == "amp_fp8"]
        mfu = 100 * flop.value * float(row["Throughput (T/s/GPU)"]) / (peak * 1e12)
        assert mfu == pytest.approx(float(row["MFU"]), abs=0.11), row


@pytest.mark.shared
def test_every_printed_hfu_is_mfu_times_four_thirds_or_one(shared_data: Path) -> None:
    """79 rows recompute activations, 137 do not."""
    recomputing = 0
    for row in _rows(shared_data):
        share = 1.0 if row["Activation Checkpointing"] == "True" else 0.0
        recomputing += int(share)
        hfu = hardware_flop_per_token(float(row["MFU"]), recomputed_forward_ratio=share)
        assert hfu == pytest.approx(float(row["HFU"]), abs=0.02), row
    assert recomputing == 79


@pytest.mark.shared
def test_6n_alone_is_badly_wrong_at_long_context(shared_data: Path) -> None:
    """The 7B model's attention share: 2 % at 512 tokens, 7.5 % at 2,048, 71 % at 65,536."""
    shares = {}
    for row in _rows(shared_data):
        if row["Model"] == "7b":
            t = int(row["SeqLen (T)"])
            flop = flop_per_token(
                active_params=float(row["NumParams"]), layers=32, hidden_size=4096, sequence_length=t
            )
            shares[t] = 1 - flop.six_n / flop.value

    assert shares[512] == pytest.approx(0.02, abs=0.005)
    assert shares[2048] == pytest.approx(0.075, abs=0.002)
    assert shares[65536] == pytest.approx(0.71, abs=0.005)
