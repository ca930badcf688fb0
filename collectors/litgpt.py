"""LitGPT consoles: `Epoch 1 | iter 512 step 64 | loss train: 3.456, val: n/a | iter time: 298.27 ms (step)`.

Pure. Traps: `iter` counts micro-batches of one device, `step` optimiser steps; `iter time` is of one
micro-batch, and holds what the device had still to do, so it is no step time; `val` repeats the last value;
the Tok/sec of the end is wrong (0.5.x divides by a moment, not by a duration); nothing has a stamp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from collectors._events import EVENTS
from collectors._events import FOLLOWERS as EVENT_FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._own import first_sign
from collectors._process import (
    NAN,
    begins,
    completed,
    done,
    durable,
    ends,
    launched,
    process,
    progress,
    resolution,
    resumed,
    settings,
)
from collectors._swift import Match, Memory, Swift, Taken
from collectors._text import real, seconds_us, whole
from tracker.core.records import Json, Kind, Reading, Record
from tracker.interfaces import Collector, Evidence

_NAME: Final = "LitGPT"
_ARGUMENTS: Final = "arguments"
_ARGUMENT_LINES: Final = 60


def _iteration(hit: Hit) -> Iterator[Record]:
    """Several micro-batches may be printed for a step: the first line with it is the step's."""
    iteration, step, loss = hit.count("iter"), hit.count("step"), hit.group("loss")
    if iteration is None or step is None or hit.number("ms") is None:
        yield hit.reject("torn iteration line")
        return
    at_us = hit.stamp_us()
    reading = _step(hit.offset, at_us, iteration, step, real(loss) is None, process(hit))
    for record in progress(hit, reading):
        yield record
        saved = process(hit).pop("saved", None) if isinstance(record, Reading) else None
        if saved is not None:  # training went on: the file is written
            yield from durable(hit, saved)


def _step(offset: int, at_us: int | None, iteration: int, step: int, nan: bool, one: Memory) -> Reading:
    known = one.get("settings", {})
    micro, gpus, batch = (known.get(name) for name in ("micro_batch_size", "gpus", "global_batch_size"))
    exact = micro and gpus and batch and iteration * micro * gpus == step * batch
    samples = step * batch if exact else None
    return Reading(
        offset, at_us, step, samples=samples, batch=batch, flags=resolution(at_us) | (NAN if nan else 0)
    )


def _taken(match: Match, _: int | None, offset: int, one: Memory) -> Taken | None:
    """The same of a usual line."""
    if "saved" in one:
        return None
    iteration, step = match.groups()
    return _step(offset, None, int(iteration), int(step), False, one), {}


_SWIFT: Final = Swift(
    b"iter ",
    rb"Epoch \d{1,9} \| ",
    rb"iter (\d{1,15}) step (\d{1,15}) \| loss train: \d{1,9}\.\d{1,9}, val: [\w./]{1,24} \| "
    rb"iter time: \d{1,9}\.\d{1,6} ms(?: \(step\))? remaining time: [\w:, ]{1,60}\n",
    _taken,
)


# -- start -----------------------------------------------------------------------------------------------

_FIELD: Final = re.compile(
    rb"\b(global_batch_size|micro_batch_size|max_seq_length|max_tokens|save_interval|log_interval)=(\d{1,18})\b"
)
_COUNTS: Final = {
    b"global_batch_size": "global_batch_size",
    b"micro_batch_size": "micro_batch_size",
    b"max_seq_length": "sequence_length",
    b"max_tokens": "target_tokens",
    b"save_interval": "save_interval",
    b"log_interval": "log_interval",
}


def _arguments(hit: Hit) -> Iterator[Record]:
    """TrainArgs on one line, or a field a line."""
    yield from launched(hit, "arguments", _NAME)
    yield from _hardware(hit)
    yield from _argument(hit)
    if b")" not in hit.text[hit.match.end() :]:
        hit.open(_ARGUMENTS, _ARGUMENT_LINES)


def _argument(hit: Hit) -> Iterator[Record]:
    found: dict[str, Json] = {_COUNTS[name]: whole(value) or None for name, value in _FIELD.findall(hit.text)}
    if hit.text.rstrip().endswith((b")", b"),", b")}")):
        hit.close(_ARGUMENTS)
    yield from settings(hit, found)


def _member(hit: Hit) -> Iterator[Record]:
    """Lightning's line, from each process."""
    yield from launched(hit, "member", _NAME)
    yield from settings(hit, {"gpus": hit.count(1)})


def _devices(hit: Hit) -> Iterator[Record]:
    """Arguments by name, before any word of the start: kept for it."""
    kept = hit.state.setdefault("devices", {})
    assert isinstance(kept, dict)
    kept[hit.word("name") or ""] = hit.count("count")
    return iter(())


def _hardware(hit: Hit) -> Iterator[Record]:
    """Devices are those of a node; older versions have one."""
    kept: Any = hit.state.pop("devices", None)
    if kept and kept.get("devices"):
        nodes = kept.get("num_nodes")
        yield from settings(hit, {"nodes": nodes, "gpus": kept["devices"] * (nodes or 1)})


def _instantiated(hit: Hit) -> Iterator[Record]:
    """Rank 0 only."""
    yield from launched(hit, "model", _NAME)
    yield from _hardware(hit)


def _resumes(hit: Hit) -> Iterator[Record]:
    step = hit.count("step")
    if step is not None:
        yield from resumed(hit, step)


# -- saves, evaluation, end ----------------------------------------------------------------------------------


def _saves(hit: Hit) -> Iterator[Record]:
    """Its folder names the step; the last one is `final`."""
    named = hit.count("step") if hit.group("step") else None
    step = done(hit) if named is None else named
    process(hit)["saved"] = step
    yield from begins(hit, Kind.SAVE_START, step)


def _validates(hit: Hit) -> Iterator[Record]:
    """Before training it is a check of two batches, and nothing tells its end."""
    if process(hit).get("ran"):
        yield from begins(hit, Kind.EVAL_START, done(hit))


def _validated(hit: Hit) -> Iterator[Record]:
    yield from ends(hit, Kind.EVAL_END, done(hit), duration_us=seconds_us(hit.group("ms"), 1000), alone=True)


READER: Final = Reader(
    (
        rule(
            b"iter ",
            rb"\biter (?P<iter>\d{1,15}) (?:\| )?step (?P<step>\d{1,15})(?: \||:) loss(?: train)?:? "
            rb"(?P<loss>[^,\s]{1,24}), .{0,80}?iter time: (?P<ms>[\d.]{1,16}) ?ms",
            _iteration,
        ),
        rule(
            b"val time: ",
            rb"\biter \d{1,15}: val loss [^,\s]{1,24}, val time: (?P<ms>[\d.]{1,16}) ?ms",
            _validated,
        ),
        rule(b"Validating ...", rb"^Validating \.\.\.", _validates),
        rule(b"TrainArgs(", rb"\bTrainArgs\(", _arguments),
        rule(b"'devices': ", rb"'(?P<name>devices)': (?P<count>\d{1,6}),", _devices),
        rule(b"'num_nodes': ", rb"'(?P<name>num_nodes)': (?P<count>\d{1,6}),", _devices),
        rule(b"MEMBER: ", rb"GLOBAL_RANK: \d{1,7}, MEMBER: \d{1,7}/(\d{1,7})\b", _member),
        rule(
            b"instantiate model",
            rb"Time to instantiate model: [\d.]{1,12} ?s",
            _instantiated,
        ),
        rule(
            b"Total parameters",
            rb"Total parameters:? ([\d,]{1,26})",
            lambda hit: settings(hit, {"parameters": hit.count(1)}),
        ),
        rule(
            b"Resuming training",
            rb"Resuming training from \S{0,400}step-0{0,9}(?P<step>\d{1,15})\b",
            _resumes,
        ),
        rule(
            b"Saving checkpoint to",
            rb"Saving checkpoint to '?\S{0,400}?(?:step-0{0,9}(?P<step>\d{1,15})|final)\b",
            _saves,
        ),
        rule(b"Training ", rb"^(?:\| - )?Training [Tt]ime ?: [\d.]{1,20} ?s", completed),
        *EVENTS,
    ),
    followers={_ARGUMENTS: _argument, **EVENT_FOLLOWERS},
    hot=_SWIFT,
)

_OWN: Final = (
    (97, rb"\| iter \d{1,15} step \d{1,15} \| loss train: ", "`| iter N step M | loss train:`"),
    (96, rb"\biter \d{1,15} (?:\| )?step \d{1,15}: loss \S{1,24}, iter time: ", "`iter N step M: loss`"),
    (92, rb"\bTrainArgs\(save_interval=", "its TrainArgs"),
)


def detect(head: bytes) -> Evidence | None:
    """Find its iteration lines, or its arguments."""
    return first_sign(head, _OWN)


COLLECTOR: Final = Collector(
    name="litgpt",
    framework="LitGPT (lit-gpt 2023 to 0.5.13), pretraining and finetuning consoles",
    version=1,
    parse=READER.parse,
    detect=detect,
    knows=(
        "step",
        "samples",
        "batch",
        "gpus",
        "parameters",
        "resume",
        "saves",
        "evaluation",
        "completion",
        "time where the carrier stamps the lines",
    ),
    needs=(
        "model.sequence_length where max_seq_length is not set",
        "stamps of the carrier, or the metrics.csv beside it (lightning_csv), for any time of a step",
    ),
    notes=(
        "The printed iter time is of one micro-batch and no step time. logger_name = csv writes metrics.csv, "
        "which has the time since training began."
    ),
)
