"""metrics.csv of Lightning and LitGPT: sparse rows, steps that count from 0, micro-batches, two tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import detect, lightning_csv
from tests.test_collectors import LOGS, check_event, mutated, shown
from tracker.core.records import Event, Record
from tracker.interfaces import Context

FOLDER = LOGS / "lightning_csv"


def read(name: str, **options: int) -> list[Record]:
    return list(lightning_csv.COLLECTOR.parse((FOLDER / name).read_bytes(), Context(options=dict(options))))


def test_lightnings_steps_count_from_nothing() -> None:
    """Step 9 is the tenth; a row of a learning rate alone says nothing; one of validation ends one."""
    assert [shown(one) for one in read("lightning.csv")] == [
        {"step": 10},
        {"step": 20, "flags": "NAN"},
        {"event": "eval_end", "step": 25, "data": {}},
        {"step": 30},
        {"reject": "a row of another width than the header"},
        {"reject": "step is not a whole number"},
    ]


def test_litgpts_step_is_the_loggers_so_iter_counts() -> None:
    """Four micro-batches a step; tokens of all devices; the time since training began, evaluation in it."""
    found = [shown(one) for one in read("litgpt.csv", gradient_accumulation=4)]
    assert [one for one in found if "event" not in one] == [
        {"step": 2, "step_time_us": 10_000_000, "tokens": 524288, "flags": "INCLUDES"},
        {
            "step": 4, "step_time_us": 5_000_000, "tokens": 1048576, "flags": "INCLUDES",
            "reported_flop_per_s": 178e12,
        },
        {
            "step": 6, "step_time_us": 10_000_000, "tokens": 1572864, "flags": "INCLUDES",
            "reported_flop_per_s": 178e12,
        },
    ]  # fmt: skip
    settings = [one["data"] for one in found if one.get("event") == "setting"]
    assert settings[0] == {"gpus": 8}
    assert set(settings[1]) == {"reported_convention"}
    assert [one["step"] for one in found if one.get("event") == "eval_end"] == [4]


def test_without_the_sources_word_micro_batches_are_steps_and_that_is_said() -> None:
    """One note at the head; tokens and times are as right as with it."""
    note, *rest = read("litgpt.csv")
    assert isinstance(note, Event)
    assert "set gradient_accumulation" in str(note.data["message"])
    readings = [shown(one) for one in rest if not isinstance(one, Event)]
    assert [(one["step"], one["tokens"]) for one in readings] == [(8, 524288), (16, 1048576), (24, 1572864)]
    assert readings[1]["step_time_us"] == 1_250_000


@pytest.mark.parametrize("name", ["lightning.csv", "litgpt.csv"])
def test_a_table_is_recognised_before_the_general_one(name: str) -> None:
    """The first steps of Lightning tell that they count from 0; LitGPT's step is iter - 1."""
    assert detect((FOLDER / name).read_bytes()).collector is lightning_csv.COLLECTOR


def test_a_table_that_counts_from_one_is_left_to_the_general_collector() -> None:
    """Steps 10, 20, 30 under the same names are steps as they stand."""
    table = b"epoch,step,train_loss\n0,10,3.1\n0,20,3.0\n0,30,2.9\n"
    assert lightning_csv.detect(table) is None


@pytest.mark.parametrize("body", [b"", b"\n\n"], ids=["empty", "blank"])
def test_a_file_without_a_row_says_nothing(body: bytes) -> None:
    """It is being written."""
    assert list(lightning_csv.COLLECTOR.parse(body, Context())) == []


def test_a_table_without_steps_is_rejected() -> None:
    """One reject, with the header."""
    (record,) = lightning_csv.COLLECTOR.parse(b"a,b\n1,2\n", Context())
    assert shown(record) == {"reject": "no header with a step"}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", ["lightning.csv", "litgpt.csv"])
def test_a_damaged_table_is_data(name: str, seed: int) -> None:
    """Bytes changed, lines cut and glued: no exception, offsets in order, known words."""
    body = mutated((FOLDER / name).read_bytes(), seed)
    offsets = []
    for record in lightning_csv.COLLECTOR.parse(body, Context()):
        offsets.append(record.offset)  # type: ignore[union-attr]
        if isinstance(record, Event):
            check_event(record)
    assert offsets == sorted(offsets)


@given(st.lists(st.text("0123456789.,-einfa \r\n\"'", max_size=30), max_size=8))
def test_any_cells_are_data(rows: list[str]) -> None:
    """Under LitGPT's header."""
    header = "iter,step,iter_time,total_tokens,tokens,time,loss,val_loss\n"
    list(lightning_csv.COLLECTOR.parse((header + "\n".join(rows)).encode(), Context()))
