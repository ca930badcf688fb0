"""Forecasts under choices: `--what-if gpus=2048`, with the change and its spread.

Pure. Both forecasts are played with the same random numbers, so that their difference is the choice's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tracker.core.energy import energy_mwh
from tracker.core.errors import InvalidValue, nearest
from tracker.core.forecast.answer import (
    forecast,
    hours_ahead,
    money_at_finish,
    not_before_us,
    plan_rate,
)
from tracker.core.forecast.change import Change
from tracker.core.forecast.model import play
from tracker.core.forecast.pace import NoAnswer, rate_belief
from tracker.core.forecast.prior import DEFAULT
from tracker.core.forecast.state import State
from tracker.core.forecast.value import Forecast, Quantiles
from tracker.core.settings import Settings

KEYS: Final[Mapping[str, str]] = {
    "gpus": "GPUs that train from now on",
    "checkpoint_interval_min": "minutes of work between two saves",
    "restart_min": "minutes from a failure to the next step",
    "mfu": "MFU over productive time from now on, 0..1",
    "mtbf_factor": "times the present time between failures",
}
LIMITS: Final[Mapping[str, tuple[float, float]]] = {
    "gpus": (1, 10_000_000),
    "checkpoint_interval_min": (0.1, 100_000),
    "restart_min": (0.01, 100_000),
    "mfu": (0.001, 1),
    "mtbf_factor": (0.001, 1000),
}
"""What a choice may be: beyond them nothing is played that anybody could mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A forecast under choices beside the one as things are."""

    forecast: Forecast
    change: Mapping[str, Quantiles]
    """days (of the finish; negative is earlier), gpu_hours, cost, energy_mwh: quantiles of the differences.

    Of each play's two sides: their median need not be the difference of the two medians."""


def parse(pairs: Mapping[str, str], *, mfu_now: float | None) -> Change:
    """Return the choices of `--what-if k=v`; InvalidValue names what is wrong."""
    values: dict[str, float] = {}
    for key, text in pairs.items():
        if key not in KEYS:
            hint = nearest(key, KEYS) or f"one of {', '.join(KEYS)}"
            raise InvalidValue(f"--what-if {key}", text, "a known choice", hint)
        try:
            value = float(text.replace("_", ""))
        except ValueError:
            value = float("nan")
        if not value > 0:
            raise InvalidValue(f"--what-if {key}", text, f"a number above 0: {KEYS[key]}")
        if key == "mfu" and value > 1:
            raise InvalidValue("--what-if mfu", text, "a ratio from 0 to 1, such as 0.42 for 42 %")
        low, high = LIMITS[key]
        if not low <= value <= high:
            raise InvalidValue(
                f"--what-if {key}", text, f"a number from {low:,g} to {high:,.10g}: {KEYS[key]}"
            )
        values[key] = value
    if "gpus" in values and values["gpus"] != int(values["gpus"]):
        raise InvalidValue("--what-if gpus", pairs["gpus"], "a whole number of GPUs")
    factor = 1.0
    if "mfu" in values:
        if not mfu_now:
            raise InvalidValue(
                "--what-if mfu",
                pairs["mfu"],
                "a run whose present MFU is known",
                "Set model.active_params and hardware.gpu",
            )
        factor = values["mfu"] / mfu_now
    return Change(
        gpus=int(values["gpus"]) if "gpus" in values else None,
        mfu_factor=factor,
        restart_s=values["restart_min"] * 60 if "restart_min" in values else None,
        checkpoint_every_s=(
            values["checkpoint_interval_min"] * 60 if "checkpoint_interval_min" in values else None
        ),
        mtbf_factor=values.get("mtbf_factor", 1.0),
    )


def mfu_expected(state: State, settings: Settings) -> float | None:
    """Return the MFU that the forecast expects from now on; None while unknown."""
    plan = settings.plan
    flop = plan.flop() if plan is not None else None
    if plan is None or flop is None or plan.peak is None:
        return None
    try:
        belief = rate_belief(state, plan_rate(plan, state), DEFAULT)
    except NoAnswer:
        return None
    import math

    return math.exp(belief.mean) * flop.value / plan.peak.value


def what_if(
    state: State,
    settings: Settings,
    change: Change,
    *,
    spent: float | None = None,
    plan_finish_us: int | None = None,
) -> WhatIf | None:
    """Return the forecast under choices; None where there is no forecast to change."""
    plan = settings.plan
    if plan is None:
        return None
    made = forecast(state, settings, spent=spent, plan_finish_us=plan_finish_us, change=change)
    if made.basis not in ("measured", "plan"):
        return None
    import numpy as np

    rate, start = plan_rate(plan, state), not_before_us(plan)
    now = play(state, plan_rate=rate, not_before_us=start)
    then = play(state, plan_rate=rate, not_before_us=start, change=change)
    found = {"days": (then.wall_s - now.wall_s) / 86_400}
    paid, to_pay = hours_ahead(now, state, settings, None), hours_ahead(then, state, settings, change)
    if paid is not None and to_pay is not None:
        found["gpu_hours"] = to_pay - paid
        if plan.power_w is not None:
            found["energy_mwh"] = found["gpu_hours"] * energy_mwh(
                gpu_hours=1.0, power_w=plan.power_w, facility_overhead=plan.facility_overhead
            )
    before, after = (
        money_at_finish(np, plan, state.as_of_us, plays.wall_s, hours, spent)
        for plays, hours in ((now, paid), (then, to_pay))
    )
    if before is not None and after is not None:
        found["cost"] = after - before
    return WhatIf(forecast=made, change=_quantiles(found))


def _quantiles(found: Mapping[str, Any]) -> dict[str, Quantiles]:
    import numpy as np

    made = {}
    for name, values in found.items():
        low, middle, high = (float(v) for v in np.quantile(values, (0.1, 0.5, 0.9)))
        made[name] = Quantiles(p10=low, p50=middle, p90=high)
    return made
