"""From FLOP to money in one line: ideal, step and billed hours, for plan, run and published runs.

Pure.

    model_flop -> ideal_hours -> (MFU) step_hours -> (goodput) billed_hours -> money, energy

    MFU(allocated) = MFU(productive) goodput          where the loss went
    hours per 1e12 tokens x MFU(allocated) = 1e12 F / (3600 P)      the run drops out

A link that nobody published stays None; it is never filled by assuming another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tracker.core._checks import positive
from tracker.core.energy import energy_mwh
from tracker.core.flop import FlopMethod
from tracker.core.hardware import lookup
from tracker.core.plan import Plan
from tracker.core.reference_rows import PublishedRun
from tracker.core.references import back_solve_run, published_runs

S_PER_H = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """One row of the table. Hours are device-hours; what is unknown is None."""

    name: str
    """Whose: the plan, the run, or a published run."""
    kind: Literal["plan", "run", "reference"]
    """Which of the three."""
    model_flop: float | None
    """FLOP of its tokens."""
    flop_method: str | None
    """How they were counted."""
    peak_tflop_per_s: float | None
    """Dense peak the ratios are against."""
    precision: str | None
    """Of that peak."""
    ideal_gpu_hours: float | None
    """At peak."""
    mfu_ratio: float | None
    """Over productive time."""
    step_gpu_hours: float | None
    """Productive hours."""
    goodput_ratio: float | None
    """Productive over billed."""
    billed_gpu_hours: float | None
    """All hours held."""
    mfu_allocated_ratio: float | None
    """Ideal over billed: the product of both, known even where its parts are not."""
    gpu_hours_per_trillion_tokens: float | None
    """Billed hours per 1e12 tokens."""
    cost_per_trillion_tokens: float | None
    """Money for them; None without a price."""
    energy_mwh: float | None
    """Of the billed hours; an upper bound where power is a TDP."""
    caveat: str
    """What belongs beside the row."""


def chain(
    name: str,
    *,
    kind: Literal["plan", "run", "reference"] = "run",
    tokens: float | None,
    flop_per_token: float | None,
    flop_method: str | None = None,
    peak_flop_per_s: float | None = None,
    precision: str | None = None,
    step_gpu_hours: float | None = None,
    billed_gpu_hours: float | None = None,
    mfu_ratio: float | None = None,
    goodput_ratio: float | None = None,
    gpu_hour_price: float | None = None,
    power_w: float | None = None,
    facility_overhead: float = 1.0,
    caveat: str = "",
) -> Chain:
    """Return the chain that follows from the parts given.

    A run gives step_gpu_hours and billed_gpu_hours; a plan gives mfu_ratio and goodput_ratio; a
    published run often gives billed_gpu_hours alone. Each missing link that follows from the
    others is filled, and no other.

    >>> c = chain("x", tokens=15.6e12, flop_per_token=6 * 405e9, peak_flop_per_s=989e12,
    ...           mfu_ratio=400 / 989, goodput_ratio=0.9)
    >>> round(c.step_gpu_hours / 1e6, 1), round(c.billed_gpu_hours / 1e6, 1)
    (26.3, 29.2)
    """
    model_flop = tokens * flop_per_token if tokens is not None and flop_per_token is not None else None
    ideal = None
    if model_flop is not None and peak_flop_per_s is not None:
        ideal = model_flop / (positive("peak_flop_per_s", peak_flop_per_s) * S_PER_H)
    step, billed = step_gpu_hours, billed_gpu_hours
    if step is None and ideal is not None and mfu_ratio:
        step = ideal / mfu_ratio
    if billed is None and step is not None and goodput_ratio:
        billed = step / goodput_ratio
    if step is None and billed is not None and goodput_ratio is not None:
        step = billed * goodput_ratio
    mfu = mfu_ratio
    if mfu is None and ideal is not None and step:
        mfu = ideal / step
    goodput = goodput_ratio
    if goodput is None and step is not None and billed:
        goodput = step / billed
    rate = 1e12 * billed / tokens if billed is not None and tokens else None
    return Chain(
        name=name,
        kind=kind,
        model_flop=model_flop,
        flop_method=flop_method,
        peak_tflop_per_s=peak_flop_per_s / 1e12 if peak_flop_per_s is not None else None,
        precision=precision,
        ideal_gpu_hours=ideal,
        mfu_ratio=mfu,
        step_gpu_hours=step,
        goodput_ratio=goodput,
        billed_gpu_hours=billed,
        mfu_allocated_ratio=ideal / billed if ideal is not None and billed else None,
        gpu_hours_per_trillion_tokens=rate,
        cost_per_trillion_tokens=rate * gpu_hour_price
        if rate is not None and gpu_hour_price is not None
        else None,
        energy_mwh=energy_mwh(gpu_hours=billed, power_w=power_w, facility_overhead=facility_overhead)
        if billed is not None and power_w is not None
        else None,
        caveat=caveat,
    )


def chain_of_plan(plan: Plan, name: str = "plan") -> Chain:
    """Return the plan's chain, main stage only, so that its rate compares with a run's."""
    e = plan.estimate()
    if e is None:
        flop = plan.flop()
        return chain(
            name,
            kind="plan",
            tokens=plan.target_tokens,
            flop_per_token=flop.value if flop else None,
            flop_method=flop.method if flop else None,
            caveat=f"Unknown: {', '.join(plan.missing)}",
        )
    prices = plan.price_list
    main = e.main
    price = None
    if prices is not None:
        cost = plan.cost()
        price = prices.steps[0].gpu_hour_price if prices.is_flat else cost and cost / e.final_gpu_hours
    said = ["main stage"] if len(e.stages) > 1 or e.later_stages_gpu_hours else []
    if prices is not None and not prices.is_flat and price is not None:
        said.append(f"at a mean price of {price:.4g} {plan.currency} over the plan's time")
    return chain(
        name,
        kind="plan",
        tokens=main.tokens,
        flop_per_token=main.flop.value,
        flop_method=main.flop.method,
        peak_flop_per_s=plan.peak.value if plan.peak else None,
        precision=plan.peak.precision if plan.peak else None,
        step_gpu_hours=main.step_gpu_hours,
        billed_gpu_hours=main.billed_gpu_hours,
        gpu_hour_price=price,
        power_w=plan.power_w,
        facility_overhead=plan.facility_overhead,
        caveat="; ".join(said),
    )


def chain_of_reference(run: PublishedRun) -> Chain:
    """Return a published run's chain by plain 6N: its billed hours, and no split nobody published."""
    peak = run.peak
    billed = None if run.no_backsolve else run.gpu_hours
    tdp = None
    if peak is not None and peak.gpu is not None:
        figure = lookup(peak.gpu).tdp_w
        tdp = figure.value if figure else None
    row = chain(
        run.name,
        kind="reference",
        tokens=run.tokens,
        flop_per_token=6 * run.active_params,
        flop_method=FlopMethod.SIX_N.value,
        peak_flop_per_s=peak.value if peak else None,
        precision=peak.precision if peak else None,
        billed_gpu_hours=billed,
        gpu_hour_price=run.gpu_hour_price,
        power_w=tdp,
        caveat=run.caveat,
    )
    if row.gpu_hours_per_trillion_tokens is None and run.gpu_hours_per_trillion_tokens is not None:
        return chain(
            run.name,
            kind="reference",
            tokens=1e12,
            flop_per_token=6 * run.active_params,
            flop_method=FlopMethod.SIX_N.value,
            peak_flop_per_s=peak.value if peak else None,
            precision=peak.precision if peak else None,
            billed_gpu_hours=run.gpu_hours_per_trillion_tokens,
            caveat=f"for 1e12 tokens: only the rate is published. {run.caveat}",
        )
    return row


def published_chains() -> tuple[Chain, ...]:
    """Return the chains of the published runs whose hours allow one, in the file's order: no ranking."""
    return tuple(chain_of_reference(run) for run in published_runs() if back_solve_run(run) is not None)
