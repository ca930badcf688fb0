"""The child that sends what the outbox holds: `python -m tracker.cli.post_child CONFIG mail|webhook`.

Edge. It has the memory of TLS and mail to itself, and ends; SIGTERM lets it finish the letter it is at.
"""

from __future__ import annotations

import resource
import signal
import sys
from pathlib import Path
from typing import Final

MEMORY_BYTES: Final = 1 << 29
"""Address space that it may take."""
LIMIT_S: Final = 360
"""It ends by itself after that, should nobody be left to end it."""


def main(arguments: list[str]) -> int:
    """Send what is due."""
    signal.alarm(LIMIT_S)
    _bound()
    from tracker import app
    from tracker.clock import SystemClock
    from tracker.core.errors import TrackerError
    from tracker.post.send import send_events, send_mails
    from tracker.store import Outbox, Writer

    clock = SystemClock()
    signal.signal(signal.SIGTERM, lambda *_: clock.stop())
    path, what = Path(arguments[0]), arguments[1]
    try:
        config = app.load_config(path)
        with Writer(config.store, durable=True) as writer:
            outbox = Outbox(writer)
            if what == "webhook":
                run = config.settings.run
                done = send_events(
                    outbox, config.webhooks, run=run, clock=clock, enough=lambda: clock.stopped
                )
            elif config.report is not None and config.report.mail is not None:
                done = send_mails(outbox, config.report.mail, clock=clock, enough=lambda: clock.stopped)
            else:
                return 0
    except TrackerError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{done.sent} sent, {done.failed} not")
    return 0


def _bound() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
