"""sacct's output as it is written: any order of fields, two shapes of JSON, times that disagree."""

from __future__ import annotations

import datetime as dt
import json
import zoneinfo
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import detect, slurm
from tracker.core.records import Record, Reject, SchedulerRow
from tracker.interfaces import Context

LOGS = Path(__file__).parent / "logs" / "slurm"
HOUR_US = 3_600_000_000


def us(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).timestamp() * 1_000_000)


def read(content: str | bytes, zone: str = "UTC", **options: Any) -> list[Record]:
    content = content.encode() if isinstance(content, str) else content
    return list(slurm.parse(content, Context(zone=zoneinfo.ZoneInfo(zone), options=options)))


def rows(records: list[Record]) -> list[SchedulerRow]:
    return [r for r in records if isinstance(r, SchedulerRow)]


def reasons(records: list[Record]) -> list[str]:
    return [r.reason for r in records if isinstance(r, Reject)]


def test_a_header_in_any_order_names_the_fields() -> None:
    """Steps, waiting jobs and rows cut or split by a delimiter in a name give no allocation."""
    records = read((LOGS / "header_any_order.txt").read_bytes())
    found = rows(records)
    assert [(r.job_id, r.state, r.gpus, r.nodes) for r in found] == [
        ("4711", "NODE_FAIL", 16, 2),
        ("4711", "CANCELLED", 16, 2),
        ("4720", "RUNNING", 12, 2),
        ("4723", "REQUEUED", 8, 1),
    ]
    first, second, running, requeued = found
    assert first.start_us == us("2026-03-02T10:00:00+00:00")
    assert first.end_us == us("2026-03-02T12:30:00+00:00")
    assert first.submit_us == us("2026-03-02T09:58:00+00:00")
    assert (first.name, first.exit_code, first.data["node_list"]) == ("pretrain", "1:0", "node[1-2]")
    assert second.comment == "moved"
    assert second.data["cancelled_by"] == "1000"
    assert running.end_us is None
    assert (running.data["array_job_id"], running.data["array_task_id"]) == ("4712", "7")
    assert requeued.end_us == requeued.start_us + HOUR_US + HOUR_US // 12  # elapsed and suspended
    assert requeued.data["recorded_end_us"] == us("2026-03-03T14:10:00+00:00")
    assert (requeued.data["het_job_id"], requeued.data["het_offset"]) == ("4723", "1")
    assert reasons(records) == [
        "end before start",
        "a time that cannot be read",
        "more fields than there should be",
        "fewer fields than there should be",
    ]


def test_a_requeued_job_keeps_its_id_and_has_an_allocation_for_each_start() -> None:
    """(job id, start) identifies a row; the later of two rows for one allocation counts."""
    text = (
        "JobID|Start|End|Elapsed|State\n"
        "9|2026-03-02T10:00:00|2026-03-02T11:00:00|01:00:00|NODE_FAIL\n"
        "9|2026-03-02T11:10:00|Unknown|00:30:00|RUNNING\n"
        "9|2026-03-02T10:00:00|2026-03-02T11:00:00|01:00:00|NODE_FAIL\n"
        "9|2026-03-02T11:10:00|2026-03-02T12:10:00|01:00:00|COMPLETED\n"
    )
    found = rows(read(text))
    assert [(r.job_id, r.state) for r in found] == [("9", "NODE_FAIL"), ("9", "COMPLETED")]
    assert sum((r.end_us or 0) - r.start_us for r in found) == 2 * HOUR_US


def test_the_known_order_needs_no_header() -> None:
    """25 fields, or 26 with the partition; a node failure without an end ends with its elapsed time."""
    records = read((LOGS / "known_order.txt").read_bytes())
    found = rows(records)
    assert [(r.job_id, r.state, r.nodes) for r in found] == [
        ("101", "OUT_OF_MEMORY", 2),
        ("102_3", "NODE_FAIL", 1),
        ("103", "CANCELLED", 0),
        ("104", "CANCELLED", 1),
    ]
    assert found[1].end_us == found[1].start_us + 1232 * 1_000_000
    assert found[2].data["never_ran"] is True
    assert "never_ran" not in found[3].data
    assert reasons(records) == ["no header, and not the known order of fields"]


def test_a_constraint_may_hold_the_delimiter() -> None:
    """Features are joined by | as the fields are; the time after them tells where they end."""
    head = "JobID|Constraints|Start|State\n"
    for constraint in ("", "a100", "[a100|h100|h200]", "a100|h100"):
        (row,) = rows(read(f"{head}1|{constraint}|2026-03-02T10:00:00|FAILED\n"))
        assert (row.job_id, row.state) == ("1", "FAILED")


@pytest.mark.parametrize("name", ["sacct_21_08.json", "sacct_24_05.json"])
def test_json_of_old_and_new_slurm_has_the_same_meaning(name: str) -> None:
    """Plain numbers, or {"set": true, "number": 8}; a state, or a list of them."""
    content = (LOGS / name).read_bytes()
    found = rows(read(content))
    assert detect(content).collector is slurm.COLLECTOR
    if name == "sacct_21_08.json":
        (row,) = found
        assert (row.job_id, row.state, row.gpus, row.nodes) == ("210", "NODE_FAIL", 32, 4)
        assert (row.end_us or 0) - row.start_us == 5400 * 1_000_000
        assert (row.exit_code, row.comment, row.name) == ("0:9", "run 7", "pretrain")
        assert row.data["limit_s"] == 86_400
        return
    cancelled, running = found
    assert (cancelled.job_id, cancelled.state, cancelled.gpus) == ("310", "CANCELLED", 16)
    assert (cancelled.data["array_job_id"], cancelled.data["array_task_id"]) == ("300", "4")
    assert (cancelled.data["cancelled_by"], cancelled.data["restarts"]) == ("alice", "1")
    assert (cancelled.end_us or 0) - cancelled.start_us == HOUR_US
    assert (running.job_id, running.state, running.end_us) == ("311", "RUNNING", None)
    assert running.gpus is None, "nothing is allocated: what was asked for does not count"
    assert running.data["het_job_id"] == "311"


@pytest.mark.parametrize(
    ("fields", "values", "gpus"),
    [
        pytest.param("AllocTRES", "cpu=8,gres/gpu=16,gres/gpu:h100=16", 16, id="the total, not twice"),
        pytest.param("AllocTRES", "gres/gpu:a100=4,gres/gpu:h100=8", 12, id="types are added up"),
        pytest.param("AllocTRES", "cpu=8,mem=4G", None, id="none stated is unknown"),
        pytest.param("AllocGRES", "gpu:8", 8, id="AllocGRES is a total"),
        pytest.param("AllocGRES", "gpu:h100:4(S:0-1)", 4, id="sockets are passed over"),
        pytest.param("ReqTRES", "cpu=8,gres/gpu=16", 16, id="asked for, where no allocation is shown"),
        pytest.param("ReqGRES", "gpu:8", 16, id="ReqGRES is for each of two nodes"),
        pytest.param("AllocTRES", "gres/gpu=0", None, id="zero is unknown"),
        pytest.param("AllocTRES", "gres/gpumem=80G,gres/gpuutil=9", None, id="memory and load are no GPUs"),
    ],
)
def test_gpus_come_from_what_was_allocated(fields: str, values: str, gpus: int | None) -> None:
    """Whichever field the output has."""
    text = f"JobID|Start|NNodes|{fields}\n1|2026-03-02T10:00:00|2|{values}\n"
    assert rows(read(text))[0].gpus == gpus


@pytest.mark.parametrize("delimiter", ["|", "^|^", ";", ",", "\t"])
def test_a_delimiter_is_found_in_the_header_or_given(delimiter: str) -> None:
    """--delimiter changes it; --parsable ends each row with one more."""
    text = delimiter.join(["JobID", "Start", "State", ""]) + "\r\n"
    text += delimiter.join(["1", "2026-03-02T10:00:00", "COMPLETED", ""]) + "\r\n"
    assert [r.state for r in rows(read(text))] == ["COMPLETED"]
    assert [r.state for r in rows(read(text, delimiter=delimiter))] == ["COMPLETED"]


def test_fields_are_named_by_the_source_where_no_header_is() -> None:
    """As a list, or as it was given to --format, widths included."""
    line = "COMPLETED|7|2026-03-02T10:00:00\n"
    for fields in (["State", "JobID", "Start"], "State%20,JobID,Start"):
        (row,) = rows(read(line, fields=fields))
        assert (row.job_id, row.state) == ("7", "COMPLETED")


def test_times_are_local_and_the_elapsed_time_settles_the_hour_that_comes_twice() -> None:
    """Clocks went back at 03:00 on 2026-10-25 in Berlin: 02:30 was there twice."""
    head = "JobID|Start|End|Elapsed|State\n"
    (winter,) = rows(
        read(head + "1|2026-10-25T02:30:00|2026-10-25T04:00:00|01:30:00|FAILED\n", "Europe/Berlin")
    )
    assert winter.start_us == us("2026-10-25T01:30:00+00:00")
    assert winter.end_us == us("2026-10-25T03:00:00+00:00")
    (summer,) = rows(
        read(head + "1|2026-10-25T02:30:00|2026-10-25T04:00:00|02:30:00|FAILED\n", "Europe/Berlin")
    )
    assert summer.start_us == us("2026-10-25T00:30:00+00:00")
    (ending,) = rows(
        read(head + "1|2026-10-25T00:00:00|2026-10-25T02:30:00|03:30:00|FAILED\n", "Europe/Berlin")
    )
    assert ending.end_us == us("2026-10-25T01:30:00+00:00")
    (plain,) = rows(read(head + "1|2026-07-01T12:00:00|Unknown|01:00|FAILED\n", "Europe/Berlin"))
    assert plain.start_us == us("2026-07-01T10:00:00+00:00")
    assert plain.end_us == plain.start_us + 60_000_000


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param('{"jobs": [', "torn JSON", id="JSON cut off"),
        pytest.param('{"errors": []}', "JSON without a list of jobs", id="JSON of something else"),
        pytest.param('{"jobs": [7]}', "a job that is no object", id="a job that is a number"),
        pytest.param('{"jobs": [{"time": {"start": 1772442000}}]}', "row without a job id", id="no job id"),
        pytest.param("JobID|State\n1|FAILED\n", "no Start among the fields: ask sacct for it", id="no start"),
        pytest.param("sacct: error: slurmdbd: down\n", "sacct reports an error", id="the accounting is down"),
        pytest.param(
            "JobID|Start\n1|1970-01-02T00:00:00\n", "time stamp outside 2000..2100", id="a start in 1970"
        ),
        pytest.param(
            "JobID|Start|Elapsed|State\n1|2026-03-02T10:00:00|99999-00:00:00|FAILED\n",
            "time stamp outside 2000..2100",
            id="an end in 2300",
        ),
    ],
)
def test_what_cannot_be_used_has_a_reason(content: str, reason: str) -> None:
    """No row, one reject; its words hold no value of the line."""
    records = read(content)
    assert rows(records) == []
    assert set(reasons(records)) == {reason}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.sampled_from(
        [1772442000, "COMPLETED", "\ud800", "2026-03-02T10:00:00", {"set": True, "number": 1772442000}]
    ),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
        st.sampled_from(["start", "end", "elapsed", "current", "allocated", "count", "name", "type", "job_id",
                         "task_id", "set", "number", "return_code", "signal", "limit", "suspended"]),
        inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
KEYS = ["job_id", "name", "state", "time", "tres", "array", "het", "comment", "exit_code", "nodes",
        "allocation_nodes", "kill_request_user", "partition"]  # fmt: skip


@given(st.dictionaries(st.sampled_from(KEYS), JSON))
def test_json_of_wrong_types_is_data(job: dict[str, Any]) -> None:
    """Whatever stands under a key: rows that can be stored, rejects, or nothing."""
    job = {"job_id": 1, "time": {"start": 1772442000}} | job
    for row in rows(read(json.dumps({"jobs": [job]}))):
        assert row.end_us is None or row.end_us >= row.start_us
        text = [row.job_id, row.name, row.state, row.exit_code, row.reason, row.comment]
        (" ".join(text) + json.dumps(dict(row.data), ensure_ascii=False, allow_nan=False)).encode()


def test_several_documents_in_one_output_are_all_read() -> None:
    """A file to which each call appends its JSON."""
    job = {"job_id": 5, "state": {"current": "COMPLETED"}, "time": {"start": 1772442000, "end": 1772445600}}
    text = json.dumps({"jobs": [job]}) + "\n" + json.dumps({"jobs": [job | {"job_id": 6}]})
    assert [r.job_id for r in rows(read(text))] == ["5", "6"]


def test_empty_output_and_comments_say_nothing() -> None:
    """No job in the time asked for is no fault."""
    assert read("") == []
    assert read("# sacct\n\n   \nJobID|Start|State\n") == []
