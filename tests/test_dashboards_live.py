"""Every query of every dashboard, asked of a real Prometheus that scrapes a real sidecar on a live run."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import need
from tests.dashboards import Asked, queries
from tests.prometheus_world import Prometheus, now_us, until, watched
from tracker.families import FAMILIES

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]


NOT_HERE: Final = {
    "tracker_unreadable_files": "every file can be read",
    "tracker_outbox_last_success_timestamp_seconds": "nothing was sent",
}
"""Families that this run has no sample of, and why; all others have one."""
AFTER_A_REPORT: Final = {
    "tracker_report_last_success_timestamp_seconds",
    "tracker_outbox_oldest_timestamp_seconds",
    "tracker_outbox_failures_total",
}
"""The first report is made while the test runs, and its letter waits: here at its end, or not yet."""


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
        names = set(found.get("label/__name__/values"))
        rejected = found.now('tracker_source_rejected_lines_total{source="3"}')
        raised = {alert["labels"]["alertname"] for alert in found.get("alerts")["alerts"]}

    assert {family.name for family in FAMILIES} - names - AFTER_A_REPORT == set(NOT_HERE)
    assert [one["value"][1] for one in rejected] == ["1"], (
        "the third source holds one line that cannot be used"
    )
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
