"""A child does not outlive whoever began it, however that ended; what fails at an end stops no other end."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tracker.child import Child
from tracker.clock import SystemClock
from tracker.core.errors import TrackerError
from tracker.gate import Gate
from tracker.leash import Leash
from tracker.member import Member
from tracker.parts import Edges

PARENT = """
import json, subprocess, sys, time
from pathlib import Path
from tracker.child import Child
from tracker.clock import SystemClock
child = Child("a child", clock=SystemClock(), orphaned={number})
child.begin(["code"], folder=Path("."), limit_s=600, env={{"PYTHONPATH": "."}})
time.sleep(600)
"""
TELLS = """
import os, subprocess, sys, time
below = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open("pids.new", "w") as out:
    out.write(f"{os.getpid()} {below.pid}")
os.rename("pids.new", "pids")
sum(iter(lambda: 1, 0))  # busy, and never back in the interpreter's loop
"""
FINISHES = """
import os, signal, time
def finish(*_):
    time.sleep(0.2)
    open("finished", "w").close()
    raise SystemExit
signal.signal(signal.SIGTERM, finish)
open("pids.new", "w").write(f"{os.getpid()}")
os.rename("pids.new", "pids")
time.sleep(600)
"""


def until(condition: Callable[[], bool], otherwise: str, limit_s: float = 60.0) -> None:
    ends = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < ends, otherwise
        time.sleep(0.02)


def lives(pid: int) -> bool:
    """Whether a process still does something; one that only nobody waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Callable[..., list[int]]]:
    """Begin a parent whose child runs some code, kill the parent; return the processes below it."""
    pids: list[int] = []

    def kill(code: str, *, number: int = signal.SIGKILL) -> list[int]:
        (tmp_path / "code.py").write_text(code)
        parent = subprocess.Popen([sys.executable, "-c", PARENT.format(number=int(number))], cwd=tmp_path)
        until((tmp_path / "pids").exists, "the child did not begin")
        pids.extend(map(int, (tmp_path / "pids").read_text().split()))
        assert all(map(lives, pids))
        parent.kill()
        parent.wait()
        return pids

    yield kill
    for pid in filter(lives, pids):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_child_and_what_it_started_go_with_a_killed_parent(killed: Callable[..., list[int]]) -> None:
    """SIGKILL leaves no time to tidy up: the kernel does it, even where the child computes."""
    for pid in killed(TELLS):
        until(lambda pid=pid: not lives(pid), f"{pid} outlived its parent")  # type: ignore[misc]


@pytest.mark.slow
def test_a_child_that_sends_a_letter_may_finish_it(killed: Callable[..., list[int]], tmp_path: Path) -> None:
    """It is asked to stop, not killed: else nobody would know whether the letter arrived."""
    (pid,) = killed(FINISHES, number=signal.SIGTERM)
    until(lambda: not lives(pid), f"{pid} outlived its parent")

    assert (tmp_path / "finished").exists()


def test_a_child_that_ends_by_itself_is_not_disturbed(tmp_path: Path) -> None:
    """Its status and its words come back, and no handle is left open."""
    (tmp_path / "code.py").write_text("print('done')\n")
    clock = SystemClock()
    handles = len(os.listdir("/proc/self/fd"))
    child = Child("a child", clock=clock)
    child.begin(["code"], folder=tmp_path, limit_s=60, env={"PYTHONPATH": str(tmp_path)})
    until(child.poll, "it did not end")

    assert (child.problem, child.said.strip()) == ("", b"done")
    assert len(os.listdir("/proc/self/fd")) == handles


def test_a_child_that_cannot_be_started_leaves_no_handle(tmp_path: Path) -> None:
    """The pipe was made before it was known."""
    clock = SystemClock()
    handles = len(os.listdir("/proc/self/fd"))
    child = Child("a child", clock=clock)
    child.begin(["code"], folder=tmp_path / "missing", limit_s=60)

    assert "could not be started" in child.problem
    assert not child.busy
    assert len(os.listdir("/proc/self/fd")) == handles


def test_letting_go_ends_a_child_that_still_lives() -> None:
    """Whoever forgets to wait for one has none left behind."""
    with Leash() as leash:
        child = subprocess.Popen(["sleep", "600"], pass_fds=leash.fds, start_new_session=True)
        leash.hold(child)
        assert child.poll() is None

    assert child.wait(60) == -signal.SIGKILL


REAL = """
[run]
name = "led"
[model]
active_params = 1e9
sequence_length = 2048
[hardware]
gpu = "h100-sxm"
gpus = 8
[plan]
tokens = 8e9
[[source]]
path = "*.log"
[[source]]
collector = "slurm"
command = ["sh", "-c", "sleep 600 & sleep 600"]
[ingest]
poll_s = 0.1
[serve]
listen = "127.0.0.1:0"
[report]
directory = "reports"
[[report.schedule]]
name = "daily"
at = "00:00"
"""
STEP = (
    " [2026-01-05 08:{:02d}:00] iteration {:8d}/ 5000 | consumed samples: {:12d} | elapsed time per iteration"
    " (ms): 60000.0 | learning rate: 1.0E-05 | global batch size: 64 | lm loss: 1.0E+01 | loss scale: 1.0 |"
    " grad norm: 1.1 | number of skipped iterations: 0 | number of nan iterations: 0 |\\n"
)


def below(pid: int) -> list[int]:
    """Return all processes that descend from one."""
    found, todo = [], [pid]
    while todo:
        at = todo.pop()
        for task in Path("/proc").glob(f"{at}/task/*/children"):
            try:
                todo += (more := [int(word) for word in task.read_text().split()])
                found += more
            except OSError:
                continue
    return found


@pytest.mark.slow
def test_nothing_of_a_killed_sidecar_goes_on(tmp_path: Path) -> None:
    """Forecast, report and scheduler command: seconds after SIGKILL of `tracker run` none of them lives."""
    (tmp_path / "run.toml").write_text(REAL)
    (tmp_path / "train.log").write_text("".join(STEP.format(n, n, 64 * n) for n in range(1, 50)))
    said = tmp_path / "said.txt"
    with said.open("wb") as out:
        sidecar = subprocess.Popen(
            [sys.executable, "-P", "-c", "from tracker.cli import main\nmain()", "run"],
            cwd=tmp_path, stdout=out, stderr=out,
        )  # fmt: skip
    seen: set[int] = set()
    words: set[str] = set()

    def look() -> bool:
        for pid in below(sidecar.pid):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            seen.add(pid)
            words.update(word for word in ("report_child", "forecast_child", "sleep 600") if word in line)
        assert sidecar.poll() is None, said.read_text()
        return "sleep 600" in words and bool(words & {"report_child", "forecast_child"})

    until(look, f"no child was begun: {words}")
    at_work = below(sidecar.pid)
    sidecar.kill()
    sidecar.wait()
    for pid in {*seen, *at_work}:
        until(lambda pid=pid: not lives(pid), f"{pid} outlived the sidecar")  # type: ignore[misc]
    whole = [path.name for path in (tmp_path / "reports").glob("*") if not path.name.startswith(".")]

    assert [name for name in whole if not (tmp_path / "reports" / name).stat().st_size] == []


# -- what fails at an end -------------------------------------------------------------------------------


class Ends:
    """A part of a run, or its store, that notes that it was closed, and fails at it where told."""

    busy = False
    problem = ""

    def __init__(self, fault: Exception | None) -> None:
        self.fault = fault
        self.closed = False

    def attend(self, jobs: object) -> None:
        """Want nothing."""

    def told(self, vitals: Any) -> Any:
        """Add nothing."""
        return vitals

    def close(self) -> None:
        self.closed = True
        if self.fault is not None:
            raise self.fault


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(TrackerError("the store is gone"), id="a-fault-we-know"),
        pytest.param(OSError(5, "Input/output error"), id="a-disk-that-fails"),
        pytest.param(RuntimeError("a defect of ours"), id="a-defect"),
    ],
)
def test_what_fails_at_the_end_is_said_and_stops_no_other_end(
    fault: Exception, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The outlook, both parts and the store are closed, whichever fails; the log names each fault."""
    from tracker import app
    from tracker.scheduler import Jobs

    (tmp_path / "run.toml").write_text(REAL)
    ends = [Ends(fault) for _ in range(4)]
    outlook, work, *parts = ends
    clock: Any = SystemClock()
    jobs = Jobs(clock, wake=lambda: None)
    made: Any = {"open_work": lambda: work, "outlook": outlook, "parts": tuple(parts)}
    member = Member(
        app.load_config(tmp_path / "run.toml"),
        Edges(**made),
        clock=clock,
        gate=Gate(),
        jobs=jobs.of("led"),
        publish=lambda shown: None,
    )
    member.open()
    with caplog.at_level(logging.WARNING):
        member.close()
    jobs.stop()

    assert [one.closed for one in ends] == [True] * 4
    assert caplog.text.count(str(fault)) >= 4
