"""Every speed that we promise, one after another, each beside its peer or its limit.

    python -m benchmarks [NAME ...]

Run it on an idle machine. A benchmark that needs a peer which is not installed says so and prints ours alone.
"""

from __future__ import annotations

import runpy
import sys

ALL = {
    "parse_speed": "parsing a Megatron-LM log, MB/s on one core",
    "ingest": "ingest, text to store, beside mtail",
    "reading_cost": "one more reading after N readings",
    "store_size": "bytes a reading, and reading them back",
    "scrape": "a scrape of 1, 100, 1,000 runs; fifty scrapers beside idle TLS clients",
    "sidecar": "the sidecar: start, scrape, memory, CPU",
    "beside_job": "what the sidecar takes from a job that keeps every core busy",
    "readers": "how long fifty readers wait beside a sidecar that writes",
    "follow_files": "following files",
    "backfill": "a run's past into VictoriaMetrics, beside promtool",
    "forecast_cost": "a forecast on a million readings",
    "report_cost": "a daily report of a million readings, PDF included",
    "web_page": "the status page of 500 attempts",
}


def main() -> None:
    """Run the named benchmarks, or all."""
    names = sys.argv[1:] or list(ALL)
    unknown = [name for name in names if name not in ALL]
    if unknown:
        sys.exit(f"no benchmark {', '.join(unknown)}; known: {', '.join(ALL)}")
    for name in names:
        print(f"\n== {name}: {ALL[name]}", flush=True)
        sys.argv = [name]
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")


if __name__ == "__main__":
    main()
