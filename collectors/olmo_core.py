"""OLMo-core logs: `[step=10/7000,epoch=1,eta=1h]`, then a metric a line: `    throughput/device/TPS=12,345`.

Pure. Traps: metrics come late and in bursts (a header a step, all at one moment), so of a burst only its last
step is a reading; from 1e9 on tokens are printed with four digits, and steps x tokens per step replace them;
`TPS` is of one device, of the last step, evaluation included, so windows are taken from stamps; "Training
complete" follows a cancelled run too; rich leaves a time out where it did not change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import prod
from typing import Any, Final

from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Make, Reader, rule
from collectors._process import (
    NAN,
    ROUNDED,
    SAMPLE,
    begins,
    completed,
    done,
    durable,
    ends,
    exits,
    launched,
    process,
    progress,
    resolution,
    resumed,
    setting,
    settings,
    sign,
)
from collectors._swift import AT, Match, Memory, Sheaf, Taken
from collectors._text import real, scaled, seconds_us
from collectors._trouble import Trouble, failure, trouble
from tracker.core.records import Json, Kind, Reading, Record
from tracker.interfaces import Collector, Evidence

_NAME: Final = "OLMo-core"
_BURST_US: Final = 200_000
_CONVENTION: Final = "model FLOP, recompute not counted, active experts"


# -- records ---------------------------------------------------------------------------------------------


def _header(hit: Hit) -> Iterator[Record]:
    """Open a record. One that is still open is done, unless it belongs to the same burst."""
    step, one = hit.count("step"), process(hit)
    at_us = hit.stamp_us()
    if at_us is None:
        clock = hit.state.get("clock")
        at_us = clock if isinstance(clock, int) else None
    record: dict[str, Any] | None = one.get("record")
    if step is None or (record is not None and record["step"] == step):
        return
    skipped = 0
    if record is not None:
        if _one_burst(record["at"], at_us):
            skipped = _skipped(record)
        else:
            yield from _closed(hit)
    if hit.count("total"):
        yield from settings(hit, {"target_steps": hit.count("total")}, at_us=at_us)
    process(hit)["record"] = {"step": step, "at": at_us, "flags": resolution(at_us), "skipped": skipped}
    if not hit.group("eta"):  # a bare header, in time and without metrics
        yield from _closed(hit)


def _one_burst(before_us: int | None, at_us: int | None) -> bool:
    return before_us is not None and at_us is not None and abs(at_us - before_us) <= _BURST_US


def _metric(hit: Hit) -> Iterator[Record]:
    """Keep a metric of the open record; the reading comes with the last metric that it needs.

    The last record of a burst is known by the longest burst before; else the next burst's header tells.
    """
    one = process(hit)
    record: dict[str, Any] | None = one.get("record")
    if record is None:
        return
    record[hit.word("name") or ""] = hit.word("value")
    if _is_last(record, one):
        yield from _closed(hit)


def _is_last(record: dict[str, Any], one: Memory) -> bool:
    longest = one.get("longest")
    if longest is None or "total tokens" not in record or "device/BPS" not in record:
        return False
    base = one["base"] if _one_burst(one["burst at"], record["at"]) else one["last"]
    return bool(record["step"] - base >= longest)


def _closed(hit: Hit) -> Iterator[Record]:
    """Yield the reading of the open record, at the line that completes it."""
    one = process(hit)
    record: dict[str, Any] | None = one.pop("record", None)
    if record is None:
        return
    reading = _reading(record, hit.offset, one)
    if reading.reported_flop_per_s is not None:
        convention = one.get("settings", {}).get("reported_convention", _CONVENTION)
        yield from settings(hit, {"reported_convention": convention}, at_us=reading.at_us)
    yield from progress(hit, reading)


def _reading(record: dict[str, Any], offset: int, one: Memory) -> Reading:
    """Return the reading of a record; how long bursts are, and a step's tokens, are remembered."""
    step, at_us, flags = record["step"], record["at"], record["flags"]
    if "last" in one:
        if not _one_burst(one["burst at"], at_us):
            one["base"] = one["last"]
        one["longest"] = max(step - one["base"], one.get("longest", 1))
        one["gap"] = max(step - one["last"], 1)
    one["last"], one["burst at"] = step, at_us
    one.setdefault("base", step)
    rate = real(str(record.get("device/BPS", "")).encode())
    tokens, rounded = scaled(str(record.get("total tokens", "")).encode()) or (None, False)
    flop = scaled(str(record.get("device/flopsPS", "")).encode())
    flags |= ROUNDED if rounded else 0
    flags |= SAMPLE if rate else 0
    flags |= NAN if real(str(record.get("CE loss", "0")).encode()) is None else 0
    if tokens is not None and not rounded:
        _learn(one, step, tokens)
    return Reading(
        offset,
        at_us,
        step,
        round(1e6 / rate) if rate and rate > 1e-9 else None,
        tokens=tokens,
        skipped=_skipped(record),
        flags=flags,
        reported_flop_per_s=float(flop[0]) if flop else None,
        tokens_per_step=one.get("settings", {}).get("tokens_per_step"),
    )


def _skipped(record: dict[str, Any]) -> int:
    """Return the updates that were dropped in this step and in those of its burst before it."""
    now = real(str(record.get("step skipped", "0")).encode()) or 0.0
    return int(record["skipped"]) + (now > 0)


def _learn(one: Memory, step: int, tokens: int) -> None:
    """Take the tokens of a step from two exact odometers: they are needed once print rounds them."""
    before, one["exact"] = one.get("exact"), [step, tokens]
    if before is not None and step > before[0] and (tokens - before[1]) % (step - before[0]) == 0:
        per_step = (tokens - before[1]) // (step - before[0])
        if per_step > 0:
            one.setdefault("settings", {})["tokens_per_step"] = per_step


def _taken(found: Match, at_us: int | None, offset: int, one: Memory) -> Taken | None:
    step, target, *values = found.groups()
    known, before = one.get("settings", {}), one.get("record")
    if known.get("target_steps") != int(target) or "reported_convention" not in known:
        return None
    if int(step) <= one["step"] or "longest" not in one:
        return None
    if before is not None and (before["step"] == int(step) or not _one_burst(before["at"], at_us)):
        return None
    skipped = 0 if before is None else _skipped(before)
    flags = resolution(at_us)
    record: dict[str, Any] = {"step": int(step), "at": at_us, "flags": flags, "skipped": skipped}
    record |= {name: value.decode() for name, value in zip(_VALUES, values[1::2], strict=True) if value}
    if not _is_last(record, one):
        return None, {"record": record}
    one.pop("record", None)
    return _reading(record, offset, one), {}


_VALUES: Final = ("CE loss", "step skipped", "total tokens", "device/flopsPS", "device/BPS")
_METRICS: Final = (
    rb"(?: {4}(?!train/CE loss=|optim/step skipped=|throughput/(?:total tokens|device/BPS|device/flopsPS)=)"
    rb"[^\n\r=]{1,80}=[!-~]{1,24}\n){0,40}"
)
_SHEAF: Final = Sheaf(
    AT + rb"\t[\w.-]{1,60}:\d{1,7}\tolmo_core[\w.]{1,60}:\d{1,6}\tINFO\t",
    rb"\[step=(\d{1,18})/(\d{1,18}),epoch=\d{1,9},eta=[^\]\n\r]{0,60}\]\n"
    rb"(?:@() {4}train/CE loss=([!-~]{1,24})\n)?(?:@() {4}optim/step skipped=([!-~]{1,24})\n)?"
    rb"@() {4}throughput/total tokens=([!-~]{1,24})\n(?:@() {4}throughput/device/flopsPS=([!-~]{1,24})\n)?"
    rb"@() {4}throughput/device/BPS=(\d{1,5}(?:\.\d{1,9})?)\n".replace(b"@", _METRICS),
    _taken,
    metrics=(3, 5, 7, 9, 11),
    closing=11,
)
"""A record with metrics, of rank 0, in the order in which they are printed."""


# -- start -----------------------------------------------------------------------------------------------


def _batch(hit: Hit) -> Iterator[Record]:
    """The batch of its data loader is in tokens."""
    process(hit).pop("exact", None)
    yield from settings(hit, {"tokens_per_step": hit.count(1)})


def _parameters(hit: Hit) -> Iterator[Record]:
    yield from _launched(hit)
    yield from settings(hit, {"parameters": hit.count(2)})


_LAYOUT: Final = {
    "pp": "pipeline_parallel",
    "tp": "tensor_parallel",
    "cp": "context_parallel",
    "ep": "expert_parallel",
}


def _launched(hit: Hit) -> Iterator[Record]:
    yield from _closed(hit)
    yield from launched(hit, hit.word(1) or "start", _NAME)


def _mesh(hit: Hit) -> Iterator[Record]:
    sizes = [(name.decode(), int(size)) for name, size in re.findall(rb"(\w{1,24})=(\d{1,7})", hit.match[1])]
    if sizes:
        found: dict[str, Json] = {_LAYOUT[name]: size for name, size in sizes if name in _LAYOUT}
        found["data_parallel"] = prod(size for name, size in sizes if name.startswith("dp"))
        yield from settings(hit, {"gpus": prod(size for _, size in sizes), **found})


def _device(hit: Hit) -> Iterator[Record]:
    """Its peak is the H100's or the B200's by the name; any other device, the H200 too, counts as an A100."""
    peak = hit.number(2) if hit.group(2) != b"None" else None
    convention = f"{_CONVENTION}; MFU against {peak / 1e12:.4g} TFLOP/s" if peak else _CONVENTION
    yield from settings(hit, {"gpu_name": hit.word(1), "reported_convention": convention})


# -- saves, evaluation, ends -----------------------------------------------------------------------------


def _saves(hit: Hit) -> Iterator[Record]:
    """The line of a save in the background says so; no line tells when that lets training go on."""
    yield from _closed(hit)
    yield from begins(hit, Kind.SAVE_START, hit.count(1))


def _evaluates(hit: Hit) -> Iterator[Record]:
    yield from _closed(hit)
    yield from begins(hit, Kind.EVAL_START, done(hit))


def _evaluated(hit: Hit) -> Iterator[Record]:
    return ends(hit, Kind.EVAL_END, done(hit), duration_us=seconds_us(hit.group(1)), alone=True)


def _cancelled(hit: Hit) -> Iterator[Record]:
    yield from _closed(hit)
    why = (hit.word(1) or "").lower()
    timely = "sigterm" in why or "time limit" in why or "timeout" in why
    yield from exits(hit, "time_limit" if timely else "operator")


def _complete(hit: Hit) -> Iterator[Record]:
    yield from _closed(hit)
    target, last = setting(hit, "target_steps"), done(hit)
    if "leaving" in process(hit):
        return
    if target is None or last is None or last + process(hit).get("gap", 1) > target:
        yield from completed(hit)
    else:
        yield from exits(hit, "operator")


def _failed(hit: Hit) -> Iterator[Record]:
    yield from _closed(hit)
    yield from failure(hit, "training failed", Trouble(cause="software", confidence=0.3, fatal=True))


def _states(name: str, word: str | None = None) -> Make:
    """Return a rule's maker: the first group is a count of that name, or the line proves the word."""

    def make(hit: Hit) -> Iterable[Record]:
        return settings(hit, {name: hit.count(1) if word is None else word})

    return make


_READER: Final = Reader(
    (
        rule(
            b"[step=",
            rb"\[step=(?P<step>\d{1,18})/(?:(?P<total>\d{1,18})|\?\?\?),epoch=\d{1,9}(?P<eta>,eta=[^\]]{0,60})?\]",
            _header,
        ),
        *(
            rule(
                b"throughput/%s=" % name,
                rb"^ {4}throughput/(?P<name>%s)=(?P<value>\S{1,24})$" % name,
                _metric,
            )
            for name in (b"total tokens", b"device/BPS", b"device/flopsPS")
        ),
        rule(b"train/CE loss=", rb"^ {4}train/(?P<name>CE loss)=(?P<value>\S{1,24})$", _metric),
        rule(b"optim/step skipped=", rb"^ {4}optim/(?P<name>step skipped)=(?P<value>\S{1,24})$", _metric),
        rule(b"Using distributed backend", rb"Using (distributed) backend \S", _launched),
        rule(
            b"Building transformer with",
            rb"(Building) transformer with ([\d,]{1,30}) total params",
            _parameters,
        ),
        rule(b" device mesh with shape", rb"Built \dD device mesh with shape \(([^)]{1,200})\)", _mesh),
        rule(b"Device peak Flops/s", rb"Device: (.{1,80}?), Device peak Flops/s: (\w{1,24})", _device),
        rule(b"Training for ", rb"Training for ([\d,]{1,24}) steps$", _states("target_steps")),
        rule(b"Changing global batch", rb"Changing global batch size to ([\d,]{1,24})\.\.\.", _batch),
        rule(b"global_batch_size=", rb"\bglobal_batch_size=(\d{1,15}),?$", _batch),
        rule(b"sequence_length=", rb"^\s{1,40}sequence_length=(\d{1,9}),?$", _states("sequence_length")),
        rule(
            b"to Float8 linear",
            rb"Swapped linear layers to Float8 linear layers",
            _states("precision", "fp8"),
        ),
        rule(
            b"activation checkpointing",
            rb"Applied '(\w{1,30})' activation checkpointing",
            lambda hit: settings(hit, {"recompute": hit.word(1)}),
        ),
        rule(
            b"Will resume training",
            rb"Will resume training from step (\d{1,18}), epoch",
            lambda hit: resumed(hit, hit.count(1)),
        ),
        rule(
            b"train from scratch",
            rb"No checkpoint found in save folder .{0,800}will train from scratch",
            lambda hit: resumed(hit, 0),
        ),
        rule(b"Loading checkpoint from", rb"Loading checkpoint from '", sign),
        rule(b"dry-run batch", rb"Starting forward/backward dry-run batch", sign),
        rule(b"Starting epoch ", rb"Starting epoch \d{1,9}\.\.\.$", sign),
        rule(b"Saving checkpoint for", rb"Saving checkpoint for step (\d{1,18}) to '", _saves),
        rule(b"Checkpoint saved", rb"Checkpoint saved$", lambda hit: ends(hit, Kind.SAVE_END)),
        rule(
            b"saved successfully",
            rb"Checkpoint for step (\d{1,18}) saved successfully",
            lambda hit: durable(hit, hit.count(1)),
        ),
        rule(b" evals...", rb"Running .{1,100} evals\.\.\.$", _evaluates),
        rule(b" evals in ", rb"Finished .{1,100} evals in ([\d.]{1,12}) seconds", _evaluated),
        rule(
            b"Run canceled from",
            rb"Run canceled from (?:rank \d{1,7}|all ranks)\. Reason: (.{0,200})$",
            _cancelled,
        ),
        rule(b"Training complete", rb"Training complete$", _complete),
        trouble(
            b"loss encountered at",
            rb"\b(?:nan|inf) loss encountered at step \d",
            "divergence",
            0.7,
            fatal=True,
        ),
        rule(b"Training failed due to", rb"Training failed due to:$", _failed),
        *EVENTS,
    ),
    followers=FOLLOWERS,
    hot=_SHEAF,
)

_LINE: Final = re.compile(
    rb"\[step=\d{1,18}/(?:\d{1,18}|\?{3}),epoch=\d{1,9},eta="
    rb"|^ {4}throughput/device/TPS=|^ {4}throughput/total tokens=",
    re.M,
)
_LOGGER: Final = re.compile(
    rb"\bolmo_core\.[\w.]{1,60}:\d{1,6}\b|\tINFO\tBuilding transformer with [\d,]{1,30} total params"
)


def detect(head: bytes) -> Evidence | None:
    """Find a record, or its logger's name."""
    if found := _LINE.search(head):
        return Evidence(score=97, text=found[0].decode("ascii", "replace").strip())
    if found := _LOGGER.search(head):
        return Evidence(score=96, text=found[0].decode("ascii", "replace").strip())
    return None


COLLECTOR: Final = Collector(
    name="olmo_core",
    framework="OLMo-core v1 and v2 (2024-26)",
    version=1,
    parse=_READER.parse,
    detect=detect,
    knows=(
        "tokens",
        "time",
        "step time",
        "gpus",
        "parallel layout",
        "parameters",
        "gpu name",
        "resume",
        "saves",
        "evaluation",
        "completion",
        "reported TFLOP/s",
    ),
    needs=("model.tokens_per_step where a log begins beyond 1e9 tokens and does not state the batch",),
    notes=(
        "Metrics may be printed some steps late. Its MFU takes every GPU but H100 and B200 for an A100, and "
        "can exceed 100 %."
    ),
)
