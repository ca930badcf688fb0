"""The framework's claim stands beside ours, and one sentence says why they differ."""

from __future__ import annotations

import pytest

from tests.core.story import EXCLUDES, Log, facts, tell
from tracker.core.records import Flag
from tracker.core.reported import explain

HARDWARE = int(Flag.REPORTED_HARDWARE)


@pytest.mark.parametrize(
    ("claim", "ours", "hardware", "says"),
    [
        pytest.param(
            150e12, 112.5e12, True, "1.33 times ours. That is a hardware rate", id="recompute is said"
        ),
        pytest.param(101e12, 100e12, False, "They agree", id="rounding is no difference"),
        pytest.param(112e12, 100e12, False, "counts attention and logits", id="attention is named"),
        pytest.param(133e12, 100e12, False, "recomputed activations add", id="four thirds is recomputation"),
        pytest.param(210e12, 100e12, False, "check model.active_params", id="a factor of two is a mistake"),
        pytest.param(60e12, 100e12, False, "counts less", id="less than ours"),
        pytest.param(60e12, None, False, "not known", id="ours unknown"),
    ],
)
def test_a_difference_is_explained(claim: float, ours: float | None, hardware: bool, says: str) -> None:
    """By its size and by what the collector knows of the convention."""
    assert says in explain(claim, ours, hardware=hardware, flop_method="6N")


def test_both_figures_stand_side_by_side() -> None:
    """6 x 1e9 x 1,000 tokens a step of 10 s on 8 GPUs is 75 GFLOP/s of each."""
    log = Log().launch(reported_convention="model FLOP")
    log.train([1, 2, 3], 0, flags=EXCLUDES | HARDWARE, reported_flop_per_s=100e9)

    got = tell(facts(log), 30).reported

    assert got.ours_flop_per_s == pytest.approx(75e9)
    assert got.flop_per_s == pytest.approx(100e9)
    assert "1.33 times ours" in got.explained
