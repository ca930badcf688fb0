"""The child that makes one report: `python -m tracker.cli.report_child CONFIG SCHEDULE DAY ZONE AS_OF_US`.

Edge. Claims the day, has the documents made by a child of its own with a time limit, and records them
together with their letter.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Make the report."""
    from tracker import app
    from tracker.clock import SystemClock
    from tracker.core.errors import TrackerError
    from tracker.post.make import NotMade, documents_by_command, make
    from tracker.store import Outbox, Writer

    path, kind, day, zone, as_of_us = Path(arguments[0]), *arguments[1:4], int(arguments[4])
    try:
        config = app.load_config(path)
        if config.report is None:
            return 0
        signal.alarm(int(2 * config.report.time_limit_s) + 120)  # should nobody be left to end it
        with Writer(config.store, durable=True) as writer:
            problem = make(
                Outbox(writer),
                config,
                kind=kind,
                day=day,
                zone=zone,
                as_of_us=as_of_us,
                clock=SystemClock(),
                render=documents_by_command,
            )
    except NotMade as error:
        print(error)
        return 1
    except TrackerError as error:
        print(error)
        return 1
    print(problem or "made")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
