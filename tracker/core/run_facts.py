"""A run as the calculators take it: its definitions of goodput, its chain, its difference from the plan.

Pure: a Snapshot in, what `definitions`, `chain` and `variance` need out. No formula stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from tracker.core._checks import positive
from tracker.core.chain import Chain, chain, chain_of_plan
from tracker.core.definitions import AttemptFacts, RunFacts
from tracker.core.errors import TrackerError
from tracker.core.goodput_model import goodput_losses
from tracker.core.hardware import canonical_precision, lookup
from tracker.core.ledger import BUCKETS, AttemptLine, reservation_span
from tracker.core.plan import Plan
from tracker.core.run_money import costs, drawn, stamp
from tracker.core.run_plan import plan_for
from tracker.core.snapshot import Snapshot
from tracker.core.variance import Factors, Variance, plan_factors, variance

_SAME_TARGET: Final = 1e-3
_SHORT_OF_PLAN: Final = 0.03
US_PER_S: Final = 1_000_000
_OVERHEAD: Final = tuple(b for b in BUCKETS if b not in ("productive", "lost", "tail", "pending"))


@dataclass(frozen=True, slots=True, kw_only=True)
class NominalShare:
    """One attempt's goodput, ours beside the one by a nominal step time."""

    attempt: int
    """Its number."""
    hours: float
    """Wall time of its allocation, pending time left out."""
    steps_net: int
    """Retained steps."""
    step_time_s: float | None
    """Mean of its own steps; None without any."""
    tokens_per_step: float | None
    """Mean of its own steps."""
    ours_ratio: float | None
    """Productive over allocated time without pending; never above 1."""
    nominal_ratio: float | None
    """Retained steps x nominal step time over the same time; not clipped."""
    reason: str
    """Why the nominal one is above 1; empty where it is not."""


def run_facts(snapshot: Snapshot, *, nominal_step_s: float | None = None) -> RunFacts:
    """Return what the definitions of goodput need of a run.

    Without a GPU count anywhere, every attempt counts as one device: ratios of wall time.
    Raises InvalidValue for a nominal step time of zero or less.
    """
    counted = all(line.gpu_us is not None for line in snapshot.attempts)
    own = sum(line.gpu_us["idle"] for line in snapshot.attempts if line.gpu_us is not None)
    idle = snapshot.gpu_us["idle"] - own if counted and snapshot.gpu_us is not None else 0
    return RunFacts(
        attempts=tuple(_attempt(line, counted=counted) for line in snapshot.attempts),
        at_risk_gpu_s=_at_risk(snapshot, counted=counted),
        net_steps=sum(line.steps_net for line in snapshot.attempts) if snapshot.attempts else None,
        nominal_step_s=nominal_of(snapshot) if nominal_step_s is None else _nominal(nominal_step_s),
        idle_gpu_s=idle / US_PER_S,
    )


def nominal_of(snapshot: Snapshot) -> float | None:
    """Return the run's own nominal step time: the median over its steps of their attempt's mean; s."""
    known = sorted(
        (line.step_time_s, line.steps_net + line.steps_lost)
        for line in snapshot.attempts
        if line.step_time_s is not None
    )
    left = sum(steps for _, steps in known) / 2
    for step_s, steps in known:
        left -= steps
        if left <= 0:
            return step_s
    return None


def nominal_shares(snapshot: Snapshot, *, nominal_step_s: float | None = None) -> tuple[NominalShare, ...]:
    """Return each attempt's goodput by a nominal step time (the run's own where none is given).

    An attempt whose steps are faster than the nominal one comes out above 1: that is said, not clipped.
    Raises InvalidValue for a nominal step time of zero or less.
    """
    nominal = nominal_of(snapshot) if nominal_step_s is None else _nominal(nominal_step_s)
    usual = max((t for line in snapshot.attempts if (t := _tokens_per_step(line)) is not None), default=None)
    return tuple(_share(line, nominal, usual) for line in snapshot.attempts)


def chain_of_run(snapshot: Snapshot) -> Chain:
    """Return the run's chain so far: productive hours, and billed ones without what is pending."""
    gpu_us, eff = snapshot.gpu_us, snapshot.mfu
    money, energy = costs(snapshot), drawn(snapshot)
    said = [f"until {stamp(snapshot.as_of_us)}, without pending time"]
    if money is not None and money.gpu_hour_price is not None:
        said.append(f"at a mean price of {money.gpu_hour_price:.4g} {money.currency}")
    if energy is not None:
        said.append(f"power {energy.power_from}, {energy.power_w:.4g} W")
    if gpu_us is None:
        said.append("no GPU count is known")
    return chain(
        snapshot.run,
        kind="run",
        tokens=snapshot.tokens.seen,
        flop_per_token=eff.flop_per_token,
        flop_method=eff.flop_method,
        peak_flop_per_s=eff.peak_flop_per_s,
        precision=eff.reference_precision if eff.peak_flop_per_s is not None else None,
        step_gpu_hours=gpu_us["productive"] / 3.6e9 if gpu_us is not None else None,
        billed_gpu_hours=(gpu_us["allocated"] - gpu_us["pending"]) / 3.6e9 if gpu_us is not None else None,
        gpu_hour_price=money.gpu_hour_price if money is not None else None,
        power_w=energy.power_w if energy is not None else None,
        facility_overhead=energy.facility_overhead if energy is not None else 1.0,
        caveat="; ".join(said),
    )


def chains_of(snapshot: Snapshot) -> tuple[Chain, ...]:
    """Return the plan's chain, where there is a plan, and the run's, where there is a run."""
    plan = snapshot.settings.plan if snapshot.settings is not None else None
    return (
        *((chain_of_plan(plan),) if plan is not None else ()),
        *((chain_of_run(snapshot),) if snapshot.attempts else ()),
    )


def point_of(snapshot: Snapshot) -> dict[str, object]:
    """Return a run's operating point as `references.differences` compares it; what is unknown stays out."""
    found: dict[str, object] = {}
    hardware = snapshot.settings.hardware if snapshot.settings is not None else None
    gpu = hardware.gpu if hardware is not None else snapshot.operating_point.get("gpu_name")
    for name, value, read in (
        ("gpu", gpu, lambda text: lookup(text).name),
        ("precision", snapshot.operating_point.get("precision"), canonical_precision),
    ):
        if value is not None:
            try:
                found[name] = read(value)
            except TrackerError:
                continue
    length = snapshot.operating_point.get("sequence_length", "")
    if length.isdigit():
        found["sequence_length"] = int(length)
    per_step = _tokens_per_step(snapshot.attempts[-1]) if snapshot.attempts else None
    if per_step is not None:
        found["global_batch"] = round(per_step)
    return found


def run_variance(snapshot: Snapshot, *, tokens: float | None = None) -> Variance | None:
    """Return the run so far against its plan, for the tokens trained so far; None where a side is unknown.

    With `tokens` (a target of the run) both sides are brought to their targets at their own rates: then a
    target that differs from the plan's is a part too. Positive is more GPU-hours, or later.
    """
    plan = snapshot.settings.plan if snapshot.settings is not None else None
    run = run_factors(snapshot, plan=plan, tokens=tokens)
    if plan is None or run is None:
        return None
    planned = planned_factors(
        plan,
        tokens=run.tokens if tokens is None else None,
        after=(snapshot.tokens.inherited or 0) if tokens is None else 0,
        gpus=run.gpus,
    )
    return variance(planned, run) if planned is not None else None


def planned_factors(
    plan: Plan, *, tokens: float | None = None, after: float = 0, gpus: float | None = None
) -> Factors | None:
    """Return the plan's side, of its whole target; for other tokens where given. None where it is unknown.

    Of listed stages, those that these tokens (which come `after` others) go through. `gpus` stands in for a
    plan without a GPU count.
    """
    e, target = plan.estimate(), plan.target_tokens
    if e is None or plan.peak is None or target is None:
        return None
    main = e.main
    count = main.gpus if main.gpus is not None else gpus
    part = plan_for(plan, target if tokens is None else tokens, after=after)
    if count is None or part is None:
        return None
    if part.days:
        count = part.billed_gpu_hours / (part.days * 24)
    ratio = part.goodput_ratio
    redo = 0.0
    if plan.failures is not None:
        losses = goodput_losses(
            failures_per_day=plan.failures.per_day,
            restart_min=plan.failures.restart_min,
            checkpoint_interval_min=plan.failures.checkpoint_interval_min,
            checkpoint_stall_min=plan.failures.checkpoint_stall_min,
        )
        redo = (losses.redo_ratio or 0.0) / ratio
    return plan_factors(
        tokens=part.tokens,
        flop_per_token=part.flop / part.tokens,
        peak_flop_per_s=plan.peak.value,
        mfu_ratio=part.mfu_ratio,
        goodput_ratio=ratio,
        gpus=count,
        planned_redo_ratio=redo,
    )


def run_factors(
    snapshot: Snapshot, *, plan: Plan | None = None, tokens: float | None = None
) -> Factors | None:
    """Return the run's side; None before it has retained tokens, GPUs and a peak.

    The calendar runs from the planned start (the first attempt where that is earlier or no start is
    planned) to `as_of`, or to the end of a finished run; time that is pending is in neither side. A
    reservation held before or after that costs hours, and makes nothing later: then the share of the
    calendar in which GPUs were held is above 1.
    """
    gpu_us, eff, seen = snapshot.gpu_us, snapshot.mfu, snapshot.tokens.seen
    if gpu_us is None or not seen or not eff.productive_ratio or eff.peak_flop_per_s is None:
        return None
    productive = gpu_us["productive"]
    held_us, calendar_us = _calendar(snapshot, plan)
    if productive <= 0 or held_us <= 0 or eff.flop_per_token is None:
        return None
    allocated = gpu_us["allocated"] - gpu_us["pending"]
    return Factors(
        tokens=seen if tokens is None else positive("tokens", tokens, "a number of tokens above 0"),
        flop_per_token=eff.flop_per_token,
        peak_flop_per_s=eff.peak_flop_per_s,
        mfu_ratio=eff.productive_ratio,
        redo_ratio=gpu_us["lost"] / productive,
        tail_ratio=gpu_us["tail"] / productive,
        overhead_ratio=sum(gpu_us[name] for name in _OVERHEAD) / productive,
        gpus=allocated / held_us,
        availability_ratio=held_us / max(calendar_us, 1),
        redo_by=_redo_by(snapshot),
        tail_by=_tail_by(snapshot),
        overhead_by={name: gpu_us[name] for name in _OVERHEAD},
    )


def other_target(snapshot: Snapshot) -> float | None:
    """Return the tokens that the run trains to by its own log; None where that is the plan's target."""
    own = _target(snapshot)
    plan = snapshot.settings.plan if snapshot.settings is not None else None
    planned = plan.target_tokens if plan is not None else None
    if own is not None and planned is not None and abs(own - planned) <= _SAME_TARGET * planned:
        return None  # steps are whole: a target in steps is never quite the one in tokens
    return own


def shorter_target(snapshot: Snapshot) -> float | None:
    """Return the tokens that the run trains to by its own log, where that is well below the plan's target.

    A log that trains to the end of one of the plan's stages says nothing against the plan.
    """
    own = other_target(snapshot)
    plan = snapshot.settings.plan if snapshot.settings is not None else None
    whole = plan.target_tokens if plan is not None else None
    if own is None or plan is None or whole is None or own >= whole * (1 - _SHORT_OF_PLAN):
        return None
    ends = accumulate(stage.tokens for stage in plan.stages)
    alone = (stage.tokens for stage in plan.stages)
    return None if any(abs(own - end) <= _SHORT_OF_PLAN * end for end in (*ends, *alone)) else own


def _target(snapshot: Snapshot) -> float | None:
    said = snapshot.said

    def number(name: str) -> int | None:
        value = said.get(name)
        return value if isinstance(value, int) and value > 0 else None

    tokens, samples, steps = number("target_tokens"), number("target_samples"), number("target_steps")
    length = number("sequence_length")
    if length is None and snapshot.settings is not None:
        length = snapshot.settings.model.sequence_length
    if tokens is not None:
        return float(tokens)
    if samples is not None and length is not None:
        return float(samples * length)
    per_step = _tokens_per_step(snapshot.attempts[-1]) if snapshot.attempts else None
    return steps * per_step if steps is not None and per_step is not None else None


def _attempt(line: AttemptLine, *, counted: bool) -> AttemptFacts:
    times: Mapping[str, int] = {**line.wall_us, "idle": 0}
    if counted and line.gpu_us is not None:
        times = line.gpu_us
    return AttemptFacts(
        start_s=line.start_us / US_PER_S,
        end_s=(line.start_us + line.wall_us["allocated"]) / US_PER_S,
        gpus=(line.gpus or 1) if counted else 1,
        world=line.world if counted else None,
        productive_gpu_s=times["productive"] / US_PER_S,
        allocated_gpu_s=times["allocated"] / US_PER_S,
        pending_gpu_s=times["pending"] / US_PER_S,
        lost_gpu_s=times["lost"] / US_PER_S,
        checkpoint_gpu_s=times["checkpoint"] / US_PER_S,
        evaluation_gpu_s=times["evaluation"] / US_PER_S,
    )


def _at_risk(snapshot: Snapshot, *, counted: bool) -> float | None:
    """Return the productive GPU-seconds of the steps at risk, at the pace of the attempts that ran them."""
    left = snapshot.steps.at_risk
    if left is None:
        return None
    found = 0.0
    for line in reversed(snapshot.attempts):
        if left <= 0:
            break
        if line.steps_net:
            part = min(left, line.steps_net)
            times = line.gpu_us if counted and line.gpu_us is not None else line.wall_us
            found += times["productive"] * part / line.steps_net
            left -= part
    return found / US_PER_S


def _nominal(step_s: float) -> float:
    return positive("nominal_step_s", step_s, "seconds above 0, such as 12.5")


def _tokens_per_step(line: AttemptLine) -> float | None:
    steps = line.steps_net + line.steps_lost
    return line.tokens_processed / steps if line.tokens_processed is not None and steps else None


def _share(line: AttemptLine, nominal: float | None, usual: float | None) -> NominalShare:
    wall = line.wall_us["allocated"] - line.wall_us["pending"]
    ratio = line.steps_net * nominal * US_PER_S / wall if nominal is not None and wall > 0 else None
    per_step = _tokens_per_step(line)
    reason = ""
    if ratio is not None and ratio > 1 and line.step_time_s is not None:
        early = not line.resumed_from or (per_step is not None and usual is not None and per_step < usual)
        reason = (
            f"{'batch warm-up: ' if early else ''}faster than the nominal step ({line.step_time_s:.3g} s)"
        )
    gpu_us = line.gpu_us
    over = gpu_us["allocated"] - gpu_us["pending"] if gpu_us is not None else wall
    top = gpu_us["productive"] if gpu_us is not None else line.wall_us["productive"]
    return NominalShare(
        attempt=line.number,
        hours=wall / 3.6e9,
        steps_net=line.steps_net,
        step_time_s=line.step_time_s,
        tokens_per_step=per_step,
        ours_ratio=top / over if over > 0 else None,
        nominal_ratio=ratio,
        reason=reason,
    )


def _redo_by(snapshot: Snapshot) -> dict[str, float]:
    """Return redone GPU-hours by the cause of the stop that threw them away."""
    by: dict[str, float] = {}
    for stop in snapshot.interruptions:
        if stop.redo_gpu_hours:
            by[stop.cause] = by.get(stop.cause, 0.0) + stop.redo_gpu_hours
    return by


def _tail_by(snapshot: Snapshot) -> dict[str, float]:
    """Return GPU-time after the last step by what ended it; "stalled" where nothing has yet."""
    by: dict[str, float] = {}
    for line in snapshot.attempts:
        if line.gpu_us is not None and line.gpu_us["tail"]:
            why = "stalled" if line.stalled else line.cause or line.end_kind or "unknown"
            by[why] = by.get(why, 0.0) + line.gpu_us["tail"]
    return by


def _calendar(snapshot: Snapshot, plan: Plan | None) -> tuple[int, int]:
    """Return for how long any GPUs were held, and how long the calendar is: wall microseconds."""
    lines = snapshot.attempts
    spans = [(line.start_us, line.start_us + line.wall_us["allocated"]) for line in lines]
    if snapshot.settings is not None:
        span = reservation_span(lines, snapshot.settings, snapshot.as_of_us)
        if span is not None and span[1] > span[0]:
            spans.append(span[:2])
    held, reach = 0, None
    for start, end in sorted(spans):
        begin = start if reach is None else max(start, reach)
        held += max(0, end - begin)
        reach = end if reach is None else max(reach, end)
    first = min(line.start_us for line in lines)
    if plan is not None and plan.start is not None:
        first = min(first, round(plan.start.timestamp() * US_PER_S))
    last = max(line.start_us + line.wall_us["allocated"] for line in lines)
    if snapshot.state != "finished":
        last = max(last, snapshot.as_of_us)
    pending = max((line.wall_us["pending"] for line in lines), default=0)
    return held - pending, last - first - pending
