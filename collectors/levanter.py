"""Levanter (Marin) logs: a progress line a minute, and the records of its JSON logger where that is on.

Pure. `Progress on:train 1.23kit/10.0kit rate:1.9it/s ... elapsed:11:02` has three digits of the step: where
JSON records come, it is passed over. Traps: a record's step is the one just done, counted from 0, and a
checkpoint is named so too; rates are of the cluster; tokens are exact and over all attempts; the step's
duration leaves out loading and hooks, so windows are taken from stamps where there are any.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._numbers import count, number
from collectors._own import first_sign
from collectors._process import (
    EXCLUDES,
    INCLUDES,
    NAN,
    ROUNDED,
    SAMPLE,
    begins,
    completed,
    done,
    durable,
    elapsed_s,
    launched,
    process,
    progress,
    resolution,
    resumed,
    setting,
    settings,
)
from collectors._swift import AT, Match, Memory, Swift, Taken
from collectors._text import scaled
from tracker.core.records import Json, Kind, Reading, Record
from tracker.interfaces import Collector, Evidence

_NAME: Final = "Levanter"
_CONVENTION: Final = "model FLOP, attention in full, recompute not counted, active experts"
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
_GATE: Final = b'"json_logger"'
_T: Final = "throughput/"
_TOKENS: Final = "throughput/total_tokens"


def _record(hit: Hit) -> Iterator[Record]:
    """One object of the JSON logger: hyperparameters, a summary, metrics of a step, or the end."""
    raw = hit.match[1]
    try:
        body: Any = _DECODER.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        try:
            body = json.loads(raw)  # Python writes NaN as it is
        except (ValueError, RecursionError):
            body = None
    if not isinstance(body, dict):
        yield hit.reject("torn JSON record")
        return
    found = body.get("metrics", body.get("hparams"))
    if not isinstance(found, dict):
        found = {}
    what = body.get("event")
    if what == "hparams":
        yield from launched(hit, "hparams", _NAME)
        yield from settings(hit, _hyperparameters(found))
    elif what == "summary":
        yield from settings(hit, _summary(found))
    elif what == "log":
        taken = _metrics(count(body.get("step")), found, hit.stamp_us(), hit.offset, process(hit))
        process(hit).update(taken[1])
        if taken[0] is not None:
            yield from progress(hit, taken[0])
    elif what == "finish" and done(hit) is not None and done(hit) == setting(hit, "target_steps"):
        yield from completed(hit)


def _metrics(
    step: int | None, found: dict[str, Any], at_us: int | None, offset: int, one: Memory
) -> tuple[Reading | None, Memory]:
    """Several records tell of one step: the one with the throughput is the reading, the loss comes before."""
    memory: Memory = {"json": True}
    if "train/loss" in found:
        memory["nan"] = number(found["train/loss"]) is None
    if step is None or _TOKENS not in found:
        return None, memory
    seconds = number(found.get(_T + "duration"))
    flop, devices = number(found.get(_T + "gflops_per_second")), one.get("settings", {}).get("gpus")
    flags = resolution(at_us) | (NAN if memory.get("nan", one.get("nan")) else 0)
    if seconds:
        flags |= EXCLUDES if at_us is None else SAMPLE
    reading = Reading(
        offset,
        at_us,
        step + 1,
        round(seconds * 1e6) if seconds and seconds < 1e9 else None,
        tokens=count(found[_TOKENS]),
        flags=flags,
        reported_flop_per_s=flop * 1e9 / devices if flop and devices else None,
    )
    return reading, memory


def _taken(found: Match, at_us: int | None, offset: int, one: Memory) -> Taken | None:
    try:
        metrics = _DECODER.decode(found[2])
    except msgspec.MsgspecError:
        return None
    return _metrics(int(found[1]), metrics, at_us, offset, one)


_SWIFT: Final = Swift(
    _GATE,
    AT + rb" - \d{1,9} - [\w.]{1,60} - [\w.]{1,60}:\d{1,6} - INFO :: ",
    rb'\{"tracker": "json_logger", "event": "log", "step": (\d{1,18}), '
    rb'"metrics": (\{[^{}\n\r]{0,8000}\})\}\n',
    _taken,
)
"""The metrics of a step."""


def _summary(found: dict[str, Any]) -> dict[str, Json]:
    """Return the device and how many: the peak of all by the peak of one."""
    one, all_ = (
        number(found.get(_T + "theoretical_flops_per_device")),
        number(found.get(_T + "theoretical_flops")),
    )
    name = found.get(_T + "device_kind")
    data: dict[str, Json] = {
        "parameters": count(found.get("parameter_count")),
        "gpu_name": name[:80] if isinstance(name, str) else None,
    }
    if one and all_:
        data["gpus"] = round(all_ / one)
        data["reported_convention"] = f"{_CONVENTION}; MFU against {one / 1e12:.4g} TFLOP/s"
    return data


def _hyperparameters(found: dict[str, Any]) -> dict[str, Json]:
    trainer, model = found.get("trainer"), found.get("model")
    trainer = trainer if isinstance(trainer, dict) else {}
    model = model if isinstance(model, dict) else {}
    precision = trainer.get("mp")
    return {
        "global_batch_size": count(trainer.get("train_batch_size")),
        "target_steps": count(trainer.get("num_train_steps")),
        "sequence_length": count(model.get("seq_len", model.get("max_seq_len", found.get("train_seq_len")))),
        "layers": count(model.get("num_layers")),
        "hidden_size": count(model.get("hidden_dim")),
        "heads": count(model.get("num_heads")),
        "kv_heads": count(model.get("num_kv_heads")),
        "precision": "bf16" if isinstance(precision, str) and "bf16" in precision else None,
    }


def _progress(hit: Hit) -> Iterator[Record]:
    """Time since the line before, where there are no stamps: it holds evaluation and saves."""
    one = process(hit)
    steps, rounded = scaled((hit.group("n") or b"").replace(b"k", b"K")) or (None, False)
    if one.get("json") or not steps:
        return
    at_us, elapsed = hit.stamp_us(), elapsed_s(hit.group("elapsed") or b"0")
    step_time_us, flags = None, resolution(at_us) | (ROUNDED if rounded and steps >= 1000 else 0)
    if at_us is not None:
        rate = hit.number("rate")
        if rate:
            step_time_us = round(1e6 / rate if hit.group("unit") == b"it/s" else 1e6 * rate)
            flags |= SAMPLE
    else:
        before_step, before_s = one.get("bar", (one.get("resumed", [0])[0] or 0, 0))
        if elapsed > before_s and steps > before_step:
            step_time_us = (elapsed - before_s) * 1_000_000 // (steps - before_step)
            flags |= INCLUDES
    one["bar"] = [steps, elapsed]
    flags |= NAN if b"loss=nan" in hit.text else 0
    yield from progress(hit, Reading(hit.offset, at_us, steps, step_time_us or None, flags=flags))


def _resumes(hit: Hit) -> Iterator[Record]:
    yield from launched(hit, "resume", _NAME)
    yield from resumed(hit, hit.count(1) if hit.group(1) else 0)


def _saves(hit: Hit) -> Iterator[Record]:
    step = hit.count(1)
    yield from begins(hit, Kind.SAVE_START, None if step is None else step + 1)


def _saved(hit: Hit) -> Iterator[Record]:
    step = hit.count(1)
    yield from durable(hit, None if step is None else step + 1)


_READER: Final = Reader(
    (
        rule(_GATE, rb'(\{"tracker": ?"json_logger".*)$', _record),
        rule(
            b"Progress on:train ",
            rb"Progress on:train (?P<n>[\d.]{1,12}[kMG]?)it/\S{1,20} "
            rb"rate:(?:(?P<rate>[\d.,]{1,12})(?P<unit>it/s|s/it)|-) "
            rb"remaining:\S{1,20}(?: days?, \S{1,20})? elapsed:(?P<elapsed>\d{1,6}(?::\d\d){1,2})\b",
            _progress,
        ),
        rule(b"Setting run id to", rb":: Setting run id to ", lambda hit: launched(hit, "run id", _NAME)),
        rule(
            b"rom ",
            rb"Resuming training from step (\d{1,18})"
            rb"|No (?:training )?checkpoint found\. (?:Starting from scratch|Initializing)",
            _resumes,
        ),
        rule(b"Saving checkpoint at", rb"Saving checkpoint at step (\d{1,18}) to ", _saves),
        rule(b"Saved checkpoint to", rb"Saved checkpoint to \S{1,400} for step (\d{1,18})", _saved),
        *EVENTS,
    ),
    followers=FOLLOWERS,
    hot=_SWIFT,
)

_MARKS: Final = (
    (96, re.compile(rb"Progress on:train \S{1,20}/\S{1,20} rate:"), "its progress lines"),
    (96, re.compile(rb'\{"tracker": ?"json_logger", ?"event": ?"'), "records of its JSON logger"),
    (92, re.compile(rb" - levanter[\w.]{0,60} - \S{1,60}:\d{1,6} - [A-Z]{4,8} :: "), "its logger's prefix"),
)


def detect(head: bytes) -> Evidence | None:
    """Find its progress lines, its JSON records, or its logger's prefix."""
    return first_sign(head, _MARKS)


COLLECTOR: Final = Collector(
    name="levanter",
    framework="Levanter v1 (2024-25), also inside Marin",
    version=1,
    parse=_READER.parse,
    detect=detect,
    knows=(
        "time",
        "step time",
        "resume",
        "save starts",
        "with the json_logger tracker: tokens, gpus, gpu name, parameters, completion, reported TFLOP/s",
    ),
    needs=("model.tokens_per_step and hardware.gpus without the json_logger tracker",),
    notes=(
        "Progress lines come once a minute and have three digits of the step. For exact steps and tokens "
        "turn the json_logger tracker on, or read the wandb history."
    ),
)
