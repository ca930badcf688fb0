"""A year and more of one sidecar in minutes: memory, handles, store and write-ahead log stay bounded.

    python -m tests.soak [--days 400] [--reports] [--record FILE]

The real loop, store, collectors and due-table run in this process on a clock that jumps over the waits.
Children (reports) are real processes and take real time. What APScheduler would have rung, which counts
real hours, is rung once an hour of the played time.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tracker import app
from tracker.answers import Answers
from tracker.clock import SystemClock
from tracker.configs import Configs
from tracker.exporter import Exporter
from tracker.gate import Gate
from tracker.member import LOOK_S
from tracker.pages import HtmlPages
from tracker.parts import Edges
from tracker.serve import Server
from tracker.sidecar import Sidecar

START = dt.datetime(2025, 2, 1, tzinfo=dt.UTC)
STEP_S = 600
DAY_S = 86_400
KEPT_FILES = 14
"""As logrotate would: older ones are deleted."""
ATTEMPT_DAYS = 3
CONFIG = """
[run]
name = "soak"
[model]
active_params = 1e9
sequence_length = 2048
[hardware]
gpu = "h100-sxm"
gpus = 8
[plan]
tokens = 8e9
[[source]]
path = "train.log*"
[[source]]
collector = "slurm"
path = "sacct.txt"
[ingest]
poll_s = 3600
[serve]
listen = "127.0.0.1:0"
"""
REPORTS = """
[report]
timezone = "Europe/Berlin"
[[report.schedule]]
name = "weekly"
at = "07:00"
days = ["monday"]
"""


@dataclass(slots=True)
class Held:
    """What the process and its store take at one moment of the played time."""

    day: int
    rss_mb: float
    handles: int
    children: int
    store_mb: float
    wal_mb: float
    snapshot_ms: float


@dataclass
class World:
    """The job: a log that grows, is rotated each day, restarts each third; and the scheduler's file."""

    folder: Path
    days: int
    now_s: float = START.timestamp()
    steps: int = 0
    day: int = 0
    attempt: int = 0
    rows: list[str] = field(default_factory=list)

    def until(self, now_s: float) -> None:
        """Write what the job would have written by then."""
        log = self.folder / "train.log"
        while (at := START.timestamp() + (self.steps + 1) * STEP_S) <= now_s:
            day = self.steps * STEP_S // DAY_S
            if day != self.day:
                self.day = day
                self._rotate(log)
            with log.open("a") as out:
                if day // ATTEMPT_DAYS + 1 != self.attempt:
                    self.attempt = day // ATTEMPT_DAYS + 1
                    self._schedule(at - STEP_S)
                    if self.steps:
                        out.write(f" loading checkpoint from /ckpt at iteration {self.steps}\n")
                self.steps += 1
                out.write(_line(self.steps, at))
        self.now_s = now_s

    def _rotate(self, log: Path) -> None:
        for number in range(KEPT_FILES, 0, -1):
            old = log.with_name(f"train.log.{number}")
            if old.exists():
                if number == KEPT_FILES:
                    old.unlink()
                else:
                    old.rename(log.with_name(f"train.log.{number + 1}"))
        if log.exists():
            log.rename(log.with_name("train.log.1"))

    def _schedule(self, at_s: float) -> None:
        begun = f"{dt.datetime.fromtimestamp(at_s, dt.UTC):%Y-%m-%dT%H:%M:%S}"
        if self.rows:
            self.rows[-1] = self.rows[-1].replace("RUNNING", "NODE_FAIL").replace("Unknown", begun)
        self.rows.append(f"{1000 + self.attempt}|train|RUNNING|{begun}|{begun}|Unknown|1|8|gres/gpu=8")
        text = "JobID|JobName|State|Submit|Start|End|NNodes|NCPUS|AllocTRES\n" + "\n".join(self.rows) + "\n"
        made = self.folder / "sacct.txt.new"
        made.write_text(text)
        made.rename(self.folder / "sacct.txt")


def _line(step: int, at_s: float) -> str:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at_s))
    return (
        f" [{stamp}] iteration {step:8d}/ 2000000 | consumed samples: {step * 64:12d} | elapsed time per"
        f" iteration (ms): {STEP_S * 1000:.1f} | learning rate: 1.0E-05 | global batch size:    64 |"
        " lm loss: 1.0E+01 | loss scale: 1.0 | grad norm: 1.1 | number of skipped iterations:   0 |"
        " number of nan iterations:   0 |\n"
    )


class FastClock:
    """A clock that jumps over the waits, but for those for a child, which takes real time."""

    def __init__(self, world: World, each_hour: Callable[[], None], each_day: Callable[[int], None]) -> None:
        self._world = world
        self._each_hour = each_hour
        self._each_day = each_day
        self._hour = 0
        self.stopped = False

    def now_us(self) -> int:
        """Return the played time."""
        return int(self._world.now_s * 1e6)

    def monotonic_s(self) -> float:
        """Return the played time too: no hour of it takes an hour."""
        return self._world.now_s

    def cpu_s(self) -> float:
        """Return real work."""
        return time.thread_time()

    def sleep(self, seconds: float) -> None:
        """Jump."""
        self.wait(seconds)

    def wait(self, seconds: float) -> bool:
        """Jump, and let the world go on."""
        if seconds <= 1.01 * LOOK_S:  # a child is at work: its time limit is one of real seconds
            time.sleep(0.05)
            seconds = 0.05
        self._world.until(self._world.now_s + seconds)
        hour = int((self._world.now_s - START.timestamp()) // 3600)
        if hour != self._hour:
            self._hour = hour
            self._each_hour()
            if hour % 24 == 0:
                self._each_day(hour // 24)
        self.stopped = self.stopped or hour >= self._world.days * 24
        return self.stopped

    def wake(self) -> None:
        """Nothing: no wait lasts."""


def held(folder: Path, day: int, snapshot_s: float) -> Held:
    """Return what is taken now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    wal = folder / "tracker.db-wal"
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return Held(
        day=day,
        rss_mb=pages * resource.getpagesize() / 1e6,
        handles=len(os.listdir("/proc/self/fd")),
        children=len(children),
        store_mb=(folder / "tracker.db").stat().st_size / 1e6,
        wal_mb=wal.stat().st_size / 1e6 if wal.exists() else 0.0,
        snapshot_ms=snapshot_s * 1e3,
    )


def soak(folder: Path, *, days: int, reports: bool = False, every: int = 20) -> tuple[World, list[Held]]:
    """Play so many days in a folder; return the world, and what was held each `every` days."""
    (folder / "run.toml").write_text(CONFIG + (REPORTS if reports else ""))
    world, seen = World(folder, days), list[Held]()
    configs = Configs([str(folder / "run.toml")], app.load_to_follow)
    configs.load()
    gate, real = Gate(), SystemClock()

    def each_hour() -> None:
        for owner, jobs in sidecar._jobs._jobs.items():
            for name in jobs:
                sidecar._jobs._call(owner, name)

    def each_day(day: int) -> None:
        if day % every == 0 and sidecar._members:
            seen.append(held(folder, day, sidecar._members[0]._snapshot_s or 0.0))

    clock = FastClock(world, each_hour, each_day)
    world.until(world.now_s + 3600)
    pages = HtmlPages("soak")
    answers = Answers(Exporter(version="soak", clock=real), pages, clock=clock)

    def edges(config: object) -> Edges:
        made = app.edges_of(config, clock=clock, gate=gate, pages=pages)  # type: ignore[arg-type]
        return Edges(open_work=made.open_work, outlook=None, parts=made.parts)

    sidecar = Sidecar(
        configs,
        clock=clock,
        gate=gate,
        answers=answers,
        server=Server(configs.loaded[0].serve.listen, answers, clock=real),
        edges=edges,
    )
    sidecar.run()
    return world, seen


def main() -> None:
    """Play, and print one line for each measurement."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--days", type=int, default=400)
    options.add_argument("--reports", action="store_true", help="a weekly report by a real child")
    options.add_argument("--record", type=Path, help="append the result here, for tests.torture --from")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        began = time.monotonic()
        world, seen = soak(folder, days=asked.days, reports=asked.reports)
        for one in seen:
            print(one)
        document = app.snapshot_now(app.load_config(folder / "run.toml"), as_of_us=int(world.now_s * 1e6))
        made = sorted(path.name for path in folder.glob("reports-out/**/*.pdf"))
        summary: dict[str, object] = {
            "days": asked.days,
            "minutes": round((time.monotonic() - began) / 60, 1),
            "steps_written": world.steps,
            "steps_in_the_model": document.steps.net,
            "attempts": len(document.attempts),
            "reports": len(made),
        }
        print(json.dumps(summary))
        if asked.record is not None:
            with asked.record.open("a", encoding="utf-8") as out:
                words = {"sort": "soak", **summary, "held": [asdict(one) for one in seen]}
                out.write(json.dumps(words) + "\n")
        if document.steps.net != world.steps:
            sys.exit("steps are lost or doubled")


if __name__ == "__main__":
    main()
