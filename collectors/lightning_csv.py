"""metrics.csv of Lightning's CSVLogger, of the Trainer and of LitGPT.

Pure. A document, for the logger writes it anew whenever it saves. Traps: columns are those that any row had,
and most cells are empty; training and validation rows alternate; `step` counts from 0 and is of the last
batch that stepped; in LitGPT's the logger's own `step` (iter - 1, a micro-batch) has replaced the
optimiser's, so steps are micro-batches divided by the source's `gradient_accumulation`; `tokens` is of one
device, `total_tokens` of all; `time` is seconds since this process began to train, evaluation and saves too.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from typing import Any, Final

from collectors._numbers import count, integer, number
from collectors._options import BATCHES, checked
from collectors._process import INCLUDES, NAN
from tracker.core.records import Event, Json, Kind, Reading, Record, Reject, evidence, problem
from tracker.interfaces import Collector, Context, Evidence

_LITGPT: Final = frozenset({"iter", "step", "iter_time", "total_tokens"})
_TIME: Final = ("time", "train|time", "train/time")
_SHOWN: Final = 200
_CONVENTION: Final = (
    "FLOP as torch counts them in forward and backward, attention in full, recompute not counted"
)


class _Rows:
    """The state of one pass over a file."""

    def __init__(self, names: list[str], context: Context) -> None:
        self.names = names
        self.litgpt = set(names) >= _LITGPT
        self.accumulation = count(context.options.get("gradient_accumulation")) or 1
        self.time = next((name for name in _TIME if name in names), None)
        self.before: tuple[int, float | None] = (0, 0.0)
        self.said: dict[str, Json] = {}
        self.evaluated = -1


def parse(block: bytes, context: Context) -> Iterator[Record]:
    """Yield the records of a table."""
    lines = block.split(b"\n")
    names = _cells(lines[0])
    if "step" not in names:
        if block.strip():
            yield Reject(context.offset, lines[0][:_SHOWN], "no header with a step")
        return
    rows = _Rows(names, context)
    if rows.litgpt and "gradient_accumulation" not in context.options:
        told: dict[str, Json] = {
            "message": "micro-batches are taken for steps: set gradient_accumulation of the [[source]]"
        }
        yield Event(offset=context.offset, kind=Kind.NOTE, data=told)
    offset = context.offset + len(lines[0]) + 1
    for line in lines[1:]:
        cells = _cells(line)
        if line.strip() and cells != names:
            if len(cells) == len(names):
                found = {name: cell for name, cell in zip(names, cells, strict=True) if cell}
                yield from _row(rows, found, line, offset)
            else:
                yield Reject(offset, line[:_SHOWN], "a row of another width than the header")
        offset += len(line) + 1


def _cells(line: bytes) -> list[str]:
    text = line.decode("utf-8", "replace").strip("\r\n\ufeff").replace("\0", "")
    if '"' not in text:
        return [cell.strip() for cell in text.split(",")]
    try:
        return [cell.strip() for cell in next(csv.reader([text]), [])]
    except csv.Error:
        return []


def _row(rows: _Rows, found: Mapping[str, str], line: bytes, offset: int) -> Iterator[Record]:
    """One call of the logger: training's, or validation's, or neither (a learning rate alone)."""
    step = integer(found.get("iter" if rows.litgpt and "iter" in found else "step"))
    if step is None or not 0 <= step < 2**60:
        yield Reject(offset, line[:_SHOWN], "step is not a whole number")
        return
    done = step if rows.litgpt and "iter" in found else step + 1
    done //= rows.accumulation
    losses = [name for name in found if "loss" in name]
    if losses and all(name.startswith(("val", "test", "eval")) for name in losses):
        if done != rows.evaluated:
            rows.evaluated = done
            yield Event(offset=offset, kind=Kind.EVAL_END, step=done, text=evidence(line))
    elif losses:
        yield from _trained(rows, found, line, offset, done)


def _trained(rows: _Rows, found: Mapping[str, str], line: bytes, offset: int, done: int) -> Iterator[Record]:
    """`time` is the process's own clock, so what passed since the row before holds evaluation and saves."""
    if done <= rows.before[0] and rows.before != (0, 0.0):
        return  # the same step again: another call with other names
    clock = number(found.get(rows.time)) if rows.time is not None else None
    steps, since = done - rows.before[0], rows.before[1]
    step_time_us = None
    if clock is not None and since is not None and steps > 0 and 0 < clock - since < 1e9:
        step_time_us = round((clock - since) * 1e6 / steps) or None
    rows.before = (done, clock)
    tokens, own = count(found.get("total_tokens")), count(found.get("tokens"))
    flop = number(found.get("device/flops_per_sec"))
    nan = any(number(found[name]) is None for name in found if "loss" in name and not name.startswith("val"))
    reading = Reading(
        offset,
        None,
        done,
        step_time_us,
        tokens=tokens,
        flags=(INCLUDES if step_time_us else 0) | (NAN if nan else 0),
        reported_flop_per_s=flop if flop is not None and flop > 0 else None,
    )
    wrong = problem(reading)
    if wrong is not None:
        yield Reject(offset, line[:_SHOWN], wrong)
        return
    world = tokens // own if tokens and own and tokens % own == 0 else None
    stated: dict[str, Any] = {"gpus": world, "reported_convention": _CONVENTION if flop else None}
    new = {name: value for name, value in stated.items() if value and rows.said.get(name) != value}
    if new:
        rows.said.update(new)
        yield Event(offset=offset, kind=Kind.SETTING, data=new)
    yield reading


def detect(head: bytes) -> Evidence | None:
    """Find LitGPT's columns with the logger's step, or Lightning's whose first steps are 9, 19 or 0, 1."""
    lines = [line for line in head[:65_536].split(b"\n") if line.strip()]
    names = _cells(lines[0]) if lines else []
    rows = [dict(zip(names, _cells(line), strict=False)) for line in lines[1:40]]
    steps = list(dict.fromkeys(value for row in rows if (value := count(row.get("step"))) is not None))
    if set(names) >= _LITGPT and any(
        (last := count(row.get("iter"))) is not None and count(row.get("step")) == last - 1 for row in rows
    ):
        return Evidence(score=96, text="the columns of LitGPT, with steps of the logger")
    if {"epoch", "step"} <= set(names) and len(steps) > 1 and steps[1] == 2 * steps[0] + 1:
        return Evidence(score=70, text=f"the columns epoch and step, from {steps[0]} on (counted from 0)")
    return None


COLLECTOR: Final = Collector(
    name="lightning_csv",
    framework="Lightning CSVLogger metrics.csv (1.6 to 2.5), LitGPT 0.5",
    version=1,
    parse=parse,
    detect=detect,
    kind="document",
    knows=(
        "step",
        "evaluation",
        "LitGPT: tokens, step time, gpus, reported FLOP/s",
    ),
    needs=(
        "source.gradient_accumulation for LitGPT, else steps are micro-batches",
        "source.started_at where no scheduler tells when it ran",
        "Lightning: model.global_batch_size, model.sequence_length, hardware.gpus, another log for any time",
    ),
    options=("gradient_accumulation",),
    check=checked(gradient_accumulation=BATCHES),
    notes=(
        "Each process writes a folder version_N of its own. Of a table whose first steps do not tell that "
        "they count from 0 the collector csv reads steps as they stand."
    ),
)
