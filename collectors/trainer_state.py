"""trainer_state.json of the Hugging Face Trainer: what a checkpoint, or the end of a run, remembers.

Pure. A document: the last one has the whole history. Traps: no time stands in it, but the seconds of the last
attempt in the record `train_runtime`; steps that a resume threw away are gone from it, for the history is
restored with the checkpoint; train_batch_size is of one device; logging_steps may be a share of the run;
records of prediction have no step; total_flos counts 6N of parameters without embeddings, over all attempts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from collectors._numbers import count, number
from collectors._process import NAN, ROUNDED
from tracker.core.records import Event, Json, Kind, Reading, Record, Reject, evidence, problem
from tracker.interfaces import Collector, Context, Evidence

_COUNTS: Final = {
    "max_steps": "target_steps",
    "train_batch_size": "micro_batch_size",
    "logging_steps": "log_interval",
    "save_steps": "save_interval",
    "eval_steps": "eval_interval",
}
_TOKENS: Final = ("num_input_tokens_seen", "num_tokens", "tokens/total")
_STEP: Final = re.compile(rb'"step" *:')
_SHOWN: Final = 200


def parse(block: bytes, context: Context) -> Iterator[Record]:
    """Yield the readings of a state's history, and what it says of the run."""
    try:
        body = json.loads(block)
    except (ValueError, RecursionError):
        if block.strip():
            yield Reject(context.offset, block[:_SHOWN], "no whole JSON object")
        return
    history = body.get("log_history") if isinstance(body, dict) else None
    if not isinstance(history, list):
        yield Reject(context.offset, block[:_SHOWN], "no trainer state")
        return
    yield from _settings(body, context.offset)
    last = -1
    places = (context.offset + found.start() for found in _STEP.finditer(block))
    for entry in history:
        if isinstance(entry, dict) and "step" in entry:
            offset = next(places, context.offset + len(block))
            for record in _entry(entry, offset, last):
                last = record.step if isinstance(record, Reading) else last
                yield record
    yield from _end(body, last, context.offset + len(block))


def _settings(body: Mapping[str, Any], offset: int) -> Iterator[Record]:
    """State the operating point; shares of a run (0.05) and 0 are no counts."""
    found: dict[str, Json] = {"framework": "Hugging Face Trainer"}
    for name, ours in _COUNTS.items():
        value = count(body.get(name))
        if value and value < 2**62:
            found[ours] = value
    yield Event(offset=offset, kind=Kind.SETTING, data=found)


def _entry(entry: Mapping[str, Any], offset: int, last: int) -> Iterator[Record]:
    """One record of the history, by its kind: evaluation, the end, or training."""
    text = evidence(json.dumps(entry, default=str))
    step = count(entry["step"])
    if step is None or step >= 2**62:
        yield Reject(offset, text.encode()[:_SHOWN], "step is not a whole number")
    elif "train_runtime" in entry:
        yield Event(offset=offset, kind=Kind.COMPLETED, step=step, text=text)
    elif "loss" not in entry and (names := [name for name in entry if str(name).startswith("eval_")]):
        lengths = (number(entry[name]) for name in names if name.endswith("_runtime"))
        length = next((one for one in lengths if one is not None and 0 <= one < 1e9), None)
        length_us = None if length is None else round(length * 1e6)
        yield Event(offset=offset, kind=Kind.EVAL_END, step=step, duration_us=length_us, text=text)
    elif step > last:
        yield from _reading(entry, step, offset, text)


def _reading(entry: Mapping[str, Any], step: int, offset: int, text: str) -> Iterator[Record]:
    loss = entry.get("loss")
    stated = next((entry[name] for name in _TOKENS if name in entry), None)
    tokens = count(stated)
    flags = NAN if loss is not None and number(loss) is None else 0
    flags |= ROUNDED if tokens is not None and isinstance(stated, str) and "e" in stated else 0
    reading = Reading(offset, None, step, tokens=tokens, flags=flags)
    wrong = problem(reading)
    yield Reject(offset, text.encode()[:_SHOWN], wrong) if wrong is not None else reading


def _end(body: Mapping[str, Any], last: int, offset: int) -> Iterator[Record]:
    """A checkpoint may be younger than the last record: it holds that many steps, and tokens."""
    step = count(body.get("global_step"))
    if step is None or step <= last or step >= 2**62:
        return
    tokens = count(body.get("num_input_tokens_seen")) or None
    reading = Reading(offset, None, step, tokens=tokens)
    if problem(reading) is None:
        yield reading


_OPENING: Final = re.compile(rb'\s{0,80}\{\s{0,8}\n\s{0,80}"')
"""It is written indented; an object on one line is of another file."""


def detect(head: bytes) -> Evidence | None:
    """Find the names that only this document has; its beginning is enough."""
    if _OPENING.match(head) is None or b'"global_step":' not in head:
        return None
    if b'"log_history":' in head or b'"is_hyper_param_search":' in head:
        return Evidence(score=97, text="a JSON object with global_step and log_history")
    return None


COLLECTOR: Final = Collector(
    name="trainer_state",
    framework="Hugging Face trainer_state.json (transformers 3 to 5)",
    version=1,
    parse=parse,
    detect=detect,
    kind="document",
    knows=(
        "step",
        "tokens with include_num_input_tokens_seen",
        "micro batch",
        "intervals",
        "evaluation",
        "completion",
    ),
    needs=(
        "the console or trainer_log.jsonl for any time: there is none in it",
        "hardware.gpus",
        "model.global_batch_size and model.sequence_length where tokens are not counted",
    ),
    notes=(
        "Name the newest one only, not every checkpoint's, and not beside the console of the same run. Steps "
        "that a restart threw away are not in it."
    ),
)
