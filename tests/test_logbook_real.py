"""OPT-175B's logbook told as facts: its launches, the gaps between them, and what its people noted."""

from __future__ import annotations

import csv
import datetime as dt
import json
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from collectors import detect
from collectors.jsonl import COLLECTOR
from tests.factories import ListFacts
from tracker.core.book import Book
from tracker.core.corrections import Correction
from tracker.core.settings import Hardware, Settings
from tracker.core.snapshot import Snapshot
from tracker.core.summary import snapshot
from tracker.interfaces import Context

ET = ZoneInfo("America/New_York")
RUN = Settings(run="opt-175b", hardware=Hardware(gpus=1024))


@pytest.fixture(scope="module")
def launches(shared_data: Path) -> list[dict[str, str]]:
    """The rows of the logbook's index that are of a run, oldest first."""
    with (shared_data / "opt175b" / "logbook_index.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["run"]]
    return list(reversed(rows))


@pytest.fixture(scope="module")
def truth(shared_data: Path) -> dict[str, Any]:
    """Figures that an independent script computed from the same rows."""
    found: dict[str, Any] = json.loads((shared_data / "opt175b" / "truth.json").read_bytes())
    return found


def at(row: dict[str, str]) -> dt.datetime:
    return dt.datetime.fromisoformat(row["read_as_et"]).replace(tzinfo=ET)


def told(launches: list[dict[str, str]]) -> ListFacts:
    facts = ListFacts()
    lines = [
        json.dumps({"kind": "attempt", "start": at(row).isoformat(), "job_id": row["run"], "gpus": 1024})
        for row in launches
    ]
    facts.add(COLLECTOR.parse("\n".join(lines).encode(), Context()))
    assert facts.rejects == []
    return facts


def answer(facts: ListFacts, launches: list[dict[str, str]]) -> Snapshot:
    return snapshot(Book(RUN), facts, as_of_us=int(at(launches[-1]).timestamp()) * 1_000_000)


@pytest.mark.shared
def test_every_launch_is_an_attempt_and_the_gaps_are_the_truths(
    launches: list[dict[str, str]], truth: dict[str, Any]
) -> None:
    """32 launches of 28 runs (a run that was queued again is a new attempt): 31 interruptions."""
    got = answer(told(launches), launches)

    assert len(got.attempts) == truth["rows_with_a_run"] == 32
    assert len({line.job_id for line in got.attempts}) == truth["distinct_runs"] == 28
    assert len(got.interruptions) == 31
    days = sum(line.wall_us["allocated"] for line in got.attempts) / 8.64e10
    assert 31 / days == pytest.approx(truth["restarts_per_day"], rel=2e-3)
    assert got.mtbf.job_hours == pytest.approx(truth["mean_gap_h"], rel=2e-3)


@pytest.mark.shared
def test_what_people_noted_is_a_correction_beside_an_unknown_cause(launches: list[dict[str, str]]) -> None:
    """The rows say why in four cases: a person's word, with where it stands, and the counts follow it."""
    facts = told(launches)
    before = answer(facts, launches)
    assert {stop.cause for stop in before.interruptions} == {"unknown"}
    for stop, row in zip(before.interruptions, launches[1:], strict=True):  # a row tells of the end before it
        if not row["comment"]:
            continue
        rollback = "rollback" in row["comment"]
        facts.said.append(
            Correction(
                attempt=before.attempts[stop.attempt - 1].name,
                at_us=stop.at_us,
                made_us=stop.at_us,
                by="logbook",
                note=row["comment"],
                cause="divergence" if rollback else None,
                kind="unexpected",
                manual=rollback or "manual" in row["comment"] or None,
            )
        )

    got = answer(facts, launches)

    causes = [stop.cause for stop in got.interruptions]
    assert causes.count("divergence") == sum("rollback" in row["comment"] for row in launches) == 2
    assert sum(stop.manual is True for stop in got.interruptions) == 3
    assert got.mtbf == before.mtbf
    assert got.warnings == before.warnings


@pytest.mark.shared
@pytest.mark.parametrize(
    "name",
    ["opt175b/logbook_index.csv", "opt175b/progress.csv", "acme/cluster_summary.csv"],
)
def test_tables_about_runs_are_no_logs_of_a_run(name: str, shared_data: Path) -> None:
    """No step in them: nobody claims to read them, and says so."""
    found = detect((shared_data / name).read_bytes())

    assert found.collector is None
    assert "no collector recognises it" in found.text
