"""What a published figure is: the kinds of row in the references, with mark, source and caveat.

Pure. What a source does not state is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tracker.core.hardware import Peak, UnknownGpu, canonical_precision, lookup, peak_flop_per_s

Mark = Literal["P", "X", "derived"]
"""P read in the primary text, X through a third party's extract, derived by a stated rule."""

MARKS: Mapping[str, str] = {
    "P": "read in the primary text",
    "X": "read through a third party's extract: check before relying on it",
    "derived": "computed from published parts by the rule in its caveat",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """The document a row stands in."""

    title: str
    """What a person would call it."""
    url: str = ""
    """Where it is, where that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """One published training run. What the source does not state is None."""

    key: str
    """A short name to ask for it by."""
    name: str
    """What people call it."""
    active_params: float
    """Parameters one token passes through."""
    gpu: str
    """Hardware row, or a name without a row."""
    counts: str
    """What its hours include."""
    mark: Mark
    """P, X or derived."""
    source: Citation
    """Where it stands."""
    caveat: str
    """What belongs beside any comparison with it."""
    total_params: float | None = None
    """Parameters stored, where they differ."""
    tokens: float | None = None
    """Tokens trained."""
    gpus: int | None = None
    """Devices, the most where they changed."""
    precision: str | None = None
    """As stated."""
    gpu_hours: float | None = None
    """Published, or derived as the caveat says."""
    gpu_hours_per_trillion_tokens: float | None = None
    """Published rate, where a rate is published."""
    gpu_hour_price: float | None = None
    """Published assumption, USD."""
    stage_gpu_hours: Mapping[str, float] | None = None
    """Published hours by stage, where they are broken down."""
    total_gpu_hours: float | None = None
    """Published hours of all those stages."""
    total_cost: float | None = None
    """Published cost of all of them, USD, at gpu_hour_price."""
    no_backsolve: bool = False
    """Whether 6ND over hours would be misleading for it."""

    @property
    def peak(self) -> Peak | None:
        """Its device's dense BF16 peak (FP16 for FP16 runs): the common reference. None if unknown.

        An FP8 run is set against the BF16 peak too, as its caveat says.
        """
        precision = "fp16" if self.precision == "fp16" else "bf16"
        try:
            return peak_flop_per_s(self.gpu, precision)
        except UnknownGpu:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Published hours of several runs in one sum."""

    name: str
    """Whose."""
    runs: tuple[str, ...]
    """Keys of the runs."""
    gpu_hours: float
    """As published."""
    mark: Mark
    """P, X or derived."""
    source: Citation
    """Where it stands."""
    caveat: str
    """What it does and does not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoint:
    """A measured rate with what is needed to interpret it; unstated parts are None."""

    name: str
    """Model and configuration."""
    mark: Mark
    """P, X or derived."""
    source: Citation
    """Where it stands."""
    caveat: str
    """What belongs beside it."""
    active_params: float | None = None
    """Parameters one token passes through."""
    total_params: float | None = None
    """Parameters stored."""
    gpu: str | None = None
    """Hardware row."""
    gpus: int | None = None
    """Devices."""
    global_batch_mi_tokens: float | None = None
    """Global batch in units of 2**20 tokens."""
    sequence_length: int | None = None
    """Tokens per sequence."""
    ep: int | None = None
    """Expert-parallel degree."""
    pp: int | None = None
    """Pipeline-parallel degree."""
    precision: str | None = None
    """As stated."""
    recompute: str | None = None
    """Activation recomputation, yes or no."""
    routing: str | None = None
    """How tokens reached experts."""
    tokens_per_s_per_gpu: float | None = None
    """Rate."""
    tflop_per_s: float | None = None
    """Model TFLOP/s of one device."""
    mfu: float | None = None
    """As printed, a ratio."""
    peak_tflop_per_s: float | None = None
    """The peak its MFU was printed against."""

    @property
    def is_reference_only(self) -> bool:
        """Whether its ratio is against another precision's peak: a reference, no utilisation."""
        if self.precision is None or self.peak_tflop_per_s is None or self.gpu is None:
            return False
        row = lookup(self.gpu)
        own = row.peaks.get(canonical_precision(self.precision))
        return own is not None and self.peak_tflop_per_s < 0.99 * own.tflop_per_s

    @property
    def activation_ratio(self) -> float | None:
        """Active over total parameters."""
        if self.active_params is None or self.total_params is None:
            return None
        return self.active_params / self.total_params


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureStatistic:
    """A published failure figure, with the parts it can be recomputed from where they are given."""

    key: str
    """A short name to ask for it by."""
    name: str
    """Whose cluster or run."""
    figure: str
    """As published, in words."""
    mark: Mark
    """P, X or derived."""
    source: Citation
    """Where it stands."""
    caveat: str
    """What belongs beside it."""
    days: float | None = None
    """Window."""
    gpus: int | None = None
    """Devices."""
    node_days: float | None = None
    """Exposure, where nodes are counted."""
    interruptions: int | None = None
    """Unexpected ones, or failures."""
    planned: int | None = None
    """Planned ones."""
    manual: int | None = None
    """Those that needed a person."""
    per_1000_node_days: float | None = None
    """Published rate."""
    job_mtbf_hours: float | None = None
    """Published mean time between failures of a job."""
    kind: str | None = None
    """`measured` or `projected`, where the source tells them apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """A published time to detect, restart or save."""

    name: str
    """What was timed."""
    figure: str
    """As published."""
    mark: Mark
    """P, X or derived."""
    source: Citation
    """Where it stands."""
    caveat: str
    """What belongs beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RootCauseRow:
    """One row of the published root-cause table."""

    cause: str
    """Our name of the cause."""
    label: str
    """As published."""
    category: str
    """As published."""
    count: int
    """As published: counts decide."""
    printed_share: float
    """As printed, a ratio; it may disagree with the count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RootCauseTable:
    """The published root-cause table and the shares stated about it."""

    rows: tuple[RootCauseRow, ...]
    """In the published order."""
    total: int
    """Stated total of unexpected interruptions."""
    planned: int
    """Planned ones beside it."""
    manual: int
    """Those that needed significant manual intervention."""
    stated_gpu_share: float
    """The text's GPU share, a ratio."""
    stated_hardware_share: float
    """The text's hardware share, a ratio."""
    mark: Mark
    """P, X or derived."""
    source: Citation
    """Where it stands."""
    caveat: str
    """What belongs beside it."""

    @property
    def gpu_share(self) -> float:
        """The GPU share by counts: the one that holds."""
        return sum(r.count for r in self.rows if r.category == "GPU") / self.total
