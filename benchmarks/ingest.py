"""Ingest of a Megatron-LM log, text to store, beside mtail that only keeps gauges: CPU seconds on one file.

    python benchmarks/ingest.py [--lines 1000000]

Target: at least 5 times faster than mtail with the same iteration pattern and event patterns.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.parse_speed import lines

TRACKER = (sys.executable, "-c", "from tracker.cli import main; main()")

CONFIG = """
[run]
name = "bench"
[model]
active_params = 13e9
sequence_length = 4096
[hardware]
gpu = "h100-sxm"
gpus = 1024
[[source]]
collector = "megatron"
path = "train.log"
"""


def cpu_s(command: list[str], cwd: Path) -> float:
    """Run a command to its end; return the CPU seconds of it and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Make the log, read it by both, print the ratio."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--lines", type=int, default=1_000_000)
    count = options.parse_args().lines
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        log = home / "train.log"
        with log.open("w", encoding="ascii") as file:
            file.writelines(f"{line}\n" for line in lines(count, "usual"))
        (home / "run.toml").write_text(CONFIG, encoding="utf-8")
        size = log.stat().st_size / 1e6
        # The quick check is part of neither: it reads the page cache warm and the byte code in.
        idle = cpu_s([*TRACKER, "--version"], home)
        ours = min(_ours(home) for _ in range(3))
        print(f"{count:,} lines, {size:.0f} MB")
        print(
            f"tracker ingest   {ours:6.2f} CPU s  {size / ours:6.0f} MB/s  (start-up {idle:.2f} s included)"
        )
        mtail = shutil.which("mtail")
        if mtail is None:
            print("mtail is not installed (Debian package mtail): no ratio")
            return
        program = Path(__file__).with_name("iterations.mtail")
        theirs = min(
            cpu_s([mtail, "-one_shot", "-logs", str(log), "-progs", str(program)], home) for _ in range(2)
        )
        print(f"mtail            {theirs:6.2f} CPU s  {size / theirs:6.0f} MB/s")
        print(f"ratio            {theirs / ours:6.1f}  (target: at least 5)")


def _ours(home: Path) -> float:
    for name in os.listdir(home):
        if name.startswith("tracker.db"):
            (home / name).unlink()
    return cpu_s([*TRACKER, "ingest", "--config", "run.toml"], home)


if __name__ == "__main__":
    main()
