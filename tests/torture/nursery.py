"""Starts many `tracker run` cheaply: a process that has loaded the modules forks one for each life.

Edge: `python -m tests.torture.nursery` is the process; `Nursery` talks to it in lines of JSON. What a life
does is what `tracker run` does from its first line on; only the loading of modules, most of a start, is
spared. When the pipe breaks, it ends what it began.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

_WRONG_FOR_S = 0.7
_ROOT = Path(__file__).resolve().parents[2]


class Life:
    """A forked process, with the few manners of `subprocess.Popen` that are needed."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.nursery = nursery
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it ended; None where it lives."""
        if self.returncode is None:
            self.returncode = self.nursery.ask(what="poll", pid=self.pid)
        return self.returncode

    def wait(self, limit_s: float | None = None) -> int:
        """Wait for its end."""
        ends = None if limit_s is None else time.monotonic() + limit_s
        while (status := self.poll()) is None:
            if ends is not None and time.monotonic() > ends:
                raise subprocess.TimeoutExpired("tracker run", limit_s or 0.0)
            time.sleep(0.01)
        return status

    def send_signal(self, number: int) -> None:
        """Send it a signal, while it lives."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The process that forks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.torture.nursery"],
            cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={k: v for k, v in os.environ.items() if k != "TRACKER_CONFIG"} | {"PYTHONPATH": str(_ROOT)},
        )  # fmt: skip

    def begin(self, folder: Path, said: Path, *, config: str, foresees: bool, clock_s: float = 0.0) -> Life:
        """Start a sidecar; its clock is off by `clock_s` at first, and is set right soon after."""
        pid = self.ask(
            what="begin",
            folder=str(folder),
            said=str(said),
            config=config,
            foresees=foresees,
            clock_s=clock_s,
        )
        return Life(self, pid)

    def ask(self, **words: Any) -> Any:
        """Say a line, return the answer."""
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        assert pipe_in is not None
        assert pipe_out is not None
        with self._lock:
            pipe_in.write(json.dumps(words) + "\n")
            pipe_in.flush()
            return json.loads(pipe_out.readline())

    def close(self) -> None:
        """End it, and what it began."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def _load() -> None:
    import collectors
    import reports
    import tracker

    for package in (tracker, collectors, reports):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not found.name.endswith(("__main__", "_child")):
                importlib.import_module(found.name)


def _live(words: dict[str, Any]) -> None:
    """Become a sidecar; never returns."""
    os.setsid()
    out = os.open(words["said"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd, to in ((nothing, 0), (out, 1), (out, 2)):
        os.dup2(fd, to)
    os.closerange(3, 64)
    os.chdir(words["folder"])
    if not words["foresees"]:
        from tracker.outlook import Outlook

        Outlook.begin = lambda self, as_of_us: None  # type: ignore[method-assign]
    if words["clock_s"]:
        _set_wrong(round(words["clock_s"] * 1e6))
    from tracker.cli import main

    sys.argv = ["tracker", "run", "--config", words["config"]]
    status = 1
    try:
        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _set_wrong(off_us: int) -> None:
    """Let the machine's clock be wrong, until somebody sets it."""
    from tracker.clock import SystemClock

    now_us, begun_s = SystemClock.now_us, time.monotonic()

    def wrong(self: SystemClock) -> int:
        return now_us(self) + (off_us if time.monotonic() - begun_s < _WRONG_FOR_S else 0)

    SystemClock.now_us = wrong  # type: ignore[method-assign]


def _serve() -> None:
    _load()
    living: set[int] = set()
    for line in sys.stdin:
        words = json.loads(line)
        answer: int | None
        if words["what"] == "begin":
            pid = os.fork()
            if pid == 0:
                _live(words)
            living.add(pid)
            answer = pid
        else:
            pid, status = os.waitpid(words["pid"], os.WNOHANG)
            answer = None if pid == 0 else os.waitstatus_to_exitcode(status)
            living.discard(pid)
        print(json.dumps(answer), flush=True)
    for pid in living:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _serve()
