"""The generic record: its documentation holds, other names are understood, a chronicle of facts is a log."""

from __future__ import annotations

import csv
import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import detect, jsonl
from collectors._aliases import FIELDS, RATES, plan
from collectors._facts import KINDS, PLAIN, WORDS, time_of
from tracker.core.records import CAUSES, END_KINDS, SETTINGS, Event, Flag, Kind, Reading, Record, Reject
from tracker.core.segments import Segmenter
from tracker.interfaces import Context

DOCS = Path(__file__).parents[1] / "docs" / "jsonl.md"
T0 = 1_772_442_000  # 2026-03-02T09:00:00Z


def read(*lines: dict[str, Any] | str, **options: Any) -> list[Record]:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    return list(jsonl.parse(text.encode(), Context(options=options)))


def reading(*lines: dict[str, Any] | str, **options: Any) -> Reading:
    (found,) = (r for r in read(*lines, **options) if isinstance(r, Reading))
    return found


# -- the documentation -----------------------------------------------------------------------------------


def documented() -> str:
    return DOCS.read_text()


def examples() -> list[str]:
    blocks = re.findall(r"```json\n(.*?)```", documented(), re.S)
    return [line for block in blocks for line in block.splitlines()]


def test_every_documented_record_is_read() -> None:
    """No example is rejected, and each yields something."""
    for line in examples():
        records = read(line)
        assert records, line
        assert not [r for r in records if isinstance(r, Reject)], line


def test_one_line_happens_at_one_moment() -> None:
    """A step to go on from that has no time of its own would be known only with the next reading."""
    attempt = read({"kind": "attempt", "start": "2026-03-02T09:00:00Z", "gpus": 8, "resumed_from": 20})
    again = read({"kind": "restart", "at": "2026-03-02T09:00:00Z", "step": 20, "gpus": 8, "cause": "gpu"})

    for records in (attempt, again):
        assert {r.kind for r in records if isinstance(r, Event)} >= {Kind.SETTING, Kind.RESUME}
        assert [r.at_us for r in records if isinstance(r, Event)] == [T0 * 1_000_000] * len(records)


def test_examples_show_every_kind_and_every_word() -> None:
    """A word that the parser knows and the page does not is a secret."""
    bodies = [json.loads(line) for line in examples()]
    assert {body["kind"] for body in bodies} == {*KINDS, "reading"}
    assert {*PLAIN, *WORDS} <= set(re.findall(r"`([a-z_]+)`", documented()))
    assert {body["event"] for body in bodies if "event" in body} >= set(PLAIN)


def test_the_page_lists_all_names_settings_and_causes() -> None:
    """The tables of the page are those of the code."""
    page = documented()
    for field, names in FIELDS.items():
        if field != "rate":
            assert f"| {field} | {', '.join(f'`{name}`' for name in names)} |" in page
    for words in (sorted(SETTINGS), END_KINDS, CAUSES):
        assert ", ".join(f"`{word}`" for word in words) in page
    for option in jsonl.COLLECTOR.options:
        assert re.search(rf"^{option} = ", page, re.M), option


# -- names, units, times ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["step", "global_step", "_step", "iteration", "iter", "num_updates", "trainer/global_step",
     "train/global_step", "batch", "Step", "train.step", "train step"],
)  # fmt: skip
def test_a_step_by_any_name(name: str) -> None:
    """Also as text, and as a float that is whole."""
    for value in (7, "7", 7.0):
        assert reading({name: value}).step == 7


def test_the_better_name_wins_whatever_the_order() -> None:
    """wandb's own counter and a batch size are steps only where nothing better is there."""
    assert reading({"_step": 3, "train/global_step": 100}).step == 100
    assert reading({"batch": 512, "iter": 9}).step == 9
    assert reading({"train_tokens": 5, "step": 1, "tokens": 6}).tokens == 6


@pytest.mark.parametrize(
    ("name", "value", "us"),
    [
        ("step_time_s", 1.5, 1_500_000),
        ("step_time", 1.5, 1_500_000),
        ("step_time_ms", 1500, 1_500_000),
        ("iter_time (ms)", "1500.0", 1_500_000),
        ("train_step_timing in s", 1.5, 1_500_000),
        ("perf/seconds_per_step", 1.5, 1_500_000),
        ("ms_per_step", 1500, 1_500_000),
        ("step_time_us", 1500, 1500),
        ("step_time_ns", 1_500_000, 1500),
        ("step_time_min", 0.5, 30_000_000),
    ],
)
def test_a_step_time_carries_its_unit(name: str, value: object, us: int) -> None:
    """In the name, before or behind; none is seconds."""
    assert reading({"step": 1, name: value}).step_time_us == us


@pytest.mark.parametrize(
    ("record", "options", "flag"),
    [
        ({"step_time_s": 1.0, "at": T0 + 0.5}, {}, Flag.STEP_TIME_EXCLUDES),
        ({"iter_time": 1.0, "at": T0 + 0.5}, {}, Flag.STEP_TIME_SAMPLE),
        ({"iter_time": 1.0}, {}, Flag.STEP_TIME_EXCLUDES),
        ({"step_time_s": 1.0, "at": T0 + 0.5}, {"step_time": "includes"}, Flag.STEP_TIME_INCLUDES),
        ({"iter_time": 1.0, "at": T0 + 0.5}, {"step_time": "excludes"}, Flag.STEP_TIME_EXCLUDES),
        ({"step_time_s": 1.0}, {"step_time": "sample"}, Flag.STEP_TIME_SAMPLE),
    ],
    ids=["our-name-is-a-mean", "others-are-a-sample", "unless-no-clock-is-there", "told-includes",
         "told-excludes", "told-sample"],
)  # fmt: skip
def test_what_a_step_time_covers(record: dict[str, Any], options: dict[str, str], flag: Flag) -> None:
    """The source's word, then the documented name, then caution."""
    assert reading({"step": 1} | record, **options).flags == flag


@pytest.mark.parametrize(
    "value",
    ["2026-03-02T09:00:00Z", "2026-03-02 10:00:00+01:00", "2026-03-02T09:00:00.000", "2026-03-02T09:00Z",
     T0, float(T0), T0 * 1000, T0 * 10**6, T0 * 10**9, str(T0), f"{T0}.0"],
)  # fmt: skip
def test_one_moment_in_many_spellings(value: object) -> None:
    """Numbers are told apart by size: 2000..2100 in one unit is in no other."""
    for name in ("at", "timestamp", "_timestamp", "ts", "time"):
        assert reading({"step": 1, name: value}).at_us == T0 * 10**6, name


def test_whole_seconds_are_flagged() -> None:
    """The true time then lies anywhere in that second."""
    for value, whole in (("2026-03-02T09:00:00Z", 1), ("2026-03-02T09:00:00.5Z", 0), (T0, 1), (T0 + 0.0, 0)):
        assert reading({"step": 1, "at": value}).flags & Flag.WHOLE_SECOND == whole


@given(st.integers(946_684_800_000_000, 4_102_444_799_999_999))
def test_a_moment_written_in_microseconds_is_read_back(at_us: int) -> None:
    """As a number, and as ISO text with or without its zone."""
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=at_us)
    for value in (at_us, moment.isoformat(), moment.replace(tzinfo=None).isoformat()):
        assert time_of(value, Context(), sure=True)[0] == at_us


@given(
    st.dictionaries(
        st.sampled_from(["step", "kind", "at", "tokens", "event", "cause", "end", "start", "step_time_s",
                         "tps", "gpus", "mode", "resumed_from", "duration_s", "end_kind", "loss", "samples"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
        | st.sampled_from(["attempt", "event", "restart", "end", "setting", "checkpoint", "resume"])
        | st.lists(st.integers(), max_size=2)
        | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    )
)  # fmt: skip
def test_any_value_under_any_key_is_data(body: dict[str, Any]) -> None:
    """Wrong types give a reject or nothing; what comes out is within the store's bounds."""
    for record in read(body):
        if isinstance(record, Reading):
            assert 0 <= record.step < 2**62
            assert all(type(n) is int for n in (record.step, record.tokens or 0, record.samples or 0))
        elif isinstance(record, Event):
            json.dumps(dict(record.data), allow_nan=False)
            assert record.at_us is None or 946_684_800_000_000 <= record.at_us < 4_102_444_800_000_000


numbers = st.integers(0, 2**60) | st.floats(0.001, 1e6)


@given(
    st.dictionaries(
        st.sampled_from(["tokens", "samples", "global_batch_size", "skipped", "tokens_per_step",
                         "step_time_s", "loss", "at", "note"]),
        numbers | st.none() | numbers.map(str),
    ),
    st.integers(0, 2**60),
)  # fmt: skip
def test_the_short_cut_reads_as_the_long_way_does(body: dict[str, Any], step: int) -> None:
    """A record that says its kind takes the long way, the same one without takes the short cut if it can."""
    short = read({"step": step} | body)
    long = read({"step": step} | body | {"kind": "reading"})
    assert [r[1:] if isinstance(r, Reading) else r for r in short] == [
        r[1:] if isinstance(r, Reading) else r for r in long
    ] or all(isinstance(r, Reject) for r in short + long)


# -- refused, passed over --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RATES)
def test_a_rate_is_refused_until_the_source_says_of_what(name: str) -> None:
    """Then it makes a step time, of the cluster or of its GPUs; before, the user is asked once."""
    first = {"step": 1, "gpus": 8, "tokens_per_step": 16_000, name: 1000}
    records = read(first, {"step": 2, name: 1000})
    assert [r.kind for r in records if isinstance(r, Event)] == [Kind.SETTING, Kind.NOTE]
    assert all(r.step_time_us is None for r in records if isinstance(r, Reading))
    assert reading(first, rate="cluster").step_time_us == 16_000_000
    assert reading(first, rate="device").step_time_us == 2_000_000


@pytest.mark.parametrize(
    "body",
    [
        {"step": 9, "eval/loss": 2.5},
        {"step": 9, "val_accuracy": 0.5, "epoch": 1},
        {"_step": 9, "system/gpu.0.temp": 66},
        {"step": 9, "mode": "val", "loss": 2.0},
        {"step": 9, "split": "validation"},
        {"kind": "eval", "step": 9},
        {"epoch": 1},
        {},
    ],
    ids=str,
)
def test_other_loops_are_passed_over_in_silence(body: dict[str, Any]) -> None:
    """Evaluation, the machine, and records without a step."""
    assert read(body) == []


@pytest.mark.parametrize(
    "line",
    [
        '{"kind": "attempt", "job_id": "\\ud800", "gpu_name": "\\udfff", "x": NaN}',
        '{"kind": "event", "event": "failure", "cause": "\\ud800", "host": "\\ud800", "x": NaN}',
        '{ "kind": "end", "end_kind": "completed", "text": "half \\ud83d", "x": NaN}',
    ],
)
def test_half_a_character_becomes_one_that_can_be_stored(line: str) -> None:
    """Python's JSON reader lets lone surrogates through; UTF-8, and so the store, does not."""
    records = read(line)
    assert records
    for record in records:
        assert isinstance(record, Event)
        (record.text + json.dumps(dict(record.data), ensure_ascii=False)).encode()


def test_a_step_is_told_once() -> None:
    """Other ranks, and wandb's second call minutes later, repeat it; a step back is news."""
    steps = [r.step for r in read(*({"step": n, "at": T0 + i * 600} for i, n in enumerate((1, 2, 2, 3, 2))))
             if isinstance(r, Reading)]  # fmt: skip
    assert steps == [1, 2, 3, 2]


def test_shapes_are_remembered_within_bounds() -> None:
    """A logger with ever new keys does not fill the memory."""
    for n in range(5000):
        plan(("step", f"key {n}"))
    assert plan.cache_info().currsize <= 2048


# -- attempts --------------------------------------------------------------------------------------------


def segments(records: list[Record]) -> list[tuple[str, int | None, int | None, str | None]]:
    """Return (begun by, resumed from, last step, end kind) of each process, as the core cuts the file."""
    cutter = Segmenter()
    cutter.feed(r for r in records if isinstance(r, Reading | Event))
    return [
        (s.begun_by, s.resume_step, s.last_reading.step if s.last_reading else None, s.end_kind)
        for s in cutter.segments
    ]


def test_an_end_stated_in_front_reaches_its_attempt() -> None:
    """What ends a process stands before what begins the next one, though one record says both."""
    records = read(
        {"kind": "attempt", "start": T0, "end": T0 + 3600, "cause": "gpu", "resumed_from": 0},
        {"step": 100, "at": T0 + 3000},
        {"kind": "attempt", "start": T0 + 4000, "resumed_from": 90},
        {"step": 200},
        {"kind": "end", "at": T0 + 9000, "end_kind": "operator"},
    )
    assert segments(records) == [("launch", 0, 100, "failed"), ("launch", 90, 200, "operator")]


def test_a_restart_ends_one_process_and_begins_the_next() -> None:
    """The failure belongs to the process before it, also in its place in the file."""
    records = read(
        {"kind": "attempt", "start": T0, "resumed_from": 0},
        {"step": 100},
        {"kind": "restart", "at": T0 + 100, "step": 90, "cause": "gpu", "gpus": 8},
        {"step": 95},
        {"kind": "restart", "at": T0 + 200, "step": 90, "cause": "operator"},
    )
    assert segments(records) == [
        ("launch", 0, 100, "failed"),
        ("restart", 90, 95, "operator"),
        ("restart", 90, None, None),
    ]
    failure = next(r for r in records if isinstance(r, Event) and r.kind is Kind.FAILURE)
    restart = next(r for r in records if isinstance(r, Event) and r.kind is Kind.RESTART)
    assert failure.offset < restart.offset


# -- a published run, given by facts ---------------------------------------------------------------------

CAUSE = {
    "node_failure": "chassis", "node_and_filesystem_failure": "storage", "hang_network_suspected": "network",
    "nvlink_error": "gpu", "divergence": "divergence", "gradient_spike": "divergence",
    "cluster_maintenance": "host_maintenance", "software_fix": "software",
}  # fmt: skip


def glm130b(folder: Path) -> list[dict[str, Any]]:
    """Return the run as documented records: each attempt with its end, and the steps that it kept."""
    events, attempts = ((folder / name).read_text().splitlines() for name in ("events.csv", "attempts.csv"))
    causes = {row["log_name_utc"]: CAUSE.get(row["cause"], "operator") for row in csv.DictReader(events)}
    out: list[dict[str, Any]] = []
    for row in csv.DictReader(attempts):
        start, end = moment(row["frm"]), moment(row["to"])
        out.append(
            {"kind": "attempt", "start": start, "gpus": 768, "resumed_from": int(row["step0"]), "end": end,
             "cause": causes[row["to"]]}
        )  # fmt: skip
        if int(row["kept_steps"]):
            out.append({"kind": "reading", "at": end, "step": int(row["step1"])})
    return out


def moment(name: str) -> str:
    return dt.datetime.strptime(name + "+0000", "%Y.%m.%d-%H:%M:%S%z").isoformat()


@pytest.mark.shared
def test_a_chronicle_is_a_log_like_any_other(shared_data: Path) -> None:
    """GLM-130B: 23 attempts, five of which kept nothing, 48,100 net steps, no record rejected."""
    records = read(*glm130b(shared_data / "glm130b"))
    assert not [r for r in records if isinstance(r, Reject)]
    found = segments(records)
    assert len(found) == 23
    assert sum(1 for _, _, last, _ in found if last is None) == 5
    kept = sum(last - (resumed or 0) for _, resumed, last, _ in found if last is not None)
    assert kept == 48_100
    launches = [r for r in records if isinstance(r, Event) and r.kind is Kind.LAUNCH]
    days = ((launches[-1].at_us or 0) - (launches[0].at_us or 0)) / 86_400e6
    assert days == pytest.approx(47.72, abs=0.01)
    assert detect("\n".join(map(json.dumps, glm130b(shared_data / "glm130b"))).encode()).collector is not None
