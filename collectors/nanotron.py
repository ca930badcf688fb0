"""nanotron logs: `iteration: 12 / 100 | consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 11.5K | ...`.

Pure. Traps: numbers have three digits and a suffix, so the tokens stand still for hundreds of lines and are
steps x batch instead; the batch is in sequences in older versions and in tokens in newer ones; dates are
MM/DD/YYYY, and MM/DD without a year since 2025; several pipeline stages may print one iteration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Final

from collectors._clock import short_us, stamp_us
from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._options import YEAR, checked
from collectors._process import (
    NAN,
    ROUNDED,
    SAMPLE,
    WHOLE_SECOND,
    begins,
    completed,
    launched,
    process,
    progress,
    resumed,
    setting,
    settings,
    with_year,
)
from collectors._swift import Match, Memory, Swift, Taken
from collectors._text import scaled
from tracker.core.records import LARGEST, Json, Kind, Reading, Record
from tracker.interfaces import Collector, Context, Evidence

_NAME: Final = "nanotron"
_GATE: Final = b"iteration: "
_LAYOUT: Final = "layout"
_LAYOUT_LINES: Final = 20
_STAMP: Final = re.compile(rb"\b(\d\d)/(\d\d)(?:/(\d{4}))? (\d\d:\d\d:\d\d) \[[A-Z]")
_HUMAN: Final = re.compile(rb"([\d.]{1,12}(?:e[-+]\d{1,3})?)([KMGBTPE]?)")
_POWER: Final = {b"": 1.0, b"K": 1e3, b"M": 1e6, b"G": 1e9, b"B": 1e9, b"T": 1e12, b"P": 1e15, b"E": 1e18}
_CONVENTION: Final = "model FLOP, attention in full, recompute not counted (hardware_tflops counts it)"


_OLDER: Final = (
    b"consumed_tokens",
    b"elapsed_time_per_iteration_ms",
    b"global_batch_size",
    b"lm_loss",
    b"model_tflops_per_gpu",
)
_NEWER: Final = (b"consumed_tokens", b"time_per_iteration_ms", *_OLDER[2:])


def _human(text: bytes | None) -> float | None:
    """Return a number with a suffix, three digits of it.

    >>> _human(b"11.5K"), _human(b"1.87e-05"), _human(b"nan")
    (11500.0, 1.87e-05, None)
    """
    found = _HUMAN.fullmatch(text.strip()) if text is not None else None
    try:
        return float(found[1]) * _POWER[found[2]] if found is not None else None
    except ValueError:
        return None


def _at_us(hit: Hit) -> int | None:
    """Return the line's time: by its carrier's stamp, else by its own, whose year may be missing."""
    if hit.line.stamp:
        return stamp_us(hit.line.stamp, hit.context)
    found = _STAMP.search(hit.text, 0, 80)
    if found is None:
        return None
    return _stamped(found, hit.context)


def _iteration(hit: Hit) -> Iterator[Record]:
    """The time is of this iteration only, and lines may come every tenth: a sample, the stamps add up."""
    fields = {
        key.strip(): value.strip()
        for key, _, value in (piece.partition(b":") for piece in (hit.group("rest") or b"").split(b"|"))
    }
    step, at_us = hit.count("step"), _at_us(hit)
    newer = b"time_per_iteration_ms" in fields
    values = [fields.get(name) for name in (_NEWER if newer else _OLDER)]
    reading = None if step is None else _reading(step, values, newer, at_us, hit.offset, process(hit))
    if reading is None:
        yield hit.reject("torn iteration line")
        return
    if reading.reported_flop_per_s is not None:
        yield from settings(hit, {"reported_convention": _CONVENTION}, at_us=at_us)
    yield from progress(hit, reading)
    if step == setting(hit, "target_steps"):
        yield from completed(hit, at_us=at_us)


def _reading(
    step: int, values: Sequence[bytes | None], newer: bool, at_us: int | None, offset: int, one: Memory
) -> Reading | None:
    consumed, time_ms, batch, loss, flop = values
    elapsed_ms = _human(time_ms)
    if not elapsed_ms or loss is None or consumed is None:
        return None
    tokens, rounded = scaled(consumed) or (None, False)
    size, about = scaled(batch) or (None, False)
    per_step = one.get("settings", {}).get("tokens_per_step")
    if per_step is None and newer:
        per_step, rounded = size, rounded or about
    tflop = _human(flop)
    flags = SAMPLE | (ROUNDED if rounded else 0)
    flags |= WHOLE_SECOND if at_us is not None and at_us % 1_000_000 == 0 else 0
    flags |= NAN if _human(loss.lstrip(b"-")) is None else 0
    return Reading(
        offset,
        at_us,
        step,
        round(elapsed_ms * 1000),
        tokens=tokens,
        batch=None if newer or about else size,
        flags=flags,
        reported_flop_per_s=None if tflop is None else tflop * 1e12,
        tokens_per_step=per_step,
    )


def _stamped(head: Match, context: Context) -> int | None:
    month, day, year, time = head.groups()
    if year is None:
        return short_us(int(month), int(day), time, context)
    return stamp_us(b"%s-%s-%s %s" % (year, month, day, time), context)


def _taken(found: Match, at_us: int | None, offset: int, one: Memory) -> Taken | None:
    known, (done, consumed, older, *values) = one.get("settings", {}), found.groups()
    step = int(done)
    if "reported_convention" not in known or step >= known.get("target_steps", LARGEST):
        return None
    reading = _reading(step, (consumed, *values), older is None, at_us, offset, one)
    return None if reading is None else (reading, {})


_VALUE: Final = rb"[\w.+-]{1,16}"
_OTHERS: Final = rb"(?:\w{1,40}: " + _VALUE + rb" \| ){0,8}?"
_SWIFT: Final = Swift(
    _GATE,
    rb"(\d\d)/(\d\d)(?:/(\d{4}))? (\d\d:\d\d:\d\d) \[[A-Z]{4,8}\|[\w=|.-]{1,100}\]: ",
    rb"iteration: (\d{1,18}) / \d{1,18} \| consumed_tokens: (_) \| (elapsed_)?time_per_iteration_ms: (_) \| "
    rb"@global_batch_size: (_) \| lm_loss: (_) \| @model_tflops_per_gpu: (_)(?: \| \w{1,40}: _){0,12}\n"
    .replace(b"@", _OTHERS)
    .replace(b"(_)", b"(" + _VALUE + b")")
    .replace(b": _)", b": " + _VALUE + b")"),
    _taken,
    stamp=_stamped,
)


def _starts(hit: Hit) -> Iterator[Record]:
    """The line that starts training: the batch exactly, and where training goes on."""
    found = {key: int(value) for key, value in _START_FIELD.findall(hit.text)}
    micro, batch, length = found.get(b"mbs"), found.get(b"global_batch_size"), found.get(b"sequence_length")
    known: dict[str, Json] = {
        "micro_batch_size": micro,
        "global_batch_size": batch,
        "sequence_length": length,
    }
    known["tokens_per_step"] = batch * length if batch and length else None
    known["target_steps"] = found.get(b"train_steps")
    at_us = _at_us(hit)
    yield from settings(hit, known, at_us=at_us)
    step = found.get(b"start_iteration_step")
    if step is None:
        return
    data: dict[str, Json] = {
        "samples": found.get(b"consumed_train_samples") if step else None,
        "tokens": found.get(b"consumed_tokens_total") if step else None,
    }
    for event in resumed(hit, step, at_us=at_us, **data):
        yield event
        yield hit.event(Kind.TRAIN_START, at_us=at_us)


_START_FIELD: Final = re.compile(
    rb"\b(mbs|global_batch_size|sequence_length|train_steps|start_iteration_step|consumed_train_samples"
    rb"|consumed_tokens_total): (\d{1,18})\b"
)
_SIZE: Final = re.compile(rb"\b(dp|pp|tp|expert_parallel_size|context_parallel_size)=(\d{1,7})\b")
_SIZES: Final = {
    "dp": "data_parallel",
    "pp": "pipeline_parallel",
    "tp": "tensor_parallel",
    "expert_parallel_size": "expert_parallel",
    "context_parallel_size": "context_parallel",
}


def _config(hit: Hit) -> Iterator[Record]:
    """The layout in the dump of the configuration, over several lines; its sizes multiply to the world."""
    yield from launched(hit, "layout", _NAME)
    process(hit)[_LAYOUT] = {}
    hit.open(_LAYOUT, _LAYOUT_LINES)
    yield from _size(hit)


def _size(hit: Hit) -> Iterator[Record]:
    sizes = process(hit).get(_LAYOUT, {})
    sizes.update({_SIZES[name.decode()]: int(size) for name, size in _SIZE.findall(hit.text)})
    if hit.text.rstrip().endswith(b"),") or hit.text.rstrip().endswith(b"))"):
        hit.close(_LAYOUT)
        process(hit).pop(_LAYOUT, None)
        if sizes:
            yield from settings(hit, {"gpus": prod(sizes.values()), **sizes})


def _parameters(hit: Hit) -> Iterator[Record]:
    count = _human(hit.group(1))
    yield from settings(hit, {"parameters": round(count) if count else None}, at_us=_at_us(hit))


def _saves(hit: Hit) -> Iterator[Record]:
    yield from begins(hit, Kind.SAVE_START, hit.count(1), at_us=_at_us(hit))


def _sign(hit: Hit) -> Iterator[Record]:
    at_us = _at_us(hit)
    if at_us is not None and not process(hit).get("ran"):
        yield hit.event(Kind.SIGN, at_us=at_us)


_READER: Final = Reader(
    (
        rule(
            _GATE,
            rb"\biteration: (?P<step>\d{1,18}) / \d{1,18} \|(?P<rest>.*)$",
            _iteration,
        ),
        rule(
            b"onfig:",
            rb"\]: (?:Config:$|Parsing config: )",
            lambda hit: launched(hit, "config", _NAME, at_us=_at_us(hit)),
        ),
        rule(b"ParallelismArgs(", rb"\bParallelismArgs\(dp=", _config),
        rule(b"start_iteration_step: ", rb"\bmbs: \d{1,9} \| grad_accum: ", _starts),
        rule(
            b"number of parameters: ", rb"Total number of parameters: ([\d.]{1,12}[KMGBT]?) \(", _parameters
        ),
        rule(b"Saving checkpoint at", rb"Saving checkpoint at \S{0,400}?/?(\d{1,18})$", _saves),
        rule(b"Loading ", rb"Loading (?:weights|checkpoint) from \S", _sign),
        *EVENTS,
    ),
    followers={_LAYOUT: _size, **FOLLOWERS},
    hot=_SWIFT,
)


def parse(block: bytes, context: Context) -> Iterable[Record]:
    """Yield the records of a block; the option `year` dates stamps that have none."""
    with_year(context)
    return _READER.parse(block, context)


_LINE: Final = re.compile(rb"iteration: \d{1,18} / \d{1,18} \| consumed_tokens: ")
_HEADER: Final = re.compile(rb"\d\d:\d\d:\d\d \[(?:INFO|WARNING)\|[A-Z]{2}=\d|\bParallelismArgs\(dp=\d")


def detect(head: bytes) -> Evidence | None:
    """Find its iteration line, or its prefix that names the position of a rank."""
    if found := _LINE.search(head):
        return Evidence(score=96, text=found[0].decode("ascii", "replace"))
    if found := _HEADER.search(head):
        return Evidence(score=91, text=found[0].decode("ascii", "replace"))
    return None


COLLECTOR: Final = Collector(
    name="nanotron",
    framework="nanotron v0.3 to v0.5 and 2026",
    version=1,
    parse=parse,
    detect=detect,
    knows=(
        "tokens",
        "time",
        "step time",
        "gpus",
        "parallel layout",
        "parameters",
        "resume",
        "save starts",
        "completion",
        "reported TFLOP/s",
    ),
    needs=("source.year where the dates have none (since 2025)",),
    options=("year",),
    check=checked(year=YEAR),
    notes=(
        "Tokens are steps x the batch of the line that starts training; a log without it has three digits of "
        "them (rounded). Parameters have three digits."
    ),
)
