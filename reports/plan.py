"""A plan as tables: what it comes to, what it rests on, what is likely wrong, and the chain.

Pure. All rounding is here; every number comes from the core.
"""

from __future__ import annotations

from collections.abc import Sequence

from reports.figures import figure, notes, plain, quantity, text
from reports.numbers import UNKNOWN, per_cent
from reports.tables import Table
from tracker.core.chain import Chain
from tracker.core.energy import carbon_t
from tracker.core.hardware import dense_matches, sparse_matches
from tracker.core.plan import Estimate, Plan
from tracker.core.plan_check import PlanWarning
from tracker.core.prices import EXCLUDED
from tracker.core.run_plan import MeasuredPlan


def plan_tables(
    plan: Plan,
    e: Estimate,
    warnings: Sequence[PlanWarning],
    chains: Sequence[Chain] = (),
    unchecked: Sequence[str] = (),
) -> list[Table]:
    """Return the plan, its stages and assumptions, the chain where asked for, and the warnings.

    `unchecked` are limits that were given and could not be checked, in words.
    """
    tables = [_estimate(plan, e, unchecked)]
    if plan.stages:
        tables.append(_stages(plan, e))
    tables.append(_assumptions(plan))
    if chains:
        tables.append(chain_table(chains))
    if warnings:
        tables.append(
            Table(
                title="Warnings",
                headings=("code", ">likely hours over planned"),
                rows=[(w.code, _factor(w)) for w in warnings],
                notes=notes(f"{w.code}: {w.message}" for w in warnings),
            )
        )
    return tables


def _factor(warning: PlanWarning) -> str:
    if warning.money_factor is not None:
        return f"{warning.money_factor:.2f} of budget"
    return f"{warning.factor:.2f}" if warning.factor else UNKNOWN


def measured_table(measured: MeasuredPlan) -> Table:
    """Return where each value of a plan made from a run came from, and why it may not hold."""
    return Table(
        title=f"Taken from {measured.run}",
        headings=("key", ">value", "from"),
        rows=[(row.name, _value(row.name, row.value), row.where) for row in measured.taken],
        notes=notes(f"{caution}." for caution in measured.cautions),
    )


def _value(name: str, value: float | int | str | None) -> str:
    if value is None or isinstance(value, str):
        return text(value)
    return quantity(value) if name in ("active_params", "tokens") else f"{value:,.4g}"


def _estimate(plan: Plan, e: Estimate, unchecked: Sequence[str]) -> Table:
    peak = plan.peak
    cost, energy = plan.cost(), plan.energy_mwh()
    flop = e.main.flop
    rows = [
        ("model FLOP", figure(e.model_flop), f"{flop.value / 1e9:,.4g} GFLOP a token, {flop.method}"),
        ("ideal GPU-hours", figure(e.ideal_gpu_hours), _peak_words(plan)),
        ("step GPU-hours", figure(e.step_gpu_hours), f"MFU {float(plan.mfu):.4g}"),
        ("billed GPU-hours", figure(e.billed_gpu_hours), f"goodput {float(plan.goodput):.4g}"),
        ("final-run GPU-hours", figure(e.final_gpu_hours), f"later stages {plan.later_fraction:g}"),
        ("programme GPU-hours", figure(e.programme_gpu_hours), f"multiplier {float(plan.rnd_multiplier):g}"),
        ("GPU-hours per 1e12 tokens", figure(e.gpu_hours_per_trillion_tokens), "main stage, billed"),
        ("days", figure(e.days, 4), _gpus(plan)),
    ]
    if e.finish_at is not None:
        rows.append(("finish", f"{e.finish_at:%Y-%m-%d %H:%M}", "UTC"))
    if cost is not None:
        rows.append((f"cost, {plan.currency}", figure(cost), "final run"))
        rows.append((
            f"programme cost, {plan.currency}",
            figure(cost * plan.rnd_multiplier),
            "at the same price",
        ))
    if energy is not None:
        over = f"facility overhead {plan.facility_overhead:g}"
        rows.append(("energy, MWh", figure(energy), f"final run at {plain(plan.power_w)} W a GPU, {over}"))
        if plan.carbon_kg_per_mwh is not None:
            carbon = carbon_t(mwh=energy, kg_per_mwh=plan.carbon_kg_per_mwh)
            rows.append(("carbon, t CO2e", figure(carbon), f"{plan.carbon_kg_per_mwh:g} kg per MWh"))
    others = [(v, s) for v, s in peak.alternatives if abs(v / peak.value - 1) > 0.01] if peak else []
    return Table(
        title="Plan",
        headings=("", ">value", "by"),
        rows=rows,
        notes=notes([
            *(f"Another published peak: {v / 1e12:,g} TFLOP/s ({s.title})." for v, s in others),
            *(f"Not checked: {text}." for text in unchecked),
            EXCLUDED if cost is not None else "",
        ]),
    )


def _gpus(plan: Plan) -> str:
    if any(stage.gpus is not None for stage in plan.stages):
        return "stage after stage"
    return f"on {plan.gpus:,} GPUs" if plan.gpus else "unknown without --gpus"


def _peak_words(plan: Plan) -> str:
    if plan.peak is None:
        return UNKNOWN
    is_given = plan.peak.gpu is None or plan.peak.source.mark == "given"
    who = plan.peak.source.title if is_given else plan.peak.gpu
    of = plan.peak.precision
    rate = f"{plan.peak.tflop_per_s:,g} TFLOP/s"
    if is_given and sparse_matches(plan.peak.tflop_per_s, of, gpu=plan.peak.gpu):
        return f"{rate} {of} with sparsity, {who}"
    same = {p.precision for p in dense_matches(plan.peak.tflop_per_s, gpu=plan.peak.gpu)}
    if is_given and same and of in ("fp8", "fp4") and of not in same:
        return f"{rate}, a dense {'bf16' if 'bf16' in same else min(same)} peak beside {of} training, {who}"
    return f"{rate} dense {of}, {who}"


def _stages(plan: Plan, e: Estimate) -> Table:
    return Table(
        title="Stages",
        headings=("stage", ">tokens", ">sequence", ">GPUs", ">GPU-hours", ">days"),
        rows=[
            (
                s.name,
                quantity(s.tokens),
                text(listed.sequence_length or plan.sequence_length),
                text(s.gpus),
                figure(s.billed_gpu_hours),
                figure(s.days, 4),
            )
            for s, listed in zip(e.stages, plan.stages, strict=True)
        ],
    )


def _assumptions(plan: Plan) -> Table:
    return Table(
        title="Assumptions",
        headings=("key", ">value", "source"),
        rows=[
            (
                a.name,
                f"{a.value:.4g}",
                a.source
                or ("assumed: left out, the default" if a.is_default else "assumed: given without a source"),
            )
            for a in plan.assumptions
        ],
    )


def chain_table(chains: Sequence[Chain], title: str = "The chain") -> Table:
    """Return plan, run and published runs link by link, with their caveats; rows are not ranked."""
    return Table(
        title=f"{title} (device-hours; rows are not ranked)",
        headings=(
            "", ">FLOP", ">peak", ">ideal h", ">MFU", ">step h", ">goodput", ">billed h",
            ">MFU(alloc.)", ">h per 1e12", ">cost per 1e12", ">MWh",
        ),
        rows=[
            (
                c.name,
                figure(c.model_flop),
                f"{c.peak_tflop_per_s:,g} {c.precision}" if c.peak_tflop_per_s else UNKNOWN,
                figure(c.ideal_gpu_hours),
                per_cent(c.mfu_ratio),
                figure(c.step_gpu_hours),
                per_cent(c.goodput_ratio),
                figure(c.billed_gpu_hours),
                per_cent(c.mfu_allocated_ratio),
                figure(c.gpu_hours_per_trillion_tokens),
                figure(c.cost_per_trillion_tokens),
                figure(c.energy_mwh),
            )
            for c in chains
        ],
        notes=notes(f"{c.name}: {c.caveat}" for c in chains if c.caveat),
    )  # fmt: skip
