"""Simulated training runs: what happened, what a log says of it, and what the ledger must answer.

Pure but for `live.py` and the command. The truth never comes from the text.

    run = simulate(preset("llama_like", seed=7))     machine.py   what happened, to the microsecond
    truth(run, as_of_us=...)                         truth.py     what a correct ledger says of it, and why
    observe(run, until_us=...)                       records.py   the facts a perfect collector reads, no text
    emissions(run), contents(run)                    text.py      what the job writes, when, and where
    Player(run, folder).advance(until_us)            live.py      onto a disk, torn and rotated as logs are
"""

from __future__ import annotations

from tests.simulator.live import Player, play, write
from tests.simulator.machine import Run, simulate
from tests.simulator.parameters import PRESETS, Act, Parameters, preset
from tests.simulator.records import observe
from tests.simulator.text import Emission, contents, emissions, logs, written
from tests.simulator.truth import Truth, moments, truth

__all__ = [
    "PRESETS", "Act", "Emission", "Parameters", "Player", "Run", "Truth", "contents", "emissions", "logs",
    "moments", "observe", "play", "preset", "simulate", "truth", "write",
    "written",
]  # fmt: skip
