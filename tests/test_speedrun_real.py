"""The single-node logs of modded-nanogpt and llm.c: every step, time and average as the truth has it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from collectors import detect, llmc, modded_nanogpt
from collectors._text import real
from tests.factories import ListFacts, parse
from tracker.core.book import Book
from tracker.core.records import Event, Kind, Reading, Record, Reject
from tracker.core.settings import Hardware, Model, Settings
from tracker.core.summary import snapshot

TIMED = ("2024-10-20_ScaleUp1B", "2025-01-26_BatchSize")


@pytest.fixture(scope="module")
def truth(shared_data: Path) -> dict[str, dict[str, str]]:
    """One row a log, by the name of its folder."""
    with (shared_data / "modded-nanogpt" / "truth.csv").open(encoding="utf-8") as file:
        return {row["file"].split("/")[-2]: row | {"path": row["file"]} for row in csv.DictReader(file)}


def body_of(shared_data: Path, row: dict[str, str]) -> bytes:
    return (shared_data / "modded-nanogpt" / row["path"]).read_bytes()


def readings_of(records: list[Record]) -> list[Reading]:
    return [one for one in records if isinstance(one, Reading)]


@pytest.mark.shared
@pytest.mark.parametrize("folder", TIMED)
def test_steps_and_times_of_a_real_log_are_those_of_the_truth(
    folder: str, truth: dict[str, dict[str, str]], shared_data: Path
) -> None:
    """Thousands of lines of source in front yield nothing; each step comes once; the reset is none."""
    row = truth[folder]
    body = body_of(shared_data, row)
    assert detect(body[: 256 * 1024]).collector is modded_nanogpt.COLLECTOR

    records = parse(body, modded_nanogpt.COLLECTOR)
    readings = readings_of(records)

    assert not [one for one in records if isinstance(one, Reject)]
    assert [one.step for one in readings] == list(range(1, int(row["steps_done"]) + 1))
    first_line = body[: readings[0].offset].count(b"\n") + 1
    assert first_line == int(float(row["first_record_line"])) + 1  # that one is the validation of step 0
    timed = [one for one in readings if one.step > 10]
    total_us = sum(one.step_time_us or 0 for one in timed)
    last = [line for line in body.split(b"\n") if line.startswith(b"step:")][-2]
    assert total_us == int(last.split(b"train_time:")[1].split(b"ms")[0]) * 1000
    assert total_us / 1e6 == pytest.approx(
        float(row["final_s"]), abs=0.15
    )  # the truth has the last validation
    average_ms = total_us / 1e3 / (int(row["steps_done"]) - 11)
    assert average_ms == pytest.approx(float(row["last_step_avg_ms"]), abs=0.2)
    assert sum(one.kind is Kind.LAUNCH for one in records if isinstance(one, Event)) == 1


@pytest.mark.shared
def test_the_ledger_of_a_real_log_has_its_tokens_and_rate(
    truth: dict[str, dict[str, str]], shared_data: Path
) -> None:
    """Tokens, GPU-hours per 1e12 of them and 6N MFU, with the batch from the config."""
    row = truth["2024-10-20_ScaleUp1B"]
    facts = ListFacts()
    facts.add(parse(body_of(shared_data, row), modded_nanogpt.COLLECTOR))
    run = Settings(
        run="scale-up",
        model=Model(active_params=1.549e9, tokens_per_step=480 * 1024),
        hardware=Hardware(peak_flop_per_s=989.4e12),
    )

    got = snapshot(Book(run), facts, as_of_us=facts.held[0].written_us + 10**12)

    (attempt,) = got.attempts
    assert got.state == "finished"
    assert attempt.gpus == 8
    assert got.tokens.net == float(row["tokens"])
    assert attempt.flop is not None
    first_ten_us = 97_257_000  # timed before the clock started again: not in the truth
    seconds = (attempt.wall_us["productive"] - first_ten_us) / 1e6
    assert seconds == pytest.approx(float(row["final_s"]), abs=0.15)
    rate = float(row["tokens"]) / seconds / 8
    assert rate == pytest.approx(float(row["tok_s_gpu"]), rel=1e-4)
    assert 6 * 1.549e9 * rate / 989.4e12 == pytest.approx(float(row["mfu6N"]), abs=2e-4)


@pytest.mark.shared
def test_the_real_main_log_has_every_step_and_no_time(
    truth: dict[str, dict[str, str]], shared_data: Path
) -> None:
    """19,560 steps, an evaluation every 250, nothing else."""
    row = truth["2024-10-13_llmc"]
    body = body_of(shared_data, row)
    assert detect(body[: 256 * 1024]).collector is llmc.COLLECTOR

    records = parse(body, llmc.COLLECTOR)
    readings = readings_of(records)
    events: list[Any] = [one for one in records if isinstance(one, Event)]

    assert [one.step for one in readings] == list(range(1, int(row["steps_done"]) + 1))
    assert all(one.at_us is None and one.step_time_us is None for one in readings)
    assert len(readings) + len(events) == int(row["step_records"])
    assert {one.kind for one in events} == {Kind.EVAL_END}
    assert not [one for one in records if isinstance(one, Reject)]
    assert real(row["final_val"].encode()) == 3.2722
