"""Real sacct output: states, elapsed times and attempts as independent scripts counted them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from collectors import detect, slurm
from tracker.core.records import Reject, SchedulerRow
from tracker.interfaces import Context

pytestmark = pytest.mark.shared


def read(path: Path, **options: Any) -> tuple[list[SchedulerRow], list[Reject]]:
    records = list(slurm.parse(path.read_bytes(), Context(options=options)))
    return (
        [r for r in records if isinstance(r, SchedulerRow)],
        [r for r in records if isinstance(r, Reject)],
    )


def hours(rows: list[SchedulerRow]) -> float:
    return sum(row.end_us - row.start_us for row in rows if row.end_us is not None) / 3.6e9


@pytest.fixture(scope="module")
def truth(shared_data: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shared_data / "slurm" / "truth.json").read_text())
    return found


def test_every_table_agrees_with_its_truth(shared_data: Path, truth: dict[str, Any]) -> None:
    """States, job hours and node hours; a job that waits is counted there, and is no allocation here."""
    seen = 0
    for name, wanted in truth.items():
        path = shared_data / "slurm" / name
        if not name.startswith("hpc-cost-simulator/") or not path.is_file():
            continue
        seen += 1
        rows, rejects = read(path)
        states = {state: n for state, n in wanted["states"].items() if state != "PENDING"}
        assert Counter(row.state for row in rows) == states, name
        assert hours(rows) == pytest.approx(wanted["elapsed_h_jobs"], abs=5e-4), name
        node_h = sum(hours([row]) * (row.nodes or 0) for row in rows)
        assert node_h == pytest.approx(wanted["node_h"], abs=5e-4), name
        assert len(rejects) == wanted["bad_rows"], name
        assert detect(path.read_bytes()).collector is slurm.COLLECTOR, name
    assert seen == 5


def test_every_job_of_the_json_agrees_with_its_truth(shared_data: Path, truth: dict[str, Any]) -> None:
    """State, start, elapsed, GPUs, nodes, array of Slurm 21.08; a recorded end that differs is kept."""
    for name in ("clockwork/sacct_1", "clockwork/sacct_2"):
        path = shared_data / "slurm" / name
        rows, rejects = read(path)
        assert not rejects
        assert detect(path.read_bytes()).collector is slurm.COLLECTOR
        for row, wanted in zip(rows, truth[name], strict=True):
            assert row.job_id == str(wanted["job"])
            assert row.state == wanted["state"]["current"]
            assert row.reason == wanted["state"]["reason"]
            assert row.start_us == wanted["start"] * 1_000_000
            assert row.end_us == (wanted["start"] + wanted["elapsed"]) * 1_000_000
            assert row.gpus == wanted["gpus"]
            assert row.nodes == wanted["nodes"]
            assert row.data["array_job_id"] == str(wanted["array"])
            assert row.data["array_task_id"] == str(wanted["task"])
            recorded = None if wanted["end_is_zero"] else wanted["end"] * 1_000_000
            assert row.data.get("recorded_end_us") == recorded


def test_jobs_that_never_ran_are_marked(shared_data: Path) -> None:
    """60 of the 483 jobs were cancelled or failed while they waited: a start, but no node and no time."""
    rows, _ = read(shared_data / "slurm" / "hpc-cost-simulator" / "sacct-output-v2.txt")
    never = [row for row in rows if row.data.get("never_ran")]
    assert len(rows) == 483
    assert len(never) == 60
    assert hours(never) == 0
    assert Counter(row.state for row in never) == {"CANCELLED": 50, "FAILED": 10}
    assert {row.data.get("cancelled_by") for row in rows if row.state == "CANCELLED"} == {"32874"}


def test_rows_without_a_start_are_refused_with_the_reason(shared_data: Path) -> None:
    """Rows quoted without a Start field give no allocation, whoever names their fields."""
    path = shared_data / "slurm" / "reportseff" / "sacct_rows_from_tests.txt"
    rows, rejects = read(path)
    assert not rows
    assert {r.reason for r in rejects} == {"no header, and not the known order of fields"}
    fields = "AdminComment,AllocCPUS,Elapsed,JobID,JobIDRaw,MaxRSS,NNodes,ReqMem,State,Timelimit,TotalCPU"
    rows, rejects = read(path, delimiter="^|^", fields=fields)
    assert not rows
    assert {r.reason for r in rejects} == {"no Start among the fields: ask sacct for it"}


@pytest.mark.parametrize("name", ["sinfo_1", "scontrol_job_2", "scontrol_node_3", "small_scontrol_job"])
def test_other_tools_of_slurm_are_not_taken_for_sacct(shared_data: Path, name: str) -> None:
    """Not detected; read all the same by name, they give no row and no crash."""
    path = shared_data / "slurm" / "clockwork" / name
    assert detect(path.read_bytes()).collector is None
    rows, _ = read(path)
    assert not rows
