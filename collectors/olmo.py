"""OLMo logs (2023-25): `[step=2/739328,epoch=0]`, then a metric a line: `    throughput/total_tokens=4,194`.

Pure. A record is known when its rates have come; or its tokens, where the process has printed no rates yet or
their window is empty: after the first step, a save or an evaluation. Traps: the rates are means over a
rolling window, so windows are taken from stamps; "Training complete" is printed after a cancelled run too;
the checkpoint that is saved and loaded before training proves the disk, not progress.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._process import (
    NAN,
    SAMPLE,
    begins,
    completed,
    done,
    ends,
    exits,
    launched,
    process,
    progress,
    resolution,
    resumed,
    settings,
    sign,
)
from collectors._swift import AT, Match, Memory, Sheaf, Taken
from collectors._text import real, whole
from collectors._trouble import trouble
from tracker.core.records import Kind, Reading, Record
from tracker.interfaces import Collector, Evidence

_NAME: Final = "OLMo"
_RECORD: Final = "record"


def _header(hit: Hit) -> Iterator[Record]:
    """Open a record; other ranks may print its header too. One before it that is still open is done."""
    step, one = hit.count("step"), process(hit)
    record: dict[str, Any] | None = one.get(_RECORD)
    if step is None or (record is not None and record["step"] == step):
        return
    yield from _closed(hit)
    at_us = hit.stamp_us()
    if at_us is None:  # rich prints a time when it changes
        clock = hit.state.get("clock")
        at_us = clock if isinstance(clock, int) else None
    process(hit)[_RECORD] = {"step": step, "at": at_us, "flags": resolution(at_us)}
    yield from settings(hit, {"target_steps": hit.count("total")}, at_us=at_us)


def _closed(hit: Hit, step_time_us: int | None = None) -> Iterator[Record]:
    """Yield the reading of the open record, at the line that completes it."""
    one = process(hit)
    record: dict[str, Any] | None = one.pop(_RECORD, None)
    if record is None:
        return
    reading, memory = _reading(record, step_time_us, hit.offset, one)
    one.update(memory)
    yield from progress(hit, reading)


def _reading(
    record: dict[str, Any], step_time_us: int | None, offset: int, one: Memory
) -> tuple[Reading, Memory]:
    return Reading(
        offset,
        record["at"],
        record["step"],
        step_time_us,
        tokens=record.get("tokens"),
        flags=record["flags"] | (SAMPLE if step_time_us else 0),
    ), {"gap": record["step"] - (one.get("step") or 0), "empty": False}


def _tokens(hit: Hit) -> Iterator[Record]:
    """All tokens of all attempts, exactly. No record, maybe the last, waits for rates that may never come."""
    one = process(hit)
    record: dict[str, Any] | None = one.get(_RECORD)
    if record is None:
        return
    record["tokens"] = hit.count(1)
    if one.get("empty", True) or not one.get("rated"):
        yield from _closed(hit)


def _rate(hit: Hit) -> Iterator[Record]:
    process(hit)["rated"] = True
    return _closed(hit, _time_us(hit.group(1)))


def _time_us(printed: bytes | None) -> int | None:
    rate = real(printed)
    return round(1e6 / rate) if rate and rate > 1e-9 else None


def _loss(hit: Hit) -> Iterator[Record]:
    record: dict[str, Any] | None = process(hit).get(_RECORD)
    if record is not None and real(hit.group(1)) is None:
        record["flags"] |= NAN
    return iter(())


def _taken(found: Match, at_us: int | None, offset: int, one: Memory) -> Taken | None:
    step, target, _, loss, _, tokens, _, rate = found.groups()
    known = one.get("settings", {}).get("target_steps")
    if one.get(_RECORD) is not None or one.get("empty", True) or known != int(target):
        return None
    if not one.get("rated"):
        return None
    flags = resolution(at_us) | (NAN if real(loss) is None else 0)
    record = {"step": int(step), "at": at_us, "flags": flags, "tokens": whole(tokens)}
    return _reading(record, _time_us(rate), offset, one)


_METRICS: Final = (
    rb"(?: {4}(?!train/Cross|throughput/(?:total_tokens|device/batches))"
    rb"[^\n\r=]{1,80}=[!-~]{1,24}\n){0,40}"
)
_SHEAF: Final = Sheaf(
    AT + rb"\t[\w.-]{1,60}:\d{1,7}\t(?:olmo\.)?train:\d{1,6}\tINFO\t",
    _METRICS.join((
        rb"\[step=(\d{1,18})/(\d{1,18})(?:,epoch=\d{1,9})?\]\n",
        rb"() {4}train/CrossEntropyLoss=([!-~]{1,24})\n",
        rb"() {4}throughput/total_tokens=([\d,]{1,24})\n",
        rb"() {4}throughput/device/batches_per_second=([\d.,e-]{1,24})\n",
    )),
    _taken,
    metrics=(3, 5, 7),
    closing=7,
)


# -- start -----------------------------------------------------------------------------------------------


def _launched(hit: Hit) -> Iterator[Record]:
    yield from _closed(hit)
    yield from launched(hit, "cli", _NAME)


_COUNTS: Final = {
    b"max_sequence_length": "sequence_length",
    b"d_model": "hidden_size",
    b"n_layers": "layers",
    b"n_heads": "heads",
    b"vocab_size": "vocab_size",
    b"global_train_batch_size": "global_batch_size",
    b"device_train_microbatch_size": "micro_batch_size",
    b"save_interval": "save_interval",
    b"eval_interval": "eval_interval",
    b"console_log_interval": "log_interval",
}
_FIELD: Final = re.compile(
    rb"\b(max_sequence_length|d_model|n_layers|n_heads|vocab_size|global_train_batch_size"
    rb"|device_train_microbatch_size|save_interval|eval_interval|console_log_interval"
    rb"|device_train_batch_size)=(\d{1,15})\b"
)
_WORD: Final = re.compile(rb"\b(precision|activation_checkpointing)=['<]?(?:\w{1,40}\.)?([\w.]{1,40})")


def _config(hit: Hit) -> Iterator[Record]:
    """The configuration as one line; the batch of a device is the whole batch by the world size."""
    found: dict[bytes, int] = {}
    for name, value in _FIELD.findall(hit.text):
        found.setdefault(name, int(value))
    words = dict(_WORD.findall(hit.text))
    device, batch = found.get(b"device_train_batch_size"), found.get(b"global_train_batch_size")
    length = found.get(b"max_sequence_length")
    precision = words.get(b"precision", b"").decode().removeprefix("amp_")
    recompute = words.get(b"activation_checkpointing", b"").decode()
    yield from settings(
        hit,
        {
            **{_COUNTS[name]: value for name, value in found.items() if name in _COUNTS},
            "gpus": batch // device if batch and device else None,
            "tokens_per_step": batch * length if batch and length else None,
            "precision": precision or None,
            "recompute": {"": None, "None": "none"}.get(recompute, recompute),
        },
    )


def _loads(hit: Hit) -> Iterator[Record]:
    return resumed(hit, hit.count(1))


def _proved(hit: Hit) -> Iterator[Record]:
    """Only a run that starts from nothing loads what it has just saved."""
    return resumed(hit, 0)


# -- saves, evaluation, ends -----------------------------------------------------------------------------


def _saves(hit: Hit) -> Iterator[Record]:
    yield from _closed(hit)
    yield from begins(hit, Kind.SAVE_START, done(hit))


def _saved(hit: Hit) -> Iterator[Record]:
    process(hit)["empty"] = True
    step = hit.count(1) if hit.group(1) else None
    return ends(hit, Kind.SAVE_END, step)


def _evaluates(hit: Hit) -> Iterator[Record]:
    yield from _closed(hit)
    process(hit)["empty"] = True
    yield from begins(hit, Kind.EVAL_START, done(hit))


def _cancelled(hit: Hit) -> Iterator[Record]:
    yield from _closed(hit)
    why = hit.word("why") or ""
    if "time limit" in why:
        yield from exits(hit, "time_limit")
    elif "loss" in why:
        yield from exits(hit, "failed", "divergence")
    else:
        yield from exits(hit, "operator")


def _complete(hit: Hit) -> Iterator[Record]:
    """Training is complete where all steps are done; else it was cancelled, or told to stop here."""
    yield from _closed(hit)
    one = process(hit)
    target, last = one.get("settings", {}).get("target_steps"), done(hit)
    if "leaving" in one:
        return
    if target is None or last is None or last + one.get("gap", 1) > target:
        yield from completed(hit)
    else:
        yield from exits(hit, "operator")


_INFO: Final = rb"(?:INFO|\])\s{1,8}"
_READER: Final = Reader(
    (
        rule(b"[step=", rb"\[step=(?P<step>\d{1,18})/(?P<total>\d{1,18})(?:,epoch=\d{1,9})?\]", _header),
        rule(b"throughput/total_tokens=", rb"^ {4}throughput/total_tokens=([\d,]{1,24})$", _tokens),
        rule(b"batches_per_second=", rb"^ {4}throughput/device/batches_per_second=([\d.,e-]{1,24})$", _rate),
        rule(b"train/CrossEntropyLoss=", rb"^ {4}train/CrossEntropyLoss=(\S{1,24})$", _loss),
        rule(b"CLI environment prepared", rb"CLI environment prepared", _launched),
        rule(b"TrainConfig(", rb"\bTrainConfig\(", _config),
        rule(
            b"Total number of param",
            rb"Total number of parameters: ([\d,]{1,24})$",
            lambda hit: settings(hit, {"parameters": hit.count(1)}),
        ),
        rule(b"Building model...", rb"Building model\.\.\.$", sign),
        rule(
            b"Loading checkpoint from",
            rb"Loading checkpoint from \S{0,400}?(?:step(\d{1,18})\S{0,40}?)?\.\.\.$",
            _loads,
        ),
        rule(b"load pre-train checkpoint", rb"Attempting to load pre-train checkpoint", _proved),
        rule(
            b"Starting training...",
            rb"Starting training\.\.\.$",
            lambda hit: iter((hit.event(Kind.TRAIN_START),)),
        ),
        rule(b"Saving ", rb"Saving (?:final |ephemeral |unsharded |model ){0,4}checkpoint\.\.\.$", _saves),
        rule(
            b"heckpoint saved to",
            rb"[Cc]heckpoint saved to \S{0,400}?(?:step(\d{1,18})(?:-unsharded)?)?/?$",
            _saved,
        ),
        rule(b"Running evaluation for", rb"Running evaluation for '", _evaluates),
        rule(
            b"Run canceled",
            rb"Run canceled(?: due to (?P<why>[^,]{1,100}))?(?:, stopping in \d{1,9} more steps\.\.\.)?$",
            _cancelled,
        ),
        rule(b"Training complete", rb"Training complete$", _complete),
        trouble(b" loss encountered", rb"\b(?:nan|inf) loss encountered", "divergence", 0.7, fatal=True),
        *EVENTS,
    ),
    followers=FOLLOWERS,
    hot=_SHEAF,
)

_LINE: Final = re.compile(
    rb"\[step=\d{1,18}/\d{1,18}(?:,epoch=\d{1,9})?\]\r?\n"
    rb" {4}(?:train/CrossEntropyLoss|throughput/total_tokens)="
)
_LOGGER: Final = re.compile(rb"\bolmo\.train:\d{1,6}\b|\ttrain:\d{1,6}\tINFO\tCLI environment prepared")


def detect(head: bytes) -> Evidence | None:
    """Find a record, or its logger's name."""
    if found := _LINE.search(head):
        return Evidence(score=96, text=found[0].decode("ascii", "replace").replace("\n", " "))
    if found := _LOGGER.search(head):
        return Evidence(score=95, text=found[0].decode("ascii", "replace").strip())
    return None


COLLECTOR: Final = Collector(
    name="olmo",
    framework="OLMo v0.1 to v0.6 (2023-25)",
    version=1,
    parse=_READER.parse,
    detect=detect,
    knows=(
        "tokens",
        "time",
        "step time",
        "gpus",
        "parameters",
        "resume",
        "saves",
        "evaluation",
        "completion",
    ),
    needs=("hardware.gpus where the configuration is not in the log",),
    notes=(
        "Tokens are the log's own, exact and over all attempts. Step time is a mean over a rolling window, "
        "for charts only."
    ),
)
