"""The status page of a run with 500 attempts: how long it takes to draw, how big it is, what 50 readers cost.

    python benchmarks/web_page.py [--steps 120000]

Promised: drawn in 100 ms of processor time, at most 200 kB; a reader who has it already costs a hundredth of
that. The run is simulated, ingested and asked for its past first (half a minute). Exit status 1 where a
promise is broken.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tests.simulator.configure import config
from tests.simulator.live import write
from tests.simulator.machine import simulate
from tests.simulator.parameters import preset
from tracker import app
from tracker.answers import Answers, Shown
from tracker.clock import SystemClock
from tracker.core.beside import Beside
from tracker.exporter import Exporter
from tracker.pages import About, HtmlPages
from tracker.serve import Request

MOST_MS = 100.0
MOST_BYTES = 200_000
READERS = 50


class Past:
    """A past that is there already."""

    def __init__(self, latest: Beside) -> None:
        self.latest = latest

    def want(self) -> None:
        """Nothing is to be done."""


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=120_000)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = simulate(preset("llama_like", seed=5, total_steps=steps))
        write(run, folder)
        (folder / "run.toml").write_text(config(run))
        loaded = app.load_config(folder / "run.toml")
        app.ingest_once(loaded)
        made = app.daily_now(loaded, as_of_us=run.now_us)
    snapshot, pages = made.snapshot, HtmlPages("bench")
    pages.tell(snapshot.run, About(past=Past(Beside.of(made))))
    answers = Answers(Exporter(version="bench"), pages, clock=SystemClock())
    took_s, page = float("inf"), ""
    for _ in range(7):
        shown = Shown(run=snapshot.run, snapshot=replace(snapshot))  # a new one, so that it is drawn anew
        answers.publish(shown)
        began = time.process_time()
        page = pages.run(shown, alone=True)
        took_s = min(took_s, time.process_time() - began)
    size, packed = len(page.encode()), len(gzip.compress(page.encode(), 6))
    first = answers(Request(method="GET", path="/", headers={"accept-encoding": "gzip"}))
    began = time.process_time()
    for _ in range(READERS):
        answers(Request(method="GET", path="/", headers={"accept-encoding": "gzip"}))
    each_ms = (time.process_time() - began) / READERS * 1e3
    began = time.process_time()
    for _ in range(READERS):
        answers(Request(method="GET", path="/", headers={"if-none-match": first.headers["ETag"]}))
    known_ms = (time.process_time() - began) / READERS * 1e3
    rows = [
        (f"drawn, {len(snapshot.attempts)} attempts", f"{took_s * 1e3:.0f} ms of CPU", f"{MOST_MS:.0f} ms"),
        ("size", f"{size / 1e3:.0f} kB", f"{MOST_BYTES / 1e3:.0f} kB"),
        ("as it is sent (gzip)", f"{packed / 1e3:.0f} kB", ""),
        (f"one more of {READERS} readers", f"{each_ms:.3f} ms", f"{MOST_MS / 100:.0f} ms"),
        ("one who has it already", f"{known_ms:.3f} ms", f"{MOST_MS / 100:.0f} ms"),
    ]
    for what, measured, limit in rows:
        print(f"{what:<28}  {measured:>14}  {limit:>8}")
    kept = took_s * 1e3 <= MOST_MS and size <= MOST_BYTES and max(each_ms, known_ms) <= MOST_MS / 100
    print("kept" if kept else "BROKEN")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
