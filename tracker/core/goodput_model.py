"""What failures and checkpoints cost: the goodput model, and the interval that serves best.

Pure.

    F   unexpected interruptions per day             1 / day
    M   mean time between them, 1440 / F             min
    R   restart, from the failure to the next step   min
    C   training between checkpoints                 min
    s   blocking part of one save                    min

    goodput = max(0, 1 - F (R + C / 2) / 1440 - s / C)

A failure loses the restart and half an interval of redone work; every interval pays one save. The
model takes failures as rare against an interval: it holds for C below M.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from tracker.core._checks import not_negative, positive
from tracker.core.errors import InvalidValue

MIN_PER_DAY: Final = 1440.0


def goodput(
    *,
    failures_per_day: float,
    restart_min: float,
    checkpoint_interval_min: float,
    checkpoint_stall_min: float = 0.0,
) -> float:
    """Return the share of allocated time that moves the run forward, by the failure model.

    max(0, 1 - F (R + C/2)/1440 - s/C). Holds for an interval below the mean time between
    failures; beyond it is refused, since most work would be lost before it is ever saved.

    Raises InvalidValue for negative inputs, an interval of zero, an interval longer than the mean
    time between failures, or a stall longer than its interval.

    >>> round(goodput(failures_per_day=8, restart_min=10, checkpoint_interval_min=30,
    ...               checkpoint_stall_min=0.5), 3)
    0.844
    """
    f = not_negative("failures_per_day", failures_per_day)
    r = not_negative("restart_min", restart_min)
    c = positive("checkpoint_interval_min", checkpoint_interval_min, "minutes above 0")
    s = not_negative("checkpoint_stall_min", checkpoint_stall_min)
    if s > c:
        raise InvalidValue(
            "checkpoint_stall_min",
            checkpoint_stall_min,
            f"at most the interval, {c:g} min",
            "The stall is the blocking part of one save, in minutes",
        )
    if f > 0 and c > MIN_PER_DAY / f:
        best = young_min(mtbf_min=MIN_PER_DAY / f, checkpoint_stall_min=s)
        raise InvalidValue(
            "checkpoint_interval_min",
            checkpoint_interval_min,
            f"at most the mean time between failures, {MIN_PER_DAY / f:.4g} min at {f:g} a day",
            f"Most work would be lost before it is saved; the best interval is near {best:.3g} min"
            if s > 0
            else "Most work would be lost before it is saved; save more often",
        )
    return max(0.0, _linear(f, r, c, s))


def _linear(f: float, r: float, c: float, s: float) -> float:
    return 1 - f * (r + c / 2) / MIN_PER_DAY - s / c


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputLosses:
    """Where the model's loss goes, as shares of the allocation; None where an interval is missing."""

    restart_ratio: float | None
    """F R / 1440; None where the rate of failures is not known."""
    redo_ratio: float | None
    """F C / 2880."""
    checkpoint_ratio: float | None
    """s / C."""


def goodput_losses(
    *,
    failures_per_day: float,
    restart_min: float,
    checkpoint_interval_min: float | None,
    checkpoint_stall_min: float = 0.0,
    is_rate_known: bool = True,
) -> GoodputLosses:
    """Return the three losses of the model; they sum to 1 - goodput while that is above 0.

    Without is_rate_known (no failure was seen yet) only the saves' share is known.

    >>> goodput_losses(failures_per_day=8, restart_min=9, checkpoint_interval_min=36).redo_ratio
    0.1
    """
    c = checkpoint_interval_min
    return GoodputLosses(
        restart_ratio=failures_per_day * restart_min / MIN_PER_DAY if is_rate_known else None,
        redo_ratio=failures_per_day * c / 2 / MIN_PER_DAY if c is not None and is_rate_known else None,
        checkpoint_ratio=checkpoint_stall_min / c if c is not None else None,
    )


def young_min(*, mtbf_min: float, checkpoint_stall_min: float) -> float:
    """Return Young's interval, sqrt(2 s M), in minutes: the optimum of the model above.

    Source: J. W. Young, CACM 17(9), 1974. Holds for a stall far below the MTBF.

    >>> round(young_min(mtbf_min=180.0, checkpoint_stall_min=0.5), 2)
    13.42
    """
    return math.sqrt(2 * checkpoint_stall_min * mtbf_min)


def daly_min(*, mtbf_min: float, checkpoint_stall_min: float) -> float:
    """Return Daly's higher-order interval in minutes.

    sqrt(2 s M) (1 + sqrt(s / 2M) / 3 + (s / 2M) / 9) - s for s < 2M, else M.

    Source: J. T. Daly, Future Generation Computer Systems 22, 2006, equation 37.

    >>> round(daly_min(mtbf_min=180.0, checkpoint_stall_min=0.5), 2)
    13.09
    """
    s, m = checkpoint_stall_min, mtbf_min
    if s >= 2 * m:
        return m
    x = s / (2 * m)
    return math.sqrt(2 * s * m) * (1 + math.sqrt(x) / 3 + x / 9) - s


def exponential_goodput(
    *, mtbf_min: float, restart_min: float, interval_min: float, stall_min: float
) -> float:
    """Return goodput when failures are exponential and may strike saves and restarts too.

    C / (M e^(R/M) (e^((C+s)/M) - 1)): Daly's complete model. It holds for any interval, and meets
    the simple one where failures are rare.

    Source: Daly 2006, equation 13.

    >>> round(exponential_goodput(mtbf_min=180.0, restart_min=10.0, interval_min=30.0, stall_min=0.5), 3)
    0.854
    """
    m = mtbf_min
    exponent = (interval_min + stall_min) / m
    if restart_min / m > 700 or exponent > 700:
        return 0.0
    return interval_min / (m * math.exp(restart_min / m) * math.expm1(exponent))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAdvice:
    """The interval that maximises goodput, by three routes, and what it would gain."""

    is_rate_known: bool
    """False where no failure was seen yet: then the rate has only a bound, and nothing else is said."""
    model: Literal["linear", "exponential"]
    """Which model the ratios below are by: the exponential one where the simple (linear) one does not
    reach, that is for an interval beyond the MTBF or a goodput that it would put at 0."""
    mtbf_min: float | None
    """Mean time between failures, minutes; None without failures."""
    young_min: float | None
    """Young's interval."""
    daly_min: float | None
    """Daly's higher-order interval."""
    best_interval_min: float | None
    """Numeric optimum of `model`; None where it has none: no stall (save as often as storage allows),
    no failures (never), or a rate that is not known."""
    best_goodput_ratio: float | None
    """Goodput there by `model` (the limit, where there is no optimum); None where the rate is not known."""
    exponential_best_min: float | None
    """Numeric optimum of the complete exponential model."""
    current_goodput_ratio: float | None
    """At the present interval, by `model`; None where none was given."""
    gain_ratio: float | None
    """Best over current goodput, minus 1: this many more steps in the same hours."""
    best_interval_range_min: tuple[float, float | None] | None
    """The optimum at both ends of the MTBF's interval; None where that is unknown."""
    gpu_hours_saved: float | None
    """On the allocation given, for the same steps."""
    money_saved: float | None
    """Those hours at the price given."""


def checkpoint_advice(
    *,
    failures_per_day: float,
    restart_min: float,
    checkpoint_stall_min: float,
    checkpoint_interval_min: float | None = None,
    mtbf_range_min: tuple[float, float | None] | None = None,
    gpu_hours: float | None = None,
    gpu_hour_price: float | None = None,
    is_rate_known: bool = True,
) -> CheckpointAdvice:
    """Return the checkpoint interval that maximises goodput, and what it is worth.

    mtbf_range_min is the confidence interval of the mean time between failures: the advice is
    only as sure as that. gpu_hours is an allocation at the present interval, to put the gain in
    hours and money. Unlike `goodput`, an interval beyond the MTBF is not refused here: a run that
    has one needs advice; its goodput then comes from the exponential model.

    failures_per_day = 0 is taken at its word (never save) unless is_rate_known is False: "none seen yet"
    is no rate, and all that follows then is the bound in mtbf_range_min.

    Raises InvalidValue for negative inputs.

    >>> a = checkpoint_advice(failures_per_day=8, restart_min=10, checkpoint_stall_min=0.5,
    ...                       checkpoint_interval_min=30)
    >>> round(a.best_interval_min, 1), round(a.best_goodput_ratio, 3)
    (13.4, 0.87)
    """
    f = not_negative("failures_per_day", failures_per_day)
    r = not_negative("restart_min", restart_min)
    s = not_negative("checkpoint_stall_min", checkpoint_stall_min)
    price = None
    if gpu_hour_price is not None:
        price = not_negative("gpu_hour_price", gpu_hour_price, "a price of 0 or more per GPU-hour")
    hours = not_negative("gpu_hours", gpu_hours) if gpu_hours is not None else None
    c = None
    if checkpoint_interval_min is not None:
        c = positive("checkpoint_interval_min", checkpoint_interval_min, "minutes above 0")
    mtbf = MIN_PER_DAY / f if f > 0 else None
    best = exponential = None
    if mtbf is not None and s > 0:
        best = _maximise(lambda x: _linear(f, r, x, s), s, mtbf)
        exponential = _maximise(
            lambda x: exponential_goodput(mtbf_min=mtbf, restart_min=r, interval_min=x, stall_min=s), s, mtbf
        )
    reach: float | None = max(0.0, 1 - f * r / MIN_PER_DAY if best is None else _linear(f, r, best, s))
    current = max(0.0, _linear(f, r, c, s)) if c is not None else None
    model: Literal["linear", "exponential"] = "linear"
    if mtbf is not None and (reach == 0 or (c is not None and (c > mtbf or current == 0))):
        model, best = "exponential", exponential
        reach = math.exp(-r / mtbf)
        if exponential is not None:
            reach = exponential_goodput(mtbf_min=mtbf, restart_min=r, interval_min=exponential, stall_min=s)
        if c is not None:
            current = exponential_goodput(mtbf_min=mtbf, restart_min=r, interval_min=c, stall_min=s)
        if reach == 0:
            best = exponential = None  # nothing to maximise
    if not is_rate_known:
        reach = current = None
    gain = max(0.0, reach / current - 1) if current and reach is not None else None
    saved = None
    if hours is not None and current is not None and reach:
        saved = hours * max(0.0, 1 - current / reach)
    spread = None
    if mtbf_range_min is not None and s > 0:
        low, high = mtbf_range_min
        spread = (
            young_min(mtbf_min=low, checkpoint_stall_min=s),
            young_min(mtbf_min=high, checkpoint_stall_min=s) if high is not None else None,
        )
    return CheckpointAdvice(
        is_rate_known=is_rate_known,
        model=model,
        mtbf_min=mtbf,
        young_min=young_min(mtbf_min=mtbf, checkpoint_stall_min=s) if mtbf is not None and s > 0 else None,
        daly_min=daly_min(mtbf_min=mtbf, checkpoint_stall_min=s) if mtbf is not None and s > 0 else None,
        best_interval_min=best,
        best_goodput_ratio=reach,
        exponential_best_min=exponential,
        current_goodput_ratio=current,
        gain_ratio=gain,
        best_interval_range_min=spread,
        gpu_hours_saved=saved,
        money_saved=saved * price if saved is not None and price is not None else None,
    )


def _maximise(value: Callable[[float], float], stall: float, mtbf: float) -> float:
    """Golden-section search over the logarithm of the interval; one peak between the ends."""
    low, high = math.log(max(stall * 1e-6, 1e-12)), math.log(max(mtbf, stall) * 1e3)
    shrink = (math.sqrt(5) - 1) / 2
    a, b = high - shrink * (high - low), low + shrink * (high - low)
    fa, fb = value(math.exp(a)), value(math.exp(b))
    for _ in range(200):
        if fa > fb:
            high, b, fb = b, a, fa
            a = high - shrink * (high - low)
            fa = value(math.exp(a))
        else:
            low, a, fa = a, b, fb
            b = low + shrink * (high - low)
            fb = value(math.exp(b))
        if high - low < 1e-10:
            break
    return math.exp((low + high) / 2)


def expected_ettr(
    *, nodes: float, failures_per_node_day: float, restart_min: float, interval_min: float, write_min: float
) -> float:
    """Return Meta's expected effective training time ratio, for comparison with their paper.

    (1 - N r (u0 + C/2)) / (1 + w/C).

    Source: Kokolis et al. 2024, arXiv:2410.21680, section 3. It agrees with their Monte Carlo to
    about 5 %; queueing is left out here.

    >>> round(expected_ettr(nodes=128, failures_per_node_day=6.5e-3, restart_min=5.0,
    ...                     interval_min=60.0, write_min=5.0), 3)
    0.904
    """
    loss = nodes * failures_per_node_day * (restart_min + interval_min / 2) / MIN_PER_DAY
    return max(0.0, 1 - loss) / (1 + write_min / positive("interval_min", interval_min))
