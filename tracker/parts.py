"""What one run of the sidecar is put together from: its clock, its store, its forecasts, what goes on beside.

Pure: only the forms. `app` fills them; a member (`member.py`) uses them and knows no more of the world.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tracker.core.facts import Facts
from tracker.core.forecast.value import Forecast
from tracker.core.snapshot import Snapshot
from tracker.scheduler import RunJobs
from tracker.vitals import Vitals


class SidecarClock(Protocol):
    """What the sidecar needs of a clock, besides `interfaces.Clock`."""

    @property
    def stopped(self) -> bool:
        """Whether the process has been told to stop."""
        ...

    def now_us(self) -> int:
        """Return wall time, microseconds since 1970, UTC."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds that never go back."""
        ...

    def cpu_s(self) -> float:
        """Return seconds that the calling thread has worked."""
        ...

    def wait(self, seconds: float) -> bool:
        """Sleep, or return True at once when told to stop, False when woken."""
        ...

    def wake(self) -> None:
        """End the present wait, or the next one."""
        ...


class Work(Protocol):
    """An open store with all that works on it; `app.open_work` makes one."""

    def read(self, *, enough: Callable[[], bool]) -> tuple[bool, str]:
        """Read a bounded amount and store it, less where `enough` says so in between; return whether there
        is more to read now, and why nothing could be stored, which may pass.

        Raises the store's other errors; then close this, and open a new one later.
        """
        ...

    def revision(self) -> int:
        """Return a number that grows with every change of the facts."""
        ...

    def snapshot(self, *, as_of_us: int, facts: Callable[[Facts], Facts]) -> Snapshot:
        """Return the run as the store has it; `facts` may stand between the store and the core."""
        ...

    def vitals(self) -> Vitals:
        """Return what is known of reading and storing."""
        ...

    def tidy(self) -> None:
        """Keep the store small: checkpoint its log."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class Outlook(Protocol):
    """Where forecasts come from; `tracker/outlook.py` asks a child process."""

    problem: str
    """Why the last one failed; empty where it did not."""

    @property
    def busy(self) -> bool:
        """Whether one is being made."""
        ...

    def begin(self, as_of_us: int) -> None:
        """Ask for the forecast of a moment; never waits."""
        ...

    def poll(self) -> Forecast | None:
        """Return one that was not there at the last call; never waits."""
        ...

    def close(self) -> None:
        """End what is under way."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNow:
    """What a part may know of its run when its turn comes."""

    as_of_us: int
    """The present moment."""
    snapshot: Snapshot | None
    """The last one, with its forecast; None before the first."""
    settled: bool
    """Whether every source was read to its end once, and the snapshot made after that."""
    store_up: bool
    """Whether the last use of the store succeeded."""
    leaving: bool = False
    """Whether its config is gone: it is shown for a while, and nothing is begun for it any more."""


class Part(Protocol):
    """Something that goes on beside the reading of one run: a daily report, the posting of mail.

    What takes longer than some milliseconds belongs into a child process: `turn` begins it, and takes
    what it said at a later turn. A heavy child waits until `gate.enter(self)` is true, and then says
    `gate.leave(self)` when it is done; meanwhile `busy` is `gate.is_open_for(self)` or true.
    """

    problem: str
    """What is wrong with it now, in a sentence; empty where nothing is."""

    @property
    def busy(self) -> bool:
        """Whether something is under way, so that the next turn should come soon."""
        ...

    def attend(self, jobs: RunJobs) -> None:
        """Name the moments at which to be woken, if any; called once, before the first turn."""
        ...

    def turn(self, now: RunNow) -> None:
        """Take what is done, begin what is due; never waits. Called at every visit."""
        ...

    def told(self, vitals: Vitals) -> Vitals:
        """Return what is known of the tracker, with what this part knows of itself."""
        ...

    def close(self) -> None:
        """End what is under way."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """What one run needs of the world; `app` makes them from its config."""

    open_work: Callable[[], Work]
    outlook: Outlook | None = None
    """Without one nothing is forecast."""
    parts: tuple[Part, ...] = ()
