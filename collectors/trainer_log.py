"""Progress files of the Hugging Face family: LlamaFactory's trainer_log.jsonl, ms-swift's logging.jsonl.

Pure. One JSON object a log interval, with steps done and the time since this process began to train, in whole
seconds. Traps: no moment stands in them; a resume appends, and its time begins anew, so when time or steps
go back another process wrote; a killed one leaves a torn object, and the next writes on behind it; throughput
is the tokens of all attempts by the time of this one; an evaluation and the end are objects too; ms-swift
writes `1h 54m 53s` and, since transformers 5, numbers as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._numbers import count, number
from collectors._process import INCLUDES, NAN, completed, ends, launched, process, progress, settings
from collectors._swift import Match, Memory, Swift, Taken
from tracker.core.records import LARGEST, Kind, Reading, Record
from tracker.interfaces import Collector, Evidence

_LOSSES: Final = ("loss", "reward", "lr", "learning_rate")
_SLACK_S: Final = 3


def _llamafactory(hit: Hit) -> Iterator[Record]:
    for body in _bodies(hit):
        if body is None:
            yield hit.reject("torn JSON line")
            continue
        step, total = body.get("current_steps"), body.get("total_steps")
        yield from _record(hit, body, "LlamaFactory", step, total, _clock_s(body.get("elapsed_time")))


def _swift(hit: Hit) -> Iterator[Record]:
    for body in _bodies(hit):
        if body is None:
            yield hit.reject("torn JSON line")
            continue
        step, _, total = str(body.get("global_step/max_steps")).partition("/")
        yield from _record(hit, body, "ms-swift", step, total, _words_s(body.get("elapsed_time")))


def _bodies(hit: Hit) -> Iterator[dict[str, Any] | None]:
    """Yield the object of a line; of a torn one with the next process's behind it None, and that."""
    body = _json(hit.text)
    yield body
    behind = hit.text.rfind(b'{"') if body is None else -1
    if behind > 0 and (body := _json(hit.text[behind:])) is not None:
        yield body


def _json(text: bytes) -> dict[str, Any] | None:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _record(
    hit: Hit, body: Mapping[str, Any], framework: str, step: object, total: object, elapsed: int | None
) -> Iterator[Record]:
    """An object of training has a loss or a learning rate; one of neither, with an epoch, is the last one."""
    done, target = count(step), count(total)
    if done is None or elapsed is None or done >= LARGEST:
        yield hit.reject("no step or time in it")
        return
    if "epoch" not in body and not any(name in body for name in _LOSSES):
        return  # prediction counts batches under the same names
    before: list[int] | None = process(hit).get("before")
    if before is None or elapsed < before[1] - _SLACK_S or done < before[0]:
        yield from _began(hit, framework, first=before is None)
        before = process(hit).get("before")
    yield from settings(hit, {"target_steps": target})
    if any(name in body for name in _LOSSES):
        yield from _trained(hit, body, done, elapsed, before)
    elif any(name.startswith("eval_") for name in body):
        yield from _evaluated(hit, body, done)
    elif not any("predict" in name for name in body):
        yield from completed(hit)
    process(hit)["before"] = [done, elapsed]


def _began(hit: Hit, framework: str, *, first: bool) -> Iterator[Record]:
    """A process begins: at the head of a file from nothing, else from a checkpoint that is not told."""
    hit.state["process"] = {}
    yield from launched(hit, "file", framework)
    if first and hit.offset == 0:
        process(hit)["before"] = [0, 0]


def _trained(
    hit: Hit, body: Mapping[str, Any], done: int, elapsed: int, before: list[int] | None
) -> Iterator[Record]:
    loss = body.get("loss")
    nan = loss is not None and number(loss) is None
    tokens = count(body.get("total_tokens", body.get("num_input_tokens_seen")))
    reading = _reading(hit.offset, done, elapsed, before, tokens, nan)
    yield from progress(hit, reading._replace(at_us=hit.stamp_us()))


def _reading(
    offset: int, done: int, elapsed: int, before: list[int] | None, tokens: int | None, nan: bool
) -> Reading:
    """What passed since the object before holds evaluation and saves."""
    steps, length_s = (done - before[0], elapsed - before[1]) if before is not None else (0, 0)
    step_time_us = round(length_s * 1e6 / steps) or None if steps > 0 and length_s > 0 else None
    flags = (INCLUDES if step_time_us else 0) | (NAN if nan else 0)
    return Reading(offset, None, done, step_time_us, tokens=tokens, flags=flags)


def _taken(match: Match, _: int | None, offset: int, one: Memory) -> Taken | None:
    """The same of LlamaFactory's usual object."""
    done, total, days, hours, minutes, seconds, tokens = match.groups()
    before, step = one.get("before"), int(done)
    elapsed = int(days or 0) * 86_400 + int(hours) * 3_600 + int(minutes) * 60 + int(seconds)
    if before is None or step < before[0] or elapsed < before[1]:
        return None
    if one.get("settings", {}).get("target_steps") != int(total):
        return None
    counted = None if tokens is None else int(tokens)
    return _reading(offset, step, elapsed, before, counted, False), {"before": [step, elapsed]}


_SWIFT: Final = Swift(
    b'"current_steps": ',
    rb"",
    rb'\{"current_steps": (\d{1,15}), "total_steps": (\d{1,15}), "loss": [-\d.e+]{1,24}, '
    rb'"lr": [-\d.e+]{1,24}, '
    rb'"epoch": [\d.e-]{1,24}, "percentage": [\d.]{1,8}, "elapsed_time": "(?:(\d{1,5}) days?, )?(\d{1,3}):'
    rb'(\d\d):(\d\d)", "remaining_time": "[^"\n]{1,40}"'
    rb'(?:, "throughput": [\d.]{1,24}, "total_tokens": (\d{1,18}))?\}\n',
    _taken,
)


def _evaluated(hit: Hit, body: Mapping[str, Any], done: int) -> Iterator[Record]:
    length = next((number(body[name]) for name in body if name.endswith("_runtime")), None)
    length_us = round(length * 1e6) if length is not None and 0 <= length < 1e9 else None
    yield from ends(hit, Kind.EVAL_END, done, duration_us=length_us, alone=True)


def _clock_s(value: object) -> int | None:
    """Return `1 day, 2:03:04` in seconds; None where it is none.

    >>> _clock_s("0:00:44"), _clock_s("1 day, 2:03:04"), _clock_s("soon")
    (44, 93784, None)
    """
    found = _CLOCK.fullmatch(str(value))
    if found is None:
        return None
    return int(found[1] or 0) * 86_400 + int(found[2]) * 3_600 + int(found[3]) * 60 + int(found[4])


_CLOCK: Final = re.compile(r"(?:(\d{1,5}) days?, )?(\d{1,3}):(\d\d):(\d\d)")
_WORD: Final = re.compile(r"(\d{1,6})([dhms])")
_UNITS_S: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def _words_s(value: object) -> int | None:
    """Return `1d 2h 3m 4s` in seconds; None where it is none.

    >>> _words_s("1h 54m 53s"), _words_s(44)
    (6893, None)
    """
    found = [_WORD.fullmatch(word) for word in str(value).split()]
    if not found or None in found:
        return None
    return sum(int(one[1]) * _UNITS_S[one[2]] for one in found if one is not None)


READER: Final = Reader(
    (
        rule(b'"current_steps": ', rb'"current_steps": \d', _llamafactory),
        rule(b'"global_step/max_steps": "', rb'"global_step/max_steps": "\d', _swift),
        *EVENTS,
    ),
    followers=FOLLOWERS,
    hot=_SWIFT,
)


def detect(head: bytes) -> Evidence | None:
    """Find the names of steps done and to do, in JSON."""
    if re.search(rb'(?m)^\{"current_steps": \d{1,15}, "total_steps": \d', head):
        return Evidence(score=97, text="JSON lines with current_steps and total_steps (LlamaFactory)")
    if re.search(rb'(?m)^\{"[^\n]{0,4000}"global_step/max_steps": "\d', head):
        return Evidence(score=97, text="JSON lines with global_step/max_steps (ms-swift)")
    return None


COLLECTOR: Final = Collector(
    name="trainer_log",
    framework="LlamaFactory trainer_log.jsonl, ms-swift logging.jsonl (2024 to 2026)",
    version=1,
    parse=READER.parse,
    detect=detect,
    knows=(
        "step",
        "step time",
        "tokens with include_num_input_tokens_seen",
        "restarts",
        "evaluation",
        "completion",
    ),
    needs=(
        "hardware.gpus",
        "model.global_batch_size and model.sequence_length where tokens are not counted",
        "source.started_at where no scheduler tells when it ran",
    ),
    notes=(
        "Whole seconds since training began, no moment. Give either this file or the console of a run, not "
        "both. Where a process went on from is not told: its first steps have no time."
    ),
)
