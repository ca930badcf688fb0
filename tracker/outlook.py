"""The sidecar's way to a forecast: a child process, so that its memory never becomes ours.

Edge: starts, watches and ends one process. The child has a time limit, bounds its own memory, and keeps
the forecast in the store; what comes back here is a few hundred numbers.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tracker.core.forecast.value import Forecast
from tracker.interfaces import Clock

LIMIT_S: Final = 120.0
_LARGEST: Final = 1 << 20


class Outlook:
    """At most one child at a time: `begin` one, `poll` until it is done."""

    def __init__(self, config: Path, *, clock: Clock, limit_s: float = LIMIT_S) -> None:
        self._config = config
        self._clock = clock
        self._limit_s = limit_s
        self._child: subprocess.Popen[bytes] | None = None
        self._until_s = 0.0
        self.problem = ""
        """Why the last one failed; empty where it did not."""

    @property
    def busy(self) -> bool:
        """Whether a child is at work."""
        return self._child is not None

    def begin(self, as_of_us: int) -> None:
        """Ask for the forecast of a moment; nothing where one is being made."""
        if self._child is not None:
            return
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "tracker.cli.forecast_child", str(self._config), str(as_of_us)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # what is said fits a pipe: it is read once the child is gone
                stderr=subprocess.STDOUT,
                cwd=self._config.parent,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
        except OSError as error:
            self.problem = f"the forecast could not be started: {error.strerror or error}"
            self._forget()
            return
        self._until_s = self._clock.monotonic_s() + self._limit_s

    def poll(self) -> Forecast | None:
        """Return the forecast once it is there; end a child that takes too long. Never waits."""
        child = self._child
        if child is None or child.stdout is None:
            return None
        status = child.poll()
        if status is None:
            if self._clock.monotonic_s() > self._until_s:
                self.close()
                self.problem = f"the forecast took longer than {self._limit_s:.0f} s and was ended"
            return None
        text = child.stdout.read(_LARGEST)
        self._forget()
        if status == 0:
            try:
                made = Forecast.from_json(json.loads(text))
            except (ValueError, TypeError, KeyError) as error:
                self.problem = f"the forecast's answer cannot be read: {error}"
                return None
            self.problem = ""
            return made
        last = text.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no word"]
        self.problem = f"the forecast failed: {last[0][:300]}"
        return None

    def close(self) -> None:
        """End a child that is at work."""
        if self._child is not None:
            with contextlib.suppress(OSError):
                self._child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(5.0)
        self._forget()

    def _forget(self) -> None:
        if self._child is not None and self._child.stdout is not None:
            self._child.stdout.close()
        self._child = None
