"""Several runs in one process: configs found, visited in turn, one failing alone, forecasts one at a time."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.test_exporter import FULL
from tests.test_sidecar import (
    CONFIG,
    Hands,
    Plain,
    Running,
    Stub,
    Unopened,
    a_config,
    a_sidecar,
    asked,
    until,
    values,
    write,
)
from tracker.answers import Answers, Shown, run_path
from tracker.config import Config, ConfigError, Listen, parse
from tracker.configs import Clash, Configs, NoConfigs, files_of, where_to_serve
from tracker.core.forecast.value import Forecast, Quantiles
from tracker.exporter import Exporter
from tracker.foresight import EVERY_OF_MANY_S, EVERY_S, FINISHED_S, Foresight
from tracker.gate import Gate
from tracker.member import LOOK_S
from tracker.parts import Edges, RunNow
from tracker.scheduler import RunJobs
from tracker.sidecar import SLICE_S
from tracker.store.errors import StoreInUse, StoreNewer
from tracker.store.lock import WriteLock
from tracker.vitals import JobVitals, Vitals


def of_run(exporter: Exporter, name: str) -> dict[str, float]:
    """Return a family's values by run."""
    return of_page(exporter.render()[0].decode(), name)


# -- the loop -------------------------------------------------------------------------------------------


def test_every_run_is_read_and_shown() -> None:
    """Three runs, three stores, one page."""
    works = {name: Stub([]) for name in "abc"}
    exporter = Exporter(version="0")
    a_sidecar([a_config(name) for name in "abc"], works, clock=Hands(4), exporter=exporter).run()

    assert of_run(exporter, "tracker_ready") == {"a": 1, "b": 1, "c": 1}
    assert all(work.reads >= 3 and work.closed == 1 for work in works.values())


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(StoreInUse("b is in use by another sidecar"), id="locked"),
        pytest.param(StoreNewer("b is of a newer version"), id="newer"),
    ],
)
def test_a_run_that_cannot_open_its_store_fails_alone(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so on the page; the other one is ready; and it comes back by itself."""
    works = {"a": Stub([]), "b": Stub([Unopened(error), Unopened(error)])}  # type: ignore[arg-type]
    exporter = Exporter(version="0")
    a_sidecar([a_config("a"), a_config("b")], works, clock=Hands(3), exporter=exporter).run()
    assert of_run(exporter, "tracker_store_up") == {"a": 1, "b": 0}
    assert of_run(exporter, "tracker_ready") == {"a": 1, "b": 0}
    assert f"b: {error}" in caplog.messages

    works = {"a": Stub([]), "b": Stub([Unopened(error), Unopened(error)])}  # type: ignore[arg-type]
    a_sidecar([a_config("a"), a_config("b")], works, clock=Hands(100), exporter=exporter).run()
    assert of_run(exporter, "tracker_store_up") == {"a": 1, "b": 1}


def test_a_run_with_much_to_read_leaves_the_others_their_turn() -> None:
    """It is told that it is enough after a bounded slice; alone it is not."""

    class Endless(Stub):
        def read(self, *, enough: Callable[[], bool]) -> tuple[bool, str]:
            began_s = clock.moment_s
            while not enough() and clock.moment_s < began_s + 10:
                clock.moment_s += 0.01
            slices.append(clock.moment_s - began_s)
            return True, ""

    slices: list[float] = []
    clock = Hands(5)
    other = Stub([])
    a_sidecar([a_config("a"), a_config("b")], {"a": Endless([]), "b": other}, clock=clock).run()
    assert slices[:4] == pytest.approx([SLICE_S] * 4, abs=0.02)
    assert other.reads >= 3  # every second turn: it came to rest a moment after the first

    slices.clear()
    clock = Hands(1)
    a_sidecar([a_config("a")], {"a": Endless([])}, clock=clock).run()
    assert slices == [pytest.approx(10, abs=0.02)]


class Oracle:
    """Forecasts that take a while; notes how many are made at once."""

    at_once: set[str] = set()  # noqa: RUF012  # all of them share it
    most = 0
    begun: list[str] = []  # noqa: RUF012

    def __init__(self, name: str) -> None:
        self.name = name
        self.problem = ""
        self.left = 0

    @property
    def busy(self) -> bool:
        return self.left > 0

    def begin(self, as_of_us: int) -> None:
        self.left = 3
        Oracle.at_once.add(self.name)
        Oracle.most = max(Oracle.most, len(Oracle.at_once))
        Oracle.begun.append(self.name)

    def poll(self) -> Forecast | None:
        if self.left == 0:
            return None
        self.left -= 1
        if self.left:
            return None
        Oracle.at_once.discard(self.name)
        return Forecast(as_of_us=1, basis="measured", finish_us=Quantiles(p10=1e15, p50=2e15, p90=3e15))

    def close(self) -> None:
        self.left = 0


def test_forecasts_are_made_one_at_a_time() -> None:
    """In the order in which they became due; each run is ready once it has its own."""
    Oracle.at_once, Oracle.most, Oracle.begun = set(), 0, []
    names = "abcd"
    works = {name: Stub([]) for name in names}
    configs = [replace(a_config(name), poll_s=5.0) for name in names]
    exporter, clock = Exporter(version="0"), Hands(40)
    a_sidecar(
        configs, works, clock=clock, exporter=exporter, outlooks={name: Oracle(name) for name in names}
    ).run()

    assert Oracle.begun == list(names)
    assert Oracle.most == 1
    assert set(of_run(exporter, "tracker_ready").values()) == {1}
    assert clock.waited.count(pytest.approx(LOOK_S)) >= 8  # looked at often while one is made
    assert EVERY_OF_MANY_S * 1000 / 1.5 > 20  # a thousand runs: below a twentieth of a core


@pytest.mark.parametrize(
    ("state", "moves", "news", "waits_s"),
    [
        pytest.param("running", True, False, [EVERY_S] * 3, id="a-run-that-goes-on"),
        pytest.param("finished", True, False, [FINISHED_S] * 3, id="a-finished-run-seldom"),
        pytest.param("finished", True, True, [EVERY_S] * 3, id="unless-something-new-is-read"),
        pytest.param("stalled", False, False, [], id="history-once"),
        pytest.param("stalled", False, True, [EVERY_S] * 3, id="and-again-with-new-facts"),
    ],
)
def test_a_forecast_is_made_anew_where_it_may_say_something_new(
    state: str, moves: bool, news: bool, waits_s: list[float]
) -> None:
    """By the steady clock; a run whose moment stands still gives the same answer to the same facts."""
    Oracle.at_once, Oracle.most, Oracle.begun = set(), 0, []
    clock, begun_s = Hands(10**9), []
    foresight = Foresight(Oracle("a"), clock=clock, gate=Gate())
    for turn in range(int(4 * FINISHED_S / 60)):
        clock.moment_s = 60.0 * turn
        snapshot = replace(FULL, state=state)
        now = RunNow(as_of_us=turn if moves else 0, snapshot=snapshot, settled=True, store_up=True)
        for _ in range(4):  # it takes three looks to come
            foresight.turn(now, revision=turn if news else 0, runs=1)
        begun_s += [clock.moment_s] * (len(Oracle.begun) - len(begun_s))
    assert [b - a for a, b in itertools.pairwise(begun_s)][:3] == waits_s


def test_the_gate_lets_one_through_in_the_order_they_came() -> None:
    """Who leaves without having been through is out of the queue."""
    gate = Gate()
    a, b, c = object(), object(), object()

    assert gate.enter(a)
    assert not gate.enter(b)
    assert not gate.enter(c)
    assert gate.enter(a)
    gate.leave(b)
    gate.leave(a)
    assert gate.is_open_for(c)
    assert not gate.is_open_for(b)
    gate.leave(c)
    gate.leave(c)
    assert not gate.is_open_for(c)


class Beside:
    """A part that notes its turns, or fails."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.problem = ""
        self.turns: list[RunNow] = []
        self.closed = False
        self.fails = fails

    @property
    def busy(self) -> bool:
        return False

    def attend(self, jobs: RunJobs) -> None:
        jobs.every("wakes", 3600.0, lambda: None)

    def turn(self, now: RunNow) -> None:
        self.turns.append(now)
        if self.fails is not None:
            raise self.fails

    def told(self, vitals: Vitals) -> Vitals:
        return replace(vitals, jobs=(*vitals.jobs, JobVitals(name="beside", failures=len(self.turns))))

    def close(self) -> None:
        self.closed = True


def test_a_part_has_its_turn_and_its_word() -> None:
    """It sees the run as it is, tells of itself on the page, and is closed in the end."""
    part, exporter = Beside(), Exporter(version="0")
    a_sidecar(
        [a_config("a"), a_config("b")], {"a": Stub([]), "b": Stub([])},
        clock=Hands(4), exporter=exporter, parts={"a": (part,)},
    ).run()  # fmt: skip

    assert part.closed
    assert part.turns[-1].settled
    assert part.turns[-1].snapshot is not None
    assert of_run(exporter, "tracker_job_failures_total")["a"] == len(part.turns)


@pytest.mark.parametrize(
    "error", [StoreNewer("no room for it"), ZeroDivisionError("a bug")], ids=["told", "bug"]
)
def test_a_part_that_fails_stops_nothing(error: Exception) -> None:
    """Neither its run nor the other parts; what is wrong is said on the run's page."""
    broken, well, exporter = Beside(error), Beside(), Exporter(version="0")
    clock = Hands(4)
    answers = Answers(exporter, Plain(), clock=clock)
    sidecar = a_sidecar(
        [a_config("a")], {"a": Stub([])}, clock=clock, exporter=exporter, parts={"a": (broken, well)}
    )
    sidecar._answers = answers
    sidecar.run()

    assert len(well.turns) == len(broken.turns) >= 3
    assert values(exporter)["tracker_ready"] == 1
    assert values(exporter)["tracker_store_errors_total"] == 0
    assert str(error) in json.loads(asked(answers, "/api/v1/runs")[1])["runs"][0]["problems"][0]


def test_who_announces_is_told_the_real_address_and_the_end() -> None:
    """With all runs, once at the start; a failing announcer stops nothing."""

    class Herald:
        def __init__(self) -> None:
            self.said: list[object] = []

        def listening(self, listen: Listen, runs: Sequence[str], *, tls: bool) -> None:
            self.said.append((listen.port > 0, tuple(runs), tls))
            raise OSError("disk full")

        def stopping(self) -> None:
            self.said.append("stopping")
            raise OSError("disk full")

    herald = Herald()
    a_sidecar(
        [a_config("a"), a_config("b")], {"a": Stub([]), "b": Stub([])}, clock=Hands(2), announcers=[herald]
    ).run()

    assert herald.said == [(True, ("a", "b"), False), "stopping"]


def test_many_runs_are_looked_at_less_often() -> None:
    """Looking for news of all of them costs a bounded share of a core; alone a run keeps its rhythm."""

    class Dear(Stub):
        def read(self, *, enough: Callable[[], bool]) -> tuple[bool, str]:
            clock.worked_s += 0.01
            return super().read(enough=enough)

    class Worked(Hands):
        worked_s = 0.0

        def cpu_s(self) -> float:
            return self.worked_s

    for number, between_s in ((1, 0.05), (5, 2.0)):
        clock = Worked(60)
        names = [f"r{place}" for place in range(number)]
        works = {name: Dear([]) for name in names}
        a_sidecar([a_config(name) for name in names], works, clock=clock).run()
        reads = sum(work.reads for work in works.values()) / number
        assert clock.moment_s / reads == pytest.approx(between_s, rel=0.2)


def test_a_run_whose_config_changes_keeps_its_page_meanwhile() -> None:
    """A scrape in between finds the run as it was: a gap would end each alert that waits or fires."""
    exporter, clock, seen = Exporter(version="0"), Hands(2), []
    sidecar = a_sidecar([a_config("a")], {"a": Stub([])}, clock=clock, exporter=exporter)
    sidecar.run()
    edges = sidecar._edges

    def looks(config: Config) -> Edges:
        seen.append(of_run(exporter, "training_step"))
        return edges(config)

    sidecar._edges = looks
    sidecar._replace(replace(a_config("a"), poll_s=7.0))
    assert seen == [{"a": 100.0}]
    assert of_run(exporter, "training_step") == {"a": 100.0}  # until there are numbers by the new one
    renamed = a_config("b")
    sidecar._replace(replace(renamed, path=a_config("a").path))
    assert of_run(exporter, "tracker_ready") == {"b": 0.0}


@pytest.mark.parametrize("leaving", [False, True])
def test_for_a_run_whose_config_is_gone_nothing_is_begun(leaving: bool) -> None:
    """It is read and shown for its linger time; no forecast is asked for, and its parts know."""
    Oracle.at_once, Oracle.most, Oracle.begun = set(), 0, []
    part, work, exporter = Beside(), Stub([]), Exporter(version="0")
    sidecar = a_sidecar(
        [a_config("a")], {"a": work}, clock=Hands(8), exporter=exporter,
        outlooks={"a": Oracle("a")}, parts={"a": (part,)},
    )  # fmt: skip
    add = sidecar._add

    def added(config: Config, *, known: bool = False) -> None:
        add(config, known=known)
        if leaving:
            sidecar._members[0].leaves_s = 1000.0

    sidecar._add = added  # type: ignore[method-assign]
    sidecar.run()
    assert Oracle.begun == ([] if leaving else ["a"])
    assert {now.leaving for now in part.turns} == {leaving}
    assert work.reads >= 3
    assert of_run(exporter, "training_step") == {"a": 100.0}


def test_a_clock_that_is_set_moves_nothing_but_the_moment(caplog: pytest.LogCaptureFixture) -> None:
    """An hour back, a day forward: what waits, waits by a clock that cannot be set; the page stays up."""

    class Jumping(Hands):
        def now_us(self) -> int:
            jump = {5: -3600, 6: -3600, 7: 86_400}.get(self.left, 0)
            return super().now_us() + jump * 1_000_000

    clock, exporter = Jumping(12), Exporter(version="0")
    works = {"a": Stub([]), "b": Stub([])}
    a_sidecar([a_config("a"), a_config("b")], works, clock=clock, exporter=exporter).run()

    assert of_run(exporter, "tracker_ready") == of_run(exporter, "tracker_store_up") == {"a": 1, "b": 1}
    assert clock.moment_s == pytest.approx(12 * 0.05, rel=0.2)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


# -- what is answered -----------------------------------------------------------------------------------


@pytest.fixture
def several() -> Answers:
    made = Answers(Exporter(version="0"), Plain(), clock=Hands(10**9))
    for name in ("a", "b/c ü"):
        made.publish(Shown(run=name, snapshot=replace(FULL, run=name), vitals=Vitals(ready=True)))
    return made


def test_with_several_runs_one_is_named(several: Answers) -> None:
    """By ?run= in a document, by its path for its page; without a name there is the list."""
    assert json.loads(asked(several, "/api/v1/status?run=a")[1])["run"] == "a"
    assert json.loads(asked(several, "/api/v1/ledger?run=b%2Fc+%C3%BC")[1])["run"] == "b/c ü"
    assert asked(several, run_path("b/c ü")) == (200, "<p>b/c ü")
    assert asked(several, "/?run=a") == (200, "<p>a")
    assert asked(several, "/") == (200, "<p>2 runs")
    assert [one["run"] for one in json.loads(asked(several, "/api/v1/runs")[1])["runs"]] == ["a", "b/c ü"]

    for path, status in (
        ("/api/v1/status", 400),
        ("/api/v1/status?run=x", 404),
        ("/runs/x", 404),
        ("/runs/", 404),
    ):
        found, text = asked(several, path)
        assert found == status
        assert json.loads(text)["runs"] == ["a", "b/c ü"]


def test_several_runs_are_ready_when_each_is(several: Answers) -> None:
    """One whose store fails does not hold up the others, and is named; if all fail, nothing is ready."""
    assert asked(several, "/readyz") == (200, "ready\n")

    several.publish(Shown(run="a", vitals=Vitals(why_not_ready="the sources are being read", store_up=True)))
    assert asked(several, "/readyz") == (503, "not ready: 1 of 2 runs\na: the sources are being read\n")
    assert asked(several, "/readyz?run=b%2Fc%20%C3%BC") == (200, "ready\n")
    assert asked(several, "/readyz?run=a") == (503, "not ready: the sources are being read\n")
    assert asked(several, "/readyz?run=x") == (503, "not ready: there is no run of that name\n")

    several.publish(Shown(run="a", vitals=Vitals(why_not_ready="it is locked", store_up=False)))
    assert asked(several, "/readyz") == (200, "ready\nbut a: it is locked\n")

    several.forget("b/c ü")
    assert asked(several, "/readyz") == (503, "not ready: it is locked\n")
    assert asked(several, "/")[1] == "<p>a"
    several.forget("a")
    assert asked(several, "/readyz")[0] == 503
    assert asked(several, "/")[1] == "<p>0 runs"


# -- which configs are meant ----------------------------------------------------------------------------


def toml(folder: Path, file: str, run: str = "", more: str = "") -> Path:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    run = run or path.stem
    path.write_text(CONFIG.replace('"live"', json.dumps(run)) + f'[store]\npath = "{path.stem}.db"\n' + more)
    return path


def load(path: Path) -> Config:
    return parse(path.read_text(), path=path, collectors=dict)


def names(configs: Sequence[Config]) -> list[str]:
    return [one.settings.run for one in configs]


def test_places_are_files_folders_and_patterns(tmp_path: Path) -> None:
    """Sorted, each file once, and a file whose name looks like a pattern is that file."""
    for file in ("runs/b.toml", "runs/a.toml", "runs/x.txt", "runs/deep/c.toml", "odd[1].toml"):
        toml(tmp_path, file)

    def found(place: str) -> list[str]:
        return [str(path.relative_to(tmp_path)) for path in files_of(str(tmp_path / place))]

    assert found("runs") == found("runs/*.toml") == ["runs/a.toml", "runs/b.toml"]
    assert found("runs/**/*.toml") == ["runs/a.toml", "runs/b.toml", "runs/deep/c.toml"]
    assert found("odd[1].toml") == ["odd[1].toml"]
    assert found("nothing*") == found("none.toml") == []
    both = Configs([str(tmp_path / "runs/b.toml"), str(tmp_path / "runs")], load)
    assert names(both.load()) == ["b", "a"]


@pytest.mark.parametrize(
    ("second", "words"),
    [
        pytest.param({"run": "a"}, "run.name = 'a': stands in ", id="one-name-twice"),
        pytest.param({"file": "other/a.toml", "run": "b"}, "mean one store", id="one-store-twice"),
    ],
)
def test_what_is_wrong_between_two_configs_names_both(
    second: dict[str, str], words: str, tmp_path: Path
) -> None:
    """At the start, before anything is opened."""
    first = toml(tmp_path, "a.toml")
    path = toml(tmp_path, second.get("file", "b.toml"), second["run"])
    if "file" in second:
        path.write_text(path.read_text().replace('"a.db"', '"../a.db"'))

    with pytest.raises(Clash) as caught:
        Configs([str(first), str(path)], load).load()
    for part in (words, str(first), str(path)):
        assert part in str(caught.value)


def test_a_broken_config_at_the_start_is_named(tmp_path: Path) -> None:
    """As is a pattern that means nothing."""
    toml(tmp_path, "a.toml")
    (tmp_path / "b.toml").write_text("[run]\nname = 3")

    with pytest.raises(ConfigError, match=r"b\.toml: run\.name = 3"):
        Configs([str(tmp_path)], load).load()
    with pytest.raises(NoConfigs, match="matches no file"):
        Configs([str(tmp_path / "*.tml")], load).load()
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoConfigs, match=r"holds no \*\.toml"):
        Configs([str(tmp_path / "empty")], load).load()


def test_a_second_look_finds_what_came_went_and_changed(tmp_path: Path) -> None:
    """What is broken now is told once, and what it said before still counts."""
    a, b = toml(tmp_path, "a.toml"), toml(tmp_path, "b.toml")
    configs = Configs([str(tmp_path)], load)
    configs.load()
    assert configs.may_change

    toml(tmp_path, "c.toml")
    (tmp_path / "d.toml").write_text("nonsense")
    toml(tmp_path, "e.toml", "a")
    a.unlink()
    found = configs.look(read_again=False)
    assert (names(found.new), found.gone, len(found.problems)) == (["c", "a"], (a,), 1)
    assert "d.toml: not TOML" in found.problems[0]
    assert configs.look(read_again=False) == configs.look(read_again=False)
    assert not configs.look(read_again=False).problems

    b.write_text(b.read_text() + "[hardware.x]\n")
    assert not configs.look(read_again=False).changed  # a change is taken when asked for
    found = configs.look(read_again=True)
    assert len(found.problems) == 2  # b, and d again: somebody asked
    assert names(configs.loaded) == ["b", "c", "a"]
    toml(tmp_path, "b.toml", "b", "[plan]\ntokens = 1e12\n")
    assert names(configs.look(read_again=True).changed) == ["b"]


def test_one_process_listens_in_one_place() -> None:
    """Two configs that say different things are an error that names both; --listen decides."""
    silent, first = a_config("a"), a_config("b")
    second = replace(a_config("c"), serve=replace(first.serve, listen=Listen("127.0.0.1", 9_999)))
    plain = replace(silent, serve=replace(silent.serve, listen=Listen("127.0.0.1", 9109)))

    assert where_to_serve([plain, second]).listen.port == 9_999
    assert where_to_serve([plain, first]).listen.port == 0
    assert where_to_serve([plain]).listen.port == 9109
    with pytest.raises(Clash, match=r"127\.0\.0\.1:0.* in /x/b/run\.toml, and .*9999"):
        where_to_serve([first, plain, second])
    assert where_to_serve([first, second], listen=Listen("127.0.0.1", 1)).listen.port == 1

    safe, other = (
        replace(plain, serve=replace(plain.serve, web_config=Path(f"/x/{name}.yml"))) for name in "ab"
    )
    assert where_to_serve([plain, safe]).web_config == Path("/x/a.yml")
    with pytest.raises(Clash, match=r"serve\.web_config = '/x/a\.yml' .*give --web-config"):
        where_to_serve([safe, other])
    assert where_to_serve([safe, other], web_config=Path("/y")).web_config == Path("/y")


# -- the real process -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_runs_come_and_go_with_their_files(tmp_path: Path) -> None:
    """A glob of configs; SIGHUP finds the third; a second sidecar holds one store; a removed one goes."""
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        write(folder / "train.log", range(1, 11))
        toml(folder, "run.toml", name)
    running = Running(tmp_path, more=("-c", "*/run.toml"))
    try:
        running.until_ready()
        assert {one["run"] for one in json.loads(running.get("/api/v1/runs")[1])["runs"]} == {"a", "b"}
        assert running.get("/api/v1/status")[0] == 400
        assert json.loads(running.get("/api/v1/status?run=b")[1])["steps"]["last"] == 10
        assert "<h1>a</h1>" in running.get("/runs/a")[1]
        assert "/runs/b" in running.get("/")[1]

        (tmp_path / "c").mkdir()
        write(tmp_path / "c" / "train.log", range(1, 6))
        toml(tmp_path / "c", "run.toml", 'c"ü', "[model.x]\n")
        running.process.send_signal(signal.SIGHUP)
        until(lambda: "a config was not taken" in running.said, f"not told: {running.said}")
        assert running.get("/api/v1/status?run=a")[0] == 200
        toml(tmp_path / "c", "run.toml", 'c"ü')
        running.process.send_signal(signal.SIGHUP)
        until(lambda: running.get("/api/v1/status?run=c%22%C3%BC")[0] == 200, f"not found: {running.said}")

        (tmp_path / "b" / "run.toml").rename(tmp_path / "b" / "run.off")
        changed = (tmp_path / "a" / "run.toml").read_text() + "[report]\n"
        (tmp_path / "a" / "run.toml").write_text(changed)
        running.process.send_signal(signal.SIGHUP)
        until(lambda: "b: its config is gone" in running.said, f"not seen: {running.said}")
        until(lambda: "a: followed by" in running.said, f"not followed anew: {running.said}")
        assert running.get("/runs/b")[0] == 200  # it lingers
        running.stop()
        assert running.process.returncode == 0
        assert "Traceback" not in running.said
    finally:
        running.process.kill()
        running.process.wait()
        running._out.close()


@pytest.mark.slow
def test_a_store_that_goes_wrong_under_it_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    """Locked, of a newer version, deleted: the page stays up, the run says so, and comes back."""
    for name in "ab":
        (tmp_path / name).mkdir()
        write(tmp_path / name / "train.log", range(1, 11))
        toml(tmp_path / name, "run.toml", name)
    running = Running(tmp_path, more=("-c", "*/run.toml"))
    store = tmp_path / "b" / "run.db"

    def up() -> dict[str, float]:
        return of_page(running.get("/metrics")[1], "tracker_store_up")

    def problem() -> str:
        runs = json.loads(running.get("/api/v1/runs")[1])["runs"]
        return " ".join(next(one["problems"] for one in runs if one["run"] == "b"))

    def step(run: str) -> float | None:
        return of_page(running.get("/metrics")[1], "training_step").get(run)

    try:
        until(lambda: step("a") == step("b") == 10, f"not read: {running.said}")
        lock = WriteLock(store)
        with lock.held():
            write(tmp_path / "b" / "train.log", range(11, 21))
            until(lambda: up() == {"a": 1, "b": 0}, f"not told: {running.said}")
            assert "held by another process" in problem()
            write(tmp_path / "a" / "train.log", range(11, 21))
            until(lambda: step("a") == 20, "the other run stood still")
            assert step("b") == 10
        lock.close()
        until(lambda: step("b") == 20, f"it did not come back: {running.said}")

        with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as stranger:
            stranger.execute("BEGIN IMMEDIATE")  # SQLite's own lock, by who knows nothing of ours
            write(tmp_path / "b" / "train.log", range(21, 31))
            until(lambda: up() == {"a": 1, "b": 0}, f"not told: {running.said}")
            assert "is locked by another process" in problem()
        until(lambda: step("b") == 30 and up()["b"] == 1, f"it did not come back: {running.said}")

        with contextlib.closing(sqlite3.connect(store)) as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            database.execute("PRAGMA user_version = 999")
        (tmp_path / "b" / "run.toml").write_text((tmp_path / "b" / "run.toml").read_text() + "[report]\n")
        running.process.send_signal(signal.SIGHUP)
        until(lambda: "999" in problem(), f"not told: {running.said}")
        assert up() == {"a": 1, "b": 0}
        assert running.get("/runs/b")[0] == 200
        with contextlib.closing(sqlite3.connect(store)) as database:
            database.execute(f"PRAGMA user_version = {version}")
        until(lambda: step("b") == 30, f"it did not come back: {running.said}")

        for path in (tmp_path / "b").glob("run.db*"):
            path.unlink()
        write(tmp_path / "b" / "train.log", range(31, 41))
        until(lambda: step("b") == 40, f"it did not come back: {running.said}")
        assert step("a") == 20
        assert "Traceback" not in running.said
    finally:
        running.process.kill()
        running.process.wait()
        running._out.close()


def _garbage(store: Path) -> None:
    store.write_bytes(b"garbage" * 5000)


def _replaced(store: Path) -> None:
    _garbage(store.with_suffix(".new"))
    store.with_suffix(".new").rename(store)


def _newer(store: Path) -> None:
    with contextlib.closing(sqlite3.connect(store)) as database:
        database.execute("PRAGMA user_version = 999")


BREAKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "well": (lambda store: None, ""),
    "overwritten": (_garbage, "is damaged or no database"),
    "replaced": (_replaced, "was deleted, moved or replaced"),
    "emptied": (lambda store: os.truncate(store, 0), "no store at"),
    "moved": (lambda store: store.rename(store.with_suffix(".away")), "was deleted, moved or replaced"),
    "newer": (_newer, "schema version 999"),
    "closed": (lambda store: store.chmod(0), "cannot be opened"),
}
"""What may happen to a store, and what is said of it."""


@pytest.mark.slow
def test_a_store_that_breaks_while_its_run_rests_is_told_at_the_next_look(tmp_path: Path) -> None:
    """Nothing is read, nothing written, and the page says so all the same; the last numbers stay."""
    breaks = {name: one for name, one in BREAKS.items() if name != "closed" or os.getuid() != 0}
    for name in breaks:  # whoever is root is not kept out
        (tmp_path / name).mkdir()
        write(tmp_path / name / "train.log", range(1, 11))
        toml(tmp_path / name, "run.toml", name)
    running = Running(tmp_path, more=("-c", "*/run.toml"))

    def down() -> set[str]:
        up = of_page(running.get("/metrics")[1], "tracker_store_up")
        return {run for run in breaks if up.get(run) == 0}

    try:
        running.until_ready()
        for name, (do, _) in breaks.items():
            do(tmp_path / name / "run.db")
        seen: set[str] = set()
        until(lambda: seen.update(down()) or seen == set(breaks) - {"well"}, f"not told: {running.said}")
        steps = of_page(running.get("/metrics")[1], "training_step")
        assert steps == dict.fromkeys(breaks, 10.0)
        for name, (_, words) in breaks.items():
            assert f"{name}: " in running.said or not words
            assert words in running.said
        assert running.get("/healthz")[0] == 200
        assert "Traceback" not in running.said
    finally:
        running.process.kill()
        running.process.wait()
        running._out.close()


def of_page(page: str, name: str) -> dict[str, float]:
    """Return a family's values by run, of a page of text."""
    found = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == name:
                found[sample.labels["run"]] = float(sample.value)
    return found
