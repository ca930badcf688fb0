"""A real `tracker run` in a process of its own: started, asked, frozen, killed.

Edge: starts processes.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.torture.nursery import Life, Nursery
from tracker.leash import Leash

TRACKER = (sys.executable, "-P", "-c", "from tracker.cli import main\nmain()")
_BLIND = "from tracker.outlook import Outlook\nOutlook.begin = lambda self, as_of_us: None\n"
_ENV = {k: v for k, v in os.environ.items() if k != "TRACKER_CONFIG"}
_ROOT = Path(__file__).resolve().parents[2]


class Sidecar:
    """One life of a sidecar."""

    def __init__(
        self,
        folder: Path,
        config: str = "run.toml",
        *,
        foresees: bool = True,
        under: Sequence[str] = (),
        nursery: Nursery | None = None,
        clock_s: float = 0.0,
    ) -> None:
        """Start it; without forecasts it takes a third of the processor, so that more lives fit an hour."""
        self.folder = folder
        self._said = folder / f"said-{config}.txt"
        self._out = self._said.open("ab")
        self._from = self._said.stat().st_size
        self.begun = time.monotonic()
        code = TRACKER[-1] if foresees else _BLIND + TRACKER[-1]
        self.process: subprocess.Popen[bytes] | Life
        self._leash: Leash | None = None
        if nursery is not None:
            self.process = nursery.begin(
                folder, self._said, config=config, foresees=foresees, clock_s=clock_s
            )
            return
        self._leash = Leash()
        self.process = subprocess.Popen(
            [*under, *TRACKER[:-1], code, "run", "--config", config],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._out,
            env={**_ENV, "PYTHONPATH": str(_ROOT)}, pass_fds=self._leash.fds,
        )  # fmt: skip
        self._leash.hold(self.process)

    @property
    def said(self) -> str:
        """What it printed in this life."""
        return self._said.read_bytes()[self._from :].decode("utf-8", "replace")

    @property
    def url(self) -> str | None:
        """Where it listens, once it does."""
        found = re.search(r"listening on (http://\S+)/\n", self.said)
        return None if found is None else found[1]

    def get(self, path: str, *, limit_s: float = 10.0) -> tuple[int, str] | None:
        """Return status and text of a page; None where nobody answers (yet, or any more)."""
        url = self.url
        if url is None:
            return None
        try:
            with urllib.request.urlopen(url + path, timeout=limit_s) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except (OSError, ValueError):
            return None

    def metric(self, name: str) -> float | None:
        """Return the value of a metric without labels besides the run; None where it is not there."""
        answer = self.get("/metrics")
        if answer is None:
            return None
        found = re.search(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", answer[1], re.MULTILINE)
        return None if found is None else float(found[1])

    def lag_bytes(self) -> float | None:
        """Return what is there and not yet read, of all sources; None where nobody tells."""
        answer = self.get("/metrics")
        found = re.findall(
            r"^tracker_source_lag_bytes\{.*\} (\S+)$", answer[1] if answer else "", re.MULTILINE
        )
        return sum(map(float, found)) if found else None

    def caught_up(self) -> bool:
        """Whether it says that all is read, but for a line that has no end yet."""
        lag_bytes = self.lag_bytes()
        return lag_bytes is not None and lag_bytes < 4096

    def until(self, condition: Callable[[], bool], what: str, limit_s: float = 60.0) -> None:
        """Wait for something; AssertionError with its own words where it does not come."""
        ends = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > ends:
                raise AssertionError(f"{what}: not within {limit_s:.0f} s. It said:\n{self.said[-3000:]}")
            if self.process.poll() is not None:
                raise AssertionError(f"{what}: it ended with {self.process.returncode}:\n{self.said[-3000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._let_go()

    def stop(self, limit_s: float = 30.0) -> int:
        """SIGTERM; return its status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(limit_s)
        finally:
            self.end()

    def freeze(self, meanwhile: Callable[[], object]) -> None:
        """SIGSTOP, let something happen, SIGCONT."""
        self.process.send_signal(signal.SIGSTOP)
        meanwhile()
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Make sure that it is gone."""
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.process.kill()
            self.process.wait()
        self._let_go()

    def _let_go(self) -> None:
        if self._leash is not None:
            self._leash.let_go()
        self._out.close()


def ask(folder: Path, *words: str, limit_s: float = 120.0) -> tuple[int, str, str]:
    """Run a command of the tracker; return status, what it printed, what it said."""
    done = subprocess.run(
        [*TRACKER, *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s,
        env={**_ENV, "PYTHONPATH": str(_ROOT)}, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
