"""A published run told as facts: GLM-130B's restarts, as jsonl records, from parse to ledger."""

from __future__ import annotations

import csv
import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from collectors.jsonl import COLLECTOR
from tests.factories import ListFacts
from tracker.core.book import Book
from tracker.core.settings import Hardware, Model, Settings
from tracker.core.snapshot import Snapshot
from tracker.core.summary import snapshot
from tracker.interfaces import Context

NOMINAL_STEP_S = 88.5
IMPOSSIBLE = {"at": "2022.06.09-05:27:54", "step": 23100}


def _time(text: str) -> dt.datetime:
    return dt.datetime.strptime(text, "%Y.%m.%d-%H:%M:%S").replace(tzinfo=dt.UTC)


def _records(rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for row in rows:
        records.append({
            "kind": "attempt",
            "start": _time(row["frm"]).isoformat(),
            "gpus": 768,
            "sequence_length": 2048,
            "global_batch_size": 4224,
            "resumed_from": int(row["step0"]),
        })
        if int(row["kept_steps"]):
            records.append({"kind": "reading", "at": _time(row["to"]).isoformat(), "step": int(row["step1"])})
    return records


def _told(records: list[dict[str, Any]], end: dt.datetime) -> Snapshot:
    made = ListFacts()
    made.add(COLLECTOR.parse("".join(json.dumps(r) + "\n" for r in records).encode(), Context()))
    assert made.rejects == []
    run = Settings(
        run="glm-130b", model=Model(active_params=130e9), hardware=Hardware(peak_flop_per_s=312e12)
    )
    return snapshot(Book(run), made, as_of_us=int(end.timestamp()) * 1_000_000)


@pytest.fixture(scope="module")
def rows(shared_data: Path) -> list[dict[str, str]]:
    """The 23 intervals between restarts whose steps are known."""
    with (shared_data / "glm130b" / "attempts.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_interval_and_the_net_steps_come_out(rows: list[dict[str, str]]) -> None:
    """By the nominal step time each interval's goodput is the table's; ours never exceeds 1."""
    got = _told(_records(rows), _time(rows[-1]["to"]))

    assert len(got.attempts) == len(rows) == 23
    assert got.steps.net == 48_100
    assert got.tokens.net == 48_100 * 4224 * 2048
    for line, row in zip(got.attempts, rows, strict=True):
        nominal = line.steps_net * NOMINAL_STEP_S * 1e6 / line.wall_us["allocated"]
        assert nominal == pytest.approx(float(row["goodput"]), abs=0.002)
        assert line.wall_us["productive"] <= line.wall_us["allocated"]
    assert got.goodput_ratio is not None
    assert got.goodput_ratio <= 1
    assert sum(1 for line in got.attempts if line.steps_net == 0) == 5


def test_an_impossible_restart_is_flagged_and_not_believed(rows: list[dict[str, str]]) -> None:
    """The source says "restarting from 23100" after 26,000 had been passed: no step is thrown away for it."""
    records = _records(rows)
    began = _time("2022.06.03-07:26:16").isoformat()
    place = next(n for n, record in enumerate(records) if record.get("start") == began)
    restart = {"kind": "restart", "at": _time(str(IMPOSSIBLE["at"])).isoformat(), "step": IMPOSSIBLE["step"]}
    records.insert(place + 1, restart)

    got = _told(records, _time(rows[-1]["to"]))

    assert any("23100" in text and "not believed" in text for text in got.warnings)
    assert got.steps.net == got.steps.processed == 48_100
