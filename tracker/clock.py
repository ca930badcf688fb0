"""What time it is, and how to wait: the only module that asks the system.

Edge.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import Final

_MOST_WAIT_S: Final = 3600.0


class SystemClock:
    """The real clock. `stop` and `wake` may be called from a signal handler or from any thread.

    Trap: threading.Event is not safe here. A signal handler that sets the event its own thread is just
    about to wait for can find the event's lock held by that thread, for ever. A pipe has no such lock.

    Trap: the kernel may give a signal to any thread, and Python runs its handler in the main one, when that
    comes to it: not while it waits here. `wait_for_signals` makes every signal end the wait.
    """

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        self._stopped = False

    def now_us(self) -> int:
        """Return wall time, microseconds since 1970, UTC."""
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def cpu_s(self) -> float:
        """Return seconds that the calling thread has worked."""
        return time.thread_time()

    @property
    def stopped(self) -> bool:
        """Whether the process has been told to stop."""
        return self._stopped

    def wait(self, seconds: float) -> bool:
        """Sleep, or return at once when told to stop (True) or woken (False)."""
        if self._stopped:
            return True
        ready, _, _ = select.select([self._read_end], [], [], min(max(seconds, 0.0), _MOST_WAIT_S))
        if ready:
            with contextlib.suppress(BlockingIOError):  # another waiter took it
                os.read(self._read_end, 4096)
        return self._stopped

    def stop(self) -> None:
        """Tell the process to stop: `wait` returns True from now on."""
        self._stopped = True
        self.wake()

    def wake(self) -> None:
        """End the present `wait` early, or the next one."""
        with contextlib.suppress(BlockingIOError):  # full: a waiter wakes anyway
            os.write(self._write_end, b"!")

    def wait_for_signals(self) -> None:
        """Let every signal that has a handler end the present `wait`; for the main thread to call."""
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)

    def close(self) -> None:
        """Give the pipe back."""
        os.close(self._read_end)
        os.close(self._write_end)
