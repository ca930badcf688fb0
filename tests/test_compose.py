"""The compose file and the Alertmanager example: what can be judged without an engine is judged here.

No container engine can be started in tests: the file is linted against the compose schema, and held to the
files that it mounts.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.conftest import need
from tests.test_rules import ALERTS

CONFIGS: Final = Path(__file__).parents[1] / "configs"
COMPOSE: Final = CONFIGS / "compose.yaml"
ROUTES: Final = CONFIGS / "alertmanager" / "alertmanager.yml"
LINTER: Final = "dclint@3.1.0"


@pytest.fixture(scope="module")
def stack() -> dict[str, Any]:
    """The compose file, its anchors resolved."""
    loaded: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return loaded


@pytest.mark.slow
def test_the_compose_linter_has_nothing_to_say(tmp_path: Path) -> None:
    """Its schema is the compose specification's; a misspelt key is refused, so it can complain."""
    need(shutil.which("npm") is not None, "npm is not installed")
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", LINTER]
    done = subprocess.run(install, cwd=tmp_path, capture_output=True, text=True, check=False)
    need(done.returncode == 0, f"npm could not install {LINTER}: {done.stderr[-300:]}")
    (tmp_path / "wrong.yaml").write_text(COMPOSE.read_text().replace("restart:", "restrat:"))

    def said(path: Path) -> tuple[int, str]:
        linted = subprocess.run(
            ["npx", "--no-install", "dclint", path], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return linted.returncode, linted.stdout + linted.stderr

    status, words = said(COMPOSE)

    assert (status, words.strip()) == (0, "")
    assert "invalid-schema" in said(tmp_path / "wrong.yaml")[1]


def test_everything_that_is_mounted_is_there(stack: dict[str, Any]) -> None:
    """And read-only; what is written goes into named volumes."""
    for name, service in stack["services"].items():
        for mount in service["volumes"]:
            source, _, rest = mount.partition(":")
            if source.startswith("./"):
                assert (CONFIGS / source).is_dir(), f"{name}: {source}"
                assert rest.endswith(":ro")
            else:
                assert source in stack["volumes"]


def test_nothing_listens_for_others(stack: dict[str, Any]) -> None:
    """All three on the loopback address: logins are the user's to add before that changes."""
    text = COMPOSE.read_text()

    assert all(service["network_mode"] == "host" for service in stack["services"].values())
    assert "--web.listen-address=127.0.0.1:9090" in stack["services"]["prometheus"]["command"]
    assert "--web.listen-address=127.0.0.1:9093" in stack["services"]["alertmanager"]["command"]
    assert "--cluster.listen-address=" in stack["services"]["alertmanager"]["command"]
    assert stack["services"]["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert "0.0.0.0" not in text


def test_no_service_has_rights_it_does_not_need(stack: dict[str, Any]) -> None:
    """A read-only root, no capability, no way to more."""
    for service in stack["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert re.fullmatch(r"\$\{[A-Z]+_IMAGE:-[a-z]+/[a-z]+:v?\d+\.\d+\.\d+\}", service["image"])


def test_the_files_agree_with_each_other(stack: dict[str, Any]) -> None:
    """Ports, paths and addresses that stand in two files are the same."""
    prometheus = yaml.safe_load((CONFIGS / "prometheus" / "prometheus.yml").read_text())
    provider = yaml.safe_load((CONFIGS / "grafana/provisioning/dashboards/training.yml").read_text())
    source = yaml.safe_load((CONFIGS / "grafana/provisioning/datasources/prometheus.yml").read_text())
    grafana = stack["services"]["grafana"]
    (managers,) = prometheus["alerting"]["alertmanagers"]

    assert managers["static_configs"] == [{"targets": ["127.0.0.1:9093"]}]
    assert source["datasources"][0]["url"] == "${PROMETHEUS_URL}"
    assert grafana["environment"]["PROMETHEUS_URL"] == "http://127.0.0.1:9090"
    assert f"./grafana/dashboards:{provider['providers'][0]['options']['path']}:ro" in grafana["volumes"]
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (CONFIGS / "grafana/dashboards" / Path(home).name).is_file()
    assert str(Path(home).parent) == provider["providers"][0]["options"]["path"]


# -- Alertmanager -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def amtool() -> str:
    """The path of amtool (Debian package prometheus-alertmanager)."""
    path = shutil.which("amtool")
    need(path is not None, "amtool is not installed (Debian package prometheus-alertmanager)")
    assert path is not None
    return path


def route(amtool: str, **labels: str) -> str:
    asked = [f"{name}={value}" for name, value in labels.items()]
    done = subprocess.run(
        [amtool, "config", "routes", "test", f"--config.file={ROUTES}", *asked],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_amtool_takes_the_file(amtool: str) -> None:
    """Syntax, receivers and time intervals."""
    done = subprocess.run([amtool, "check-config", ROUTES], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("severity", "receiver"),
    [
        pytest.param("critical", "page", id="critical-wakes-somebody"),
        pytest.param("warning", "team", id="warning-waits-for-the-morning"),
        pytest.param("info", "log", id="info-is-for-a-look"),
        pytest.param("unheard-of", "log", id="nothing-is-lost"),
    ],
)
def test_a_severity_has_its_receiver(amtool: str, severity: str, receiver: str) -> None:
    """As `amtool config routes test` answers."""
    assert route(amtool, severity=severity, alertname="TrainingStalled", run="a") == receiver


def test_inhibitions_name_alerts_that_exist() -> None:
    """A cause that is renamed would hide nothing."""
    names = {rule["alert"] for rule in ALERTS}
    matchers = " ".join(
        matcher
        for rule in yaml.safe_load(ROUTES.read_text())["inhibit_rules"]
        for side in ("source_matchers", "target_matchers")
        for matcher in rule[side]
        if matcher.startswith("alertname")
    )
    named = set(re.findall(r"(?:Training|Tracker)\w+", matchers))

    assert named
    assert named <= names


def test_no_address_of_anybody_stands_in_it() -> None:
    """Only this machine's own."""
    hosts = re.findall(r"https?://([^/\s:]+)", ROUTES.read_text())

    assert set(hosts) == {"127.0.0.1"}
