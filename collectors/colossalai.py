"""ColossalAI logs: lines of a rich handler (`[08/30/23 07:07:34] INFO  colossalai - colossalai - INFO: ..`).

Pure. Traps: messages are wrapped at the terminal's width; the stamp, local time and whole seconds, is
printed only when it changed; `Step time` has no number; the end prints two conventions of TFLOP/s side by
side. Training proper shows a progress bar: `Epoch 0: 50%|...| 5/10 [01:40<01:40, 20.00s/it, Loss=2.12]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from collectors._clock import local_us, wall_us
from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._process import (
    EXCLUDES,
    INCLUDES,
    NAN,
    WHOLE_SECOND,
    begins,
    completed,
    done,
    elapsed_s,
    ends,
    launched,
    process,
    progress,
    settings,
)
from collectors._text import seconds_us
from tracker.core.records import Kind, Reading, Record
from tracker.interfaces import Collector, Evidence

_NAME: Final = "ColossalAI"


def _stamped(hit: Hit) -> Iterator[Record]:
    """The stamp holds for all lines until the next one."""
    wall = wall_us(b"20%b-%b-%b %b" % (hit.match["y"], hit.match["m"], hit.match["d"], hit.match["time"]))
    at_us = None if wall is None else local_us(wall, hit.context)
    if at_us is not None:
        hit.state["stamp"] = at_us
    return iter(())


def _at(hit: Hit) -> int | None:
    if hit.line.stamp:
        return hit.stamp_us()
    at_us = hit.state.get("stamp") if b"colossalai - " in hit.text else None  # other lines are nobody's
    return at_us if isinstance(at_us, int) else None


def _world(hit: Hit) -> Iterator[Record]:
    for event in launched(hit, "world", _NAME):
        yield hit.event_of(event.kind, event.data, at_us=_at(hit))
    yield from settings(hit, {"gpus": hit.count(1)}, at_us=_at(hit))


def _timed(hit: Hit) -> Iterator[Record]:
    """A step without a number is the next one."""
    time_us, at_us = seconds_us(hit.group(1)), _at(hit)
    if not time_us:
        yield hit.reject("torn step line")
        return
    flags = EXCLUDES | (WHOLE_SECOND if at_us is not None else 0)
    yield from progress(hit, Reading(hit.offset, at_us, (done(hit) or 0) + 1, time_us, flags=flags))


def _bar(hit: Hit) -> Iterator[Record]:
    """Its clock counts whole seconds since the epoch began; differences of it sum to the whole."""
    one = process(hit)
    epoch, number, total = hit.count("epoch"), hit.count("n"), hit.count("total")
    bar: list[Any] = one.setdefault("bar", [None, 0, 0])
    if epoch is None or not number or not total or number > total:
        return
    if bar[0] != epoch:
        bar[:] = [epoch, 0, 0]
    clock_s, steps = elapsed_s(hit.group("clock") or b"0"), number - bar[1]
    if steps <= 0:
        return
    took_us = (clock_s - bar[2]) * 1_000_000 // steps
    bar[1:] = [number, max(clock_s, bar[2])]
    flags = (INCLUDES if took_us > 0 else 0) | (NAN if hit.number("loss") is None else 0)
    step = epoch * total + number
    yield from progress(hit, Reading(hit.offset, None, step, took_us if took_us > 0 else None, flags=flags))


def _saved(hit: Hit) -> Iterator[Record]:
    yield from ends(hit, Kind.SAVE_END, at_us=_at(hit), alone=True)


_CONVENTION: Final = "two: Megatron's formula, and 6N (8N with recomputation); the end of the run prints both"


def _ended(hit: Hit) -> Iterator[Record]:
    yield from settings(hit, {"reported_convention": _CONVENTION}, at_us=_at(hit))
    for event in completed(hit):
        yield hit.event_of(event.kind, {}, at_us=_at(hit))


_READER: Final = Reader(
    (
        rule(
            b" INFO ",
            rb"^\[(?P<m>\d\d)/(?P<d>\d\d)/(?P<y>\d\d) (?P<time>\d\d:\d\d:\d\d)\] (?:INFO|WARNING|ERROR) ",
            _stamped,
        ),
        rule(
            b", world size: ",
            rb"Distributed environment is initialized, +world size: (\d{1,7})\b",
            _world,
        ),
        rule(b"Step time: ", rb"\bStep time: ([\d.]{0,16})", _timed),
        rule(
            b"it, ",
            rb"^Epoch (?P<epoch>\d{1,6}): +\d{1,3}%\|[^|]{0,60}\| (?P<n>\d{1,12})/(?P<total>\d{1,12}) "
            rb"\[(?P<clock>[\d:]{4,12})<[^,\]]{1,24}, [^,\]]{1,24}it, [Ll]oss=(?P<loss>[^,\]\s]{1,24})",
            _bar,
        ),
        rule(
            b"Start saving model",
            rb"Start saving model checkpoint",
            lambda hit: begins(hit, Kind.SAVE_START, done(hit), at_us=_at(hit)),
        ),
        rule(b"Saved checkpoint at", rb"Saved checkpoint at epoch \d", _saved),
        rule(
            b"dp_world_size: ",
            rb"\bdp_world_size: (\d{1,7})\b",
            lambda hit: settings(hit, {"data_parallel": hit.count(1)}, at_us=_at(hit)),
        ),
        rule(b"TFLOPS per GPU: ", rb"\bThroughput: [\d.]{1,16} samples/sec, TFLOPS per GPU", _ended),
        *EVENTS,
    ),
    followers=FOLLOWERS,
)


def detect(head: bytes) -> Evidence | None:
    """Find the name that its logger prints twice, or the last line of its examples."""
    if _LOGGER.search(head):
        return Evidence(score=94, text="colossalai - colossalai - INFO")
    if _END.search(head):
        return Evidence(score=90, text="TFLOPS per GPU by Megatron")
    return None


_LOGGER: Final = re.compile(rb"\bcolossalai - colossalai - [A-Z]{4,8}:")
_END: Final = re.compile(rb"samples/sec, TFLOPS per GPU by Megatron: ")

COLLECTOR: Final = Collector(
    name="colossalai",
    framework="ColossalAI examples and Colossal-LLaMA, 2023 to 2025",
    version=1,
    parse=_READER.parse,
    detect=detect,
    knows=("gpus", "step time", "saves", "completion", "time in lines of its logger"),
    needs=("model.tokens_per_step",),
    notes=(
        "Progress bars carry no clock of their own: without source.started_at or a scheduler the times are "
        "estimated from the file. Which TFLOP/s of the two printed is meant stands beside it."
    ),
)
