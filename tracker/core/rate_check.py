"""Whether a delivered rate can be true: above a device's peak, or in another unit, it cannot.

Pure.
"""

from __future__ import annotations

from tracker.core._checks import positive
from tracker.core.errors import InvalidValue
from tracker.core.hardware import Accelerator, Peak, accelerators, sparse_matches
from tracker.core.plan_check import PlanWarning

_MOST_TFLOP_PER_S = 1e6
"""No device comes near; a larger figure is FLOP/s where TFLOP/s is meant."""
_SLACK = 1.005
"""Datasheets round."""


def rate_given(name: str, tflop_per_s: object, remedy: str = "") -> float:
    """Return a delivered rate in TFLOP/s as a float.

    Raises InvalidValue where it is not above 0, or is in FLOP/s.

    >>> rate_given("from_tflops", 136)
    136.0
    """
    value = positive(name, tflop_per_s, "delivered TFLOP/s of one device, above 0", remedy)
    if value > _MOST_TFLOP_PER_S:
        raise InvalidValue(
            name,
            tflop_per_s,
            "a rate in TFLOP/s",
            f"It looks like FLOP/s: write {value / 1e12:g} for {value:g}",
        )
    return value


def above_peak(name: str, tflop_per_s: float, row: Accelerator | None) -> PlanWarning | None:
    """Return a warning where a rate is above its device's dense BF16 peak, or above that of every device.

    >>> above_peak("to_tflops", 341.0, None) is None
    True
    """
    rows = [row] if row is not None else list(accelerators())
    peaks = [r.peaks["bf16"].tflop_per_s for r in rows if "bf16" in r.peaks]
    if not peaks or tflop_per_s <= _SLACK * max(peaks):
        return None
    whose = f"the {row.title}'s" if row is not None else "any device's on file:"
    return PlanWarning(
        code="above_peak",
        message=f"{name} = {tflop_per_s:,.0f} TFLOP/s is above {whose} dense bf16 peak of {max(peaks):,.0f}: "
        f"no bf16 run delivers that. Check the unit, and that it is of one device.",
    )


def check_back_solved(
    *, mfu_ratio: float | None, peak: Peak | None, tflop_per_s: float, gpu: str | None = None
) -> tuple[PlanWarning, ...]:
    """Return what cannot be right about a back-solved rate: a sparse peak, an MFU above 1.

    >>> [w.code for w in check_back_solved(mfu_ratio=6.28, peak=None, tflop_per_s=6211.0)]
    ['above_peak']
    """
    out = []
    if peak is not None:
        rows = sparse_matches(peak.tflop_per_s, peak.precision, gpu=gpu or peak.gpu)
        dense = rows[0].peaks.get(peak.precision) if rows else None
        if rows:
            right = f"{dense.tflop_per_s:,.0f}" if dense is not None else "the dense peak"
            factor = peak.value / dense.value if dense is not None else 2.0
            out.append(
                PlanWarning(
                    code="sparse_peak",
                    message=f"A peak of {peak.tflop_per_s:,.0f} TFLOP/s is the {rows[0].title}'s "
                    f"{peak.precision} figure with structured sparsity, which training does not use: "
                    f"the MFU comes out {factor:.1f} times too low. Use {right}, or name the precision if "
                    f"another is meant.",
                )
            )
    if mfu_ratio is not None and peak is not None and mfu_ratio > 1:
        out.append(
            PlanWarning(
                code="above_peak",
                message=f"An MFU of {100 * mfu_ratio:,.0f} % is above 100 %: {tflop_per_s:,.0f} TFLOP/s of "
                f"one device whose peak is {peak.tflop_per_s:,.0f}. Check that the parameters are the active "
                f"ones, that the hours are GPU-hours (not wall-clock or node hours), and the unit of the "
                f"tokens.",
            )
        )
    elif peak is None:
        found = above_peak("delivered", tflop_per_s, None)
        out += [found] if found is not None else []
    return tuple(out)
