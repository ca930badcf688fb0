"""How long fifty who read a store wait while a sidecar writes it: status, export, backup, check, and scrapes.

    python benchmarks/readers.py [--readings 100000] [--seconds 30]

Each reader is a process of its own, forked once the modules are loaded, and asks about once a second; the log
grows by 1,000 lines a second meanwhile. What a reader computes costs what it costs, and fifty of them want
more than a small machine has; so three times are told: by the wall, of that at work, of that queued for a
processor. What is left it waited for the store, the disk or the sidecar: that has a limit of a second.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from beside_job import WRITER, process
from sidecar import COMMAND, CONFIG, START, Sidecar, line, said

from tracker import app
from tracker.core.book import Book
from tracker.core.summary import snapshot
from tracker.export.tables import TABLES, seen
from tracker.marks import StoredMarks
from tracker.store import Reader
from tracker.store import health as store_health

READERS = 50
MOST_S = 1.0
EVERY_S = 1.0


def queued_s() -> float:
    """Return how long this process stood in the queue for a processor."""
    return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9


def looks(folder: Path, url: str) -> dict[str, Callable[[], object]]:
    """Return what is asked, by name."""
    config = app.load_config(folder / "run.toml")

    def status() -> object:
        with Reader(config.store) as reader, reader.snapshot():
            book = Book(config.settings, marks=StoredMarks(reader))
            return snapshot(book, reader, as_of_us=int(time.time() * 1e6))

    def export() -> object:
        with Reader(config.store) as reader, reader.snapshot():
            asked = seen(config.settings, reader, as_of_us=int(time.time() * 1e6))
            return sum(1 for _ in TABLES["windows"].rows(asked))

    def backup() -> object:
        copy = folder / f"copy-{os.getpid()}.db"
        with suppress(FileNotFoundError):
            copy.unlink()
        return store_health.backup(config.store, copy)

    def check() -> object:
        return store_health.check(config.store, quick=True)

    def scrape() -> object:
        with urllib.request.urlopen(url + "/metrics", timeout=30) as answer:
            return answer.read()

    return {"status": status, "scrape": scrape, "export": export, "backup": backup, "check": check}


def reader(number: int, folder: Path, url: str, ends_s: float, out: Path) -> None:
    """Ask again and again; write down how long each answer took."""
    asked = looks(folder, url)
    name = (
        "status",
        "status",
        "scrape",
        "scrape",
        "scrape",
        "export",
        "check",
        "status",
        "scrape",
        "backup",
    )[number % 10]
    time.sleep(number / READERS * EVERY_S)
    os.nice(10)  # as the sidecar is: else a crowd that computes keeps it from answering
    took = []
    while time.monotonic() < ends_s:
        began, cpu, queue = time.monotonic(), time.process_time(), queued_s()
        asked[name]()
        wall = time.monotonic() - began
        took.append((wall, time.process_time() - cpu, queued_s() - queue))
        time.sleep(max(0.0, EVERY_S - wall))
    out.write_text(json.dumps({"name": name, "took": took}))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--readings", type=int, default=100_000)
    options.add_argument("--seconds", type=float, default=30)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "run.toml").write_text(CONFIG)
        with (folder / "old.log").open("w") as log:
            log.writelines(line(step, START + 10 * step) for step in range(1, asked.readings + 1))
        subprocess.run([*COMMAND, "ingest"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        with process(WRITER.format(here=str(Path(__file__).parent), rate=1000), folder):
            sidecar = Sidecar(folder)
            sidecar.until('tracker_ready{run="bench"} 1.0')
            lag, wal = [], []
            ends_s = time.monotonic() + asked.seconds
            forked = multiprocessing.get_context("fork")
            crowd = [
                forked.Process(
                    target=reader, args=(n, folder, sidecar.url, ends_s, folder / f"took-{n}.json")
                )
                for n in range(READERS)
            ]
            for one in crowd:
                one.start()
            while time.monotonic() < ends_s:
                time.sleep(1.0)
                page = sidecar.get("/metrics")
                lag.append(max(float(x.rpartition(" ")[2]) for x in page.splitlines()
                               if x.startswith("tracker_source_lag_bytes")))  # fmt: skip
                wal.append((folder / "tracker.db-wal").stat().st_size)
            for one in crowd:
                one.join()
            sidecar.stop()
        bad = sum(one.exitcode != 0 for one in crowd)
        kinds: dict[str, list[list[float]]] = {}
        for path in folder.glob("took-*.json"):
            told = json.loads(path.read_text())
            kinds.setdefault(told["name"], []).extend(told["took"])
    print(f"{READERS} readers, {sum(map(len, kinds.values())):,} answers, {bad} readers failed")
    for name, took in sorted(kinds.items()):
        walls = sorted(one[0] for one in took)
        work = statistics.median(one[1] for one in took)
        print(
            f"{name:<8} {len(took):6,} answers; by the wall: median {statistics.median(walls) * 1e3:.0f} ms,"
            f" longest {walls[-1] * 1e3:.0f} ms; at work: median {work * 1e3:.0f} ms;"
            f" queued: longest {max(one[2] for one in took) * 1e3:.0f} ms"
        )
        said(f"{name}: longest wait for store or disk", max(w - c - q for w, c, q in took), "s", MOST_S)
    said("sidecar: most that was not read yet", max(lag) / 1e6, "MB", 5)
    said("write-ahead log, at most", max(wal) / 1e6, "MB", 20)
    if bad:
        sys.exit(1)


if __name__ == "__main__":
    main()
