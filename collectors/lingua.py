"""Meta lingua logs: `step: 1200  acc: 0  loss:  2.9131  grad: 3.1e-01  flops: 4.01e+14  wps: 9.2e+03 ...`.

Pure. Local time with two digits of the year, and microseconds. Traps: `wps` and `flops` are of one GPU and
have three digits; `iter` is of the last step alone; the batch is not printed (metrics.jsonl has the tokens).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from collectors._clock import local_us, wall_us
from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._process import NAN, SAMPLE, begins, ends, exits, launched, progress, resumed, settings
from collectors._swift import Match, Memory, Swift, Taken
from collectors._text import real, seconds_us
from tracker.core.records import Kind, Reading, Record
from tracker.interfaces import Collector, Context, Evidence

_NAME: Final = "lingua"
_STAMP: Final = re.compile(rb"(\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}) - [\d:]{7,12} - ")
_FIELD: Final = re.compile(rb"\b(loss|flops|iter): {1,8}(\S{1,24})")
_CONVENTION: Final = "6N + attention, of one GPU, recompute not counted"


def _at(hit: Hit) -> int | None:
    """Return when the line was written; the container's stamp is better where there is one."""
    if hit.line.stamp:
        return hit.stamp_us()
    found = _STAMP.search(hit.text, 0, 80)
    wall = wall_us(b"20" + found[1]) if found else None
    return None if wall is None else local_us(wall, hit.context)


def _step(hit: Hit) -> Iterator[Record]:
    found = dict(_FIELD.findall(hit.group("rest") or b""))
    step, time_us = hit.count("step"), seconds_us(found.get(b"iter"))
    if step is None or b"loss" not in found or not time_us:
        yield hit.reject("torn step line")
        return
    reading = _reading(step, time_us, found[b"loss"], found.get(b"flops"), _at(hit), hit.offset)
    claimed = reading.reported_flop_per_s is not None
    yield from settings(hit, {"reported_convention": _CONVENTION} if claimed else {}, at_us=reading.at_us)
    yield from progress(hit, reading)


def _reading(
    step: int, time_us: int, loss: bytes, flops: bytes | None, at_us: int | None, offset: int
) -> Reading:
    flags = SAMPLE | (NAN if real(loss) is None else 0)
    return Reading(offset, at_us, step, time_us, flags=flags, reported_flop_per_s=real(flops) or None)


def _taken(found: Match, at_us: int | None, offset: int, one: Memory) -> Taken | None:
    step, loss, flops, took = found.groups()
    time_us = seconds_us(took)
    if not time_us or one.get("settings", {}).get("reported_convention") is None:
        return None
    return _reading(int(step), time_us, loss, flops, at_us, offset), {}


def _head_us(found: Match, context: Context) -> int | None:
    wall = wall_us(b"20" + found["short"])
    return None if wall is None else local_us(wall, context)


_SWIFT: Final = Swift(
    b"step: ",
    rb"[A-Z]{4,8} {1,4}(?P<short>\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}) - [\d:]{7,12} - ",
    rb"step: (\d{1,15})  acc: \d{1,6}  loss: {1,8}([\d.]{1,20})  grad: \S{1,16}  flops: ([\d.e+]{1,16})  "
    rb"wps: \S{1,16}  iter: {1,8}([\d.]{1,16})  [^\n\r]{0,200}\n",
    _taken,
    stamp=_head_us,
)


def _job(hit: Hit) -> Iterator[Record]:
    for event in launched(hit, "job", _NAME):
        yield hit.event_of(event.kind, event.data, at_us=_at(hit))


_FOLDER: Final = rb"\S{1,400}/(\d{10})/?$"
_READER: Final = Reader(
    (
        rule(b"step: ", rb"- step: (?P<step>\d{1,18})  acc: \d{1,6}  (?P<rest>.*)$", _step),
        rule(b"Starting job: ", rb" - [\d:]{7,12} - Starting job: ", _job),
        rule(
            b"Running on dp size",
            rb"Running on dp size : (\d{1,7})",
            lambda hit: settings(hit, {"data_parallel": hit.count(1)}, at_us=_at(hit)),
        ),
        rule(
            b"Model size: ",
            rb"Model size: ([\d,]{1,24}) total parameters",
            lambda hit: settings(hit, {"parameters": hit.count(1)}, at_us=_at(hit)),
        ),
        rule(
            b"Loading from: ",
            rb"Loading from: " + _FOLDER,
            lambda hit: resumed(hit, hit.count(1), at_us=_at(hit)),
        ),
        rule(
            b"Saving to: ",
            rb"Saving to: " + _FOLDER,
            lambda hit: begins(hit, Kind.SAVE_START, hit.count(1), at_us=_at(hit)),
        ),
        rule(
            b"Train state saved !",
            rb"Train state saved !",
            lambda hit: ends(hit, Kind.SAVE_END, at_us=_at(hit)),
        ),
        rule(b"Preemption ! ", rb"Preemption ! checkpointing asap", lambda hit: _preempted(hit)),
        *EVENTS,
    ),
    followers=FOLLOWERS,
    hot=_SWIFT,
)


def _preempted(hit: Hit) -> Iterator[Record]:
    for event in exits(hit, "preempted"):
        yield hit.event_of(event.kind, event.data, at_us=_at(hit))


def detect(head: bytes) -> Evidence | None:
    """Find its step line, or its start."""
    if found := _LINE.search(head):
        return Evidence(score=96, text=found[0].decode("ascii", "replace"))
    if _START.search(head):
        return Evidence(score=91, text="Starting job: behind a stamp of two digits of the year")
    return None


_LINE: Final = re.compile(rb"- step: \d{1,18}  acc: \d{1,6}  loss: {1,8}\S{1,24}")
_START: Final = re.compile(rb"INFO {1,4}\d\d-\d\d-\d\d [\d:.]{15} - [\d:]{7,12} - Starting job: ")

COLLECTOR: Final = Collector(
    name="lingua",
    framework="Meta lingua, 2024 to 2025",
    version=1,
    parse=_READER.parse,
    detect=detect,
    knows=("time", "step time", "parameters", "saves", "resume", "reported FLOP/s"),
    needs=("model.tokens_per_step", "hardware.gpus"),
    notes="Its metrics.jsonl has exact tokens: read that with jsonl instead where it is kept.",
)
