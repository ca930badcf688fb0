"""The forecast as every document shows it: `forecast` of `tracker status --json`.

Pure; loads nothing but values.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from tracker.core.forecast.value import Forecast, Quantiles


def iso(at_us: float | None) -> str | None:
    """Return a moment as ISO 8601 UTC; a forecast's are whole seconds.

    >>> iso(1_767_225_600_400_000)
    '2026-01-01T00:00:00Z'
    """
    if at_us is None:
        return None
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=round(at_us / 1e6))
    return moment.replace(tzinfo=None).isoformat() + "Z"


def quantiles(q: Quantiles | None, show: Callable[[float], Any] = float) -> dict[str, Any]:
    """Return p10, p50, p90; nulls where there is none."""
    if q is None:
        return {"p10": None, "p50": None, "p90": None}
    return {
        name: None if value is None else show(value)
        for name, value in (("p10", q.p10), ("p50", q.p50), ("p90", q.p90))
    }


def forecast_section(forecast: Forecast | None) -> dict[str, Any]:
    """Return finish_at, gpu_hours, cost, energy_mwh (whole run, at the finish) and days_behind_plan."""
    if forecast is None:
        forecast = Forecast(as_of_us=0, basis="none")
    return {
        "finish_at": quantiles(forecast.finish_us, iso),
        "gpu_hours": quantiles(forecast.gpu_hours),
        "cost": quantiles(forecast.cost),
        "energy_mwh": quantiles(forecast.energy_mwh),
        "days_behind_plan": forecast.days_behind_plan,
    }


def tokens_said(count: float) -> str:
    """Return a count of tokens for people.

    >>> tokens_said(4e12), tokens_said(361.4e9), tokens_said(1e6), tokens_said(999)
    ('4T', '361B', '1M', '999')
    """
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if abs(count) >= size:
            return f"{float(f'{count / size:.3g}'):,.10g}{letter}"
    return f"{count:,.0f}"
