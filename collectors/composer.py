r"""Composer and LLM Foundry: records `[batch=366/48000]:`, `\t Train time/batch: 365`, and FileLogger's.

Pure. A record has a metric a line; the batch is numbered from 0 in it and from 1 in its header. Traps: batch,
samples and tokens are those at the start of the batch, so its own come on top; the header counts in what
max_duration is given in; time/total is a clock of the run over all attempts, evaluation and saves in it, in
hours of four decimals unless SpeedMonitor was told otherwise (since 2025 another name says so); rates come
after a window of 100 batches, and those named device are of one; mfu is a fraction; a process's first batch
is logged whatever the interval.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from collectors._composer import UNIT, Records, derived, noted, of_record
from collectors._events import EVENTS
from collectors._events import FOLLOWERS as EVENT_FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._options import checked, one_of
from collectors._own import first_sign
from collectors._process import (
    begins,
    completed,
    done,
    ends,
    launched,
    once,
    process,
    progress,
    resumed,
    settings,
    sign,
)
from collectors._text import whole
from tracker.core.records import Kind, Record
from tracker.interfaces import Collector, Evidence

_NAME: Final = "Composer"
_CONFIG: Final = "config"
_CONFIG_LINES: Final = 600


def _header(hit: Hit) -> Iterator[Record]:
    """It says how far the run has come, in batches, tokens or samples; the record before it is complete."""
    unit, n, total = hit.word("unit") or "", hit.count("n"), hit.count("total")
    epoch = hit.group("epoch") is not None
    yield from _closed(hit)
    process(hit)["head"] = [unit, n, total, epoch]
    if not epoch:
        target = {"batch": "target_steps", "token": "target_tokens", "sample": "target_samples"}
        yield from settings(hit, {target[unit]: total})


def _metric(hit: Hit) -> Iterator[Record]:
    """Take one metric; time/batch opens a record, time/total closes it, if its unit is known."""
    key, value, one = hit.word("key") or "", hit.group("value") or b"", process(hit)
    if key == "time/batch":
        yield from _closed(hit)
        count = whole(value)
        if count is None:
            yield hit.reject("a batch that is no number")
        else:
            process(hit)["record"] = {"batch": count}
        return
    if key.startswith("time_") and key.endswith("/total"):
        hit.state[UNIT] = key[5:-6]
        if one.get("record", {}).get("total") is not None:
            yield from _closed(hit)
        return
    record: dict[str, Any] | None = one.get("record")
    if record is not None:
        noted(record, key.encode(), value)
        if key == "time/total" and (UNIT in hit.state or "time_unit" in hit.context.options):
            yield from _closed(hit)


def _closed(hit: Hit) -> Iterator[Record]:
    """Yield the reading of the open record, at the line that completes it."""
    one = process(hit)
    record: dict[str, Any] | None = one.pop("record", None)
    if record is None:
        return
    head, unit = one.pop("head", None), None
    if record.get("total") is not None:
        unit = hit.state.setdefault(UNIT, hit.context.options.get("time_unit"))
    reading = of_record(hit.offset, record, one.get("before"), head, unit)
    if reading is None:
        return
    one["before"] = record
    yield from _began(hit, record, head)
    yield from settings(hit, derived(record))
    yield from progress(hit, reading)
    if head is not None and head[0] == "batch" and not head[3] and head[1] == head[2]:
        yield from completed(hit)


def _began(hit: Hit, record: Mapping[str, Any], head: Sequence[Any] | None) -> Iterator[Record]:
    """A process whose start was seen logs its first batch, so it went on from there; not so with epochs."""
    one = process(hit)
    at_the_end = head is not None and head[3] and head[1] == head[2]
    if one.get("ran") or not one.get("marks") or at_the_end or not once(hit, "began"):
        return
    if record["batch"]:
        yield from resumed(hit, record["batch"], samples=record.get("sample"), tokens=record.get("token"))
    else:
        yield from resumed(hit, 0)


# -- start -----------------------------------------------------------------------------------------------

_COUNTS: Final = {
    b"max_seq_len": "sequence_length",
    b"global_train_batch_size": "global_batch_size",
    b"device_train_microbatch_size": "micro_batch_size",
    b"n_gpus": "gpus",
    b"n_params": "parameters",
    b"n_active_params": "active_parameters",
    b"d_model": "hidden_size",
    b"n_heads": "heads",
    b"n_layers": "layers",
    b"vocab_size": "vocab_size",
    b"eval_interval": "eval_interval",
    b"save_interval": "save_interval",
}
_FIELD: Final = re.compile(rb"^(?:\[hyperparameter\]: )?\s{0,4}([a-z_]{1,40}): \"?(\w{1,24})\"? *$")
_BATCHES: Final = re.compile(rb"(\d{1,15})(?:ba)?")


def _launched(hit: Hit) -> Iterator[Record]:
    yield from launched(hit, "run", _NAME)
    yield from settings(hit, {"job_name": hit.word(1)})


def _config(hit: Hit) -> Iterator[Record]:
    """YAML between two rows of stars, from the first rank of each node."""
    yield from launched(hit, "config", _NAME)
    hit.open(_CONFIG, _CONFIG_LINES)


def _field(hit: Hit) -> Iterator[Record]:
    if hit.text.startswith(b"*****"):
        hit.close(_CONFIG)
        return
    found = _FIELD.match(hit.text)
    if found is None:
        return
    name, value = found[1], found[2]
    if name in _COUNTS and (count := _BATCHES.fullmatch(value)) is not None:
        yield from settings(hit, {_COUNTS[name]: whole(count[1]) or None})
    elif name == b"precision":
        yield from settings(hit, {"precision": value.decode().removeprefix("amp_")})


def _training(hit: Hit) -> Iterator[Record]:
    if once(hit, "training"):
        yield hit.event(Kind.TRAIN_START)


# -- evaluation --------------------------------------------------------------------------------------------


def _evaluation(hit: Hit) -> Iterator[Record]:
    """Told at each tenth of it; a set's last line has its number of batches twice."""
    if hit.count("n") != hit.count("total"):
        yield from begins(hit, Kind.EVAL_START, done(hit))
    else:
        yield from ends(hit, Kind.EVAL_END, done(hit), alone=True)


_METRIC: Final = rb"^(?:\s{1,10}Train |\[metric\]\[batch=\d{1,15}\]: )(?P<key>%s): (?P<value>\S{1,40}) *$"
_HEADER: Final = (
    rb"^(?P<epoch>\[epoch=\d{1,9}\])?\[(?P<unit>%s)=(?P<n>\d{1,18})(?:/(?P<total>\d{1,18}))?\]:?$"
)

READER: Final = Reader(
    (
        rule(b" time/", _METRIC % rb"time/(?:batch|sample|token|total)", _metric),
        rule(b" time_", _METRIC % rb"time_(?:seconds|minutes|hours|days)/total", _metric),
        rule(b" loss/train/total: ", _METRIC % rb"loss/train/total", _metric),
        rule(b" throughput/", _METRIC % rb"throughput/(?:device/)?(?:tokens|flops|samples)_per_sec", _metric),
        rule(b"[batch=", _HEADER % rb"batch", _header),
        rule(b"[token=", _HEADER % rb"token", _header),
        rule(b"[sample=", _HEADER % rb"sample", _header),
        rule(
            b"[Eval batch=",
            rb"^\[Eval batch=(?P<n>\d{1,15})/(?P<total>\d{1,15})\] Eval on \S{1,80} data",
            _evaluation,
        ),
        rule(b"trainer: Run name: ", rb"composer\.trainer\.trainer: Run name: (\S{1,120})", _launched),
        rule(b"Config:", rb"^Config:$", _config),
        rule(b"[hyperparameter]: ", rb"^\[hyperparameter\]: \w", _field),
        rule(
            b"autoresume checkpoint",
            rb"No previous autoresume checkpoint found",
            lambda hit: resumed(hit, 0),
        ),
        rule(b"Loading checkpoint from", rb"\bcomposer[\w.]{1,60}: Loading checkpoint from ", sign),
        rule(b"Building ", rb"\bllmfoundry[\w.]{1,60}: Building \w", sign),
        rule(b"Starting training", rb"\bllmfoundry[\w.]{1,60}: Starting training\.\.\.", _training),
        rule(b": Done.", rb"\bllmfoundry[\w.]{1,60}: Done\.", completed),
        *EVENTS,
    ),
    followers={_CONFIG: _field, **EVENT_FOLLOWERS},
    hot=Records(),
)

_OWN: Final = (
    (97, rb"\n\s{1,10}Train time/batch: \d", "`Train time/batch` lines"),
    (96, rb"(?m)^\[metric\]\[batch=\d{1,15}\]: ", "`[metric][batch=N]` lines"),
    (95, rb"rank\d{1,7}\[\d{1,9}\]\[MainThread\]: [A-Z]{4,8}: (?:composer|llmfoundry)", "Composer's logger"),
    (90, rb"(?m)^\[Eval batch=\d{1,15}/\d{1,15}\] Eval on ", "`[Eval batch=` lines"),
)


def detect(head: bytes) -> Evidence | None:
    """Find its records, or its logger."""
    return first_sign(head, _OWN)


COLLECTOR: Final = Collector(
    name="composer",
    framework="Composer 0.8 (2022) to 0.32 and LLM Foundry: console logger, file logger",
    version=1,
    parse=READER.parse,
    detect=detect,
    knows=(
        "step",
        "samples",
        "tokens",
        "step time with SpeedMonitor",
        "gpus once rates are printed, or from the configuration",
        "batch",
        "resume",
        "evaluation",
        "completion",
        "reported FLOP/s",
        "time of the start at log level INFO",
    ),
    needs=(
        "source.started_at where no scheduler tells when it ran",
        "source.time_unit (seconds, minutes, days) where SpeedMonitor's is not hours",
    ),
    options=("time_unit",),
    check=checked(time_unit=one_of("seconds", "minutes", "hours", "days")),
    notes=(
        "Records have no clock; time/total adds up over all attempts. Saves are not printed at log level "
        "INFO, so what they took is in the step time, and no checkpoint is known."
    ),
)
