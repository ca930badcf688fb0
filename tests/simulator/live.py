"""Plays a run's text onto a disk: at once, in real or accelerated time, or step by step under a test's hand.

Edge: writes files. Lines are torn on purpose: what a reader finds between two writes is what a reader of a
live log finds, half a line at times, a rotated file, a scheduler's answer that has just been replaced.
"""

from __future__ import annotations

import gzip
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from tests.simulator.machine import SECOND, Run
from tests.simulator.text import Emission, contents, emissions


def write(run: Run, out: Path, *, until_us: int | None = None) -> list[Path]:
    """Write the files as they stand at a moment; return their paths."""
    paths = []
    for name, body in contents(run, until_us=until_us).items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        paths.append(path)
    return paths


class Player:
    """Writes a run piece by piece. `advance` brings the disk to a moment of the simulated clock.

    `rotation` says what a rotation does: rename; copytruncate (copied, then cut to nothing under the
    writer's hands); gzip (renamed and compressed).
    """

    def __init__(
        self,
        run: Run,
        out: Path,
        *,
        seed: int = 0,
        torn_share: float = 0.3,
        rotation: Literal["rename", "copytruncate", "gzip"] = "rename",
    ) -> None:
        self.out = out
        self.todo = emissions(run)
        self.done = 0
        self.torn = 0
        """Bytes of the next emission that are already written."""
        self.torn_share = torn_share
        self.rotation = rotation
        self.rng = random.Random(f"player/{seed}")

    @property
    def over(self) -> bool:
        """Tell whether all is written."""
        return self.done >= len(self.todo)

    @property
    def next_us(self) -> int | None:
        """Return when the next thing happens; None when all is written."""
        return None if self.over else self.todo[self.done].at_us

    def advance(self, until_us: int) -> int:
        """Do all that happens up to a moment, perhaps a part of the next line; return how much."""
        before = self.done
        while not self.over and self.todo[self.done].at_us <= until_us:
            self.step()
        if not self.over and self.torn == 0 and self.rng.random() < self.torn_share:
            self.tear()
        return self.done - before

    def tear(self) -> None:
        """Write a part of the next line, if a line comes next."""
        emission = self.todo[self.done]
        if emission.what == "append" and len(emission.data) > 1 and not self.torn:
            cut = self.rng.randrange(1, len(emission.data))
            self._append(emission.file, emission.data[:cut])
            self.torn = cut

    def step(self) -> Emission:
        """Do the next thing (or the rest of it)."""
        emission = self.todo[self.done]
        path = self.out / emission.file
        if emission.what == "append":
            self._append(emission.file, emission.data[self.torn :])
            self.torn = 0
        elif emission.what == "replace":
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_name(path.name + ".new")
            aside.write_bytes(emission.data)
            aside.replace(path)
        else:
            self._rotate(path, self.out / emission.to)
        self.done += 1
        return emission

    def finish(self) -> None:
        """Write all that is left."""
        while not self.over:
            self.step()

    def _append(self, name: str, data: bytes) -> None:
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            file.write(data)

    def _rotate(self, path: Path, to: Path) -> None:
        zipped = path.with_name(path.name + ".gz")
        if zipped.exists():
            zipped.rename(to.with_name(to.name + ".gz"))
        elif self.rotation == "copytruncate" and not path.suffix[1:].isdigit():
            shutil.copy2(path, to)
            os.truncate(path, 0)
        elif self.rotation == "gzip":
            path.rename(to)
            aside = to.with_name(to.name + ".gz.new")
            with to.open("rb") as source, gzip.open(aside, "wb") as target:
                shutil.copyfileobj(source, target)
            aside.rename(to.with_name(to.name + ".gz"))
            to.unlink()
        else:
            path.rename(to)


def play(
    run: Run,
    out: Path,
    *,
    speed: float,
    seed: int = 0,
    wait: Callable[[float], object] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Write a run in time with the clock, `speed` simulated seconds to a second."""
    player = Player(run, out, seed=seed)
    begun, origin = monotonic(), player.next_us
    while (due := player.next_us) is not None:
        assert origin is not None
        ahead = (due - origin) / SECOND / speed - (monotonic() - begun)
        if ahead > 0:
            player.tear()
            wait(min(ahead, 1.0))
            continue
        player.step()
