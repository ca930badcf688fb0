"""A run that is written live beside the sidecars under test: torn lines, rotation, late files, a scheduler.

Edge: writes files.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.simulator import preset, simulate
from tests.simulator.configure import config
from tests.simulator.live import Player

Rotation = Literal["rename", "copytruncate", "gzip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """What is played: a preset of the simulator and how its files are treated."""

    name: str
    preset: str
    rotation: Rotation = "rename"
    late: bool = False
    """Whether some logs appear long after they were begun (another file system, a slow copy)."""
    changes: tuple[tuple[str, Any], ...] = ()


PLOTS: Sequence[Plot] = (
    Plot(name="rotated by rename", preset="finished", changes=(("total_steps", 6000),)),
    Plot(name="one file appended by all jobs", preset="llama_like"),
    Plot(
        name="copied and cut to nothing",
        preset="finished",
        rotation="copytruncate",
        changes=(("total_steps", 6000),),
    ),
    Plot(name="a file for each job, some late", preset="rollback", late=True),
    Plot(name="rotated and packed", preset="finished", rotation="gzip", changes=(("total_steps", 6000),)),
    Plot(name="elastic, JSON lines", preset="elastic", late=True, changes=(("style", "jsonl"),)),
    Plot(name="ramp, older format", preset="ramp", changes=(("style", "megatron_0_8"),)),
)


class Stage(Player):
    """The player, with logs that are kept back for a while."""

    def __init__(self, plot: Plot, folder: Path, *, seed: int) -> None:
        run = simulate(preset(plot.preset, seed=seed, **dict(plot.changes)))
        super().__init__(run, folder, seed=seed, rotation=plot.rotation)
        self.run = run
        self.folder = folder
        self.held: set[str] = set()
        if plot.late:
            names = sorted({e.file for e in self.todo if e.file.startswith("logs/")})
            self.held = set(names[1::2])
        self._chance = random.Random(f"stage/{seed}")
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        (folder / "late").mkdir(exist_ok=True)

    def configs(self) -> None:
        """Write the configs of two sidecars on the same logs, each with its own store."""
        text = config(self.run).split("\n[report]")[0]
        text += '\n[serve]\nlisten = "127.0.0.1:0"\n\n[ingest]\npoll_s = 0.05\n'
        (self.folder / "run.toml").write_text(text)
        (self.folder / "whole.toml").write_text(text.replace('"tracker.db"', '"whole.db"'))

    def _append(self, name: str, data: bytes) -> None:
        if name not in self.held:
            super()._append(name, data)
            return
        with (self.folder / "late" / Path(name).name).open("ab", buffering=0) as file:
            file.write(data)

    def release(self) -> bool:
        """Let one late log appear in its place; return whether there was one."""
        waiting = [name for name in sorted(self.held) if (self.folder / "late" / Path(name).name).exists()]
        if not waiting:
            return False
        name = self._chance.choice(waiting)
        (self.folder / "late" / Path(name).name).rename(self.folder / name)
        self.held.discard(name)
        return True

    def play(self, count: int, seconds: float) -> None:
        """Write some of what is left, spread over some seconds, torn now and then."""
        pauses = max(1, int(seconds / 0.02))
        done = 0
        for pause in range(1, pauses + 1):
            while done * pauses < count * pause and not self.over:
                self.step()
                done += 1
            if self._chance.random() < self.torn_share and not self.over:
                self.tear()
            time.sleep(seconds / pauses)

    def finish(self) -> None:
        """Write all that is left, late files too."""
        super().finish()
        while self.release():
            pass
