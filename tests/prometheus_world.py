"""A real Prometheus that scrapes a real sidecar, which follows a simulated run whose past is back-filled.

Edge of the tests: starts both on free loopback ports with the configuration that is shipped, and ends them.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.dashboards import ROOT
from tests.simulator import Player, Run, preset, simulate
from tests.simulator.configure import config
from tests.test_sidecar import TRACKER, Running

SHIPPED: Final = ROOT / "configs" / "prometheus"
S: Final = 1_000_000
EVERY_S: Final = 1
"""Between two scrapes: fifteen times as often as shipped, so that a test need not wait."""


def until(what: Callable[[], object], words: str, limit_s: float = 60.0) -> None:
    ends = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < ends, words
        time.sleep(0.1)


def now_us() -> int:
    return time.time_ns() // 1000


def restarted(seed: int = 7) -> tuple[Run, int]:
    """Return a run that is going on now, and the moment of its latest start, five minutes ago.

    The clock of the simulated run is moved so that its attempt after several failures began then.
    """
    parameters = preset("llama_like", seed=seed, style="megatron")
    first = simulate(parameters)
    later = [a for a in first.attempts[4:] if a.start_us - first.attempts[0].start_us > 4200 * S]
    chosen = next(a for a in later if a.end_us is None or a.end_us - a.start_us > 1200 * S)
    moved = (now_us() - 300 * S - chosen.start_us) // S * S
    run = simulate(replace(parameters, start_us=parameters.start_us + moved))
    return run, chosen.start_us + moved


def settings(run: Run) -> str:
    """Return the config of the run, with all that a plan may say."""
    begin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(run.parameters.start_us / S))
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 4 * 3600))
    text = config(run).replace(
        "start = 2026-01-05T08:00:00Z", f"start = {begin}\ndeadline = {end}\nbudget = 1e5"
    )
    return text + (
        '\n[report.mail]\nhost = "127.0.0.1"\ntls = "none"\nfrom = "a@example.org"\nto = ["b@example.org"]\n'
        '\n[[source]]\ncollector = "jsonl"\npath = "other.jsonl"\n'
        f"\n[reservation]\nend = {end}\n"
        "\n[plan.failures]\nper_day = 1.0\nrestart_min = 10\ncheckpoint_interval_min = 10\n"
        "checkpoint_stall_min = 0.1\n"
        '\n[ingest]\npoll_s = 0.2\n\n[serve]\nlisten = "127.0.0.1:0"\n'
    )


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    url: str

    def get(self, path: str, **asked: object) -> Any:
        """Return the data of an answer of its API."""
        query = urllib.parse.urlencode(asked)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=30) as answer:
            body = json.load(answer)
        assert body["status"] == "success"
        return body["data"]

    def now(self, expr: str) -> list[dict[str, Any]]:
        """Return the series of an expression at this moment."""
        found: list[dict[str, Any]] = self.get("query", query=expr)["result"]
        return found

    def over(self, expr: str, *, start_s: float, end_s: float, step_s: float) -> list[dict[str, Any]]:
        """Return the series of an expression over a time."""
        asked = self.get("query_range", query=expr, start=start_s, end=end_s, step=step_s)
        found: list[dict[str, Any]] = asked["result"]
        return found


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def prometheus(folder: Path, targets: list[str], history: Path | None = None) -> Iterator[Prometheus]:
    """Start Prometheus with the shipped configuration: only the targets and the pace are others."""
    home = folder / "prometheus"
    home.mkdir()
    for name in ("recording.yml", "alerts.yml"):
        shutil.copy(SHIPPED / name, home)
    text = (SHIPPED / "prometheus.yml").read_text()
    text = text.replace('["127.0.0.1:9109"]', json.dumps(targets))
    text = re.sub(r"(scrape|evaluation)_interval: 15s", rf"\1_interval: {EVERY_S}s", text)
    text = text.replace("scrape_timeout: 10s", f"scrape_timeout: {EVERY_S}s")
    text = re.sub(r"alerting:.*?(?=scrape_configs:)", "", text, flags=re.DOTALL)
    text = text.split("  - job_name: prometheus")[0]
    (home / "prometheus.yml").write_text(text)
    if history is not None:
        subprocess.run(
            ["promtool", "tsdb", "create-blocks-from", "openmetrics", history, home / "data"],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    port = free_port()
    with (folder / "prometheus.txt").open("wb") as said:
        process = subprocess.Popen(
            [
                "prometheus", f"--config.file={home}/prometheus.yml", f"--storage.tsdb.path={home}/data",
                f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=10y",
                "--query.lookback-delta=5m",
            ],
            cwd=home, stdout=said, stderr=said, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            until(
                lambda: _answers(port),
                "Prometheus did not start: " + (folder / "prometheus.txt").read_text()[-500:],
            )
            yield Prometheus(f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait(20)


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def exported(folder: Path, *labels: str) -> Path:
    """Return the run's past as OpenMetrics, with the labels that a scrape adds."""
    path = folder / "past.om"
    asked = [word for label in labels for word in ("--label", label)]
    subprocess.run(
        [*TRACKER, "export", "--config", "run.toml", "--openmetrics", path, *asked],
        cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return path


@contextmanager
def watched(folder: Path) -> Iterator[tuple[Prometheus, Player]]:
    """Start all of it: the sidecar on logs up to a failure, its past, Prometheus; then the run goes on."""
    run, restart_us = restarted()
    (folder / "run.toml").write_text(settings(run))
    (folder / "other.jsonl").write_text('{"kind": "reading", "at": "2026-01-05T08:00:00Z", "step": -1}\n')
    player = Player(run, folder, torn_share=0.0)
    player.advance(restart_us - 1)
    sidecar = Running(folder)
    try:
        until(lambda: sidecar.get("/readyz")[0] == 200, "the sidecar is not ready")
        instance = sidecar.url.removeprefix("http://")
        past = exported(folder, "job=tracker", f"instance={instance}")
        with prometheus(folder, [instance], past) as found:
            until(lambda: found.now('up{job="tracker"} == 1'), "the sidecar is not scraped")
            until(lambda: found.now("tracker_ready == 1"), "the sidecar is not ready")
            player.advance(now_us())
            yield found, player
    finally:
        sidecar.stop()
