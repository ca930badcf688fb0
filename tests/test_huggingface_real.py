"""The real Trainer log of 32 GPUs: eight nodes print bar, banner and the last dict; no record has a loss."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collectors import detect, huggingface
from collectors._bars import STATE
from collectors._process import elapsed_s
from tests.factories import ListFacts, parse
from tracker.core.book import Book
from tracker.core.records import Event, Flag, Kind, Reading, Record, Reject
from tracker.core.settings import Hardware, Model, Settings
from tracker.core.summary import snapshot
from tracker.interfaces import Context

BEGAN_US = 1_621_925_691_351_000  # 2021-05-25 06:54:51,351: the first banner's stamp
NODES = 8


@pytest.fixture(scope="module")
def body(shared_data: Path) -> bytes:
    (path,) = (shared_data / "bloom" / "raw").glob("*hf_ds*")
    return path.read_bytes()


def events_of(records: list[Record], kind: Kind) -> list[Event]:
    return [one for one in records if isinstance(one, Event) and one.kind is kind]


@pytest.mark.shared
def test_a_head_full_of_shell_and_engine_lines_is_the_trainers(body: bytes) -> None:
    """DeepSpeed's lines are there too, and lose."""
    found = detect(body)
    assert found.collector is huggingface.COLLECTOR
    assert [claim.collector.name for claim in found.claims] == ["huggingface", "deepspeed"]


@pytest.mark.shared
def test_each_step_is_read_once_at_the_time_of_its_bar(body: bytes) -> None:
    """The first node's bar has steps and times; those of the seven others say the same and are counted."""
    bar = [
        (int(found["n"]), elapsed_s(found["elapsed"]))
        for found in re.finditer(STATE, body)
        if found["n"] != b"0"
    ]
    first = bar[:NODES]
    assert [step for step, _ in first] == list(range(1, 9))
    context = Context()

    records = list(huggingface.COLLECTOR.parse(body, context))
    readings = [one for one in records if isinstance(one, Reading)]

    assert [(one.step, one.at_us) for one in readings] == [
        (step, BEGAN_US + s * 1_000_000) for step, s in first
    ]
    assert sum(one.step_time_us or 0 for one in readings) == first[-1][1] * 1_000_000
    assert {Flag(one.flags) for one in readings} == {Flag.WHOLE_SECOND | Flag.STEP_TIME_SAMPLE}
    assert not [one for one in records if isinstance(one, Reject)]
    repeated_steps, repeated_dicts = (NODES - 1) * 7, NODES - 1  # the eighth state is only drawn again
    assert context.state["copies"] == repeated_steps + repeated_dicts


@pytest.mark.shared
def test_what_every_node_prints_is_one_event(body: bytes) -> None:
    """One launch of 32 processes, one beginning, one end, one save, the operating point."""
    records = parse(body, huggingface.COLLECTOR, block=4096)
    assert records == parse(body, huggingface.COLLECTOR)
    for kind in (Kind.LAUNCH, Kind.TRAIN_START, Kind.COMPLETED, Kind.SAVE_START, Kind.SAVE_END):
        assert len(events_of(records, kind)) == 1, kind
    stated = {name: value for one in events_of(records, Kind.SETTING) for name, value in one.data.items()}
    assert stated == {
        "framework": "Hugging Face Trainer",
        "micro_batch_size": 4,
        "global_batch_size": 128,
        "gpus": 32,
        "data_parallel": 32,
        "target_steps": 8,
        "precision": "fp16",
    }
    assert {str(one.kind) for one in records if isinstance(one, Event)} == {
        "launch", "setting", "sign", "train_start", "completed", "save_start", "save_end",
    }  # fmt: skip


@pytest.mark.shared
def test_the_ledger_of_the_real_log_closes(body: bytes) -> None:
    """Tokens are steps x batch x the length in the config; the bar's 895 s are productive."""
    facts = ListFacts()
    facts.add(parse(body, huggingface.COLLECTOR))
    run = Settings(
        run="gpt2-base",
        model=Model(active_params=52e9, sequence_length=1024),
        hardware=Hardware(peak_flop_per_s=125e12),
    )

    got = snapshot(Book(run), facts, as_of_us=BEGAN_US + 10**12)

    (attempt,) = got.attempts
    assert got.state == "finished"
    assert attempt.gpus == 32
    assert got.tokens.net == 8 * 128 * 1024
    assert attempt.wall_us["productive"] / 1e6 == pytest.approx(895, abs=1)
    assert attempt.wall_us["allocated"] / 1e6 == pytest.approx(940.9, abs=0.1)  # first line to last
    assert attempt.wall_us["other"] <= 0.005 * attempt.wall_us["allocated"]
