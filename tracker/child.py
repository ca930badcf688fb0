"""One program of ours as a child process, at most one at a time: begun, looked at, ended.

Edge. Nothing here waits, and one that fails at once rests before it is begun again, unless whoever begins
it has a rhythm of its own. None outlives us: `leash.py`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tracker.interfaces import Clock
from tracker.leash import Leash

APART_S: Final = 5.0
"""Between two beginnings of the same child."""
FIRST_REST_S: Final = 30.0
MOST_REST_S: Final = 1800.0
_LARGEST: Final = 1 << 20


class Child:
    """One program of ours at a time, with a time limit; `begin` and `poll` never wait."""

    def __init__(
        self, what: str, *, clock: Clock, rests: bool = True, orphaned: int = signal.SIGKILL
    ) -> None:
        """Begin nothing yet; `orphaned` is the signal that the child gets when this process is gone."""
        self._what = what
        self._orphaned = orphaned
        self._clock = clock
        self._rests = rests
        self._child: subprocess.Popen[bytes] | None = None
        self._leash: Leash | None = None
        self._limit_s = 0.0
        self._until_s = 0.0
        self._failed = 0
        self._rests_until_s = float("-inf")
        self.problem = ""
        """Why the last one failed; empty where it did not."""
        self.said = b""
        """What the last one that ended by itself said."""

    @property
    def busy(self) -> bool:
        """Whether it is at work."""
        return self._child is not None

    @property
    def rests_s(self) -> float:
        """How long it may not begin yet: one that fails at once must not be begun at every turn."""
        return max(0.0, self._rests_until_s - self._clock.monotonic_s())

    def begin(
        self, arguments: Sequence[str], *, folder: Path, limit_s: float, env: Mapping[str, str] | None = None
    ) -> None:
        """Start it, unless it runs or rests; `env` is added to this process's environment."""
        if self._child is not None or self.rests_s > 0:
            return
        self._rest(APART_S)
        try:
            self._leash = Leash(self._orphaned)
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # what is said fits a pipe: it is read once the child is gone
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, **env} if env else None,
                start_new_session=True,
                pass_fds=self._leash.fds,
            )
        except OSError as error:
            self._forget()
            self._fails(f"could not be started: {error.strerror or error}")
            return
        self._leash.hold(self._child)
        self._limit_s = limit_s
        self._until_s = self._clock.monotonic_s() + limit_s

    def poll(self) -> bool:
        """Tell whether it has just ended; end one that takes too long, with all that it started."""
        child = self._child
        if child is None or child.stdout is None:
            return False
        status = child.poll()
        if status is None:
            if self._clock.monotonic_s() <= self._until_s:
                return False
            self.close()
            self._fails(f"took longer than {self._limit_s:.0f} s and was ended")
            return True
        os.set_blocking(child.stdout.fileno(), False)  # a grandchild may still hold the other end
        self.said = b""
        with contextlib.suppress(BlockingIOError):
            self.said = child.stdout.read(_LARGEST) or b""
        last = self.said.decode("utf-8", "replace").strip().splitlines()[-1:]
        said = "".join(c if c.isprintable() else "?" for c in (last[0] if last else "no word")[:300])
        self._forget()
        if status == 0:
            self._failed, self.problem = 0, ""
        else:
            self._fails(f"failed: {said}")
        return True

    def ask_to_stop(self) -> None:
        """Let it finish what it is at, and then end."""
        if self._child is not None:
            with contextlib.suppress(OSError):
                self._child.terminate()

    def close(self, *, grace_s: float = 0.0) -> None:
        """End one that is at work, and what it started."""
        child = self._child
        if child is not None:
            if grace_s:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(grace_s)
            with contextlib.suppress(OSError):
                os.killpg(child.pid, 9)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(5.0)
        self._forget()

    def _fails(self, how: str) -> None:
        self.problem = f"{self._what} {how}"
        self._failed += 1
        self._rest(min(MOST_REST_S, FIRST_REST_S * 2.0 ** min(self._failed - 1, 10)))

    def _rest(self, seconds: float) -> None:
        if self._rests:
            self._rests_until_s = self._clock.monotonic_s() + seconds

    def _forget(self) -> None:
        if self._child is not None and self._child.stdout is not None:
            self._child.stdout.close()
        if self._leash is not None:
            self._leash.let_go()
        self._child = self._leash = None


def ended(status: int) -> str:
    """Return how a process ended that said nothing.

    >>> ended(-11), ended(1)
    ('was ended by SIGSEGV', 'ended with status 1')
    """
    if status >= 0:
        return f"ended with status {status}"
    known = {one.value: one.name for one in signal.Signals}
    return f"was ended by {known.get(-status, f'signal {-status}')}"
