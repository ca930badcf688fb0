"""The JSON documents of a forecast: the short section of `status`, and all of `tracker forecast --json`.

Pure. Times are ISO 8601 with Z, ratios 0..1, unknown is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tracker.core.forecast.section import forecast_section, iso, quantiles
from tracker.core.forecast.value import Forecast, Move, Quantiles

if TYPE_CHECKING:  # a forecast alone loads neither replay nor history
    from tracker.core.forecast.backtest import Replay
    from tracker.core.forecast.history import History
    from tracker.core.forecast.score import Score

SCHEMA: Final = 1
_DAY_US: Final = 86_400e6


def forecast_document(
    run: str,
    forecast: Forecast,
    *,
    plan_finish_us: int | None,
    asked: Mapping[str, str] | None = None,
    otherwise: Forecast | None = None,
    change: Mapping[str, Quantiles | None] | None = None,
) -> dict[str, Any]:
    """Return `tracker forecast --json`; `otherwise` is the forecast under the choices that were `asked`."""
    inputs = forecast.inputs
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "run": run,
        "as_of": iso(forecast.as_of_us),
        "basis": forecast.basis,
        **forecast_section(forecast),
        "currency": forecast.currency,
        "plan_finish_at": iso(plan_finish_us),
        "probability": {
            "by_deadline": forecast.by_deadline_ratio,
            "by_reservation_end": forecast.by_reservation_end_ratio,
            "within_budget": forecast.within_budget_ratio,
        },
        "drivers": {driver.name: driver.share_ratio for driver in forecast.drivers},
        "straight_lines": {name: iso(at) for name, at in forecast.lines_us.items()},
        "levels": [{"p": level, "finish_at": iso(at)} for level, at in forecast.levels_us],
        "inputs": None
        if inputs is None
        else {
            "target_tokens": inputs.target_tokens,
            "done_tokens": inputs.done_tokens,
            "tokens_per_s_and_gpu": inputs.rate,
            "gpus": inputs.gpus,
            "goodput_ratio": inputs.goodput_ratio,
            "mtbf_gpu_hours": inputs.mtbf_gpu_hours,
            "stop_s": inputs.restart_s,
            "wait_s": inputs.wait_s,
            "merged_launches": inputs.merged_launches,
            "digest": forecast.digest,
        },
        "move": _move(forecast.move),
        "sentences": list(forecast.sentences),
        "assumptions": list(forecast.assumptions),
        "reasons": list(forecast.reasons),
        "flagged": list(forecast.flagged),
    }
    if otherwise is not None:
        document["what_if"] = {
            "asked": dict(asked or {}),
            "basis": otherwise.basis,
            **forecast_section(otherwise),
            "change": {name: quantiles(q) for name, q in (change or {}).items()},
        }
    return document


def _move(move: Move | None) -> dict[str, Any] | None:
    if move is None:
        return None
    return {
        "since": iso(move.since_us),
        "days": move.us / _DAY_US,
        "us": move.us,
        "parts": [
            {"name": part.name, "days": part.us / _DAY_US, "us": part.us, "why": part.why}
            for part in move.parts
        ],
    }


def history_document(run: str, history: History) -> dict[str, Any]:
    """Return `tracker forecast --history --json`: the fan, one row a stored forecast, and its score."""
    truth = history.truth
    return {
        "schema": SCHEMA,
        "run": run,
        "truth": None if truth is None else iso(truth.finish_us),
        "forecasts": [
            {
                "as_of": iso(kept.forecast.as_of_us),
                "basis": kept.forecast.basis,
                **forecast_section(kept.forecast),
                "levels": [{"p": level, "finish_at": iso(at)} for level, at in kept.forecast.levels_us],
                "digest": kept.forecast.digest,
                "move": _move(kept.move),
                "error_days": None if kept.error_us is None else kept.error_us / _DAY_US,
                "inside_p10_p90": kept.inside,
                "pinball_days": None if kept.pinball_us is None else kept.pinball_us / _DAY_US,
                "other_target": kept.other_target,
            }
            for kept in history.kept
        ],
        "score": None
        if history.score is None or truth is None
        else score_document(history.score, (truth.finish_us - truth.start_us) / _DAY_US),
    }


def backtest_document(run: str, replay: Replay) -> dict[str, Any]:
    """Return `tracker forecast --backtest --json`."""
    return {
        "schema": SCHEMA,
        "run": run,
        "target_tokens": replay.target_tokens,
        "finished": replay.finished,
        "truth": iso(replay.truth_us),
        "moments": [
            {
                "as_of": iso(row.forecast.as_of_us),
                "done_ratio": row.done_ratio,
                "basis": row.forecast.basis,
                "finish_at": forecast_section(row.forecast)["finish_at"],
                "straight_lines": {name: iso(at) for name, at in row.forecast.lines_us.items()},
            }
            for row in replay.rows
        ],
        "score": None
        if replay.score is None
        else score_document(replay.score, (replay.truth_us - replay.start_us) / _DAY_US),
    }


def score_document(score: Score, days: float) -> dict[str, Any]:
    """Return a score; errors, told as shares of the run, become days."""
    return {
        "moments": score.count,
        "coverage_p10_p90": score.coverage_80,
        "coverage_p25_p75": score.coverage_50,
        "pinball_days": score.pinball * days,
        "median_error_days": score.median_error * days,
        "bias_days": score.bias * days,
        "straight_lines": {
            name: {
                "pinball_days": line.pinball * days,
                "pinball_with_best_range_days": line.pinball_with_range * days,
                "median_error_days": line.median_error * days,
                "bias_days": line.bias * days,
            }
            for name, line in score.lines.items()
        },
    }
