"""The goodput model and the checkpoint interval that serves best."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.core.errors import InvalidValue
from tracker.core.goodput_model import (
    MIN_PER_DAY,
    checkpoint_advice,
    daly_min,
    expected_ettr,
    exponential_goodput,
    goodput,
    goodput_losses,
    young_min,
)


@pytest.mark.parametrize(
    ("f", "r", "c", "s", "expected"),
    [
        pytest.param(8, 10, 30, 0.5, 0.844, id="eight-a-day"),
        pytest.param(8, 5, 10, 0.2, 0.924, id="faster-restart-and-saves"),
        pytest.param(0, 10, 30, 0.5, 0.983, id="no-failure-leaves-the-stall"),
        pytest.param(0, 10, 30, 0.0, 1.0, id="nothing-is-lost"),
        pytest.param(100, 60, 10, 0.0, 0.0, id="never-below-zero"),
    ],
)
def test_goodput_by_the_model(f: float, r: float, c: float, s: float, expected: float) -> None:
    """At the printed precision."""
    got = goodput(failures_per_day=f, restart_min=r, checkpoint_interval_min=c, checkpoint_stall_min=s)

    assert round(got, 3) == expected


def test_the_losses_sum_to_what_goodput_lacks() -> None:
    """Restart, redo, saves."""
    losses = goodput_losses(
        failures_per_day=8, restart_min=10, checkpoint_interval_min=30, checkpoint_stall_min=0.5
    )
    assert losses.redo_ratio is not None
    assert losses.checkpoint_ratio is not None
    total = losses.restart_ratio + losses.redo_ratio + losses.checkpoint_ratio

    assert 1 - total == pytest.approx(0.844, abs=5e-4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param(
            {"failures_per_day": -1}, "failures_per_day = -1: expected a number of 0 or more", id="f"
        ),
        pytest.param({"restart_min": math.nan}, "restart_min = nan", id="r-nan"),
        pytest.param(
            {"checkpoint_interval_min": 0}, "checkpoint_interval_min = 0: expected minutes above 0", id="c"
        ),
        pytest.param(
            {"checkpoint_stall_min": 31}, "checkpoint_stall_min = 31: expected at most the interval", id="s"
        ),
        pytest.param(
            {"checkpoint_interval_min": 200},
            "checkpoint_interval_min = 200: expected at most the mean time between failures, 180 min "
            "at 8 a day. Most work would be lost before it is saved; the best interval is near 13.4 min",
            id="interval-beyond-the-mtbf",
        ),
    ],
)
def test_bad_inputs_are_told(values: dict[str, float], message: str) -> None:
    """Name, value, what was expected, what to do."""
    inputs = {
        "failures_per_day": 8.0,
        "restart_min": 10.0,
        "checkpoint_interval_min": 30.0,
        "checkpoint_stall_min": 0.5,
    }
    with pytest.raises(InvalidValue, match=message):
        goodput(**{**inputs, **values})


def test_the_best_interval_of_the_model_is_youngs() -> None:
    """sqrt(2 s M) is where the model's derivative is zero; Daly's is a little shorter."""
    advice = checkpoint_advice(
        failures_per_day=8, restart_min=10, checkpoint_stall_min=0.5, checkpoint_interval_min=30
    )

    assert advice.young_min == pytest.approx(math.sqrt(2 * 0.5 * 180))
    assert advice.best_interval_min == pytest.approx(advice.young_min, rel=1e-5)
    assert advice.daly_min == pytest.approx(13.085, abs=5e-4)
    assert advice.best_goodput_ratio == pytest.approx(0.8699, abs=5e-5)
    assert advice.current_goodput_ratio == pytest.approx(0.8444, abs=5e-5)
    assert advice.gain_ratio == pytest.approx(0.8699 / 0.8444 - 1, abs=1e-4)


def test_dalys_interval_is_the_optimum_of_the_exponential_model() -> None:
    """His formula approximates it to a few per mille where the stall is small."""
    advice = checkpoint_advice(failures_per_day=8, restart_min=10, checkpoint_stall_min=0.5)

    assert advice.exponential_best_min == pytest.approx(
        daly_min(mtbf_min=180, checkpoint_stall_min=0.5), rel=2e-3
    )


def test_daly_gives_the_mtbf_for_a_stall_beyond_it() -> None:
    """His second branch."""
    assert daly_min(mtbf_min=10, checkpoint_stall_min=20) == 10


def test_the_gain_is_worth_hours_and_money() -> None:
    """The same steps in fewer hours, at a price."""
    advice = checkpoint_advice(
        failures_per_day=8,
        restart_min=10,
        checkpoint_stall_min=0.5,
        checkpoint_interval_min=30,
        gpu_hours=1e6,
        gpu_hour_price=2.0,
    )
    assert advice.current_goodput_ratio is not None
    assert advice.gpu_hours_saved is not None
    assert advice.best_goodput_ratio is not None

    assert advice.gpu_hours_saved == pytest.approx(
        1e6 * (1 - advice.current_goodput_ratio / advice.best_goodput_ratio)
    )
    assert advice.money_saved == pytest.approx(2 * advice.gpu_hours_saved)


def test_the_advice_is_as_sure_as_the_mtbf() -> None:
    """Its range follows from the ends of the MTBF's interval; an open end stays open."""
    advice = checkpoint_advice(
        failures_per_day=8, restart_min=10, checkpoint_stall_min=0.5, mtbf_range_min=(45.0, None)
    )

    assert advice.best_interval_range_min == (pytest.approx(math.sqrt(45)), None)


def test_without_failures_there_is_nothing_to_save_for() -> None:
    """No optimum; goodput at the limit is 1."""
    advice = checkpoint_advice(failures_per_day=0, restart_min=10, checkpoint_stall_min=0.5)

    assert (advice.best_interval_min, advice.mtbf_min, advice.best_goodput_ratio) == (None, None, 1.0)


def test_no_failure_seen_yet_is_no_rate() -> None:
    """Only the bound follows: no gain, no hours, no money, and the saves' share alone is known."""
    advice = checkpoint_advice(
        failures_per_day=0, restart_min=10, checkpoint_stall_min=0.5, checkpoint_interval_min=30,
        mtbf_range_min=(4806.0, None), gpu_hours=1e6, gpu_hour_price=2.0, is_rate_known=False,
    )  # fmt: skip
    losses = goodput_losses(
        failures_per_day=0, restart_min=10, checkpoint_interval_min=30, checkpoint_stall_min=0.5,
        is_rate_known=False,
    )  # fmt: skip

    assert advice.best_interval_range_min == (pytest.approx(math.sqrt(4806)), None)
    assert (advice.best_interval_min, advice.best_goodput_ratio, advice.current_goodput_ratio) == (None,) * 3
    assert (advice.gain_ratio, advice.gpu_hours_saved, advice.money_saved) == (None,) * 3
    assert (losses.restart_ratio, losses.redo_ratio) == (None, None)
    assert losses.checkpoint_ratio == pytest.approx(0.5 / 30)


@pytest.mark.parametrize(
    ("f", "r", "c"),
    [pytest.param(24, 5, 120, id="interval-beyond-the-mtbf"), pytest.param(96, 20, 10, id="linear-gives-0"),
     pytest.param(96, 20, None, id="no-interval-given")],
)  # fmt: skip
def test_where_the_simple_model_ends_one_model_gives_every_figure(
    f: float, r: float, c: float | None
) -> None:
    """Named; best, current and gain agree with each other."""
    advice = checkpoint_advice(
        failures_per_day=f, restart_min=r, checkpoint_stall_min=1, checkpoint_interval_min=c
    )

    assert advice.model == "exponential"
    assert advice.best_interval_min == advice.exponential_best_min
    assert advice.best_interval_min is not None
    assert advice.best_goodput_ratio is not None
    assert advice.best_goodput_ratio == pytest.approx(
        exponential_goodput(
            mtbf_min=1440 / f, restart_min=r, interval_min=advice.best_interval_min, stall_min=1
        )
    )
    if c is not None:
        assert advice.current_goodput_ratio is not None
        assert advice.gain_ratio == pytest.approx(
            advice.best_goodput_ratio / advice.current_goodput_ratio - 1
        )


def test_saves_that_cost_nothing_have_no_best_interval() -> None:
    """As often as storage allows; only restarts remain."""
    advice = checkpoint_advice(failures_per_day=8, restart_min=9, checkpoint_stall_min=0)

    assert advice.best_interval_min is None
    assert advice.best_goodput_ratio == pytest.approx(0.95)


def test_a_run_whose_interval_exceeds_its_mtbf_still_gets_advice() -> None:
    """The simple model does not reach there; both figures come from the exponential one."""
    advice = checkpoint_advice(
        failures_per_day=24, restart_min=5, checkpoint_stall_min=1, checkpoint_interval_min=120
    )
    assert advice.current_goodput_ratio is not None

    assert 0 < advice.current_goodput_ratio < 0.4
    assert advice.gain_ratio is not None
    assert advice.gain_ratio > 1


@given(f=st.floats(0.01, 50), r=st.floats(0, 20), s=st.floats(1e-3, 5), shift=st.floats(0.2, 5))
def test_no_other_interval_is_better(f: float, r: float, s: float, shift: float) -> None:
    """The advice maximises the model."""
    advice = checkpoint_advice(failures_per_day=f, restart_min=r, checkpoint_stall_min=s)
    assert advice.best_interval_min is not None
    assert advice.best_goodput_ratio is not None
    other = advice.best_interval_min * shift
    if s <= other <= MIN_PER_DAY / f:
        at_other = goodput(
            failures_per_day=f, restart_min=r, checkpoint_interval_min=other, checkpoint_stall_min=s
        )
        assert at_other <= advice.best_goodput_ratio + 1e-12


@given(m=st.floats(1e3, 1e5), r=st.floats(0, 2), c=st.floats(1, 5), s=st.floats(0, 0.05))
def test_the_models_meet_where_failures_are_rare(m: float, r: float, c: float, s: float) -> None:
    """Both agree to second order in (R + C + s)/M and s/C."""
    simple = goodput(
        failures_per_day=MIN_PER_DAY / m, restart_min=r, checkpoint_interval_min=c, checkpoint_stall_min=s
    )
    full = exponential_goodput(mtbf_min=m, restart_min=r, interval_min=c, stall_min=s)
    small = (r + c + s) / m + s / c

    assert full == pytest.approx(simple, abs=2 * small**2 + 1e-9)


def test_youngs_interval_grows_with_the_root_of_both() -> None:
    """Four times the stall, twice the interval."""
    assert young_min(mtbf_min=100, checkpoint_stall_min=4) == pytest.approx(
        2 * young_min(mtbf_min=100, checkpoint_stall_min=1)
    )


def test_metas_estimator_reproduces_a_large_runs_ettr() -> None:
    """About 0.9 for a 1,024-GPU run with hourly checkpoints and 5 min restarts, as they print."""
    ettr = expected_ettr(nodes=128, failures_per_node_day=6.5e-3, restart_min=5, interval_min=60, write_min=5)

    assert ettr == pytest.approx(0.9, abs=0.01)
