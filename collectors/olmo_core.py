"""OLMo-core logs: `[step=10/7000,epoch=1,eta=1h]`, then a metric a line: `    throughput/device/TPS=12,345`.

Pure. The records are read in `_olmo_core`. Traps of the other lines: "Training complete" follows a cancelled
run too; a save in the background says when it is durable, not when it lets training go on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import prod
from typing import Final

from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Make, Reader, rule
from collectors._olmo_core import CONVENTION, SHEAF, closed, header, metric
from collectors._process import (
    begins,
    completed,
    done,
    durable,
    ends,
    exits,
    launched,
    process,
    resumed,
    setting,
    settings,
    sign,
)
from collectors._text import seconds_us
from collectors._trouble import Trouble, failure, trouble
from tracker.core.records import Json, Kind, Record
from tracker.interfaces import Collector, Evidence

_NAME: Final = "OLMo-core"


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
    yield from closed(hit)
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
    convention = f"{CONVENTION}; MFU against {peak / 1e12:.4g} TFLOP/s" if peak else CONVENTION
    yield from settings(hit, {"gpu_name": hit.word(1), "reported_convention": convention})


# -- saves, evaluation, ends -----------------------------------------------------------------------------


def _saves(hit: Hit) -> Iterator[Record]:
    """The line of a save in the background says so; no line tells when that lets training go on."""
    yield from closed(hit)
    yield from begins(hit, Kind.SAVE_START, hit.count(1))


def _evaluates(hit: Hit) -> Iterator[Record]:
    yield from closed(hit)
    yield from begins(hit, Kind.EVAL_START, done(hit))


def _evaluated(hit: Hit) -> Iterator[Record]:
    return ends(hit, Kind.EVAL_END, done(hit), duration_us=seconds_us(hit.group(1)), alone=True)


def _cancelled(hit: Hit) -> Iterator[Record]:
    yield from closed(hit)
    why = (hit.word(1) or "").lower()
    timely = "sigterm" in why or "time limit" in why or "timeout" in why
    yield from exits(hit, "time_limit" if timely else "operator")


def _complete(hit: Hit) -> Iterator[Record]:
    yield from closed(hit)
    target, last = setting(hit, "target_steps"), done(hit)
    if "leaving" in process(hit):
        return
    if target is None or last is None or last + process(hit).get("gap", 1) > target:
        yield from completed(hit)
    else:
        yield from exits(hit, "operator")


def _failed(hit: Hit) -> Iterator[Record]:
    yield from closed(hit)
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
            header,
        ),
        *(
            rule(
                b"throughput/%s=" % name,
                rb"^ {4}throughput/(?P<name>%s)=(?P<value>\S{1,24})$" % name,
                metric,
            )
            for name in (b"total tokens", b"device/BPS", b"device/flopsPS")
        ),
        rule(b"train/CE loss=", rb"^ {4}train/(?P<name>CE loss)=(?P<value>\S{1,24})$", metric),
        rule(b"optim/step skipped=", rb"^ {4}optim/(?P<name>step skipped)=(?P<value>\S{1,24})$", metric),
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
    hot=SHEAF,
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
