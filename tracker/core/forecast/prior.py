"""What a forecast believes before the run itself has told: weak, from published figures, and named.

Pure. Every figure fades as the run's own data come; `Priors` is also where the model is tuned (on
simulated runs whose seeds are not those of the scores that docs/forecast.md shows).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Priors:
    """Beliefs and tuning. Times in seconds unless the name says otherwise."""

    # failures
    device_mtbf_h: float = 40_000.0
    """GPU-hours between unexpected stops: between Llama 3's 50,677 and the 29,538 that 6.50 per 1,000
    node-days of 8 GPUs come to (Meta RSC-1, arXiv 2410.21680)."""
    device_mtbf_sd: float = 1.2
    """Of its log: jobs of 1,024 GPUs there measured 8,090 GPU-hours, whole clusters up to 280,000."""
    bunching: float = 1.4
    """Variance over mean of counts; gaps of a published fault trace have a coefficient of variation of
    1.76, of restarts inside one run less."""
    bunching_weight: float = 10.0
    """Own gaps that the belief counts as."""
    hazard_sd: float = 0.20
    """How far the rate of stops wanders over a horizon as long as the past, log."""
    recent_share: float = 1.0
    """Half-life of what was seen, as a share of the past."""

    # cost of a stop
    wait_s: float = 1200.0
    """Median from the hang or crash to the next step (ByteRobust: requeue 454-768 s after detection of
    1-15 min; hangs more than 1.5 h by hand)."""
    wait_sd: float = 0.9
    redo_share: float = 0.5
    """Redone work, of the time between two checkpoints."""
    save_every_s: float = 3600.0
    cost_weight: float = 1.5
    """Own stops that the belief counts as."""

    # outages: rare and long, not a matter of GPU count
    outage_s: float = 3 * 3600.0
    """A stop longer than that is an outage."""
    outage_days: float = 20.0
    """Days of running between two."""
    outage_shape: float = 0.5
    outage_sd: float = 0.7
    outage_median_s: float = 12 * 3600.0

    # planned stops
    planned_days: float = 20.0
    planned_shape: float = 0.3
    planned_s: float = 1500.0

    # evaluation, saves, hiccups
    overhead_ratio: float = 0.03
    overhead_weight_s: float = 3 * 3600.0
    overhead_sd: float = 0.10
    other_sd: float = 0.4
    """Besides, where it is time that no line explains: nobody knows whether it comes again."""

    # rate
    step_sd: float = 0.005
    """Random walk of the log rate over a twelfth of the past."""
    step_weight: float = 3.0
    noise_sd: float = 0.010
    floor_sd: float = 0.016
    """What never averages out."""
    horizon_sd: float = 0.003
    """Unforeseen change, for a horizon as long as the past (grows with its root)."""
    wander_power: float = 0.75
    """How the variance of a wandering rate grows with the length ahead: 1 where nothing comes back."""
    trend_share: float = 0.1
    """How much of a trend goes on."""
    tail: float = 6.0
    """Degrees of freedom of the rate's spread."""

    surprise: float = 3.0
    """Standard deviations that one piece may move the level by."""
    coarse_sd: float = 0.22
    """For a run told in few pieces, log."""

    # plan only
    plan_rate_sd: float = 0.18
    """A planned MFU against the one that comes, log."""
    stage_sd: float = 0.08
    """Rate of a stage that has not begun, log."""
    startup_s: float = 1200.0
    scaling_sd: float = 0.10
    """Rate per GPU at another GPU count, per unit of log count."""
    early_share: float = 0.12
    """By how much the range at a tenth done is drawn in; less at a quarter, nothing from half on."""


DEFAULT = Priors()
