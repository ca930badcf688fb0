"""The sidecar: the real process on logs that are being written, and its loop with a store that fails."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.test_exporter import FULL
from tracker.answers import DEAD_AFTER_S, Answers, Shown
from tracker.config import Config, parse
from tracker.config.kinds import LISTEN
from tracker.configs import Configs
from tracker.core.errors import TrackerError
from tracker.core.facts import Facts
from tracker.core.records import Reading
from tracker.core.snapshot import Snapshot
from tracker.exporter import Exporter
from tracker.gate import Gate
from tracker.member import Stopped
from tracker.parts import Edges, Outlook, Part
from tracker.scheduler import Jobs
from tracker.serve import Request, Server
from tracker.sidecar import Announcer, Sidecar
from tracker.store.errors import StoreFull, StoreGone
from tracker.vitals import Vitals
from tracker.work import as_it_is

pytestmark = pytest.mark.slow
"""Whole processes and long histories: not what one runs before each commit."""

CONFIG = """
[run]
name = "live"
[model]
active_params = 1e9
sequence_length = 2048
[hardware]
gpu = "h100-sxm"
gpus = 8
[[source]]
path = "*.log"
[ingest]
poll_s = 0.05
[serve]
listen = "127.0.0.1:0"
"""
BEGIN_US = 1_767_600_000_000_000  # 2026-01-05T08:00:00Z
TRACKER = (sys.executable, "-P", "-c", "from tracker.cli import main\nmain()")
HEAVY = {"pandas", "numpy", "matplotlib", "typst", "sqlite_utils", "rich", "ssl", "asyncio", "http.server"}
LISTS_ITS_MODULES = (
    "import signal, sys\n"
    "signal.signal(signal.SIGUSR1, lambda *_: print('MODULES', *sys.modules, file=sys.stderr, flush=True))\n"
)


def line(step: int) -> str:
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(BEGIN_US / 1e6 + 10 * step))
    return (
        f" [{moment}] iteration {step:8d}/    5000 | consumed samples: {step * 64:12d} | "
        "elapsed time per iteration (ms): 10000.0 | learning rate: 1.000000E-05 | "
        "global batch size:    64 | lm loss: 1.092914E+01 | loss scale: 1.0 | grad norm: 1.1 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def write(path: Path, steps: range) -> None:
    with path.open("a") as log:
        log.writelines(map(line, steps))


class Running:
    """A sidecar in a process of its own."""

    def __init__(self, folder: Path, before: str = "", more: Sequence[str] = ()) -> None:
        self._said = folder / "said.txt"
        self._out = self._said.open("ab")
        self._from = self._said.stat().st_size
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"{before}from tracker.cli import main\nmain()", "run", *more],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._out,
            env={k: v for k, v in os.environ.items() if k != "TRACKER_CONFIG"},
        )  # fmt: skip

    @property
    def said(self) -> str:
        return self._said.read_bytes()[self._from :].decode()

    @property
    def url(self) -> str:
        found = re.search(r"listening on (http://\S+)/\n", eventually(lambda: self.said, "listening on"))
        assert found is not None
        return found[1]

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str) -> float | None:
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                if sample.name == name:
                    return float(sample.value)
        return None

    def until_ready(self) -> None:
        until(lambda: self.get("/readyz")[0] == 200, f"not ready: {self.said}")

    def until_step(self, step: int) -> None:
        until(lambda: self.metric("training_step") == step, f"step {step} was not reached: {self.said}")

    def stop(self, number: int = signal.SIGTERM) -> float:
        """Stop it; return how long that took."""
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(30)
        self._out.close()
        return time.monotonic() - began


def until(condition: Callable[[], bool], otherwise: str, limit_s: float = 60.0) -> None:
    ends = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < ends, otherwise
        time.sleep(0.02)


def eventually(read: Callable[[], str], words: str) -> str:
    until(lambda: words in read(), f"{words!r} was never said")
    return read()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run.toml").write_text(CONFIG)
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Running]]:
    """Start sidecars on the folder; whatever still runs at the end is killed."""
    made: list[Running] = []

    def one(before: str = "") -> Running:
        made.append(Running(folder, before))
        return made[-1]

    yield one
    for running in made:
        with contextlib.suppress(ProcessLookupError):
            running.process.kill()
        running.process.wait()
        with contextlib.suppress(ValueError):
            running._out.close()


# -- the real process ---------------------------------------------------------------------------------


def test_numbers_move_with_the_log_and_survive_a_restart(folder: Path, start: Callable[..., Running]) -> None:
    """Scraped, appended to, scraped again, stopped, started: nothing is lost, nothing counted twice."""
    write(folder / "train.log", range(1, 101))
    first = start()
    first.until_ready()
    assert first.metric("training_step") == 100
    assert first.metric("training_processed_tokens_total") == 100 * 64 * 2048

    write(folder / "train.log", range(101, 151))
    first.until_step(150)
    status = json.loads(first.get("/api/v1/status")[1])
    assert status["steps"]["net"] == 150
    first.stop()
    assert first.process.returncode == 0

    second = start()
    second.until_ready()
    again = json.loads(second.get("/api/v1/status")[1])
    assert again["tokens"] == status["tokens"]
    assert again["gpu_hours"]["productive"] == status["gpu_hours"]["productive"]
    assert second.metric("tracker_read_lines_total") == 0  # it went on where it was
    second.stop()


def test_every_page_is_there(folder: Path, start: Callable[..., Running]) -> None:
    """Status page, documents, health; the documents are those of --json."""
    write(folder / "train.log", range(1, 11))
    running = start()
    running.until_ready()

    assert running.get("/healthz") == (200, "ok\n")
    assert "<h1>live</h1>" in running.get("/")[1]
    assert running.get("/nowhere")[0] == 404
    as_of = json.loads(running.get("/api/v1/ledger")[1])["as_of"]
    told = subprocess.run(
        [*TRACKER, "ledger", "--json", "--as-of", as_of],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    document = running.get("/api/v1/ledger")[1]
    if json.loads(document)["as_of"] == as_of:  # else it was made anew in between
        assert document == told.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_it_stops_cleanly_and_takes_the_last_lines(
    number: int, folder: Path, start: Callable[..., Running]
) -> None:
    """What the job wrote just before is stored, the store's log is gone, and the status is 0."""
    (folder / "run.toml").write_text(CONFIG.replace("poll_s = 0.05", "poll_s = 60"))
    write(folder / "train.log", range(1, 11))
    running = start()
    running.until_ready()
    write(folder / "train.log", range(11, 21))

    running.stop(number)
    assert running.process.returncode == 0
    assert "Traceback" not in running.said
    told = subprocess.run(
        [*TRACKER, "status", "--json"],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(told.stdout)["steps"]["last"] == 20


def test_a_hang_up_does_not_end_it(folder: Path, start: Callable[..., Running]) -> None:
    """A terminal that closes takes nothing with it."""
    running = start()
    _ = running.url
    running.process.send_signal(signal.SIGHUP)
    time.sleep(0.2)

    assert running.get("/healthz")[0] == 200


@pytest.mark.slow
def test_it_stops_in_the_middle_of_a_long_read(folder: Path, start: Callable[..., Running]) -> None:
    """With hundreds of megabytes to go, and then goes on to the same numbers."""
    chatter = b"INFO: a line that nobody is interested in, again and again and again and again\n" * 20_000
    with (folder / "train.log").open("wb") as log:
        for block in range(1, 201):
            log.write(line(block).encode() + chatter)
    running = start()
    until(lambda: (running.metric("tracker_read_bytes_total") or 0) > 0, "it never read")
    assert running.get("/readyz")[0] == 503

    running.stop()
    assert running.process.returncode == 0
    again = start()
    until(lambda: again.metric("training_step") == 200, "it did not go on", limit_s=60)
    assert again.metric("training_processed_tokens_total") == 200 * 64 * 2048


@pytest.mark.slow
def test_killed_at_any_moment_it_counts_nothing_twice(folder: Path, start: Callable[..., Running]) -> None:
    """Several kills while lines come; in the end the numbers are those of the log."""
    for burst in range(4):
        running = start()
        _ = running.url
        write(folder / "train.log", range(burst * 50 + 1, burst * 50 + 51))
        time.sleep(0.05 * burst)
        running.process.kill()
        running.process.wait()
    running = start()
    running.until_ready()
    running.until_step(200)

    assert running.metric("training_processed_tokens_total") == 200 * 64 * 2048


def test_it_is_light(folder: Path, start: Callable[..., Running]) -> None:
    """Nothing heavy is loaded, and the process stays below 40 MB with a page served."""
    write(folder / "train.log", range(1, 2_001))
    running = start(LISTS_ITS_MODULES)
    running.until_ready()
    for path in ("/", "/metrics", "/api/v1/status", "/api/v1/ledger"):
        assert running.get(path)[0] == 200
    running.process.send_signal(signal.SIGUSR1)
    said = eventually(lambda: running.said, "MODULES ")
    modules = set(said.split("MODULES ")[1].split("\n")[0].split())
    rollup = Path(f"/proc/{running.process.pid}/smaps_rollup").read_text()

    assert {"tracker.sidecar", "prometheus_client", "apscheduler"} <= modules
    assert not modules & HEAVY
    found = re.search(r"^Pss: +(\d+) kB", rollup, re.MULTILINE)
    assert found is not None
    assert int(found[1]) < 40_000


def test_a_second_sidecar_on_one_store_names_the_first(folder: Path, start: Callable[..., Running]) -> None:
    """And ends with status 1; `tracker ingest` likewise."""
    first = start()
    first.until_ready()
    second = start()

    assert second.process.wait(20) == 1
    assert f"process {first.process.pid} on " in second.said
    assert "Traceback" not in second.said
    assert first.get("/healthz")[0] == 200


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        pytest.param(lambda f: (f / "run.toml").write_text("[run]\nname='r'"), "to read", id="no source"),
        pytest.param(lambda f: (f / "tracker.db").write_bytes(b"no database" * 999), "damaged", id="damaged"),
        pytest.param(lambda f: (f / "tracker.db").mkdir(), "is a folder", id="folder"),
    ],
)  # fmt: skip
def test_what_makes_a_start_impossible_is_said(
    prepare: Callable[[Path], object], words: str, folder: Path, start: Callable[..., Running]
) -> None:
    """One sentence and status 1."""
    prepare(folder)
    running = start()

    assert running.process.wait(20) == 1
    assert words in running.said
    assert "Traceback" not in running.said


@pytest.mark.parametrize(
    ("place", "warned"),
    [
        pytest.param("0.0.0.0:0", True, id="everywhere"),
        pytest.param("127.0.0.1:0", False, id="this-machine"),
    ],
)
def test_listening_for_others_is_warned_of(
    place: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether the config or the command line said so: there is no TLS and no login."""
    config = a_config()
    config = replace(config, serve=replace(config.serve, listen=LISTEN.read("listen", place)))
    a_sidecar([config], {"live": Stub([(False, "")])}, clock=Hands(1)).run()

    said = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert any("without encryption (TLS) or password" in text for text in said) is warned


def test_a_port_in_use_is_said(folder: Path, start: Callable[..., Running]) -> None:
    """With the key, the value and what to do."""
    first = start()
    listen = first.url.removeprefix("http://")
    (folder / "run.toml").write_text(CONFIG.replace("127.0.0.1:0", listen))
    second = start()

    assert second.process.wait(20) == 1
    assert f"serve.listen = '{listen}': cannot listen, another program listens there" in second.said


def test_a_store_that_is_deleted_comes_back(folder: Path, start: Callable[..., Running]) -> None:
    """The page stays up with the last numbers and says so; then the logs are read anew."""
    write(folder / "train.log", range(1, 11))
    running = start()
    running.until_ready()
    for path in folder.glob("tracker.db*"):
        path.unlink()
    write(folder / "train.log", range(11, 21))

    until(lambda: running.metric("tracker_store_errors_total") == 1, f"not noticed: {running.said}")
    assert running.metric("training_step") == 10
    running.until_step(20)
    assert running.metric("tracker_store_up") == 1


# -- the loop, with a store of our making -------------------------------------------------------------


class Hands:
    """A clock that moves when somebody waits; after the last wait it says stop."""

    def __init__(self, waits: int) -> None:
        self.moment_s = 0.0
        self.left = waits
        self.waited: list[float] = []

    @property
    def stopped(self) -> bool:
        return self.left <= 0

    def now_us(self) -> int:
        return BEGIN_US + int(self.moment_s * 1e6)

    def monotonic_s(self) -> float:
        return self.moment_s

    def cpu_s(self) -> float:
        return 0.0

    def wait(self, seconds: float) -> bool:
        self.moment_s += seconds
        self.waited.append(seconds)
        self.left -= 1
        return self.stopped

    def wake(self) -> None:
        pass


@dataclass
class Unopened:
    """An answer that comes when the store is to be opened."""

    error: TrackerError


class Stub:
    """Work that does what the test says, one answer for each round."""

    def __init__(self, answers: list[object]) -> None:
        self.answers = answers
        self.closed = 0
        self.made = 0
        self.reads = 0

    def opened(self) -> Stub:
        """Return it, or raise what comes first."""
        if self.answers and isinstance(self.answers[0], Unopened):
            raise self.answers.pop(0).error  # type: ignore[attr-defined]
        return self

    def read(self, *, enough: Callable[[], bool]) -> tuple[bool, str]:
        self.reads += 1
        answer = self.answers.pop(0) if self.answers else (False, "")
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, tuple)
        return answer

    def revision(self) -> int:
        return self.made

    def snapshot(self, *, as_of_us: int, facts: Callable[[Facts], Facts] = as_it_is) -> Snapshot:
        self.made += 1
        return replace(FULL, run="live", as_of_us=as_of_us)

    def vitals(self) -> Vitals:
        return Vitals(read_lines=7)

    def tidy(self) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


def a_config(run: str = "live", more: str = "") -> Config:
    text = CONFIG.replace('"live"', json.dumps(run)) + more
    return parse(text, path=Path(f"/x/{run}/run.toml"), collectors=dict)


class Plain:
    """Pages of one word each."""

    policy = "default-src 'none'"

    def run(self, shown: Shown, *, alone: bool) -> str:
        return f"<p>{shown.run}"

    def index(self, shown: Sequence[Shown]) -> str:
        return f"<p>{len(shown)} runs"


class Given(Configs):
    """Configs that are there already."""

    def __init__(self, configs: Sequence[Config]) -> None:
        super().__init__([], lambda path: configs[0])
        self._known = {config.path: config for config in configs}


def a_sidecar(
    configs: Sequence[Config],
    works: Mapping[str, Stub],
    *,
    clock: Hands,
    exporter: Exporter | None = None,
    outlooks: Mapping[str, Outlook] | None = None,
    parts: Mapping[str, tuple[Part, ...]] | None = None,
    announcers: Sequence[Announcer] = (),
) -> Sidecar:
    """Return the loop over stores of our making, by run."""
    answers = Answers(exporter or Exporter(version="0"), Plain(), clock=clock)

    def edges(config: Config) -> Edges:
        run = config.settings.run
        return Edges(
            open_work=lambda: works[run].opened(),
            outlook=(outlooks or {}).get(run),
            parts=(parts or {}).get(run, ()),
        )

    return Sidecar(
        Given(configs),
        clock=clock,
        gate=Gate(),
        answers=answers,
        server=Server(configs[0].serve.listen, answers, clock=clock),
        edges=edges,
        announcers=announcers,
    )


def turned(answers: list[object], *, waits: int = 3) -> tuple[Exporter, Hands, Stub]:
    """Run the loop over some answers of the store; return what was left."""
    exporter, clock, work = Exporter(version="0"), Hands(waits), Stub(answers)
    a_sidecar([a_config()], {"live": work}, clock=clock, exporter=exporter).run()
    return exporter, clock, work


def values(exporter: Exporter) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(exporter.render()[0].decode()):
        for sample in family.samples:
            found.setdefault(sample.name, float(sample.value))
    return found


def test_it_does_not_wait_while_there_is_more_to_read() -> None:
    """And is ready only after everything was read once."""
    exporter, clock, _ = turned([(True, ""), (True, ""), (False, "")])

    assert clock.waited == [0.0, 0.0, 0.05]
    assert values(exporter)["tracker_ready"] == 1
    assert values(turned([(True, "")], waits=1)[0])["tracker_ready"] == 0


@pytest.mark.parametrize(
    ("trouble", "reopened"),
    [
        pytest.param((False, "no room"), 0, id="a-full-disk-that-ingestion-told"),
        pytest.param(StoreFull("no room"), 1, id="a-full-disk-that-was-raised"),
        pytest.param(StoreGone("it is gone"), 1, id="a-store-that-is-gone"),
        pytest.param(ZeroDivisionError("a bug"), 1, id="a-bug-of-ours"),
    ],
)
def test_what_fails_is_told_and_tried_again(
    trouble: object, reopened: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The last numbers stay up; later tries wait longer; then it goes on as if nothing had been."""
    broken, clock, work = turned([(False, ""), trouble, trouble, trouble], waits=4)

    assert values(broken)["training_step"] == 100
    assert values(broken)["tracker_store_up"] == 0
    assert values(broken)["tracker_store_errors_total"] == 3
    assert clock.waited == pytest.approx([0.05, 1.0, 2.0, 5.0])
    assert work.closed == 3 * reopened + (0 if reopened else 1)
    assert len({record.getMessage() for record in caplog.records}) < 3  # said once, not at every try

    healed = turned([(False, ""), trouble, (False, "")], waits=3)[0]
    assert values(healed)["tracker_store_up"] == 1


def test_a_long_reading_ends_when_told_to_stop() -> None:
    """The core may be in the middle of a million readings."""

    class Endless(Stub):
        def snapshot(self, *, as_of_us: int, facts: Callable[[Facts], Facts] = as_it_is) -> Snapshot:
            clock.left = 0

            class Many:
                streams = scheduler_rows = events = None

                def readings(
                    self, stream_id: int, *, start: int = 0, end: int | None = None
                ) -> Iterator[Reading]:
                    while True:
                        yield Reading(0, None, 1)

            for _ in facts(Many()).readings(1):  # type: ignore[arg-type]
                pass
            raise AssertionError

    clock, work = Hands(5), Endless([])
    a_sidecar([a_config()], {"live": work}, clock=clock).run()

    assert work.closed == 1
    assert issubclass(Stopped, Exception)


# -- what is answered ---------------------------------------------------------------------------------


@pytest.fixture
def answers() -> tuple[Answers, Exporter, Hands]:
    clock, exporter = Hands(10**9), Exporter(version="0")
    made = Answers(exporter, Plain(), clock=clock)
    made.publish(Shown(run="live"))
    return made, exporter, clock


def asked(answers: Answers, path: str) -> tuple[int, str]:
    path, _, query = path.partition("?")
    response = answers(Request(method="GET", path=path, query=query))
    return response.status, response.body.decode()


def test_it_is_not_ready_before_it_has_read_everything(answers: tuple[Answers, Exporter, Hands]) -> None:
    """503 with the reason, from the first moment on."""
    page, _, _ = answers
    assert asked(page, "/readyz") == (503, "not ready: starting\n")
    assert asked(page, "/api/v1/status")[0] == 503
    assert json.loads(asked(page, "/api/v1/ledger")[1]) == {"error": "no snapshot yet: starting"}

    page.publish(Shown(run="live", snapshot=FULL, vitals=Vitals(why_not_ready="the sources are being read")))
    assert asked(page, "/readyz") == (503, "not ready: the sources are being read\n")
    assert asked(page, "/api/v1/status")[0] == 200

    page.publish(Shown(run="live", snapshot=FULL, vitals=Vitals(ready=True)))
    assert asked(page, "/readyz") == (200, "ready\n")


def test_a_loop_that_stands_still_is_unhealthy(answers: tuple[Answers, Exporter, Hands]) -> None:
    """So that whoever watches it restarts it."""
    page, _, clock = answers
    assert asked(page, "/healthz") == (200, "ok\n")

    clock.moment_s += DEAD_AFTER_S + 1
    assert asked(page, "/healthz")[0] == 503

    page.beat()
    assert asked(page, "/healthz")[0] == 200


def test_a_finished_run_lingers_then_goes_and_a_stalled_one_never() -> None:
    """Its own numbers go; the tracker's stay."""

    class Of(Stub):
        def snapshot(self, *, as_of_us: int, facts: Callable[[Facts], Facts] = as_it_is) -> Snapshot:
            return replace(super().snapshot(as_of_us=as_of_us, facts=facts), state=self.answers[0])

        def read(self, *, enough: Callable[[], bool]) -> tuple[bool, str]:
            return False, ""

    for state, stays in (("stalled", True), ("finished", False), ("running", True)):
        for turns, there in ((10, True), (14, stays)):
            exporter, clock = Exporter(version="0"), Hands(turns)
            config = a_config()
            config = replace(config, poll_s=50.0, serve=replace(config.serve, linger_s=600))
            a_sidecar([config], {"live": Of([state])}, clock=clock, exporter=exporter).run()

            assert ("training_step" in values(exporter)) is there
            assert values(exporter)["tracker_ready"] == 1


# -- periodic jobs ------------------------------------------------------------------------------------


def test_jobs_run_in_the_loop_and_a_failing_one_stops_no_other() -> None:
    """What is due is done by whoever calls run_due, measured, and tried again."""
    woken = threading.Event()
    clock = Hands(10**9)
    counted = Jobs(clock, wake=woken.set)
    jobs = counted.of("live")
    done: list[int] = []

    def failing() -> None:
        raise ZeroDivisionError

    jobs.every("good", 0.05, lambda: done.append(threading.get_ident()))
    jobs.every("bad", 0.05, failing, at_once=True)
    jobs.every("never", 3600, lambda: done.append(0))
    counted.start()
    try:
        assert jobs.run_due()
        until(
            lambda: len(done) < 3 and (woken.wait(1), jobs.run_due())[1] and len(done) > 1,
            "nothing became due",
        )
    finally:
        counted.stop()

    vitals = {job.name: job for job in jobs.vitals()}
    assert set(done) == {threading.get_ident()}
    assert vitals["good"].failures == 0
    assert vitals["good"].last_success_us is not None
    assert vitals["bad"].failures >= 2
    assert vitals["bad"].last_success_us is None
    assert vitals["never"].last_duration_s is None


def test_jobs_are_counted_anew_when_the_clock_is_set(caplog: pytest.LogCaptureFixture) -> None:
    """Set back by an hour, a job of every minute does not pause for an hour."""
    clock = Hands(10**9)
    counted = Jobs(clock, wake=lambda: None)
    jobs = counted.of("live")
    jobs.every("job", 60, lambda: None)
    counted.start()
    try:
        jobs.run_due()
        assert not caplog.records
        clock.now_us = lambda: BEGIN_US - 3_600_000_000  # type: ignore[method-assign]
        jobs.run_due()
    finally:
        counted.stop()

    assert "the clock was set by -3600 s" in caplog.text
