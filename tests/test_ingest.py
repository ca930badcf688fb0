"""From bytes on a disk to rows in a store: all of them, once, whatever happened in between."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import collectors
from tests.ingest_help import BY_NAME, World, source, world
from tests.simulator import preset, simulate
from tests.simulator.text import logs
from tests.store_help import T0, dump
from tracker.core.records import Event, Kind, Reading, Reject, SchedulerRow
from tracker.core.segments import Segmenter
from tracker.ingest import Ingest
from tracker.ingest.live import LIVE_STREAMS
from tracker.interfaces import Collector, Context, Evidence
from tracker.store import Store, StreamReport


def line(step: int, *, second: int = 0, samples: int | None = None, batch: int = 64) -> bytes:
    """Return a Megatron-LM iteration line of made-up values."""
    moment = dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC) + dt.timedelta(minutes=step, seconds=second)
    stamp = f"{moment:%Y-%m-%d %H:%M:%S}"
    return (
        f" [{stamp}] iteration {step:8d}/    1000 | consumed samples: {samples or step * batch:12d} | "
        f"elapsed time per iteration (ms): 6000.0 | throughput per GPU (TFLOP/s/GPU): 401.5 | "
        f"learning rate: 1.000000E-04 | global batch size: {batch:5d} | lm loss: 2.5E+00 | loss scale: 1.0 | "
        f"grad norm: 1.0 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    ).encode()


def log(first: int, last: int) -> bytes:
    """Return the iteration lines from one step to another, ten steps apart."""
    return b"".join(line(step) for step in range(first, last + 1, 10))


def steps(store: Path) -> list[int]:
    """Return the steps of all readings, stream by stream."""
    with Store.open_reader(store) as reader:
        return [
            r.step
            for s in sorted(reader.streams(), key=lambda s: s.stream_id)
            for r in reader.readings(s.stream_id)
        ]


def reports(store: Path) -> list[StreamReport]:
    with Store.open_reader(store) as reader:
        return reader.reports()


# -- the main path ----------------------------------------------------------------------------------------


def test_a_log_becomes_readings_and_a_segment(tmp_path: Path) -> None:
    """What the collector yields stands in the store, with where it came from."""
    there = world(tmp_path)
    data = log(10, 200)
    there.write("train.log", data)
    done = there.once()

    assert steps(there.store) == list(range(10, 201, 10))
    assert (done.rows >= 20, done.read_bytes, done.more) == (True, len(data), False)
    with Store.open_reader(there.store) as reader:
        (stream,) = reader.streams()
        assert (stream.collector, stream.file_name, stream.source) == ("megatron", "train.log", 0)
        assert stream.parser_version == BY_NAME["megatron"].version
        (segment,) = stream.segments
        assert (segment.readings, segment.begun_by) == (20, "file")
    (report,) = reports(there.store)
    assert (report.offset, report.lines, report.readings) == (len(data), 20, 20)
    assert "iteration" in str(report.evidence["why"])


def test_reading_again_changes_nothing(tmp_path: Path) -> None:
    """The same files, a second and a third time: the same content, not even a commit."""
    there = world(tmp_path)
    there.write("train.log", log(10, 200))
    there.once()
    before = dump(there.store)
    for final in (False, True):
        assert there.once(final=final).rows == 0
        assert dump(there.store) == before


def test_an_unterminated_line_waits_and_final_takes_it(tmp_path: Path) -> None:
    """Half a line is no line; at the end of a run its last one may lack the newline."""
    there = world(tmp_path)
    there.write("train.log", log(10, 50)[:-1])
    there.once()
    assert steps(there.store) == [10, 20, 30, 40]
    there.once(final=True)
    assert steps(there.store) == [10, 20, 30, 40, 50]


@pytest.mark.parametrize("pattern", ["*", "**"])
def test_the_widest_pattern_leaves_out_the_store_and_the_config(tmp_path: Path, pattern: str) -> None:
    """Neither is a log: not even unrecognised; nothing is left to read, however often the store grows."""
    there = world(tmp_path, source(pattern=pattern))
    there.write("train.log", log(10, 50))
    config = tmp_path / "run.toml"
    config.write_text("[run]")
    there.open()
    assert there.writer is not None
    reading = Ingest(
        there.sources, BY_NAME, collectors.detect, there.writer, there.clock, root=tmp_path, skip=[config]
    )

    for _ in range(2):
        reading.once(final=True)
        health = reading.health()

        assert (health.files, health.unrecognised, health.lag_bytes) == (1, (), 0)
    reading.close()
    there.close()
    assert steps(there.store) == [10, 20, 30, 40, 50]


def test_a_growing_log_is_read_on_by_the_sidecar(tmp_path: Path) -> None:
    """Late files, growth and renames, in one process and over a restart."""
    there = world(tmp_path)
    there.poll()
    there.write("train.log", log(10, 50))
    there.poll()
    there.write("train.log", log(60, 80), append=True)
    there.poll()
    there.close()
    (tmp_path / "train.log").rename(tmp_path / "train.log.1")
    there.write("train.log.1", log(90, 100), append=True)
    there.write("train.log", log(110, 130))
    there.poll()
    there.close()

    assert sorted(steps(there.store)) == list(range(10, 131, 10))
    assert {r.file_name for r in reports(there.store)} == {"train.log"}


@pytest.mark.slow
@pytest.mark.parametrize("style", ["llama_like", "ramp"])
def test_pieces_kills_and_restarts_leave_the_same_store(tmp_path: Path, style: str) -> None:
    """A simulated run's files read in one go, or in pieces with the process gone between them."""
    texts = logs(simulate(preset(style, seed=3)))
    whole, torn = (world(tmp_path / name, source(pattern="logs/*")) for name in ("whole", "torn"))
    for name, text in texts.items():
        whole.write(f"logs/{name}", text)
    whole.once()
    for turn in range(8):
        for name, text in texts.items():
            size = len(text) // 8 + 1
            torn.write(f"logs/{name}", text[turn * size : (turn + 1) * size], append=True)
        torn.poll()
        if turn % 3 == 2:
            torn.close()
    torn.poll()
    torn.close()

    assert len(steps(whole.store)) > 100
    assert sorted(_content(torn, names=True), key=repr) == sorted(_content(whole, names=True), key=repr)


# -- cut anywhere -----------------------------------------------------------------------------------------

BANNER = (
    b"using world size: 64, data-parallel size: 8, tensor-model-parallel size: 8, "
    b"pipeline-model-parallel size: 1 \n"
)
CUT_LOG = (
    BANNER +
    b"  global_batch_size ............................... 64\n"
    b"[after model, optimizer, and learning rate scheduler are built] datetime: 2026-01-01 10:00:30 \n"
    b"[before the start of training step] datetime: 2026-01-01 10:00:40 \n"
    + line(10)
    + b"[rank3]: Traceback (most recent call last):\n"
    + line(20)
    + line(20, second=1)
    + b"  saving checkpoint at iteration      20 to /checkpoints in torch_dist format\n"
    + b"  successfully saved checkpoint from iteration      20 to /checkpoints [ t 1/8, p 1/1 ]\n"
    + line(30)
    + " progress  12%|█▏        | 12/100\r progress  13%|█▎        | 13/100\r".encode()
    + b"\n\xff\xfe not text \x00\x00\n"
    + b" [2026-01-01 10:40:00] iteration       40/    1000 | consumed sam\n"
    + b"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    + BANNER
    + b"  successfully loaded checkpoint from /checkpoints [ t 1/8, p 1/1 ] at iteration 20\n"
    + line(30, second=7)
    + line(40)
)  # fmt: skip


def _content(there: World, *, names: bool = False) -> list[tuple[Any, ...]]:
    """Return what each stream holds, without what tells streams apart."""
    found = []
    with Store.open_reader(there.store) as reader:
        streams = {s.stream_id: s for s in reader.streams()}
        rejected: dict[int, list[tuple[int, str, bytes]]] = {}
        for one in reader.rejected(limit=10**9):
            rejected.setdefault(one.stream_id, []).append((one.offset, one.reason, one.line))
        for report in reader.reports():
            number = report.stream_id
            segments = streams[number].segments if number in streams else ()
            found.append((
                report.file_name if names else "",
                list(reader.readings(number)),
                list(reader.events(number)),
                [s.to_json() for s in segments],
                rejected.get(number),
                (report.collector, report.offset, report.lines, report.readings, report.events),
                (report.rejects, report.skipped, report.evidence),
                json.loads(reader._all("SELECT context FROM stream WHERE stream_id = ?", (number,))[0][0]),
            ))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "every", [pytest.param(23, id="some-bytes"), pytest.param(1, id="every-byte", marks=pytest.mark.slow)]
)
def test_a_log_cut_anywhere_and_continued_is_the_whole_log(tmp_path: Path, every: int) -> None:
    """Each of the files is cut at another byte, read, then completed and read: all end up equal."""
    there = world(tmp_path)
    ends = [at for at in range(len(CUT_LOG)) if CUT_LOG[at : at + 1] in b"\n\r"]
    near = {at + d for at in ends for d in (0, 1, 2)} if every > 1 else set()
    cuts = sorted({*range(0, len(CUT_LOG), every), *near, len(CUT_LOG)})
    for cut in cuts:
        there.write(f"{cut:05d}.log", b"this is file %05d\n" % cut + CUT_LOG[:cut])
    there.once()
    for cut in cuts:
        there.write(f"{cut:05d}.log", CUT_LOG[cut:], append=True)
    there.once()

    found = _content(there)
    assert len(found) == len(cuts)
    assert len(CUT_LOG) > 2_500
    differing = [cut for cut, one in zip(cuts, found, strict=True) if one != found[-1]]
    assert differing == []
    whole = found[-1]
    assert [r.step for r in whole[1]] == [10, 20, 30, 30, 40]
    assert len(whole[3]) == 2
    assert whole[4], "the torn line is a reject"


@pytest.mark.parametrize("name", ["megatron", "jsonl"])
def test_damaged_input_is_counted_and_never_stops_anything(tmp_path: Path, name: str) -> None:
    """Empty, binary, huge lines, NUL bytes, a folder of that name, a log of something else."""
    there = world(tmp_path, source(collector=name))
    there.write("empty.log", b"")
    there.write("binary.log", bytes(range(256)) * 200)
    there.write("nul.log", log(10, 20) + b"\0" * 5000 + b"\n" + log(30, 40))
    there.write("huge.log", b"x" * 3_000_000 + b"\n" + log(10, 30))
    there.write("other.log", b"{'loss': 2.3, 'learning_rate': 1e-5, 'epoch': 0.1}\n" * 10)
    (tmp_path / "folder.log").mkdir()
    there.once(final=True)

    assert name != "megatron" or sorted(steps(there.store)) == [10, 10, 20, 20, 30, 30, 40]
    assert len(reports(there.store)) == 4
    assert sum(r.skipped for r in reports(there.store)) >= 1


# -- who reads it -----------------------------------------------------------------------------------------


def made(
    name: str, mark: bytes, *, score: int = 90, version: int = 1, kind: Any = "log", step: int = 1
) -> Collector:
    """Return a collector that claims files holding a mark, and reads a step for each `step` line."""

    def parse(block: bytes, context: Context) -> list[Any]:
        found: list[Any] = []
        at = context.offset
        for one in block.splitlines(keepends=True):
            words = one.split()
            if words[:1] == [b"step"]:
                found.append(
                    Reading(at, T0 + int(words[1]) * 1_000_000, int(words[1]) * step, skipped=version)
                )
            if words[:1] == [b"job"]:
                found.append(SchedulerRow(job_id=words[1].decode(), start_us=T0, state=words[2].decode()))
            if words[:1] == [b"boom"]:
                raise RuntimeError("a fault of the collector")
            if words[:1] == [b"zone"]:
                found.append(Event(offset=at, kind=Kind.NOTE, text=str(context.zone)))
            at += len(one)
        return found

    def detect(head: bytes) -> Evidence | None:
        return Evidence(score=score, text=mark.decode()) if mark in head else None

    return Collector(name=name, framework=name, version=version, parse=parse, detect=detect, kind=kind)


def known(*some: Collector) -> dict[str, Collector]:
    return {one.name: one for one in some}


def body(first: int, last: int) -> bytes:
    return b"".join(b"step %d\n" % n for n in range(first, last + 1))


def test_a_file_nobody_knows_is_shown_and_read_when_it_is_known(tmp_path: Path) -> None:
    """Nothing of it is lost: with its first telling line it is read from its start."""
    there = world(tmp_path, known=known(made("alpha", b"ALPHA")))
    there.write("a.log", body(1, 5))
    there.poll()
    assert there.ingest is not None
    assert [u.path for u in there.ingest.health().unrecognised] == ["a.log"]
    assert there.ingest.health().unrecognised_files == 1
    (report,) = reports(there.store)
    assert (report.collector, report.offset, report.readings) == (None, 0, 0)
    there.write("a.log", b"ALPHA\n" + body(6, 7), append=True)
    there.poll()

    assert steps(there.store) == [1, 2, 3, 4, 5, 6, 7]
    assert there.ingest.health().unrecognised == ()


def test_a_tie_is_refused_with_both_names_until_it_is_broken(tmp_path: Path) -> None:
    """Two collectors that claim a file equally: neither reads it, the user is told, more bytes may decide."""
    there = world(tmp_path, known=known(made("alpha", b"COMMON", score=50), made("beta", b"COMMON", score=50),
                                        made("gamma", b"GAMMA", score=95)))  # fmt: skip
    there.write("a.log", b"COMMON\n" + body(1, 5))
    there.poll()
    (shown,) = there.open_health().unrecognised
    assert "alpha" in shown.why
    assert "beta" in shown.why
    there.write("a.log", b"GAMMA\n", append=True)
    there.poll()

    assert steps(there.store) == [1, 2, 3, 4, 5]
    assert reports(there.store)[0].collector == "gamma"


@pytest.mark.parametrize("restart", [False, True])
def test_a_better_claim_within_the_head_reads_the_file_again(tmp_path: Path, restart: bool) -> None:
    """Which collector reads a file follows from its content, not from how it arrived."""
    some = known(made("alpha", b"COMMON", score=50), made("gamma", b"GAMMA", score=95, step=10))
    data = [b"COMMON\n" + body(1, 5), body(6, 30) + b"GAMMA\n", body(31, 40)]
    live = world(tmp_path / "live", known=some)
    for piece in data:
        live.write("a.log", piece, append=True)
        live.poll()
        if restart:
            live.close()
    once = world(tmp_path / "once", known=some)
    once.write("a.log", b"".join(data))
    once.once()

    assert reports(live.store)[0].collector == "gamma"
    assert [one[1:] for one in _content(live)] == [one[1:] for one in _content(once)]


@pytest.mark.slow
def test_beyond_its_head_a_file_keeps_its_collector(tmp_path: Path) -> None:
    """A later line that another format prints too changes nothing; the same read at once."""
    some = known(made("alpha", b"COMMON", score=50), made("gamma", b"GAMMA", score=95))
    data = b"COMMON\n" + body(1, 60_000)
    for name, pieces in (("live", [data, b"GAMMA\n"]), ("once", [data + b"GAMMA\n"])):
        there = world(tmp_path / name, known=some)
        for piece in pieces:
            there.write("a.log", piece, append=True)
            there.poll()
        assert reports(there.store)[0].collector == "alpha"
        there.close()


def test_the_config_names_the_collector_and_that_holds(tmp_path: Path) -> None:
    """No detection where [[source]] collector is set; naming another one later reads it again."""
    some = known(made("alpha", b"ALPHA"), made("beta", b"BETA", step=2))
    there = world(tmp_path, source(collector="beta"), known=some)
    there.write("a.log", b"ALPHA\n" + body(1, 3))
    there.once()
    assert (reports(there.store)[0].collector, steps(there.store)) == ("beta", [2, 4, 6])
    replace_source(there, source(collector="alpha"))
    there.once()
    assert (reports(there.store)[0].collector, steps(there.store)) == ("alpha", [1, 2, 3])
    replace_source(there, source())
    there.once()
    assert len(reports(there.store)) == 1


def replace_source(there: World, *sources: Any) -> None:
    there.sources = sources


def test_a_new_parser_version_reads_history_again_where_it_is(tmp_path: Path) -> None:
    """A fix reaches what was read before; of a file that is gone, what was read stays as it was."""
    there = world(tmp_path, known=known(made("alpha", b"ALPHA", version=1)))
    there.write("a.log", b"ALPHA\n" + body(1, 3))
    there.write("gone.log", b"ALPHA gone\n" + body(7, 9))
    there.once()
    kept_us = {r.file_name: r for r in reports(there.store)}
    (tmp_path / "gone.log").unlink()
    there.known = known(made("alpha", b"ALPHA", version=2))
    there.write("a.log", body(4, 4), append=True)
    there.once()

    with Store.open_reader(there.store) as reader:
        found = {s.file_name: s for s in reader.streams()}
        rows = {
            name: [(r.step, r.skipped) for r in reader.readings(s.stream_id)] for name, s in found.items()
        }
    assert rows == {"a.log": [(1, 2), (2, 2), (3, 2), (4, 2)], "gone.log": [(7, 1), (8, 1), (9, 1)]}
    assert (found["a.log"].parser_version, found["gone.log"].parser_version) == (2, 1)
    assert {s.stream_id for s in found.values()} == {r.stream_id for r in kept_us.values()}


def test_another_zone_reads_history_again(tmp_path: Path) -> None:
    """The zone of the config is an input of every stamp: changing it is like a parser's fix."""
    import zoneinfo

    there = world(tmp_path, known=known(made("alpha", b"ALPHA")))
    there.write("a.log", b"ALPHA\nzone\n")
    there.once()
    replace_source(there, source(zone=zoneinfo.ZoneInfo("Europe/Berlin")))
    there.once()
    with Store.open_reader(there.store) as reader:
        (stream,) = reader.streams()
        assert [e.text for e in reader.events(stream.stream_id)] == ["Europe/Berlin"]


def test_killed_between_the_decision_and_the_reading_it_is_read_at_the_next_start(tmp_path: Path) -> None:
    """A better claim drops the rows in one transaction; whoever dies then must not leave it at that."""
    some = known(made("alpha", b"COMMON", score=50), made("gamma", b"GAMMA", score=95))
    there = world(tmp_path, known=some)
    there.write("a.log", b"COMMON\n" + body(1, 5))
    there.poll()
    there.write("a.log", b"GAMMA\n" + body(6, 9), append=True)
    there.clock.wait(1.1)
    assert there.ingest is not None
    there.ingest.poll()
    there.close()  # before the pass that would read it again
    there.once()

    assert steps(there.store) == list(range(1, 10))
    assert reports(there.store)[0].collector == "gamma"


def test_a_collector_that_raises_stops_neither_itself_nor_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of ours is logged and shown as a reject; other files, and later lines, are read."""
    there = world(tmp_path, known=known(made("alpha", b"ALPHA")))
    there.write("a.log", b"ALPHA\n" + body(1, 2) + b"boom\n")
    there.write("b.log", b"ALPHA b\n" + body(1, 3))
    there.poll()
    there.write("a.log", body(5, 6), append=True)
    there.poll()

    assert sorted(steps(there.store)) == [1, 2, 3, 5, 6]
    with Store.open_reader(there.store) as reader:
        assert reader.reject_counts() == {"the collector failed on this part": 1}
    assert "a fault of the collector" in caplog.text


# -- records that cannot be true --------------------------------------------------------------------------


def test_numbers_that_cannot_be_true_become_rejects_and_the_rest_stays(tmp_path: Path) -> None:
    """Stamps of 1970 and 2106, 2^70 tokens, negative durations: never an error of the store."""
    year_2106 = 4_300_000_000_000_000
    hostile: list[Any] = [
        Reading(0, T0, 5, tokens=2**70),
        Reading(0, 0, 5),
        Reading(0, T0, -1),
        Reading(0, T0, 7, step_time_us=0),
        Event(offset=0, kind=Kind.LAUNCH, at_us=year_2106),
        Event(offset=0, kind=Kind.SAVE_END, at_us=T0, step=2**80, duration_us=-5),
        SchedulerRow(job_id="1", start_us=0),
        SchedulerRow(job_id="2", start_us=T0, gpus=2**70),
        SchedulerRow(job_id="3", start_us=T0, end_us=year_2106),
        Reject(0, b"x" * 10_000, "torn"),
        Reading(0, T0, 9),
        SchedulerRow(job_id="4", start_us=T0),
    ]
    collector = replace(made("alpha", b"ALPHA"), parse=lambda block, context: hostile)
    there = world(tmp_path, known=known(collector))
    there.write("a.log", b"ALPHA the line\n")
    there.once()

    with Store.open_reader(there.store) as reader:
        (stream,) = reader.streams()
        assert [r.step for r in reader.readings(stream.stream_id)] == [9]
        events = list(reader.events(stream.stream_id))
        assert [(e.kind, e.at_us, e.step, e.duration_us) for e in events] == [
            (Kind.LAUNCH, None, None, None),
            (Kind.SAVE_END, T0, None, None),
        ]
        assert [r.job_id for r in reader.scheduler_rows()] == ["4"]
        assert sum(reader.reject_counts().values()) == 4 + 2 + 3 + 1
        assert b"ALPHA the line" in {r.line for r in reader.rejected()}


# -- sources ----------------------------------------------------------------------------------------------


def test_streams_follow_their_source_when_the_config_is_reordered(tmp_path: Path) -> None:
    """The core finds a stream's settings by the place of its source: that place may move."""
    one, two = source(1, pattern="a*.log"), source(2, pattern="b*.log")
    there = world(tmp_path, one, two, known=known(made("alpha", b"ALPHA")))
    there.write("a.log", b"ALPHA a\n" + body(1, 1))
    there.write("b.log", b"ALPHA b\n" + body(2, 2))

    def places() -> dict[str, int]:
        return {r.file_name: r.source for r in reports(there.store)}

    there.once()
    assert places() == {"a.log": 0, "b.log": 1}
    replace_source(there, replace(two, number=1), replace(one, number=2))
    there.once()
    assert places() == {"a.log": 1, "b.log": 0}
    replace_source(there, source(1, pattern="c*.log"), replace(two, number=2))
    there.once()
    assert places() == {"a.log": 2, "b.log": 1}
    replace_source(there, source(1, pattern="[ac].log"), replace(two, number=2))
    there.once()
    assert places() == {"a.log": 0, "b.log": 1}


def test_the_last_log_source_can_go_while_a_scheduler_source_stays(tmp_path: Path) -> None:
    """What was read stays in the store; the file of the source that is gone is followed no more."""
    sacct = source(2, collector="slurm", pattern="sacct.txt")
    there = world(tmp_path, source(1), sacct)
    there.write("train.log", log(10, 50))
    there.write("sacct.txt", b"JobID|State|Start|End\n11|FAILED|2026-01-01T10:00:00|2026-01-01T11:00:00\n")
    there.once()
    replace_source(there, replace(sacct, number=1))
    there.write("train.log", log(60, 90), append=True)
    there.poll()
    health = there.open_health()
    there.close()

    assert steps(there.store) == [10, 20, 30, 40, 50]
    assert (health.files, health.lag_bytes) == (0, 0)
    assert [(s.number, s.files, s.up, s.problem) for s in health.sources] == [(1, 1, True, None)]


def test_a_file_of_a_source_that_is_gone_counts_for_no_other(tmp_path: Path) -> None:
    """Neither its bytes nor its lag: the source that stays has one file. Put back, it is read on."""
    one, two = source(1, pattern="a*.log"), source(2, pattern="b*.log")
    there = world(tmp_path, one, two)
    there.write("a.log", log(10, 50))
    there.write("b.log", log(110, 150))
    there.once()
    replace_source(there, replace(two, number=1))
    there.write("a.log", log(60, 90), append=True)
    there.poll()
    health = there.open_health()
    there.close()
    assert [(s.number, s.files, s.lag_bytes) for s in health.sources] == [(1, 1, 0)]
    assert steps(there.store) == [*range(10, 60, 10), *range(110, 160, 10)]

    replace_source(there, one, two)
    there.once()
    assert steps(there.store) == [*range(10, 100, 10), *range(110, 160, 10)]


def test_a_log_that_left_the_patterns_before_a_restart_counts_for_its_own_source(tmp_path: Path) -> None:
    """Renamed while nobody looked, it is read on, under the source that it came from."""
    there = world(tmp_path, source(1, pattern="a*.log"), source(2, pattern="b*.log"))
    there.write("a.log", log(1010, 1050))
    there.write("b.log", log(10, 50))
    there.once()
    there.write("b.log", log(60, 90), append=True).rename(tmp_path / "old-b.txt")
    there.poll()
    health = there.open_health()
    there.close()

    assert steps(there.store)[-9:] == list(range(10, 100, 10))
    assert [(s.number, s.files) for s in health.sources] == [(1, 1), (2, 1)]


def test_a_pass_ends_after_the_block_at_which_it_was_enough(tmp_path: Path) -> None:
    """Told to stop in a first read of much, it stores what it has; the next pass goes on there."""
    there = world(tmp_path)
    data = log(10, 100_000)  # several blocks
    there.write("train.log", data)
    ingest = there.open()
    asked: list[int] = []
    first = ingest.poll(enough=lambda: bool(asked.append(1)) or len(asked) == 2)
    stored = steps(there.store)

    assert first.more
    assert 0 < len(stored) < 10_000
    assert 0 < first.read_bytes < len(data) / 2
    rest = there.poll()
    there.close()
    assert not rest.more
    assert steps(there.store) == list(range(10, 100_001, 10))


def test_a_file_that_two_patterns_mean_is_read_once(tmp_path: Path) -> None:
    """Globs overlap; the first source has it."""
    there = world(tmp_path, source(1, pattern="train.log"), source(2, pattern="*.log"))
    there.write("train.log", log(10, 50))
    there.once()

    assert steps(there.store) == [10, 20, 30, 40, 50]
    assert [r.source for r in reports(there.store)] == [0]


def test_a_copy_of_a_log_is_not_read_twice(tmp_path: Path) -> None:
    """Rotation by copy and truncate: the copy holds what was read already."""
    there = world(tmp_path)
    there.write("train.log", log(10, 100))
    there.poll()
    (tmp_path / "train.log.1").write_bytes((tmp_path / "train.log").read_bytes())
    (tmp_path / "train.log").write_bytes(b"")
    there.poll()
    there.write("train.log", log(110, 130), append=True)
    there.poll()
    there.close()
    there.once()

    assert sorted(steps(there.store)) == list(range(10, 131, 10))


# -- health -----------------------------------------------------------------------------------------------


def test_health_counts_what_was_read_and_what_waits(tmp_path: Path) -> None:
    """For the metrics page: lines, bytes, rows, rejects, lag, unreadable files, sources without a file."""
    there = world(tmp_path, source(1), source(2, pattern="none/*.log"), source(3, pattern="packed.log.xz"))
    data = log(10, 40) + b" [2026-01-01 10:40:00] iteration       45/    1000 | consumed sam\n" + line(50)
    there.write("train.log", data + b"half a line")
    there.write("packed.log.xz", b"\xfd7zXZ\x00" + b"x" * 50)
    there.poll()
    assert there.ingest is not None
    health = there.ingest.health()

    assert (health.lines, health.read_bytes, health.readings) == (6, len(data), 5)
    assert sum(health.rejects.values()) == 1
    assert [(s.number, s.files, s.up) for s in health.sources] == [(1, 1, True), (2, 0, False), (3, 1, True)]
    assert health.sources[1].problem == "no file matches"
    assert health.sources[0].lag_bytes == len(b"half a line")
    assert [path for path, _ in health.unreadable] == ["packed.log.xz"]
    assert sum(health.unreadable_by_reason.values()) == 1
    assert health.last_pass_us == pytest.approx(there.clock.us, abs=1e6)
    assert health.problem is None


def test_progress_is_told(tmp_path: Path) -> None:
    """A long ingestion shows how far it is, and ends at its end."""
    there = world(tmp_path)
    there.write("train.log", log(10, 20_000))
    told: list[tuple[int, int]] = []
    ingest = there.open()
    ingest.once(told=lambda p: told.append((p.read_bytes, p.lag_bytes)))
    there.close()

    assert told[-1] == ((tmp_path / "train.log").stat().st_size, 0)
    assert [a for a, _ in told] == sorted(a for a, _ in told)


@pytest.mark.slow
def test_ten_thousand_streams_do_not_stay_in_memory(tmp_path: Path) -> None:
    """Parsers of files that rest are forgotten and come back from the store."""
    there = world(tmp_path, known=known(made("alpha", b"ALPHA")))
    for number in range(700):
        there.write(f"{number}.log", b"ALPHA %d\n" % number + body(1, 2))
    there.poll()
    assert isinstance(there.ingest, Ingest)
    assert len(there.ingest._logs._live) <= LIVE_STREAMS
    for number in range(700):
        there.write(f"{number}.log", body(3, 4), append=True)
    there.poll()

    assert sorted(steps(there.store)) == sorted([1, 2, 3, 4] * 700)
    with Store.open_reader(there.store) as reader:
        assert {len(s.segments) for s in reader.streams()} == {1}


def test_the_store_holds_what_the_segmenter_says(tmp_path: Path) -> None:
    """The stored segments are those of one segmenter fed with everything."""
    there = world(tmp_path)
    there.write("train.log", CUT_LOG)
    there.once()
    segmenter = Segmenter()
    context = Context(file_name="train.log")
    records = [r for r in BY_NAME["megatron"].parse(CUT_LOG, context) if isinstance(r, Reading | Event)]
    segmenter.feed(records)

    with Store.open_reader(there.store) as reader:
        (stream,) = reader.streams()
        assert list(stream.segments) == segmenter.segments
    assert collectors.detect(CUT_LOG).collector is BY_NAME["megatron"]


@pytest.mark.shared
def test_real_logs_are_recognised_by_their_content(tmp_path: Path, shared_data: Path) -> None:
    """Every published MLPerf result log, without a word in the config; read twice, nothing changes."""
    there = world(tmp_path, source(pattern=f"{shared_data}/mlperf/**/result_*.txt"))
    there.once(final=True)
    before = dump(there.store)
    assert there.once(final=True).rows == 0

    found = reports(there.store)
    assert len(found) == len(list(shared_data.glob("mlperf/**/result_*.txt"))) > 10
    assert {r.collector for r in found} == {"mllog"}
    assert min(r.readings for r in found) > 0
    assert dump(there.store) == before
