"""The sidecar's way to a forecast: a child process, so that its memory never becomes ours.

Edge: asks one process. The child has a time limit, bounds its own memory, and keeps the forecast in the
store; what comes back here is a few hundred numbers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tracker.child import Child
from tracker.core.forecast.value import Forecast
from tracker.interfaces import Clock

LIMIT_S: Final = 120.0
_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class Outlook:
    """At most one child at a time: `begin` one, `poll` until it is done. When to ask again, others decide."""

    def __init__(self, config: Path, *, clock: Clock, limit_s: float = LIMIT_S) -> None:
        self._config = config
        self._limit_s = limit_s
        self._child = Child("the forecast", clock=clock, rests=False)
        self.problem = ""
        """Why the last one failed; empty where it did not."""

    @property
    def busy(self) -> bool:
        """Whether a child is at work."""
        return self._child.busy

    def begin(self, as_of_us: int) -> None:
        """Ask for the forecast of a moment; nothing where one is being made."""
        if self._child.busy:
            return
        self._child.begin(
            ["tracker.cli.forecast_child", str(self._config), str(as_of_us)],
            folder=self._config.parent,
            limit_s=self._limit_s,
            env=_ONE_THREAD,
        )
        if not self._child.busy:
            self.problem = self._child.problem

    def poll(self) -> Forecast | None:
        """Return the forecast once it is there; end a child that takes too long. Never waits."""
        if not self._child.poll():
            return None
        self.problem = self._child.problem
        if self.problem:
            return None
        try:
            return Forecast.from_json(json.loads(self._child.said))
        except (ValueError, TypeError, KeyError) as error:
            self.problem = f"the forecast's answer cannot be read: {error}"
            return None

    def close(self) -> None:
        """End a child that is at work."""
        self._child.close()
