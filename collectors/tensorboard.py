"""TensorBoard event files: any scalar of training is an odometer, with the one absolute clock there is.

Pure. A reading stands at the record that completes a step: the tag that closed the step before. Traps: each
process writes a file of its own; the last record may be torn; tags that say "vs samples" or "vs tokens"
have those in the step's place; validation has steps too; numbers are 32-bit floats, so a large count is
rounded; steps of different writers interleave.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final

from collectors._aliases import plan
from collectors._options import FIRST_STEP, checked
from collectors._process import SAMPLE
from collectors._tfevents import Damaged, Logged, frames, logged
from tracker.core.records import (
    EARLIEST_US,
    LATEST_US,
    Event,
    Flag,
    Json,
    Kind,
    Reading,
    Record,
    Reject,
    problem,
)
from tracker.interfaces import Collector, Context, Evidence

_OTHER_STEPS: Final = re.compile(r" vs (?:samples|tokens)|(?:^|/)Samples/|vs\.? ?time", re.I)
_OTHER_LOOP: Final = re.compile(
    r"(?:^|[/_ -])(?:val|valid|validation|eval|evaluation|test|system|sanity)(?:[/_ -]|$)", re.I
)
_EXACT: Final = 1 << 24
_GPUS: Final = frozenset({"world-size", "world_size", "num_gpus"})
_BATCH: Final = frozenset({"batch-size", "batch-size/batch-size"})
_FLOP: Final = {
    "tflops": 1e12,
    "throughput/tflops/device": 1e12,
    "TFLOPS_per_GPU": 1e12,
    "perf/per_device_tflops": 0.0,  # of a step, not a rate
}
_TAGS_KEPT: Final = 48


def parse(block: bytes, context: Context) -> Iterator[Record]:
    """Yield the records of a block of whole records."""
    state = context.state
    if state.get("lost"):
        return
    for frame in frames(block):
        offset = context.offset + frame.offset
        if frame.lost:
            state["lost"] = True
            yield Reject(
                offset, block[frame.offset : frame.offset + 32], "damaged record: the rest is not read"
            )
            return
        try:
            if frame.data is None:
                raise Damaged
            found = logged(frame.data)
        except Damaged:
            yield Reject(offset, block[frame.offset : frame.offset + 200], "damaged record")
            continue
        yield from _take(found, offset, context)


def _take(found: Logged, offset: int, context: Context) -> Iterator[Record]:
    """Add an event's numbers to its step; a step is told when its last tag has come."""
    state = context.state
    if not math.isfinite(found.wall_s) or not EARLIEST_US <= found.wall_s * 1e6 < LATEST_US:
        if found.scalars:
            yield Reject(offset, b"", "time stamp outside 2000..2100")
        return
    at_us = round(found.wall_s * 1e6)
    if found.version or "begun" not in state:
        state.setdefault("begun", at_us)
    values = {
        one.tag: one.value
        for one in found.scalars
        if not _OTHER_STEPS.search(one.tag) and not _OTHER_LOOP.search(one.tag)
    }
    if not values:
        return
    base = 1 if context.options.get("first_step") == 0 else 0
    step = found.step + base
    now: Any = state.get("step")
    if isinstance(now, dict) and now["step"] != step:
        if not now["told"]:
            yield from _told(now, offset, state)
        if state.get("closing") not in now["values"]:
            state["closing"] = now["last"]
        now = None
    if not isinstance(now, dict):
        now = {"step": step, "at": at_us, "offset": offset, "values": {}, "last": "", "told": False}
        state["step"] = now
    kept: dict[str, Json] = now["values"]
    for tag, value in values.items():
        if len(kept) < _TAGS_KEPT:
            kept[tag] = value if math.isfinite(value) else None
            now["last"] = tag
    if not now["told"] and state.get("closing") in values:
        now["told"] = True
        yield from _told(now, offset, state)


def _told(now: dict[str, Any], offset: int, state: dict[str, Json]) -> Iterator[Record]:
    """Yield the reading of a step; the file's first is also where its process began."""
    now["told"] = True
    values: dict[str, float | None] = now["values"]
    where = plan(tuple(values))
    step_time = _number(values, where.step_time)
    tokens, rounded = _count(values, where.tokens)
    samples, inexact = _count(values, where.samples)
    batch = _count(values, next((tag for tag in values if tag in _BATCH), where.batch))[0]
    flop = next(
        (value * scale for tag, scale in _FLOP.items() if scale and (value := values.get(tag)) is not None),
        None,
    )
    flags = int(Flag.NAN) if where.loss is not None and values[where.loss] is None else 0
    flags |= int(Flag.ROUNDED) if rounded else 0
    step_time_us = round(step_time * where.step_time_us) if step_time and 0 < step_time < 1e6 else None
    reading = Reading(
        offset,
        now["at"],
        now["step"],
        step_time_us or None,
        None if inexact else samples,
        tokens,
        batch,
        flags=flags | (SAMPLE if step_time_us else 0),
        reported_flop_per_s=flop if flop and flop > 0 else None,
    )
    if (wrong := problem(reading)) is not None:
        yield Reject(offset, b"", wrong)
        return
    if not state.get("launched"):
        state["launched"] = True
        begun: Any = state.get("begun")
        yield Event(offset=min(now["offset"], offset), kind=Kind.LAUNCH, at_us=begun)
    gpus = next((_count(values, tag)[0] for tag in values if tag in _GPUS), None)
    if gpus and state.get("gpus") != gpus:
        state["gpus"] = gpus
        yield Event(
            offset=min(now["offset"], offset), kind=Kind.SETTING, at_us=now["at"], data={"gpus": gpus}
        )
    yield reading


def _number(values: dict[str, float | None], tag: str | None) -> float | None:
    return None if tag is None else values.get(tag)


def _count(values: dict[str, float | None], tag: str | None) -> tuple[int | None, bool]:
    """Return a count, and whether 32 bits rounded it."""
    value = _number(values, tag)
    if value is None or value < 0 or value > 2**62:
        return None, False
    return round(value), value >= _EXACT


def detect(head: bytes) -> Evidence | None:
    """Find the version that the first record names."""
    if _VERSION in head[12:64]:
        return Evidence(score=99, text="an event file of TensorBoard (brain.Event)")
    return None


_VERSION: Final = b"brain.Event:"


COLLECTOR: Final = Collector(
    name="tensorboard",
    framework="TensorBoard event files (TensorFlow, torch SummaryWriter, tensorboardX)",
    version=1,
    parse=parse,
    detect=detect,
    kind="records",
    knows=("time", "step", "attempts (a file each)", "step time and tokens where they are logged"),
    needs=("model.tokens_per_step", "hardware.gpus"),
    options=("first_step",),
    check=checked(first_step=FIRST_STEP),
    notes=(
        "A step is any scalar of training; tags of validation and tags against samples or tokens are not. "
        "Where steps count from 0, set first_step = 0. Nothing tells how a process ended."
    ),
)
