"""A folder with a simulated run that ends now, and a real `tracker run` on it.

Edge: writes files, starts and ends one process.
"""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.simulator.configure import config
from tests.simulator.live import write
from tests.simulator.machine import Run, simulate
from tests.simulator.parameters import preset
from tests.test_sidecar import Running, until

TRACKER = (sys.executable, "-P", "-c", "from tracker.cli import main\nmain()")


@dataclass(slots=True)
class World:
    """One run on disk with its sidecar."""

    folder: Path
    sidecar: Running

    @property
    def url(self) -> str:
        """Where the sidecar answers, without a slash at the end."""
        return self.sidecar.url

    def told(self, *command: str) -> str:
        """Return what a command prints about the same store."""
        done = subprocess.run(
            [*TRACKER, *command], cwd=self.folder, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout


def lay_out(folder: Path, name: str = "demo", *, seed: int = 24, title: str = "", **changes: Any) -> Run:
    """Write logs, scheduler rows and run.toml of a preset whose observation ends now."""
    still = simulate(preset(name, seed=seed, **changes))
    lasted_us = still.now_us - still.parameters.start_us
    start_us = (int(time.time()) * 1_000_000 - lasted_us) // 1_000_000 * 1_000_000
    run = simulate(preset(name, seed=seed, start_us=start_us, **changes))
    begun = dt.datetime.fromtimestamp(start_us / 1e6, dt.UTC)
    toml = config(run, name=title, tokens=4e12 if name == "demo" else None)
    toml = toml.replace("start = 2026-01-05T08:00:00Z", f"start = {begun:%Y-%m-%dT%H:%M:%SZ}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.toml").write_text(
        toml + '\n[serve]\nlisten = "127.0.0.1:0"\n\n[ingest]\npoll_s = 0.2\n', encoding="utf-8"
    )
    write(run, folder)
    return run


def begin(folder: Path, name: str = "demo", **more: Any) -> World:
    """Lay out a run, start its sidecar, and wait until it is ready."""
    lay_out(folder, name, **more)
    return follow(folder)


def follow(folder: Path, *options: str) -> World:
    """Start a sidecar in a folder, on its run.toml or with options of its own; wait until it is ready."""
    world = World(folder, Running(folder, more=options))
    try:
        until(lambda: "listening on" in world.sidecar.said, "it does not start", limit_s=60)
        until(lambda: world.sidecar.get("/readyz")[0] == 200, "it is not ready", limit_s=60)
    except BaseException:
        end(world)
        raise
    return world


def end(world: World) -> None:
    """End the sidecar."""
    process = world.sidecar.process
    if process.poll() is None:
        process.kill()
    process.wait(10)
    world.sidecar._out.close()
