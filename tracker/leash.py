"""A child process that does not outlive us, however we end: the kernel sees to it.

Edge. Parent and child hold the two ends of a pipe that nobody writes into. When the parent is gone, even by
SIGKILL, its end closes, and the kernel sends the child's process group a signal. The child need not know of
it, so any program can be led, and neither a thread nor a lock of it is in the way. Linux only: elsewhere
nothing happens, and a child ends by its own time limit.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
from types import TracebackType
from typing import Final

_SET_SIGNAL: Final[int | None] = getattr(fcntl, "F_SETSIG", None)


class Leash:
    """For one child: give `fds` to its `Popen(pass_fds=...)`, `hold` it, and `let_go` once it is gone."""

    def __init__(self, number: int = signal.SIGKILL) -> None:
        """Make the pipe; `number` is the signal that the child gets when we are gone."""
        self._number = number
        self._theirs, self._ours = os.pipe()

    @property
    def fds(self) -> tuple[int, ...]:
        """What the child must inherit, and may ignore."""
        return (self._theirs,)

    def hold(self, child: subprocess.Popen[bytes]) -> None:
        """Tie a child that was just started to our life, with its group where it has one of its own."""
        with contextlib.suppress(OSError):  # it has ended already, or a kernel without this
            if _SET_SIGNAL is not None:
                leads = os.getpgid(child.pid) == child.pid
                fcntl.fcntl(self._theirs, _SET_SIGNAL, self._number)
                fcntl.fcntl(self._theirs, fcntl.F_SETOWN, -child.pid if leads else child.pid)
                flags = fcntl.fcntl(self._theirs, fcntl.F_GETFL)
                fcntl.fcntl(self._theirs, fcntl.F_SETFL, flags | os.O_ASYNC)
        self._close_theirs()  # the owner stays: it belongs to what both of us have open

    def let_go(self) -> None:
        """Close our end; a child that still lives gets the signal."""
        self._close_theirs()
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1

    def _close_theirs(self) -> None:
        if self._theirs >= 0:
            os.close(self._theirs)
            self._theirs = -1

    def __enter__(self) -> Leash:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let_go()
