"""What an accelerator can do at most: dense peak by exact name and precision, power, memory.

Pure. Rows come from data/hardware.toml, each value with its source; nothing is guessed. An unknown
device is an error that lists the known ones, never somebody else's chip; a sparse peak is on file
only to be recognised.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final, Literal

from tracker.core._checks import positive
from tracker.core.errors import InvalidValue, TrackerError, nearest, shown

PRECISIONS: Final = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")
"""The names the table is kept by; PRECISION_ALIASES maps what logs and configs write to them."""

PRECISION_ALIASES: Final[Mapping[str, str]] = {
    "float32": "fp32",
    "tensorfloat32": "tf32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "amp-bf16": "bf16",
    "bf16-mixed": "bf16",
    "amp-fp16": "fp16",
    "amp-fp8": "fp8",
    "float8": "fp8",
    "mxfp8": "fp8",
    "float4": "fp4",
    "mxfp4": "fp4",
    "nvfp4": "fp4",
}

_MOST_TFLOP_PER_S: Final = 1e6
"""No device comes near; a larger figure is FLOP/s where TFLOP/s is meant."""

Mark = Literal["P", "X", "derived", "given"]
"""P read in the source, X through a third party, derived computed here, given by the user."""


class UnknownGpu(TrackerError, LookupError):
    """No row is on file for a device, so MFU cannot be stated."""

    def __init__(self, gpu: str, known: Iterable[str]) -> None:
        names = sorted(known)
        close = difflib.get_close_matches(_key(gpu), names, n=3, cutoff=0.45)
        guess = f" Nearest: {', '.join(close)}." if close else ""
        super().__init__(
            f"no accelerator {shown(gpu)} on file.{guess} Known: {', '.join(names)}. "
            f"Use one of these names, or set peak_tflops in [hardware] (--peak-tflops on the "
            f"command line) to its dense datasheet peak."
        )
        self.gpu = gpu
        self.nearest = tuple(close)


class AmbiguousGpu(TrackerError, LookupError):
    """A short name fits several devices whose peaks differ."""

    def __init__(self, gpu: str, choices: Iterable[Accelerator]) -> None:
        listed = ", ".join(f"{c.name} ({c.title})" for c in choices)
        super().__init__(f"{shown(gpu)} may be {listed}. Name one of them.")
        self.gpu = gpu


class UnknownPrecision(TrackerError, LookupError):
    """A device has no peak on file at that precision."""

    def __init__(self, gpu: str, precision: str, known: Iterable[str]) -> None:
        names = sorted(known)
        is_one = PRECISION_ALIASES.get(_key(precision), _key(precision)) in PRECISIONS
        hint = "" if is_one else nearest(precision.lower(), [*PRECISIONS, *PRECISION_ALIASES])
        super().__init__(
            f"no peak on file for {gpu} at precision {shown(precision)} "
            f"(known for it: {', '.join(names)}). "
            + (f"{hint[0].upper()}{hint[1:]} " if hint and precision.lower() not in names else "")
            + "Use one of these, or set peak_tflops in [hardware]."
        )
        self.precision = precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a figure stands, and how it was read."""

    title: str
    """What a person would call the document."""
    url: str = ""
    """Where it is; empty when the user gave the figure."""
    read: str = ""
    """Day it was read, ISO 8601."""
    mark: Mark = "P"
    """P, X, derived or given."""

    def __str__(self) -> str:
        return f"{self.title} [{self.mark}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The arithmetic ceiling of one device at one precision, with where it stands."""

    value: float
    """FLOP/s of one device, dense."""
    precision: str
    """One of PRECISIONS."""
    source: Source
    """Who says so."""
    gpu: str | None = None
    """Name of the accelerator's row; None when the user gave the figure."""
    alternatives: tuple[tuple[float, Source], ...] = ()
    """Other published figures for the same peak, FLOP/s, not used."""

    @property
    def tflop_per_s(self) -> float:
        """The peak in TFLOP/s, as people write it."""
        return self.value / 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of a row that is not a peak, with its source and the others on record."""

    value: float
    """In the unit of the field that holds it."""
    source: Source
    """Who says so."""
    alternatives: tuple[tuple[float, Source], ...] = ()
    """Other published figures, not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One row of the hardware table."""

    name: str
    """The name the config uses."""
    title: str
    """Name in full, with memory where it tells boards apart."""
    vendor: str
    """Who makes it."""
    aliases: tuple[str, ...]
    """What logs, schedulers and people call it."""
    peaks: Mapping[str, Peak]
    """Dense peak by precision."""
    sparse: Mapping[str, Peak]
    """The sparse figure by precision: a trap to recognise, never a denominator."""
    tdp_w: Figure | None
    """Power of one device in W (TDP, or board power where only that is published)."""
    memory_gb: Figure | None
    """Memory of one device in GB as its maker counts them."""
    note: str
    """What to beware of; may be empty."""


def lookup(name: str) -> Accelerator:
    """Return the row of an accelerator by its name or an alias as logs print it.

    Case, blanks, hyphens and underscores do not matter; nothing else is forgiven.

    Raises UnknownGpu with the known names, AmbiguousGpu for a short name that fits several.

    >>> lookup("NVIDIA H100 80GB HBM3").name
    'h100-sxm'
    """
    rows, by_key, ambiguous = _table()
    key = _key(name)
    if key in by_key:
        return by_key[key]
    if key in ambiguous:
        raise AmbiguousGpu(name, [rows[choice] for choice in ambiguous[key]])
    raise UnknownGpu(name, rows)


def accelerators() -> tuple[Accelerator, ...]:
    """Return every row, in the table's order."""
    return tuple(_table()[0].values())


def canonical_precision(name: str) -> str:
    """Return the table's name of a precision; raises InvalidValue with the known ones.

    >>> canonical_precision("BFloat16"), canonical_precision("MXFP8")
    ('bf16', 'fp8')
    """
    key = _key(name)
    key = PRECISION_ALIASES.get(key, key)
    if key not in PRECISIONS:
        raise InvalidValue(
            "precision",
            name,
            f"one of {', '.join(PRECISIONS)}",
            nearest(key, [*PRECISIONS, *PRECISION_ALIASES]),
        )
    return key


def peak_flop_per_s(gpu: str, precision: str = "bf16") -> Peak:
    """Return the dense peak of one device at a precision, with its source.

    Raises UnknownGpu, AmbiguousGpu or UnknownPrecision.

    >>> peak_flop_per_s("h100-sxm", "bf16").tflop_per_s
    989.0
    """
    row = lookup(gpu)
    key = _key(precision)
    key = PRECISION_ALIASES.get(key, key)
    if key not in row.peaks:
        raise UnknownPrecision(row.name, precision, row.peaks)
    return row.peaks[key]


def peak_given(tflop_per_s: float, precision: str = "bf16", *, name: str = "peak_tflops") -> Peak:
    """Return a peak that the user states in TFLOP/s, checked for the usual slip of units.

    Raises InvalidValue when it is not a positive finite number, or is in FLOP/s.
    """
    remedy = "Give the dense peak of one GPU in TFLOP/s, such as 989 for an H100 SXM in BF16"
    value = positive(name, tflop_per_s, "a peak above 0, in TFLOP/s", remedy)
    if value > _MOST_TFLOP_PER_S:
        raise InvalidValue(
            name,
            tflop_per_s,
            "a peak in TFLOP/s",
            f"It looks like FLOP/s: write {value / 1e12:g} for {value:g}",
        )
    return Peak(
        value=value * 1e12,
        precision=canonical_precision(precision),
        source=Source(title="given by the user", mark="given"),
    )


def sparse_matches(
    tflop_per_s: float, precision: str = "bf16", *, gpu: str | None = None
) -> tuple[Accelerator, ...]:
    """Return the rows whose *sparse* peak at this precision is the given figure.

    Empty when the figure is also some dense peak at that precision of a row in question: then it
    is no slip. Equality is to half a per cent, because sheets round.

    >>> [row.name for row in sparse_matches(1979)][:1]
    ['h100-sxm']
    >>> sparse_matches(1979, "fp8")
    ()
    """
    rows = (lookup(gpu),) if gpu is not None else accelerators()
    value = tflop_per_s * 1e12
    if any(precision in r.peaks and _same(r.peaks[precision].value, value) for r in rows):
        return ()
    return tuple(r for r in rows if precision in r.sparse and _same(r.sparse[precision].value, value))


def dense_matches(tflop_per_s: float, *, gpu: str | None = None) -> tuple[Peak, ...]:
    """Return every dense peak on file that is the given figure, whatever its precision."""
    rows = (lookup(gpu),) if gpu is not None else accelerators()
    value = tflop_per_s * 1e12
    return tuple(p for r in rows for p in r.peaks.values() if _same(p.value, value))


def spec_sheet_ratio(
    from_gpu: str, to_gpu: str, from_precision: str = "bf16", to_precision: str | None = None
) -> float:
    """Return dense peak over dense peak: what people convert with, and should not.

    >>> round(spec_sheet_ratio("a100-sxm", "h100-sxm"), 2)
    3.17
    """
    top = peak_flop_per_s(to_gpu, to_precision or from_precision)
    return top.value / peak_flop_per_s(from_gpu, from_precision).value


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= 0.005 * b


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.casefold()).strip("-")


@cache
def _table() -> tuple[dict[str, Accelerator], dict[str, Accelerator], dict[str, tuple[str, ...]]]:
    text = resources.files("tracker.core").joinpath("data/hardware.toml").read_text("utf-8")
    data = tomllib.loads(text)
    sources = {key: Source(**row) for key, row in data["source"].items()}
    rows: dict[str, Accelerator] = {}
    by_key: dict[str, Accelerator] = {}
    for raw in data["accelerator"]:
        row = Accelerator(
            name=raw["name"],
            title=raw["title"],
            vendor=raw["vendor"],
            aliases=tuple(raw["aliases"]),
            peaks=_peaks(raw["name"], raw["peaks"], sources),
            sparse=_peaks(raw["name"], raw.get("sparse", ()), sources),
            tdp_w=_figure(raw.get("tdp", ()), "w", sources),
            memory_gb=_figure(raw.get("memory", ()), "gb", sources),
            note=raw.get("note", ""),
        )
        rows[row.name] = row
        for alias in (row.name, *row.aliases):
            if by_key.setdefault(_key(alias), row) is not row:
                raise AssertionError(f"hardware.toml: {alias!r} names two rows")
    ambiguous = {_key(raw["name"]): tuple(raw["choices"]) for raw in data["ambiguous"]}
    return rows, by_key, ambiguous


def _peaks(gpu: str, raw: Iterable[Mapping[str, Any]], sources: Mapping[str, Source]) -> dict[str, Peak]:
    entries: dict[str, list[Mapping[str, Any]]] = {}
    for row in raw:
        entries.setdefault(row["precision"], []).append(row)
    out: dict[str, Peak] = {}
    for precision, rows in entries.items():
        used, others = _used(rows)
        out[precision] = Peak(
            value=used["tflop_per_s"] * 1e12,
            precision=precision,
            source=sources[used["source"]],
            gpu=gpu,
            alternatives=tuple((o["tflop_per_s"] * 1e12, sources[o["source"]]) for o in others),
        )
    return out


def _figure(raw: Iterable[Mapping[str, Any]], unit: str, sources: Mapping[str, Source]) -> Figure | None:
    rows = list(raw)
    if not rows:
        return None
    used, others = _used(rows)
    return Figure(
        value=float(used[unit]),
        source=sources[used["source"]],
        alternatives=tuple((float(o[unit]), sources[o["source"]]) for o in others),
    )


def _used(
    rows: list[Mapping[str, Any]],
) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    used = [r for r in rows if r.get("used", True)]
    if len(used) != 1:
        raise AssertionError(f"hardware.toml: one figure must be marked as used: {rows}")
    return used[0], [r for r in rows if r is not used[0]]
