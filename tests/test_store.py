"""What goes into the store comes out unchanged, all of it or nothing."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store_help import T0, add_stream, batch, dump, event, make_store, reading
from tracker.core.records import LARGEST, Event, Kind, Reading, Reject, SchedulerRow
from tracker.core.segments import Segment
from tracker.store import Mark, Reader, Store, Writer
from tracker.store.commit import OTHER_REASON, REASONS_KEPT, REJECTS_KEPT
from tracker.store.errors import StoreBusy, StoreCorrupt, StoreGone, StoreMissing, StoreNewer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_store(tmp_path)


@pytest.fixture
def writer(path: Path) -> Any:
    with Store.open_writer(path) as opened:
        yield opened


@pytest.fixture
def reader(path: Path, writer: Writer) -> Any:
    with Store.open_reader(path) as opened:
        yield opened


def segment(ordinal: int = 0, **changes: Any) -> Segment:
    return Segment(**{"ordinal": ordinal, "first_offset": 0, "begun_by": "file", **changes})


# -- records come back ------------------------------------------------------------------------------------

COUNT = st.none() | st.integers(0, LARGEST - 1)
READING = st.builds(
    Reading,
    offset=st.integers(0, 2**40 - 1),
    at_us=st.none() | st.integers(-(2**62), 2**62),
    step=st.integers(0, LARGEST - 1),
    step_time_us=st.none() | st.integers(1, LARGEST - 1),
    samples=COUNT,
    tokens=COUNT,
    batch=COUNT,
    skipped=st.integers(0, 2**40),
    flags=st.integers(0, 255),
    reported_flop_per_s=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    tokens_per_step=COUNT,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
EVENT = st.builds(
    Event,
    offset=st.integers(0, 2**40 - 1),
    kind=st.sampled_from(Kind),
    at_us=st.none() | st.integers(-(2**62), 2**62),
    step=st.none() | st.integers(0, LARGEST - 1),
    duration_us=st.none() | st.integers(0, LARGEST - 1),
    data=st.dictionaries(st.text(max_size=5), JSON, max_size=3),
    text=st.text(max_size=40).filter(lambda text: "\ud800" not in text),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(
    readings=st.lists(READING, max_size=8, unique_by=lambda r: r.offset), events=st.lists(EVENT, max_size=5)
)
def test_records_come_back_equal_and_in_file_order(
    writer: Writer, reader: Reader, readings: list[Reading], events: list[Event]
) -> None:
    """Whatever a record holds, None and large numbers included, it is the same after the store."""
    readings.sort(key=lambda r: r.offset)
    events.sort(key=lambda e: e.offset)
    stream = add_stream(writer)
    writer.commit([batch(stream, readings=readings, events=events)])

    assert list(reader.readings(stream)) == readings
    assert list(reader.events(stream)) == events


@pytest.mark.parametrize("rate", [math.nan, math.inf, -math.inf], ids=["nan", "inf", "minus-inf"])
def test_a_rate_that_is_no_number_becomes_unknown_on_purpose(
    writer: Writer, reader: Reader, rate: float
) -> None:
    """SQLite would turn NaN into NULL by itself and keep infinity; both mean that the log said nothing."""
    stream = add_stream(writer)
    writer.commit([batch(stream, readings=[reading(0, reported_flop_per_s=rate), reading(1)])])

    assert [r.reported_flop_per_s for r in reader.readings(stream)] == [None, 412.3e12]


def test_a_nan_inside_data_stays_a_nan(writer: Writer, reader: Reader) -> None:
    """A loss that is not a number is a fact that a person wants to see, not an absent one."""
    stream = add_stream(writer)
    writer.commit([batch(stream, events=[event(0, data={"loss": math.nan, "norm": math.inf})])])

    (found,) = reader.events(stream)
    assert math.isnan(found.data["loss"])  # type: ignore[arg-type]
    assert found.data["norm"] == math.inf


def test_text_that_no_encoding_holds_is_stored_all_the_same(writer: Writer, reader: Reader) -> None:
    """Half a surrogate pair, as JSON can smuggle it in, becomes a question mark; NUL stays."""
    stream = add_stream(writer)
    row = SchedulerRow(job_id="1\ud800", start_us=T0, comment="a\0b")
    writer.commit([batch(stream, events=[event(0, text="x\udfffy\0z")], scheduler_rows=[row])])

    assert [e.text for e in reader.events(stream)] == ["x?y\0z"]
    assert [(r.job_id, r.comment) for r in reader.scheduler_rows()] == [("1?", "a\0b")]


def test_ranges_are_half_open(writer: Writer, reader: Reader) -> None:
    """start <= offset < end, so that ranges tile; other streams never show."""
    one, two = add_stream(writer), add_stream(writer)
    for stream in (one, two):
        writer.commit([
            batch(stream, readings=[reading(n) for n in range(5)], events=[event(n) for n in range(5)])
        ])

    assert [r.offset for r in reader.readings(one, start=200, end=600)] == [200, 400]
    assert [e.offset for e in reader.events(two, start=201)] == [400, 600, 800]
    assert [r.offset for r in reader.readings(one, start=200, end=200)] == []
    assert len(list(reader.readings(two, end=10**18))) == 5


def test_several_records_of_one_line_are_all_kept_in_order(writer: Writer, reader: Reader) -> None:
    """One line may say several things; also when they come in two transactions."""
    stream = add_stream(writer)
    kinds = [Kind.LAUNCH, Kind.SETTING, Kind.RESUME]
    for kind in kinds:
        writer.commit([batch(stream, events=[event(3, kind)])])

    assert [e.kind for e in reader.events(stream)] == kinds


def test_a_seventeenth_record_of_one_line_is_left_out(writer: Writer, reader: Reader) -> None:
    """No line says that much; the place of a record has room for sixteen."""
    stream = add_stream(writer)
    writer.commit([batch(stream, events=[event(3) for _ in range(20)])])

    assert len(list(reader.events(stream))) == 16


# -- all or nothing ---------------------------------------------------------------------------------------


def test_the_same_records_again_change_nothing(path: Path, writer: Writer, reader: Reader) -> None:
    """A file read a second time meets its own rows."""
    stream = add_stream(writer)
    again = [reading(n) for n in range(3)]
    writer.commit([batch(stream, readings=again)])
    writer.close()
    with Store.open_writer(path) as second:
        before = second.stream(stream)
        second.commit([batch(stream, readings=again[:2])])
        after = second.stream(stream)

    assert list(reader.readings(stream)) == again
    assert before.readings == after.readings == 3


def test_an_error_in_the_middle_leaves_the_store_as_it_was(path: Path, writer: Writer) -> None:
    """Rows, position, parser memory, segments and counters commit together or not at all."""
    stream = add_stream(writer)
    writer.commit([batch(stream, offset=600, readings=[reading(0)], segments=[segment()], context={"a": 1})])
    before = dump(path)
    good = batch(stream, offset=900, readings=[reading(1)], context={"a": 2}, segments=[segment(1)])
    bad = batch(stream, readings=[reading(2, step=-1)])

    with pytest.raises(sqlite3.IntegrityError):
        writer.commit([good, bad])

    assert dump(path) == before
    writer.commit([good])
    assert writer.stream(stream).context == {"a": 2}
    assert [r.step for r in Store.open_reader(path).readings(stream)] == [10, 20]


def test_a_stream_goes_on_where_it_was(path: Path, writer: Writer) -> None:
    """All that a restarted sidecar needs comes back: position, memory, last segment, counters."""
    stream = add_stream(writer, collector=None, parser_version=None)
    writer.commit([
        batch(
            stream,
            offset=1234,
            position={"inode": 7, "head": "ff"},
            context={"pending": ["x", 1.5, None], "nan": math.inf},
            kind="log",
            collector="megatron",
            parser_version=3,
            evidence={"seen": 900, "text": "iteration"},
            segments=[segment(0), segment(1, settings={"gpus": 8})],
            readings=[reading(0)],
            events=[event(1)],
            rejects=[Reject(5, b"torn", "torn line")],
            lines=17,
            skipped=2,
        )
    ])
    writer.close()
    with Store.open_writer(path) as again:
        (found,) = again.streams()

    assert (found.offset, found.position, found.collector, found.parser_version) == (
        1234,
        {"inode": 7, "head": "ff"},
        "megatron",
        3,
    )
    assert found.context == {"pending": ["x", 1.5, None], "nan": math.inf}
    assert found.last_segment == segment(1, settings={"gpus": 8})
    assert (found.lines, found.readings, found.events, found.rejects, found.skipped) == (17, 1, 1, 1, 2)


def test_reading_again_from_the_start_replaces_what_was_there(writer: Writer, reader: Reader) -> None:
    """After a parser's fix the old rows go and the new ones come in one transaction; arrival stays."""
    stream = add_stream(writer, written_us=T0 - 5)
    other = add_stream(writer)
    writer.commit([batch(other, readings=[reading(0)])])
    old = [reading(n, samples=1) for n in range(3)]
    writer.commit(
        [batch(stream, readings=old, events=[event(1)], segments=[segment(0), segment(1)], lines=3,
               rejects=[Reject(0, b"x", "torn")])]
    )  # fmt: skip
    writer.commit(
        [batch(stream, reset=True, readings=[reading(5)], segments=[segment(0)], lines=1, kind="log",
               collector="megatron", parser_version=2)]
    )  # fmt: skip

    assert list(reader.readings(stream)) == [reading(5)]
    assert list(reader.events(stream)) == []
    assert reader.reject_counts() == {}
    assert len(list(reader.readings(other))) == 1
    found = next(s for s in reader.streams() if s.stream_id == stream)
    assert (found.parser_version, found.written_us, len(found.segments)) == (2, T0 - 5, 1)
    kept = writer.stream(stream)
    assert (kept.readings, kept.events, kept.lines, kept.rejects) == (1, 0, 1, 0)


# -- the scheduler ----------------------------------------------------------------------------------------


def row(job: str, start: int, **changes: Any) -> SchedulerRow:
    return SchedulerRow(job_id=job, start_us=T0 + start, **changes)


def test_later_documents_update_rows_and_vanished_ones_stay(writer: Writer, reader: Reader) -> None:
    """The scheduler's list slides on; what it once said of an allocation is kept."""
    stream = add_stream(writer, kind="scheduler", collector="slurm")
    first = [row("7", 0, state="RUNNING", gpus=8), row("8", 5, state="COMPLETED", end_us=T0 + 9)]
    writer.commit([batch(stream, scheduler_rows=first)])
    second = [row("7", 0, state="FAILED", end_us=T0 + 50, gpus=8), row("7", 60, state="RUNNING")]
    writer.commit([batch(stream, reset=True, scheduler_rows=second)])

    assert reader.scheduler_rows() == [second[0], first[1], second[1]]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["running-first", "ended-first"])
def test_two_sources_that_tell_of_one_job_agree_in_any_order(
    writer: Writer, reader: Reader, order: tuple[int, int]
) -> None:
    """The row that knows the end counts, whichever was read first."""
    told = [row("7", 0, state="RUNNING"), row("7", 0, state="TIMEOUT", end_us=T0 + 50)]
    for index in order:
        stream = add_stream(writer, kind="scheduler", source=index)
        writer.commit([batch(stream, scheduler_rows=[told[index]])])

    assert reader.scheduler_rows() == [told[1]]


# -- rejects ----------------------------------------------------------------------------------------------


def test_rejects_are_all_counted_and_a_few_of_each_reason_kept(writer: Writer, reader: Reader) -> None:
    """A flood of one reason must not hide another, nor fill the disk."""
    stream = add_stream(writer)
    for start in range(0, 1000, 100):
        flood = [Reject(n * 10, b"y" * 5000, "torn line") for n in range(start, start + 100)]
        writer.commit([batch(stream, rejects=flood)])
    writer.commit([batch(stream, rejects=[Reject(99_999, b"rare", "no step")])])

    assert reader.reject_counts() == {"no step": 1, "torn line": 1000}
    kept = reader.rejected(limit=10_000)
    assert len(kept) == REJECTS_KEPT + 1
    assert max(len(r.line) for r in kept) < 300
    assert (kept[-1].offset, kept[-1].line, kept[-1].stream_id) == (99_999, b"rare", stream)


def test_reasons_are_bounded_too(writer: Writer, reader: Reader) -> None:
    """A collector that puts a value into its reason cannot grow the table without limit."""
    stream = add_stream(writer)
    writer.commit([batch(stream, rejects=[Reject(n, b"", f"bad value {n}") for n in range(500)])])

    counts = reader.reject_counts()
    assert len(counts) == REASONS_KEPT + 1
    assert counts[OTHER_REASON] == 500 - REASONS_KEPT


# -- what a reader sees -----------------------------------------------------------------------------------


def test_a_snapshot_sees_one_state_while_the_writer_goes_on(writer: Writer, reader: Reader) -> None:
    """All answers of one page are of one moment, and the writer does not wait for them."""
    stream = add_stream(writer)
    writer.commit([batch(stream, readings=[reading(0)])])
    with reader.snapshot() as facts:
        before = facts.revision()
        writer.commit([batch(stream, readings=[reading(1)])])
        inside = (len(list(facts.readings(stream))), facts.revision())

    assert inside == (1, before)
    assert len(list(reader.readings(stream))) == 2
    assert reader.revision() == before + 1


def test_a_stream_without_records_is_no_stream_of_the_core(writer: Writer, reader: Reader) -> None:
    """An unrecognised or empty file is shown to people, and takes part in no answer."""
    unknown = add_stream(writer, collector=None, parser_version=None)
    add_stream(writer)

    assert reader.streams() == []
    assert [r.stream_id for r in reader.reports() if r.collector is None] == [unknown]


def test_changes_name_streams_segments_and_resets(writer: Writer, reader: Reader) -> None:
    """A reader that keeps a state brings it up to date from what changed alone."""
    one, two = add_stream(writer), add_stream(writer)
    writer.commit([batch(one, segments=[segment(0)]), batch(two, segments=[segment(0)])])
    start = reader.revision()
    assert reader.changes(start).streams == ()

    writer.commit([batch(one, segments=[segment(1)])])
    middle = reader.changes(start)
    assert [(c.stream_id, c.reset, list(c.segments)) for c in middle.streams] == [(one, False, [1])]
    assert not middle.scheduler

    writer.commit([batch(two, reset=True, segments=[segment(0)], scheduler_rows=[row("1", 0)])])
    last = reader.changes(middle.revision)
    assert [(c.stream_id, c.reset, list(c.segments)) for c in last.streams] == [(two, True, [0])]
    assert last.scheduler
    assert [c.stream_id for c in reader.changes(start).streams] == [one, two]


def test_the_same_scheduler_rows_again_are_no_change(writer: Writer, reader: Reader) -> None:
    """A command that runs each minute and says the same must not wake anybody."""
    stream = add_stream(writer, kind="scheduler")
    rows = [row("7", 0, state="RUNNING", data={"tres": "gres/gpu=8"})]
    writer.commit([batch(stream, scheduler_rows=rows)])
    before = reader.revision()
    writer.commit([batch(stream, reset=True, scheduler_rows=rows)])

    assert not reader.changes(before).scheduler


def test_a_reader_cannot_write(reader: Reader) -> None:
    """Read-only is the connection's nature, not our discipline."""
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader._connection.execute("INSERT INTO meta VALUES ('a', 'b')")


def test_a_reader_survives_the_file_being_replaced(tmp_path: Path, path: Path, reader: Reader) -> None:
    """After a restore the next snapshot reads the new file; a deleted one is named."""
    other = make_store(tmp_path, "other.db")
    with Store.open_writer(other) as second:
        second.commit([batch(add_stream(second), readings=[reading(0)])])
    other.rename(path)
    with reader.snapshot() as facts:
        assert len(facts.streams()) == 1
    path.unlink()
    with pytest.raises(StoreGone, match="was deleted"), reader.snapshot():
        pass


def test_a_writer_refuses_to_write_into_a_deleted_file(path: Path, writer: Writer) -> None:
    """SQLite would go on writing where nobody can read; we say so."""
    stream = add_stream(writer)
    path.unlink()

    with pytest.raises(StoreGone, match="deleted, moved or replaced"):
        writer.commit([batch(stream)])


# -- caches -----------------------------------------------------------------------------------------------


def _overwritten(path: Path) -> None:
    path.write_bytes(b"x" * 8192)


def _of_a_newer_version(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version = 99")
    other.close()


@pytest.mark.parametrize(
    ("breaks", "error"),
    [
        pytest.param(Path.unlink, StoreGone, id="gone"),
        pytest.param(_overwritten, StoreCorrupt, id="overwritten"),
        pytest.param(lambda path: path.write_bytes(b""), StoreMissing, id="emptied"),
        pytest.param(_of_a_newer_version, StoreNewer, id="newer"),
    ],
)
def test_a_look_finds_what_became_of_the_file(
    path: Path, writer: Writer, breaks: Callable[[Path], object], error: type[Exception]
) -> None:
    """Each time it is asked, and without anything to write; what we wrote ourselves is no break."""
    stream = add_stream(writer)
    for offset in (0, 100):
        writer.commit([batch(stream, readings=[reading(offset)])])
        writer.look()
        writer.checkpoint(truncate=True)
        writer.look()
    breaks(path)
    for _ in range(2):
        with pytest.raises(error):
            writer.look()


def test_a_strangers_lock_is_waited_for_as_long_as_ours(path: Path) -> None:
    """Other runs of the process wait with it; a checkpoint in between changes nothing of that."""
    with Writer(path, wait_s=0.05) as writer:
        writer.checkpoint(truncate=True)
        assert writer._connection.execute("PRAGMA busy_timeout").fetchone() == (50,)
        stranger = sqlite3.connect(path, isolation_level=None)
        stranger.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match="locked by another process"):
            writer.put_meta("a", "b")
        stranger.close()
        writer.put_meta("a", "b")


def test_marks_belong_to_one_digest(writer: Writer, reader: Reader) -> None:
    """A mark made from other facts or another config is never given back."""
    marks = [Mark(position=n, step=n * 10, at_us=T0 + n, body=bytes([n])) for n in (3, 1, 2)]
    writer.put_marks("a", "d1", marks)
    writer.put_marks("b", "d1", marks[:1])

    assert [m.position for m in reader.marks("a", "d1")] == [1, 2, 3]
    assert reader.marks("a", "d2") == []
    writer.drop_marks("a", beyond=1)
    assert reader.marks("a", "d1") == [marks[1]]
    writer.put_marks("a", "d2", [marks[2]])
    assert (reader.marks("a", "d1"), reader.marks("a", "d2")) == ([], [marks[2]])
    writer.drop_marks()
    assert reader.marks("b", "d1") == []


def test_a_named_text_is_kept(writer: Writer, reader: Reader) -> None:
    """The last word under a name wins; an unknown name is None."""
    writer.put_meta("zone", "UTC")
    writer.put_meta("zone", "Europe/Berlin")

    assert (reader.meta("zone"), reader.meta("absent")) == ("Europe/Berlin", None)
