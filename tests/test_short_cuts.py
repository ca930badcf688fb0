"""A short cut of a collector gives what its rules give, record for record and in what is remembered."""

from __future__ import annotations

import importlib
import json
import random
import re
from typing import Any

import pytest

from collectors import named
from collectors._lines import Reader
from tests.test_collectors import LOGS, load
from tracker.core.records import Reading, Record
from tracker.interfaces import Context

STEPS = {
    "automodel": rb"(?<=\| step )\d+(?= \| epoch)",
    "deepspeed": rb"(?<=\[Rank 0\] step=)\d+",
    "gpt_neox": rb"(?<=\| iteration )[ \d]+(?=/)",
    "internevo": rb"(?<=[ ,]step=)\d+",
    "levanter": rb'(?<="step": )\d+',
    "lingua": rb"(?<=- step: )\d+(?=  acc)",
    "litgpt": rb"(?<= step )\d+(?= \| loss)",
    "llmc": rb"(?<=^step )[ \d]+(?=/\d+ \|)",
    "maxtext": rb"(?<=completed step: )\d+",
    "megatron_bridge": rb"(?<= iteration )[ \d]+(?=/)",
    "metaseq": rb'(?<="num_updates": ")\d+',
    "modded_nanogpt": rb"(?<=^step:)\d+(?=/)",
    "nanogpt": rb"(?<=^iter )\d+(?=: loss)",
    "nanotron": rb"(?<=\]: iteration: )\d+",
    "nemo": rb"(?<=global_step: )\d+",
    "olmo": rb"(?<=\[step=)\d+",
    "olmo_core": rb"(?<=\[step=)\d+",
    "torchtitan": rb"(?<=INFO - step: )[ \d]+(?=  )",
    "trainer_log": rb'(?<="current_steps": )\d+',
}
"""Where the step stands in a collector's step line."""

TROUBLE = (
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    b"[rank3]:[E302 09:00:00.000000000 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective "
    b"operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran "
    b"for 600001 milliseconds before timing out.",
)


def reader_of(name: str) -> Reader:
    module = importlib.import_module(f"collectors.{name}")
    reader: Any = getattr(module, "_READER", None) or module.READER
    assert isinstance(reader, Reader)
    return reader


def lines_of(name: str) -> list[bytes]:
    """Return the lines of a collector's fixtures; metrics that stand below a line stay with it."""
    out: list[bytes] = []
    for path in sorted(path for path in (LOGS / name).iterdir() if path.is_file()):
        for line in load(path).content.split(b"\n"):
            if line.startswith(b"    ") and out and b"[step=" in out[-1]:
                out[-1] += b"\n" + line
            elif line.strip():
                out.append(line)
    return out


def logs(name: str, seed: int) -> bytes:
    """Return a log of step lines that go on, with other lines of the fixtures between, in any order."""
    chance = random.Random(seed)
    lines, number = [*lines_of(name), *TROUBLE * 3], re.compile(STEPS[name])
    steps = [line for line in lines if number.search(line)]
    step, out = 0, []
    for _ in range(chance.randrange(20, 120)):
        line = chance.choice(steps)
        pick = chance.random()
        if pick < 0.8:
            step += chance.choice((1, 1, 1, 7))
            line = number.sub(b"%d" % step, line)
        elif pick < 0.95:
            line = chance.choice(lines)
        else:
            line = line[: chance.randrange(len(line))]
        out.append(line)
    return b"\n".join(out) + b"\n"


def read(reader: Reader, log: bytes, context: Context) -> list[Record]:
    return list(reader.parse(log, context))


@pytest.mark.parametrize("name", STEPS)
def test_a_short_cut_changes_no_record_and_no_memory(name: str) -> None:
    """Usual lines mixed with starts, saves, trouble, torn and repeated ones: both ways agree."""
    quick = reader_of(name)
    slow = Reader(quick.rules, followers=quick.followers)
    for seed in range(12):
        log, ours, theirs = logs(name, seed), Context(), Context()
        assert read(quick, log, ours) == read(slow, log, theirs), f"seed {seed}"
        assert json.dumps(ours.state, sort_keys=True) == json.dumps(theirs.state, sort_keys=True), f"{seed}"


@pytest.mark.parametrize("name", STEPS)
def test_the_commonest_line_takes_the_short_cut(name: str) -> None:
    """Of a fixture's step lines, most are swept; without that the short cut would only cost."""
    quick: Any = reader_of(name)
    log = b"".join(line + b"\n" for line in lines_of(name))
    records = list(named(name).parse(log, Context()))  # what Megatron's short cut knows is learned here
    readings = sum(isinstance(record, Reading) for record in records)
    assert len(quick._hot.sweep(log)) >= readings / 4
