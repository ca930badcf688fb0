"""What a scrape costs: 1, 100 and 1,000 runs in one process; 50 scrapers beside 20 clients that never speak.

    python benchmarks/scrape.py [--scrapes 60] [--seconds 60]

The server is a process of its own, whose runs are published anew all the time as the sidecar does it; the
client asks as Prometheus does: OpenMetrics, gzip, a connection for each scrape, and for the second part TLS
and a login. The third part is the real sidecar: what following and showing some runs costs where nothing new
is written, scraped every 15 s. Exit status 1 where a promise is broken.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import gzip
import http.client
import os
import re
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import bcrypt
import trustme

from tests.simulator.configure import config
from tests.simulator.live import write
from tests.simulator.machine import simulate
from tests.simulator.parameters import preset
from tracker.vitals import ChannelVitals, JobVitals, ReportVitals, SourceVitals, Vitals

COMMAND = [sys.executable, "-P", "-c", "from tracker.cli import main\nmain()"]
LIMITS_MS = {1: 5.0, 100: 40.0, 1000: 300.0}
SCRAPERS = 50
IDLE = 20
CROWD_S = 10
TIMES = 3.0
CPU_PERCENT = 1.0
MEMORY_MB = 40.0
PROMETHEUS = {
    "Accept": "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "gzip",
    "Authorization": "Basic " + base64.b64encode(b"prometheus:secret").decode(),
}
broken: list[str] = []


def said(what: str, value: float, unit: str, limit: float) -> None:
    verdict = "ok" if value <= limit else "ABOVE"
    if value > limit:
        broken.append(what)
    print(
        f"{what:<66} {value:9.2f} {unit:<3} limit {limit:g}  ratio {value / limit:.2f}  {verdict}", flush=True
    )


# -- the server's process -------------------------------------------------------------------------------


def serve(folder: Path, number: int, tls: bool) -> None:
    """Show so many runs until standard input ends; publish them anew as the sidecar would."""
    from tracker import app
    from tracker.answers import Answers, Shown
    from tracker.clock import SystemClock
    from tracker.config import Listen
    from tracker.exporter import Exporter
    from tracker.pages import HtmlPages
    from tracker.serve import Server
    from tracker.webconfig import WebConfig

    loaded, clock = app.load_config(folder / "run.toml"), SystemClock()
    snapshot = app.forecast_now(loaded, as_of_us=int((folder / "now_us").read_text())).snapshot
    assert snapshot.attempts, "the page would be empty"
    assert snapshot.forecast is not None
    vitals = full_vitals(int((folder / "now_us").read_text()))
    exporter = Exporter(version="bench", clock=clock)
    answers = Answers(exporter, HtmlPages("bench"), clock=clock)

    def publish(place: int, turn: int) -> None:
        run = f"team-{place % 17}/pretrain-{place:04}"
        known = answers._runs.get(run)
        again = known is not None and turn % 4 and known.snapshot is not None
        shown = known.snapshot if known is not None and again else replace(snapshot, run=run)
        answers.publish(Shown(run=run, snapshot=shown, vitals=replace(vitals, read_lines=turn)))

    for place in range(number):
        publish(place, 0)
    web = WebConfig(folder / "web.yml", clock=clock) if tls else None
    server = Server(Listen("127.0.0.1", 0), answers, clock=clock, security=web)
    server.start()
    print(server.listen.port, flush=True)

    def keep_on() -> None:
        turn = 0
        while True:
            turn += 1
            for place in range(number):  # each run every 15 s, its snapshot every minute
                publish(place, turn + place)
                time.sleep(15 / number)

    threading.Thread(target=keep_on, daemon=True).start()
    sys.stdin.read()


def full_vitals(now_us: int) -> Vitals:
    """Return what a sidecar with two sources, a report, mail and a webhook tells of itself."""
    return Vitals(
        ready=True, store_up=True, read_lines=10**6, read_bytes=10**8, stored_readings=10**5,
        rejects={"no number": 3, "cut short": 1}, last_pass_us=now_us, snapshot_s=0.01,
        store_bytes=10**7, wal_bytes=10**6, disk_free_bytes=10**11, disk_size_bytes=10**12,
        sources=tuple(
            SourceVitals(number=number, collector="megatron", shown="logs/*.log", up=True, files=3)
            for number in (1, 2)
        ),
        jobs=tuple(
            JobVitals(name=name, last_success_us=now_us, last_duration_s=0.1)
            for name in ("checkpoint", "report_check", "report_daily")
        ),
        channels=tuple(
            ChannelVitals(channel=name, sent=5, last_sent_us=now_us, failures={"timeout": 1})
            for name in ("mail", "webhook oncall")
        ),
        reports=(ReportVitals(schedule="daily", last_made_us=now_us, next_us=now_us),),
    )  # fmt: skip


class Server:
    """The process above."""

    def __init__(self, folder: Path, number: int, *, tls: bool) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(folder), str(number), str(int(tls))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )  # fmt: skip
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.context = ssl.create_default_context(cafile=folder / "ca.pem") if tls else None

    def scrape(self) -> tuple[float, int]:
        """Return how long one scrape took, in ms, and the size of the page."""
        began = time.perf_counter()
        client: http.client.HTTPConnection
        if self.context is not None:
            client = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=self.context)
        else:
            client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(client):
            client.request("GET", "/metrics", headers=PROMETHEUS)
            answer = client.getresponse()
            body = answer.read()
            took = (time.perf_counter() - began) * 1e3
            assert answer.status == 200, answer.status
        return took, len(gzip.decompress(body))

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(20)


def prepared(folder: Path) -> None:
    run = simulate(preset("llama_like", seed=5, total_steps=3_000))
    write(run, folder)
    (folder / "run.toml").write_text(config(run))
    (folder / "now_us").write_text(str(run.now_us))
    subprocess.run([*COMMAND, "ingest"], cwd=folder, check=True, stderr=subprocess.DEVNULL)
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    (folder / "server.pem").write_bytes(issued.cert_chain_pems[0].bytes())
    (folder / "server.key").write_bytes(issued.private_key_pem.bytes())
    (folder / "ca.pem").write_bytes(authority.cert_pem.bytes())
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(10)).decode()
    (folder / "web.yml").write_text(
        "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"
        f"basic_auth_users:\n  prometheus: {hashed}\n"
    )


def alone(folder: Path, scrapes: int) -> None:
    for number, limit in LIMITS_MS.items():
        server = Server(folder, number, tls=False)
        server.scrape()
        found = []
        for _ in range(scrapes):
            found.append(server.scrape())
            time.sleep(0.05 if number < 1000 else 0.7)  # so long that each one is made anew
        server.stop()
        said(f"scrape of {number:,} runs ({found[0][1] / 1e3:,.0f} kB), median of {scrapes}",
             statistics.median(took for took, _ in found), "ms", limit)  # fmt: skip


def crowd(folder: Path, scrapes: int) -> None:
    for number in LIMITS_MS:
        server = Server(folder, number, tls=True)
        server.scrape()
        single = []
        for _ in range(scrapes):
            single.append(server.scrape()[0])
            time.sleep(0.05 if number < 1000 else 0.7)
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(IDLE)]
        many: list[float] = []

        def scraper(place: int, many: list[float] = many, server: Server = server) -> None:
            time.sleep(place / SCRAPERS)
            ends = time.monotonic() + CROWD_S
            while time.monotonic() < ends:
                many.append(server.scrape()[0])
                time.sleep(1.0)

        threads = [threading.Thread(target=scraper, args=(place,)) for place in range(SCRAPERS)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            for place, client in enumerate(idle):  # a server cuts them off: there are always twenty
                client.settimeout(0.001)
                with contextlib.suppress(TimeoutError):
                    if not client.recv(1):
                        client.close()
                        idle[place] = socket.create_connection(("127.0.0.1", server.port))
            time.sleep(0.2)
        for client in idle:
            client.close()
        burst: list[float] = []
        together = threading.Barrier(SCRAPERS)

        def at_once(
            burst: list[float] = burst, server: Server = server, all_: threading.Barrier = together
        ) -> None:
            all_.wait()
            burst.append(server.scrape()[0])

        threads = [threading.Thread(target=at_once) for _ in range(SCRAPERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        server.stop()
        one, all_of = statistics.median(single), statistics.median(many)
        print(
            f"{number:,} runs over TLS: alone {one:.1f} ms; {SCRAPERS} scrapers, each once a second, beside "
            f"{IDLE} idle clients: {all_of:.1f} ms ({len(many)} scrapes); all {SCRAPERS} in one instant: "
            f"median {statistics.median(burst):.0f} ms, last {max(burst):.0f} ms"
        )
        said(
            f"{SCRAPERS} scrapers of {number:,} runs beside {IDLE} idle TLS clients", all_of / one, "x", TIMES
        )


# -- the real sidecar -----------------------------------------------------------------------------------


def sidecar(folder: Path, number: int, seconds: float, *, web: bool) -> None:
    """Follow copies of the run that nothing is written to any more."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        text = (folder / "run.toml").read_text()
        for run in range(number):
            copy = place / f"run-{run}"
            copy.mkdir()
            for path in folder.iterdir():
                if path.is_file() and not path.name.startswith("tracker.db-"):
                    (copy / path.name).write_bytes(path.read_bytes())
            (copy / "run.toml").write_text(re.sub(r"(?m)^name = .*", f'name = "run-{run}"', text, count=1))
        said_path = place / "said.txt"
        options = ["--web-config", str(folder / "web.yml")] if web else []
        with said_path.open("wb") as out:
            process = subprocess.Popen(
                [*COMMAND, "run", "-c", "run-*/run.toml", "--listen", "127.0.0.1:0", *options],
                cwd=place, stdout=out, stderr=out,
            )  # fmt: skip
        try:
            while not (found := re.search(r"listening on https?://[^:]+:(\d+)/", said_path.read_text())):
                assert process.poll() is None, said_path.read_text()
                time.sleep(0.05)
            there = Server.__new__(Server)
            there.port = int(found[1])
            there.context = ssl.create_default_context(cafile=folder / "ca.pem") if web else None
            time.sleep(10 + number)  # read, and the first forecasts made
            before, began = cpu_s(process.pid), time.monotonic()
            while time.monotonic() < began + seconds:
                there.scrape()
                time.sleep(15)
            share = (cpu_s(process.pid) - before) / (time.monotonic() - began) * 100
            with_ = " with TLS and logins" if web else ""
            said(f"sidecar of {number} runs at rest{with_}, scraped every 15 s", share, "%",
                 CPU_PERCENT if number == 1 else 100.0)  # fmt: skip
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            pss = re.search(r"(?m)^Pss: +(\d+) kB", rollup)
            assert pss is not None
            said(f"its memory{with_}, Pss", int(pss[1]) / 1e3, "MB", MEMORY_MB if number == 1 else 1000.0)
        finally:
            process.terminate()
            process.wait(30)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Measure, print, judge."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--scrapes", type=int, default=60)
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--part", choices=("alone", "crowd", "sidecar"), help="only this one")
    options.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.serve:
        serve(Path(asked.serve[0]), int(asked.serve[1]), asked.serve[2] == "1")
        return 0
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared(folder)
        if asked.part in {None, "alone"}:
            alone(folder, asked.scrapes)
        if asked.part in {None, "crowd"}:
            crowd(folder, asked.scrapes)
        if asked.part in {None, "sidecar"}:
            for number, web in ((1, False), (1, True), (20, False)):
                sidecar(folder, number, asked.seconds, web=web)
    print(f"load of the machine after: {os.getloadavg()[0]:.1f}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
