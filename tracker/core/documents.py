"""The JSON documents of `--json` and of the HTTP interface: one snapshot, spelt out.

Pure. Times are ISO 8601 with Z, ratios 0..1, unknown is null. Keys are a contract: extended, not renamed.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from tracker.core.corrections import Correction
from tracker.core.forecast.section import forecast_section
from tracker.core.interruptions import Verdict
from tracker.core.ledger import BUCKETS, AttemptLine
from tracker.core.run_facts import run_variance
from tracker.core.run_money import Costs, by_day, costs, drawn
from tracker.core.snapshot import Snapshot
from tracker.core.variance import Variance

SCHEMA: Final = 1
_US_PER_H: Final = 3_600_000_000


def iso(at_us: int | None) -> str | None:
    """Return a moment as ISO 8601 UTC; whole seconds where it has no fraction.

    >>> iso(1_767_225_600_000_000)
    '2026-01-01T00:00:00Z'
    """
    if at_us is None:
        return None
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=at_us)
    return moment.replace(tzinfo=None).isoformat() + "Z"


def hours(gpu_us: Mapping[str, int] | None) -> dict[str, float | None]:
    """Return GPU-hours: `allocated` and every bucket; nulls where the GPU count is unknown."""
    names = ("allocated", *BUCKETS)
    return {name: None if gpu_us is None else gpu_us[name] / _US_PER_H for name in names}


def status_document(snapshot: Snapshot) -> dict[str, Any]:
    """Return `tracker status --json`."""
    unexpected = [stop for stop in snapshot.interruptions if stop.kind == "unexpected"]
    per = snapshot.per_trillion
    steps, tokens, eff, mtbf = snapshot.steps, snapshot.tokens, snapshot.mfu, snapshot.mtbf
    return {
        "schema": SCHEMA,
        "run": snapshot.run,
        "as_of": iso(snapshot.as_of_us),
        "state": snapshot.state,
        "attempts": {"total": len(snapshot.attempts), "running": snapshot.running},
        "interruptions": {
            "unexpected": len(unexpected),
            "planned": sum(1 for stop in snapshot.interruptions if stop.kind == "planned"),
            "by_cause": dict(sorted(Counter(stop.cause for stop in unexpected).items())),
        },
        "steps": {
            "net": steps.net,
            "processed": steps.processed,
            "last": steps.last,
            "at_risk": steps.at_risk,
            "unseen": steps.unseen,
            "inherited": steps.inherited,
        },
        "tokens": {
            "net": tokens.net,
            "processed": tokens.processed,
            "inherited": tokens.inherited,
            "planned": tokens.planned,
        },
        "gpu_hours": hours(snapshot.gpu_us),
        "goodput_ratio": snapshot.goodput_ratio,
        "mfu": {
            "productive_ratio": eff.productive_ratio,
            "allocated_ratio": eff.allocated_ratio,
            "recent_ratio": eff.recent_ratio,
            "six_n_productive_ratio": eff.six_n_productive_ratio,
            "reference_precision": eff.reference_precision,
            "peak_tflop_per_s": None if eff.peak_flop_per_s is None else eff.peak_flop_per_s / 1e12,
            "peak_source": eff.peak_source or None,
            "flop_per_token": eff.flop_per_token,
            "flop_method": eff.flop_method,
        },
        "gpu_hours_per_trillion_tokens": {
            "realised": per.realised,
            "recent": per.recent,
            "plan": per.plan,
            "ratio_to_plan": per.ratio_to_plan,
        },
        "mtbf": {
            "job_hours": mtbf.job_hours,
            "device_hours": mtbf.device_hours,
            "device_hours_ci90": list(mtbf.device_hours_ci90),
        },
        "forecast": forecast_section(snapshot.forecast),
        "cost": _cost(costs(snapshot)),
        "energy": _energy(snapshot),
        "against_plan": variance_document(run_variance(snapshot)),
        "step_time_s": snapshot.step_time_s,
        "reported": {
            "tflop_per_s": None
            if snapshot.reported.flop_per_s is None
            else snapshot.reported.flop_per_s / 1e12,
            "hardware_flop": snapshot.reported.hardware,
            "convention": snapshot.reported.convention or None,
            "ours_tflop_per_s": None
            if snapshot.reported.ours_flop_per_s is None
            else snapshot.reported.ours_flop_per_s / 1e12,
            "explained": snapshot.reported.explained or None,
        },
        "last_reading_at": iso(snapshot.last_reading_us),
        "plan_finish_at": iso(snapshot.plan_finish_us),
        "operating_point": dict(snapshot.operating_point),
        "unmatched_jobs": list(snapshot.unmatched_jobs),
        "rejects": {"lines": snapshot.rejects},
        "warnings": list(snapshot.warnings),
        "unknown": list(snapshot.unknown),
    }


def _cost(money: Costs | None) -> dict[str, Any]:
    """Return money so far; nulls without a price or a GPU count."""
    return {
        "so_far": None if money is None else money.total,
        "currency": None if money is None else money.currency,
        "gpu_hour_price": None if money is None else money.gpu_hour_price,
        "per_trillion_tokens": None if money is None else money.per_trillion_tokens,
    }


def _energy(snapshot: Snapshot) -> dict[str, Any]:
    """Return energy so far, and what its power is from; nulls where no power is known."""
    found = drawn(snapshot)
    return {
        "mwh": None if found is None else found.mwh,
        "power_w": None if found is None else found.power_w,
        "power_from": None if found is None else found.power_from,
        "facility_overhead": None if found is None else found.facility_overhead,
        "carbon_t": None if found is None else found.carbon_t,
    }


def variance_document(found: Variance | None) -> dict[str, Any] | None:
    """Return a run against its plan in parts that sum exactly (`_us`); None where a side is unknown."""
    if found is None:
        return None
    return {
        "gpu_hours": found.gpu_hours,
        "days": found.days,
        "gpu_us": found.gpu_us,
        "wall_us": found.wall_us,
        "parts": [
            {
                "name": part.name,
                "gpu_hours": part.gpu_hours,
                "days": part.days,
                "gpu_us": part.gpu_us,
                "wall_us": part.wall_us,
                "planned": part.planned,
                "actual": part.actual,
                "cause": part.cause,
            }
            for part in found.parts
        ],
    }


def ledger_document(snapshot: Snapshot) -> dict[str, Any]:
    """Return `tracker ledger --json`: one row an attempt, and the total; what each day cost (UTC)."""
    money = costs(snapshot)
    return {
        "schema": SCHEMA,
        "run": snapshot.run,
        "as_of": iso(snapshot.as_of_us),
        "attempts": [_attempt(line, snapshot, money) for line in snapshot.attempts],
        "total": hours(snapshot.gpu_us),
        "cost": {
            "currency": None if money is None else money.currency,
            "total": None if money is None else money.total,
            "outside_attempts": None if money is None else money.reserved,
            "per_trillion_tokens": None if money is None else money.per_trillion_tokens,
        },
        "days": [
            {"date": day.date.isoformat(), "gpu_hours": day.gpu_us / _US_PER_H, "cost": day.cost}
            for day in by_day(snapshot)
        ],
    }


def _attempt(line: AttemptLine, snapshot: Snapshot, money: Costs | None) -> dict[str, Any]:
    return {
        "attempt": line.number,
        "job_id": line.job_id,
        "start": iso(line.start_us),
        "end": iso(line.end_us),
        "start_from": line.start_from,
        "estimated": line.estimated,
        "gpus": line.gpus,
        "resumed_from": line.resumed_from,
        "last_step": line.last_step,
        "end_kind": line.end_kind,
        "cause": line.cause,
        "tokens": {"net": line.tokens_net, "processed": line.tokens_processed},
        "step_time_s": line.step_time_s,
        "mfu_ratio": line.mfu_ratio(snapshot.mfu.peak_flop_per_s),
        "gpu_hours_per_trillion_tokens": line.hours_per_trillion,
        "gpu_hours": hours(line.gpu_us),
        "cost": None if money is None else money.attempts[line.number - 1],
    }


def interruptions_document(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return `tracker interruptions --json`: one row an interruption, in time order.

    `kind` and `cause` are what holds: a person's word where there is one (`correction`), and then `judged`
    keeps what the evidence says.
    """
    money = costs(snapshot)
    losses = money.losses if money is not None else (None,) * len(snapshot.interruptions)
    return [
        {
            "id": stop.number,
            "at": iso(stop.at_us),
            "attempt": stop.attempt,
            "kind": stop.kind,
            "cause": stop.cause,
            "evidence": stop.evidence,
            "confidence": stop.confidence,
            "detect_s": stop.detect_s,
            "restart_s": stop.restart_s,
            "redo_steps": stop.redo_steps,
            "redo_gpu_hours": stop.redo_gpu_hours,
            "cost": None if loss is None else loss.cost,
            "gpu_hours": None if loss is None else loss.gpu_hours,
            "manual": stop.manual,
            "began": iso(stop.began_us),
            "judged": _judged(stop.judged),
            "correction": _correction(snapshot.corrections.get(stop.attempt)),
        }
        for stop, loss in zip(snapshot.interruptions, losses, strict=True)
    ]


def _judged(verdict: Verdict | None) -> dict[str, Any] | None:
    """Return what the evidence alone says, where a person has said otherwise."""
    if verdict is None:
        return None
    return {"kind": verdict.kind, "cause": verdict.cause, "confidence": verdict.confidence}


def _correction(said: Correction | None) -> dict[str, Any] | None:
    if said is None:
        return None
    return {
        "cause": said.cause,
        "kind": said.kind,
        "manual": said.manual,
        "note": said.note,
        "by": said.by,
        "at": iso(said.made_us),
    }
