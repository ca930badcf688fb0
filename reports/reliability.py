"""Goodput, checkpoints, MTBF and root causes as tables.

Pure. All rounding is here; every number comes from the core.
"""

from __future__ import annotations

from collections.abc import Sequence

from reports.figures import figure, notes, span, text
from reports.numbers import UNKNOWN, per_cent
from reports.tables import Table
from tracker.core.definitions import GoodputByDefinition
from tracker.core.failures import PROJECTION_WARNING, CauseTable, Mtbf, Projection
from tracker.core.goodput_model import CheckpointAdvice, GoodputLosses
from tracker.core.variance import Variance


def goodput_table(
    losses: GoodputLosses,
    advice: CheckpointAdvice,
    *,
    goodput_ratio: float | None,
    interval_min: float | None,
    gpu_hours: float | None = None,
) -> Table:
    """Return the failure model's goodput, where the rest goes, and the best interval."""
    a = advice
    sure = ""
    if a.best_interval_range_min is not None:
        sure = f"90 %: {span(*a.best_interval_range_min)} min, by the failures seen"
    rows = [
        (
            "goodput",
            figure(goodput_ratio),
            f"at {interval_min:g} min" if interval_min else "give an interval",
        ),
        ("  lost to restarts", per_cent(losses.restart_ratio), "failures x restart"),
        ("  lost to redone work", per_cent(losses.redo_ratio), "failures x half an interval"),
        ("  lost to saves", per_cent(losses.checkpoint_ratio), "stall over interval"),
        ("mean time between failures, min", figure(a.mtbf_min), ""),
        ("best interval, min", figure(a.best_interval_min), sure or _why(a)),
        ("  by Young", figure(a.young_min), "sqrt(2 s M)"),
        ("  by Daly", figure(a.daly_min), "higher order"),
        (
            "  by the exponential model",
            figure(a.exponential_best_min),
            "failures strike saves and restarts too",
        ),
        ("best goodput", figure(a.best_goodput_ratio), ""),
        ("gain", per_cent(a.gain_ratio), "more steps in the same hours"),
    ]
    if a.gpu_hours_saved is not None:
        rows.append(("GPU-hours saved", figure(a.gpu_hours_saved), f"of {figure(gpu_hours)}, same steps"))
    if a.money_saved is not None:
        rows.append(("money saved", figure(a.money_saved), ""))
    return Table(title="Goodput by the failure model", headings=("", ">value", "by"), rows=rows)


def _why(a: CheckpointAdvice) -> str:
    if a.best_interval_min is not None:
        return "maximises the model"
    if a.mtbf_min is None:
        return "none: without failures, never"
    return "none: saves cost nothing, so as often as storage allows"


def mtbf_tables(
    rate: Mtbf,
    projections: Sequence[Projection],
    *,
    days: float,
    gpus: int,
    gpus_per_node: int,
    is_poisson: bool,
) -> list[Table]:
    """Return MTBF with its intervals, and the projections with what to know about them."""
    rows = [
        ("device, hours", figure(rate.device_hours), span(*rate.device_hours_interval)),
        ("device, years", figure(rate.device_years), ""),
        ("job, hours", figure(rate.job_hours), span(*rate.job_hours_interval)),
        ("interruptions a day", figure(rate.per_day), ""),
        (f"per 1,000 node-days ({gpus_per_node} a node)", figure(rate.per_1000_node_days(gpus_per_node)), ""),
    ]
    watched = f"{rate.interruptions:,} unexpected interruptions in {days:g} days on {gpus:,} GPUs"
    tables = [
        Table(
            title=f"MTBF from {watched}",
            headings=("", ">value", ">90 % interval"),
            rows=rows,
            notes=notes([
                "Every interruption counts, software and network too, by each GPU's share: this is no "
                "vendor's rating.",
                "The interval takes failures as independent; for bunched ones give --gap-cv."
                if is_poisson
                else f"The interval is widened for bunched failures: dispersion {rate.dispersion:.2f}.",
            ]),
        )
    ]
    if projections:
        tables.append(
            Table(
                title="Projected to other sizes, not measured",
                headings=(">GPUs", ">job MTBF, hours", ">90 % interval", ">a day"),
                rows=[
                    (text(p.gpus), figure(p.hours), span(*p.hours_interval), figure(p.per_day))
                    for p in projections
                ],
                notes=notes([PROJECTION_WARNING]),
            )
        )
    return tables


def causes_beside_published(table: CauseTable) -> Table:
    """Return a run's root causes beside the published ones, and how many needed a person."""
    p = table.published
    person = f"{table.manual} of {table.total}" if table.manual is not None else "not recorded here"
    return Table(
        title="Root causes beside the published table (shares by counts)",
        headings=("cause", "category", ">here", ">share", ">published", ">share"),
        rows=[
            (
                r.cause,
                text(r.category),
                text(r.count),
                per_cent(r.share),
                text(r.published_count),
                per_cent(r.published_share),
            )
            for r in table.rows
        ],
        notes=notes([
            f"GPU-caused: {per_cent(table.gpu_share)} here; published {per_cent(p.gpu_share)} by counts and "
            f"{per_cent(p.stated_gpu_share)} in its text. {p.caveat}",
            f"Needed a person: {person}; published {p.manual} of {p.total}.",
        ]),
    )


def definitions_table(definitions: Sequence[GoodputByDefinition]) -> Table:
    """Return one run's goodput by each definition."""
    return Table(
        title="Goodput by definition",
        headings=("definition", ">goodput", "counts", "of", "used by"),
        rows=[(d.name, per_cent(d.ratio), d.numerator, d.denominator, d.used_by) for d in definitions],
    )


def variance_table(v: Variance) -> Table:
    """Return the run against its plan, part by part; positive is more hours, or later."""
    return Table(
        title="Against the plan (positive is more hours, or later)",
        headings=("part", ">GPU-hours", ">days", "biggest cause"),
        rows=[(p.name, _signed(p.gpu_hours), _signed(p.days), p.cause) for p in v.parts],
        foot=("total", _signed(v.gpu_hours), _signed(v.days), ""),
    )


def _signed(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return figure(value) if value <= 0 else f"+{figure(value)}"
