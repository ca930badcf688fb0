"""`tracker references`, `backsolve` and `convert`: what others published, and what follows from it.

Edge: every number comes from the core, every rounding from reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from reports import references as tables
from reports.reliability import causes_beside_published
from reports.tables import Table
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
from tracker.cli._options import as_of_option, json_option
from tracker.core._checks import count, positive
from tracker.core.chain import chain_of_reference, published_chains
from tracker.core.convert import convert as convert_hours
from tracker.core.energy import carbon_t, energy_mwh, overhead
from tracker.core.flop import FORMULAS
from tracker.core.hardware import (
    Accelerator,
    accelerators,
    canonical_precision,
    lookup,
    peak_flop_per_s,
    peak_given,
)
from tracker.core.prices import EXCLUDED
from tracker.core.rate_check import check_back_solved
from tracker.core.reference_rows import MARKS, OperatingPoint, PublishedRun
from tracker.core.references import (
    back_solve,
    back_solve_run,
    differences,
    failure_statistics,
    operating_points,
    published_runs,
    reconciliation,
    root_cause_table,
    timings,
    together,
)
from tracker.core.run_facts import chains_of, point_of
from tracker.core.run_failures import run_causes

SECTIONS = ("runs", "points", "failures", "causes", "timings", "chain", "flop", "hardware")


@click.command()
@click.argument("section", type=click.Choice(SECTIONS), required=False)
@run_option("Set the run of this config, and its plan, beside what others published.")
@as_of_option
@click.option("--chain", "chain_flag", is_flag=True, help="The same as the section `chain`.")
@click.option("--gpu", help="Your device: say how each row differs from it.")
@click.option("--precision", help="Your precision, likewise.")
@click.option("--sequence-length", type=WHOLE, help="Your sequence length, likewise.")
@click.option("--global-batch", type=QUANTITY, help="Your global batch in tokens, likewise.")
@click.option("--routing", help="Your expert routing, likewise.")
@json_option
@usage
def references(
    section: str | None,
    config: Path | None,
    as_of: int | None,
    chain_flag: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """List published runs and operating points.

    Also failures, root causes, restart times, the 405B chain, FLOP conventions and hardware, each row
    with its source, its mark and its caveat. SECTION shows one of them; --json holds them all. Unlike
    things are shown with what differs, never ranked. With --config the run and its plan stand in the
    chain, its root causes beside the published ones, and each row says how it differs from the run.

    \b
    Examples:
      tracker references points --gpu h100-sxm --precision bf16 --sequence-length 8192
      tracker references chain --config run.toml
    """
    if chain_flag and section not in (None, "chain"):
        raise click.UsageError(f"--chain is the section `chain`, not `{section}`")
    section = "chain" if chain_flag else section
    not_empty(**{name: given[name] for name in ("gpu", "precision", "routing")})
    if given["sequence_length"] is not None:
        count("--sequence-length", given["sequence_length"])
    if given["global_batch"] is not None:
        positive("--global-batch", given["global_batch"], "tokens above 0")
    only_with("--config", config, ("--as-of", as_of))
    snapshot = run_of(config, as_of)[1] if config is not None else None
    own = chains_of(snapshot) if snapshot is not None else ()
    mine = _mine({**(point_of(snapshot) if snapshot is not None else {}), **_said(given)})
    if as_json:
        document = _document(mine)
        if snapshot is not None:
            document["chain"] = [asdict(row) for row in (*own, *published_chains())]
            document["causes_of_the_run"] = causes_document(run_causes(snapshot))
            document["operating_point"] = mine
        print_json(document)
        return
    runs = {r.name: _differs(mine, r) for r in published_runs()}
    points = {p.name: _differs(mine, p) for p in operating_points()}
    builders: dict[str, Callable[[], list[Table]]] = {
        "runs": lambda: [tables.runs_table(runs)],
        "points": lambda: [tables.points_table(points)],
        "failures": lambda: [tables.failures_table()],
        "causes": lambda: [
            tables.causes_table()
            if snapshot is None
            else causes_beside_published(run_causes(snapshot), name=snapshot.run)
        ],
        "timings": lambda: [tables.timings_table()],
        "chain": lambda: tables.chain_tables(own),
        "flop": lambda: [tables.flop_table()],
        "hardware": lambda: [tables.hardware_table()],
    }
    shown = [table for name in ([section] if section else SECTIONS) for table in builders[name]()]
    print_tables([*shown, tables.marks_table()])


def _said(given: Mapping[str, Any]) -> dict[str, object]:
    return {k: v for k, v in given.items() if v is not None}


def _mine(given: dict[str, Any]) -> dict[str, object]:
    mine = _said(given)
    if "gpu" in mine:
        mine["gpu"] = lookup(str(mine["gpu"])).name
    if "precision" in mine:
        mine["precision"] = canonical_precision(str(mine["precision"]))
    return mine


def _theirs(row: PublishedRun | OperatingPoint) -> dict[str, object]:
    precision = canonical_precision(row.precision) if row.precision else None
    theirs: dict[str, object] = {"gpu": row.gpu, "precision": precision}
    if isinstance(row, OperatingPoint):
        batch = row.global_batch_mi_tokens
        theirs["sequence_length"] = row.sequence_length
        theirs["global_batch"] = batch * 2**20 if batch is not None else None
        theirs["routing"] = row.routing
    return theirs


def _differs(mine: dict[str, object], row: PublishedRun | OperatingPoint) -> list[str]:
    return list(differences(run=mine, reference=_theirs(row), names=tuple(mine)))


def _document(mine: dict[str, object]) -> dict[str, Any]:
    causes, chain = root_cause_table(), reconciliation()
    return {
        "marks": dict(MARKS),
        "runs": [_run(r, mine) for r in published_runs()],
        "together": [asdict(t) for t in together()],
        "operating_points": [
            {
                **asdict(p),
                "activation_ratio": p.activation_ratio,
                "mfu_is_reference_only": p.is_reference_only,
                "differs": _differs(mine, p),
            }
            for p in operating_points()
        ],
        "failures": [asdict(f) for f in failure_statistics()],
        "root_causes": {**asdict(causes), "gpu_share_by_count": causes.gpu_share},
        "timings": [asdict(t) for t in timings()],
        "reconciliation": {
            **asdict(chain),
            "run": chain.run.key,
            "unexplained_ratio": chain.unexplained_ratio,
        },
        "flop_methods": [
            {"method": method.value, "formula": formula, "source": source}
            for method, (formula, source) in FORMULAS.items()
        ],
        "hardware": [_hardware(a) for a in accelerators()],
    }


def _run(run: PublishedRun, mine: dict[str, object]) -> dict[str, Any]:
    solved = back_solve_run(run)
    rate = solved.gpu_hours_per_trillion_tokens if solved else run.gpu_hours_per_trillion_tokens
    return {
        **asdict(run),
        "gpu_hours_per_trillion_tokens": rate,
        "delivered_tflop_per_s": solved.delivered_tflop_per_s if solved else None,
        "mfu_ratio": solved.mfu_ratio if solved else None,
        "differs": _differs(mine, run),
    }


def _hardware(row: Accelerator) -> dict[str, Any]:
    return {
        "name": row.name,
        "title": row.title,
        "vendor": row.vendor,
        "aliases": list(row.aliases),
        "peaks": {
            precision: {
                "tflop_per_s": peak.tflop_per_s,
                "source": asdict(peak.source),
                "alternatives": [
                    {"tflop_per_s": value / 1e12, "source": asdict(source)}
                    for value, source in peak.alternatives
                ],
            }
            for precision, peak in row.peaks.items()
        },
        "sparse_tflop_per_s": {precision: peak.tflop_per_s for precision, peak in row.sparse.items()},
        "tdp_w": row.tdp_w.value if row.tdp_w else None,
        "memory_gb": row.memory_gb.value if row.memory_gb else None,
        "note": row.note,
    }


@click.command()
@click.option("--active-params", type=QUANTITY, help="Parameters a token passes through.")
@click.option("--tokens", type=QUANTITY, help="Tokens trained.")
@click.option("--gpu-hours", type=QUANTITY, help="GPU-hours, with whatever they include.")
@click.option("--peak-tflops", type=REAL, help="Dense peak of one GPU in TFLOP/s.")
@click.option("--gpu", help="Accelerator: its peak and its TDP.")
@click.option("--precision", default="bf16", help="Precision of the peak. Default: bf16.")
@click.option("--facility-overhead", type=REAL, default=1.0, help="Facility over GPU energy, 1 or more.")
@json_option
@usage
def backsolve(
    active_params: float | None,
    tokens: float | None,
    gpu_hours: float | None,
    peak_tflops: float | None,
    gpu: str | None,
    precision: str,
    facility_overhead: float,
    as_json: bool,
) -> None:
    """Work out delivered FLOP/s and MFU from published GPU-hours.

    6 N D over GPU-seconds. Without flags: the published runs. The figure averages over everything the
    hours include, so its ratio is MFU over allocated time: goodput is in it.

    \b
    Example:
      tracker backsolve --active-params 405e9 --tokens 15.6e12 --gpu-hours 30.84e6 --peak-tflops 989
    """
    overhead(facility_overhead)
    not_empty(gpu=gpu, precision=precision)
    parts = {"--active-params": active_params, "--tokens": tokens, "--gpu-hours": gpu_hours}
    absent = [flag for flag, value in parts.items() if value is None]
    if len(absent) == len(parts) and gpu is None and peak_tflops is None:
        _published(facility_overhead, as_json)
        return
    if active_params is None or tokens is None or gpu_hours is None:
        raise click.UsageError(f"missing {', '.join(absent)}")
    peak = None
    if peak_tflops is not None:
        peak = peak_given(peak_tflops, precision, name="--peak-tflops")
    elif gpu is not None:
        peak = peak_flop_per_s(gpu, precision)
    solved = back_solve(
        active_params=active_params,
        tokens=tokens,
        gpu_hours=gpu_hours,
        peak_tflop_per_s=peak.tflop_per_s if peak else None,
    )
    warnings = check_back_solved(
        mfu_ratio=solved.mfu_ratio, peak=peak, tflop_per_s=solved.delivered_tflop_per_s, gpu=gpu
    )
    energy = _energy(gpu_hours, gpu, None, facility_overhead)
    if as_json:
        print_json({
            **asdict(solved),
            "peak_tflop_per_s": peak.tflop_per_s if peak else None,
            "precision": peak.precision if peak else None,
            "flop_method": "6N",
            "energy_mwh": energy,
            "warnings": [{"code": w.code, "message": w.message} for w in warnings],
        })
        return
    print_tables([
        tables.backsolved_table(
            solved, peak=peak, energy_mwh=energy, facility_overhead=facility_overhead, warnings=warnings
        )
    ])


def _published(facility_overhead: float, as_json: bool) -> None:
    rows = []
    for run in published_runs():
        solved = back_solve_run(run)
        if solved is not None:
            energy = chain_of_reference(run).energy_mwh
            rows.append((run, solved, energy * facility_overhead if energy is not None else None))
    if not as_json:
        print_tables([tables.backsolved_runs_table(rows), tables.marks_table()])
        return
    print_json({
        "runs": [
            {
                "key": run.key,
                "name": run.name,
                "active_params": run.active_params,
                "tokens": run.tokens,
                "gpu": run.gpu,
                "precision": run.precision,
                "gpu_hours": run.gpu_hours,
                **asdict(solved),
                "peak_tflop_per_s": run.peak.tflop_per_s if run.peak else None,
                "peak_precision": run.peak.precision if run.peak else None,
                "energy_mwh": energy,
                "counts": run.counts,
                "stage_gpu_hours": run.stage_gpu_hours,
                "total_gpu_hours": run.total_gpu_hours,
                "total_cost": run.total_cost,
                "caveat": run.caveat,
                "mark": run.mark,
                "source": asdict(run.source),
            }
            for run, solved, energy in rows
        ],
        "flop_method": "6N",
        "together": [asdict(t) for t in together()],
        "excluded": EXCLUDED,
    })


@click.command()
@click.option("--gpu-hours", type=QUANTITY, required=True, help="Hours to convert.")
@click.option("--from", "from_gpu", help="Device they were on.")
@click.option("--to", "to_gpu", help="Device they go to.")
@click.option("--from-tflops", type=REAL, help="TFLOP/s delivered by the first, instead of its reference.")
@click.option("--to-tflops", type=REAL, help="TFLOP/s delivered by the other, likewise.")
@click.option("--from-power-w", type=REAL, help="Measured power of the first. Default: its TDP.")
@click.option("--to-power-w", type=REAL, help="Measured power of the other. Default: its TDP.")
@click.option("--facility-overhead", type=REAL, default=1.0, help="Facility over GPU energy, 1 or more.")
@click.option("--carbon-kg-per-mwh", type=REAL, help="Grid intensity; without it no carbon is stated.")
@json_option
@usage
def convert(
    gpu_hours: float,
    from_gpu: str | None,
    to_gpu: str | None,
    from_tflops: float | None,
    to_tflops: float | None,
    from_power_w: float | None,
    to_power_w: float | None,
    facility_overhead: float,
    carbon_kg_per_mwh: float | None,
    as_json: bool,
) -> None:
    """Convert GPU-hours between GPU types by delivered FLOP/s.

    Never by spec-sheet peaks: their ratio is printed beside it. A device without a rate given takes
    what its published run delivered.

    \b
    Examples:
      tracker convert --gpu-hours 1e6 --from a100 --to h100-sxm
      tracker convert --gpu-hours 1e6 --from-tflops 136 --to-tflops 341
    """
    not_empty(**{"from": from_gpu, "to": to_gpu})
    c = convert_hours(
        gpu_hours,
        from_tflop_per_s=from_tflops,
        to_tflop_per_s=to_tflops,
        from_gpu=from_gpu,
        to_gpu=to_gpu,
    )
    energy = (
        _energy(gpu_hours, from_gpu, from_power_w, facility_overhead),
        _energy(c.gpu_hours, to_gpu, to_power_w, facility_overhead),
    )
    carbon = (_carbon(energy[0], carbon_kg_per_mwh), _carbon(energy[1], carbon_kg_per_mwh))
    if not as_json:
        names = (from_gpu or "from", to_gpu or "to")
        print_tables([
            tables.conversion_table(c, gpu_hours=gpu_hours, names=names, energy_mwh=energy, carbon_t=carbon)
        ])
        return
    print_json({
        "gpu_hours": c.gpu_hours,
        "ratio": c.ratio,
        "spec_sheet_ratio": c.spec_sheet_ratio,
        "from_tflop_per_s": c.from_tflop_per_s,
        "to_tflop_per_s": c.to_tflop_per_s,
        "from_run": c.from_run.key if c.from_run else None,
        "to_run": c.to_run.key if c.to_run else None,
        "energy_mwh": {"from": energy[0], "to": energy[1]},
        "carbon_t": {"from": carbon[0], "to": carbon[1]},
        "caveats": list(c.caveats),
        "warnings": [{"code": w.code, "message": w.message} for w in c.warnings],
    })


def _energy(hours: float, gpu: str | None, power_w: float | None, facility_overhead: float) -> float | None:
    overhead(facility_overhead)
    power = power_w
    if power is None and gpu is not None:
        tdp = lookup(gpu).tdp_w
        power = tdp.value if tdp is not None else None
    if power is None:
        return None
    return energy_mwh(gpu_hours=hours, power_w=power, facility_overhead=facility_overhead)


def _carbon(mwh: float | None, kg_per_mwh: float | None) -> float | None:
    return carbon_t(mwh=mwh, kg_per_mwh=kg_per_mwh) if mwh is not None and kg_per_mwh is not None else None
