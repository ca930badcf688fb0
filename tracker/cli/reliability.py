"""`tracker goodput` and `tracker mtbf`: what failures cost, and how often they come.

Edge: every number comes from the core, every rounding from reports.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from reports.reliability import (
    causes_beside_published,
    definitions_table,
    goodput_table,
    mtbf_tables,
    nominal_table,
    run_goodput_tables,
    run_mtbf_tables,
)
from tracker.cli._calc import (
    QUANTITY,
    REAL,
    WHOLE,
    causes_document,
    not_empty,
    only_with,
    print_json,
    print_tables,
    run_of,
    run_option,
    usage,
)
from tracker.cli._options import as_of_option, find_config, json_option
from tracker.cli._output import print_pairs
from tracker.core._checks import count, not_negative, positive
from tracker.core.definitions import goodput_definitions
from tracker.core.documents import iso
from tracker.core.errors import InvalidValue, nearest
from tracker.core.failures import PROJECTION_WARNING, CauseTable, Mtbf, Projection, cause_table, project
from tracker.core.failures import mtbf as mean_time
from tracker.core.goodput_model import CheckpointAdvice, GoodputLosses, checkpoint_advice, goodput_losses
from tracker.core.goodput_model import goodput as goodput_of
from tracker.core.records import CAUSES
from tracker.core.run_facts import nominal_of, nominal_shares, run_facts
from tracker.core.run_failures import (
    RunAdvice,
    RunCheckpoints,
    run_advice,
    run_causes,
    run_checkpoints,
    run_failures,
)
from tracker.core.run_money import costs
from tracker.core.snapshot import Snapshot


@click.command()
@run_option("Take a run's own failures, restarts and saves; other flags replace its figures.")
@as_of_option
@click.option("--definitions", is_flag=True, help="The run's goodput by every definition, side by side.")
@click.option("--nominal-step-s", type=REAL, help="A step's nominal time. Default: the run's usual one.")
@click.option("--failures-per-day", type=REAL, help="Unexpected interruptions a day.")
@click.option("--interruptions", type=WHOLE, help="Instead: how many were seen, with --days.")
@click.option("--days", type=REAL, help="Days they were seen in; brings the advice's uncertainty.")
@click.option("--restart-min", type=REAL, help="Minutes from a failure to the next step.")
@click.option("--checkpoint-interval-min", type=REAL, help="Minutes between checkpoints.")
@click.option("--checkpoint-stall-min", type=REAL, help="Blocking minutes of a save. Default: 0.")
@click.option("--gpu-hours", type=QUANTITY, help="An allocation, to put the gain in hours.")
@click.option("--gpu-hour-price", type=REAL, help="Money per GPU-hour, to put it in money.")
@json_option
@click.pass_context
@usage
def goodput(
    ctx: click.Context,
    config: Path | None,
    as_of: int | None,
    definitions: bool,
    nominal_step_s: float | None,
    failures_per_day: float | None,
    interruptions: int | None,
    days: float | None,
    restart_min: float | None,
    checkpoint_interval_min: float | None,
    checkpoint_stall_min: float | None,
    gpu_hours: float | None,
    gpu_hour_price: float | None,
    as_json: bool,
) -> None:
    """Goodput from failures, restarts and checkpoints.

    1 - F (R + C/2)/1440 - s/C for F failures a day, R minutes to restart, C minutes between checkpoints
    that stall training for s minutes each; and the C that serves best. With --config the figures are a
    run's own, beside its measured goodput; with --definitions that is told by every definition in use.

    \b
    Examples:
      tracker goodput --failures-per-day 8 --restart-min 10 \\
        --checkpoint-interval-min 30 --checkpoint-stall-min 0.5
      tracker goodput --config run.toml
      tracker goodput --definitions --config run.toml --nominal-step-s 14.0
    """
    if gpu_hour_price is not None:
        not_negative("--gpu-hour-price", gpu_hour_price, "a price of 0 or more per GPU-hour")
    only_with("--definitions", definitions, ("--nominal-step-s", nominal_step_s))
    only_with("--config", config or definitions, ("--as-of", as_of))
    if definitions:
        _, snapshot = run_of(find_config(ctx, config), as_of)
        _definitions(snapshot, nominal_step_s, as_json)
        return
    given = (failures_per_day, interruptions, days)
    per_day, spread = _failure_rate(*given) if config is None or given != (None, None, None) else (None, None)
    if config is not None:
        _, snapshot = run_of(config, as_of)
        known = run_checkpoints(snapshot)
        found = run_advice(
            snapshot,
            failures_per_day=per_day,
            mtbf_range_min=spread,
            restart_min=restart_min,
            interval_min=checkpoint_interval_min,
            stall_min=checkpoint_stall_min,
            gpu_hours=gpu_hours,
            gpu_hour_price=gpu_hour_price,
        )
        if not as_json:
            print_tables(run_goodput_tables(snapshot, known, found))
            return
        print_json(_run_goodput(snapshot, known, found))
        return
    if restart_min is None or per_day is None:
        raise click.UsageError("missing --restart-min")
    stall = checkpoint_stall_min if checkpoint_stall_min is not None else 0.0
    is_rate_known = failures_per_day is not None or per_day > 0
    if checkpoint_interval_min is not None:
        goodput_of(  # refuses what the model does not reach
            failures_per_day=per_day,
            restart_min=restart_min,
            checkpoint_interval_min=checkpoint_interval_min,
            checkpoint_stall_min=stall,
        )
    advice = checkpoint_advice(
        failures_per_day=per_day,
        restart_min=restart_min,
        checkpoint_stall_min=stall,
        checkpoint_interval_min=checkpoint_interval_min,
        mtbf_range_min=spread,
        gpu_hours=gpu_hours,
        gpu_hour_price=gpu_hour_price,
        is_rate_known=is_rate_known,
    )
    losses = goodput_losses(
        failures_per_day=per_day,
        restart_min=restart_min,
        checkpoint_interval_min=checkpoint_interval_min,
        checkpoint_stall_min=stall,
        is_rate_known=is_rate_known,
    )
    ratio = advice.current_goodput_ratio
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
    print_json(_advice(advice, losses, goodput_ratio=ratio, per_day=per_day, spread=spread))


def _advice(
    advice: CheckpointAdvice,
    losses: GoodputLosses,
    *,
    goodput_ratio: float | None,
    per_day: float,
    spread: tuple[float, float | None] | None,
) -> dict[str, Any]:
    best_range = advice.best_interval_range_min
    return {
        "goodput_ratio": goodput_ratio,
        "best_checkpoint_interval_min": advice.best_interval_min,
        "best_goodput_ratio": advice.best_goodput_ratio,
        "model": advice.model,
        "is_rate_known": advice.is_rate_known,
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
    }


def _run_goodput(snapshot: Snapshot, known: RunCheckpoints | None, found: RunAdvice | None) -> dict[str, Any]:
    """Return a run's advice as JSON: null where the log tells too little, with the measured figures."""
    money = costs(snapshot)
    shared: dict[str, Any] = {
        "run": snapshot.run,
        "as_of": iso(snapshot.as_of_us),
        "measured_goodput_ratio": snapshot.goodput_ratio,
        "measured": asdict(known) if known is not None else None,
        "currency": money.currency if money is not None else None,
    }
    if found is None:
        return {
            **shared,
            "goodput_ratio": None,
            "best_checkpoint_interval_min": None,
            "best_goodput_ratio": None,
        }
    return {
        **shared,
        **_advice(
            found.advice,
            found.losses,
            goodput_ratio=found.model_ratio,
            per_day=found.given.failures_per_day,
            spread=found.mtbf_range_min,
        ),
        "restart_min": found.given.restart_min,
        "checkpoint_interval_min": found.given.interval_min,
        "checkpoint_stall_min": found.given.stall_min,
        "gpu_hours": found.gpu_hours,
        "gpu_hours_are": found.gpu_hours_are,
        "gpu_hour_price": found.gpu_hour_price,
        "gain_ratio_ci90": list(found.gain_range) if found.gain_range is not None else None,
    }


def _definitions(snapshot: Snapshot, nominal_step_s: float | None, as_json: bool) -> None:
    nominal = nominal_step_s if nominal_step_s is not None else nominal_of(snapshot)
    rows = goodput_definitions(run_facts(snapshot, nominal_step_s=nominal_step_s))
    shares = nominal_shares(snapshot, nominal_step_s=nominal_step_s)
    if not as_json:
        print_tables([
            definitions_table(rows, name=snapshot.run),
            nominal_table(shares, nominal_step_s=nominal, given=nominal_step_s is not None),
        ])
        return
    print_json({
        "run": snapshot.run,
        "as_of": iso(snapshot.as_of_us),
        "nominal_step_s": nominal,
        "definitions": [asdict(row) for row in rows],
        "attempts": [asdict(share) for share in shares],
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
@run_option("Take a run's own failures, GPUs and root causes.")
@as_of_option
@click.option("--days", type=REAL, help="Days watched.")
@click.option("--gpus", type=WHOLE, help="GPUs of the job.")
@click.option("--interruptions", type=WHOLE, help="Unexpected ones in those days; 0 gives a bound.")
@click.option("--project-gpus", metavar="N,N,...", help="Other sizes to project to.")
@click.option("--gpus-per-node", type=WHOLE, default=8, help="For the rate per node-day. Default: 8.")
@click.option("--gap-cv", type=REAL, help="Coefficient of variation of the gaps (Poisson: 1).")
@click.option("--causes", metavar="CAUSE=N,...", help="Root causes, to set beside the published table.")
@click.option("--manual", type=WHOLE, help="How many of them needed a person.")
@json_option
@usage
def mtbf(
    config: Path | None,
    as_of: int | None,
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
    to other sizes where asked, with the warning that belongs to it. With --config it is a run's own, with
    how its failures bunch, and its root causes beside the published ones.

    \b
    Examples:
      tracker mtbf --days 54 --gpus 16384 --interruptions 419 --project-gpus 1024,131072
      tracker mtbf --config run.toml
    """
    only_with("--config", config, ("--as-of", as_of))
    not_empty(project_gpus=project_gpus, causes=causes)
    sizes = _sizes(project_gpus)
    if config is not None:
        flags = (("--days", days), ("--gpus", gpus), ("--interruptions", interruptions),
                 ("--gap-cv", gap_cv), ("--causes", causes), ("--manual", manual))  # fmt: skip
        if clash := [flag for flag, value in flags if value is not None]:
            raise click.UsageError(f"{', '.join(clash)}: a run brings its own; leave --config out")
        _run_mtbf(run_of(config, as_of)[1], sizes, gpus_per_node, as_json)
        return
    if causes is None and manual is not None:
        raise click.UsageError("--manual needs --causes: it is how many of them needed a person")
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
    projections = [project(rate, size) for size in sizes]
    if not as_json:
        shown = mtbf_tables(
            rate, projections, days=days, gpus=gpus, gpus_per_node=gpus_per_node, is_poisson=gap_cv is None
        )
        print_tables([*shown, causes_beside_published(table)] if table is not None else shown)
        return
    print_json(_mtbf(rate, projections, gpus_per_node, table))


def _mtbf(
    rate: Mtbf, projections: list[Projection], gpus_per_node: int, table: CauseTable | None
) -> dict[str, Any]:
    return {
        "device_hours": rate.device_hours,
        "device_hours_ci90": list(rate.device_hours_interval),
        "device_years": rate.device_years,
        "job_hours": rate.job_hours,
        "job_hours_ci90": list(rate.job_hours_interval),
        "per_day": rate.per_day,
        "per_1000_node_days": rate.per_1000_node_days(gpus_per_node),
        "dispersion": rate.dispersion,
        "projections": [
            {"gpus": p.gpus, "hours": p.hours, "hours_ci90": list(p.hours_interval), "per_day": p.per_day}
            for p in projections
        ],
        "causes": causes_document(table) if table is not None else None,
        "warnings": [{"code": "projected", "message": PROJECTION_WARNING}] if projections else [],
    }


def _run_mtbf(snapshot: Snapshot, sizes: list[int], gpus_per_node: int, as_json: bool) -> None:
    found = run_failures(snapshot)
    table = run_causes(snapshot)
    head = {"run": snapshot.run, "as_of": iso(snapshot.as_of_us)}
    if found is None:
        if as_json:
            print_json({**head, "device_hours": None, "job_hours": None, "projections": []})
        else:
            print_pairs([("MTBF", "unknown: no GPU-time yet"), *(("", text) for text in snapshot.unknown)])
        return
    projections = [project(found.rate, size) for size in sizes]
    if not as_json:
        print_tables([
            *run_mtbf_tables(found, projections, name=snapshot.run, gpus_per_node=gpus_per_node),
            causes_beside_published(table, name=snapshot.run),
        ])
        return
    print_json({
        **head,
        **_mtbf(found.rate, projections, gpus_per_node, table),
        "interruptions": found.rate.interruptions,
        "exposure": {
            "device_hours": found.rate.exposure_device_hours,
            "job_hours": found.rate.exposure_job_hours,
            "mean_gpus": found.gpus,
        },
        "gaps": asdict(found.gaps) | {"index": found.gaps.index} if found.gaps is not None else None,
        "device_hours_ci90_bunched": list(found.widened.device_hours_interval) if found.widened else None,
        "job_hours_ci90_bunched": list(found.widened.job_hours_interval) if found.widened else None,
    })


def _sizes(text: str | None) -> list[int]:
    parts = [part.strip() for part in text.split(",")] if text is not None else []
    try:
        if any(part.startswith("0") and part != "0" for part in parts):
            raise ValueError(text)  # 1,024 is one number to some: a size has no leading zero
        return [int(part) for part in parts]
    except ValueError:
        expected = "whole numbers parted by commas, such as 1024,131072"
        raise InvalidValue("--project-gpus", text, expected) from None


def _counts(text: str) -> dict[str, int]:
    out: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        cause = name.strip()
        try:
            number = int(value)
        except ValueError:
            raise InvalidValue("--causes", part, "CAUSE=N, such as gpu=3") from None
        if cause not in CAUSES:
            raise InvalidValue("--causes", cause, f"one of {', '.join(CAUSES)}", nearest(cause, CAUSES))
        out[cause] = out.get(cause, 0) + number
    return out
