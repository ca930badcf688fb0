"""The system's clock: a wait that ends when told to, whoever says so."""

from __future__ import annotations

import subprocess
import sys

SIGNALLED = """
import signal, threading
from tracker.clock import SystemClock
clock = SystemClock()
clock.wait_for_signals()
signal.signal(signal.SIGTERM, lambda *_: clock.stop())
may_go = threading.Event()

def other():
    may_go.wait()
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    threading.Event().wait()

threading.Thread(target=other, daemon=True).start()
threading.Timer(0.2, may_go.set).start()
print(clock.wait(600))
"""


def test_a_signal_that_another_thread_gets_ends_the_wait() -> None:
    """The kernel chooses the thread; the process must not sleep on for what the wait was to last."""
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "True\n"
