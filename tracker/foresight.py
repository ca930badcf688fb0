"""The forecasts of one run: when the next one is due, whose turn it is, and the last one that came.

Edge: through an `Outlook`, which asks a child process. Nothing here waits.
"""

from __future__ import annotations

import math
from typing import Final

from tracker.core.forecast.value import Forecast
from tracker.gate import Gate
from tracker.interfaces import Clock
from tracker.parts import Outlook, RunNow

EVERY_S: Final = 900.0
"""Between two forecasts; the first is made once all sources were read."""
EVERY_OF_MANY_S: Final = 30.0
"""At least that long, times the number of runs: the children then take some five per cent of a core."""
FINISHED_S: Final = 6 * 3600.0
"""Of a run that is finished and brings nothing new: what it costs may still grow, with its reservation."""
_RETRY_S: Final = 30.0
_SECOND_US: Final = 1_000_000


class Foresight:
    """Takes a forecast that is there, asks for the next where it is due and the gate is open."""

    def __init__(self, outlook: Outlook, *, clock: Clock, gate: Gate) -> None:
        self.latest: Forecast | None = None
        """The last one that came."""
        self._outlook = outlook
        self._clock = clock
        self._gate = gate
        self._asked_s = float("-inf")
        self._asked: tuple[int, int] | None = None
        """What the last one was asked of: the revision of the facts, and the moment."""

    @property
    def busy(self) -> bool:
        """Whether one is being made."""
        return self._outlook.busy

    @property
    def wants(self) -> bool:
        """Whether a turn should come soon."""
        return self.busy or self._gate.is_open_for(self)

    @property
    def problem(self) -> str:
        """Why the last one failed; empty where it did not."""
        return self._outlook.problem

    def turn(self, now: RunNow, *, revision: int, runs: int) -> bool:
        """Do what can be done without waiting; tell whether another forecast is there.

        `revision` grows with every change of the facts; `runs` share the processor.
        """
        if not now.settled:
            return False
        was_busy = self.busy
        made = self._outlook.poll()
        if made is not None:
            self.latest = made
        if self.busy:
            return made is not None
        if was_busy:
            self._gate.leave(self)
        if not (now.store_up and not now.leaving and self._due(now, revision, runs)):
            self._gate.leave(self)
        elif self._gate.enter(self):
            self._asked_s = self._clock.monotonic_s()
            self._asked = revision, now.as_of_us
            self._outlook.begin(now.as_of_us // _SECOND_US * _SECOND_US)  # a moment that a command can name
            if not self.busy:
                self._gate.leave(self)
        return made is not None

    def _due(self, now: RunNow, revision: int, runs: int) -> bool:
        return self._clock.monotonic_s() - self._asked_s >= self._every_s(now, revision, runs)

    def _every_s(self, now: RunNow, revision: int, runs: int) -> float:
        if self.latest is None or self.problem:
            return _RETRY_S
        if self._asked == (revision, now.as_of_us):  # a run that is history
            return math.inf
        usual_s = max(EVERY_S, EVERY_OF_MANY_S * runs)
        finished = now.snapshot is not None and now.snapshot.state == "finished"
        same_facts = self._asked is not None and self._asked[0] == revision
        return max(usual_s, FINISHED_S) if finished and same_facts else usual_s

    def close(self) -> None:
        """End what is under way."""
        self._gate.leave(self)
        self._outlook.close()
