"""A canary in every place for a secret: it turns up nowhere else, whatever fails."""

from __future__ import annotations

import base64
import contextlib
import http.server
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.test_leash import below
from tests.torture.sidecar import Sidecar, ask
from tests.torture.stage import PLOTS, Stage

pytestmark = pytest.mark.slow

CANARY = "c4nary-Passw0rd-7781"
CONFIG = """
[report]
directory = "reports"
at = "00:00"
[report.mail]
host = "127.0.0.1"
port = {mail}
tls = "none"
user = "tracker"
password_file = "smtp.password"
from = "tracker@example.org"
to = "team@example.org"
timeout_s = 5
[[webhook]]
name = "oncall"
url_file = "oncall.url"
timeout_s = 5
"""


class Repeats(http.server.BaseHTTPRequestHandler):
    """A receiver that fails, and repeats the whole request in its answer."""

    def do_POST(self) -> None:
        body = f"no: {self.path} {self.headers}".encode()
        self.send_response(400, f"no {self.path}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def receiver() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Repeats) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


class Refuses(socketserver.StreamRequestHandler):
    """A mail server that refuses each login, and repeats what it was given."""

    def handle(self) -> None:
        self.wfile.write(b"220 hello\r\n")
        with contextlib.suppress(OSError):
            while line := self.rfile.readline():
                word = line.upper()
                if word.startswith(b"EHLO"):
                    self.wfile.write(b"250-here\r\n250 AUTH PLAIN LOGIN\r\n")
                elif word.startswith(b"AUTH LOGIN"):
                    self.wfile.write(b"334 UGFzc3dvcmQ6\r\n")
                    coded = self.rfile.readline().strip()
                    self.wfile.write(b"535 no AUTH: %s, %s\r\n" % (base64.b64decode(coded), coded))
                elif word.startswith(b"QUIT"):
                    self.wfile.write(b"221 bye\r\n")
                    return
                else:
                    self.wfile.write(b"535 not with " + line.strip()[:400] + b"\r\n")


@contextmanager
def refusing_mail_server() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Refuses) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_no_secret_is_in_logs_pages_metrics_reports_ps_or_the_store(tmp_path: Path) -> None:
    """The login is refused and the receiver repeats its own address: both are told without the secret."""
    (tmp_path / "smtp.password").write_text(CANARY)
    stage = Stage(PLOTS[3], tmp_path, seed=2)
    stage.configs()
    stage.finish()
    seen: dict[str, str] = {}
    with refusing_mail_server() as mail, receiver() as port:
        (tmp_path / "oncall.url").write_text(f"http://127.0.0.1:{port}/hooks/{CANARY}\n")
        with (tmp_path / "run.toml").open("a") as out:
            out.write(CONFIG.format(mail=mail))
        sidecar = Sidecar(tmp_path, foresees=False)
        try:
            ends = time.monotonic() + 120
            while "mail: " not in seen.get("/api/v1/runs", "") and time.monotonic() < ends:
                for pid in [sidecar.process.pid, *below(sidecar.process.pid)]:
                    seen[f"ps {pid}"] = seen.get(f"ps {pid}", "") + _words(pid)
                for path in ("/", "/metrics", "/api/v1/runs", "/api/v1/status"):
                    answer = sidecar.get(path)
                    seen[path] = "" if answer is None else answer[1]
                time.sleep(0.1)
            seen["test letter"] = "".join(
                map(str, ask(tmp_path, "report", "--config", "run.toml", "--send-test"))
            )
            assert sidecar.stop() == 0
        finally:
            sidecar.end()
        seen["log"] = sidecar.said
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.name not in ("oncall.url", "smtp.password"):
            seen[str(file)] = file.read_bytes().decode("latin-1")

    assert "535 no AUTH: ***, ***" in seen["/api/v1/runs"]
    assert "oncall" in seen["test letter"]
    forms = [CANARY, base64.b64encode(CANARY.encode()).decode().rstrip("="), CANARY.encode().hex()]
    assert [name for name, text in seen.items() if any(form in text for form in forms)] == []


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
