"""Real time-series databases on loopback, each with a folder of its own; what they answer, as numbers."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conftest import need

VICTORIA = shutil.which("victoria-metrics")
PROMETHEUS = shutil.which("prometheus")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextlib.contextmanager
def started(command: list[str], ready: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server, wait until it answers, end it after."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with contextlib.suppress(OSError), urllib.request.urlopen(ready, timeout=2) as reply:
                if reply.status == 200:
                    break
            assert process.poll() is None, "the server ended"
            time.sleep(0.05)
        else:
            raise AssertionError("the server does not answer")
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def victoria(folder: Path, *, retention: str = "100y") -> Iterator[str]:
    """Run VictoriaMetrics; yield its address."""
    need(VICTORIA is not None, "victoria-metrics is not installed (Debian package victoria-metrics)")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        VICTORIA or "", f"-storageDataPath={folder}", f"-httpListenAddr=127.0.0.1:{port}",
        f"-retentionPeriod={retention}", "-loggerLevel=ERROR", "-memory.allowedBytes=256MB",
        "-search.latencyOffset=0s", "-search.disableCache",
    ]  # fmt: skip
    with started(command, f"{url}/health"):
        yield url


@contextlib.contextmanager
def prometheus(folder: Path, *, config: str = "", window: str = "") -> Iterator[str]:
    """Run Prometheus with a remote-write receiver on a folder that may hold blocks; yield its address."""
    need(PROMETHEUS is not None, "prometheus is not installed (Debian package prometheus)")
    folder.mkdir(parents=True, exist_ok=True)
    text = config or "global: {scrape_interval: 1h}\n"
    if window:
        text += f"storage: {{tsdb: {{out_of_order_time_window: {window}}}}}\n"
    (folder / "prometheus.yml").write_text(text)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        PROMETHEUS or "", f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--web.enable-remote-write-receiver",
        "--storage.tsdb.retention.time=100y", "--log.level=error", "--web.enable-lifecycle",
    ]  # fmt: skip
    with started(command, f"{url}/-/ready"):
        yield url


def ask(url: str, path: str, **query: str | list[str]) -> Any:
    """Return the data of an answer of the PromQL interface."""
    words = urllib.parse.urlencode(query, doseq=True)
    with urllib.request.urlopen(f"{url}{path}?{words}", timeout=20) as reply:
        return json.load(reply)["data"]


def samples(
    url: str, selector: str, start_us: int, end_us: int
) -> dict[tuple[tuple[str, str], ...], dict[int, float]]:
    """Return the raw samples of series between two moments, by millisecond, read through PromQL."""
    width_ms = (end_us - start_us) // 1000 + 1
    found = ask(url, "/api/v1/query", query=f"{selector}[{width_ms}ms]", time=f"{end_us / 1e6:.3f}")
    return {
        tuple(sorted(row["metric"].items())): {
            round(float(at) * 1000): float(value) for at, value in row["values"]
        }
        for row in found["result"]
    }


def flush(url: str) -> None:
    """Make VictoriaMetrics show what it holds."""
    urllib.request.urlopen(f"{url}/internal/force_flush", timeout=20).read()
