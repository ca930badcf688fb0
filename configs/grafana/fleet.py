"""The dashboard of all runs: which are late, which lose most, and to what.

Pure.
"""

from __future__ import annotations

from typing import Final

from parts import BUCKETS, STATES, Board, Panel, Query

NOW: Final = (
    Panel(
        kind="stat",
        title="Runs by state",
        unit="short",
        wide=12,
        tall=4,
        colours=STATES,
        says="How many runs are in which state.",
        queries=(Query(expr="sum by (state) (training_run_state{@})", legend="{{state}}", now=True),),
    ),
    Panel(
        kind="stat",
        title="Goodput of the last day",
        unit="percentunit",
        wide=4,
        tall=4,
        decimals=1,
        steps=((None, "red"), (0.8, "yellow"), (0.9, "green")),
        says="Of all allocated GPU time of all runs, pending time left out.",
        queries=(
            Query(
                expr='sum(run_bucket:training_gpu_seconds:delta1d{@, bucket="productive"})\n'
                "/ sum(run:training_gpu_seconds:delta1d{@})",
                legend="goodput",
                now=True,
            ),
        ),
    ),
    Panel(
        kind="stat",
        title="GPU-hours lost in a day",
        unit="short",
        wide=4,
        tall=4,
        decimals=0,
        says="Allocated in the last day and not in a model: redone, start-up, saves, tails, idle.",
        queries=(
            Query(expr="sum(run:training_lost_gpu_seconds:delta1d{@}) / 3600", legend="lost", now=True),
        ),
    ),
    Panel(
        kind="stat",
        title="Late runs",
        unit="short",
        wide=4,
        tall=4,
        steps=((None, "green"), (1, "orange")),
        says="Runs whose median finish is after their plan's.",
        queries=(
            Query(expr="count(training_forecast_delay_seconds{@} > 0) or vector(0)", legend="late", now=True),
        ),
    ),
)
RUNS: Final = (
    Panel(
        kind="table",
        title="All runs",
        unit="short",
        wide=24,
        tall=10,
        sort="later than the plan",
        says="One line a run, the latest first. Goodput is of the last day, MFU of the last hour.",
        queries=(
            Query(expr="sum by (run) (training_running_attempts{@})", now=True, rows=True),
            Query(expr="sum by (run) (run:training_goodput_ratio:delta1d{@})", now=True, rows=True),
            Query(expr='sum by (run) (training_mfu_ratio{@, scope="recent"})', now=True, rows=True),
            Query(expr="sum by (run) (training_schedule_ratio{@})", now=True, rows=True),
            Query(expr="sum by (run) (training_forecast_delay_seconds{@})", now=True, rows=True),
            Query(
                expr='1000 * sum by (run) (training_forecast_finish_timestamp_seconds{@, p="0.5"})',
                now=True,
                rows=True,
            ),
            Query(expr='sum by (run) (training_recent_interruptions{@, window="24h"})', now=True, rows=True),
            Query(expr="sum by (run) (run:training_lost_gpu_seconds:delta1d{@}) / 3600", now=True, rows=True),
        ),
        columns={
            "run": ("run", ""),
            "Value #A": ("attempts", "short"),
            "Value #B": ("goodput", "percentunit"),
            "Value #C": ("MFU", "percentunit"),
            "Value #D": ("of the tokens due", "percentunit"),
            "Value #E": ("later than the plan", "s"),
            "Value #F": ("finish, even odds", "dateTimeAsIso"),
            "Value #G": ("interruptions, 24 h", "short"),
            "Value #H": ("GPU-hours lost, 24 h", "short"),
        },
    ),
)
WORST: Final = (
    Panel(
        kind="bars",
        title="Worst goodput",
        unit="percentunit",
        wide=8,
        tall=9,
        low=0,
        high=1,
        steps=((None, "red"), (0.8, "yellow"), (0.9, "green")),
        says="The ten runs with the lowest goodput over the last day.",
        queries=(
            Query(expr="bottomk(10, run:training_goodput_ratio:delta1d{@})", legend="{{run}}", now=True),
        ),
    ),
    Panel(
        kind="bars",
        title="Most GPU-hours lost",
        unit="short",
        wide=8,
        tall=9,
        low=0,
        says="The ten runs that lost most in the last day. Work on the first one.",
        queries=(
            Query(
                expr="topk(10, run:training_lost_gpu_seconds:delta1d{@} / 3600)", legend="{{run}}", now=True
            ),
        ),
    ),
    Panel(
        kind="bars",
        title="Latest runs",
        unit="s",
        wide=8,
        tall=9,
        says="The ten runs whose median finish is furthest behind their plan's. Negative is early.",
        queries=(Query(expr="topk(10, training_forecast_delay_seconds{@})", legend="{{run}}", now=True),),
    ),
)
WHY: Final = (
    Panel(
        kind="bars",
        title="Causes of interruptions",
        unit="short",
        wide=8,
        tall=9,
        low=0,
        says="Unexpected ends of attempts of all runs, by root cause.",
        queries=(
            Query(
                expr='sort_desc(sum by (cause) (training_interruptions{@, kind="unexpected"}))',
                legend="{{cause}}",
                now=True,
            ),
        ),
    ),
    Panel(
        kind="lines",
        title="Where the GPU-hours of all runs went",
        unit="short",
        wide=8,
        tall=9,
        stacked="normal",
        colours=BUCKETS,
        says="Of the day before each moment, by bucket.",
        queries=(
            Query(
                expr="sum by (bucket) (run_bucket:training_gpu_seconds:delta1d{@}) / 3600",
                legend="{{bucket}}",
            ),
        ),
    ),
    Panel(
        kind="lines",
        title="MFU by run",
        unit="percentunit",
        wide=8,
        tall=9,
        low=0,
        says="Of the last hour of productive time, each against its own reference precision: compare a run "
        "with itself, and with another one only where model, GPU and precision are the same.",
        queries=(Query(expr='training_mfu_ratio{@, scope="recent"}', legend="{{run}} ({{reference}})"),),
    ),
)

BOARD: Final = Board(
    uid="training-fleet",
    title="Training fleet",
    says="All runs: the late ones, the ones that lose most, and why.",
    rows=(("Now", NOW), ("Runs", RUNS), ("Worst", WORST), ("Why", WHY)),
)
