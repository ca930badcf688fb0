"""The child that the sidecar asks for a forecast: `python -m tracker.cli.forecast_child CONFIG AS_OF_US`.

Edge. Prints one JSON forecast and keeps it in the store; bounds its own memory before it loads anything.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Final

MEMORY_BYTES: Final = 1 << 30
"""Address space that it may take; it holds some 80 MB."""
LIMIT_S: Final = 300
"""It ends by itself after that, should nobody be left to end it."""


def main(arguments: list[str]) -> int:
    """Answer the sidecar."""
    bound()
    from tracker import app
    from tracker.core.errors import TrackerError
    from tracker.forecasting import DAY_US, ask_store, keep

    path, as_of_us = Path(arguments[0]), int(arguments[1])
    try:
        config = app.load_config(path)
        made = ask_store(config, as_of_us=as_of_us, since_us=as_of_us - DAY_US).forecast
        keep(config, made)
    except TrackerError as error:
        print(error, file=sys.stderr)
        return 1
    json.dump(made.to_json(), sys.stdout)
    return 0


def bound() -> None:
    """Never take more memory, or more of the processor, than a forecast should, and end some day."""
    signal.alarm(LIMIT_S)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
