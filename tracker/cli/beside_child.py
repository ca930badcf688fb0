"""The child that the status page asks for a run's past.

Edge: `python -m tracker.cli.beside_child CONFIG AS_OF_US OUT` writes one JSON document to OUT. It bounds its
own memory before it loads anything.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Answer the sidecar."""
    from tracker.cli.forecast_child import bound

    bound()
    from tracker import app
    from tracker.core.beside import Beside
    from tracker.core.errors import TrackerError

    path, as_of_us, out = Path(arguments[0]), int(arguments[1]), Path(arguments[2])
    try:
        made = app.daily_now(app.load_config(path), as_of_us=as_of_us)
    except TrackerError as error:
        print(error, file=sys.stderr)
        return 1
    with out.open("w", encoding="utf-8") as file:
        json.dump(Beside.of(made).to_json(), file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
