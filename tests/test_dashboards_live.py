"""Every query of every dashboard, asked of a real Prometheus that scrapes a real sidecar on a live run."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.conftest import need
from tests.dashboards import Asked, queries
from tests.prometheus_world import Prometheus, now_us, until, watched

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]


def empty(found: Prometheus, asked: Asked) -> bool:
    """Whether a query gives no series with a number in it."""
    if asked.now:
        series = [[one["value"]] for one in found.now(asked.filled)]
    else:
        ends = time.time()
        answer = found.over(asked.filled, start_s=ends - 60, end_s=ends, step_s=2)
        series = [one["values"] for one in answer]
    return not any(value not in {"NaN", "+Inf", "-Inf"} for values in series for _, value in values)


def test_every_query_returns_data_and_every_rule_is_well(tmp_path: Path) -> None:
    """The shipped configuration, dashboards and rules, without an edit but the port and the pace.

    One test, because what it needs takes its time to start.
    """
    need(shutil.which("prometheus") is not None, "prometheus is not installed (Debian package prometheus)")
    left = list(queries())
    with watched(tmp_path) as (found, player):

        def all_answer() -> bool:
            player.advance(now_us())
            left[:] = [asked for asked in left if empty(found, asked)]
            return not left

        try:
            until(all_answer, "", limit_s=60.0)
        except AssertionError:
            pytest.fail("no data for: " + "; ".join(f"{asked} ({asked.filled})" for asked in left))
        groups = found.get("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        raised = {alert["labels"]["alertname"] for alert in found.get("alerts")["alerts"]}

    assert {group["name"] for group in groups} == {
        "tracker-recording",
        "tracker-fleet",
        "training",
        "tracker",
    }
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
    assert "TrainingMtbfWorseThanPlan" in raised, (
        "it failed several times in two hours, and the plan has 1 a day"
    )
    assert "TrackerDown" not in raised
