"""trainer_state.json: the history of a run without any time in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import detect, trainer_state
from tests.factories import ListFacts, parse
from tests.test_collectors import LOGS, mutated, shown
from tracker.core.book import Book
from tracker.core.records import Event, Kind, Reading, Reject, SchedulerRow
from tracker.core.settings import Hardware, Model, Settings
from tracker.core.summary import snapshot
from tracker.interfaces import Context

STATES = LOGS / "trainer_state"


def read(name: str) -> bytes:
    return (STATES / name).read_bytes()


def test_a_finished_run_has_its_records_by_kind() -> None:
    """Losses are readings, a loss that is none is flagged, an evaluation has its time, the end is one."""
    body = read("finished.json")
    records = parse(body, trainer_state.COLLECTOR)
    assert [shown(one) | {"data": None} for one in records] == [
        {"event": "setting", "data": None},
        {"step": 10, "tokens": 55040, "data": None},
        {"step": 20, "tokens": 110080, "flags": "NAN", "data": None},
        {"event": "eval_end", "step": 20, "duration_us": 12_500_000, "data": None},
        {"step": 30, "tokens": 165100, "flags": "ROUNDED", "data": None},
        {"step": 40, "tokens": 220160, "data": None},
        {"event": "completed", "step": 40, "data": None},
    ]
    setting = records[0]
    assert isinstance(setting, Event)
    assert dict(setting.data) == {
        "framework": "Hugging Face Trainer",
        "target_steps": 40,
        "micro_batch_size": 4,
        "log_interval": 10,
        "eval_interval": 20,  # save_steps is a share of the run: no count
    }


def test_each_record_stands_where_its_step_is_written() -> None:
    """Offsets grow, and point at `"step"` in the file."""
    body = read("finished.json")
    offsets = [one.offset for one in parse(body, trainer_state.COLLECTOR) if isinstance(one, Reading)]
    assert offsets == sorted(offsets)
    assert all(body[offset:].startswith(b'"step"') for offset in offsets)


def test_a_checkpoint_younger_than_its_last_record_tells_its_own_step() -> None:
    """What cannot be a step is rejected; one that goes back is passed over; global_step comes last."""
    records = parse(read("checkpoint_between_records.json"), trainer_state.COLLECTOR)
    assert [shown(one) for one in records[1:]] == [
        {"step": 10},
        {"reject": "step is not a whole number"},
        {"step": 15, "tokens": 82560},
    ]


@pytest.mark.parametrize("path", sorted(STATES.iterdir()), ids=lambda path: path.name)
def test_a_state_is_recognised(path: Path) -> None:
    """Its names are enough, whatever its file is called."""
    assert detect(path.read_bytes()).collector is trainer_state.COLLECTOR


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"global_step": 15, "log_history": [{"step"', "no whole JSON object"),
        (b"[1, 2]", "no trainer state"),
        (b'{"global_step": 15}', "no trainer state"),
        (b"[" * 100_000, "no whole JSON object"),
    ],
    ids=["torn", "list", "no history", "too deep"],
)
def test_what_is_no_state_is_rejected(body: bytes, reason: str) -> None:
    """Half a file, another document: one reject."""
    (record,) = parse(body, trainer_state.COLLECTOR)
    assert isinstance(record, Reject)
    assert record.reason == reason


def test_an_empty_file_says_nothing() -> None:
    """It is being written."""
    assert parse(b"", trainer_state.COLLECTOR) == parse(b"  \n", trainer_state.COLLECTOR) == []


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_state_is_data(seed: int) -> None:
    """Bytes changed: records or a reject, never an exception, offsets in order."""
    records = list(trainer_state.COLLECTOR.parse(mutated(read("finished.json"), seed), Context()))
    assert [one.offset for one in records if not isinstance(one, SchedulerRow)] == sorted(
        one.offset for one in records if not isinstance(one, SchedulerRow)
    )


@given(
    entry=st.dictionaries(
        st.sampled_from(["step", "loss", "eval_runtime", "num_tokens", "train_runtime", "epoch"]),
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just([1])),
    )
)
def test_any_record_of_a_history_is_data(entry: dict[str, Any]) -> None:
    """Whatever types its values have."""
    body = json.dumps({"global_step": 3, "log_history": [entry]}).encode()
    for record in trainer_state.COLLECTOR.parse(body, Context()):
        assert isinstance(record, Reading | Event | Reject)


def test_the_tokens_of_a_state_reach_the_status() -> None:
    """Steps and tokens are told; no productive time is made up."""
    body = json.loads(read("finished.json"))
    body["log_history"] = [one for one in body["log_history"] if "num_tokens" not in one]
    facts = ListFacts()
    facts.add(parse(json.dumps(body).encode(), trainer_state.COLLECTOR))
    run = Settings(
        run="sft", model=Model(active_params=7e9), hardware=Hardware(peak_flop_per_s=989e12, gpus=8)
    )
    got = snapshot(Book(run), facts, as_of_us=facts.held[0].written_us + 10**12)
    assert got.steps.net == 40
    assert got.tokens.net == 220160
    assert got.attempts[0].wall_us["productive"] == 0
    assert sum(one.kind is Kind.COMPLETED for one in facts.kept[1] if isinstance(one, Event)) == 1
