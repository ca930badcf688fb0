"""TensorBoard event files: records, readings, a file for each attempt; torn, damaged and foreign ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors import detect, tensorboard
from tests.follow_world import World
from tests.tfevents import event, record, scalars, simple, sized, start, tensor
from tracker.cli import root
from tracker.core.records import Event, Flag, Kind, Reading, Record, Reject
from tracker.follow.lines import BLOCK_BYTES
from tracker.interfaces import Context

T0 = 1_767_254_400.0  # 2026-01-01T08:00:00Z


def steps(first: int, last: int, *, at_s: float, every_s: float = 1.0) -> bytes:
    """What Megatron-LM writes of each step, and a copy of it against samples."""
    body = b""
    for number, step in enumerate(range(first, last + 1), 1):
        wall_s = at_s + number * every_s
        body += scalars(wall_s, step, learning_rate=1e-5, batch_size=128.0, world_size=16.0, lm__loss=3.0)
        body += scalars(wall_s, step * 128, **{"lm loss vs samples": 3.0})
        body += scalars(wall_s, step, iteration_time=0.9)
    return body


def parsed(body: bytes, **options: Any) -> list[Record]:
    return list(tensorboard.parse(body, Context(options=options)))


def readings(records: list[Record]) -> list[Reading]:
    return [one for one in records if isinstance(one, Reading)]


def cuts(body: bytes) -> list[int]:
    """Where records end."""
    found, at = [], 0
    while at < len(body):
        at += 16 + int.from_bytes(body[at : at + 8], "little")
        found.append(at)
    return found


def test_each_step_is_a_reading_at_its_wall_clock() -> None:
    """From the second step on the tag that closes a step tells it, so that the last one is not missed."""
    body = start(T0) + steps(1, 4, at_s=T0 + 60)

    records = parsed(body)

    launch, setting, *rest = records
    assert isinstance(launch, Event)
    assert (launch.kind, launch.at_us) == (Kind.LAUNCH, int(T0 * 1e6))
    assert isinstance(setting, Event)
    assert setting.data == {"gpus": 16}
    got = readings(rest)
    assert [one.step for one in got] == [1, 2, 3, 4]
    assert [one.at_us for one in got] == [int((T0 + 60 + n) * 1e6) for n in (1, 2, 3, 4)]
    assert {one.batch for one in got} == {128}
    assert {one.step_time_us for one in got} == {900_000}
    assert all(one.flags & Flag.STEP_TIME_SAMPLE for one in got)


def test_the_same_however_it_is_cut() -> None:
    """At every record, with the state stored in between."""
    body = start(T0) + steps(1, 3, at_s=T0)
    context, records = Context(), []
    ends = cuts(body)
    for begin, end in zip([0, *ends], ends, strict=False):
        context.offset = begin
        records += tensorboard.parse(body[begin:end], context)
        context.state = json.loads(json.dumps(context.state))

    assert records == parsed(body)
    assert [one.offset for one in records] == sorted(one.offset for one in records)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(record(event(T0, 5, sized(5, tensor("loss", 2.0)))), id="a-tensor-with-content"),
        pytest.param(
            record(event(T0, 5, sized(5, tensor("loss", 2.0, content=False)))), id="a-tensor-with-a-list"
        ),
        pytest.param(record(event(T0, 5, sized(5, simple("train/loss", 2.0)))), id="a-simple-value"),
    ],
)
def test_numbers_are_read_in_both_ways(body: bytes) -> None:
    """torch writes a float, TensorFlow 2 a tensor of one."""
    assert [one.step for one in readings(parsed(start(T0) + body + scalars(T0 + 1, 6, loss=1.0)))][:1] == [5]


@pytest.mark.parametrize(
    "tag",
    ["lm loss vs samples", "Train/Samples/train_loss", "val/loss", "eval/loss", "lm loss validation",
     "validation loss", "test_acc"],
)  # fmt: skip
def test_tags_with_other_steps_are_no_steps(tag: str) -> None:
    """Samples in the step's place, or another loop's count."""
    body = start(T0) + b"".join(
        record(event(T0 + n, n * 1000, sized(5, simple(tag, 1.0)))) for n in (1, 2, 3)
    )

    assert parsed(body) == []


def test_what_a_float_of_32_bits_rounds_is_marked() -> None:
    """A token odometer beyond 2^24 is rounded, samples that large are not kept; a loss may be no number."""
    values = {"tokens": 2e9, "consumed_samples": 3e7, "loss": float("nan")}
    body = b"".join(record(event(T0 + 1, 7, sized(5, simple(tag, value)))) for tag, value in values.items())

    (reading,) = readings(parsed(start(T0) + body + scalars(T0 + 2, 8, loss=1.0)))[:1]

    assert reading.tokens == pytest.approx(2e9)
    assert reading.samples is None
    assert reading.flags == Flag.ROUNDED | Flag.NAN


def test_steps_from_zero_are_the_users_word() -> None:
    """first_step = 0 adds one; anything else is refused at the start."""
    body = start(T0) + scalars(T0, 0, loss=1.0) + scalars(T0 + 1, 1, loss=1.0)
    assert [one.step for one in readings(parsed(body, first_step=0))] == [1, 2]
    assert tensorboard.COLLECTOR.check is not None
    assert list(tensorboard.COLLECTOR.check({"first_step": 2})) == [
        "first_step = 2: expected 0 or 1, the number that the first step has in the file. "
        "Write first_step = 0"
    ]


def test_a_damaged_record_is_a_reject_and_a_damaged_length_ends_the_file() -> None:
    """One flipped bit in the data costs a record; one in a length costs what follows."""
    good = [start(T0), *(scalars(T0 + n, n, loss=1.0) for n in (1, 2, 3))]
    data = bytearray(b"".join(good))
    data[len(good[0]) + 20] ^= 1

    records = parsed(bytes(data))
    assert [type(one) for one in records][:1] == [Reject]
    assert [one.step for one in readings(records)] == [2, 3]

    data = bytearray(b"".join(good))
    data[len(good[0]) + len(good[1])] ^= 1
    context = Context()
    first = list(tensorboard.parse(bytes(data), context))
    assert [one.reason for one in first if isinstance(one, Reject)] == [
        "damaged record: the rest is not read"
    ]
    assert list(tensorboard.parse(good[3], context)) == []


def test_a_time_that_cannot_be_is_a_reject() -> None:
    """A clock that was never set."""
    (reject,) = parsed(record(event(5.0, 1, sized(5, simple("loss", 1.0)))))

    assert isinstance(reject, Reject)
    assert reject.reason == "time stamp outside 2000..2100"


@settings(max_examples=300, deadline=None)
@given(noise=st.binary(max_size=300), wrapped=st.booleans())
def test_no_message_makes_the_reader_raise(noise: bytes, wrapped: bool) -> None:
    """Any bytes, also where the checksums are right."""
    for one in parsed(start(T0) + (record(noise) if wrapped else noise)):
        assert isinstance(one, Reading | Event | Reject)


def test_it_is_recognised_by_its_first_record() -> None:
    """The version that every writer puts first."""
    assert detect(start(T0)).collector is tensorboard.COLLECTOR
    assert tensorboard.detect(b"brain.Event:2 is what it begins with") is None


# -- following ---------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, "*tfevents*")


def test_a_torn_record_waits_for_its_rest(world: World, tmp_path: Path) -> None:
    """Only whole records come, whatever line feeds they hold, also with `final`."""
    whole = start(T0) + steps(1, 50, at_s=T0) + scalars(T0, 10, **{"a\nb": 10.0})
    path = tmp_path / "events.out.tfevents.1.h.1.0"
    got = b""
    chance = random.Random(1)
    at = 0
    while at < len(whole):
        end = min(len(whole), at + chance.randrange(1, 900))
        with path.open("ab") as file:
            file.write(whole[at:end])
        at = end
        got += world.poll()
        assert got == whole[: max((cut for cut in cuts(whole) if cut <= end), default=0)] or end < 256
    assert got == whole
    with path.open("ab") as file:
        file.write(record(b"x" * 50)[:30])
    assert world.poll(final=True) == b""


def test_records_beyond_a_block_are_passed_over(world: World, tmp_path: Path) -> None:
    """A graph of a megabyte is no scalar; what follows it is read."""
    big = record(b"g" * (BLOCK_BYTES + 5))
    tail = scalars(T0, 3, loss=1.0)
    (tmp_path / "x.tfevents").write_bytes(start(T0) + big + tail)

    data = world.poll()

    assert data == start(T0) + tail
    assert sum(chunk.too_long_bytes for chunk in world.chunks) == len(big)


def test_space_that_nobody_filled_yet_is_waited_for(world: World, tmp_path: Path) -> None:
    """A file system may give the space before the bytes arrive."""
    first, rest = start(T0) + steps(1, 9, at_s=T0), scalars(T0, 10, loss=1.0)
    path = tmp_path / "x.tfevents"
    path.write_bytes(first + bytes(len(rest)))
    assert world.poll() == first

    path.write_bytes(first + rest)
    assert world.poll() == rest


# -- a whole run -------------------------------------------------------------------------------------


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A folder with the event files of two attempts: the second one does ten steps again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRACKER_CONFIG", raising=False)
    (tmp_path / "tb").mkdir()
    first = start(T0) + steps(1, 100, at_s=T0 + 60)
    second = start(T0 + 1000) + steps(91, 150, at_s=T0 + 1060)
    (tmp_path / "tb" / "events.out.tfevents.1767254400.n1.11.0").write_bytes(first)
    (tmp_path / "tb" / "events.out.tfevents.1767255400.n1.22.0").write_bytes(second)
    (tmp_path / "run.toml").write_text(
        '[run]\nname = "tb"\n[model]\nsequence_length = 4096\n[[source]]\npath = "tb/*"\n'
    )

    def run(*words: str) -> Any:
        done = CliRunner().invoke(root, words)
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


def test_a_file_for_each_attempt_makes_a_ledger(call: Callable[..., Any]) -> None:
    """Redone steps are lost, the clock is the files' own, GPUs and batch are the tags'."""
    call("ingest")

    ledger = json.loads(call("ledger", "--json", "--as-of", "2026-01-01T08:20:00Z"))
    status = json.loads(call("status", "--json", "--as-of", "2026-01-01T08:20:00Z"))

    assert [(one["start"], one["last_step"], one["gpus"]) for one in ledger["attempts"]] == [
        ("2026-01-01T08:00:00Z", 100, 16),
        ("2026-01-01T08:16:40Z", 150, 16),
    ]
    assert status["steps"]["net"] == 150
    assert status["steps"]["processed"] == 160
    assert status["tokens"]["net"] == 150 * 128 * 4096


def test_trying_one_says_what_it_holds(call: Callable[..., Any], tmp_path: Path) -> None:
    """`tracker collectors test` reads it as it would be followed."""
    (path, _) = sorted((tmp_path / "tb").iterdir())

    told = json.loads(call("collectors", "test", str(path), "--json"))

    assert told["collector"] == "tensorboard"
    assert (told["first_step"], told["last_step"], told["processes"]) == (1, 100, 1)
