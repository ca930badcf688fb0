"""What one more reading costs after N readings: read, stored, folded into the snapshot, all of it.

    python benchmarks/reading_cost.py [--most 1000000] [--peer PYTHON]

A log grows to N lines; then lines come one by one, and after each the sidecar's own round is timed: look,
parse, commit, bring the snapshot up to date. Promised is a cost at N = 1,000,000 of less than 1.5 times that
at N = 1,000. The peer is ml-goodput-measurement 0.2.3, asked for its goodput after one more step, its cloud
replaced by a list in memory; PYTHON is the interpreter of an environment that has it (or $PEER_GOODPUT).
CPU seconds throughout; medians of 40 (ours) and least of 3 (the peer).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tracker import app
from tracker.clock import SystemClock

SIZES = (1_000, 10_000, 100_000, 1_000_000)
PEER_MOST = 100_000
T0 = 1_767_225_600
CONFIG = """\
[run]
name = "bench"
[model]
active_params = 13e9
sequence_length = 8192
[hardware]
gpu = "h100-sxm"
gpus = 1024
[[source]]
collector = "jsonl"
path = "train.jsonl"
"""
PEER = r"""
import datetime as dt, sys, tempfile, time
from ml_goodput_measurement.src import goodput, goodput_utils

class Log:
    def __init__(self):
        self.rows, self.times = [], []
    def write_cloud_logging_entry(self, entry):
        self.rows.append(entry)
        self.times.append(goodput_utils.get_timestamp_from_log_entry(entry))
    def flush(self):
        pass
    def read_cloud_logging_entries(self, start_time=None, end_time=None, last_entry_info=None):
        known = last_entry_info is not None and last_entry_info[0] is not None
        first = int(last_entry_info[1]) + 1 if known else 0
        rows = self.rows[first:]
        return rows, (self.times[-1], str(len(self.rows) - 1)) if rows else (None, None)

for number in map(int, sys.argv[1:]):
    log = Log()
    recorder = goodput.GoodputRecorder("bench", "bench", True, log)
    at = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
    recorder.record_job_start_time(at)
    for step in range(number):
        at += dt.timedelta(seconds=10)
        recorder.record_step_start_time(step, at)
    calculator = goodput.GoodputCalculator("bench", "bench", log, cache_dir=tempfile.mkdtemp())
    calculator.get_job_goodput(include_badput_breakdown=True)
    least = float("inf")
    for more in range(3):
        at += dt.timedelta(seconds=10)
        recorder.record_step_start_time(number + more, at)
        begun = time.process_time()
        calculator.get_job_goodput(include_badput_breakdown=True)
        least = min(least, time.process_time() - begun)
    print(number, least, flush=True)
"""


def line(number: int) -> bytes:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(T0 + 15 * number))
    return b'{"at": "%s", "step": %d, "samples": %d, "step_time_ms": %.1f}\n' % (
        at.encode(),
        10 * (number + 1),
        10_240 * (number + 1),
        1_400 + number * 7919 % 97,
    )


def ours(folder: Path, most: int) -> Iterator[tuple[int, float, float]]:
    """Yield N, CPU seconds of one more reading, and CPU seconds from opening the store to a snapshot."""
    (folder / "run.toml").write_text(CONFIG)
    log = folder / "train.jsonl"
    log.write_bytes(b"")
    config = app.load_config(folder / "run.toml")
    clock = SystemClock()
    have = 0
    for number in (n for n in SIZES if n <= most):
        with log.open("ab") as file:
            file.writelines(line(n) for n in range(have, number))
        have = number
        with app.open_work(config, clock) as work:
            work.read_all(final=False)
            work.snapshot(as_of_us=(T0 + 15 * have) * 1_000_000)
            costs = []
            for _ in range(44):
                with log.open("ab") as file:
                    file.write(line(have))
                have += 1
                begun = time.process_time()
                work.read()
                work.snapshot(as_of_us=(T0 + 15 * have) * 1_000_000)
                costs.append(time.process_time() - begun)
        begun = time.process_time()
        with app.open_work(config, clock) as work:
            work.snapshot(as_of_us=(T0 + 15 * have) * 1_000_000)
            opened = time.process_time() - begun
        yield number, statistics.median(costs[4:]), opened


def peer(python: str, most: int) -> dict[int, float]:
    """Return the peer's CPU seconds for one more step, by N."""
    sizes = [str(n) for n in SIZES if n <= min(most, PEER_MOST)]
    done = subprocess.run([python, "-c", PEER, *sizes], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"the peer failed: {done.stderr.strip().splitlines()[-1:]}")
    return {
        int(n): float(s) for n, s in (row.split() for row in done.stdout.splitlines() if row[:1].isdigit())
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--most", type=int, default=SIZES[-1])
    parser.add_argument("--peer", metavar="PYTHON", default=os.environ.get("PEER_GOODPUT"))
    words = parser.parse_args()
    theirs = peer(words.peer, words.most) if words.peer else {}
    if not words.peer:
        print("no peer: give --peer PYTHON of an environment with ml-goodput-measurement==0.2.3")
    print(f"{'N':>10}{'ours, ms':>12}{'peer, ms':>12}{'peer / ours':>13}{'open + snapshot, ms':>22}")
    first = last = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for number, cost, opened in ours(Path(folder), words.most):
            first, last = first or cost, cost
            other = theirs.get(number)
            beside = (
                f"{other * 1e3:12.1f}{other / cost:13.1f}" if other is not None else f"{'-':>12}{'-':>13}"
            )
            print(f"{number:10,}{cost * 1e3:12.2f}{beside}{opened * 1e3:22.1f}", flush=True)
    grown = f"; the peer grew {max(theirs.values()) / theirs[SIZES[0]]:.0f} times" if len(theirs) > 1 else ""
    print(f"\nours grew {last / first:.2f} times (at most 1.5){grown}")


if __name__ == "__main__":
    main()
