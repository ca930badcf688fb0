"""torchtune consoles and DiskLogger files: `1|250|Loss: 1.2:  12%|##| 250/2000 [10:02<`, `Step 250 | loss:`.

Pure. The bar has epoch, global step and loss in its name, and a clock of its own that begins anew with each
epoch, so a save between two epochs is in none (`_bars`). Traps: nothing has a stamp, but the name of a
DiskLogger file has the second in which it was opened; tokens per second are of one GPU, of the last step, of
labels that count; a checkpoint is written only after an epoch, so a resume goes back to one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from collectors._bars import STATE, advances, due, full, in_epochs, told
from collectors._bars import begins as draws
from collectors._events import EVENTS
from collectors._events import FOLLOWERS as EVENT_FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._numbers import count
from collectors._own import first_sign
from collectors._process import (
    NAN,
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
from collectors._text import real, seconds_us
from tracker.core.records import EARLIEST_US, LATEST_US, Json, Kind, Reading, Record
from tracker.interfaces import Collector, Evidence

_NAME: Final = "torchtune"
_CONFIG: Final = "config"
_CONFIG_LINES: Final = 400


def _bar(hit: Hit) -> Iterator[Record]:
    """Epochs draw a bar each: their times are added up."""
    step, epoch, s = hit.count("step"), hit.count("epoch"), elapsed_s(hit.group("elapsed") or b"0")
    if step is None or epoch is None:
        return
    new = yield from advances(hit, _NAME, step, lambda: in_epochs(hit, epoch, s))
    nan = real(hit.group("loss")) is None
    if new and (nan or full(hit) or due(hit)):
        yield from told(hit, flags=NAN if nan else 0)


def _zero(hit: Hit) -> Iterator[Record]:
    """A bar as it is first drawn, without a name."""
    yield from draws(hit, _NAME)


def _line(hit: Hit) -> Iterator[Record]:
    """A metric logger's line: of the bar's step, or alone in a file of its own."""
    step, pairs = hit.count("step"), hit.group("pairs") or b""
    found = dict(pair.partition(b":")[::2] for pair in pairs.split())
    if step is None or (b"loss" not in found and b"val_loss" not in found):
        yield hit.reject("torn step line")
        return
    yield from _opened(hit)
    if b"val_loss" in found:
        yield from ends(hit, Kind.EVAL_END, step, alone=True)
        return
    flags = NAN if real(found[b"loss"]) is None else 0
    last: Any = process(hit).get("bar", {}).get("last")
    if last is None:
        yield from progress(hit, Reading(hit.offset, hit.stamp_us(), step, flags=flags))
    elif last[0] == step:
        yield from told(hit, flags=flags)


_OPENED: Final = re.compile(r"log_(\d{9,10})\.txt")


def _opened(hit: Hit) -> Iterator[Record]:
    """`log_<unix time>.txt`: a process opened it then."""
    found = _OPENED.fullmatch(hit.context.file_name)
    if found is not None and not process(hit).get("marks"):
        at_us = int(found[1]) * 1_000_000
        if EARLIEST_US <= at_us < LATEST_US:
            yield from launched(hit, "file", _NAME, at_us=at_us)


# -- the configuration -------------------------------------------------------------------------------------

_FIELD: Final = re.compile(rb"^\s{0,12}([a-z_]{1,60}): (\S{1,60})$")
_LOG_LINE: Final = re.compile(rb"^(?:DEBUG|INFO|WARNING|ERROR):")
_COUNTS: Final = {"batch_size": "micro_batch_size", "log_every_n_steps": "log_interval"}


def _configured(hit: Hit) -> Iterator[Record]:
    yield from launched(hit, "config", _NAME)
    hit.open(_CONFIG, _CONFIG_LINES)
    process(hit)[_CONFIG] = {}


def _field(hit: Hit) -> Iterator[Record]:
    """YAML, until the logger goes on. Sequences have a length where they are packed."""
    if _LOG_LINE.match(hit.text):
        hit.close(_CONFIG)
        process(hit).pop(_CONFIG, None)
        return
    found = _FIELD.match(hit.text)
    if found is None:
        return
    name, value = found[1].decode(), found[2].decode("utf-8", "replace")
    seen: dict[str, str] = process(hit).setdefault(_CONFIG, {})
    data: dict[str, Json] = {}
    if name in _COUNTS and not hit.text.startswith(b" "):
        data[_COUNTS[name]] = count(value) or None
    elif name == "dtype":
        data["precision"] = value[:20]
    elif name == "enable_activation_checkpointing":
        data["recompute"] = "full" if value.lower() == "true" else "none"
    elif name in ("max_seq_len", "packed"):
        seen[name] = value[:20]
        if seen.get("packed", "").lower() == "true":
            data["sequence_length"] = count(seen.get("max_seq_len")) or None
    yield from settings(hit, data)


# -- saves and evaluation ----------------------------------------------------------------------------------


def _saves(hit: Hit) -> Iterator[Record]:
    yield from begins(hit, Kind.SAVE_START, done(hit))


def _saved(hit: Hit) -> Iterator[Record]:
    length, background = seconds_us(hit.group("s")), hit.group("background") is not None
    yield from ends(hit, Kind.SAVE_END, duration_us=length, background=background)


def _validated(hit: Hit) -> Iterator[Record]:
    yield from ends(hit, Kind.EVAL_END, done(hit), alone=True)


READER: Final = Reader(
    (
        rule(
            b"|Loss: ",
            rb"(?P<epoch>\d{1,6})\|(?P<step>\d{1,15})\|Loss: (?P<loss>[^:\s|]{1,30}): {1,4}"
            rb"\d{1,3}%\|[^|\n]{0,2000}\| " + STATE,
            _bar,
        ),
        rule(b"  0%|", rb"^ {2}0%\|[^|\n]{0,2000}\| 0/\d{1,12} \[00:00<\?, ", _zero),
        rule(b"Step ", rb"^Step (?P<step>\d{1,15}) \| (?P<pairs>\w{1,40}:\S.{0,1000})$", _line),
        rule(b"with resolved config", rb"Running \w{1,80} with resolved config:", _configured),
        rule(b"Saving checkpoint", rb"Saving checkpoint(?:\.| asynchronously\.) ", _saves),
        rule(
            b" checkpoint took ",
            rb"Saving (?P<background>asynchronous )?checkpoint took (?P<s>[\d.]{1,12}) secs",
            _saved,
        ),
        rule(b"final epoch checkp", rb"Saving final epoch checkpoint\.", completed),
        rule(b"Validation loss: ", rb"Validation loss: \S{1,24}$", _validated),
        *EVENTS,
    ),
    followers={_CONFIG: _field, **EVENT_FOLLOWERS},
)

_OWN: Final = (
    (
        97,
        rb"torchtune[\w.]{0,40}:Running \w{1,80} with resolved config:",
        "`Running ... with resolved config`",
    ),
    (96, rb"\d\|\d{1,15}\|Loss: [^:\s|]{1,30}: +\d{1,3}%\|", "bars named by epoch, step and loss"),
    (90, rb"(?m)^Step \d{1,15} \| loss:\S{1,30} (?:lr|tokens_per_second_per_gpu):", "`Step N | loss:`"),
)


def detect(head: bytes) -> Evidence | None:
    """Find its configuration banner, its bar, or its metric lines."""
    return first_sign(head, _OWN)


COLLECTOR: Final = Collector(
    name="torchtune",
    framework="torchtune 0.1 to 0.6: consoles, StdoutLogger, DiskLogger",
    version=1,
    parse=READER.parse,
    detect=detect,
    knows=(
        "step",
        "step time from the progress bar",
        "micro batch",
        "sequence length of packed data",
        "saves",
        "evaluation",
        "completion",
        "start of a DiskLogger file",
    ),
    needs=(
        "hardware.gpus",
        "model.global_batch_size (batch_size x accumulation x GPUs), or tokens_per_step",
        "source.started_at where no scheduler tells when it ran",
    ),
    notes=(
        "Give the console, not log_<time>.txt: DiskLogger lines have no time. tokens_per_second_per_gpu "
        "counts labels of the last step on one GPU and is not used."
    ),
)
