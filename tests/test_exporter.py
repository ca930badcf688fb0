"""The metrics page: every family, any run name, nothing for what is unknown."""

from __future__ import annotations

import datetime as dt
import re
import statistics
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tracker.core.forecast import Forecast, Quantiles
from tracker.core.hardware import peak_given
from tracker.core.interruptions import Interruption
from tracker.core.ledger import BUCKETS, AttemptLine
from tracker.core.plan import Plan
from tracker.core.plan_parts import PlanFailures
from tracker.core.settings import Reservation, Settings
from tracker.core.snapshot import STATES, Mfu, Mtbf, PerTrillion, Reported, Snapshot, Steps, Tokens
from tracker.exporter import Exporter
from tracker.families import FAMILIES, LABEL_CHARS, MOST_REASONS, UNIT_EXCEPTIONS, Page
from tracker.vitals import ChannelVitals, JobVitals, ReportVitals, SourceVitals, Vitals

GOLDEN = Path(__file__).parent / "golden" / "metrics.prom"
H_US = 3_600_000_000
NOON_US = 1_767_614_400_000_000  # 2026-01-05T12:00:00Z
CONTRACT = (
    "training_allocated_gpu_seconds_total",
    "training_processed_tokens_total",
    "training_attempts_total",
    "training_gpu_seconds{bucket}",
    "training_net_tokens",
    "training_planned_tokens",
    "training_mfu_ratio{scope,reference}",
    "training_goodput_ratio",
    "training_gpu_hours_per_trillion_tokens{kind}",
    "training_interruptions{kind,cause}",
    "training_mtbf_seconds{scope}",
    "training_step",
    "training_step_time_seconds",
    "training_forecast_finish_timestamp_seconds{p}",
    "training_forecast_gpu_hours{p}",
    "training_plan_finish_timestamp_seconds",
    "training_last_reading_timestamp_seconds",
    "training_run_state{state}",
)


def attempt(number: int = 1) -> AttemptLine:
    wall_us = dict.fromkeys(("allocated", *BUCKETS), 0) | {
        "allocated": H_US, "productive": H_US * 3 // 4, "checkpoint": H_US // 20, "startup": H_US // 5,
    }  # fmt: skip
    return AttemptLine(
        number=number,
        job_id=str(number),
        start_us=NOON_US - H_US,
        end_us=None,
        start_from="log",
        gpus=8,
        world=8,
        resumed_from=0,
        last_step=100,
        end_kind=None,
        cause=None,
        running=True,
        stalled=False,
        estimated=False,
        steps_net=100,
        steps_lost=0,
        tokens_net=1_000,
        tokens_processed=1_000,
        work_us=H_US * 3 // 4,
        flop=1.0,
        gpu_us={bucket: 8 * us for bucket, us in wall_us.items()},
        wall_us=wall_us,
        first_us=None,
        progress_us=NOON_US - 20_000_000,
        reported_flop_per_s=None,
        reported_hardware=False,
        saves=6,
        stall_limit_us=435_000_000,
    )


def stop(number: int, kind: str, cause: str) -> Interruption:
    return Interruption(
        number=number, attempt=min(number, 2), at_us=NOON_US, kind=kind, cause=cause,
        evidence="", confidence=1.0,
        detect_s=None, restart_s=None, redo_steps=0, redo_gpu_hours=None, manual=None,
    )  # fmt: skip


PLAN = Plan(
    active_params=13e9,
    tokens=4e12,
    peak=peak_given(989.0),
    gpus=1024,
    start=dt.datetime(2026, 1, 5, 6, tzinfo=dt.UTC),
    deadline=dt.datetime(2026, 1, 18, tzinfo=dt.UTC),
    budget=700_000.0,
    gpu_hour_price=2.0,
    gpu_power_w=700.0,
    failures=PlanFailures(
        per_day=8.0, restart_min=10.0, checkpoint_interval_min=30.0, checkpoint_stall_min=0.5
    ),
)
FULL = Snapshot(
    run="llama-13b",
    as_of_us=NOON_US,
    state="running",
    attempts=(attempt(1), attempt(2)),
    interruptions=(
        stop(1, "unexpected", "gpu_hbm"),
        stop(2, "unexpected", "gpu_hbm"),
        stop(3, "planned", "time_limit"),
    ),
    gpu_us={"allocated": 45 * H_US, **{name: (i + 1) * H_US for i, name in enumerate(BUCKETS)}},
    goodput_ratio=0.875,
    steps=Steps(net=90, processed=110, last=100, at_risk=10),
    tokens=Tokens(net=900_000, seen=900_000, processed=1_100_000, inherited=0, planned=4_000_000_000_000),
    mfu=Mfu(
        productive_ratio=0.4, allocated_ratio=0.35, recent_ratio=0.41, six_n_productive_ratio=0.38,
        peak_flop_per_s=989e12, peak_source="a data sheet", flop_per_token=8.1e10, flop_method="6N*(1+a)",
    ),
    per_trillion=PerTrillion(realised=33_000.0, recent=32_000.0, plan=31_000.0),
    mtbf=Mtbf(job_hours=2.0, device_hours=16.0),
    reported=Reported(flop_per_s=4e14, hardware=True),
    step_time_s=14.5,
    last_reading_us=NOON_US - 30_000_000,
    plan_finish_us=NOON_US + 24 * H_US,
    forecast=Forecast(
        as_of_us=NOON_US - H_US,
        basis="measured",
        finish_us=Quantiles(p10=NOON_US + 20.0 * H_US, p50=NOON_US + 25.0 * H_US, p90=NOON_US + 40.0 * H_US),
        gpu_hours=Quantiles(p10=300.0, p50=330.0, p90=400.0),
        days_behind_plan=0.5,
        cost=Quantiles(p10=600.0, p50=660.0, p90=800.0),
        energy_mwh=Quantiles(p10=0.21, p50=0.231, p90=0.28),
        by_deadline_ratio=0.3,
        by_reservation_end_ratio=0.9,
        within_budget_ratio=0.75,
    ),
    settings=Settings(run="llama-13b", plan=PLAN, reservation=Reservation(end_us=NOON_US + 90 * H_US)),
    operating_point={"gpu": "h100-sxm", "gpus": "8", "precision": "bf16", "framework": "Megatron-LM"},
)  # fmt: skip

VITALS = Vitals(
    ready=True,
    read_lines=1_000,
    read_bytes=150_000,
    stored_readings=50,
    rotations=1,
    skipped_bytes={"nul": 512},
    rejects={"step is negative or too large": 2},
    unreadable_files={"Permission denied": 1},
    sources=(
        SourceVitals(
            number=1, collector="auto", shown="logs/*.log", up=True, files=3, lag_bytes=17, rejected_lines=2
        ),
        SourceVitals(number=2, collector="slurm", shown="sacct.txt"),
    ),
    jobs=(JobVitals(name="checkpoint", last_success_us=NOON_US, last_duration_s=0.01, failures=1),),
    last_pass_us=NOON_US,
    snapshot_s=0.003,
    store_up=True,
    store_bytes=88_000_000,
    wal_bytes=4_000_000,
    disk_free_bytes=200_000_000_000,
    disk_size_bytes=1_000_000_000_000,
    channels=(
        ChannelVitals(
            channel="mail", queued=2, sent=40, dead=1, oldest_us=NOON_US, last_sent_us=NOON_US - H_US,
            failures={"busy": 3, "recipient": 1},
        ),
        ChannelVitals(channel="webhook oncall"),
    ),
    reports=(
        ReportVitals(schedule="daily", last_made_us=NOON_US - H_US, next_us=NOON_US + 19 * H_US),
        ReportVitals(schedule="weekly", failed_tries=2, next_us=NOON_US + 19 * H_US),
    ),
)  # fmt: skip


def exporter(*pages: Page) -> Exporter:
    made = Exporter(version="1.2.3")
    for page in pages:
        made.publish(page)
    return made


def samples(page: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for family in parse_text(page.decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, "a label set stands twice"
            found[key] = sample.value
    return found


def ours(page: bytes) -> str:
    """The page without what differs between machines."""
    lines = page.decode().splitlines(keepends=True)
    return "".join(
        line for line in lines if not re.match(r"(# (HELP|TYPE) )?(process_|tracker_build_info)", line)
    )


def value(made: Exporter, name: str, **labels: str) -> float:
    return samples(made.render()[0])[name, tuple(sorted(labels.items()))]


def test_the_page_is_the_golden_page() -> None:
    """Names, labels, units and help change only on purpose: delete the file to write it anew."""
    page = ours(exporter(Page("llama-13b", FULL, VITALS)).render()[0])
    if not GOLDEN.exists():
        GOLDEN.write_text(page)
        pytest.fail(f"{GOLDEN} was written anew: read it, then commit it")

    assert page == GOLDEN.read_text()


def test_every_family_of_the_contract_is_there() -> None:
    """With the labels that dashboards ask for."""
    known = {family.name: ("run", *family.labels) for family in FAMILIES}
    for word in CONTRACT:
        name, _, labels = word.rstrip("}").partition("{")

        assert known[name] == ("run", *(labels.split(",") if labels else ()))
    assert "training_operating_point_info" in known


def test_every_family_has_help_and_type_before_there_is_a_run() -> None:
    """So that a dashboard can be built on the first scrape."""
    page = exporter().render()[0].decode()
    for family in FAMILIES:
        assert f"# HELP {family.name} " in page
        assert f"# TYPE {family.name} {'gauge' if family.kind == 'info' else family.kind}\n" in page
    assert "training_" not in re.sub(r"#.*\n", "", page)


def test_what_is_unknown_has_no_sample() -> None:
    """A bare run shows its state and its counts, and neither zero nor NaN for the rest."""
    names = {
        name
        for name, _ in samples(
            exporter(Page("r", Snapshot(run="r", as_of_us=0, state="waiting"))).render()[0]
        )
    }

    shown = {name for name in names if name.startswith("training_")}
    assert shown == {
        "training_attempts_total", "training_running_attempts", "training_run_state", "training_net_steps",
        "training_processed_steps", "training_convention_info", "training_recent_interruptions",
    }  # fmt: skip


def test_buckets_sum_to_the_allocation() -> None:
    """sum() over the bucket label is meaningful."""
    found = samples(exporter(Page("llama-13b", FULL)).render()[0])
    parts = sum(v for (name, _), v in found.items() if name == "training_gpu_seconds")

    assert parts == found["training_allocated_gpu_seconds_total", (("run", "llama-13b"),)] == 45 * 3600


def test_interruptions_are_counted_by_kind_and_cause() -> None:
    """Two stops of one cause are one series of value 2."""
    made = exporter(Page("llama-13b", FULL))

    assert value(made, "training_interruptions", run="llama-13b", kind="unexpected", cause="gpu_hbm") == 2
    assert value(made, "training_interruptions", run="llama-13b", kind="planned", cause="time_limit") == 1


def test_one_state_is_1_and_the_others_0() -> None:
    """The usual way, so that `== 1` finds it."""
    made = exporter(Page("llama-13b", FULL))

    assert [s for s in STATES if value(made, "training_run_state", run="llama-13b", state=s)] == ["running"]


def test_no_created_series_and_no_time_stamps() -> None:
    """Each sample line is a name, labels and one number."""
    for accept in ("", "application/openmetrics-text; version=1.0.0"):
        page = exporter(Page("llama-13b", FULL, VITALS)).render(accept)[0].decode()
        lines = [line for line in page.splitlines() if not line.startswith("#")]

        assert lines
        assert not [line for line in lines if "_created" in line]
        assert all(re.fullmatch(r'[a-z_]+(\{(?:[^"]|"(?:\\.|[^"\\])*")*\})? \S+', line) for line in lines)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        pytest.param("", "text/plain; version=0.0.4", id="nobody-asked"),
        pytest.param("text/html,*/*", "text/plain; version=0.0.4", id="a-browser"),
        pytest.param("application/openmetrics-text", "application/openmetrics-text", id="openmetrics"),
        pytest.param(
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
            "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text; version=1.0.0",
            id="as-prometheus-asks",
        ),
        pytest.param("application/openmetrics-text;version=x.y", "text/plain; version=0.0.4", id="nonsense"),
    ],
)
def test_the_format_follows_the_accept_header(accept: str, content_type: str) -> None:
    """What cannot be understood gets the plain format."""
    body, found = exporter(Page("llama-13b", FULL, VITALS)).render(accept)

    assert found.startswith(content_type)
    assert body.endswith(b"# EOF\n") == ("openmetrics" in found)


def test_openmetrics_is_valid_openmetrics() -> None:
    """The reference parser takes it, and finds the same families."""
    body, _ = exporter(Page("llama-13b", FULL, VITALS)).render("application/openmetrics-text; version=1.0.0")
    names = {family.name for family in parse_openmetrics(body.decode())}

    assert {f.name.removesuffix("_total").removesuffix("_info") for f in FAMILIES} <= names


HOSTILE = ['a"b', "a\\b", "a\nb", "naïve – 訓練 🚀", "{}", "'", "a\0b", "\udcff", "", " ", "x" * 1000]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_any_run_name_is_a_label(name: str) -> None:
    """Quotes, newlines, any script: the parser reads back what was meant."""
    snapshot = replace(FULL, run=name, operating_point={"gpu": name})
    page = exporter(Page(name, snapshot, replace(VITALS, rejects={name: 1}))).render()[0]
    runs = {dict(labels).get("run") for key, labels in samples(page) if key.startswith("training_")}

    assert runs == {name.encode("utf-8", "replace").decode()}


@given(st.dictionaries(st.text(max_size=300), st.integers(1, 10**9), max_size=80))
def test_labels_from_outside_are_bounded(rejects: dict[str, int]) -> None:
    """However many reasons and however long: few series, short values, and nothing is lost from the sum."""
    page = exporter(Page("r", None, Vitals(rejects=rejects))).render()[0]
    found = {k: v for k, v in samples(page).items() if k[0] == "tracker_rejected_lines_total"}

    assert len(found) <= MOST_REASONS + 1
    assert sum(found.values()) == sum(rejects.values())
    assert all(len(dict(labels)["reason"]) <= LABEL_CHARS for _, labels in found)


def test_several_runs_stand_side_by_side_and_one_can_go() -> None:
    """A run that is forgotten takes all its series with it."""
    made = exporter(Page("a", replace(FULL, run="a")), Page("b", replace(FULL, run="b")))
    assert value(made, "training_step", run="a") == value(made, "training_step", run="b") == 100

    made.forget("a")

    assert {dict(labels).get("run") for _, labels in samples(made.render()[0])} == {"b", None}


def test_promtool_has_nothing_to_say_but_the_recorded_exception(promtool: str) -> None:
    """The two names in GPU-hours keep the plan's unit; a new complaint fails."""
    page = exporter(Page('q"uote', replace(FULL, run='q"uote'), VITALS)).render()[0]
    done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, check=False)
    said = {line for line in (done.stdout + done.stderr).decode().splitlines() if line}

    assert said == {f'{name} use base unit "seconds" instead of "hours"' for name in UNIT_EXCEPTIONS}


def test_a_scrape_is_cheap() -> None:
    """One run with everything known: far below the 5 ms that are promised (see benchmarks/)."""
    made = exporter(Page("llama-13b", FULL, VITALS))
    took = []
    for _ in range(20):
        began = time.perf_counter()
        made.render()
        took.append(time.perf_counter() - began)

    assert statistics.median(took) < 0.05
