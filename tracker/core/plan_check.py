"""The classic mistakes of a plan, each recognised by its figures.

Pure. A warning says the reason, the likely factor and the fix; it never changes a number and never
an exit status.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from tracker.core.goodput_model import MIN_PER_DAY, checkpoint_advice, goodput
from tracker.core.hardware import canonical_precision, dense_matches, lookup, sparse_matches, spec_sheet_ratio
from tracker.core.plan import Plan
from tracker.core.plan_parts import PlannedConversion
from tracker.core.references import operating_points, published_runs

__all__ = ["CODES", "HIGH_MFU", "PlanWarning", "PlannedConversion", "check_plan", "with_measured"]

CODES: Final = (
    "sparse_peak",
    "total_params",
    "mfu_assumed_high",
    "goodput_unreachable",
    "precision_mismatch",
    "stages_left_out",
    "spec_sheet_conversion",
    "after_reservation",
    "after_deadline",
    "over_budget",
)
"""Every code there is."""

HIGH_MFU: Final = 0.5
"""Above it an MFU must have been measured to be believed."""

_MEASURED = re.compile(r"(?<!not )(?<!un)\bmeasured\b", re.IGNORECASE)
_SHEET = re.compile(r"\b(spec|data)[ -]?sheets?\b|\bpeak ratio\b|\bratio of peaks\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWarning:
    """One mistake recognised in a plan."""

    code: str
    """One of CODES."""
    message: str
    """Reason, likely factor and fix, in sentences."""
    factor: float | None = None
    """How far the plan is likely off: truth over plan in hours, where that can be said."""


def check_plan(
    plan: Plan,
    *,
    gpu: str | None = None,
    precision: str | None = None,
    reservation_end: datetime | None = None,
    conversion: PlannedConversion | None = None,
) -> tuple[PlanWarning, ...]:
    """Return every classic mistake seen in a plan, in the order of CODES.

    gpu and precision are what the run will use, where they are known beside the peak: without a
    precision the peak's own counts (BF16 unless said otherwise). conversion stands in for the plan's.

    >>> from tracker.core.hardware import peak_given
    >>> plan = Plan(active_params=13e9, tokens=4e12, peak=peak_given(1979), gpus=1024)
    >>> [w.code for w in check_plan(plan)]
    ['sparse_peak']
    """
    found = [
        _sparse_peak(plan, gpu),
        _total_params(plan),
        _mfu(plan),
        _goodput(plan),
        _precision(plan, gpu, precision),
        _stages(plan),
        _conversion(plan, conversion if conversion is not None else plan.conversion),
        *_dates_and_money(plan, reservation_end),
    ]
    return tuple(w for w in found if w is not None)


def with_measured(plan: Plan, *, mfu: float | None, goodput: float | None, source: str) -> Plan:
    """Return the plan with MFU and goodput of a short measured run, and where they came from.

    >>> with_measured(Plan(), mfu=0.41, goodput=None, source="measured on 512 GPUs").mfu
    0.41
    """
    text = source if _MEASURED.search(source) else f"measured: {source}"
    names = [name for name, value in (("mfu", mfu), ("goodput", goodput)) if value is not None]
    return replace(
        plan,
        mfu=plan.mfu if mfu is None else mfu,
        goodput=plan.goodput if goodput is None else goodput,
        sources={**plan.sources, **dict.fromkeys(names, text)},
    )


def _sparse_peak(plan: Plan, gpu: str | None) -> PlanWarning | None:
    if plan.peak is None:
        return None
    name = gpu or plan.peak.gpu
    rows = sparse_matches(plan.peak.tflop_per_s, plan.peak.precision, gpu=name)
    if not rows:
        return None
    row = rows[0]
    dense = row.peaks.get(plan.peak.precision)
    right = f"{dense.tflop_per_s:,.0f}" if dense else "the dense peak"
    factor = plan.peak.value / dense.value if dense else 2.0
    return PlanWarning(
        code="sparse_peak",
        message=f"A peak of {plan.peak.tflop_per_s:,.0f} TFLOP/s is the {row.title}'s "
        f"{plan.peak.precision} figure with structured sparsity, which training does not use: hours "
        f"come out {factor:.1f} times too low. Use {right}, or name the precision if another is meant.",
        factor=factor,
    )


def _total_params(plan: Plan) -> PlanWarning | None:
    n = plan.active_params
    if n is None:
        return None
    total = plan.total_params
    if plan.experts is not None and plan.experts > (plan.experts_per_token or plan.experts - 1):
        if total is None or n >= 0.99 * total:
            return PlanWarning(
                code="total_params",
                message=f"active_params = {n:g} looks like the total of a mixture of {plan.experts} experts: "
                f"a token passes through {plan.experts_per_token or 'only a few'} of them. Hours come out "
                f"too high by total over active, often 10 to 20. Give the active parameters.",
            )
        return None
    if total is not None and total > 1.01 * n:
        return None
    for name, active, stored in _known_mixtures():
        if abs(n - stored) <= 0.005 * stored:
            return PlanWarning(
                code="total_params",
                message=f"active_params = {n:g} is the total of {name}; {active:g} of them work on a "
                f"token. Hours come out {stored / active:.1f} times too high. Give the active parameters.",
                factor=active / stored,
            )
    return None


def _known_mixtures() -> list[tuple[str, float, float]]:
    rows = [(r.name, r.active_params, r.total_params) for r in published_runs()]
    points = [
        (p.name, p.active_params, p.total_params)
        for p in operating_points()
        if p.routing is not None and not p.routing.startswith("random")
    ]
    return [
        (name, a, t) for name, a, t in [*rows, *points] if a is not None and t is not None and t > 1.5 * a
    ]


def _mfu(plan: Plan) -> PlanWarning | None:
    values = [plan.mfu, *(s.mfu for s in plan.stages if s.mfu is not None)]
    high = max(values)
    if high <= HIGH_MFU or _MEASURED.search(plan.sources.get("mfu", "")):
        return None
    return PlanWarning(
        code="mfu_assumed_high",
        message=f"An MFU of {high:g} is assumed, not measured: published runs of this kind deliver 0.35 to "
        f"0.43 in the step, so hours are likely {high / 0.40:.1f} times too low. Measure it on a short run "
        f"at the target scale and layout, and say so in [plan.sources] mfu.",
        factor=high / 0.40,
    )


def _goodput(plan: Plan) -> PlanWarning | None:
    f = plan.failures
    if f is None:
        return None
    reach = goodput(
        failures_per_day=f.per_day,
        restart_min=f.restart_min,
        checkpoint_interval_min=f.checkpoint_interval_min,
        checkpoint_stall_min=f.checkpoint_stall_min,
    )
    claimed = max([plan.goodput, *(s.goodput for s in plan.stages if s.goodput is not None)])
    if claimed <= reach + 5e-4:
        return None
    best = checkpoint_advice(
        failures_per_day=f.per_day,
        restart_min=f.restart_min,
        checkpoint_stall_min=f.checkpoint_stall_min,
        checkpoint_interval_min=f.checkpoint_interval_min,
    )
    at = f"every {best.best_interval_min:.3g} min" if best.best_interval_min else "as often as storage allows"
    return PlanWarning(
        code="goodput_unreachable",
        message=f"A goodput of {claimed:g} is above the {reach:.3f} that {f.per_day:g} failures a day, "
        f"{f.restart_min:g} min restarts and a checkpoint every {f.checkpoint_interval_min:g} min allow: "
        f"hours are {_times(claimed, reach)}. Checkpointing {at} would reach "
        f"{best.best_goodput_ratio:.3f}; else plan with {reach:.3f}.",
        factor=claimed / reach if reach > 0 else None,
    )


def _times(claimed: float, reach: float) -> str:
    return f"{claimed / reach:.2f} times too low" if reach > 0 else f"unbounded ({MIN_PER_DAY:.0f} min a day)"


def _precision(plan: Plan, gpu: str | None, precision: str | None) -> PlanWarning | None:
    if plan.peak is None or plan.sources.get("peak") or plan.sources.get("precision"):
        return None
    trained = canonical_precision(precision) if precision else plan.peak.precision
    if trained not in ("fp8", "fp4"):
        return None
    name = gpu or plan.peak.gpu
    same = dense_matches(plan.peak.tflop_per_s, gpu=name)
    if not any(p.precision in ("bf16", "fp16") for p in same):
        return None
    bf16 = next(p for p in same if p.precision in ("bf16", "fp16"))
    row = lookup(bf16.gpu or "")
    own = row.peaks.get(trained)
    if own is None or own.value <= 1.01 * bf16.value:
        return None
    factor = own.value / bf16.value
    return PlanWarning(
        code="precision_mismatch",
        message=f"The run trains in {trained} but {plan.peak.tflop_per_s:,.0f} TFLOP/s is the {row.title}'s "
        f"{bf16.precision} peak; its dense {trained} peak is {own.tflop_per_s:,.0f}: an MFU against one is "
        f"{factor:.1f} times that against the other. Either is fine: say which in [plan.sources] peak, and "
        f"take the MFU from a run that used the same.",
        factor=factor,
    )


def _stages(plan: Plan) -> PlanWarning | None:
    reasons = []
    factor = 1.0
    if plan.later_fraction == 0 and len(plan.stages) < 2:
        reasons.append(
            "later stages are left out (later_stages = 0): context extension, annealing and post-training "
            "add about 8 %"
        )
        factor *= 1.08
    if plan.rnd_multiplier == 1:
        reasons.append(
            "research is left out (rnd_multiplier = 1.0): ablations and failed runs often add half again; "
            "published final-run figures are lower bounds"
        )
        factor *= 1.5
    if not reasons:
        return None
    text = "; ".join(reasons)
    return PlanWarning(
        code="stages_left_out",
        message=f"{text[0].upper()}{text[1:]}. List the stages or set the fraction and the multiplier; "
        f"keep them out only if others pay for them.",
        factor=factor,
    )


def _conversion(plan: Plan, conversion: PlannedConversion | None) -> PlanWarning | None:
    if conversion is not None:
        sheet = spec_sheet_ratio(conversion.from_gpu, conversion.to_gpu)
        if abs(conversion.ratio - sheet) <= 0.03 * sheet:
            return PlanWarning(
                code="spec_sheet_conversion",
                message=f"Hours were converted from {conversion.from_gpu} to {conversion.to_gpu} by "
                f"{conversion.ratio:.2f}, the ratio of dense peaks. Delivered FLOP differ less: published "
                f"A100 and H100 runs by 2.5 where their peaks differ by 3.2. Hours are likely 1.3 times too "
                f"low. Convert by measured throughput (tracker convert).",
                factor=1.27,
            )
        return None
    for key, text in plan.sources.items():
        if _SHEET.search(text) and key not in ("peak", "gpu", "precision", "gpu_power_w"):
            return PlanWarning(
                code="spec_sheet_conversion",
                message=f"[plan.sources] {key} rests on a spec sheet ({text!r}). Devices deliver different "
                f"shares of their peaks: published A100 and H100 runs differ by 2.5 where their peaks differ "
                f"by 3.2. Convert by measured throughput (tracker convert).",
                factor=1.27,
            )
    return None


def _dates_and_money(plan: Plan, reservation_end: datetime | None) -> list[PlanWarning]:
    out = []
    finish = plan.finish_at()
    for code, name, limit in (
        ("after_reservation", "the reservation ends", reservation_end),
        ("after_deadline", "the deadline is", plan.deadline),
    ):
        if finish is not None and limit is not None and finish > limit:
            late = (finish - limit).total_seconds() / 86_400
            out.append(
                PlanWarning(
                    code=code,
                    message=f"The plan finishes on {finish:%Y-%m-%d %H:%M %Z}, {late:.1f} days after {name} "
                    f"({limit:%Y-%m-%d %H:%M %Z}), before a single thing goes worse than planned. Add GPUs, "
                    f"cut tokens or extend it.",
                )
            )
    cost = plan.cost()
    if cost is not None and plan.budget is not None and cost > plan.budget:
        out.append(
            PlanWarning(
                code="over_budget",
                message=f"The final run costs {cost:,.0f} {plan.currency}: {cost / plan.budget:.2f} times "
                f"the budget of {plan.budget:,.0f}. Cut tokens, or ask for the difference now.",
                factor=cost / plan.budget,
            )
        )
    return out
