"""A run as the job and the scheduler write it: bytes, with the moment and the file of each.

Pure. `emissions` is the whole run in order of time; `contents` is what stands on the disk at a moment;
`live.py` plays it onto a real disk. The words of each format are in `megatron_text.py`, `jsonl_text.py`,
`slurm_text.py`; what says nothing is in `chatter.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from tests.simulator import jsonl_text, megatron_text
from tests.simulator.chatter import Chatter
from tests.simulator.machine import Attempt, Run
from tests.simulator.records import log_name
from tests.simulator.slurm_text import sacct

ROTATE_BYTES: Final = 48_000
KEPT: Final = 50
"""Rotated files; a real logrotate would drop the oldest."""


@dataclass(frozen=True, slots=True)
class Emission:
    """One thing that happens to one file."""

    at_us: int
    file: str
    """Path below the output folder."""
    data: bytes = b""
    what: Literal["append", "rename", "replace"] = "append"
    to: str = ""
    """The new name, for a rename."""


@dataclass(frozen=True, slots=True)
class Line:
    """One or several whole lines, written at once."""

    at_us: int
    text: str


def lines(run: Run, attempt: Attempt) -> list[Line]:
    """Return what an attempt prints, in order of time, chatter and all."""
    p = run.parameters
    rng = random.Random(f"text/{p.preset}/{p.seed}/{attempt.number}")
    write = jsonl_text.lines if p.style == "jsonl" else megatron_text.lines
    said = [Line(at, text) for at, text in write(run, attempt, rng)]
    said.sort(key=lambda line: line.at_us)  # stable: what happens at once stays in order
    if p.chatter and p.style != "jsonl":
        said = Chatter(rng, p.chatter).between(said)
    return said


def emissions(run: Run) -> list[Emission]:
    """Return all that the run writes, in order of time, up to the end of the observation."""
    found = [e for e in _log(run) if e.at_us <= run.now_us]
    if run.parameters.scheduler:
        moments = {job.start_us for job in run.jobs} | {job.end_us for job in run.jobs if job.end_us}
        moments |= {run.now_us}
        found += [
            Emission(at, "sacct.txt", sacct(run, at).encode(), "replace")
            for at in sorted(moments)
            if at <= run.now_us
        ]
    found.sort(key=lambda e: e.at_us)
    return found


def _log(run: Run) -> Iterator[Emission]:
    """Yield what happens to the logs; a file is rotated between two lines of a process that trains."""
    rotate = run.parameters.files == "rotate"
    size, kept = 0, 0
    for attempt in run.attempts:
        name = f"logs/{log_name(run, attempt)}"
        trains_us = attempt.train_us if attempt.train_us is not None else 2**62
        for line in lines(run, attempt):
            data = line.text.encode("utf-8", "surrogateescape")
            if rotate and size and size + len(data) > ROTATE_BYTES and line.at_us > trains_us:
                for number in range(min(kept, KEPT), 0, -1):
                    yield Emission(line.at_us, f"{name}.{number}", b"", "rename", f"{name}.{number + 1}")
                yield Emission(line.at_us, name, b"", "rename", f"{name}.1")
                size, kept = 0, kept + 1
            size += len(data)
            yield Emission(line.at_us, name, data)


def contents(run: Run, *, until_us: int | None = None) -> dict[str, bytes]:
    """Return the files as they stand at a moment, by path below the output folder."""
    now = run.now_us if until_us is None else until_us
    files: dict[str, bytearray] = {}
    for emission in emissions(run):
        if emission.at_us > now:
            break
        if emission.what == "rename":
            files[emission.to] = files.pop(emission.file)
        elif emission.what == "replace":
            files[emission.file] = bytearray(emission.data)
        else:
            files.setdefault(emission.file, bytearray()).extend(emission.data)
    if run.parameters.scheduler:
        files["sacct.txt"] = bytearray(sacct(run, now).encode())
    return {name: bytes(body) for name, body in files.items()}


def written(run: Run, *, until_us: int | None = None) -> dict[str, int]:
    """Return when each log was last written to, by base name: the file's own time."""
    now = run.now_us if until_us is None else until_us
    times: dict[str, int] = {}
    for emission in emissions(run):
        if emission.at_us > now:
            break
        if emission.what == "rename":
            times[emission.to] = times.pop(emission.file)
        else:
            times[emission.file] = emission.at_us
    return {name.removeprefix("logs/"): at for name, at in times.items() if name.startswith("logs/")}


def logs(run: Run, *, until_us: int | None = None) -> dict[str, bytes]:
    """Return the log files alone, by base name, as they stand at a moment."""
    found = contents(run, until_us=until_us)
    return {name.removeprefix("logs/"): body for name, body in found.items() if name.startswith("logs/")}
