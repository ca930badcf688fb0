"""Flips bits of a store at rest, and looks whether anybody trips over them.

Edge: writes files. A flipped bit in a number or a word is another one: no database without sums over its
pages can see it. Everything else must be told as damage, by a sentence, and found by `tracker db check`.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.torture.content import content, differences
from tests.torture.stage import Plot, Stage
from tracker import app
from tracker.core.documents import status_document
from tracker.core.errors import TrackerError
from tracker.store.health import check, compact

_LONG_AFTER_US = 1_800_000_000_000_000
_PLOT = Plot(name="flips", preset="finished", changes=(("total_steps", 900),))


@dataclass(slots=True)
class Flips:
    """What came of some stores with one to three flipped bits each."""

    seed: int
    stores: int = 0
    told: int = 0
    """Status or ingestion ended with a sentence."""
    found: int = 0
    """`tracker db check` found it."""
    harmless: int = 0
    """Nothing that anybody reads was changed."""
    silent: int = 0
    """A fact is another one, and nothing can tell."""
    faults: list[str] = field(default_factory=list)


def flip(folder: Path, *, stores: int, seed: int = 1) -> Flips:
    """Make a store, and so many damaged copies of it, one after the other."""
    stage = Stage(_PLOT, folder, seed=seed)
    stage.configs()
    stage.finish()
    config = app.load_config(folder / "run.toml")
    app.ingest_once(config, final=True)
    compact(config.store)
    whole, facts = config.store.read_bytes(), content(config.store)
    tally = Flips(seed)

    def status() -> str:
        return json.dumps(status_document(app.snapshot_now(config, as_of_us=_LONG_AFTER_US)))

    for number in range(stores):
        chance = random.Random(f"flips/{seed}/{number}")
        body = bytearray(whole)
        for _ in range(chance.choice((1, 1, 3))):
            body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        for path in folder.glob("tracker.db*"):
            path.unlink()
        config.store.write_bytes(body)
        tally.stores += 1
        name = f"store {number}"
        found = _found(tally, name, config.store)
        same = _same(config.store, facts)
        said = [_told(tally, name, work) for work in (status, lambda: app.ingest_once(config, final=True))]
        told = any(said)
        tally.found += found
        tally.told += told
        tally.harmless += same and not told
        tally.silent += not same and not told and not found
        if told and not found:
            tally.faults.append(f"{name}: it cannot be read, and db check finds it whole")
    return tally


def _found(tally: Flips, name: str, path: Path) -> bool:
    faults: list[str] = []
    return _told(tally, name, lambda: faults.extend(check(path))) or bool(faults)


def _told(tally: Flips, name: str, work: Callable[[], object]) -> bool:
    """Return whether it ended with a sentence; any other error is a fault."""
    try:
        work()
    except TrackerError:
        return True
    except Exception as error:
        tally.faults.append(f"{name}: {type(error).__name__}: {error}"[:300])
    return False


def _same(path: Path, facts: object) -> bool:
    try:
        return not differences(content(path), facts)  # type: ignore[arg-type]
    except (TrackerError, sqlite3.Error, ValueError, KeyError):
        return False
