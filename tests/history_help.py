"""A simulated run in a store, and what its metrics page shows at a moment: what every history must equal."""

from __future__ import annotations

import math
from pathlib import Path

from tests.simulator import preset, simulate, write
from tests.simulator.configure import config
from tracker import app
from tracker.config import Config
from tracker.core.book import Book
from tracker.core.summary import snapshot
from tracker.export.history import RUN_FAMILIES
from tracker.families import Page
from tracker.store import Reader

Series = dict[tuple[tuple[str, str], ...], float]


def stored(folder: Path, name: str = "llama_like", seed: int = 3, *, run_name: str = "") -> Config:
    """Write a simulated run's files and config into a folder, and read them into a store."""
    run = simulate(preset(name, seed=seed))
    write(run, folder)
    escaped = run_name.replace("\\", "\\\\").replace('"', '\\"')
    (folder / "run.toml").write_text(config(run, name=escaped))
    loaded = app.load_config(folder / "run.toml")
    app.ingest_once(loaded, final=True)
    return loaded


def page_at(loaded: Config, at_us: int, **more: str) -> Series:
    """Return every sample of the run's metrics page at a moment, from the store, from the start."""
    with Reader(loaded.store) as reader, reader.snapshot():
        made = snapshot(Book(loaded.settings), reader, as_of_us=at_us)
    shown: Series = {}
    for family in RUN_FAMILIES:
        for values, value in family.samples(Page(made.run, made)):
            if value is not None and math.isfinite(value):
                labels = {"run": made.run, **dict(zip(family.labels, values, strict=True)), **more}
                kept = {name: text for name, text in labels.items() if text}
                shown[tuple(sorted({"__name__": family.name, **kept}.items()))] = float(value)
    return shown
