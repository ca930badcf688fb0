"""Plays daily reports and their mail in processes that are killed: a program of its own, for it forks.

`python -m tests.post_kills statements FOLDER PORT POLICY` kills at every SQL statement in turn;
`python -m tests.post_kills days FOLDER PORT POLICY DAYS` kills at random moments over simulated days.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

from tests.store_help import make_store
from tracker.config import Config, parse
from tracker.daily import Row, date_of, owed
from tracker.post.make import Rendered, make
from tracker.post.send import send_mails
from tracker.store import Outbox, Reader, Writer, outbox_state, report_rows

BEGIN_US = 1_767_600_000_000_000  # 2026-01-05T08:00:00Z
HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
TO = ("a@example.org", "b@example.org")


def config_in(folder: Path, port: int, policy: str) -> Config:
    """A run whose store and reports are in a folder."""
    text = f"""
        [run]
        name = "llama-13b"
        [report]
        at = "07:00"
        directory = "out"
        [report.mail]
        host = "127.0.0.1"
        port = {port}
        tls = "none"
        from = "t@example.org"
        to = ["{TO[0]}", "{TO[1]}"]
        on_uncertain = "{policy}"
    """
    return parse(text, path=folder / "run.toml", collectors=dict)


class KeptClock:
    """A wall clock that goes on from where a killed process left it."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def now_us(self) -> int:
        return int(self._place.read_text()) if self._place.exists() else BEGIN_US

    def monotonic_s(self) -> float:
        return self.now_us() / 1e6

    def wait(self, seconds: float) -> bool:
        return False

    def advance(self, us: int) -> None:
        scratch = self._place.with_suffix(".tmp")
        scratch.write_text(str(self.now_us() + us))
        scratch.replace(self._place)


def document(config: Config, as_of_us: int, name: str, limit_s: float) -> Rendered:
    """One page that tells its moment."""
    return Rendered(files={"txt": f"As of {as_of_us}.\n".encode()}, subject=f"as of {as_of_us}")


def turn(config: Config, clock: KeptClock, reader: Reader, writer: Writer) -> bool:
    """What the children of the sidecar do in one go; tell whether all is done for now."""
    assert config.report is not None
    assert config.report.mail is not None
    rows = [
        Row(kind=r.kind, day=r.day, zone=r.zone, state=r.state, as_of_us=r.as_of_us,
            not_before_us=r.not_before_us)
        for r in report_rows(reader, since_day=date_of(clock.now_us() - 3 * DAY_US).isoformat())
    ]  # fmt: skip
    outbox = Outbox(writer)
    due = owed(config.report.schedules[0], rows, now_us=clock.now_us())
    if due is not None:
        slot = due.slot
        make(outbox, config, kind=slot.kind, day=slot.day, zone=slot.zone, as_of_us=due.as_of_us,
             clock=clock, render=document)  # fmt: skip
    send_mails(outbox, config.report.mail, clock=clock)
    waiting = [one for one in outbox_state(reader, lately_us=0) if one.queued]
    return not waiting and all(
        row.state == "made" for row in report_rows(reader, since_day=newest_day(clock))
    )


def newest_day(clock: KeptClock) -> str:
    """The date of the newest moment at 07:00 UTC."""
    return date_of(clock.now_us() - 7 * HOUR_US).isoformat()


def one_turn(config: Config, clock: KeptClock, *, kill_at: int = 0) -> None:
    """One go, which dies before the n-th statement."""
    with Reader(config.store) as reader, Writer(config.store, durable=True) as writer:
        count = 0

        def die(_: str) -> None:
            nonlocal count
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        writer._connection.set_trace_callback(die)
        turn(config, clock, reader, writer)


def forked(work: object, *, kill_after_s: float | None = None) -> bool:
    """Do something in a process of its own; tell whether it came to its end."""
    assert callable(work)
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    if kill_after_s is not None:
        ends = time.monotonic() + kill_after_s
        while time.monotonic() < ends:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return True
            time.sleep(0.002)
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        sys.exit("a process failed")
    return os.WIFEXITED(status)


def statements(folder: Path, port: int, policy: str) -> int:
    """Kill at each statement in turn, each time in a store of its own; return how many there are."""
    empty = make_store(folder, "empty.db")
    number, done = 0, False
    while not done:
        number += 1
        place = folder / f"{number:03}"
        place.mkdir()
        shutil.copy(empty, place / "tracker.db")
        config, clock = config_in(place, port, policy), KeptClock(place / "clock")
        done = forked(lambda at=number, c=config, k=clock: one_turn(c, k, kill_at=at))  # type: ignore[misc]
        for _ in range(2):
            clock.advance(2 * HOUR_US)
            forked(lambda c=config, k=clock: one_turn(c, k))  # type: ignore[misc]
    return number - 1


def days(folder: Path, port: int, policy: str, count: int) -> int:
    """Play days, killed at random; return how many kills there were."""
    make_store(folder)
    config, clock = config_in(folder, port, policy), KeptClock(folder / "clock")
    chance, kills = random.Random(count), 0

    def play() -> None:
        with Reader(config.store) as reader, Writer(config.store, durable=True) as writer:
            while clock.now_us() < BEGIN_US + count * DAY_US:
                done = turn(config, clock, reader, writer)
                clock.advance(12 * HOUR_US if done else HOUR_US // 6)

    while not forked(play, kill_after_s=chance.uniform(0.005, 0.6)):
        kills += 1
    for _ in range(8):  # whoever was put off has his turn
        clock.advance(DAY_US // 8)
        forked(lambda: one_turn(config, clock))
    return kills


if __name__ == "__main__":
    what, where, at_port, how = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    if what == "statements":
        print(statements(where, at_port, how))
    else:
        print(days(where, at_port, how, int(sys.argv[5])))
