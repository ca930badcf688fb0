"""What the sidecar costs: memory, processor, a scrape, and the time from start to the first page.

    python benchmarks/sidecar.py [--readings 1000000] [--seconds 30]

Real processes on a log made here. The memory is that of every process of ours that lives longer than a
minute: one. `Pss` shares what other processes use too (Python's own pages, if another Python runs on the
node); `Rss` does not, and is what a node with nothing else of Python on it pays.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

COMMAND = [sys.executable, "-P", "-c", "from tracker.cli import main\nmain()"]
CONFIG = """
[run]
name = "bench"
[model]
active_params = 1e9
sequence_length = 2048
[hardware]
gpu = "h100-sxm"
gpus = 8
[[source]]
path = "*.log"
[serve]
listen = "127.0.0.1:0"
"""
START = 1_700_000_000
CHATTER = "INFO:megatron.core: something that nobody looks for, line number {} of very many of the kind\n"


def line(step: int, at: float) -> str:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
    return (
        f" [{stamp}] iteration {step:8d}/ 2000000 | consumed samples: {step * 64:12d} | elapsed time per"
        " iteration (ms): 10000.0 | learning rate: 1.000000E-05 | global batch size:    64 | lm loss:"
        " 1.092914E+01 | loss scale: 1.0 | grad norm: 1.1 | number of skipped iterations:   0 |"
        " number of nan iterations:   0 |\n"
    )


class Sidecar:
    """The process, and what the kernel says of it."""

    def __init__(self, folder: Path) -> None:
        self._said = folder / "said.txt"
        self.began = time.monotonic()
        with self._said.open("wb") as out:
            self.process = subprocess.Popen([*COMMAND, "run"], cwd=folder, stdout=out, stderr=out)
        while not (found := re.search(r"listening on (http://\S+)/\n", self._said.read_text())):
            time.sleep(0.005)
        self.url = found[1]

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return str(answer.read().decode())

    def until(self, words: str) -> float:
        while words not in self.get("/metrics"):
            time.sleep(0.05)  # more often, and what is measured would be our asking
        return time.monotonic() - self.began

    def kb(self, name: str) -> int:
        rollup = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        found = re.search(rf"^{name}: +(\d+) kB", rollup, re.MULTILINE)
        assert found is not None
        return int(found[1])

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> float:
        began = time.monotonic()
        self.process.terminate()
        self.process.wait(30)
        return time.monotonic() - began


def said(what: str, value: float, unit: str, limit: float) -> None:
    verdict = "ok" if value <= limit else "ABOVE"
    print(f"{what:<52} {value:9.2f} {unit:<4} limit {limit:g}  ratio {value / limit:.2f}  {verdict}")


def stored(readings: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "run.toml").write_text(CONFIG)
        with (folder / "train.log").open("w") as log:
            log.writelines(line(step, START + 10 * step) for step in range(1, readings + 1))
        subprocess.run([*COMMAND, "ingest"], cwd=folder, check=True)
        size = (folder / "tracker.db").stat().st_size
        said(f"store with {readings:,} readings", size / readings, "B", 90)
        sidecar = Sidecar(folder)
        said("start to first page with the run on it", sidecar.until("training_step{"), "s", 1.0)
        said("its processor time (the same on a busy machine)", sidecar.cpu_s(), "s", 1.0)
        sidecar.until('tracker_ready{run="bench"} 1.0')
        took = []
        for _ in range(200):
            began = time.perf_counter()
            sidecar.get("/metrics")
            took.append((time.perf_counter() - began) * 1e3)
        said("/metrics over HTTP, median of 200", statistics.median(took), "ms", 5)
        said("memory on that store, Rss", sidecar.kb("Rss") / 1e3, "MB", 40)
        said("SIGTERM to end", sidecar.stop(), "s", 2)


def followed(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "run.toml").write_text(CONFIG)
        stop = threading.Event()

        def write() -> None:
            number = step = 0
            began = time.monotonic()
            with (folder / "train.log").open("w") as log:
                while not stop.is_set():
                    for _ in range(100):
                        number += 1
                        if number % 20 == 0:
                            step += 1
                            log.write(line(step, time.time()))
                        else:
                            log.write(CHATTER.format(number))
                    log.flush()
                    time.sleep(max(0.0, began + number / 1000 - time.monotonic()))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            sidecar = Sidecar(folder)
            sidecar.until('tracker_ready{run="bench"} 1.0')
            time.sleep(3)
            before, began = sidecar.cpu_s(), time.monotonic()
            ends = began + seconds
            while time.monotonic() < ends:
                time.sleep(min(15, ends - time.monotonic()))
                sidecar.get("/metrics")
            share = (sidecar.cpu_s() - before) / (time.monotonic() - began)
            said("processor at 1,000 lines/s, scraped each 15 s", share * 100, "%", 1)
            said("memory while following, Pss", sidecar.kb("Pss") / 1e3, "MB", 40)
            said("memory while following, Rss", sidecar.kb("Rss") / 1e3, "MB", 40)
            sidecar.stop()
        finally:
            stop.set()
            writer.join()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--readings", type=int, default=1_000_000)
    options.add_argument("--seconds", type=float, default=30)
    asked = options.parse_args()
    followed(asked.seconds)
    stored(asked.readings)


if __name__ == "__main__":
    main()
