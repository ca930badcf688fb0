"""`tracker plan`: flags to a plan, its estimate and its check.

Edge: every number comes from the core, every rounding from reports.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click

from reports.plan import measured_table, plan_tables
from reports.reliability import variance_table
from tracker.cli._calc import (
    QUANTITY,
    REAL,
    WHOLE,
    not_empty,
    only_with,
    print_json,
    print_tables,
    run_of,
    run_option,
    usage,
)
from tracker.cli._options import Moment, as_of_option, json_option
from tracker.config.keys import PLAN_SOURCES
from tracker.core.chain import Chain, chain_of_plan, published_chains
from tracker.core.documents import variance_document
from tracker.core.energy import carbon_t
from tracker.core.errors import InvalidValue, nearest
from tracker.core.hardware import Peak, canonical_precision, lookup, peak_flop_per_s, peak_given
from tracker.core.plan import DEFAULTS, Estimate, Plan, PlanFailures, PlanStage
from tracker.core.plan_check import (
    PlannedConversion,
    PlanWarning,
    check_plan,
    not_checked,
)
from tracker.core.run_facts import chain_of_run, other_target, run_variance
from tracker.core.run_plan import MeasuredPlan, plan_beside_run, plan_from_run, trained_precision
from tracker.core.settings import Settings
from tracker.core.snapshot import Snapshot
from tracker.core.variance import Variance

_MOMENT = Moment()
_MISSING: Final = {
    "active_params": "--active-params",
    "tokens": "--tokens",
    "peak": "--gpu or --peak-tflops",
}
_TITLES: Final = {
    "to_date": "Against the plan, for the tokens so far (positive is more hours, or later)",
    "at_target": "Against the plan at the log's own target, at the rates so far",
}
_STAGE = "NAME=TOKENS[@SEQUENCE][xGPUS], such as extension=0.8T@131072x2048"


@click.command()
@run_option("The [plan] of this config, and its run beside it; other flags replace its values.")
@click.option(
    "--from-run",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="CONFIG",
    help="Take MFU and goodput from the run of this config, and say where each value came from.",
)
@as_of_option
@click.option("--active-params", type=QUANTITY, help="Parameters a token passes through, such as 13e9.")
@click.option("--total-params", type=QUANTITY, help="Parameters stored, where they differ (MoE).")
@click.option("--experts", type=WHOLE, help="Routed experts of a mixture.")
@click.option("--experts-per-token", type=WHOLE, help="Routed experts per token.")
@click.option("--tokens", type=QUANTITY, help="Tokens to train, such as 4e12 or 4T.")
@click.option("--gpu", help="Accelerator, such as h100-sxm; `tracker references hardware` lists them.")
@click.option("--precision", help="Precision of the peak and of training. Default: bf16.")
@click.option("--peak-tflops", type=REAL, help="Dense peak of one GPU in TFLOP/s.")
@click.option("--mfu", type=REAL, help="Over productive time, a ratio. Default: 0.35.")
@click.option("--goodput", type=REAL, help="Productive over allocated, a ratio. Default: 0.90.")
@click.option("--attn-overhead", type=REAL, help="FLOP beyond 6N, a fraction. Default: 0.05.")
@click.option("--later-stages", type=REAL, help="Later stages, a fraction of the run. Default: 0.08.")
@click.option("--rnd-multiplier", type=REAL, help="Programme over final run. Default: 1.5.")
@click.option("--gpus", type=WHOLE, help="GPUs of the run, for days.")
@click.option("--sequence-length", type=WHOLE, help="Tokens per sequence.")
@click.option("--layers", type=WHOLE, help="Layers: exact attention FLOP instead of --attn-overhead.")
@click.option("--hidden-size", type=WHOLE, help="Width of the model.")
@click.option("--heads", type=WHOLE, help="Attention heads.")
@click.option("--head-dim", type=WHOLE, help="Dimension of a head.")
@click.option(
    "--causal/--full-attention",
    default=None,
    help="Count half of attention, or all of it (default, as PaLM).",
)
@click.option(
    "--stage",
    "stages",
    multiple=True,
    metavar="NAME=TOKENS[@SEQ][xGPUS]",
    help="A stage; they sum to --tokens. Repeatable.",
)
@click.option("--start", type=_MOMENT, metavar="MOMENT", help="Planned start.")
@click.option("--deadline", type=_MOMENT, metavar="MOMENT", help="When it must be done.")
@click.option("--reservation-end", type=_MOMENT, metavar="MOMENT", help="When the reservation ends.")
@click.option("--gpu-hour-price", type=REAL, help="Money per GPU-hour.")
@click.option("--currency", help="Printed beside amounts. Default: USD.")
@click.option("--budget", type=QUANTITY, help="Money it may cost.")
@click.option("--gpu-power-w", type=REAL, help="Power of one GPU. Default: its TDP.")
@click.option("--facility-overhead", type=REAL, help="Facility over GPU energy. Default: 1.")
@click.option("--carbon-kg-per-mwh", type=REAL, help="Grid intensity; without it no carbon is stated.")
@click.option("--failures-per-day", type=REAL, help="Expected interruptions, to check the goodput.")
@click.option("--restart-min", type=REAL, help="Minutes from a failure to the next step.")
@click.option("--checkpoint-interval-min", type=REAL, help="Minutes between checkpoints.")
@click.option("--checkpoint-stall-min", type=REAL, default=0.0, help="Blocking minutes of a save.")
@click.option("--converted-from", help="Device whose hours the plan took over.")
@click.option("--conversion-ratio", type=REAL, help="By how much those hours were divided.")
@click.option(
    "--source", "sources", multiple=True, metavar="KEY=TEXT", help="Where a value came from. Repeatable."
)
@click.option("--chain", "with_chain", is_flag=True, help="Set published runs beside the plan.")
@json_option
@usage
def plan(
    as_json: bool,
    with_chain: bool,
    config: Path | None,
    from_run: Path | None,
    as_of: int | None,
    **given: Any,
) -> None:
    """Estimate GPU-hours and days, and check the plan for classic mistakes.

    What is left out takes the reference estimate's value and is listed as assumed. Warnings never
    change the exit status. With --config the run so far is set against its plan, in parts that sum to
    the difference; with --from-run a short measured run fills MFU and goodput.

    \b
    Examples:
      tracker plan --active-params 13e9 --tokens 4e12 --peak-tflops 989 --gpus 1024
      tracker plan --config run.toml
      tracker plan --from-run pilot.toml --tokens 4e12 --gpus 1024
    """
    not_empty(**{n: given[n] for n in ("gpu", "precision", "currency", "converted_from")})
    if config is not None and from_run is not None:
        raise click.UsageError("give --config, or --from-run, not both")
    only_with("--config or --from-run", config or from_run, ("--as-of", as_of))
    taken = from_run or config
    settings, snapshot = run_of(taken, as_of) if taken is not None else (None, None)
    fields = _fields(given, settings)
    measured: MeasuredPlan | None = None
    if settings is None or snapshot is None:
        fields.setdefault("causal", False)
        made = Plan(**fields)
    elif from_run is not None:
        measured = plan_from_run(snapshot, fields)
        made = measured.plan
    else:
        made = plan_beside_run(snapshot, fields)
    estimate = made.estimate()
    if estimate is None:
        lacks = ", ".join(_MISSING[name] for name in made.missing)
        where = ""
        if settings is not None and settings.plan is None:
            where = f": {taken} has no [plan]; give the flags, or add one with what is missing"
        raise click.UsageError(f"missing {lacks}{where}")
    warnings = check_plan(
        made,
        gpu=given["gpu"] or (settings.hardware.gpu if settings is not None else None),
        precision=given["precision"] or (trained_precision(snapshot, settings) if settings else None),
        reservation_end=_utc(given["reservation_end"] or (settings.reservation.end_us if settings else None)),
        conversion=_conversion(given),
        is_mfu_restated=measured is not None and measured.is_mfu_restated,
    )
    reserved_to = given["reservation_end"] or (settings.reservation.end_us if settings else None)
    unchecked = not_checked(made, has_reservation_end=reserved_to is not None)
    chains = [chain_of_plan(made)]
    against: dict[str, Variance] = {}
    ran = False
    if snapshot is not None and settings is not None and snapshot.attempts:
        ran = True
        beside = replace(snapshot, settings=replace(settings, plan=made))
        chains.append(chain_of_run(snapshot))  # what ran is no what-if: its own price and power
        against = _against(beside) if from_run is None else {}
    if with_chain:
        chains += published_chains()
    if as_json:
        document = _document(made, estimate, warnings, chains)
        document["not_checked"] = list(unchecked)
        if measured is not None:
            document["measured"] = {
                "run": measured.run,
                "values": [asdict(row) for row in measured.taken],
                "cautions": list(measured.cautions),
            }
        if config is not None:
            document["variance"] = {name: variance_document(v) for name, v in against.items()} or None
        print_json(document)
        return
    tables = plan_tables(made, estimate, warnings, chains if with_chain or ran else (), unchecked)
    if measured is not None:
        tables.insert(0, measured_table(measured))
    print_tables([*tables, *(variance_table(v, title=_TITLES[name]) for name, v in against.items())])


def _against(snapshot: Snapshot) -> dict[str, Variance]:
    """Return the run against its plan: for the tokens so far, and at the target where its log states one."""
    found = {"to_date": run_variance(snapshot)}
    target = other_target(snapshot)
    if target is not None:
        found["at_target"] = run_variance(snapshot, tokens=target)
    return {name: v for name, v in found.items() if v is not None}


def _fields(given: dict[str, Any], settings: Settings | None) -> dict[str, Any]:
    """Return the flags as fields of Plan, those that were given."""
    names = [
        "active_params", "total_params", "tokens", "gpus", "sequence_length", "layers", "hidden_size",
        "heads", "head_dim", "causal", "experts", "experts_per_token", "gpu_hour_price", "currency", "budget",
        "gpu_power_w", "facility_overhead", "carbon_kg_per_mwh", *DEFAULTS,
    ]  # fmt: skip
    fields = {name: given[name] for name in names if given[name] is not None}
    peak = _peak(given, settings)
    if peak is not None:
        fields["peak"] = peak
    for name in ("start", "deadline"):
        if given[name] is not None:
            fields[name] = _utc(given[name])
    if given["stages"]:
        fields["stages"] = tuple(_stage(text) for text in given["stages"])
    failures = _failures(given)
    if failures is not None:
        fields["failures"] = failures
    if given["sources"]:
        fields["sources"] = dict(_pair(text) for text in given["sources"])
    return fields


def _peak(given: dict[str, Any], settings: Settings | None) -> Peak | None:
    """Return the peak that the flags ask for, on the config's device where they name none."""
    own = settings.hardware if settings is not None else None
    precision = canonical_precision(given["precision"] or (own.precision if own is not None else "bf16"))
    gpu = given["gpu"] or (own.gpu if own is not None else None)
    if given["peak_tflops"] is not None:
        peak = peak_given(given["peak_tflops"], precision, name="--peak-tflops")
        return peak if gpu is None else replace(peak, gpu=lookup(gpu).name)
    if gpu is not None and (given["gpu"] is not None or given["precision"] is not None):
        return peak_flop_per_s(gpu, precision)
    return None


def _failures(given: dict[str, Any]) -> PlanFailures | None:
    needed = ("failures_per_day", "restart_min", "checkpoint_interval_min")
    absent = [f"--{key.replace('_', '-')}" for key in needed if given[key] is None]
    if len(absent) == len(needed):
        return None
    if absent:
        raise click.UsageError(f"the failure model also needs {', '.join(absent)}")
    return PlanFailures(
        per_day=given["failures_per_day"],
        restart_min=given["restart_min"],
        checkpoint_interval_min=given["checkpoint_interval_min"],
        checkpoint_stall_min=given["checkpoint_stall_min"],
    )


def _stage(text: str) -> PlanStage:
    name, _, rest = text.partition("=")
    rest, x, gpus = rest.partition("x")
    tokens, at, sequence = rest.partition("@")
    try:
        number = QUANTITY.convert(tokens, None, None)
        length = WHOLE.convert(sequence, None, None) if at else None
        size = WHOLE.convert(gpus, None, None) if x else None
    except (ValueError, click.BadParameter):
        raise InvalidValue("--stage", text, _STAGE) from None
    if not name.strip():
        raise InvalidValue("--stage", text, _STAGE)
    return PlanStage(name=name.strip(), tokens=number, sequence_length=length, gpus=size)


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key.strip() or not value.strip():
        raise InvalidValue("--source", text, "KEY=TEXT, such as mfu=measured on 512 GPUs")
    name = key.strip()
    known = sorted({*(k.name for k in PLAN_SOURCES.keys), "gpu", "gpus", "total_params"})
    if name not in known:
        raise InvalidValue("--source", name, f"one of {', '.join(known)}", nearest(name, known))
    return name, value.strip()


def _conversion(given: dict[str, Any]) -> PlannedConversion | None:
    if given["converted_from"] is None and given["conversion_ratio"] is None:
        return None
    if None in (given["converted_from"], given["conversion_ratio"], given["gpu"]):
        raise click.UsageError("a conversion needs --converted-from, --conversion-ratio and --gpu")
    return PlannedConversion(
        from_gpu=given["converted_from"], to_gpu=given["gpu"], ratio=given["conversion_ratio"]
    )


def _utc(at_us: int | None) -> datetime | None:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us) if at_us is not None else None


def _document(
    made: Plan, e: Estimate, warnings: tuple[PlanWarning, ...], chains: list[Chain]
) -> dict[str, Any]:
    assert made.peak is not None
    energy, cost = made.energy_mwh(), made.cost()
    carbon = None
    if energy is not None and made.carbon_kg_per_mwh is not None:
        carbon = carbon_t(mwh=energy, kg_per_mwh=made.carbon_kg_per_mwh)
    return {
        "model_flop": e.model_flop,
        "six_n_flop": e.six_n_flop,
        "flop_per_token": e.main.flop.value,
        "flop_method": e.main.flop.method,
        "peak_tflop_per_s": made.peak.tflop_per_s,
        "precision": made.peak.precision,
        "peak_source": str(made.peak.source),
        "mfu_ratio": float(made.mfu),
        "goodput_ratio": float(made.goodput),
        "ideal_gpu_hours": e.ideal_gpu_hours,
        "step_gpu_hours": e.step_gpu_hours,
        "billed_gpu_hours": e.billed_gpu_hours,
        "later_stages_gpu_hours": e.later_stages_gpu_hours,
        "final_gpu_hours": e.final_gpu_hours,
        "programme_gpu_hours": e.programme_gpu_hours,
        "gpu_hours_per_trillion_tokens": e.gpu_hours_per_trillion_tokens,
        "gpus": made.gpus,
        "days": e.days,
        "finish_at": f"{e.finish_at:%Y-%m-%dT%H:%M:%SZ}" if e.finish_at else None,
        "cost": cost,
        "programme_cost": cost * float(made.rnd_multiplier) if cost is not None else None,
        "currency": made.currency,
        "power_w": made.power_w,
        "energy_mwh": energy,
        "carbon_t": carbon,
        "stages": [
            {
                "name": s.name,
                "tokens": s.tokens,
                "flop_per_token": s.flop.value,
                "flop_method": s.flop.method,
                "gpus": s.gpus,
                "gpu_hours": s.billed_gpu_hours,
                "days": s.days,
            }
            for s in e.stages
        ],
        "assumed": list(made.assumed),
        "assumptions": [
            {"name": a.name, "value": a.value, "source": a.source, "default": a.is_default}
            for a in made.assumptions
        ],
        "chain": [asdict(c) for c in chains],
        "warnings": [asdict(w) for w in warnings],
    }
