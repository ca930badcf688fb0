"""A plan made from a short measured run: what was measured, and where every value came from.

Pure: a Snapshot in. MFU and goodput are the run's; the model, the hardware and the target are the
config's, else the log's. The measured MFU is restated for the plan's FLOP count, so that the hours for
a token are the measured ones whatever the method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tracker.core.errors import InvalidValue, TrackerError
from tracker.core.hardware import Peak, canonical_precision, lookup, peak_flop_per_s, peak_given
from tracker.core.ledger import AttemptLine
from tracker.core.memo import remembered
from tracker.core.metrics import mfu
from tracker.core.plan import DEFAULTS, Plan
from tracker.core.plan_check import with_measured
from tracker.core.run_money import moment, stamp
from tracker.core.settings import Settings
from tracker.core.snapshot import Snapshot

ENDED_SHORT: Final = 0.98
"""A run that is over below this share of its target did not reach it; above, the rest is rounding."""
_DAY_US: Final = 86_400_000_000
_SHORT_H: Final = 24.0
_NEAR_SIZE: Final = 1.25
_FROM_LOG: Final[Mapping[str, str]] = {
    "active_params": "active_parameters",
    "layers": "layers",
    "hidden_size": "hidden_size",
    "heads": "heads",
    "head_dim": "head_dim",
    "sequence_length": "sequence_length",
    "experts": "experts",
    "experts_per_token": "experts_per_token",
}
"""Plan -> the log's name for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One value of the plan, and where it came from."""

    name: str
    value: float | int | str | None
    where: str
    """"measured", "config", "log", "flag", "default" or "unknown", with words where they help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPlan:
    """A plan filled from a run."""

    run: str
    """Its name."""
    plan: Plan
    taken: tuple[Taken, ...]
    """By name, in the order of the table."""
    is_mfu_restated: bool
    """Whether the MFU is the run's against the plan's own peak: then no peak changes the hours."""
    cautions: tuple[str, ...]
    """Why the measured figures may not hold for a long run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFor:
    """What the plan says of some of its tokens, stage after stage."""

    tokens: float
    flop: float
    ideal_gpu_hours: float
    step_gpu_hours: float
    billed_gpu_hours: float
    days: float | None
    """None without a GPU count."""

    @property
    def mfu_ratio(self) -> float:
        """Return MFU over productive time: of stages that differ, weighted by their planned hours."""
        return self.ideal_gpu_hours / self.step_gpu_hours

    @property
    def goodput_ratio(self) -> float:
        """Return productive over allocated time."""
        return self.step_gpu_hours / self.billed_gpu_hours


def plan_for(plan: Plan, tokens: float, *, after: float = 0.0) -> PlannedFor | None:
    """Return what a plan says of so many tokens, the first ones or those after others.

    Stages follow each other, each at its own pace. What goes beyond the target costs what the mean of them
    does, as later stages do: so target x (1 + later stages) is the whole plan. None while the plan lacks
    something, and for no tokens.
    """
    estimate = plan.estimate()
    target = plan.target_tokens
    if estimate is None or not target or tokens <= 0:
        return None

    def within(before: float, size: float) -> float:
        low, high = max(before, after), min(before + size, after + tokens)
        return max(0.0, high - low) / size

    shares, before = [], 0.0
    beyond = max(0.0, after + tokens - target) - max(0.0, after - target)
    for stage in estimate.stages:
        shares.append((stage, within(before, stage.tokens) + beyond / target))
        before += stage.tokens
    gpus = plan.gpus if plan.gpus is not None else estimate.main.gpus
    known = gpus is not None and all(stage.days is not None for stage in estimate.stages)
    days = None
    if known and gpus is not None:
        extra = estimate.billed_gpu_hours * beyond / target / (gpus * 24.0)
        days = sum((stage.days or 0.0) * (share - beyond / target) for stage, share in shares) + extra
    return PlannedFor(
        tokens=tokens,
        flop=sum(stage.model_flop * share for stage, share in shares),
        ideal_gpu_hours=sum(stage.ideal_gpu_hours * share for stage, share in shares),
        step_gpu_hours=sum(stage.step_gpu_hours * share for stage, share in shares),
        billed_gpu_hours=sum(stage.billed_gpu_hours * share for stage, share in shares),
        days=days,
    )


def planned_us(plan: Plan, tokens: float, start_us: float) -> int | None:
    """Return when a plan that begins at a moment has so many tokens; more than all of its tokens is all."""
    part = plan_for(plan, min(tokens, plan.all_tokens or tokens))
    return None if part is None or part.days is None else round(start_us) + round(part.days * _DAY_US)


def plan_of(settings: Settings, given: Mapping[str, Any] | None = None) -> Plan:
    """Return the plan of a config: its [plan], else what [model] and [hardware] say; flags win.

    `given` holds fields of Plan that somebody gave on the command line.

    Raises InvalidValue for values that do not go together.
    """
    given = dict(given or {})
    base = settings.plan
    if base is None:
        model = settings.model
        names = ("active_params", "total_params", "sequence_length", "layers", "hidden_size", "heads",
                 "head_dim", "causal")  # fmt: skip
        base = Plan(
            **{name: getattr(model, name) for name in names},
            peak=_peak(settings),
            gpus=settings.hardware.gpus,
        )
    if "gpu_hour_price" in given:
        given.setdefault("prices", ())
    if "tokens" in given and base.stages:
        given.setdefault("stages", ())
    if given.get("stages"):
        given.setdefault("tokens", None)
    stale = {name for name in given if given[name] is not None}
    sources = {key: text for key, text in base.sources.items() if key not in stale}
    given["sources"] = {**sources, **given.get("sources", {})}
    return replace(base, **given)


def plan_beside_run(snapshot: Snapshot, given: Mapping[str, Any] | None = None) -> Plan:
    """Return the plan of a run's config; GPUs and start that it leaves open are those of the run.

    Raises InvalidValue for values that do not go together.
    """
    assert snapshot.settings is not None
    return anchored(plan_of(snapshot.settings, given), snapshot.attempts)


def anchored(plan: Plan, lines: Sequence[AttemptLine]) -> Plan:
    """Return a plan whose start and GPUs, where it leaves them open, are those of the first attempt."""
    gpus = plan.gpus
    if gpus is None:
        gpus = next((line.gpus for line in lines if line.gpus is not None), None)
    return _anchored(plan, gpus, lines[0].start_us if lines else None)


@remembered
def _anchored(plan: Plan, gpus: int | None, first_us: int | None) -> Plan:
    start = plan.start if plan.start is not None or first_us is None else moment(first_us)
    return plan if (start, gpus) == (plan.start, plan.gpus) else replace(plan, gpus=gpus, start=start)


def plan_from_run(snapshot: Snapshot, given: Mapping[str, Any] | None = None) -> MeasuredPlan:
    """Return a plan with the MFU and goodput of a measured run; `given` are flags, which win.

    Raises InvalidValue where the run has nothing to measure yet, with what is missing.
    """
    settings = snapshot.settings
    given = {name: value for name, value in (given or {}).items() if value is not None}
    measured = snapshot.goodput_ratio is not None or snapshot.mfu.productive_ratio is not None
    if settings is None or not measured:
        raise InvalidValue(
            "--from-run",
            snapshot.run,
            "a run with steps that were measured",
            "; ".join(snapshot.unknown) or "Ingest its logs first: tracker ingest --config FILE",
        )
    plan = plan_of(settings)
    from_log: dict[str, Any] = {
        name: value
        for name, theirs in _FROM_LOG.items()
        if getattr(plan, name) is None and isinstance(value := snapshot.said.get(theirs), int) and value > 0
    }
    if plan.layers is None and settings.plan is not None and not _default(settings.plan, "attn_overhead"):
        for name in ("layers", "hidden_size", "heads", "head_dim"):
            from_log.pop(name, None)  # the config chose an allowance
    if (
        "hidden_size" not in from_log
        and plan.hidden_size is None
        and not {"heads", "head_dim"} <= from_log.keys()
    ):
        from_log.pop("layers", None)
    if plan.gpus is None and snapshot.attempts and snapshot.attempts[-1].gpus is not None:
        from_log["gpus"] = snapshot.attempts[-1].gpus
    filled = plan_of(replace(settings, plan=replace(plan, **from_log)), given)
    ratio = None if "mfu" in given else _measured_mfu(snapshot, filled)
    goodput = None if "goodput" in given else snapshot.goodput_ratio
    made = with_measured(filled, mfu=ratio, goodput=goodput, source=_words(snapshot))
    return MeasuredPlan(
        run=snapshot.run,
        plan=made,
        taken=tuple(_taken(made, given, from_log, ratio=ratio, goodput=goodput)),
        is_mfu_restated=ratio is not None and _restates(snapshot, filled),
        cautions=tuple(_cautions(snapshot, made, ratio)),
    )


def trained_precision(snapshot: Snapshot | None, settings: Settings) -> str:
    """Return the precision that a run trains in: the log's word, else the config's."""
    said = snapshot.said.get("precision") if snapshot is not None else None
    if isinstance(said, str):
        try:
            return canonical_precision(said)
        except TrackerError:
            pass
    return settings.hardware.precision


def _peak(settings: Settings) -> Peak | None:
    hardware = settings.hardware
    if hardware.peak_flop_per_s is None:
        return None
    gpu = lookup(hardware.gpu).name if hardware.gpu is not None else None
    if gpu is not None:
        try:
            table = peak_flop_per_s(gpu, hardware.precision)
        except TrackerError:
            table = None
        if table is not None and table.value == hardware.peak_flop_per_s:
            return table
    given = peak_given(hardware.peak_flop_per_s / 1e12, hardware.precision, name="hardware.peak_tflops")
    return replace(given, gpu=gpu)


def _default(plan: Plan, name: str) -> bool:
    return any(a.name == name and a.is_default for a in plan.assumptions)


def _measured_mfu(snapshot: Snapshot, plan: Plan) -> float | None:
    """Return the run's MFU in the plan's FLOP count; as the run has it where model or device differ."""
    gpu_us, seen, flop = snapshot.gpu_us, snapshot.tokens.seen, plan.flop()
    if flop is None or plan.peak is None or gpu_us is None or not seen or not _restates(snapshot, plan):
        return snapshot.mfu.productive_ratio
    return mfu(flop=seen * flop.value, gpu_us=gpu_us["productive"], peak_flop_per_s=plan.peak.value)


def _restates(snapshot: Snapshot, plan: Plan) -> bool:
    """Return whether the run's MFU can be stated in the plan's own FLOP count and peak."""
    settings = snapshot.settings
    if settings is None or plan.flop() is None or plan.peak is None:
        return False
    if snapshot.gpu_us is None or not snapshot.tokens.seen:
        return False
    own = settings.model.active_params
    return own is None or (own == plan.active_params and not _another_device(settings, plan))


def _another_device(settings: Settings, plan: Plan) -> bool:
    theirs = plan.peak.gpu if plan.peak is not None else None
    if settings.hardware.gpu is None or theirs is None:
        return False
    return lookup(settings.hardware.gpu).name != theirs


def _words(snapshot: Snapshot) -> str:
    hours = sum(line.wall_us["allocated"] for line in snapshot.attempts) / 3.6e9
    stops = sum(1 for stop in snapshot.interruptions if stop.kind == "unexpected")
    failed = "no interruption" if not stops else f"{stops} interruption{'s' if stops > 1 else ''}"
    return f"measured on {snapshot.run}, {hours:.3g} h with {failed}, as of {stamp(snapshot.as_of_us)}"


def _taken(
    plan: Plan,
    given: Mapping[str, Any],
    from_log: Mapping[str, Any],
    *,
    ratio: float | None,
    goodput: float | None,
) -> list[Taken]:
    flop = plan.flop()
    rows: list[tuple[str, float | int | str | None]] = [
        ("active_params", plan.active_params),
        ("tokens", plan.target_tokens),
        ("peak", f"{plan.peak.tflop_per_s:,g} TFLOP/s {plan.peak.precision}" if plan.peak else None),
        ("gpus", plan.gpus),
        ("sequence_length", plan.sequence_length),
        ("attention", flop.method if flop is not None else None),
        *((name, float(getattr(plan, name))) for name in DEFAULTS if name != "attn_overhead"),
    ]
    out = []
    for name, value in rows:
        keys = {"attention": {"attn_overhead", "layers"}, "tokens": {"tokens", "stages"}}.get(name, {name})
        if keys & given.keys():
            where = "flag"
        elif (name == "mfu" and ratio is not None) or (name == "goodput" and goodput is not None):
            where = "measured"
        elif keys & from_log.keys():
            where = "log"
        elif value is None:
            where = "unknown"
        elif _default(plan, {"attention": "attn_overhead"}.get(name, name)):
            where = "default"
        else:
            where = "config"
        out.append(Taken(name=name, value=value, where=where))
    return out


def _cautions(snapshot: Snapshot, plan: Plan, ratio: float | None) -> list[str]:
    hours = sum(line.wall_us["allocated"] for line in snapshot.attempts) / 3.6e9
    stops = sum(1 for stop in snapshot.interruptions if stop.kind == "unexpected")
    out = []
    if hours < _SHORT_H or stops == 0:
        failed = "no interruption" if not stops else f"{stops}"
        out.append(
            f"Goodput over {hours:.3g} h with {failed} says little about weeks: check it against the failure "
            f"model with --failures-per-day"
        )
    ran = snapshot.attempts[-1].gpus if snapshot.attempts else None
    if ran is not None and plan.gpus is not None and not _NEAR_SIZE >= plan.gpus / ran >= 1 / _NEAR_SIZE:
        out.append(
            f"Measured on {ran:,} GPUs, planned on {plan.gpus:,}: MFU falls and failures grow with size"
        )
    if snapshot.settings is not None and _another_device(snapshot.settings, plan):
        out.append("Measured on another device: its MFU is taken over as it is, which is a guess")
    if ratio is None and snapshot.mfu.productive_ratio is None:
        out.append(
            f"MFU was not measured: {'; '.join(snapshot.unknown) or 'no tokens, parameters or peak known'}"
        )
    return out
