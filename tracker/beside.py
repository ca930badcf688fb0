"""What the status page shows of the past: asked of a child process now and then, while somebody looks.

Edge: starts, watches and ends one process; reads the file that it wrote. Nobody waits for it: the page shows
what there is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tracker.child import Child
from tracker.core.beside import Beside
from tracker.gate import Gate
from tracker.interfaces import Clock
from tracker.parts import RunNow
from tracker.scheduler import RunJobs
from tracker.scratch import Scratch
from tracker.vitals import Vitals

EVERY_S: Final = 900.0
RETRY_S: Final = 300.0
SHARE: Final = 100.0
"""Between two passes at least this many times what one took: a per cent of a core at most."""
LOOKED_AT_S: Final = 3600.0
"""A page that nobody asked for in this time needs no past."""
LIMIT_S: Final = 120.0
_LARGEST: Final = 16 << 20


class Past:
    """The past of one run; a part of its member, and of its page."""

    def __init__(self, config: Path, *, clock: Clock, gate: Gate) -> None:
        self.problem = ""
        """Always empty: the page itself says what it lacks, and the next try mends it."""
        self.latest = Beside()
        """What the last child found."""
        self._config = config
        self._clock = clock
        self._gate = gate
        self._child = Child("the past of the status page", clock=clock)
        self._wanted_s = float("-inf")
        self._next_s = float("-inf")
        self._began_s = 0.0
        self._folder: Scratch | None = None

    def want(self) -> None:
        """Say that somebody looks. Called from the server's threads."""
        self._wanted_s = self._clock.monotonic_s()

    @property
    def busy(self) -> bool:
        """Whether a child is at work or about to be."""
        return self._child.busy or self._gate.is_open_for(self)

    def attend(self, jobs: RunJobs) -> None:
        """Ask for no time: whoever looks is what wakes it."""

    def turn(self, now: RunNow) -> None:
        """Take what is done, begin what is due; never waits."""
        now_s = self._clock.monotonic_s()
        if self._child.poll():
            self._take(now_s, now)
        if self._child.busy:
            return
        due = now_s >= self._next_s and now_s - self._wanted_s < LOOKED_AT_S
        may = now.settled and now.store_up and not now.leaving
        if not (due and may and now.snapshot is not None):
            self._gate.leave(self)
        elif self._gate.enter(self):
            self._begin(now_s, now.snapshot.as_of_us)

    def _begin(self, now_s: float, as_of_us: int) -> None:
        self._began_s, self._next_s = now_s, now_s + RETRY_S
        self._folder = Scratch("past")
        moment_us = as_of_us // 1_000_000 * 1_000_000
        self._child.begin(
            ["tracker.cli.beside_child", str(self._config), str(moment_us), str(self._out(self._folder))],
            folder=self._config.parent,
            limit_s=LIMIT_S,
        )
        if not self._child.busy:
            self._forget()

    def _take(self, now_s: float, now: RunNow) -> None:
        if not self._child.problem and self._folder is not None:
            try:
                with self._out(self._folder).open("rb") as file:
                    found = Beside.from_json(json.loads(file.read(_LARGEST)))
                self.latest = found if now.snapshot is None else found.sharing(now.snapshot)
                self._next_s = now_s + max(EVERY_S, SHARE * (now_s - self._began_s))
            except (OSError, ValueError, TypeError, KeyError, AttributeError):
                pass  # another version's, or half of one: the next try mends it
        self._forget()

    @staticmethod
    def _out(folder: Scratch) -> Path:
        return folder.path / "beside.json"

    def told(self, vitals: Vitals) -> Vitals:
        """Return what is known of the tracker: nothing of this part."""
        return vitals

    def close(self) -> None:
        """End what is under way."""
        self._child.close()
        self._forget()

    def _forget(self) -> None:
        self._gate.leave(self)
        if self._folder is not None:
            self._folder.close()
            self._folder = None
