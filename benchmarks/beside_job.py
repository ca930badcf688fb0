"""What the sidecar takes from a training job on its node: processor, memory, system calls, page cache.

    python benchmarks/beside_job.py [--seconds 20]

A "job" on every core counts its rounds beside a sidecar that runs and one that is frozen, in turn, while a
writer fills the log. What was not read while it was frozen is read after: the loss is told too high.
System calls are counted by strace over a time of their own: it slows what it counts.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from sidecar import CHATTER, CONFIG, Sidecar, line, said

RATES = (1_000, 50_000)
LOSES_MOST = {1_000: 1.0, 50_000: 15.0}
"""Per cent of the job's rounds, on two cores; what the processor limit below comes to there."""
PAIRS = 11
CACHE_MOST_MIB = 16
WORKS_MOST = {1_000: 1.0, 50_000: 30.0}
"""Per cent of a core."""
CALLS_MOST = {1_000: 100.0, 50_000: 600.0}
"""File system calls a second."""
WRITER = """
import sys, time
sys.path.insert(0, {here!r})
from sidecar import CHATTER, line
rate, number, step = {rate}, 0, 0
began = time.monotonic()
with open("train.log", "w") as log:
    while True:
        for _ in range(max(rate // 20, 1)):
            number += 1
            if number % 20 == 0:
                step += 1
                log.write(line(step, time.time()))
            else:
                log.write(CHATTER.format(number))
        log.flush()
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
"""
JOB = """
import time
ends = time.monotonic() + {seconds}
rounds = 0
while time.monotonic() < ends:
    for number in range(20_000):
        pass
    rounds += 1
print(rounds)
"""


@contextmanager
def process(code: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen([sys.executable, "-c", code], cwd=folder)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def job_rounds(seconds: float) -> int:
    """Return the rounds that a job on every core gets done."""
    jobs = [
        subprocess.Popen([sys.executable, "-c", JOB.format(seconds=seconds)], stdout=subprocess.PIPE)
        for _ in range(os.cpu_count() or 1)
    ]
    return sum(int(job.communicate()[0]) for job in jobs)


def file_calls_per_s(pid: int, seconds: float) -> float:
    """Return the file system calls that a process and its threads make a second."""
    done = subprocess.run(
        [
            "timeout",
            "--signal=INT",
            str(seconds),
            "strace",
            "-f",
            "-c",
            "-e",
            "trace=file,desc",
            "-p",
            str(pid),
        ],
        capture_output=True,
        text=True,
    )
    total = re.search(r"^ *100\.00 +[\d.]+ +(?:\d+ +)?(\d+) .*total$", done.stderr, re.MULTILINE)
    if total is None:
        raise SystemExit(f"strace said nothing that can be read: {done.stderr[-300:]}")
    return int(total[1]) / seconds


def beside(rate: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "run.toml").write_text(CONFIG)
        with process(WRITER.format(here=str(Path(__file__).parent), rate=rate), folder):
            sidecar = Sidecar(folder)
            sidecar.until('tracker_ready{run="bench"} 1.0')
            time.sleep(3)
            losses = []
            for pair in range(PAIRS):
                rounds = {}
                for frozen in (True, False) if pair % 2 else (False, True):
                    os.kill(sidecar.process.pid, signal.SIGSTOP if frozen else signal.SIGCONT)
                    rounds[frozen] = job_rounds(seconds / PAIRS)
                os.kill(sidecar.process.pid, signal.SIGCONT)
                losses.append(100 * (1 - rounds[False] / rounds[True]))
            about = f"{rate:,} lines/s: what a job on every core loses"
            said(about, statistics.median(losses), "%", LOSES_MOST[rate])
            low, _, high = statistics.quantiles(losses, n=4)
            print(
                f"    half of {PAIRS} pairs of {seconds / PAIRS:.1f} s lie between {low:.1f} and {high:.1f} %"
            )
            time.sleep(3)
            before, began = sidecar.cpu_s(), time.monotonic()
            time.sleep(seconds)
            share = 100 * (sidecar.cpu_s() - before) / (time.monotonic() - began)
            said(f"{rate:,} lines/s: processor", share, "%", WORKS_MOST[rate])
            said(f"{rate:,} lines/s: memory, Pss", sidecar.kb("Pss") / 1e3, "MB", 40)
            calls = file_calls_per_s(sidecar.process.pid, seconds / 2)
            said(f"{rate:,} lines/s: calls on files", calls, "/s", CALLS_MOST[rate])
            sidecar.stop()


def old_log(megabytes: int) -> None:
    """What reading a log that nobody has read for long leaves in the page cache."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "run.toml").write_text(CONFIG)
        path = folder / "train.log"
        with path.open("w") as log:
            while log.tell() < megabytes << 20:
                log.writelines(CHATTER.format(number) for number in range(10_000))
            log.write(line(1, time.time()))
            log.flush()
            os.fsync(log.fileno())
            os.posix_fadvise(log.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        sidecar = Sidecar(folder)
        sidecar.until('tracker_ready{run="bench"} 1.0')
        cached = subprocess.run(
            ["fincore", "--bytes", "--noheadings", "--output", "RES", str(path)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        said(
            f"an old log of {megabytes} MiB: left in the page cache",
            int(cached.stdout) / 2**20,
            "MiB",
            CACHE_MOST_MIB,
        )
        sidecar.stop()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=20)
    asked = options.parse_args()
    for rate in RATES:
        beside(rate, asked.seconds)
    old_log(256)


if __name__ == "__main__":
    main()
