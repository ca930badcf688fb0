"""Real MLPerf logs: what the records add up to is what independent scripts counted in the files.

`total` adds records up in the plainest way; it shares nothing with the core.
"""

from __future__ import annotations

import csv
import statistics
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest

from collectors import detect, mllog
from tracker.core.records import Event, Json, Kind, Reading, Record, Reject
from tracker.interfaces import Context

pytestmark = pytest.mark.shared

CISCO = "extra/v5.1_Cisco_128gpu_llama31_8b_srun_label_result_0.txt"
TIME_LIMIT = "extra/v5.1_Nebius_32xB200_lora_TIMELIMIT_after_success_result_1.txt"
WITHOUT_GPUS = ("Google", "Intel-HabanaLabs", "hsg_ngpu5120", "theia_ngpu512")
"""Logs that say nothing of their GPU count: it comes from the config."""


@dataclass
class Total:
    """What one log says, added up."""

    records: list[Record]
    settings: dict[str, Json]
    at: dict[Kind, list[int]]
    readings: list[Reading]

    def first_s(self, begin: Kind, end: Kind) -> float:
        return (self.at[end][0] - self.at[begin][0]) / 1e6

    @property
    def tokens(self) -> int | None:
        last = self.readings[-1]
        length = self.settings.get("sequence_length")
        if last.tokens is not None:
            return last.tokens
        return last.samples * length if last.samples is not None and isinstance(length, int) else None

    @property
    def eval_s(self) -> float:
        starts, ends = self.at.get(Kind.EVAL_START, []), self.at.get(Kind.EVAL_END, [])
        return sum(end - start for start, end in zip(starts, ends, strict=True)) / 1e6


@lru_cache
def total(path: Path) -> Total:
    records = list(mllog.parse(path.read_bytes(), Context()))
    settings: dict[str, Json] = {}
    at: dict[Kind, list[int]] = {}
    for record in records:
        if isinstance(record, Event):
            if record.kind is Kind.SETTING:
                settings |= record.data
            if record.at_us is not None:
                at.setdefault(record.kind, []).append(record.at_us)
    return Total(records, settings, at, [r for r in records if isinstance(r, Reading)])


def rows(shared_data: Path) -> list[dict[str, str]]:
    with (shared_data / "mlperf" / "truth.csv").open() as lines:
        return list(csv.DictReader(lines))


@pytest.fixture(scope="module", params=range(11), ids=lambda n: f"row {n + 1}")
def row(request: pytest.FixtureRequest, shared_data: Path) -> dict[str, str]:
    """One log of truth.csv."""
    found = rows(shared_data)
    assert len(found) == 11, "truth.csv has another number of rows: adapt the range"
    number: int = request.param
    return found[number]


@pytest.fixture(scope="module")
def log(row: dict[str, str], shared_data: Path) -> Total:
    """The same, read."""
    return total(shared_data / "mlperf" / row["file"])


def test_counts_are_exact(row: dict[str, str], log: Total) -> None:
    """Steps, sequences, evaluations and tokens; a log without its sequence length has no tokens."""
    last = log.readings[-1]
    assert last.step == float(row["steps"])
    assert last.samples == float(row["sequences"])
    assert log.settings["global_batch_size"] == int(row["global_batch_size"])
    assert log.tokens == (float(row["tokens"]) if row["tokens"] else None)
    assert len([r for r in log.readings if r.step_time_us is not None]) == int(row["n_step_records"])
    if float(row["eval_s"]):
        assert len(log.at[Kind.EVAL_START]) == int(row["n_evals"])


def test_times_agree_within_a_thousandth(row: dict[str, str], log: Total) -> None:
    """Start-up, training and evaluation, from the log's own clock."""
    near = pytest.approx
    assert log.first_s(Kind.LAUNCH, Kind.TRAIN_START) == near(float(row["init_s"]), rel=1e-3)
    assert log.first_s(Kind.TRAIN_START, Kind.COMPLETED) / 60 == near(float(row["ttt_min"]), rel=1e-3)
    assert log.eval_s == near(float(row["eval_s"]), rel=1e-3)
    assert log.at[Kind.TRAIN_START] == [int(row["run_start_ms"]) * 1000]
    assert log.at[Kind.COMPLETED] == [int(row["run_stop_ms"]) * 1000]
    if row["step_s_median"]:
        times = [r.step_time_us for r in log.readings if r.step_time_us is not None]
        assert statistics.median(times) / 1e6 == near(float(row["step_s_median"]), rel=1e-3)


def test_cost_agrees_within_a_thousandth(row: dict[str, str], log: Total) -> None:
    """Accelerator-hours for 1e12 tokens, with the log's GPU count where it states one."""
    stated = log.settings.get("gpus")
    if any(name in row["file"] for name in WITHOUT_GPUS):
        assert stated is None, "a name or a platform was taken for a GPU count"
        stated = int(row["accelerators"])
    assert stated == int(row["accelerators"])
    hours = int(row["accelerators"]) * log.first_s(Kind.TRAIN_START, Kind.COMPLETED) / 3600
    assert hours == pytest.approx(float(row["acc_hours"]), rel=1e-3)
    if row["acc_hours_per_Ttok"] and log.tokens:
        assert hours / (log.tokens / 1e12) == pytest.approx(float(row["acc_hours_per_Ttok"]), rel=1e-3)


def test_one_process_one_launch_and_no_trouble(row: dict[str, str], log: Total) -> None:
    """10,752 init_start lines are one launch; tracebacks that the program survives are no failures."""
    kinds = Counter(r.kind for r in log.records if isinstance(r, Event))
    assert kinds[Kind.LAUNCH] == kinds[Kind.TRAIN_START] == kinds[Kind.COMPLETED] == 1
    assert kinds[Kind.FAILURE] == 0
    assert not [r for r in log.records if isinstance(r, Reject)]


def test_readings_go_forward_in_steps_and_time(row: dict[str, str], log: Total) -> None:
    """Validation steps, block means and late lines are no readings."""
    steps = [r.step for r in log.readings]
    assert steps == sorted(set(steps))
    times = [r.at_us for r in log.readings if r.at_us is not None]
    assert times == sorted(times)
    assert len(times) == len(steps)


def test_the_log_is_recognised(row: dict[str, str], shared_data: Path) -> None:
    """By the marker, though NeMo's and Megatron's words stand in the same file."""
    found = detect((shared_data / "mlperf" / row["file"]).read_bytes())
    assert found.collector is mllog.COLLECTOR, found.text


def test_golden_numbers_of_the_log_with_srun_labels(shared_data: Path) -> None:
    """128 GPUs by 128 labelled init_start lines; step counts sequences there."""
    log = total(shared_data / "mlperf" / CISCO)
    assert log.settings["gpus"] == 128
    assert log.tokens == 3456 * 64 * 8192 == 1_811_939_328
    assert len(log.readings) == 3456
    assert log.first_s(Kind.LAUNCH, Kind.TRAIN_START) == pytest.approx(151, abs=0.5)
    run_s = log.first_s(Kind.TRAIN_START, Kind.COMPLETED)
    assert run_s == pytest.approx(1911, abs=0.5)
    assert log.eval_s == pytest.approx(39, abs=0.5)
    train_hours = 128 * (run_s - log.eval_s) / 3600
    assert train_hours / (log.tokens / 1e12) == pytest.approx(36_732, rel=1e-3)


def test_a_time_limit_after_success_is_no_failure(shared_data: Path) -> None:
    """run_stop says success; the scheduler's line comes 13 s later, and the launcher ends last."""
    log = total(shared_data / "mlperf" / TIME_LIMIT)
    ends = [r for r in log.records if isinstance(r, Event) and r.kind in (Kind.COMPLETED, Kind.EXIT)]
    assert [(e.kind, e.data.get("end_kind")) for e in ends] == [
        (Kind.COMPLETED, None),
        (Kind.EXIT, "time_limit"),
        (Kind.EXIT, "completed"),
    ]
    assert (ends[1].at_us or 0) - (ends[0].at_us or 0) == pytest.approx(12.074e6, abs=1e3)
    assert log.settings["gpus"] == 32
    assert log.settings["job_id"] == "364"
    assert log.readings[-1].step == 384
    assert log.readings[-1].samples == 3072


def test_pieces_give_the_same_records(shared_data: Path) -> None:
    """Read in blocks of a few kilobytes, with the memory stored in between."""
    path = shared_data / "mlperf" / TIME_LIMIT
    content, context, begin = path.read_bytes(), Context(), 0
    records: list[Record] = []
    while begin < len(content):
        end = content.rfind(b"\n", begin, begin + 3000) + 1 or content.find(b"\n", begin) + 1 or len(content)
        context.offset = begin
        records += mllog.parse(content[begin:end], context)
        begin = end
    assert records == total(path).records
