"""Hours of one accelerator as hours of another: by what each delivered, not by spec sheets.

Pure.

    d   delivered model TFLOP/s of one device, averaged over all its hours include

    hours_to = hours_from d_from / d_to          ratio = d_to / d_from

Why not peaks: a newer device reaches a smaller share of its peak, on other layouts and sizes. The
published A100 and H100 runs differ by 2.5 where their dense BF16 peaks differ by 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracker.core._checks import not_negative
from tracker.core.hardware import Accelerator, dense_matches, lookup, spec_sheet_ratio
from tracker.core.plan_check import PlanWarning
from tracker.core.rate_check import above_peak, rate_given
from tracker.core.reference_rows import PublishedRun
from tracker.core.references import delivered_by


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """GPU-hours of one device as hours of another, with what the ratio rests on."""

    gpu_hours: float
    """On the other device."""
    ratio: float
    """Delivered by the other over delivered by the first: hours shrink by it."""
    from_tflop_per_s: float
    """Delivered by the first."""
    to_tflop_per_s: float
    """Delivered by the other."""
    spec_sheet_ratio: float | None
    """Dense BF16 peaks' ratio beside it; None where the devices are not named."""
    from_run: PublishedRun | None
    """The published run behind the first rate; None where the rate was given."""
    to_run: PublishedRun | None
    """The published run behind the other."""
    caveats: tuple[str, ...]
    """What to know before using it."""
    is_spec_sheet: bool
    """Whether the rates given are peaks: then the conversion is the one to avoid."""
    warnings: tuple[PlanWarning, ...] = ()
    """What cannot be right about the rates."""


def convert(
    gpu_hours: float,
    *,
    from_tflop_per_s: float | None = None,
    to_tflop_per_s: float | None = None,
    from_gpu: str | None = None,
    to_gpu: str | None = None,
) -> Conversion:
    """Return GPU-hours converted by delivered FLOP.

    A rate given counts; where none is, the device's published run supplies it.

    Raises InvalidValue for a rate that is missing on both ways, not positive or in FLOP/s; UnknownGpu or
    AmbiguousGpu for a device.

    >>> c = convert(1e6, from_tflop_per_s=136, to_tflop_per_s=341)
    >>> round(c.ratio, 2), round(c.gpu_hours)
    (2.51, 398827)
    """
    hours = not_negative("gpu_hours", gpu_hours, "GPU-hours of 0 or more")
    before, from_row, from_run = _rate("from", from_tflop_per_s, from_gpu)
    after, to_row, to_run = _rate("to", to_tflop_per_s, to_gpu)
    is_peaks = bool(
        from_tflop_per_s is not None
        and to_tflop_per_s is not None
        and dense_matches(before, gpu=from_row.name if from_row else None)
        and dense_matches(after, gpu=to_row.name if to_row else None)
    )
    caveats = []
    by_peaks: list[PlanWarning] = []
    for run in (from_run, to_run if to_run is not from_run else None):
        if run is not None:
            caveats.append(f"{run.name}: {run.caveat}")
    if from_run is not None and to_run is not None and from_run is not to_run:
        caveats.append(
            "The two runs differ in model, size, parallel layout and sequence: measure both devices on "
            "your own layout before a plan rests on this"
        )
    if is_peaks:
        text = "Both rates are dense peaks: that is the spec-sheet ratio, not what runs deliver"
        caveats.append(text)
        by_peaks = [PlanWarning(code="spec_sheet_conversion", message=text)]
    above = [
        above_peak(f"{side}_tflops", given, row)
        for side, given, row in (("from", from_tflop_per_s, from_row), ("to", to_tflop_per_s, to_row))
        if given is not None
    ]
    caveats += [w.message for w in above if w is not None]
    sheet = None
    if from_row is not None and to_row is not None and "bf16" in from_row.peaks and "bf16" in to_row.peaks:
        sheet = spec_sheet_ratio(from_row.name, to_row.name)
    return Conversion(
        gpu_hours=hours * before / after,
        ratio=after / before,
        from_tflop_per_s=before,
        to_tflop_per_s=after,
        spec_sheet_ratio=sheet,
        from_run=from_run,
        to_run=to_run,
        caveats=tuple(caveats),
        is_spec_sheet=is_peaks,
        warnings=tuple(w for w in (*by_peaks, *above) if w is not None),
    )


def _rate(
    side: str, given: float | None, gpu: str | None
) -> tuple[float, Accelerator | None, PublishedRun | None]:
    row = lookup(gpu) if gpu is not None else None
    if given is not None or gpu is None:
        value = rate_given(
            f"{side}_tflops",
            given,
            f"Give --{side}-tflops, or --{side} with a device that has a published run",
        )
        return value, row, None
    run, solved = delivered_by(gpu)
    return solved.delivered_tflop_per_s, row, run
