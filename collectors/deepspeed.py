"""DeepSpeed training scripts: `[...] [Rank 0] step=40, skipped=2, lr=[...], mom=[...]` and nothing above it.

Pure. The engine's lines are read by `_deepspeed`; logs of a framework on top of it have collectors of their
own. The printed samples per second are of the last step, or since the process started, and leave out what
happens between two steps: windows are taken from stamps. The pipeline engine prints a line more, with the
mean time of a step since its line before, evaluation and saves not in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from collectors._deepspeed import rules
from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._process import (
    EXCLUDES,
    NAN,
    completed,
    process,
    progress,
    resolution,
    setting,
)
from collectors._swift import AT, Match, Memory, Swift, Taken
from collectors._text import seconds_us
from tracker.core.records import Reading, Record
from tracker.interfaces import Collector, Evidence

_NAME: Final = "DeepSpeed"


def _step(hit: Hit) -> Iterator[Record]:
    """Steps and skipped ones count over all attempts; where the pipeline's line follows, it waits."""
    step, skipped, at_us = hit.count("step"), hit.count("skipped"), hit.stamp_us()
    if step is None or skipped is None:
        yield hit.reject("a value is not a number")
        return
    one = process(hit)
    before = one.get("skipped")
    if before is None:  # of a process whose start was not seen, or that went on from a checkpoint: unknown
        before = skipped if not one.get("marks") or (one.get("resumed") or [0])[0] else 0
    new = max(skipped - before, 0)
    one["skipped"] = skipped
    if one.get("line"):
        one["waits"] = [step, at_us, new]
        return
    yield from _reading(hit, step, at_us, new)


def _reading(
    hit: Hit, step: int, at_us: int | None, skipped: int, step_time_us: int | None = None, flags: int = 0
) -> Iterator[Record]:
    reading = Reading(
        hit.offset,
        at_us,
        step,
        step_time_us,
        batch=setting(hit, "global_batch_size"),
        skipped=skipped,
        flags=flags | resolution(at_us),
    )
    yield from progress(hit, reading)


def _taken(match: Match, at_us: int | None, offset: int, one: Memory) -> Taken | None:
    """The same of a usual line."""
    skipped, before = int(match[2]), one.get("skipped")
    if before is None or skipped < before or one.get("line"):
        return None
    batch = one.get("settings", {}).get("global_batch_size")
    new = skipped - before
    return Reading(offset, at_us, int(match[1]), batch=batch, skipped=new, flags=resolution(at_us)), {
        "skipped": skipped
    }


_SWIFT: Final = Swift(
    b", skipped=",
    rb"\[" + AT + rb"\] \[INFO\] \[logging\.py:\d{1,5}:log_dist\] \[Rank 0\] ",
    rb"step=([1-9]\d{0,17}), skipped=(\d{1,18}), lr=\[[^\n]{0,400}\n",
    _taken,
)


def _pipeline(hit: Hit) -> Iterator[Record]:
    """It comes right after the engine's line of the step, which has the clock."""
    step, length = hit.count("step"), seconds_us(hit.group("time"))
    if step is None or not length:
        yield hit.reject("torn step line")
        return
    one = process(hit)
    one["line"] = True
    known, at_us, skipped = one.pop("waits", None) or (None, None, 0)
    if known != step:
        at_us, skipped = None, 0
    flags = EXCLUDES | (NAN if hit.number("loss") is None else 0)
    yield from _reading(hit, step, at_us, skipped, length, flags)


READER: Final = Reader(
    (
        *rules(_NAME, _step),
        rule(
            b"iter time (s): ",
            rb"steps: (?P<step>\d{1,18}) loss: (?P<loss>\S{1,24}) [^\n]{0,300}?"
            rb"iter time \(s\): (?P<time>[\d.]{1,18})",
            _pipeline,
        ),
        rule(
            b"exits successfully",
            rb"\[launch\.py:\d{1,6}:main\] Process \d{1,10} exits successfully",
            completed,
        ),
        *EVENTS,
    ),
    followers=FOLLOWERS,
    hot=_SWIFT,
)

_STEP: Final = re.compile(rb"\] step=\d{1,18}, skipped=\d{1,18}, lr=")
_PIPELINE: Final = re.compile(rb"(?m)^.{0,80}steps: \d{1,18} loss: \S{1,24} .{0,300}iter time \(s\): ")
_MARK: Final = re.compile(
    rb"\] DeepSpeed info: version=|RunningAvgSamplesPerSec=|\bdist_world_size=\d"
    rb"|\[config\.py:\d{1,6}:print\] "
)
_ABOVE: Final = re.compile(rb"iteration +\d+/ *\d+ \||using world size: \d|-{8} arguments -{8}|NeoXArgs")


def detect(head: bytes) -> Evidence | None:
    """Find the engine's lines; the frameworks that drive it print them too, so the claim is small."""
    found, mark = _STEP.search(head), _MARK.search(head)
    if mark and _PIPELINE.search(head) and not _ABOVE.search(head):
        return Evidence(score=94, text="the pipeline engine's lines beside the engine's own")
    if found:
        return Evidence(score=60, text=f"the engine's lines `{found[0][2:].decode()}`")
    if mark:
        return Evidence(score=52, text=f"`{mark[0].decode().strip()}`")
    return None


COLLECTOR: Final = Collector(
    name="deepspeed",
    framework="DeepSpeed 0.3 (2020) to 0.18 alone: engine, pipeline engine and launcher lines",
    version=1,
    parse=READER.parse,
    detect=detect,
    knows=(
        "time",
        "step time with the pipeline engine",
        "gpus where the launcher or the configuration is in the log",
        "batch",
        "skipped updates",
        "resume",
        "saves",
        "completion",
    ),
    needs=("model.sequence_length", "hardware.gpus where the start of the log is missing"),
    notes=(
        "Steps are printed each steps_per_print; tokens are steps x train_batch_size x sequence_length. "
        "The printed samples per second leave out data loading and saves and are not used."
    ),
)
