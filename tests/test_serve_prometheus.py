"""A real Prometheus scrapes: any run name, TLS, right and wrong logins, a web config broken meanwhile."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import need
from tests.test_exporter import FULL, HOSTILE, VITALS
from tests.test_sidecar import Plain
from tests.web_help import PASSWORD, TLS, USERS, Served, certificates
from tracker.answers import Answers, Shown
from tracker.clock import SystemClock
from tracker.exporter import Exporter
from tracker.workings import Workings

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]
NAMES = [*HOSTILE, '"\\n\\\\', "`$(x)`", "\r\n", "\x1b[31m", "\u202eabc", '{run="x"} 1\n# EOF', "ﷺ" * 40]


class Scraper:
    """A Prometheus that scrapes each target every second."""

    def __init__(self, folder: Path, jobs: list[dict[str, Any]]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._url = f"http://127.0.0.1:{port}"
        every = {"scrape_interval": "1s", "scrape_timeout": "1s"}
        (folder / "prometheus.yml").write_text(json.dumps({"global": every, "scrape_configs": jobs}))
        self._said = (folder / "prometheus.txt").open("wb")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={folder / 'prometheus.yml'}",
             f"--web.listen-address=127.0.0.1:{port}", f"--storage.tsdb.path={folder / 'tsdb'}"],
            stdout=self._said, stderr=self._said,
        )  # fmt: skip

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(self._url + path, timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask(f"/api/v1/query?query={urllib.parse.quote(expression)}")[
            "result"
        ]
        return found

    def targets(self) -> dict[str, tuple[str, str]]:
        """Return health and last error by job, once every target was scraped."""
        ends = time.monotonic() + 60
        while time.monotonic() < ends:
            try:
                active = self.ask("/api/v1/targets")["activeTargets"]
            except OSError:
                active = []
            if active and all(one["health"] != "unknown" for one in active):
                return {one["labels"]["job"]: (one["health"], one["lastError"]) for one in active}
            time.sleep(0.1)
        raise AssertionError("the targets were not all scraped")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self._said.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scraper, Served]]:
    """One Prometheus; a server with every odd run name and one with TLS and logins."""
    need(shutil.which("prometheus") is not None, "prometheus is not installed (Debian package prometheus)")
    folder = tmp_path_factory.mktemp("world")
    certificates(folder)
    other = folder / "other"
    other.mkdir()
    certificates(other)
    clock = SystemClock()
    secured: list[Served] = []

    def workings() -> Workings:
        return Workings(runs=len(NAMES), web_config_ok=not secured[0].web.problem if secured else None)

    exporter = Exporter(version="0", clock=clock, workings=workings)
    answers = Answers(exporter, Plain(), clock=clock)
    for name in NAMES:
        snapshot = replace(FULL, run=name, operating_point={"gpu": name, "framework": name})
        answers.publish(Shown(run=name, snapshot=snapshot, vitals=replace(VITALS, rejects={name: 1})))
    plain, served = Served(folder / "other", "", answers, clock), Served(folder, TLS + USERS, answers, clock)
    secured.append(served)

    def job(name: str, at: Served, **more: Any) -> dict[str, Any]:
        listen = at.server.listen
        return {"job_name": name, "static_configs": [{"targets": [f"{listen.host}:{listen.port}"]}], **more}

    right = {"username": "prometheus", "password": PASSWORD}
    tls = {"scheme": "https", "tls_config": {"ca_file": str(folder / "ca.pem")}}
    scraper = Scraper(
        folder,
        [
            job("plain", plain),
            job("right", served, **tls, basic_auth=right),
            job("wrong", served, **tls, basic_auth={**right, "password": "old"}),
            job("nobody", served, **tls),
            job("stranger", served, scheme="https", basic_auth=right,
                tls_config={"ca_file": str(other / "ca.pem")}),
            job("unencrypted", served, basic_auth=right),
        ],
    )  # fmt: skip
    yield scraper, served
    scraper.stop()
    plain.stop()
    served.stop()


def test_who_may_scrape_is_up_and_nobody_else(world: tuple[Scraper, Served]) -> None:
    """With the reason in Prometheus' own words; the right one never falls out, whatever the others try."""
    scraper, served = world
    found = scraper.targets()

    assert {job for job, (health, _) in found.items() if health == "up"} == {"plain", "right"}
    assert "401" in found["wrong"][1]
    assert "401" in found["nobody"][1]
    assert "certificate" in found["stranger"][1]
    assert found["unencrypted"][0] == "down"
    time.sleep(5)
    assert scraper.query('min_over_time(up{job="right"}[5s])')[0]["value"][1] == "1"
    assert served.web.logins_failed["wrong"] >= 4
    assert "limited" not in served.web.logins_failed


def test_every_run_name_comes_back_as_it_was(world: tuple[Scraper, Served]) -> None:
    """Quotes, newlines, any script, what looks like the format itself."""
    scraper, _ = world
    scraper.targets()
    meant = {name.encode("utf-8", "replace").decode() for name in NAMES}

    for job in ("plain", "right"):
        found = scraper.query(f'training_step{{job="{job}"}}')
        assert {one["metric"].get("run", "") for one in found} == meant
        assert {float(one["value"][1]) for one in found} == {100.0}
    gpus = scraper.query('training_operating_point_info{job="plain"}')
    assert {one["metric"].get("gpu", "")[:10] for one in gpus if one["metric"].get("run") == "x" * 1000} == {
        "x" * 10
    }
    assert all(len(one["metric"].get("gpu", "")) <= 120 for one in gpus)


def test_a_web_config_broken_meanwhile_is_seen_and_stops_nothing(world: tuple[Scraper, Served]) -> None:
    """The old one stays, the gauge falls to 0; mended it is 1 again."""
    scraper, served = world
    scraper.targets()
    good = served.path.read_text()

    def gauge() -> str:
        found = scraper.query('tracker_web_config_last_reload_successful{job="right"}')
        return str(found[0]["value"][1]) if found else ""

    for text, value in ((good + "nonsense: 1\n", "0"), (good + "# mended\n", "1")):
        served.path.write_text(text)
        ends = time.monotonic() + 30
        while gauge() != value:
            assert time.monotonic() < ends, f"the gauge is {gauge()!r}, not {value}"
            time.sleep(0.2)
    assert scraper.query('min_over_time(up{job="right"}[10s])')[0]["value"][1] == "1"
