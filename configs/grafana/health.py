"""The dashboard of the trackers themselves: do they read, store, forecast and report?

Pure.
"""

from __future__ import annotations

from typing import Final

from parts import Board, Panel, Query, words

UP: Final = words({"0": ("down", "red"), "1": ("up", "green")})
GOOD: Final = ((None, "red"), (1, "green"))

NOW: Final = (
    Panel(
        kind="stat",
        title="Scraped",
        unit="short",
        wide=4,
        tall=4,
        steps=GOOD,
        mappings=(UP,),
        says="Whether Prometheus can scrape it.",
        queries=(Query(expr="up{@host}", legend="{{instance}}", now=True),),
    ),
    Panel(
        kind="stat",
        title="Ready",
        unit="short",
        wide=4,
        tall=4,
        steps=GOOD,
        mappings=(words({"0": ("not yet", "orange"), "1": ("ready", "green")}),),
        says="Whether all sources were read to their end and a forecast is there. /readyz says why not.",
        queries=(Query(expr="tracker_ready{@}", legend="{{run}}", now=True),),
    ),
    Panel(
        kind="stat",
        title="Store",
        unit="short",
        wide=4,
        tall=4,
        steps=GOOD,
        mappings=(UP,),
        says="Whether the last use of the store succeeded.",
        queries=(Query(expr="tracker_store_up{@}", legend="{{run}}", now=True),),
    ),
    Panel(
        kind="stat",
        title="Last look at the logs",
        unit="s",
        wide=4,
        tall=4,
        steps=((None, "green"), (60, "orange"), (300, "red")),
        says="How long ago the sources were last looked at and stored.",
        queries=(Query(expr="time() - tracker_last_pass_timestamp_seconds{@}", legend="{{run}}", now=True),),
    ),
    Panel(
        kind="stat",
        title="Age of the forecast",
        unit="s",
        wide=4,
        tall=4,
        steps=((None, "green"), (3600, "orange"), (7200, "red")),
        says="At the moment of the numbers. It is made anew every 15 minutes, or half a minute for each run "
        "of its process where that is longer; of a finished run seldom.",
        queries=(
            Query(
                expr="tracker_snapshot_timestamp_seconds{@} - training_forecast_timestamp_seconds{@}\n"
                'unless on (job, instance, run) training_run_state{@, state="finished"} == 1',
                legend="{{run}}",
                now=True,
            ),
        ),
    ),
    Panel(
        kind="stat",
        title="Version",
        unit="short",
        wide=4,
        tall=4,
        named=True,
        says="Of the tracker, with its Python.",
        queries=(
            Query(expr="tracker_build_info{@host}", legend="{{version}} (Python {{python}})", now=True),
        ),
    ),
)
READING: Final = (
    Panel(
        kind="states",
        title="Sources",
        unit="short",
        wide=8,
        tall=8,
        mappings=(UP,),
        steps=GOOD,
        says="Whether the last look at each [[source]] of the config succeeded.",
        queries=(Query(expr="tracker_source_up{@}", legend="{{run}}: source {{source}}"),),
    ),
    Panel(
        kind="lines",
        title="Not yet read",
        unit="bytes",
        wide=8,
        tall=8,
        low=0,
        says="Bytes that are there and not yet read. A last line without its end counts.",
        queries=(Query(expr="tracker_source_lag_bytes{@}", legend="{{run}}: source {{source}}"),),
    ),
    Panel(
        kind="lines",
        title="Lines read",
        unit="cps",
        wide=8,
        tall=8,
        low=0,
        says="Lines of log a second.",
        queries=(
            Query(
                expr="sum by (job, instance, run) (rate(tracker_read_lines_total{@}[$__rate_interval]))",
                legend="{{run}}",
            ),
        ),
    ),
    Panel(
        kind="lines",
        title="Bytes read",
        unit="Bps",
        wide=8,
        tall=8,
        low=0,
        says="Bytes a second, after decompression.",
        queries=(
            Query(
                expr="sum by (job, instance, run) (rate(tracker_read_bytes_total{@}[$__rate_interval]))",
                legend="{{run}}",
            ),
        ),
    ),
    Panel(
        kind="lines",
        title="Lines rejected",
        unit="cps",
        wide=8,
        tall=8,
        low=0,
        says="Lines a second that looked like a known format and could not be used, by reason. `tracker "
        "check` shows some of them.",
        queries=(
            Query(
                expr="sum by (run, reason) (rate(tracker_rejected_lines_total{@}[$__rate_interval]))",
                legend="{{run}}: {{reason}}",
            ),
        ),
    ),
    Panel(
        kind="lines",
        title="Files",
        unit="short",
        wide=8,
        tall=8,
        low=0,
        says="Files that the sources mean now, and those that no collector reads.",
        queries=(
            Query(expr="sum by (run) (tracker_source_files{@})", legend="{{run}}: matched"),
            Query(expr="tracker_unrecognised_files{@}", legend="{{run}}: not recognised"),
        ),
    ),
)
STORING: Final = (
    Panel(
        kind="lines",
        title="Store",
        unit="bytes",
        wide=8,
        tall=8,
        low=0,
        says="Size of the store and of its write-ahead log, which a periodic job keeps short.",
        queries=(
            Query(expr="tracker_store_bytes{@}", legend="{{run}}: store"),
            Query(expr="tracker_wal_bytes{@}", legend="{{run}}: write-ahead log"),
        ),
    ),
    Panel(
        kind="lines",
        title="Free on the store's disk",
        unit="percentunit",
        wide=8,
        tall=8,
        low=0,
        high=1,
        says="For the tracker's own user. Alerts come a day before it is full, and at a hundredth.",
        queries=(Query(expr="tracker_disk_free_bytes{@} / tracker_disk_size_bytes{@}", legend="{{run}}"),),
    ),
    Panel(
        kind="lines",
        title="Store errors",
        unit="cps",
        wide=8,
        tall=8,
        low=0,
        says="Uses of the store that failed, a second. They are tried again.",
        queries=(
            Query(
                expr="sum by (run) (rate(tracker_store_errors_total{@}[$__rate_interval]))", legend="{{run}}"
            ),
        ),
    ),
)
WORKING: Final = (
    Panel(
        kind="table",
        title="Periodic jobs",
        unit="short",
        wide=12,
        tall=8,
        says="How long ago each job last succeeded, how long it took, and how often it failed in the last "
        "day.",
        queries=(
            Query(
                expr="sum by (run, job_name) (time() - tracker_job_last_success_timestamp_seconds{@})",
                now=True,
                rows=True,
            ),
            Query(expr="sum by (run, job_name) (tracker_job_duration_seconds{@})", now=True, rows=True),
            Query(
                expr="sum by (run, job_name) (increase(tracker_job_failures_total{@}[1d]))",
                now=True,
                rows=True,
            ),
        ),
        columns={
            "run": ("run", ""),
            "job_name": ("job", ""),
            "Value #A": ("last success, ago", "s"),
            "Value #B": ("took", "s"),
            "Value #C": ("failures in a day", "short"),
        },
    ),
    Panel(
        kind="lines",
        title="Time of a snapshot",
        unit="s",
        wide=12,
        tall=8,
        low=0,
        says="Processor time that bringing all numbers up to date last took.",
        queries=(Query(expr="tracker_snapshot_duration_seconds{@}", legend="{{run}}"),),
    ),
    Panel(
        kind="lines",
        title="Processor",
        unit="percentunit",
        wide=8,
        tall=8,
        low=0,
        says="Share of one core. It stays below 1 % at a thousand lines a second.",
        queries=(
            Query(
                expr="sum by (job, instance) (rate(process_cpu_seconds_total{@host}[$__rate_interval]))",
                legend="{{instance}}",
            ),
        ),
    ),
    Panel(
        kind="lines",
        title="Memory",
        unit="bytes",
        wide=8,
        tall=8,
        low=0,
        says="Resident memory of the sidecar. The forecast's child process is not in it.",
        queries=(Query(expr="process_resident_memory_bytes{@host}", legend="{{instance}}"),),
    ),
    Panel(
        kind="lines",
        title="Time of a scrape",
        unit="s",
        wide=8,
        tall=8,
        low=0,
        says="As Prometheus measured it.",
        queries=(Query(expr="scrape_duration_seconds{@host}", legend="{{instance}}"),),
    ),
)

REPORTING: Final = (
    Panel(
        kind="table",
        title="Reports",
        unit="short",
        wide=12,
        tall=7,
        says="When the next report of each schedule is due, and how often the present one has failed.",
        queries=(
            Query(expr="1000 * tracker_report_next_timestamp_seconds{@}", now=True, rows=True),
            Query(expr="tracker_report_failed_tries{@}", now=True, rows=True),
        ),
        hidden=("job", "instance"),
        columns={
            "run": ("run", ""),
            "schedule": ("schedule", ""),
            "Value #A": ("next", "dateTimeAsIso"),
            "Value #B": ("failed tries", "short"),
        },
    ),
    Panel(
        kind="lines",
        title="Mail and messages",
        unit="short",
        wide=12,
        tall=7,
        low=0,
        says="By what became of them, one for each recipient. `dead` was given up: somebody should look.",
        queries=(Query(expr="tracker_outbox_letters{@}", legend="{{run}}: {{channel}}, {{state}}"),),
    ),
)

BOARD: Final = Board(
    uid="tracker-health",
    title="Tracker health",
    says="The trackers themselves: do they read, store, forecast and report?",
    rows=(
        ("Now", NOW),
        ("Reading", READING),
        ("Storing", STORING),
        ("Working", WORKING),
        ("Reporting", REPORTING),
    ),
    since="now-6h",
)
