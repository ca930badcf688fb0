"""The alert and recording rules, judged by promtool: each fires, each stays silent, and each case can fail.

A case that passes whatever the rule says proves nothing: so every rule is broken on purpose, in many ways,
and its own cases must notice.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import promql_parser as promql
import pytest
import yaml

ROOT: Final = Path(__file__).parents[1]
PROMETHEUS: Final = ROOT / "configs" / "prometheus"
RUNBOOKS: Final = ROOT / "docs" / "runbooks"
SEVERITIES: Final = {"critical", "warning", "info"}
pytestmark = pytest.mark.prometheus

Rule = dict[str, Any]


def rules(name: str, key: str) -> list[Rule]:
    """Return the rules of a file that have this key."""
    document = yaml.safe_load((PROMETHEUS / name).read_text())
    return [rule for group in document["groups"] for rule in group["rules"] if key in rule]


def suites() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the files of cases."""
    for path in sorted((PROMETHEUS / "tests").glob("*.yml")):
        yield path, yaml.safe_load(path.read_text())


ALERTS: Final = rules("alerts.yml", "alert")
RECORDED: Final = rules("recording.yml", "record")
NAMES: Final = sorted({rule["alert"] for rule in ALERTS})
CASES: Final = {
    name: [(suite, case) for _, suite in suites() for case in suite["tests"] if alert_of(case) == name]
    for alert_of in [lambda case: next((t["alertname"] for t in case.get("alert_rule_test", ())), None)]
    for name in NAMES
}


def selectors(expr: str) -> Iterator[str]:
    """Yield the metric names that an expression asks for."""
    found = re.findall(r"[a-z_:][a-z0-9_:]*", re.sub(r'"[^"]*"', '""', expr))
    known = {rule["record"] for rule in RECORDED}
    yield from (name for name in found if name in known)


def needed(expr: str) -> list[Rule]:
    """Return the recording rules that an expression stands on, in the order of their file."""
    names, ask = set[str](), [expr]
    while ask:
        for name in selectors(ask.pop()):
            if name not in names:
                names.add(name)
                ask += [rule["expr"] for rule in RECORDED if rule["record"] == name]
    return [rule for rule in RECORDED if rule["record"] in names]


def mutants(rule: Rule) -> Iterator[tuple[str, Rule | None]]:
    """Yield a rule broken in every way that somebody might break it."""
    expr = rule["expr"].strip()
    yield "removed", None
    yield "never", {**rule, "expr": f"({expr}) and on () (vector(0) > 1)"}
    yield "always", {**rule, "expr": "vector(1)"}
    yield "another severity", {**rule, "labels": {"severity": "page"}}
    yield "another summary", {**rule, "annotations": {**rule["annotations"], "summary": "?"}}
    if "for" in rule:
        yield "at once", {**rule, "for": "0s"}
        yield "much later", {**rule, "for": "30h"}
    flipped = {">=": "<", "<=": ">", "==": "!=", "!=": "==", ">": "<=", "<": ">="}
    for match in re.finditer(r"\s(>=|<=|==|!=|>|<)\s", expr):
        turned = expr[: match.start(1)] + flipped[match[1]] + expr[match.end(1) :]
        yield f"{match[1]} turned at {match.start()}", {**rule, "expr": turned}
    for match in re.finditer(r"(?<![\w.\[:])\d+(\.\d+)?(e\d+)?(?![\w.])", expr):
        if float(match[0]) > 1 or "." in match[0]:
            for times in (0.25, 4):
                other = f"{expr[: match.start()]}{float(match[0]) * times!r}{expr[match.end() :]}"
                yield f"{match[0]} times {times}", {**rule, "expr": other}


def said_of(promtool: str, files: list[str]) -> dict[str, str]:
    """Return what promtool says of each file of cases."""
    done = subprocess.run([promtool, "test", "rules", *files], capture_output=True, text=True, check=False)
    said = re.split(r"Unit Testing: +", done.stdout + done.stderr)
    return {part.split("\n", 1)[0].strip(): part for part in said if part.strip()}


def judge(promtool: str, folder: Path, cases: list[Any], broken: dict[str, list[Rule]]) -> dict[str, bool]:
    """Return, for each set of alert rules, whether the cases pass with it."""
    for number, (name, alerts) in enumerate(broken.items()):
        recorded = needed(" ".join(rule["expr"] for rule in [*alerts, *ALERTS] if rule["alert"] in name))
        groups = [{"name": "recorded", "rules": recorded}, {"name": "alerts", "rules": alerts}]
        (folder / f"{number}-rules.yml").write_text(yaml.safe_dump({"groups": groups}))
        by_pace: dict[str, list[Any]] = {}
        for suite, case in cases:
            by_pace.setdefault(suite["evaluation_interval"], []).append(case)
        for pace, chosen in by_pace.items():
            document = {
                "rule_files": [f"{number}-rules.yml"],
                "evaluation_interval": pace,
                "group_eval_order": ["recorded", "alerts"],
                "tests": chosen,
            }
            (folder / f"{number}-cases-{pace}.yml").write_text(yaml.safe_dump(document))
    files = sorted(folder.glob("*-cases-*.yml"))
    parts = said_of(promtool, [str(file) for file in files])
    verdicts = dict.fromkeys(broken, True)
    names = list(broken)
    for file in files:
        verdicts[names[int(file.name.split("-")[0])]] &= "SUCCESS" in parts.get(str(file), "")
    return verdicts


def test_promtool_takes_every_file(promtool: str) -> None:
    """The example configuration with its rules."""
    done = subprocess.run(
        [promtool, "check", "config", PROMETHEUS / "prometheus.yml"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAILED" not in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path, _ in suites()], ids=lambda path: path.stem)
def test_the_cases_pass(promtool: str, path: Path) -> None:
    """As a user would run them: promtool test rules tests/*.yml."""
    done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_broken_alert_is_noticed(promtool: str, tmp_path: Path, name: str) -> None:
    """Removed, negated, turned round, at another pace, with another limit: its own cases fail each time."""
    own = [rule for rule in ALERTS if rule["alert"] == name]
    broken: dict[str, list[Rule]] = {f"{name}: as it is": own}
    for place, rule in enumerate(own):
        for how, mutant in mutants(rule):
            others = [other for i, other in enumerate(own) if i != place]
            broken[f"{name} {rule['labels']['severity']}: {how}"] = [*others, *([mutant] if mutant else [])]
    verdicts = judge(promtool, tmp_path, CASES[name], broken)
    unnoticed = [how for how, passed in verdicts.items() if passed]

    assert unnoticed == [f"{name}: as it is"]


@pytest.mark.slow
def test_a_broken_recording_rule_is_noticed(promtool: str, tmp_path: Path) -> None:
    """With another value in any of them, a case of tests/recording.yml fails."""
    suite = yaml.safe_load((PROMETHEUS / "tests" / "recording.yml").read_text())
    for number, broken in enumerate([None, *RECORDED]):
        changed = [{**r, "expr": f"1 + ({r['expr']})"} if r is broken else r for r in RECORDED]
        groups = [{"name": "all", "rules": changed}]
        (tmp_path / f"rules-{number}.yml").write_text(yaml.safe_dump({"groups": groups}))
        cases = {**suite, "rule_files": [f"rules-{number}.yml"], "group_eval_order": ["all"]}
        (tmp_path / f"cases-{number}.yml").write_text(yaml.safe_dump(cases))
    files = [str(tmp_path / f"cases-{number}.yml") for number in range(len(RECORDED) + 1)]
    parts = said_of(promtool, files)

    assert "SUCCESS" in parts[files[0]], parts[files[0]]
    for rule, file in zip(RECORDED, files[1:], strict=True):
        assert "SUCCESS" not in parts[file], f"{rule['record']}: no case notices another value"


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_has_cases_of_both_kinds(name: str) -> None:
    """One where it fires and one where it is silent, each with its name in front."""
    told = [case["name"] for _, case in CASES[name]]
    fired = [t for _, case in CASES[name] for t in case["alert_rule_test"] if t["exp_alerts"]]
    silent = [case for _, case in CASES[name] if not any(t["exp_alerts"] for t in case["alert_rule_test"])]

    assert all(title.startswith(f"{name} ") for title in told)
    assert fired, "no case where it fires"
    assert silent, "no case where it never fires"


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: f"{rule['alert']}-{rule['labels']['severity']}")
def test_an_alert_says_what_somebody_needs(rule: Rule) -> None:
    """Severity, summary, description, and a runbook page that is there."""
    assert re.fullmatch(r"(Training|Tracker)([A-Z][a-z]+)+", rule["alert"])
    assert set(rule["labels"]) == {"severity"}
    assert rule["labels"]["severity"] in SEVERITIES
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{rule['alert']}.md"
    assert (ROOT / rule["annotations"]["runbook_url"]).is_file()


@pytest.mark.parametrize("rule", RECORDED, ids=lambda rule: rule["record"])
def test_a_recorded_name_tells_its_level_metric_and_operation(rule: Rule) -> None:
    """level:metric:operations, and the metric is one of ours."""
    level, metric, operation = rule["record"].split(":")

    assert level in {"run", "run_bucket", "job", "job_bucket"}
    assert metric.startswith(("training_", "tracker_"))
    assert re.fullmatch(r"(sum|limit|past|(delta|rate|median)\d+[dm])", operation)


@pytest.mark.parametrize("rule", [*ALERTS, *RECORDED], ids=lambda rule: rule.get("alert", rule.get("record")))
def test_an_expression_is_promql(rule: Rule) -> None:
    """As a second parser reads it."""
    promql.parse(rule["expr"])


HEADINGS: Final = ["What it means", "Look at first", "Likely causes", "What to do", "When to silence"]


@pytest.mark.parametrize("name", NAMES)
def test_a_runbook_answers_the_questions_of_three_in_the_morning(name: str) -> None:
    """In the same order on every page, with commands that can be pasted."""
    text = (RUNBOOKS / f"{name}.md").read_text()

    assert text.startswith(f"# {name}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    first = text.split("## Look at first")[1].split("## ")[0]
    assert re.search(r"^(tracker|curl|promtool|systemctl|kubectl|df|squeue|sacct) ", first, re.MULTILINE)


def test_there_is_no_runbook_of_an_alert_that_is_gone() -> None:
    """And the list of them names all."""
    pages = {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"}
    index = (RUNBOOKS / "README.md").read_text()

    assert pages == set(NAMES)
    assert set(re.findall(r"\]\((\w+)\.md\)", index)) == set(NAMES)


def test_the_pages_name_the_job_that_the_alerts_ask_for() -> None:
    """Under another name a tracker that is down sets off nothing, and all are said to be absent."""
    asked = {name for rule in ALERTS for name in re.findall(r'job="([^"]+)"', rule["expr"])}
    pages = list((ROOT / "docs").rglob("*.md"))
    told = {
        (page.name, name)
        for page in pages
        for name in re.findall(r"(?:job_name: |--label job=)(\S+)", page.read_text())
    }

    assert asked == {"tracker"}
    assert {page for page, _ in told} >= {"serving.md", "export.md", "backfill.md", "prometheus.md"}
    assert {name for _, name in told} == asked


def test_runbooks_name_commands_that_exist() -> None:
    """Each `tracker` command line in them has a command and options that the program knows."""
    from click.testing import CliRunner

    from tracker.cli import root

    lines = {
        line.strip()
        for path in RUNBOOKS.glob("*.md")
        for line in re.findall(r"^tracker .+$", path.read_text(), re.MULTILINE)
    }
    assert lines
    helps: dict[str, str] = {}
    for line in sorted(lines):
        words = re.split(r"\s+[|>#]", line)[0].split()[1:]
        command = words[0]
        names = [command]
        if (
            command in {"collectors", "db", "interruptions"}
            and len(words) > 1
            and not words[1].startswith("-")
        ):
            names.append(words[1])
        key = " ".join(names)
        if key not in helps:
            shown = CliRunner().invoke(root, [*names, "--help"])
            assert shown.exit_code == 0, f"no such command: tracker {key}"
            helps[key] = shown.output
        for option in (word.split("=")[0] for word in words if word.startswith("--")):
            assert re.search(rf"{re.escape(option)}\b", helps[key]), f"tracker {key} has no {option}"


def test_links_of_the_pages_lead_somewhere() -> None:
    """In docs/prometheus.md, docs/grafana.md and every runbook."""
    pages = [ROOT / "docs" / "prometheus.md", ROOT / "docs" / "grafana.md", *RUNBOOKS.glob("*.md")]
    for page in pages:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
