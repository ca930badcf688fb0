"""The published figures as tables, each row with its mark and its caveat.

Pure. Rows keep the file's order: nothing is ranked. Rounding never goes below what was published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reports.figures import figure, notes, plain, quantity, text
from reports.numbers import UNKNOWN, per_cent
from reports.plan import chain_table
from reports.tables import Table
from tracker.core.chain import Chain, published_chains
from tracker.core.convert import Conversion
from tracker.core.flop import FORMULAS
from tracker.core.hardware import Accelerator, Peak, accelerators
from tracker.core.plan_check import PlanWarning
from tracker.core.prices import EXCLUDED
from tracker.core.reference_rows import MARKS, OperatingPoint, PublishedRun
from tracker.core.references import (
    BackSolved,
    back_solve_run,
    failure_statistics,
    operating_points,
    published_runs,
    reconciliation,
    root_cause_table,
    timings,
    together,
)

Differences = Mapping[str, Sequence[str]]
"""What differs from the reader's own operating point, by row name; empty when none was given."""


def runs_table(differs: Differences) -> Table:
    """Return the published runs."""
    return Table(
        title="Published runs",
        headings=("run", ">active", ">total", ">tokens", "device", ">devices", "precision", ">device-hours",
                  ">h per 1e12", "mark"),
        rows=[
            (
                r.name,
                quantity(r.active_params),
                quantity(r.total_params),
                quantity(r.tokens),
                r.gpu,
                text(r.gpus),
                text(r.precision),
                figure(r.gpu_hours),
                figure(_rate(r, back_solve_run(r))),
                f"[{r.mark}]",
            )
            for r in published_runs()
        ],
        notes=notes([
            *(
                f"{r.name} [{r.mark}]: {r.counts}. {r.caveat}{_tail(differs, r.name)} ({r.source.title})"
                for r in published_runs()
            ),
            *_together(),
        ]),
    )  # fmt: skip


def _together() -> list[str]:
    return [
        f"{t.name} [{t.mark}]: {t.gpu_hours / 1e6:.4g}M device-hours. {t.caveat} ({t.source.title})"
        for t in together()
    ]


def _rate(run: PublishedRun, solved: BackSolved | None) -> float | None:
    return solved.gpu_hours_per_trillion_tokens if solved else run.gpu_hours_per_trillion_tokens


def _tail(differs: Differences, name: str) -> str:
    return f" Differs: {'; '.join(differs[name])}." if differs.get(name) else ""


def points_table(differs: Differences) -> Table:
    """Return the operating points, with what is needed to interpret each rate."""
    return Table(
        title="Operating points (model, batch, layout and precision differ: no scaling curve)",
        headings=("point", ">active", ">total", ">active/total", "device", ">devices", ">batch Mi",
                  ">sequence", ">EP/PP", "precision", "recompute", ">TFLOP/s", ">MFU", ">of peak", "mark"),
        rows=[
            (
                p.name,
                quantity(p.active_params),
                quantity(p.total_params),
                f"{100 * p.activation_ratio:.3g} %" if p.activation_ratio is not None else UNKNOWN,
                text(p.gpu),
                text(p.gpus),
                plain(p.global_batch_mi_tokens),
                text(p.sequence_length),
                f"{p.ep}/{p.pp}" if p.ep else UNKNOWN,
                text(p.precision),
                text(p.recompute),
                plain(p.tflop_per_s),
                per_cent(p.mfu) + (" (reference)" if p.is_reference_only else ""),
                plain(p.peak_tflop_per_s),
                f"[{p.mark}]",
            )
            for p in operating_points()
        ],
        notes=notes(
            f"{p.name} [{p.mark}]: {p.caveat}{_routing(p)}{_tail(differs, p.name)} ({p.source.title})"
            for p in operating_points()
        ),
    )  # fmt: skip


def _routing(point: OperatingPoint) -> str:
    return f" Routing: {point.routing}." if point.routing else ""


def failures_table() -> Table:
    """Return the published failure figures."""
    return Table(
        title="Failures as published",
        headings=("where", "figure", "kind", "mark"),
        rows=[(f.name, f.figure, text(f.kind), f"[{f.mark}]") for f in failure_statistics()],
        notes=notes(f"{f.name}: {f.caveat} ({f.source.title})" for f in failure_statistics()),
    )


def causes_table() -> Table:
    """Return the published root causes, with both shares and the count that decides."""
    t = root_cause_table()
    gpus = sum(r.count for r in t.rows if r.category == "GPU")
    return Table(
        title=f"Root causes of {t.total} unexpected interruptions ({t.planned} more were planned)",
        headings=("cause", "published as", "category", ">count", ">by count", ">printed"),
        rows=[
            (
                r.cause,
                r.label,
                r.category,
                text(r.count),
                per_cent(r.count / t.total),
                per_cent(r.printed_share),
            )
            for r in t.rows
        ],
        notes=notes([
            f"GPU-caused: {per_cent(t.gpu_share)} by counts ({gpus} of {t.total}), "
            f"{per_cent(t.stated_gpu_share)} in the text. {t.caveat}",
            f"{t.manual} of {t.total} needed significant manual intervention. ({t.source.title}) [{t.mark}]",
        ]),
    )


def timings_table() -> Table:
    """Return the published times to detect, restart and save."""
    return Table(
        title="Detection, restart and checkpoint times as published",
        headings=("what", "figure", "mark"),
        rows=[(t.name, t.figure, f"[{t.mark}]") for t in timings()],
        notes=notes(f"{t.name}: {t.caveat} ({t.source.title})" for t in timings()),
    )


def chain_tables(own: Sequence[Chain] = ()) -> list[Table]:
    """Return the 405B reconciliation from its parts, and the published runs' chains below one's own."""
    r = reconciliation()
    return [
        Table(
            title=f"{r.run.name} reconciled from its parts",
            headings=("link", ">value", "by"),
            rows=[
                ("model FLOP", figure(r.model_flop), "the paper's budget"),
                ("step GPU-hours", figure(r.step_gpu_hours), f"at {r.delivered_tflop_per_s:g} TFLOP/s a GPU"),
                ("billed GPU-hours", figure(r.billed_gpu_hours), f"at goodput {r.goodput:g}"),
                ("published GPU-hours", figure(r.published_gpu_hours), "the model card"),
                ("published over reconciled", f"{1 + r.unexplained_ratio:.3f}", "later stages, and rounding"),
            ],
            notes=notes([f"{r.caveat} ({r.source.title}) [{r.run.mark}]"]),
        ),
        chain_table(
            [*own, *published_chains()],
            "Plan, run and published runs (these by 6N)" if own else "Published runs, by 6N",
        ),
    ]


def flop_table() -> Table:
    """Return the conventions for FLOP per token."""
    return Table(
        title="FLOP per token, forward and backward, without recomputation",
        headings=("method", "formula", "source"),
        rows=[(method.value, formula, source) for method, (formula, source) in FORMULAS.items()],
        notes=notes([
            "N active parameters, L layers, H heads, Q head dimension, T sequence length, h width, "
            "V vocabulary, a allowance.",
            "HFU counts recomputed activations too: 4/3 of the model FLOP with full recomputation.",
        ]),
    )


def hardware_table() -> Table:
    """Return the accelerators: dense peaks, the sparse trap, power, memory."""
    rows = accelerators()
    return Table(
        title="Dense peaks, TFLOP/s of one device as logs count devices",
        headings=(
            "device",
            ">FP32",
            ">TF32",
            ">BF16",
            ">FP8",
            ">FP4",
            ">BF16 sparse",
            ">TDP W",
            ">GB",
            "mark",
        ),
        rows=[
            (
                a.name,
                *(_tflops(a.peaks.get(p)) for p in ("fp32", "tf32", "bf16", "fp8", "fp4")),
                _tflops(a.sparse.get("bf16")),
                plain(a.tdp_w.value if a.tdp_w else None),
                plain(a.memory_gb.value if a.memory_gb else None),
                f"[{a.peaks['bf16'].source.mark}]",
            )
            for a in rows
        ],
        notes=notes([
            "The sparse figure is a trap to recognise: training does not use structured sparsity.",
            *(_about(a) for a in rows),
        ]),
    )


def _tflops(peak: Peak | None) -> str:
    return plain(peak.tflop_per_s if peak else None)


def _about(row: Accelerator) -> str:
    others = "; ".join(
        f"{precision} {value / 1e12:,g} by {source.title}, not used"
        for precision, peak in row.peaks.items()
        for value, source in peak.alternatives
    )
    parts = [f"BF16: {row.peaks['bf16'].source.title}.", row.note, f"{others}." if others else ""]
    return f"{row.name}: {' '.join(part for part in parts if part)}"


def marks_table() -> Table:
    """Return what the marks mean."""
    return Table(
        title="Marks", headings=("mark", "meaning"), rows=[(f"[{m}]", words) for m, words in MARKS.items()]
    )


def backsolved_table(
    solved: BackSolved,
    *,
    peak: Peak | None,
    energy_mwh: float | None,
    facility_overhead: float,
    warnings: Sequence[PlanWarning] = (),
) -> Table:
    """Return one back-solved set of figures."""
    of = f"of {peak.tflop_per_s:,g} TFLOP/s {peak.precision}" if peak else "give --peak-tflops or --gpu"
    rows = [
        ("delivered TFLOP/s a GPU", figure(solved.delivered_tflop_per_s), "6 N D over GPU-seconds"),
        ("MFU over those hours", per_cent(solved.mfu_ratio), of),
        ("GPU-hours per 1e12 tokens", figure(solved.gpu_hours_per_trillion_tokens), ""),
    ]
    if energy_mwh is not None:
        rows.append(("energy, MWh", figure(energy_mwh), f"at TDP, facility overhead {facility_overhead:g}"))
    return Table(
        title="Back-solved",
        headings=("", ">value", "by"),
        rows=rows,
        notes=notes([
            *(f"{w.code}: {w.message}" for w in warnings),
            "An average over all the hours include: goodput, stages and overheads are in it.",
        ]),
    )


def backsolved_runs_table(rows: Sequence[tuple[PublishedRun, BackSolved, float | None]]) -> Table:
    """Return the published runs back-solved, with energy in MWh beside each."""
    return Table(
        title="Published runs back-solved by 6 N D (in the file's order: no ranking)",
        headings=("run", ">active", ">tokens", "device", "precision", ">device-hours", ">TFLOP/s", ">of peak",
                  ">share", ">h per 1e12", ">MWh", "mark"),
        rows=[
            (
                run.name,
                quantity(run.active_params),
                quantity(run.tokens),
                run.gpu,
                text(run.precision),
                figure(run.gpu_hours),
                figure(solved.delivered_tflop_per_s),
                plain(run.peak.tflop_per_s if run.peak else None),
                per_cent(solved.mfu_ratio),
                figure(solved.gpu_hours_per_trillion_tokens),
                figure(energy),
                f"[{run.mark}]",
            )
            for run, solved, energy in rows
        ],
        notes=notes(
            [
                *(f"{run.name}: {run.counts}. {run.caveat}" for run, _, _ in rows),
                *_together(),
                "Shares are over all hours published, against the dense BF16 (FP16) peak: goodput, stages "
                "and overheads are in them. Compare rows only where device, precision and what the hours "
                "hold agree.",
                "MWh is device-hours at TDP: an upper bound for the devices; the facility comes on top.",
                EXCLUDED,
            ]
        ),
    )  # fmt: skip


def conversion_table(
    c: Conversion,
    *,
    gpu_hours: float,
    names: tuple[str, str],
    energy_mwh: tuple[float | None, float | None],
    carbon_t: tuple[float | None, float | None],
) -> Table:
    """Return a conversion side by side, the spec-sheet ratio and why it misleads below."""
    rows = [
        ("TFLOP/s delivered", figure(c.from_tflop_per_s), figure(c.to_tflop_per_s)),
        ("GPU-hours", figure(gpu_hours), figure(c.gpu_hours)),
    ]
    if energy_mwh != (None, None):
        rows.append(("energy, MWh", figure(energy_mwh[0]), figure(energy_mwh[1])))
    if carbon_t != (None, None):
        rows.append(("carbon, t CO2e", figure(carbon_t[0]), figure(carbon_t[1])))
    sheet = (
        f"{c.spec_sheet_ratio:.2f}" if c.spec_sheet_ratio is not None else "unknown without --from and --to"
    )
    return Table(
        title="Conversion by delivered FLOP",
        headings=("", f">{names[0]}", f">{names[1]}"),
        rows=rows,
        notes=notes([
            f"Ratio {c.ratio:.2f} by delivered FLOP; {sheet} by dense BF16 peaks. The peak ratio misleads: "
            "devices reach different shares of their peaks, at their own scale and layout.",
            *(f"{caveat}." if not caveat.endswith(".") else caveat for caveat in c.caveats),
        ]),
    )
