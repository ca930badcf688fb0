"""Plans for tests: the worked example, with whatever a test changes in it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tracker.core.hardware import peak_given
from tracker.core.plan import Plan

JANUARY = datetime(2026, 1, 5, 8, tzinfo=UTC)


def worked(**over: Any) -> Plan:
    """The worked example: 13B parameters on 4T tokens, everything else by default."""
    values: dict[str, Any] = {
        "active_params": 13e9,
        "tokens": 4e12,
        "peak": peak_given(989.0),
        "gpus": 1024,
    }
    return Plan(**{**values, **over})
