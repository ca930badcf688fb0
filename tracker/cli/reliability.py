"""`tracker goodput` and `tracker mtbf`: what failures cost, and how often they come.

Edge: every number comes from the core, every rounding from reports.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from reports.reliability import causes_beside_published, goodput_table, mtbf_tables
from tracker.cli._calc import QUANTITY, print_json, print_tables, usage
from tracker.cli._options import json_option
from tracker.core._checks import count, positive
from tracker.core.errors import InvalidValue
from tracker.core.failures import PROJECTION_WARNING, CauseTable, cause_table, project
from tracker.core.failures import mtbf as mean_time
from tracker.core.goodput_model import checkpoint_advice, goodput_losses
from tracker.core.goodput_model import goodput as goodput_of


@click.command()
@click.option("--failures-per-day", type=float, help="Unexpected interruptions a day.")
@click.option("--interruptions", type=int, help="Instead: how many were seen, with --days.")
@click.option("--days", type=float, help="Days they were seen in; brings the advice's uncertainty.")
@click.option("--restart-min", type=float, required=True, help="Minutes from a failure to the next step.")
@click.option("--checkpoint-interval-min", type=float, help="Minutes between checkpoints.")
@click.option("--checkpoint-stall-min", type=float, default=0.0, help="Blocking minutes of a save.")
@click.option("--gpu-hours", type=QUANTITY, help="An allocation, to put the gain in hours.")
@click.option("--gpu-hour-price", type=float, help="Money per GPU-hour, to put it in money.")
@json_option
@usage
def goodput(
    failures_per_day: float | None,
    interruptions: int | None,
    days: float | None,
    restart_min: float,
    checkpoint_interval_min: float | None,
    checkpoint_stall_min: float,
    gpu_hours: float | None,
    gpu_hour_price: float | None,
    as_json: bool,
) -> None:
    """Goodput from failures, restarts and checkpoints.

    1 - F (R + C/2)/1440 - s/C for F failures a day, R minutes to restart, C minutes between checkpoints
    that stall training for s minutes each; and the C that serves best.

    \b
    Example:
      tracker goodput --failures-per-day 8 --restart-min 10 \\
        --checkpoint-interval-min 30 --checkpoint-stall-min 0.5
    """
    per_day, spread = _failure_rate(failures_per_day, interruptions, days)
    ratio = None
    if checkpoint_interval_min is not None:
        ratio = goodput_of(
            failures_per_day=per_day,
            restart_min=restart_min,
            checkpoint_interval_min=checkpoint_interval_min,
            checkpoint_stall_min=checkpoint_stall_min,
        )
    advice = checkpoint_advice(
        failures_per_day=per_day,
        restart_min=restart_min,
        checkpoint_stall_min=checkpoint_stall_min,
        checkpoint_interval_min=checkpoint_interval_min,
        mtbf_range_min=spread,
        gpu_hours=gpu_hours,
        gpu_hour_price=gpu_hour_price,
    )
    losses = goodput_losses(
        failures_per_day=per_day,
        restart_min=restart_min,
        checkpoint_interval_min=checkpoint_interval_min,
        checkpoint_stall_min=checkpoint_stall_min,
    )
    if not as_json:
        print_tables([
            goodput_table(
                losses,
                advice,
                goodput_ratio=ratio,
                interval_min=checkpoint_interval_min,
                gpu_hours=gpu_hours,
            )
        ])
        return
    best_range = advice.best_interval_range_min
    print_json({
        "goodput_ratio": ratio,
        "best_checkpoint_interval_min": advice.best_interval_min,
        "best_goodput_ratio": advice.best_goodput_ratio,
        "failures_per_day": per_day,
        "mtbf_min": advice.mtbf_min,
        "mtbf_min_ci90": list(spread) if spread else None,
        "young_min": advice.young_min,
        "daly_min": advice.daly_min,
        "exponential_best_min": advice.exponential_best_min,
        "best_checkpoint_interval_min_ci90": list(best_range) if best_range else None,
        "losses": asdict(losses),
        "gain_ratio": advice.gain_ratio,
        "gpu_hours_saved": advice.gpu_hours_saved,
        "money_saved": advice.money_saved,
    })


def _failure_rate(
    per_day: float | None, interruptions: int | None, days: float | None
) -> tuple[float, tuple[float, float | None] | None]:
    if per_day is not None:
        if interruptions is not None or days is not None:
            raise click.UsageError("give --failures-per-day, or --interruptions with --days, not both")
        return per_day, None
    if interruptions is None or days is None:
        raise click.UsageError("missing --failures-per-day, or --interruptions with --days")
    hours = 24 * positive("--days", days, "days above 0")
    rate = mean_time(
        device_hours=hours, job_hours=hours, interruptions=count("--interruptions", interruptions, least=0)
    )
    low, high = rate.job_hours_interval
    return rate.per_day, (low * 60, high * 60 if high is not None else None)


@click.command()
@click.option("--days", type=float, help="Days watched.")
@click.option("--gpus", type=int, help="GPUs of the job.")
@click.option("--interruptions", type=int, help="Unexpected ones in those days; 0 gives a bound.")
@click.option("--project-gpus", metavar="N,N,...", help="Other sizes to project to.")
@click.option("--gpus-per-node", type=int, default=8, help="For the rate per node-day. Default: 8.")
@click.option("--gap-cv", type=float, help="Coefficient of variation of the gaps (Poisson: 1).")
@click.option("--causes", metavar="CAUSE=N,...", help="Root causes, to set beside the published table.")
@click.option("--manual", type=int, help="How many of them needed a person.")
@json_option
@usage
def mtbf(
    days: float | None,
    gpus: int | None,
    interruptions: int | None,
    project_gpus: str | None,
    gpus_per_node: int,
    gap_cv: float | None,
    causes: str | None,
    manual: int | None,
    as_json: bool,
) -> None:
    """Mean time between failures, with its interval.

    Per device and per job, by an exact Poisson interval that also holds for no failure at all; projected
    to other sizes where asked, with the warning that belongs to it.

    \b
    Example:
      tracker mtbf --days 54 --gpus 16384 --interruptions 419 --project-gpus 1024,131072
    """
    table = cause_table(_counts(causes), manual=manual) if causes else None
    if table is not None and interruptions is None:
        interruptions = table.total
    named = (("--days", days), ("--gpus", gpus), ("--interruptions", interruptions))
    absent = [flag for flag, value in named if value is None]
    if days is None or gpus is None or interruptions is None:
        raise click.UsageError(f"missing {', '.join(absent)}")
    if table is not None and table.total != interruptions:
        raise InvalidValue("--causes", table.total, f"causes that sum to --interruptions = {interruptions}")
    hours = 24 * positive("--days", days, "days above 0")
    rate = mean_time(
        device_hours=hours * count("--gpus", gpus),
        job_hours=hours,
        interruptions=count("--interruptions", interruptions, least=0),
        dispersion=positive("--gap-cv", gap_cv) ** 2 if gap_cv is not None else 1.0,
    )
    projections = [project(rate, size) for size in _sizes(project_gpus)]
    per_node = rate.per_1000_node_days(gpus_per_node)
    if not as_json:
        shown = mtbf_tables(
            rate, projections, days=days, gpus=gpus, gpus_per_node=gpus_per_node, is_poisson=gap_cv is None
        )
        print_tables([*shown, causes_beside_published(table)] if table is not None else shown)
        return
    print_json({
        "device_hours": rate.device_hours,
        "device_hours_ci90": list(rate.device_hours_interval),
        "device_years": rate.device_years,
        "job_hours": rate.job_hours,
        "job_hours_ci90": list(rate.job_hours_interval),
        "per_day": rate.per_day,
        "per_1000_node_days": per_node,
        "dispersion": rate.dispersion,
        "projections": [
            {"gpus": p.gpus, "hours": p.hours, "hours_ci90": list(p.hours_interval), "per_day": p.per_day}
            for p in projections
        ],
        "causes": _causes(table) if table is not None else None,
        "warnings": [{"code": "projected", "message": PROJECTION_WARNING}] if projections else [],
    })


def _sizes(text: str | None) -> list[int]:
    try:
        return [int(part) for part in (text or "").split(",") if part.strip()]
    except ValueError:
        expected = "whole numbers parted by commas, such as 1024,131072"
        raise InvalidValue("--project-gpus", text, expected) from None


def _counts(text: str) -> dict[str, int]:
    out: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        try:
            out[name.strip()] = out.get(name.strip(), 0) + int(value)
        except ValueError:
            raise InvalidValue("--causes", part, "CAUSE=N, such as gpu=3") from None
    return out


def _causes(table: CauseTable) -> dict[str, Any]:
    p = table.published
    return {
        "rows": [asdict(row) for row in table.rows],
        "total": table.total,
        "gpu_share": table.gpu_share,
        "manual": table.manual,
        "manual_share": table.manual_share,
        "published": {
            "total": p.total,
            "manual": p.manual,
            "gpu_share_by_count": p.gpu_share,
            "gpu_share_stated": p.stated_gpu_share,
            "caveat": p.caveat,
        },
    }
