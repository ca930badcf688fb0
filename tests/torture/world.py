"""Lets the world around a sidecar fail in all the ways that worlds do: who hangs, who loses, who says so.

Edge: starts processes and servers, writes large files. Each time a run is played beside the fault; it must be
stored whole, the process must live on and stay small, and what is wrong must be said, with the source or the
way out by name. What takes a gigabyte is scaled by `scale`, so that the test suite can do a little of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.mail_server import silent_server
from tests.torture.content import Rows, content, rows
from tests.torture.disk import CannotTry
from tests.torture.sidecar import Sidecar, ask
from tests.torture.stage import Plot, Stage
from tracker import app
from tracker.core.errors import TrackerError

PLOT: Final = Plot(name="world", preset="finished", changes=(("total_steps", 1500),))
MOST_MB: Final = 110.0
"""Memory at its highest; a gigabyte of log or a line of 500 MB must not show in it ..."""
MOST_OF_MANY_ROWS_MB: Final = 200.0
"""... but an answer of 100,000 rows is taken whole."""
CHATTER: Final = (
    b"INFO:megatron.core: something that nobody looks for, and there is very much of it, line after line\n"
)


@dataclass(slots=True)
class Met:
    """What one fault of the world did."""

    name: str
    message: str = ""
    """What the sidecar or the command said of it."""
    figures: str = ""
    """How much, how long."""
    memory_mb: float = 0.0
    """Of the sidecar, at its highest."""
    rows: int = 0
    faults: list[str] = field(default_factory=list)
    left_out: str = ""


@dataclass(slots=True)
class Scene:
    """A folder with a run that is played, and what stands beside it."""

    folder: Path
    met: Met
    scale: float
    stage: Stage
    sidecar: Sidecar | None = None

    def start(self, more: str = "", under: Sequence[str] = ()) -> Sidecar:
        """Start it, with more in its config, by another program where that is given."""
        if more:
            with (self.folder / "run.toml").open("a") as out:
                out.write(more)
        self.sidecar = Sidecar(self.folder, foresees=False, under=under)
        return self.sidecar

    def problems(self) -> list[str]:
        """What the sidecar says is wrong now."""
        assert self.sidecar is not None
        answer = self.sidecar.get("/api/v1/runs")
        return (
            [str(one) for run in json.loads(answer[1])["runs"] for one in run["problems"]] if answer else []
        )

    def said(self, words: str, limit_s: float = 120.0) -> None:
        """Wait until a problem has these words, and keep it."""
        assert self.sidecar is not None
        found: list[str] = []

        def look() -> bool:
            found[:] = [one for one in self.problems() if re.search(words, one)]
            return bool(found)

        self.sidecar.until(look, f"to say {words!r}; it says {self.problems()}", limit_s)
        self.met.message = found[0]

    def caught_up(self, limit_s: float = 300.0) -> float:
        """Wait until all is read; return how long that took."""
        assert self.sidecar is not None
        began = time.monotonic()
        self.sidecar.until(self.sidecar.caught_up, "to catch up", limit_s)
        return time.monotonic() - began

    def metric(self, pattern: str) -> float:
        """Return the value of a metric with its labels, as a pattern; 0 where it is not there."""
        assert self.sidecar is not None
        answer = self.sidecar.get("/metrics", limit_s=30.0)
        found = re.search(rf"^{pattern} (\S+)$", answer[1] if answer else "", re.MULTILINE)
        return 0.0 if found is None else float(found[1])

    def high_mb(self) -> float:
        """Return the sidecar's memory at its highest."""
        assert self.sidecar is not None
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.sidecar.process.pid}/status").read_text())
        return int(found[1]) / 1e3 if found else 0.0

    def handles(self) -> int:
        """Return how many files the sidecar holds open."""
        assert self.sidecar is not None
        return len(os.listdir(f"/proc/{self.sidecar.process.pid}/fd"))


@contextlib.contextmanager
def scene(name: str, folder: Path, seed: int, scale: float) -> Iterator[Scene]:
    """Make the folder; in the end nothing runs."""
    stage = Stage(PLOT, folder, seed=seed)
    stage.configs()
    there = Scene(folder, Met(name), scale, stage)
    try:
        yield there
    finally:
        if there.sidecar is not None:
            there.sidecar.end()


# -- the faults ---------------------------------------------------------------------------------------

_SLURM = '\n[[source]]\ncollector = "slurm"\ninterval_s = 1\ntimeout_s = 1\ncommand = {}\n'


def scheduler_hangs(at: Scene) -> None:
    """The scheduler's command never ends: it is ended with all it started; the logs are read meanwhile."""
    at.start(_SLURM.format('["sh", "-c", "sleep 600 & sleep 600"]'))
    at.stage.play(len(at.stage.todo), 1.0)
    at.said("took longer")


def scheduler_babbles(at: Scene) -> None:
    """The scheduler's command prints what is no table: nothing of it is taken, what was told before stays."""
    at.start(_SLURM.format('["head", "-c", "20000", "/dev/urandom"]'))
    at.stage.play(len(at.stage.todo), 1.0)
    at.said("holds nothing that can be used")


def scheduler_missing(at: Scene) -> None:
    """The scheduler's command is not installed where the sidecar runs."""
    at.start(_SLURM.format('["no-such-scheduler", "--all"]'))
    at.stage.play(len(at.stage.todo), 1.0)
    at.said("cannot be started")


def scheduler_tells_much(at: Scene) -> None:
    """The scheduler's command tells of 100,000 jobs of others."""
    number = round(100_000 * at.scale)
    with (at.folder / "much.txt").open("w") as out:
        out.write("JobID|JobName|State|Submit|Start|End|NNodes|NCPUS|AllocTRES\n")
        for job in range(number):
            out.write(f"{10**7 + job}|others-{job % 977}|COMPLETED|2020-01-01T00:00:00|2020-01-01T00:00:00|"
                      "2020-01-01T01:00:00|1|8|gres/gpu=8\n")  # fmt: skip
    began = time.monotonic()
    at.start(_SLURM.format('["cat", "much.txt"]').replace("timeout_s = 1", "timeout_s = 60"))
    at.stage.play(len(at.stage.todo), 1.0)
    one = at.sidecar
    assert one is not None
    one.until(lambda: at.metric(r'tracker_source_up\{[^}]*source="3"\}') == 1, "to take the rows", 300)
    at.met.figures = f"{number:,} rows taken in {time.monotonic() - began:.1f} s"


_MAIL = """
[report]
directory = "reports"
at = "00:00"
[report.mail]
host = "{host}"
port = {port}
tls = "none"
from = "tracker@example.org"
to = "team@example.org"
timeout_s = 2
"""


def mail_is_silent(at: Scene) -> None:
    """The mail server accepts the connection and never answers: the letter waits, and is tried again."""
    with silent_server() as port:
        at.start(_MAIL.format(host="127.0.0.1", port=port))
        at.stage.play(len(at.stage.todo), 1.0)
        at.said("answer", 300)


def name_unknown(at: Scene) -> None:
    """The mail server's name is not known to the DNS: the letter waits, and is tried again."""
    at.start(_MAIL.format(host="mail.invalid", port=25))
    at.stage.play(len(at.stage.todo), 1.0)
    at.said("mail.invalid", 300)


def receiver_is_silent(at: Scene) -> None:
    """The receiver of a back-fill accepts and never answers: tried again for a while, then it ends with 1."""
    at.start()
    at.stage.play(len(at.stage.todo), 1.0)
    at.caught_up()
    with silent_server() as port:
        status, _, err = ask(
            at.folder, "backfill", "--config", "run.toml", "--url", f"http://127.0.0.1:{port}",
            "--timeout", "1", "--retry-for", "3", "--settle", "0",
        )  # fmt: skip
    at.met.message = (err.strip().splitlines() or [""])[-1]
    if status != 1 or "Traceback" in err:
        at.met.faults.append(f"tracker backfill ended with {status}: {err[-500:]}")


def much_while_down(at: Scene) -> None:
    """The log grows by a gigabyte while nobody reads it: read on from where it was, in bounded memory."""
    at.start()
    at.stage.play(len(at.stage.todo) // 3, 0.5)
    at.caught_up()
    one = at.sidecar
    assert one is not None
    one.kill()
    size = round((1 << 30) * at.scale)
    newest = max(at.folder.glob("logs/*"), key=lambda path: path.stat().st_mtime)
    with newest.open("ab") as out:
        block = CHATTER * 10_000
        while size > 0:
            out.write(block[: -(-min(size, len(block)) // len(CHATTER)) * len(CHATTER)])
            size -= len(block)
    at.start()
    began = time.monotonic()
    one = at.sidecar
    assert one is not None
    one.until(lambda: one.url is not None, "to listen")
    at.caught_up(900)
    took_s = time.monotonic() - began
    at.met.figures = f"{at.scale * 1024:,.0f} MiB read in {took_s:.0f} s"
    at.stage.play(len(at.stage.todo), 1.0)


def many_files(at: Scene) -> None:
    """10,000 files lie in the glob, most of them no logs of training."""
    number = round(10_000 * at.scale)
    for file in range(number):
        (at.folder / "logs" / f"other-{file}.log").write_bytes(b"job %d: " % file + CHATTER * 3)
    began = time.monotonic()
    at.start()
    at.stage.play(len(at.stage.todo), 1.0)
    at.caught_up()
    at.caught_up()
    held = at.handles()
    at.met.figures = f"{number:,} files, all read after {time.monotonic() - began:.0f} s, {held} handles held"
    if held > 1100:
        at.met.faults.append(f"{held} handles are held")


def long_line(at: Scene) -> None:
    """A line of 500 MB, as of a program that prints an array: passed over and counted."""
    size = round((500 << 20) * at.scale)
    at.start()
    at.stage.play(len(at.stage.todo) // 3, 0.5)
    at.caught_up()
    newest = max(at.folder.glob("logs/*"), key=lambda path: path.stat().st_mtime)
    with newest.open("ab") as out:
        block = b"0.125, " * 100_000
        left = size
        while left > 0:
            left -= out.write(block[:left])
        out.write(b"\n")
    at.caught_up(600)
    at.stage.play(len(at.stage.todo), 1.0)
    at.caught_up()
    skipped = at.metric(r'tracker_skipped_bytes_total\{[^}]*reason="too_long"[^}]*\}')
    at.met.figures = f"{skipped / 1e6:,.0f} MB counted in `tracker_skipped_bytes_total`"
    if not 0.9 * size <= skipped <= 1.1 * size:
        at.met.faults.append(f"{skipped:.0f} bytes are counted as passed over, {size} are")


def no_line_end(at: Scene) -> None:
    """The newest line has no end yet: it waits, half a number is never taken for a whole one."""
    at.start()
    at.stage.play(len(at.stage.todo) // 2, 0.5)
    at.caught_up()
    newest = max(at.folder.glob("logs/*"), key=lambda path: path.stat().st_mtime)
    before = at.metric(r"training_step\{[^}]*\}")
    line = (
        b" [2026-01-05 00:00:00.000000] iteration    99999/ 100000 | consumed samples: 102398976 | elapsed"
        b" time per iteration (ms): 4000.0 | learning rate: 1.0E-05 | global batch size:  1024 | lm loss: 1.0"
    )
    with newest.open("ab") as out:
        out.write(line)
    one = at.sidecar
    assert one is not None
    one.until(lambda: (one.lag_bytes() or 0) >= len(line), "to tell that bytes wait")
    time.sleep(1.0)
    after = at.metric(r"training_step\{[^}]*\}")
    at.met.figures = f"`tracker_source_lag_bytes` {one.lag_bytes():.0f}, step {after:.0f} as before"
    if after != before:
        at.met.faults.append(f"half a line was taken: step {before} became {after}")
    with newest.open("r+b") as out:
        out.truncate(newest.stat().st_size - len(line))
    at.stage.play(len(at.stage.todo), 1.0)


def two_jobs(at: Scene) -> None:
    """A second job appends to the same file: read, attempt by attempt; the ledger closes."""
    at.start()
    at.stage.play(len(at.stage.todo) // 3, 0.5)
    at.caught_up()
    newest = max(at.folder.glob("logs/*"), key=lambda path: path.stat().st_mtime)
    lines = newest.read_bytes().splitlines(keepends=True)
    for part in range(8):
        with newest.open("ab") as out:
            out.writelines(lines[part * 3 : part * 3 + 3])
        at.stage.play(len(at.stage.todo) // 20, 0.1)
    at.stage.play(len(at.stage.todo), 0.5)
    at.caught_up()
    status, out_text, err = ask(at.folder, "ledger", "--config", "run.toml", "--json")
    if status != 0:
        at.met.faults.append(f"tracker ledger ended with {status}: {err[-500:]}")
    else:
        at.met.figures = f"{len(json.loads(out_text)['attempts'])} attempts told"


_JOB: Final = """
import sys, time
from pathlib import Path
held = []
while not Path("enough").exists():
    held.append(bytearray(b"x" * (1 << 20)))
    time.sleep(0.002 if len(held) < 120 else 0.1)
time.sleep(600)
"""
_GROUPS: Final = Path("/sys/fs/cgroup/memory")
_NODE_MB: Final = 200


def memory_runs_out(at: Scene) -> None:
    """A job of one process takes all memory: the sidecar is ended, not the job, and starts again."""
    with _node(_NODE_MB) as inside:
        one = at.start(under=inside)
        at.stage.play(len(at.stage.todo) // 2, 0.5)
        at.caught_up()
        job = subprocess.Popen([*inside, sys.executable, "-c", _JOB], cwd=at.folder)
        try:
            ends = time.monotonic() + 60
            while one.process.poll() is None and job.poll() is None and time.monotonic() < ends:
                at.stage.play(1, 0.1)
            (at.folder / "enough").touch()
            time.sleep(0.5)
            if one.process.poll() != -signal.SIGKILL:
                at.met.faults.append(f"the sidecar was not ended: {one.process.poll()}")
            if job.poll() is not None:
                at.met.faults.append(f"the job was ended: {job.poll()}")
        finally:
            job.kill()
            job.wait()
    at.met.figures = f"a node of {_NODE_MB} MB, of which the job took {_NODE_MB - 45} MB and more"
    one.end()
    at.start()
    at.stage.play(len(at.stage.todo), 1.0)


@contextlib.contextmanager
def _node(megabytes: int) -> Iterator[Sequence[str]]:
    """Make a control group with so little memory; yield the words that start a program inside it."""
    group = _GROUPS / f"torture-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(megabytes << 20))
    except OSError as error:
        raise CannotTry(f"no control group for memory can be made: {error.strerror}") from error
    try:
        yield ("sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "inside")
    finally:
        for _ in range(50):
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


FAULTS: Final[Mapping[str, Callable[[Scene], None]]] = {
    "the scheduler hangs": scheduler_hangs,
    "the scheduler prints garbage": scheduler_babbles,
    "the scheduler is missing": scheduler_missing,
    "the scheduler tells of very many": scheduler_tells_much,
    "the mail server is silent": mail_is_silent,
    "the mail server has no address": name_unknown,
    "the receiver is silent": receiver_is_silent,
    "a gigabyte while it was down": much_while_down,
    "very many files": many_files,
    "a line without end": long_line,
    "no end of line yet": no_line_end,
    "two jobs, one file": two_jobs,
    "memory runs out": memory_runs_out,
}
REMEDIES: Final[Mapping[str, str]] = {
    "the scheduler hangs": (
        "Run the command by hand as the tracker's user; raise `timeout_s` where it is merely slow. "
        "Until then GPU-time comes from the logs."
    ),
    "the scheduler prints garbage": (
        "Look at what the command prints; sacct needs `--parsable2` and its header."
    ),
    "the scheduler is missing": (
        "Install it, or give its whole path; in a container, let another host write a file and read "
        "that with `path`."
    ),
    "the scheduler tells of very many": (
        "Nothing. Less is read with `--name` or `--starttime` in the command."
    ),
    "the mail server is silent": (
        "Ask whoever runs the server, or correct `report.mail.port` and `tls`. Nothing is lost: the "
        "letter waits in the store."
    ),
    "the mail server has no address": (
        "Correct `report.mail.host` or the machine's DNS; the letter is then sent by itself."
    ),
    "the receiver is silent": ("Run the same command again later: it goes on where it was."),
    "a gigabyte while it was down": (
        "Nothing: the numbers are those of the moment up to which it has read; "
        "`tracker_source_lag_bytes` says what is left."
    ),
    "very many files": (
        "Name the glob closer (`logs/train-*.log`): each look asks the file system for every file."
    ),
    "a line without end": (
        "Nothing; `tracker_skipped_bytes_total` counts it. The program that prints it can be told not to."
    ),
    "no end of line yet": (
        "Nothing while the job writes. Where it ended so: `tracker ingest --final` takes the last "
        "line as it is."
    ),
    "two jobs, one file": (
        "Give each job a file of its own (`%j` in Slurm's `--output`); what is told of mixed lines is"
        " a guess."
    ),
    "memory runs out": (
        "Nothing: the supervisor starts it again and it reads on. Where it happens often, give the job less,"
        " or the node more."
    ),
}


def meet(name: str, folder: Path, *, seed: int = 1, scale: float = 1.0) -> Met:
    """Try one fault; compare what was stored with the logs read once."""
    with scene(name, folder, seed, scale) as at:
        met = at.met
        try:
            FAULTS[name](at)
            _end(at)
        except CannotTry as why:
            met.left_out = str(why)
        except AssertionError as why:
            met.faults.append(str(why))
        return met


def _end(at: Scene) -> None:
    one, met = at.sidecar, at.met
    assert one is not None
    at.stage.finish()
    at.caught_up()
    met.memory_mb = at.high_mb()
    most_mb = MOST_OF_MANY_ROWS_MB if FAULTS[met.name] is scheduler_tells_much else MOST_MB
    if met.memory_mb > most_mb:
        met.faults.append(f"it took {met.memory_mb:.0f} MB")
    status = one.stop()
    if status != 0 or "Traceback" in one.said:
        met.faults.append(f"SIGTERM ended it with {status}: {one.said[-800:]}")
    once = at.folder / "once.toml"
    text = (at.folder / "whole.toml").read_text().replace('"whole.db"', '"once.db"')
    once.write_text(text)
    try:
        app.ingest_once(app.load_config(at.folder / "run.toml"), final=True)
        app.ingest_once(app.load_config(once), final=True)
    except TrackerError as error:
        met.faults.append(f"afterwards it cannot be read: {error}")
        return
    ends, expected = content(at.folder / "tracker.db"), content(at.folder / "once.db")
    met.rows = rows(ends)
    met.faults += _differences(ends, expected)
    checked, _, err = ask(at.folder, "db", "check", str(at.folder / "tracker.db"))
    if checked != 0:
        met.faults.append(f"tracker db check: {err[-500:]}")


def _differences(ends: Rows, expected: Rows) -> list[str]:
    """Return what of the training's own rows is not as when they are read once."""
    found = []
    for table in ("reading", "event", "reject"):
        more, fewer = ends[table] - expected[table], expected[table] - ends[table]
        own = sum(count for row, count in more.items() if row[0][0] < 2)  # of the first two sources
        if own or fewer:
            found.append(f"{table}: {own} more, {sum(fewer.values())} fewer than read once")
    return found
