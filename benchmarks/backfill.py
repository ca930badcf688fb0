"""How fast a run's past gets into a time-series database: the store read, the samples made, encoded, sent.

    python -m benchmarks backfill [--readings 1000000] [--every auto]

A run of a hundred attempts is ingested; then `tracker backfill` runs in a child against a real
VictoriaMetrics on loopback, and `tracker export --openmetrics` with promtool makes Prometheus blocks of the
same samples. Wall time throughout, everything included but making the store and the wait for what somebody
else may have sent (`--settle`: the database is new). Promised: above 200,000 samples/s into VictoriaMetrics.
promtool reads its input once for each block, so it is given blocks of 31 days. Exit status 1 where the
promise is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.forecast_cost import CONFIG, write
from tests.tsdb_help import victoria
from tracker import app

PROMISED = 200_000
TRACKER = (sys.executable, "-P", "-c", "from tracker.cli import main\nmain()")


def child(*words: str) -> tuple[float, float, bytes]:
    """Run a command; return its wall and CPU seconds and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    wall = time.monotonic() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def main() -> int:
    """Make the store, fill both databases, tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--readings", type=int, default=1_000_000)
    parser.add_argument("--every", default="auto")
    given = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "run.toml").write_text(CONFIG)
        write(folder, given.readings)
        app.ingest_once(app.load_config(folder / "run.toml"), final=True)
        common = ("--config", str(folder / "run.toml"), "--every", given.every)
        with victoria(folder / "vm") as url:
            wall, cpu, said = child(*TRACKER, "backfill", *common, "--url", url, "--settle", "0", "--json")
        report = json.loads(said)
        samples = report["samples"]["sent"]
        rate = samples / wall
        print(f"{given.readings:,} readings, a grid of {report['every_s']} s: {samples:,} samples")
        print(f"into VictoriaMetrics: {wall:.1f} s, {rate:,.0f} samples/s ({cpu:.1f} s of CPU, ours)")
        if shutil.which("promtool"):
            text = folder / "run.om"
            first, _, _ = child(*TRACKER, "export", *common, "--openmetrics", str(text))
            second, _, _ = child(
                "promtool", "tsdb", "create-blocks-from", "--max-block-duration=744h", "openmetrics",
                str(text), str(folder / "blocks"),
            )  # fmt: skip
            print(
                f"into Prometheus blocks: export {first:.1f} s, promtool {second:.1f} s, "
                f"{samples / (first + second):,.0f} samples/s ({text.stat().st_size / 1e6:,.0f} MB of text)"
            )
    kept = rate > PROMISED
    print(f"promised: above {PROMISED:,} samples/s: " + ("kept" if kept else "BROKEN"))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
