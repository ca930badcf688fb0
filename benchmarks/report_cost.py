"""What a daily report takes: time and memory of `tracker report`, PDF included.

    python benchmarks/report_cost.py [--readings 1000000]

Promised: below 5 s of processor time and 300 MB, for a run of one hour and for one of 54 days with 466
interruptions and a million readings. The stores are made first (minutes); then the command runs with its
child that prints, whose CPU time and memory the kernel tells. Exit status 1 where a promise is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tracker import app

T0 = 1_767_225_600
DAYS, STOPS = 54, 466
CONFIG = """\
[run]
name = "bench"
[model]
active_params = 13e9
sequence_length = 8192
[hardware]
gpu = "h100-sxm"
gpus = 1024
[plan]
tokens = 8e12
mfu = 0.42
gpu_hour_price = 2.0
[[source]]
collector = "jsonl"
path = "*.jsonl"
"""


def write(folder: Path, *, readings: int, seconds: float, stops: int) -> int:
    """Write a run of that length that was stopped so often; return its last second."""
    each = readings // (stops + 1)
    step_s = max(1.0, seconds / (stops + 1) - 900) / each
    at, step = float(T0), 0
    for number in range(stops + 1):
        rows: list[dict[str, object]] = [
            {
                "kind": "attempt",
                "start": _iso(at),
                "gpus": 1024,
                "resumed_from": step,
                "global_batch_size": 1024,
            }
        ]
        at += 300
        for n in range(each):
            at, step = at + step_s, step + 1
            rows.append({
                "at": _iso(at), "step": step, "samples": 1024 * step,
                "step_time_ms": 1000 * step_s * (0.99 + n * 7919 % 97 / 4850),
            })  # fmt: skip
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"train-{number:03}.jsonl").write_text(text)
        step -= min(each // 4, 50) if number < stops else 0
        at += 600 if number < stops else 0
    return round(at)


def _iso(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def measured(folder: Path, last: int) -> tuple[float, float, float]:
    """Return seconds of CPU, of the wall clock, and peak MB of the larger process; best of three."""
    command = [
        sys.executable, "-c", "from tracker.cli import main; main()", "report", "--config",
        str(folder / "run.toml"), "--as-of", _iso(last), "--out", str(folder / "report.pdf"),
    ]  # fmt: skip
    best_s, best_wall_s, most_kb = float("inf"), float("inf"), 0
    for _ in range(3):
        begun = time.monotonic()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit("tracker report failed")
        best_s = min(best_s, usage.ru_utime + usage.ru_stime)
        best_wall_s = min(best_wall_s, time.monotonic() - begun)
        most_kb = max(most_kb, usage.ru_maxrss)
    return best_s, best_wall_s, most_kb / 1024


def main() -> int:
    """Make the stores, report, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readings", type=int, default=1_000_000)
    given = parser.parse_args()
    kept = True
    for what, readings, seconds, stops in (
        ("one hour", 240, 3600.0, 0),
        (f"{DAYS} days, {STOPS} interruptions", given.readings, DAYS * 86_400.0, STOPS),
    ):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "run.toml").write_text(CONFIG)
            last = write(folder, readings=readings, seconds=seconds, stops=stops)
            app.ingest_once(app.load_config(folder / "run.toml"), final=True)
            cpu_s, wall_s, peak = measured(folder, last)
            kilobytes = (folder / "report.pdf").stat().st_size / 1000
            print(
                f"{what}, {readings:,} readings: {cpu_s:.2f} s of CPU, {wall_s:.2f} s of wall clock, "
                f"peak {peak:.0f} MB of a process, PDF of {kilobytes:.0f} kB",
                flush=True,
            )
            kept = kept and cpu_s < 5.0 and peak < 300
    print("promised: below 5 s and 300 MB: " + ("kept" if kept else "BROKEN"))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
