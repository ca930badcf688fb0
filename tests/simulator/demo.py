"""The bundled run of `tracker demo`: `python -m tests.simulator.demo` writes it again, byte for byte.

Edge when run; `files` is pure. The run is simulated and says so wherever a person may look.
"""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path
from typing import Final

from tests.simulator.configure import config
from tests.simulator.machine import SECOND, Run, simulate
from tests.simulator.parameters import preset
from tests.simulator.text import contents

FOLDER: Final = Path(__file__).resolve().parents[2] / "tracker" / "demo"
SEED: Final = 24


def demo() -> Run:
    """Return the bundled run."""
    return simulate(preset("demo", seed=SEED))


def as_of(run: Run) -> str:
    """Return the end of its observation as a command takes it."""
    return dt.datetime.fromtimestamp(run.now_us // SECOND, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def files(run: Run) -> dict[str, bytes]:
    """Return the bundled files by path below the folder."""
    found = contents(run)
    moment = as_of(run)
    head = (
        "# A SIMULATED run, made by tests/simulator: no GPU ran for it.\n"
        "# Its observation ended while it went on: `until` says when.\n\n"
    )
    text = config(run, name="demo-13b-simulated", head=head, tokens=4e12)
    billing = 'billing = "attempt"\n'
    assert billing in text
    found["run.toml"] = text.replace(billing, f"{billing}until = {moment}\n", 1).encode()
    found["README.txt"] = _readme(run, moment).encode()
    return found


def _readme(run: Run, moment: str) -> str:
    p = run.parameters
    return f"""The run in this folder is SIMULATED. No GPU ran for it.

It was written by the project's simulator (tests/simulator, preset "{p.preset}", seed {p.seed}), which plays
a training run as a state machine and writes what a job would have written: the logs of a model of
{p.active_params / 1e9:.0f} billion parameters on {p.gpus} GPUs and {p.spares} hot spares, in the words of
Megatron-LM, and the scheduler's record of its jobs. Failures, restarts, a rollback and a planned stop are
in it. Its observation ends at {moment}, while the run goes on.

    run.toml      the config that reads it
    logs/*.log    one file for each job
    sacct.txt     the scheduler's record

`tracker demo` runs the whole path on a copy of it. To try more by hand, copy the folder and run

    tracker ingest --config run.toml
    tracker status --config run.toml
    tracker report --config run.toml
"""


def main(folder: Path = FOLDER) -> None:
    """Write the bundled run, and nothing else into its folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, body in files(demo()).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)


if __name__ == "__main__":
    main()
