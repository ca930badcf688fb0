"""The dashboards as committed: what the code builds, what Grafana asks of them, names that exist.

No Grafana server can be started here. The rules are those of its dashboard linter, done again; the types
are those of its own schema package.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import promql_parser as promql
import pytest
import yaml

from tests.conftest import need
from tests.dashboards import BOARDS, FILES, FILLED, GRAFANA, PACE, ROOT, Asked, panels, queries
from tests.test_exporter import FULL, VITALS, exporter
from tests.test_rules import RECORDED
from tracker.families import FAMILIES, Page

QUERIES: Final = list(queries())
UNITS: Final = {
    "short", "percentunit", "dateTimeAsIso", "s", "bytes", "Bps", "cps", "watth",
}  # fmt: skip
"""Of Grafana's list, the ones used here. Not `h`, for durations: 38,817 GPU-hours would be 4.43 years."""
FROM_PROMETHEUS: Final = {"up", "scrape_duration_seconds"}
COUNTING: Final = {"rate", "increase", "irate"}
TYPES: Final = ("@grafana/schema@13.2.3", "typescript@7.0.2")


def parsed(asked: Asked) -> promql.Expr:
    return promql.parse(asked.filled)


def nodes(expr: promql.Expr) -> Iterator[promql.Expr]:
    found: list[promql.Expr] = []
    promql.walk(expr, found.append)
    return iter(found)


def asked_for(expr: promql.Expr) -> list[promql.VectorSelector]:
    return [node for node in nodes(expr) if isinstance(node, promql.VectorSelector)] + [
        node.vector_selector for node in nodes(expr) if isinstance(node, promql.MatrixSelector)
    ]


def test_there_are_three() -> None:
    """With the addresses that other pages may link to."""
    assert {uid: board["uid"] for uid, board in BOARDS.items()} == {
        "tracker-health": "tracker-health",
        "training-fleet": "training-fleet",
        "training-run": "training-run",
    }


def test_the_files_are_what_the_code_builds(tmp_path: Path) -> None:
    """`make dashboards` writes them anew; editing the JSON by hand is noticed."""
    build = [sys.executable, GRAFANA / "build.py", tmp_path]
    subprocess.run(build, check=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})

    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {p.name: p.read_text() for p in FILES}


def test_make_dashboards_builds_them() -> None:
    """So that nobody has to know the script."""
    assert "configs/grafana/build.py" in (ROOT / "Makefile").read_text()


# -- the rules of Grafana's dashboard linter, by their names there ------------------------------------------


def variable(board: dict[str, Any], name: str) -> dict[str, Any]:
    return next(v for v in board["templating"]["list"] if v["name"] == name)


def template_datasource(board: dict[str, Any]) -> list[str]:
    found = [v for v in board["templating"]["list"] if v["type"] == "datasource"]
    right = [(v["name"], v["label"], v["query"]) for v in found] == [
        ("datasource", "Data source", "prometheus")
    ]
    return [] if right else ["not one variable `datasource` of type prometheus"]


def template_choice(board: dict[str, Any]) -> Iterator[str]:
    for name, label in (("job", "Job"), ("instance", "Instance"), ("run", "Run")):
        found = variable(board, name)
        for key, value in {
            "type": "query", "label": label, "multi": True, "includeAll": True, "allValue": ".+",
        }.items():  # fmt: skip
            if found.get(key) != value:
                yield f"{name}.{key} is {found.get(key)!r}, not {value!r}"
        if found["datasource"]["uid"] != "${datasource}":
            yield f"{name} has a data source of its own"


def template_label_promql(board: dict[str, Any]) -> Iterator[str]:
    for name in ("job", "instance", "run"):
        query = variable(board, name)["query"]["query"]
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
        if found is None or found[2] != name:
            yield f"{name}: {query}"
        else:
            promql.parse(found[1])


def template_on_time_change_reload(board: dict[str, Any]) -> list[str]:
    return [n for n in ("job", "instance", "run") if variable(board, n)["refresh"] != 2]


def panel_datasource(board: dict[str, Any]) -> Iterator[str]:
    for panel in panels(board):
        sources = [panel["datasource"], *(t["datasource"] for t in panel["targets"])]
        if any(s != {"type": "prometheus", "uid": "${datasource}"} for s in sources):
            yield panel["title"]
    yield from (m["name"] for m in board["annotations"]["list"] if m["datasource"]["uid"] != "${datasource}")


def panel_title_description(board: dict[str, Any]) -> Iterator[str]:
    for panel in panels(board):
        if not panel.get("title") or len(panel.get("description", "")) < 20:
            yield f"{panel['id']} {panel.get('title')}"


def panel_units(board: dict[str, Any]) -> Iterator[str]:
    for panel in panels(board):
        if panel["fieldConfig"]["defaults"].get("unit") not in UNITS:
            yield panel["title"]


def panel_no_targets(board: dict[str, Any]) -> list[str]:
    return [panel["title"] for panel in panels(board) if not panel.get("targets")]


def target_promql(board: dict[str, Any]) -> Iterator[str]:
    for asked in (q for q in QUERIES if q.board == board["uid"]):
        try:
            parsed(asked)
        except ValueError as error:
            yield f"{asked.where}: {error}"


def target_rate_interval(board: dict[str, Any]) -> Iterator[str]:
    for asked in (q for q in QUERIES if q.board == board["uid"]):
        for found in re.finditer(r"\b(i?rate)\([^\[]*\[([^\]]+)\]", asked.expr):
            if found[2] != "$__rate_interval":
                yield f"{asked.where}: {found[1]} over {found[2]}"


def target_matchers(board: dict[str, Any]) -> Iterator[str]:
    for asked in (q for q in QUERIES if q.board == board["uid"]):
        for selector in asked_for(promql.parse(asked.paced(PACE))):
            matchers = {(m.name, str(m.op), m.value) for m in selector.matchers.matchers}
            for name in ("job", "instance"):
                if (name, str(promql.MatchOp.Re), f"${name}") not in matchers:
                    yield f'{asked.where}: {selector.name} without {name}=~"${name}"'


def target_counter_agg(board: dict[str, Any]) -> Iterator[str]:
    for asked in (q for q in QUERIES if q.board == board["uid"]):
        whole = parsed(asked)
        counted = {
            str(arg.vector_selector.name)
            for node in nodes(whole)
            if isinstance(node, promql.Call) and node.func.name in COUNTING
            for arg in node.args
            if isinstance(arg, promql.MatrixSelector)
        }
        for selector in asked_for(whole):
            if str(selector.name).endswith("_total") and selector.name not in counted:
                yield f"{asked.where}: {selector.name} is a counter"


def uneditable(board: dict[str, Any]) -> list[str]:
    return [] if board.get("editable") is False else ["editable"]


RULES: Final[tuple[Callable[[dict[str, Any]], Any], ...]] = (
    template_datasource, template_choice, template_label_promql, template_on_time_change_reload,
    panel_datasource, panel_title_description, panel_units, panel_no_targets, target_promql,
    target_rate_interval, target_matchers, target_counter_agg, uneditable,
)  # fmt: skip


@pytest.mark.parametrize("uid", BOARDS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__.replace("_", "-"))
def test_the_linter_has_nothing_to_say(rule: Callable[[dict[str, Any]], Any], uid: str) -> None:
    """Each rule of Grafana's own dashboard linter, without an exception."""
    assert list(rule(BOARDS[uid])) == []


def _broken(board: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**json.loads(json.dumps(board)), **changes}


def test_the_rules_can_complain() -> None:
    """A rule that never speaks proves nothing."""
    board = BOARDS["training-run"]
    panel = next(panels(board))
    bare = {**panel, "description": "", "targets": [], "datasource": {}, "fieldConfig": {"defaults": {}}}
    broken = _broken(board, panels=[bare], editable=True)
    for rule in (panel_datasource, panel_title_description, panel_units, panel_no_targets, uneditable):
        assert list(rule(broken)), rule.__name__


# -- and our own --------------------------------------------------------------------------------------------


def test_no_panel_lies_on_another() -> None:
    """Each has its place in a grid 24 wide, and a number of its own."""
    for uid, board in BOARDS.items():
        taken: dict[tuple[int, int], str] = {}
        places = [*board["panels"]]
        assert len({p["id"] for p in places}) == len(places), uid
        for panel in places:
            at = panel["gridPos"]
            assert at["x"] + at["w"] <= 24
            for x in range(at["x"], at["x"] + at["w"]):
                for y in range(at["y"], at["y"] + at["h"]):
                    assert (x, y) not in taken, f"{uid}: {panel['title']} on {taken.get((x, y))}"
                    taken[x, y] = panel["title"]


@pytest.mark.parametrize("asked", QUERIES, ids=str)
def test_every_metric_exists(asked: Asked) -> None:
    """In /metrics, in the recording rules, or made by Prometheus itself."""
    page = exporter().render()[0].decode()
    known = set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE)) | FROM_PROMETHEUS
    known |= {rule["record"] for rule in RECORDED}

    assert {str(s.name) for s in asked_for(parsed(asked))} <= known


def test_labels_asked_for_have_values_that_the_page_gives() -> None:
    """`scope="recent"` with a spelling mistake would be an empty panel."""
    page = exporter(Page("llama-13b", FULL, VITALS)).render()[0].decode()
    for asked in QUERIES:
        for selector in asked_for(parsed(asked)):
            for matcher in selector.matchers.matchers:
                if matcher.name in {"scope", "kind", "p", "window", "bound", "bucket"}:
                    assert f'{matcher.name}="{matcher.value}"' in page, f"{asked}: {matcher}"


def test_overrides_name_series_that_a_panel_has() -> None:
    """A colour for a legend that is not there colours nothing."""
    states = {"waiting", "starting", "running", "stalled", "down", "finished"}
    buckets = set(re.findall(r'bucket="(\w+)"', exporter(Page("r", FULL, VITALS)).render()[0].decode()))
    for board in BOARDS.values():
        for panel in panels(board):
            legends = {target.get("legendFormat") for target in panel["targets"]}
            legends |= states if "{{state}}" in legends else set()
            legends |= buckets if "{{bucket}}" in legends else set()
            renamed = {
                name
                for step in panel.get("transformations") or ()
                for name in step["options"].get("renameByName", {}).values()
            }
            for override in panel["fieldConfig"]["overrides"]:
                if override["matcher"]["id"] == "byName":
                    assert override["matcher"]["options"] in legends | renamed, panel["title"]
                elif override["matcher"]["id"] == "byRegexp":
                    pattern = override["matcher"]["options"]
                    assert any(re.search(pattern, str(legend)) for legend in legends), panel["title"]


@pytest.mark.prometheus
@pytest.mark.parametrize("step_s", [15, 60, 3600])
@pytest.mark.parametrize("name", ["Attempts", "Interruptions"])
def test_no_mark_falls_between_two_steps(promtool: str, tmp_path: Path, name: str, step_s: int) -> None:
    """Over two hours or over a month: what happened once is marked at the next step, and not later."""
    asked = next(q for q in QUERIES if q.where == f"annotation {name}")
    pace = {"$__rate_interval": f"{max(step_s + 15, 60)}s", "$__interval_ms": f"{step_s * 1000}"}
    run = 'job="j",instance="i",run="r"'
    event_s = 3 * 3600 + 75
    before, after = event_s // 15, 2000
    metrics = {
        f"training_last_attempt_start_timestamp_seconds{{{run}}}": f"-1000000x{before} {event_s}x{after}",
        f"training_last_interruption_timestamp_seconds{{{run}}}": f"-1000000x{before} {event_s}x{after}",
        f'training_interruptions{{{run},kind="unexpected",cause="gpu"}}': f"3x{before} 4x{after}",
    }
    moments = [event_s // step_s * step_s + number * step_s for number in (-2, -1, 0, 1, 8)]
    expr = asked.paced({**FILLED, **pace})
    case = {
        "interval": "15s",
        "input_series": [{"series": series, "values": values} for series, values in metrics.items()],
        "promql_expr_test": [  # nothing before it, it at the next step, nothing long after
            {"expr": f"count({expr})", "eval_time": f"{at_s}s",
             "exp_samples": [{"labels": "{}", "value": 1}] if place == 3 else []}
            for place, at_s in enumerate(moments)
        ],
    }  # fmt: skip
    (tmp_path / "case.yml").write_text(yaml.safe_dump({"evaluation_interval": "15s", "tests": [case]}))
    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / "case.yml"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_gauge_of_the_run_is_on_a_dashboard_or_in_a_rule() -> None:
    """Or it is named here, with why it is not."""
    left_out = {
        "training_allocated_gpu_seconds_total": "the buckets sum to it",
        "training_attempts_total": "the marks of attempts show it",
        "training_processed_tokens_total": "for questions by hand",
        "training_processed_steps": "for questions by hand",
        "training_net_steps": "tokens are shown",
        "training_step": "tokens are shown",
        "training_restart_seconds": "in the advice of `tracker goodput`",
        "training_checkpoint_stall_seconds": "in the advice of `tracker goodput`",
        "training_reported_flops_per_second": "not comparable with ours: `tracker status` explains it",
    }
    rules = "".join((ROOT / "configs/prometheus" / n).read_text() for n in ("alerts.yml", "recording.yml"))
    everywhere = rules + "\n".join(asked.expr for asked in QUERIES)
    missing = {
        family.name
        for family in FAMILIES
        if family.name.startswith("training_") and not re.search(rf"\b{family.name}\b", everywhere)
    }

    assert missing - ON_THEIR_WAY == set(left_out)


ON_THEIR_WAY: Final[set[str]] = set()


# -- Grafana's own types ------------------------------------------------------------------------------------

CHECK: Final = """\
import type {{ Dashboard, AnnotationQuery, DataQuery }} from '@grafana/schema';
interface PromQuery extends DataQuery {{ expr: string; interval?: string; range?: boolean }}
interface PromAnnotation extends AnnotationQuery<PromQuery> {{ step?: string; titleFormat?: string }}
type PromDashboard = Omit<Dashboard, 'annotations'> & {{ annotations: {{ list: PromAnnotation[] }} }};
// JSON holds the values of Grafana's enums as plain text.
type Plain<T> = T extends string ? `${{T}}` : T extends Array<infer U> ? Plain<U>[]
  : T extends object ? {{ [K in keyof T]: Plain<T[K]> }} : T;
export const dashboard: Plain<PromDashboard> = {document};
"""


@pytest.fixture(scope="session")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Grafana's schema package and a type checker, from the registry that npm is set up for."""
    need(
        shutil.which("npm") is not None and shutil.which("node") is not None, "npm and node are not installed"
    )
    folder = tmp_path_factory.mktemp("schema")
    (folder / "package.json").write_text('{"private": true}')
    done = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *TYPES],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    need(done.returncode == 0, f"npm could not install {' '.join(TYPES)}: {done.stderr[-300:]}")
    return folder


def tsc(folder: Path, document: dict[str, Any]) -> str:
    """Return what the type checker says of a dashboard."""
    (folder / "board.ts").write_text(CHECK.format(document=json.dumps(document, ensure_ascii=False)))
    done = subprocess.run(
        ["npx", "--no-install", "tsc", "--noEmit", "--strict", "--skipLibCheck", "--module", "esnext",
         "--moduleResolution", "bundler", "--target", "es2022", "board.ts"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.slow
def test_grafanas_own_types_take_every_dashboard(schema: Path) -> None:
    """And refuse a misspelt key, so the check can fail."""
    for uid, board in BOARDS.items():
        assert tsc(schema, board) == "", uid
    board = BOARDS["training-run"]
    assert "editible" in tsc(schema, _broken(board, editible=False))
    panels = json.loads(json.dumps(board["panels"]).replace('"mode": "absolute"', '"mode": "absolut"'))
    assert "absolut" in tsc(schema, _broken(board, panels=panels))


# -- files beside them --------------------------------------------------------------------------------------


def test_the_data_source_asks_as_often_as_prometheus_scrapes() -> None:
    """`timeInterval` is what $__rate_interval is made of."""
    prometheus = yaml.safe_load((ROOT / "configs/prometheus/prometheus.yml").read_text())
    source = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())
    (found,) = source["datasources"]

    assert source["apiVersion"] == 1
    assert (found["type"], found["access"], found["isDefault"]) == ("prometheus", "proxy", True)
    assert found["jsonData"]["timeInterval"] == prometheus["global"]["scrape_interval"]
    assert found["jsonData"]["httpMethod"] == "POST"


def test_grafana_loads_the_folder_and_nobody_edits_it_there() -> None:
    """The keys of the provider file, as Grafana documents them."""
    found = yaml.safe_load((GRAFANA / "provisioning/dashboards/training.yml").read_text())
    (provider,) = found["providers"]

    assert found["apiVersion"] == 1
    assert set(provider) == {
        "name", "orgId", "type", "folder", "folderUid", "allowUiUpdates", "disableDeletion",
        "updateIntervalSeconds", "options",
    }  # fmt: skip
    assert provider["allowUiUpdates"] is False
    assert provider["options"]["path"].endswith("/dashboards/training")
