"""What others published: runs, operating points, failure statistics, restart times.

Pure. Rows come from data/references.toml with their mark and caveat; nothing is interpolated, and
what a source does not state is None. Back-solving divides model FLOP by published hours; comparing
says what differs before any number is set beside another.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, TypeVar

from tracker.core._checks import positive
from tracker.core.errors import InvalidValue, TrackerError, nearest, shown
from tracker.core.hardware import UnknownGpu, lookup
from tracker.core.reference_rows import (
    Citation,
    FailureStatistic,
    OperatingPoint,
    PublishedRun,
    RootCauseRow,
    RootCauseTable,
    Timing,
    Together,
)


class UnknownReference(TrackerError, LookupError):
    """No published run of that name is on file."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        hint = nearest(name, known)
        super().__init__(f"no published run {shown(name)} on file. {hint} Known: {', '.join(known)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackSolved:
    """What published hours delivered, averaged over everything they include."""

    delivered_tflop_per_s: float
    """6 N D over GPU-seconds, TFLOP/s of one device."""
    mfu_ratio: float | None
    """Against the peak; None without one. MFU over allocated time: goodput is in it."""
    gpu_hours_per_trillion_tokens: float
    """GPU-hours over tokens, times 1e12."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """A published chain from FLOP to hours, link by link, beside the hours published."""

    run: PublishedRun
    """Whose."""
    model_flop: float
    """The published budget."""
    delivered_tflop_per_s: float
    """In-step rate it is divided by."""
    goodput: float
    """Effective training time it is divided by."""
    step_gpu_hours: float
    """model_flop over the rate."""
    billed_gpu_hours: float
    """Over goodput too."""
    published_gpu_hours: float
    """What the card says."""
    source: Citation
    """Where the parts stand."""
    caveat: str
    """What explains the rest."""

    @property
    def unexplained_ratio(self) -> float:
        """Published over reconciled hours, minus 1."""
        return self.published_gpu_hours / self.billed_gpu_hours - 1


def back_solve(
    *,
    active_params: float,
    tokens: float,
    gpu_hours: float,
    peak_tflop_per_s: float | None = None,
) -> BackSolved:
    """Return what GPU-hours delivered: 6 N D / (3600 h), with its share of peak.

    Attention FLOP are left out, so that runs can be compared by published figures alone; hours
    are taken as they are, with whatever they include.

    Raises InvalidValue for anything that is not positive and finite.

    >>> b = back_solve(active_params=405e9, tokens=15.6e12, gpu_hours=30.84e6,
    ...                peak_tflop_per_s=989.0)
    >>> round(b.delivered_tflop_per_s), round(b.mfu_ratio, 3)
    (341, 0.345)
    """
    n = positive("active_params", active_params, "a number of parameters above 0")
    d = positive("tokens", tokens, "a number of tokens above 0")
    hours = positive("gpu_hours", gpu_hours, "GPU-hours above 0")
    tflop_per_s = 6 * n * d / (hours * 3600) / 1e12
    return BackSolved(
        delivered_tflop_per_s=tflop_per_s,
        mfu_ratio=tflop_per_s / peak_tflop_per_s if peak_tflop_per_s else None,
        gpu_hours_per_trillion_tokens=1e12 * hours / d,
    )


def back_solve_run(run: PublishedRun) -> BackSolved | None:
    """Return a published run back-solved, or None where its figures do not allow it."""
    if run.tokens is None or run.gpu_hours is None or run.no_backsolve:
        return None
    peak = run.peak
    return back_solve(
        active_params=run.active_params,
        tokens=run.tokens,
        gpu_hours=run.gpu_hours,
        peak_tflop_per_s=peak.tflop_per_s if peak else None,
    )


def find_run(name: str) -> PublishedRun:
    """Return a published run by key or name, whatever the case.

    Raises UnknownReference with the known keys.
    """
    wanted = name.strip().casefold()
    for run in published_runs():
        if wanted in (run.key.casefold(), run.name.casefold()):
            return run
    raise UnknownReference(name, tuple(run.key for run in published_runs()))


def delivered_by(gpu: str) -> tuple[PublishedRun, BackSolved]:
    """Return the reference run of a device type: the one conversion uses, and what it delivered.

    A100 is Llama 2 70B and H100 is Llama 3.1 405B, as the conversion of the references has it;
    any other device takes its first back-solved run on file.

    Raises UnknownGpu, AmbiguousGpu, or InvalidValue where no run of that device is on file.
    """
    row = lookup(gpu)
    preferred = {"a100-sxm": "llama-2-70b", "h100-sxm": "llama-3.1-405b"}
    runs = [r for r in published_runs() if _row_name(r.gpu) == row.name]
    runs.sort(key=lambda r: r.key != preferred.get(row.name))
    for run in runs:
        solved = back_solve_run(run)
        if solved is not None:
            return run, solved
    have = sorted({_row_name(r.gpu) for r in published_runs() if back_solve_run(r) is not None} - {""})
    raise InvalidValue(
        "gpu",
        gpu,
        f"a device with a published run on file ({', '.join(have)})",
        "Measure a short run on it and give --from-tflops or --to-tflops",
    )


def differences(
    *,
    run: Mapping[str, object],
    reference: Mapping[str, object],
    names: tuple[str, ...] = ("gpu", "precision", "sequence_length", "global_batch", "routing"),
) -> tuple[str, ...]:
    """Say in words how two operating points differ: what stands between their numbers.

    A part unknown on either side counts as a difference and is said to be unknown. Empty means
    like may be compared with like.

    >>> differences(run={"gpu": "h100-sxm", "precision": "bf16"},
    ...             reference={"gpu": "h800", "precision": "fp8"}, names=("gpu", "precision"))
    ('gpu: h100-sxm here, h800 there', 'precision: bf16 here, fp8 there')
    """
    out = []
    for name in names:
        mine, theirs = run.get(name), reference.get(name)
        if mine is None and theirs is None:
            out.append(f"{name}: unknown on both sides")
        elif mine is None or theirs is None:
            known = f"{mine} here" if theirs is None else f"{theirs} there"
            out.append(f"{name}: {known}, unknown {'there' if theirs is None else 'here'}")
        elif mine != theirs:
            out.append(f"{name}: {mine} here, {theirs} there")
    return tuple(out)


def published_runs() -> tuple[PublishedRun, ...]:
    """Return the published runs, in the file's order: no ranking."""
    return _data().runs


def together() -> tuple[Together, ...]:
    """Return the published sums over several runs.

    >>> [round(t.gpu_hours / 1e6, 1) for t in together()]
    [39.3]
    """
    return _data().together


def operating_points() -> tuple[OperatingPoint, ...]:
    """Return the published operating points, in the file's order: no ranking."""
    return _data().points


def failure_statistics() -> tuple[FailureStatistic, ...]:
    """Return the published failure figures."""
    return _data().failures


def timings() -> tuple[Timing, ...]:
    """Return the published times to detect, restart and save."""
    return _data().timings


def root_cause_table() -> RootCauseTable:
    """Return the published root-cause table (Llama 3, Table 5)."""
    return _data().causes


def reconciliation() -> Reconciliation:
    """Return the chain of the 405B run, from its published parts.

    >>> r = reconciliation()
    >>> round(r.step_gpu_hours / 1e6, 1), round(r.billed_gpu_hours / 1e6, 1)
    (26.4, 29.3)
    """
    return _data().chain


@dataclass(frozen=True, slots=True, kw_only=True)
class _Data:
    runs: tuple[PublishedRun, ...]
    together: tuple[Together, ...]
    points: tuple[OperatingPoint, ...]
    failures: tuple[FailureStatistic, ...]
    timings: tuple[Timing, ...]
    causes: RootCauseTable
    chain: Reconciliation


_Row = TypeVar("_Row")


@cache
def _data() -> _Data:
    text = resources.files("tracker.core").joinpath("data/references.toml").read_text("utf-8")
    raw = tomllib.loads(text)
    sources = {key: Citation(**row) for key, row in raw["source"].items()}

    def rows(kind: type[_Row], table: list[dict[str, Any]]) -> tuple[_Row, ...]:
        return tuple(kind(**{**row, "source": sources[row["source"]]}) for row in table)

    runs = rows(PublishedRun, raw["run"])
    causes = raw["root_causes"]
    chain = raw["reconciliation"]
    step = chain["model_flop"] / (chain["delivered_tflop_per_s"] * 1e12 * 3600)
    return _Data(
        runs=runs,
        together=tuple(
            Together(**{**row, "runs": tuple(row["runs"]), "source": sources[row["source"]]})
            for row in raw["together"]
        ),
        points=rows(OperatingPoint, raw["operating_point"]),
        failures=rows(FailureStatistic, raw["failure"]),
        timings=rows(Timing, raw["timing"]),
        causes=RootCauseTable(
            rows=tuple(RootCauseRow(**row) for row in raw["root_cause"]),
            total=causes["total"],
            planned=causes["planned"],
            manual=causes["manual"],
            stated_gpu_share=causes["stated_gpu_share"],
            stated_hardware_share=causes["stated_hardware_share"],
            mark=causes["mark"],
            source=sources[causes["source"]],
            caveat=causes["caveat"],
        ),
        chain=Reconciliation(
            run=next(r for r in runs if r.key == chain["run"]),
            model_flop=chain["model_flop"],
            delivered_tflop_per_s=chain["delivered_tflop_per_s"],
            goodput=chain["goodput"],
            step_gpu_hours=step,
            billed_gpu_hours=step / chain["goodput"],
            published_gpu_hours=chain["published_gpu_hours"],
            source=sources[chain["source"]],
            caveat=chain["caveat"],
        ),
    )


def _row_name(gpu: str) -> str:
    try:
        return lookup(gpu).name
    except UnknownGpu:
        return ""
