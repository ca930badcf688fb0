"""The sidecar sends by itself: reports that are due, events that happened; once, and in nobody's way."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.hands import Hands
from tests.mail_server import Box, mail_server, silent_server
from tests.store_help import make_store
from tests.test_exporter import H_US, NOON_US
from tests.test_sidecar import CONFIG, HEAVY, LISTS_ITS_MODULES, Running, eventually, until, write
from tests.test_webhook import receiver, run
from tracker.child import Child
from tracker.config import Config, parse
from tracker.core.snapshot import Snapshot
from tracker.gate import Gate
from tracker.post.errands import Errands
from tracker.store import Outbox, Reader, Store, outbox_state, report_rows
from tracker.vitals import Vitals

# -- what it decides --------------------------------------------------------------------------------------


@dataclass
class Now:
    snapshot: Snapshot | None = None
    settled: bool = True
    store_up: bool = True
    leaving: bool = False


class Noted(Child):
    """A child that is only noted, and ends when it is told to."""

    def __init__(self, clock: Hands, begun: list[list[str]]) -> None:
        super().__init__("it", clock=clock)
        self.begun = begun
        self.at_work = False
        self.ended = False

    @property
    def busy(self) -> bool:
        return self.at_work

    @property
    def rests_s(self) -> float:
        return 0.0

    def begin(self, arguments: Any, *, folder: Path, limit_s: float) -> None:
        self.begun.append([arguments[0].removeprefix("tracker.cli."), *arguments[2:]])
        self.at_work = True

    def poll(self) -> bool:
        ended, self.ended = self.ended, False
        if ended:
            self.at_work = False
        return ended


SENDS = """
[run]
name = "r"
[report]
at = "07:00"
[report.mail]
host = "127.0.0.1"
tls = "none"
from = "a@b"
to = ["c@d"]
[[webhook]]
name = "oncall"
url_env = "NONE"
"""


def config_of(folder: Path, text: str = SENDS) -> Config:
    return parse(text, path=folder / "run.toml", collectors=dict)


class World:
    """Errands on a real store, with noted children."""

    def __init__(self, folder: Path, text: str = SENDS) -> None:
        self.store = folder / "tracker.db"
        if not self.store.exists():
            make_store(folder)
        self.clock, self.gate, self.begun = Hands(NOON_US), Gate(), []  # type: ignore[var-annotated]
        self.errands = Errands(config_of(folder, text), clock=self.clock, gate=self.gate)
        self.children = {name: Noted(self.clock, self.begun) for name in ("_report", "_mail", "_hooks")}
        for name, child in self.children.items():
            setattr(self.errands, name, child)

    def turn(self, now: Now | None = None, *, after_us: int = 1_000_000) -> list[list[str]]:
        """One turn; what was begun in it."""
        self.clock.us += after_us
        self.begun.clear()
        self.errands.turn(now or Now())
        return list(self.begun)

    def made(self, day: str) -> None:
        with Store.open_writer(self.store, durable=True) as writer:
            outbox = Outbox(writer)
            row = outbox.claim("daily", day, "UTC", as_of_us=1, now_us=self.clock.us, retry_us=lambda _: H_US)
            outbox.made(row, letter=None, recipients=(), files=(), now_us=self.clock.us)
        self.children["_report"].ended = True


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_report_that_is_due_is_begun_once_everything_was_read(world: World) -> None:
    """Late by hours: as of now. While it is made, and once it is made, no other is begun."""
    assert world.turn(Now(settled=False)) == []
    assert world.turn(Now(store_up=False)) == []
    (begun,) = world.turn(after_us=2_000_000)
    assert begun == ["report_child", "daily", "2026-01-05", "UTC", str(world.clock.us)]
    assert world.errands.busy
    for _ in range(3):
        assert world.turn(after_us=700_000_000) == []
    world.made("2026-01-05")
    for _ in range(30):
        assert world.turn(after_us=600_000_000) == []  # until five in the evening
    assert not world.errands.busy
    assert [b[1:3] for b in world.turn(after_us=15 * H_US)] == [["daily", "2026-01-06"]]


def test_runs_make_their_reports_one_after_the_other(tmp_path: Path, world: World) -> None:
    """The gate is for heavy children of all runs."""
    other = object()
    world.gate.enter(other)
    assert world.turn() == []
    assert world.turn(after_us=5_000_000) == []
    world.gate.leave(other)
    assert world.errands.busy  # its turn comes at once
    assert len(world.turn(after_us=5_000_000)) == 1


def test_who_waits_for_its_turn_keeps_its_place_and_reads_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of runs may wait at once: none of them looks into its store over and over meanwhile."""
    looks: list[Path] = []

    class Counted(Reader):
        def __init__(self, path: Path) -> None:
            looks.append(path)
            super().__init__(path)

    monkeypatch.setattr("tracker.post.errands.Reader", Counted)
    first, later = object(), object()
    world.gate.enter(first)
    world.turn()
    world.gate.enter(later)
    for _ in range(100):
        assert world.turn() == []
    assert len(looks) == 1
    world.gate.leave(first)
    assert not world.gate.enter(later)
    assert len(world.turn()) == 1


def test_a_run_whose_config_is_gone_sends_nothing(world: World) -> None:
    """It is shown for a while; a child could not even read the config. Nobody waits behind it."""
    other = object()
    world.gate.enter(other)
    world.turn()
    for _ in range(3):
        assert world.turn(Now(run("down"), leaving=True)) == []
    world.gate.leave(other)
    assert world.turn(Now(run("down"), leaving=True), after_us=H_US) == []
    assert not world.errands.busy
    assert world.gate.enter(other)
    with Reader(world.store) as reader:
        assert reader._all("SELECT count(*) FROM outbox") == [(0,)]


def test_a_store_that_breaks_here_is_down_until_it_is_mended(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the run rests this may be the only use of it; said once, counted, and stays said meanwhile."""
    world.made("2026-01-05")
    world.turn()
    assert world.errands.told(Vitals(store_up=True)).store_up
    whole = world.store.read_bytes()
    world.store.write_bytes(b"garbage" * 1000)
    for _ in range(25):
        world.turn(after_us=60_000_000)
        told = world.errands.told(Vitals(store_up=True, store_errors=3))
        assert told.store_up is ("is damaged" not in world.errands.problem)
    assert told.store_up is False
    assert told.store_errors > 4
    assert len(caplog.messages) == 1
    world.store.write_bytes(whole)
    world.turn(after_us=60_000_000)
    assert world.errands.told(Vitals(store_up=True)).store_up
    assert world.errands.problem == ""


def test_a_child_that_died_without_a_word_is_begun_again_after_its_wait(world: World) -> None:
    """Its claim says when."""
    world.turn()
    with Store.open_writer(world.store, durable=True) as writer:
        Outbox(writer).claim("daily", "2026-01-05", "UTC", as_of_us=7, now_us=world.clock.us,
                             retry_us=lambda _: 60_000_000)  # fmt: skip
    world.children["_report"].ended = True
    assert world.turn() == []
    assert world.turn(after_us=50_000_000) == []
    (again,) = world.turn(after_us=20_000_000)
    assert again[-1] == "7"  # for the same moment


def test_what_happened_is_queued_once_whatever_is_restarted(tmp_path: Path, world: World) -> None:
    """Two snapshots must agree; then the letter and the note that it was told are one transaction."""
    world.made("2026-01-05")
    assert world.turn(Now(run())) == []
    assert world.turn(Now(run(as_of_us=1))) == []
    assert world.turn(Now(run("down"))) == []
    assert world.turn(Now(run("down", as_of_us=2))) == [["post_child", "webhook"]]
    again = World(tmp_path)
    again.clock.us = world.clock.us
    assert again.turn(Now(run("down"))) == [["post_child", "webhook"]]  # still to be sent
    again.turn(Now(run("down", as_of_us=3)))
    again.turn(Now(run("down", as_of_us=4)))

    with Reader(world.store) as reader:
        assert reader._all("SELECT kind, recipient, state FROM outbox") == [
            ("event down", "oncall", "queued")
        ]


def test_events_that_a_webhook_does_not_want_are_not_queued(tmp_path: Path) -> None:
    """They are noted as told all the same."""
    world = World(tmp_path, SENDS + 'events = ["finished"]')
    for number, snapshot in enumerate((run(), run(), run("down"), run("down"))):
        world.turn(Now(replace(snapshot, as_of_us=number)))

    with Reader(world.store) as reader:
        assert outbox_state(reader, lately_us=0) == []
        assert json.loads(reader.meta("told oncall") or "")["state"] == "down"


def test_what_is_known_of_it_is_on_the_page(world: World) -> None:
    """Every way out and every schedule, before anything was sent, too."""
    world.turn()
    told = world.errands.told(Vitals())

    assert [c.channel for c in told.channels] == ["mail", "webhook oncall"]
    (report,) = told.reports
    assert (report.schedule, report.failed_tries, report.last_made_us) == ("daily", 0, None)
    assert report.next_us == NOON_US - 5 * H_US  # it is late
    with Store.open_writer(world.store, durable=True) as writer:
        outbox = Outbox(writer)
        row = outbox.claim("daily", "2026-01-05", "UTC", as_of_us=7, now_us=1, retry_us=lambda _: 1)
        outbox.failed(row, "no room on the disk", not_before_us=world.clock.us + H_US)
    world.children["_report"].ended = True
    world.turn()
    assert "the daily report of 2026-01-05 is not made yet: no room on the disk" in world.errands.problem
    assert world.errands.told(Vitals()).reports[0].failed_tries == 1
    world.made("2026-01-05")
    world.turn()
    assert world.errands.told(Vitals()).reports[0].next_us == NOON_US + 19 * H_US


def test_a_finished_run_has_one_more_report_and_then_none(world: World) -> None:
    """Until it goes on."""
    done = Now(run("finished"))
    world.turn(done)
    (begun,) = world.turn(done, after_us=2 * H_US) or [["", "", "2026-01-05"]]
    assert begun[2] == "2026-01-05"
    with Store.open_writer(world.store, durable=True) as writer:
        outbox = Outbox(writer)
        row = outbox.claim("daily", "2026-01-05", "UTC", as_of_us=NOON_US + 3 * H_US, now_us=world.clock.us,
                           retry_us=lambda _: 1)  # fmt: skip
        outbox.made(row, letter=None, recipients=(), files=(), now_us=world.clock.us)
    world.children["_report"].ended = True
    assert world.turn(done) == []
    assert world.turn(done, after_us=24 * H_US) == []
    assert world.errands.told(Vitals()).reports[0].next_us is None
    assert len(world.turn(Now(run("running", 2)), after_us=700_000_000)) == 1


def test_a_child_that_fails_at_once_is_not_begun_at_every_turn(tmp_path: Path) -> None:
    """A store without room, a config that broke: it rests, longer each time, up to half an hour."""
    clock = Hands(NOON_US)
    child, rests = Child("it", clock=clock), []
    for _ in range(3):
        child.begin(["no_such_module"], folder=tmp_path, limit_s=60.0)
        assert child.busy
        until(child.poll, "it ends")
        rests.append(child.rests_s)
        child.begin(["no_such_module"], folder=tmp_path, limit_s=60.0)
        assert not child.busy
        clock.us += int(child.rests_s * 1e6) + 1
    assert child.problem == f"it failed: {sys.executable}: No module named no_such_module"

    assert rests == [30.0, 60.0, 120.0]


def test_a_child_that_takes_too_long_is_ended_with_what_it_began(tmp_path: Path) -> None:
    """Its grandchild, too."""
    clock = Hands(NOON_US)
    child = Child("it", clock=clock)
    script = tmp_path / "slow.py"
    script.write_text(
        "import subprocess, sys\np = subprocess.Popen(['sleep', '60'])\n"
        "open(sys.argv[1], 'w').write(str(p.pid))\nimport time; time.sleep(60)\n"
    )
    place = tmp_path / "pid"
    child._child = subprocess.Popen(
        [sys.executable, str(script), str(place)], stdout=subprocess.PIPE, start_new_session=True
    )
    child._until_s, child._limit_s = clock.monotonic_s() + 5.0, 5.0
    until(lambda: place.exists() and bool(place.read_text()), "it began")
    assert not child.poll()
    clock.us += 6_000_000
    assert child.poll()
    assert child.problem == "it took longer than 5 s and was ended"

    def gone() -> bool:
        try:
            return Path(f"/proc/{place.read_text()}/stat").read_text().split()[2] in "ZX"
        except FileNotFoundError:
            return True

    until(gone, "the grandchild is gone")


# -- as a process of its own ------------------------------------------------------------------------------


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start sidecars on the folder; whatever still runs at the end is killed."""
    made: list[Running] = []

    def begin(before: str = "") -> Running:
        made.append(Running(tmp_path, before))
        return made[-1]

    yield begin
    for running in made:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()
        running._out.close()


def mails(port: int) -> str:
    return (
        f'[report]\nat = "{time.strftime("%H:%M", time.gmtime(time.time() - 60))}"\n[report.mail]\n'
        f'host = "127.0.0.1"\nport = {port}\ntls = "none"\nfrom = "t@x.org"\nto = ["a@x.org", "b@x.org"]\n'
        "timeout_s = 5\n"
    )


@pytest.mark.slow
def test_a_report_goes_out_by_itself_once_and_the_sidecar_stays_light(
    tmp_path: Path, start: Callable[..., Running]
) -> None:
    """With PDF and pictures; a restart mails nothing again; nothing heavy is ever loaded."""
    write(tmp_path / "train.log", range(1, 500))
    box = Box(refuse={"b@x.org": "550 no such user"})
    with mail_server(box) as port:
        (tmp_path / "run.toml").write_text(CONFIG + mails(port))
        running = start(LISTS_ITS_MODULES)
        until(lambda: bool(box.mails), f"no mail came: {running.said}", limit_s=300)
        until(
            lambda: (
                'tracker_outbox_letters{channel="mail",run="live",state="sent"} 1.0'
                in running.get("/metrics")[1]
            ),
            "the page does not know of it",
        )
        running.process.send_signal(signal.SIGUSR1)
        said = eventually(lambda: running.said, "MODULES ")
        rollup = Path(f"/proc/{running.process.pid}/smaps_rollup").read_text()
        page = running.get("/metrics")[1]
        running.stop()
        again = start()
        again.until_ready()
        time.sleep(1.5)
        again.stop()

    ((_, to, _),) = box.mails
    assert to == ["a@x.org"]
    (mail,) = box.parsed()
    assert mail["Subject"].startswith("live: ")
    assert [part.get_content_type() for part in mail.iter_attachments()] == ["application/pdf"]
    assert mail.get_body(("html",)) is not None
    assert 'tracker_outbox_failures_total{channel="mail",reason="recipient",run="live"} 1.0' in page
    assert 'tracker_outbox_letters{channel="mail",run="live",state="dead"} 1.0' in page
    modules = set(said.split("MODULES ")[1].split("\n")[0].split())
    assert modules & (HEAVY | {"smtplib", "http.client", "tracker.post.make", "tracker.post.send"}) == set()
    found = re.search(r"^Pss: +(\d+) kB", rollup, re.MULTILINE)
    assert found is not None
    assert int(found[1]) < 40_000
    assert {path.suffix for path in (tmp_path / "reports-out").iterdir()} == {".pdf", ".html", ".txt"}


@pytest.mark.slow
def test_a_mail_server_that_says_nothing_delays_neither_reading_nor_scraping(
    tmp_path: Path, start: Callable[..., Running]
) -> None:
    """The letter waits; the page says so; lines are read and scrapes answered all the while."""
    write(tmp_path / "train.log", range(1, 100))
    with silent_server() as port:
        (tmp_path / "run.toml").write_text(CONFIG + mails(port).replace("timeout_s = 5", "timeout_s = 60"))
        running = start()
        running.until_ready()

        def waits() -> bool:
            return (
                'outbox_letters{channel="mail",run="live",state="queued"} 2.0' in running.get("/metrics")[1]
            )

        until(waits, f"nothing was queued: {running.said}", limit_s=300)
        write(tmp_path / "train.log", range(100, 200))
        running.until_step(199)
        assert running.stop() < 6.0  # whoever is sending has two seconds

    with Reader(tmp_path / "tracker.db") as reader:
        (row,) = report_rows(reader)
        (mail,) = outbox_state(reader, lately_us=0)
    assert row.state == "made"
    assert (mail.queued, mail.sent, mail.dead) == (2, 0, 0)


@pytest.mark.slow
def test_a_stall_is_posted_once_through_kill_and_restart(
    tmp_path: Path, start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log ends months ago: the run is stalled from the first look on."""
    write(tmp_path / "train.log", range(1, 100))
    with receiver() as there:
        monkeypatch.setenv("HOOK_URL", there.url)
        assert os.environ["HOOK_URL"]
        (tmp_path / "run.toml").write_text(CONFIG + '[[webhook]]\nname = "w"\nurl_env = "HOOK_URL"\n')
        running = start()
        until(lambda: bool(there.posts), f"nothing was posted: {running.said}", limit_s=200)
        running.process.kill()
        running.process.wait()
        again = start()
        again.until_ready()
        time.sleep(8.0)  # two more snapshots
        assert there.url not in again.said + again.get("/metrics")[1] + again.get("/")[1]
        again.stop()

    told = {event["id"]: event["event"] for _, document, _ in there.posts for event in document["events"]}
    assert list(told.values()) == ["stalled"]
    assert len(there.posts) <= 2  # a second one only where the kill came between answer and commit
