"""The mixin: the same alerts, rules and dashboards, evaluated by a real jsonnet."""

from __future__ import annotations

import json
from typing import Any, Final

import _gojsonnet
import pytest
import yaml

from tests.dashboards import BOARDS, ROOT

CONFIGS: Final = ROOT / "configs"


def evaluate(config: str = "{}") -> dict[str, Any]:
    """Return the mixin's three parts under a configuration."""

    def find(folder: str, name: str) -> tuple[str, bytes]:
        path = CONFIGS / name
        return str(path), path.read_bytes()

    code = f"""
        local mixin = (import 'mixin.libsonnet') + {{ _config+:: {config} }};
        {{ alerts: mixin.prometheusAlerts, rules: mixin.prometheusRules, boards: mixin.grafanaDashboards }}
    """
    found: dict[str, Any] = json.loads(_gojsonnet.evaluate_snippet("mixin", code, import_callback=find))
    return found


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    """As it is shipped."""
    return evaluate()


def test_alerts_and_rules_are_those_of_the_files(plain: dict[str, Any]) -> None:
    """Nothing is said twice: the files are the source."""
    assert plain["alerts"] == yaml.safe_load((CONFIGS / "prometheus/alerts.yml").read_text())
    assert plain["rules"] == yaml.safe_load((CONFIGS / "prometheus/recording.yml").read_text())


def test_dashboards_are_those_of_the_folder(plain: dict[str, Any]) -> None:
    """All of them: one that is forgotten here fails."""
    assert plain["boards"] == {f"{uid}.json": board for uid, board in BOARDS.items()}


def test_an_address_and_a_job_can_be_set() -> None:
    """Runbooks get an address before them, and alerts on missing trackers ask for another job."""
    made = evaluate("{ runbookPrefix: 'https://example.org/r/', job: 'pretrain', dashboardTags: ['x'] }")
    rules = [rule for group in made["alerts"]["groups"] for rule in group["rules"]]
    down = next(rule for rule in rules if rule["alert"] == "TrackerDown")

    assert all(
        r["annotations"]["runbook_url"].startswith("https://example.org/r/docs/runbooks/") for r in rules
    )
    assert down["expr"] == 'up{job="pretrain"} == 0'
    assert not any('job="tracker"' in rule["expr"] for rule in rules)
    assert all("x" in board["tags"] for board in made["boards"].values())
