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
from tracker.core.run_facts import NominalShare
from tracker.core.run_failures import RunAdvice, RunCheckpoints, RunFailures
from tracker.core.run_money import costs
from tracker.core.snapshot import Snapshot
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
            f"at {interval_min:g} min, {_model(a)}" if interval_min else "give an interval",
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
        ("best goodput", figure(a.best_goodput_ratio), _model(a)),
        ("gain", per_cent(a.gain_ratio), "more steps in the same hours"),
    ]
    if a.gpu_hours_saved is not None:
        rows.append(("GPU-hours saved", figure(a.gpu_hours_saved), f"of {figure(gpu_hours)}, same steps"))
    if a.money_saved is not None:
        rows.append(("money saved", figure(a.money_saved), ""))
    return Table(
        title="Goodput by the failure model",
        headings=("", ">value", "by"),
        rows=rows,
        notes=notes(_limits(a)),
    )


def _model(a: CheckpointAdvice) -> str:
    if not a.is_rate_known:
        return "unknown before a failure"
    return "the model" if a.model == "linear" else "the exponential model"


def _limits(a: CheckpointAdvice) -> list[str]:
    """Return what a reader must know of how far the advice reaches."""
    if not a.is_rate_known:
        return ["No failure seen yet is no rate: only a bound on the best interval is known, and no gain."]
    if a.model == "exponential":
        return [
            "The simple model does not reach here (an interval beyond the mean time between failures, or a "
            "goodput near 0): goodput, best interval and gain are by the exponential model, the losses above "
            "still by the simple one."
        ]
    return []


def _why(a: CheckpointAdvice) -> str:
    if a.best_interval_min is not None:
        return "maximises the model"
    if not a.is_rate_known:
        return "unknown: no failure seen yet"
    if a.mtbf_min is None:
        return "none: without failures, never"
    if a.best_goodput_ratio == 0:
        return "none: failures leave no time to train"
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
    watched = f"{_interruptions(rate)} in {days:g} days on {gpus:,} GPUs"
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
                else f"The interval is widened for bunched failures: dispersion {rate.dispersion:.2f}."
                if rate.dispersion > 1
                else "The gaps are no more bunched than chance has them: the interval is not widened.",
            ]),
        )
    ]
    if projections:
        tables.append(_projected(projections))
    return tables


def _interruptions(rate: Mtbf) -> str:
    return f"{rate.interruptions:,} unexpected interruption{'' if rate.interruptions == 1 else 's'}"


def _projected(projections: Sequence[Projection]) -> Table:
    return Table(
        title="Projected to other sizes, not measured",
        headings=(">GPUs", ">job MTBF, hours", ">90 % interval", ">a day"),
        rows=[
            (text(p.gpus), figure(p.hours), span(*p.hours_interval), figure(p.per_day)) for p in projections
        ],
        notes=notes([PROJECTION_WARNING]),
    )


def causes_beside_published(table: CauseTable, *, name: str = "") -> Table:
    """Return a run's root causes beside the published ones, and how many needed a person."""
    p = table.published
    person = f"{table.manual} of {table.total}" if table.manual is not None else "not recorded here"
    whose = f"Root causes of {name}" if name else "Root causes"
    return Table(
        title=f"{whose} beside the published table (shares by counts)",
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


def definitions_table(definitions: Sequence[GoodputByDefinition], *, name: str = "") -> Table:
    """Return one run's goodput by each definition."""
    return Table(
        title=f"Goodput of {name} by definition" if name else "Goodput by definition",
        headings=("definition", ">goodput", "counts", "of", "used by"),
        rows=[(d.name, per_cent(d.ratio), d.numerator, d.denominator, d.used_by) for d in definitions],
    )


def nominal_table(shares: Sequence[NominalShare], *, nominal_step_s: float | None, given: bool) -> Table:
    """Return each attempt's goodput beside the one by a nominal step time; what is above 1 says why."""
    whose = "given" if given else "the run's usual one"
    return Table(
        title=f"By attempt, at a nominal step of {figure(nominal_step_s, 4)} s ({whose})",
        headings=(">#", ">hours", ">steps kept", ">s a step", ">ours", ">nominal", "why above 1"),
        rows=[
            (
                str(s.attempt),
                figure(s.hours),
                text(s.steps_net),
                figure(s.step_time_s, 4),
                figure(s.ours_ratio),
                UNKNOWN if s.nominal_ratio is None else f"{s.nominal_ratio:.3f}",
                s.reason,
            )
            for s in shares
        ],
        notes=notes([
            "Ours is productive over allocated time and never above 1. The nominal one is steps kept x "
            "nominal step over the same time: it falls with slow steps and is not clipped."
        ]),
    )


def run_goodput_tables(
    snapshot: Snapshot, known: RunCheckpoints | None, found: RunAdvice | None
) -> list[Table]:
    """Return a run's measured goodput beside the model's, and the advice on its checkpoint interval."""
    tables = [_measured(snapshot.run, known, found)]
    if found is not None:
        tables.append(_advice(snapshot, found))
    return tables


def _measured(name: str, known: RunCheckpoints | None, found: RunAdvice | None) -> Table:
    shares = known.shares if known is not None else None
    losses = found.losses if found is not None else None
    rows = [
        ("goodput", per_cent(shares.goodput_ratio if shares else None),
         per_cent(found.model_ratio if found else None), ""),
        ("  lost to restarts", per_cent(shares.restart_ratio if shares else None),
         per_cent(losses.restart_ratio if losses else None), "start-up and tail"),
        ("  lost to redone work", per_cent(shares.redo_ratio if shares else None),
         per_cent(losses.redo_ratio if losses else None), "the model: half an interval a failure"),
        ("  lost to saves", per_cent(shares.checkpoint_ratio if shares else None),
         per_cent(losses.checkpoint_ratio if losses else None), "blocking part"),
        ("  the rest", per_cent(shares.rest_ratio if shares else None), UNKNOWN,
         "evaluation, idle, unexplained: not in the model"),
    ]  # fmt: skip
    return Table(
        title=f"Goodput of {name}",
        headings=("", ">measured", ">by the model", ""),
        rows=rows,
        notes=notes(_missing(known) if found is None else []),
    )


def _missing(known: RunCheckpoints | None) -> list[str]:
    if known is None:
        return ["No attempt yet: ingest the run's logs first."]
    lacks = []
    if known.stall_min is None:
        lacks.append("no save is told by its log: give --checkpoint-stall-min and --checkpoint-interval-min")
    if known.restart_min is None and known.failures_per_day > 0:
        lacks.append("no restart was seen: give --restart-min")
    return [f"No advice on the checkpoint interval: {'; '.join(lacks)}."]


def _advice(snapshot: Snapshot, found: RunAdvice) -> Table:
    a, given = found.advice, found.given
    sure = span(*a.best_interval_range_min) if a.best_interval_range_min is not None else ""
    gains = found.gain_range
    money = costs(snapshot)
    rows = [
        ("failures a day", figure(given.failures_per_day), "" if a.is_rate_known else "none seen yet"),
        ("mean time between failures, min", figure(a.mtbf_min),
         span(*found.mtbf_range_min) if found.mtbf_range_min is not None else ""),
        ("restart, min", figure(given.restart_min), ""),
        ("blocking part of a save, min", figure(given.stall_min), ""),
        ("interval now, min", figure(given.interval_min), ""),
        ("best interval, min", figure(a.best_interval_min), sure or ("" if a.is_rate_known else _why(a))),
        ("  by Young", figure(a.young_min), ""),
        ("  by Daly", figure(a.daly_min), ""),
        ("  by the exponential model", figure(a.exponential_best_min), ""),
        (f"best goodput by the {'model' if a.model == 'linear' else 'exponential model'}",
         per_cent(a.best_goodput_ratio), ""),
        ("gain", per_cent(a.gain_ratio),
         f"{per_cent(gains[0])} to {per_cent(gains[1])}" if gains is not None else ""),
        ("GPU-hours saved", figure(a.gpu_hours_saved), f"of {figure(found.gpu_hours)} {found.gpu_hours_are}"),
    ]  # fmt: skip
    if a.money_saved is not None:
        currency = money.currency if money is not None else ""
        rows.append((
            f"money saved, {currency}".rstrip(", "),
            figure(a.money_saved),
            f"at {figure(found.gpu_hour_price)} a GPU-hour",
        ))
    return Table(
        title="Checkpoint interval, from the run's own failures, restarts and saves",
        headings=("", ">value", ">90 %, by the failures seen"),
        rows=rows,
        notes=notes([
            _why(a).capitalize() + "." if a.best_interval_min is None and a.is_rate_known else "",
            *_limits(a),
            "Gain is more steps in the same hours. It holds while failures come as they did and a save "
            "stalls as long as it did."
            if a.is_rate_known
            else "",
        ]),
    )


def run_mtbf_tables(
    found: RunFailures, projections: Sequence[Projection], *, name: str, gpus_per_node: int
) -> list[Table]:
    """Return a run's MTBF with exact and widened intervals, how its failures bunch, and projections."""
    rate, wide, gaps = found.rate, found.widened, found.gaps

    def widened(interval: tuple[float, float | None] | None) -> str:
        return span(*interval) if interval is not None else UNKNOWN

    rows = [
        ("device, hours", figure(rate.device_hours), span(*rate.device_hours_interval),
         widened(wide.device_hours_interval if wide else None)),
        ("device, years", figure(rate.device_years), "", ""),
        ("job, hours", figure(rate.job_hours), span(*rate.job_hours_interval),
         widened(wide.job_hours_interval if wide else None)),
        ("interruptions a day", figure(rate.per_day), "", ""),
        (f"per 1,000 node-days ({gpus_per_node} a node)", figure(rate.per_1000_node_days(gpus_per_node)),
         "", ""),
    ]  # fmt: skip
    if gaps is None:
        bunched = "Fewer than three failures: how they bunch is not known."
    else:
        bunched = (
            f"Gaps between failures: {gaps.gaps}, coefficient of variation "
            f"{gaps.coefficient_of_variation:.2f} (Poisson: 1), dispersion {gaps.index:.2f}"
            + ("." if wide is not None else ": no reason, or too few, to widen the interval.")
        )
    tables = [
        Table(
            title=f"MTBF of {name}: {_interruptions(rate)} in "
            f"{figure(rate.exposure_job_hours)} hours of attempts on {found.gpus:,.4g} GPUs",
            headings=("", ">value", ">90 % interval", ">widened for bunching"),
            rows=rows,
            notes=notes([
                bunched,
                "Every interruption counts, software and network too, by each GPU's share: this is no "
                "vendor's rating.",
            ]),
        )
    ]
    if projections:
        tables.append(_projected(projections))
    return tables


def variance_table(
    v: Variance, *, title: str = "Against the plan (positive is more hours, or later)"
) -> Table:
    """Return the run against its plan, part by part; positive is more hours, or later."""
    return Table(
        title=title,
        headings=("part", ">GPU-hours", ">days", "biggest cause"),
        rows=[(p.name, _signed(p.gpu_hours), _signed(p.days), p.cause) for p in v.parts],
        foot=("total", _signed(v.gpu_hours), _signed(v.days), ""),
    )


def _signed(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return figure(value) if value <= 0 else f"+{figure(value)}"
