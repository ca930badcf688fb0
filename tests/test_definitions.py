"""One run's goodput by many definitions: hand-worked, and the known timelines of the peers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.core.definitions import AttemptFacts, RunFacts, goodput_definitions
from tracker.core.errors import InvalidValue


def ratios(run: RunFacts) -> dict[str, float | None]:
    """Goodput by name."""
    return {d.name: d.ratio for d in goodput_definitions(run)}


def attempt(start: float, end: float, productive: float, gpus: int = 1, **more: float) -> AttemptFacts:
    """An attempt whose GPU-times are given in wall seconds."""
    return AttemptFacts(
        start_s=start, end_s=end, gpus=gpus, productive_gpu_s=productive * gpus,
        allocated_gpu_s=(end - start) * gpus, **{k: v * gpus for k, v in more.items()},
    )  # fmt: skip


def test_redo_and_downtime_of_one_restart() -> None:
    """100 steps, restart at 50 after 600 s, to 149, 10 s a step: 1,500 of 2,600 s, 57.69 %."""
    run = RunFacts(attempts=(attempt(0, 1000, 500, lost_gpu_s=500), attempt(1600, 2600, 1000)))
    got = ratios(run)

    assert got["wall_clock"] == pytest.approx(0.5769, abs=5e-5)
    assert got["allocated"] == pytest.approx(1500 / 2000)
    assert got["without_rescheduling"] == pytest.approx(1500 / 2000)
    assert got["redo_ignored"] == pytest.approx(1.0)


def test_a_clean_preemption_still_costs_its_downtime() -> None:
    """2,000 s of steps around 3,600 s without an allocation: 35.71 % of wall clock."""
    run = RunFacts(attempts=(attempt(0, 1000, 1000), attempt(4600, 5600, 1000)))

    assert ratios(run)["wall_clock"] == pytest.approx(0.3571, abs=5e-5)
    assert ratios(run)["allocated"] == 1.0


def test_half_speed_for_half_the_run_shows_only_in_nominal_time() -> None:
    """Slow steps are productive by every definition but the one with a nominal step time."""
    run = RunFacts(attempts=(attempt(0, 1500, 1500),), net_steps=100, nominal_step_s=10.0)
    got = ratios(run)

    assert got["allocated"] == 1.0
    assert got["nominal_step_time"] == pytest.approx(0.6667, abs=5e-5)
    assert got["nominal_allocated"] == pytest.approx(0.6667, abs=5e-5)


def test_weighting_by_gpus_matters_when_their_number_changes() -> None:
    """512 GPUs at 90 %, then 1,024 at 60 %."""
    run = RunFacts(attempts=(attempt(0, 100, 90, 512), attempt(100, 200, 60, 1024)))
    got = ratios(run)

    assert got["unweighted"] == pytest.approx(0.75)
    assert got["allocated"] == pytest.approx((90 * 512 + 60 * 1024) / (100 * 1536))
    assert got["nominal_allocated"] is None, "one step time for two sizes has no meaning"


def test_work_at_risk_counts_once_it_is_checkpointed() -> None:
    """Up to one interval less than ours, unknown where nobody knows what is durable."""
    base = (attempt(0, 100, 80),)

    assert ratios(RunFacts(attempts=base, at_risk_gpu_s=20))["checkpointed_only"] == pytest.approx(0.6)
    assert ratios(RunFacts(attempts=base))["checkpointed_only"] is None


def test_saves_and_evaluation_count_for_some() -> None:
    """70 productive, 10 saving, 5 evaluating, of 100."""
    run = RunFacts(attempts=(attempt(0, 100, 70, checkpoint_gpu_s=10, evaluation_gpu_s=5),))
    got = ratios(run)

    assert got["checkpoints_productive"] == pytest.approx(0.80)
    assert got["evaluation_productive"] == pytest.approx(0.75)


def test_pending_time_is_in_no_denominator() -> None:
    """What nobody knows yet neither helps nor hurts."""
    run = RunFacts(attempts=(attempt(0, 120, 90, pending_gpu_s=20),))
    got = ratios(run)

    assert got["allocated"] == pytest.approx(0.9)
    assert got["wall_clock"] == pytest.approx(0.9)


def test_a_billed_reservation_counts_its_idle_time() -> None:
    """Idle GPU-time outside attempts is allocated too."""
    run = RunFacts(attempts=(attempt(0, 100, 90),), idle_gpu_s=100)

    assert ratios(run)["allocated"] == pytest.approx(0.45)


def test_overlapping_attempts_hold_the_clock_once() -> None:
    """Two at the same time are one stretch of wall clock."""
    run = RunFacts(attempts=(attempt(0, 100, 50), attempt(50, 150, 50)))

    assert ratios(run)["without_rescheduling"] == pytest.approx(100 / 150)


def test_no_attempt_has_no_goodput() -> None:
    """None by every definition."""
    assert set(ratios(RunFacts(attempts=())).values()) == {None}


def test_every_definition_says_what_it_counts_and_who_uses_it() -> None:
    """So that a figure can be set beside a paper."""
    for d in goodput_definitions(RunFacts(attempts=(attempt(0, 1, 1),))):
        assert d.numerator
        assert d.denominator
        assert d.used_by


def test_an_attempt_that_ends_before_it_starts_is_refused() -> None:
    """Also one without GPUs."""
    with pytest.raises(InvalidValue, match=r"end_s = -1: expected at least start_s = 0"):
        attempt(0, -1, 0)
    with pytest.raises(InvalidValue, match="gpus = 0"):
        AttemptFacts(start_s=0, end_s=1, gpus=0, productive_gpu_s=0, allocated_gpu_s=0)


@given(
    walls=st.lists(st.tuples(st.floats(1, 1e5), st.floats(0, 1e4), st.floats(0, 1)), min_size=1, max_size=8),
    gpus=st.integers(1, 1000),
)
def test_definitions_are_ordered(walls: list[tuple[float, float, float]], gpus: int) -> None:
    """Gaps only lower wall clock; ignoring redo only raises; all lie in 0..1 for one size."""
    attempts, clock = [], 0.0
    for wall, gap, share in walls:
        attempts.append(attempt(clock, clock + wall, wall * share, gpus, lost_gpu_s=wall * (1 - share) / 2))
        clock += wall + gap
    got = ratios(RunFacts(attempts=tuple(attempts)))
    wall, held, ours = got["wall_clock"], got["without_rescheduling"], got["allocated"]
    assert wall is not None
    assert held is not None
    assert ours is not None

    assert 0 <= wall <= held * (1 + 1e-9)
    assert ours == pytest.approx(held)
    assert ours <= (got["redo_ignored"] or 0) + 1e-9 <= 1 + 1e-8
