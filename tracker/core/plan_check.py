"""The classic mistakes of a plan, each recognised by its figures.

Pure. A warning says the reason, the likely factor and the fix; it never changes a number and never
an exit status.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from tracker.core.errors import InvalidValue
from tracker.core.goodput_model import checkpoint_advice, goodput
from tracker.core.hardware import canonical_precision, dense_matches, lookup, sparse_matches, spec_sheet_ratio
from tracker.core.plan import Plan
from tracker.core.plan_parts import PlannedConversion
from tracker.core.references import delivered_by, operating_points, published_runs

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

_MEASURED = re.compile(r"\bmeasured\b", re.IGNORECASE)
_NOT_YET = re.compile(
    r"(\bnot|n't|\bnever|\bbe|\bget|\bwithout|\bonce|\bwhen|\buntil|\bif|\bbefore|\bbeing|\byet)"
    r"[\s-]+([\w']+[\s-]+){0,2}$",
    re.IGNORECASE,
)
"""What before "measured" makes it a plan to measure: "to be measured", "not yet measured"."""
_NARROW = re.compile(r"\b(mx|nv)?fp[48]\b", re.IGNORECASE)
_NEAR: Final = 0.005
_EXACT: Final = 0.0005
_WIDE: Final = ("bf16", "fp16")
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
    money_factor: float | None = None
    """For over_budget: cost over budget, which is no ratio of hours."""


def check_plan(
    plan: Plan,
    *,
    gpu: str | None = None,
    precision: str | None = None,
    reservation_end: datetime | None = None,
    conversion: PlannedConversion | None = None,
    is_mfu_restated: bool = False,
) -> tuple[PlanWarning, ...]:
    """Return every classic mistake seen in a plan, in the order of CODES.

    gpu and precision are what the run will use, where they are known beside the peak: without a
    precision the peak's own counts (BF16 unless said otherwise). conversion stands in for the plan's.
    is_mfu_restated: the MFU is a run's own against this very peak, so that no peak moves the hours.

    >>> from tracker.core.hardware import peak_given
    >>> plan = Plan(active_params=13e9, tokens=4e12, peak=peak_given(1979), gpus=1024)
    >>> [w.code for w in check_plan(plan)]
    ['sparse_peak']
    """
    found = [
        _sparse_peak(plan, gpu, is_mfu_restated),
        _total_params(plan),
        _mfu(plan),
        _goodput(plan),
        _precision(plan, gpu, precision),
        _stages(plan),
        _conversion(plan, conversion if conversion is not None else plan.conversion),
        *_dates_and_money(plan, reservation_end),
    ]
    return tuple(w for w in found if w is not None)


def not_checked(plan: Plan, *, has_reservation_end: bool = False) -> tuple[str, ...]:
    """Return, in words, the limits that a plan states and that could not be checked, with what is missing.

    >>> not_checked(Plan(budget=1e6))
    ('the budget, for want of gpu_hour_price',)
    """
    lacks = [name for name, value in (("start", plan.start), ("gpus", _gpus(plan))) if value is None]
    late = [
        name for name, is_given in (("the reservation's end", has_reservation_end),
                                    ("the deadline", plan.deadline is not None)) if is_given
    ]  # fmt: skip
    out = [f"{name}, for want of {' and '.join(lacks)}" for name in late if lacks]
    if plan.budget is not None and plan.price_list is None:
        out.append("the budget, for want of gpu_hour_price")
    elif plan.budget is not None and plan.cost() is None:
        out.append(f"the budget, for want of {' and '.join(lacks) or 'a finish'} while prices change")
    return tuple(out)


def _gpus(plan: Plan) -> int | None:
    if plan.gpus is not None or not plan.stages:
        return plan.gpus
    return None if any(s.gpus is None for s in plan.stages) else plan.stages[0].gpus


def with_measured(plan: Plan, *, mfu: float | None, goodput: float | None, source: str) -> Plan:
    """Return the plan with MFU and goodput of a short measured run, and where they came from.

    >>> with_measured(Plan(), mfu=0.41, goodput=None, source="measured on 512 GPUs").mfu
    0.41
    """
    text = source if _is_measured(source) else f"measured: {source}"
    names = [name for name, value in (("mfu", mfu), ("goodput", goodput)) if value is not None]
    return replace(
        plan,
        mfu=plan.mfu if mfu is None else mfu,
        goodput=plan.goodput if goodput is None else goodput,
        sources={**plan.sources, **dict.fromkeys(names, text)},
    )


def _sparse_peak(plan: Plan, gpu: str | None, is_mfu_restated: bool) -> PlanWarning | None:
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
    off = f"hours come out {factor:.1f} times too low"
    if is_mfu_restated:
        off = f"the measured MFU comes out {factor:.1f} times too low, and the hours stand"
    return PlanWarning(
        code="sparse_peak",
        message=f"A peak of {plan.peak.tflop_per_s:,.0f} TFLOP/s is the {row.title}'s "
        f"{plan.peak.precision} figure with structured sparsity, which training does not use: "
        f"{off}. Use {right}, or name the precision if another is meant.",
        factor=1.0 if is_mfu_restated else factor,
    )


def _total_params(plan: Plan) -> PlanWarning | None:
    n, total = plan.active_params, plan.total_params
    if n is None:
        return None
    fits = _mixtures_of_total(n)
    if plan.experts is not None and plan.experts > (plan.experts_per_token or plan.experts - 1):
        if total is None or n >= 0.99 * total:
            factor = fits[0][1] / fits[0][2] if len(fits) == 1 else None
            off = f"{1 / factor:.1f} times" if factor else "by total over active, often 10 to 20"
            return PlanWarning(
                code="total_params",
                message=f"active_params = {n:g} looks like the total of a mixture of {plan.experts} experts: "
                f"a token passes through {plan.experts_per_token or 'only a few'} of them. Hours come out "
                f"too high: {off}. Give the active parameters.",
                factor=factor,
            )
        return None
    if total is not None or plan.experts is not None or not fits:
        return None  # a total beside them (the same for a dense model) says that these are the active ones
    if len(fits) == 1:
        name, active, stored = fits[0]
        whose = f"the total of {name}; {active:g} of them work on a token"
        off = f"{stored / active:.1f} times"
    else:
        whose = "the total of " + " or ".join(f"{name} ({active:g} active)" for name, active, _ in fits)
        off = f"{min(t / a for _, a, t in fits):.1f} to {max(t / a for _, a, t in fits):.1f} times"
    return PlanWarning(
        code="total_params",
        message=f"active_params = {n:g} is {whose}. Hours come out {off} too high. Give the "
        f"active parameters; for a dense model of that size give total_params too.",
        factor=fits[0][1] / fits[0][2] if len(fits) == 1 else None,
    )


def _mixtures_of_total(n: float) -> list[tuple[str, float, float]]:
    """Return name, active and stored parameters of the mixtures on file that store n, each model once.

    A total to all its digits decides alone. Models of a systems study (random routing) count only so: near
    them lie dense models that people train.
    """
    rows = [(r.name, r.active_params, r.total_params, _NEAR) for r in published_runs()]
    points = [
        (p.name, p.active_params, p.total_params, _EXACT if (p.routing or "").startswith("random") else _NEAR)
        for p in operating_points()
    ]
    found: dict[tuple[float, float], tuple[str, float, float]] = {}
    for name, active, stored, off in [*rows, *points]:
        if active is None or stored is None or stored <= 1.5 * active:
            continue
        if abs(n - stored) <= off * stored:
            found.setdefault((active, stored), (name, active, stored))
    exact = [row for row in found.values() if abs(n - row[2]) <= _EXACT * row[2]]
    return exact or list(found.values())


def _mfu(plan: Plan) -> PlanWarning | None:
    high = _highest_mfu(plan)
    if high <= HIGH_MFU or _is_measured(plan.sources.get("mfu", "")):
        return None
    return PlanWarning(
        code="mfu_assumed_high",
        message=f"An MFU of {high:g} is assumed, not measured: published runs of this kind deliver 0.35 to "
        f"0.43 in the step, so hours are likely {high / 0.40:.1f} times too low. Measure it on a short run "
        f"at the target scale and layout, and say so in [plan.sources] mfu.",
        factor=high / 0.40,
    )


def _highest_mfu(plan: Plan) -> float:
    return max([plan.mfu, *(s.mfu for s in plan.stages if s.mfu is not None)])


def _is_measured(text: str) -> bool:
    """Return whether a source says that a value was measured, not that it will or should be.

    >>> _is_measured("Measured on 512 GPUs"), _is_measured("to be measured"), _is_measured("not yet measured")
    (True, False, False)
    """
    return any(not _NOT_YET.search(text[: hit.start()]) for hit in _MEASURED.finditer(text))


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
    )
    at = f"every {best.best_interval_min:.3g} min" if best.best_interval_min else "as often as storage allows"
    top = best.best_goodput_ratio or 0.0
    better = f"Checkpointing {at} would reach {top:.3f}; else plan with {reach:.3f}."
    if reach == 0 or top < 5e-4 or best.model != "linear":
        better = "No checkpoint interval makes that work: restart faster, or fail less often."
    return PlanWarning(
        code="goodput_unreachable",
        message=f"A goodput of {claimed:g} is above the {reach:.3f} that {f.per_day:g} failures a day, "
        f"{f.restart_min:g} min restarts and a checkpoint every {f.checkpoint_interval_min:g} min allow: "
        f"hours are {_times(claimed, reach)}. {better}",
        factor=claimed / reach if reach > 0 else None,
    )


def _times(claimed: float, reach: float) -> str:
    return f"{claimed / reach:.2f} times too low" if reach > 0 else "without bound: the run does not get on"


def _precision(plan: Plan, gpu: str | None, precision: str | None) -> PlanWarning | None:
    if plan.peak is None:
        return None
    trained = canonical_precision(precision) if precision else plan.peak.precision
    if trained not in ("fp8", "fp4"):
        return None
    return _wide_peak(plan, gpu, trained) or _wide_mfu(plan, gpu)


def _wide_peak(plan: Plan, gpu: str | None, trained: str) -> PlanWarning | None:
    """Return the warning of a BF16 (FP16) peak under a run that trains in a narrower precision."""
    peak = plan.peak
    if peak is None or plan.sources.get("peak") or plan.sources.get("precision"):
        return None
    same = [p for p in dense_matches(peak.tflop_per_s, gpu=gpu or peak.gpu) if p.precision in _WIDE]
    if not same:
        return None
    wide = min(same, key=lambda p: _WIDE.index(p.precision))
    row = lookup(wide.gpu or "")
    own = row.peaks.get(trained)
    if own is None or own.value <= 1.01 * wide.value:
        return None
    share = wide.value / own.value
    by_default = any(a.name == "mfu" and a.is_default for a in plan.assumptions)
    return PlanWarning(
        code="precision_mismatch",
        message=f"The run trains in {trained} but {peak.tflop_per_s:,.0f} TFLOP/s is the {row.title}'s "
        f"{wide.precision} peak; its dense {trained} peak is {own.tflop_per_s:,.0f}. With an MFU that was "
        f"taken against {wide.precision} the hours stand; with one against {trained} they are "
        f"{share:.2g} of the plan's. Say which in [plan.sources] peak, and take the MFU from a run that used "
        f"the same.",
        factor=1.0 if by_default else None,
    )


def _wide_mfu(plan: Plan, gpu: str | None) -> PlanWarning | None:
    """Return the warning of an MFU that only a BF16 peak makes likely, set on a narrower one's."""
    peak, said = plan.peak, plan.sources.get("mfu", "")
    if peak is None or peak.precision not in ("fp8", "fp4") or _is_measured(said) or _NARROW.search(said):
        return None
    high = _highest_mfu(plan)
    if high > HIGH_MFU:
        return None  # mfu_assumed_high says more
    same = [p for p in dense_matches(peak.tflop_per_s, gpu=gpu or peak.gpu) if p.precision == peak.precision]
    row = lookup(same[0].gpu or "") if same else None
    wide = row.peaks.get("bf16") if row is not None else None
    if row is None or wide is None or peak.value <= 1.01 * wide.value:
        return None
    delivered = high * peak.value / wide.value
    if delivered <= 1.01 * HIGH_MFU:
        return None
    factor = peak.value / wide.value
    by_default = any(a.name == "mfu" and a.is_default for a in plan.assumptions)
    return PlanWarning(
        code="precision_mismatch",
        message=f"An MFU of {high:g} of the {row.title}'s dense {peak.precision} peak is "
        f"{high * peak.tflop_per_s:,.0f} TFLOP/s, {delivered:.2f} of its bf16 peak: the usual MFUs of 0.35 "
        f"to 0.43 are against bf16{_reached(peak.precision)}. If this one is against bf16, hours are "
        f"{factor:.1f} times too low. Use the bf16 peak as the reference, or an MFU measured against "
        f"{peak.precision}, and say so in [plan.sources] mfu.",
        factor=factor if by_default else None,
    )


def _reached(precision: str) -> str:
    """Return, in words, the shares of their own peak that published points of a narrow precision reach."""
    shares = []
    for p in operating_points():
        if p.gpu is None or p.tflop_per_s is None or not p.precision:
            continue
        own = lookup(p.gpu).peaks.get(precision)
        if own is not None and canonical_precision(p.precision) == precision:
            shares.append(p.tflop_per_s / own.tflop_per_s)
    if not shares:
        return ""
    span = f"{min(shares):.2f} to {max(shares):.2f}"
    return f", and short {precision} benchmarks reach {span} of the {precision} peak"


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
        if lookup(conversion.from_gpu).name == lookup(conversion.to_gpu).name:
            return None
        sheet = spec_sheet_ratio(conversion.from_gpu, conversion.to_gpu)
        if abs(conversion.ratio - sheet) > 0.03 * sheet:
            return None
        delivered = _delivered_ratio(conversion)
        factor = conversion.ratio / delivered if delivered is not None else None
        return PlanWarning(
            code="spec_sheet_conversion",
            message=f"Hours were converted from {conversion.from_gpu} to {conversion.to_gpu} by "
            f"{conversion.ratio:.2f}, the ratio of dense peaks, but devices deliver different shares of "
            f"them: {_by_runs(delivered, factor)}. Convert by measured throughput (tracker convert).",
            factor=factor,
        )
    for key, text in plan.sources.items():
        if _SHEET.search(text) and key not in ("peak", "gpu", "precision", "gpu_power_w"):
            return PlanWarning(
                code="spec_sheet_conversion",
                message=f"[plan.sources] {key} rests on a spec sheet ({text!r}). Devices deliver different "
                f"shares of their peaks: published A100 and H100 runs differ by 2.5 where their peaks differ "
                f"by 3.2. Convert by measured throughput (tracker convert).",
            )
    return None


def _delivered_ratio(conversion: PlannedConversion) -> float | None:
    """Return what the devices' published runs delivered, to over from; None where one is not on file."""
    try:
        before = delivered_by(conversion.from_gpu)[1].delivered_tflop_per_s
        return delivered_by(conversion.to_gpu)[1].delivered_tflop_per_s / before
    except InvalidValue:
        return None


def _by_runs(delivered: float | None, factor: float | None) -> str:
    if delivered is None or factor is None:
        return "by how much here is not known, for want of a published run of both"
    off = f"{factor:.2f} times too low" if factor >= 1 else f"{1 / factor:.2f} times too high"
    return f"their published runs by {delivered:.2f}. Hours are likely {off}"


def _dates_and_money(plan: Plan, reservation_end: datetime | None) -> list[PlanWarning]:
    out = []
    finish = plan.finish_at()
    for code, name, limit in (
        ("after_reservation", "the reservation ends", reservation_end),
        ("after_deadline", "the deadline", plan.deadline),
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
                money_factor=cost / plan.budget,
            )
        )
    return out
