"""Conversion by delivered FLOP, the chain in one row, prices over time, energy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plans import worked
from tracker.core.chain import chain, chain_of_plan, chain_of_reference
from tracker.core.convert import convert
from tracker.core.energy import carbon_t, energy_mwh
from tracker.core.errors import InvalidValue
from tracker.core.hardware import AmbiguousGpu, peak_flop_per_s
from tracker.core.plan import Plan
from tracker.core.prices import EXCLUDED, Prices, PriceStep, cost_per_trillion_tokens
from tracker.core.references import find_run

JANUARY = datetime(2026, 1, 1, tzinfo=UTC)


def test_an_a100_hour_is_two_fifths_of_an_h100_hour() -> None:
    """136 and 341 delivered: about 2.5, not 3.2."""
    c = convert(1e6, from_tflop_per_s=136, to_tflop_per_s=341)

    assert round(c.ratio, 1) == 2.5
    assert c.gpu_hours == pytest.approx(1e6 * 136 / 341)
    assert c.spec_sheet_ratio is None, "unknown devices have no spec sheet"


def test_by_device_names_the_references_supply_the_rates() -> None:
    """With the spec-sheet ratio beside it, and both runs' caveats."""
    c = convert(1e6, from_gpu="a100", to_gpu="h100-sxm")
    assert c.from_run is not None
    assert c.to_run is not None
    assert c.spec_sheet_ratio is not None

    assert round(c.ratio, 2) == 2.52
    assert round(c.spec_sheet_ratio, 2) == 3.17
    assert (c.from_run.key, c.to_run.key) == ("llama-2-70b", "llama-3.1-405b")
    assert any("measure both devices" in text for text in c.caveats)


def test_a_rate_given_wins_over_the_reference() -> None:
    """Measured on one's own layout."""
    c = convert(1e6, from_gpu="a100", to_gpu="h100-sxm", to_tflop_per_s=400)

    assert c.to_tflop_per_s == 400
    assert c.to_run is None
    assert c.spec_sheet_ratio is not None


def test_peaks_given_as_rates_are_recognised() -> None:
    """312 and 989 are dense peaks: that is the spec-sheet conversion."""
    c = convert(1e6, from_tflop_per_s=312, to_tflop_per_s=989)

    assert c.is_spec_sheet
    assert "spec-sheet ratio" in c.caveats[-1]
    assert not convert(1e6, from_tflop_per_s=136, to_tflop_per_s=341).is_spec_sheet


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        pytest.param({"from_tflop_per_s": 136, "to_tflop_per_s": 1200, "to_gpu": "h100-sxm"}, ["above_peak"],
                     id="above-its-devices-peak"),
        pytest.param({"from_tflop_per_s": 136, "to_tflop_per_s": 34100}, ["above_peak"], id="above-any"),
        pytest.param({"from_tflop_per_s": 136, "to_tflop_per_s": 900, "to_gpu": "h100-sxm"}, [], id="below"),
        pytest.param({"from_tflop_per_s": 312, "to_tflop_per_s": 989}, ["spec_sheet_conversion"], id="peaks"),
        pytest.param({"from_gpu": "a100", "to_gpu": "h100-sxm"}, [], id="by-references"),
    ],
)  # fmt: skip
def test_rates_that_no_device_delivers_are_warned_of(values: dict[str, object], codes: list[str]) -> None:
    """By the device named, else by every device on file."""
    assert [w.code for w in convert(1e6, **values).warnings] == codes  # type: ignore[arg-type]


def test_one_device_on_both_sides_has_its_caveat_once() -> None:
    """The same run on both: nothing differs."""
    c = convert(1e6, from_gpu="a100", to_gpu="a100")

    assert c.ratio == 1
    assert len(c.caveats) == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param(
            {"from_tflop_per_s": 136}, "to_tflops = None: expected delivered TFLOP/s", id="one-side"
        ),
        pytest.param(
            {"from_tflop_per_s": 136e12, "to_tflop_per_s": 341e12}, "looks like FLOP/s: write 136", id="flop"
        ),
        pytest.param({"from_tflop_per_s": 0, "to_tflop_per_s": 1}, "from_tflops = 0", id="zero"),
        pytest.param({"from_gpu": "a100", "to_gpu": "b300"}, "a device with a published run", id="no-run"),
    ],
)
def test_what_a_conversion_refuses(values: dict[str, object], message: str) -> None:
    """With what to give."""
    with pytest.raises(InvalidValue, match=message):
        convert(1e6, **values)  # type: ignore[arg-type]


def test_a_short_device_name_is_asked_back() -> None:
    """H100 may be three boards."""
    with pytest.raises(AmbiguousGpu):
        convert(1e6, from_gpu="a100", to_gpu="h100")


@given(h=st.floats(0, 1e9), a=st.floats(1, 3000), b=st.floats(1, 3000))
def test_there_and_back_again(h: float, a: float, b: float) -> None:
    """Conversion keeps delivered FLOP."""
    there = convert(h, from_tflop_per_s=a, to_tflop_per_s=b)
    back = convert(there.gpu_hours, from_tflop_per_s=b, to_tflop_per_s=a)

    assert there.gpu_hours * b == pytest.approx(h * a)
    assert back.gpu_hours == pytest.approx(h)


def test_the_405b_run_drew_21_6_gwh_in_its_gpus() -> None:
    """30.84M hours at 700 W; the facility's overhead multiplies it."""
    gpus = energy_mwh(gpu_hours=30.84e6, power_w=700)

    assert round(gpus / 1e3, 1) == 21.6
    assert energy_mwh(gpu_hours=30.84e6, power_w=700, facility_overhead=1.2) == pytest.approx(1.2 * gpus)
    assert carbon_t(mwh=gpus, kg_per_mwh=400) == pytest.approx(8635.2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param({"power_w": 700_000}, "expected the power of one GPU in W", id="kw-or-a-whole-cluster"),
        pytest.param({"power_w": 0}, "power_w = 0: expected a power above 0, in W", id="no-power"),
        pytest.param({"gpu_hours": -1}, "gpu_hours = -1", id="negative-hours"),
        pytest.param({"facility_overhead": 0.5}, "expected a ratio from 1 to 5", id="overhead-below-one"),
        pytest.param({"facility_overhead": 130}, "not a percentage", id="overhead-in-per-cent"),
    ],
)
def test_what_energy_refuses(values: dict[str, float], message: str) -> None:
    """Slips of units, mostly."""
    with pytest.raises(InvalidValue, match=message):
        energy_mwh(**{"gpu_hours": 1.0, "power_w": 700.0, **values})


def test_the_plans_chain_is_its_main_stage() -> None:
    """Its two laws hold, its rate compares with a run's."""
    c = chain_of_plan(worked(gpu_hour_price=2.0, peak=peak_flop_per_s("h100-sxm")))
    assert c.mfu_allocated_ratio is not None
    assert c.gpu_hours_per_trillion_tokens is not None

    assert (c.mfu_ratio, c.goodput_ratio) == (pytest.approx(0.35), pytest.approx(0.90))
    assert c.mfu_allocated_ratio == pytest.approx(0.35 * 0.90)
    assert c.gpu_hours_per_trillion_tokens * c.mfu_allocated_ratio == pytest.approx(
        1e12 * 81.9e9 / (3600 * 989e12)
    )
    assert c.cost_per_trillion_tokens == pytest.approx(2 * c.gpu_hours_per_trillion_tokens)
    assert c.energy_mwh == pytest.approx((c.billed_gpu_hours or 0) * 700 / 1e6)


def test_a_plan_whose_price_changes_has_its_mean_price_in_the_chain() -> None:
    """By the plan's own time; without dates no figure is honest."""
    steps = (
        PriceStep(gpu_hour_price=2.0),
        PriceStep(gpu_hour_price=4.0, since=JANUARY + timedelta(days=6)),
    )
    made = worked(prices=steps, start=JANUARY, later_stages=0.0)
    c, days = chain_of_plan(made), made.days()
    assert days is not None
    assert c.gpu_hours_per_trillion_tokens is not None

    mean = (2.0 * 6 + 4.0 * (days - 6)) / days
    assert c.cost_per_trillion_tokens == pytest.approx(mean * c.gpu_hours_per_trillion_tokens)
    assert "mean price" in c.caveat
    assert chain_of_plan(worked(prices=steps)).cost_per_trillion_tokens is None


def test_a_published_run_shows_no_link_that_nobody_published() -> None:
    """Billed hours and MFU(allocated) are known; the split into MFU and goodput is not."""
    c = chain_of_reference(find_run("llama-3.1-70b"))

    assert (c.mfu_ratio, c.step_gpu_hours, c.goodput_ratio) == (None, None, None)
    assert c.mfu_allocated_ratio == pytest.approx(0.253, abs=5e-4)
    assert c.cost_per_trillion_tokens is None
    assert chain_of_reference(find_run("deepseek-v3")).cost_per_trillion_tokens == pytest.approx(360_000)


def test_a_rate_alone_makes_a_chain_of_one_trillion_tokens() -> None:
    """DeepSeek-V2 publishes 172.8K an 1e12 tokens and no total."""
    c = chain_of_reference(find_run("deepseek-v2"))

    assert c.gpu_hours_per_trillion_tokens == 172.8e3
    assert "only the rate is published" in c.caveat


def test_a_runs_chain_follows_from_its_ledger() -> None:
    """Step and billed hours in, both ratios out."""
    c = chain(
        "run",
        tokens=1e12,
        flop_per_token=6e10,
        peak_flop_per_s=989e12,
        step_gpu_hours=45_000,
        billed_gpu_hours=50_000,
    )

    assert c.goodput_ratio == pytest.approx(0.9)
    assert c.mfu_ratio == pytest.approx(6e22 / (989e12 * 3600 * 45_000))
    assert c.gpu_hours_per_trillion_tokens == 50_000


def test_an_empty_plans_chain_says_what_is_missing() -> None:
    """Nothing is filled in."""
    c = chain_of_plan(Plan())

    assert c.model_flop is None
    assert c.caveat == "Unknown: active_params, tokens, peak"


def test_a_flat_price() -> None:
    """2,788K hours at 2 are 5.576 million."""
    assert Prices.flat(2.0).cost(2_788_000) == 5_576_000
    assert cost_per_trillion_tokens(gpu_hours_per_trillion_tokens=180_000, gpu_hour_price=2) == 360_000
    assert "research and ablations" in EXCLUDED


def test_a_price_holds_from_its_date_on() -> None:
    """And the first before any date."""
    prices = Prices(
        steps=(
            PriceStep(gpu_hour_price=2.0),
            PriceStep(gpu_hour_price=3.0, since=JANUARY + timedelta(days=10)),
        )
    )

    assert prices.at(JANUARY) == 2.0
    assert prices.at(JANUARY + timedelta(days=10)) == 3.0
    assert prices.cost(100, start=JANUARY, end=JANUARY + timedelta(days=20)) == pytest.approx(250)
    assert prices.cost(100, start=JANUARY + timedelta(days=11), end=JANUARY + timedelta(days=12)) == 300
    assert prices.cost(100) is None, "without a span no figure is honest"


def test_spans_cost_what_each_of_them_costs() -> None:
    """As a ledger's attempts do."""
    prices = Prices(steps=(PriceStep(gpu_hour_price=2.0), PriceStep(gpu_hour_price=3.0, since=JANUARY)))
    before = (JANUARY - timedelta(hours=2), JANUARY - timedelta(hours=1), 10.0)
    after = (JANUARY, JANUARY + timedelta(hours=1), 10.0)

    assert prices.cost_of_spans([before, after]) == 50.0


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        pytest.param((), "expected at least one price", id="none"),
        pytest.param(
            (PriceStep(gpu_hour_price=1.0), PriceStep(gpu_hour_price=2.0)),
            "a date on every price but the first",
            id="undated",
        ),
        pytest.param(
            (
                PriceStep(gpu_hour_price=1.0, since=JANUARY),
                PriceStep(gpu_hour_price=2.0, since=JANUARY),
            ),
            "dates in ascending order",
            id="same-day",
        ),
    ],
)
def test_what_a_price_list_refuses(steps: tuple[PriceStep, ...], message: str) -> None:
    """Gaps and contradictions."""
    with pytest.raises(InvalidValue, match=message):
        Prices(steps=steps)


def test_a_naive_price_date_is_refused() -> None:
    """A date needs its zone."""
    with pytest.raises(InvalidValue, match=r"price\.from"):
        PriceStep(gpu_hour_price=1.0, since=datetime(2026, 1, 1))  # noqa: DTZ001


@given(
    hours=st.floats(0, 1e7),
    cuts=st.lists(st.integers(1, 999), min_size=1, max_size=5, unique=True),
    prices=st.lists(st.floats(0, 10), min_size=6, max_size=6),
)
def test_cost_is_additive_in_time(hours: float, cuts: list[int], prices: list[float]) -> None:
    """Two halves cost what the whole does, wherever prices change."""
    steps = [PriceStep(gpu_hour_price=prices[0])]
    steps += [
        PriceStep(gpu_hour_price=p, since=JANUARY + timedelta(hours=h))
        for p, h in zip(prices[1:], sorted(cuts), strict=False)
    ]
    listed = Prices(steps=tuple(steps))
    end, middle = JANUARY + timedelta(hours=1000), JANUARY + timedelta(hours=400)
    whole = listed.cost(hours, start=JANUARY, end=end)
    first = listed.cost(hours * 0.4, start=JANUARY, end=middle)
    second = listed.cost(hours * 0.6, start=middle, end=end)
    assert whole is not None
    assert first is not None
    assert second is not None

    assert first + second == pytest.approx(whole, rel=1e-9, abs=1e-6)
