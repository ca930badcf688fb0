"""torchtitan logs: `step: 10  loss: ..  memory: ..  tps: ..  tflops: ..  mfu: ..`, from `wps:` of 2024 on.

Pure. Each step line carries a stamp with milliseconds, so windows are taken from stamps. Traps: the time per
step of the metrics back-ends divides by the log interval always, also at step 1 and after a validation, so it
is not used at all; `tps` is of one device; several ranks print one line; a save names no step but the last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import Any, Final

from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._process import (
    NAN,
    SAMPLE,
    begins,
    completed,
    done,
    durable,
    ends,
    free_us,
    launched,
    plain,
    process,
    progress,
    resumed,
    setting,
    settings,
    sign,
)
from collectors._swift import AT, Match, Memory, Swift, Taken
from collectors._text import real, seconds_us, whole
from tracker.core.records import Json, Kind, Reading, Record
from tracker.interfaces import Collector, Evidence

_RATE: Final = re.compile(rb"\b(?:tps|wps): ([\d,]{1,20})")
_TFLOPS: Final = re.compile(rb"\btflops: ([\d,]{1,12}(?:\.\d{1,6})?)")
_LOSS: Final = re.compile(rb"\bloss: {0,8}(\S{1,24})")
_LAYOUT: Final = {
    "pp": "pipeline_parallel",
    "tp": "tensor_parallel",
    "cp": "context_parallel",
    "ep": "expert_parallel",
}


def _step(hit: Hit) -> Iterator[Record]:
    """The mean rate since the last line, or since the last validation: it does not add up, the stamps do."""
    text = hit.group("rest") or b""
    rate, loss = _RATE.search(text), _LOSS.search(text)
    step, at_us = hit.count("step"), hit.stamp_us()
    if rate is None or loss is None or step is None:
        yield hit.reject("torn step line")
        return
    if hit.group("validate"):
        yield from _validated(hit, step, at_us)
        return
    tflops = _TFLOPS.search(text)
    reading = _reading(step, loss[1], rate[1], tflops and tflops[1], at_us, hit.offset, process(hit))
    yield from progress(hit, reading)


def _reading(
    step: int,
    loss: bytes,
    rate: bytes,
    tflops: bytes | None,
    at_us: int | None,
    offset: int,
    one: dict[str, Any],
) -> Reading:
    known = one.get("settings", {})
    tokens, gpus, tps, flop = known.get("tokens_per_step"), known.get("gpus"), real(rate), real(tflops)
    step_time_us = round(tokens * 1e6 / (gpus * tps)) if tokens and gpus and tps else None
    flags = SAMPLE if step_time_us else 0
    flags |= NAN if real(loss) is None else 0
    return Reading(
        offset,
        at_us,
        step,
        step_time_us,
        flags=flags,
        reported_flop_per_s=None if flop is None else flop * 1e12,
        tokens_per_step=tokens,
    )


def _taken(found: Match, at_us: int | None, offset: int, one: Memory) -> Taken:
    step, loss, rate, tflops = found.groups()
    return _reading(int(step), loss, rate, tflops, at_us, offset, one), {}


_SWIFT: Final = Swift(
    b"step: ",
    rb"(?:\[titan\] )?" + AT + rb" - [\w.]{1,60} - INFO - ",
    rb"step: {1,8}(\d{1,18})  +loss: {0,8}(\S{1,24})  (?:grad_norm: {1,8}\S{1,24}  )?"
    rb"memory: {1,8}[\d.]{1,9}GiB\([\d.]{1,6}%\)  (?:tps|wps): ([\d,]{1,20})"
    rb"(?:  tflops: ([\d,]{1,12}(?:\.\d{1,6})?))?(?:  mfu: [\d.]{1,8}%)?\n",
    _taken,
)
"""The step line without colours, of any version."""


def _validated(hit: Hit, step: int, at_us: int | None) -> Iterator[Record]:
    """Validation follows the step's own line (and its save), so it began there."""
    since = free_us(hit, step)
    length = at_us - since if at_us is not None and since is not None and at_us >= since else None
    return ends(hit, Kind.EVAL_END, step, duration_us=length, alone=True)


def _mesh(hit: Hit) -> Iterator[Record]:
    """Its dimensions multiply to the world size; dimensions of size one are left out in older versions."""
    if (pairs := hit.group("pairs")) is not None:
        sizes = [(name, int(size)) for name, size in re.findall(rb"(\w{1,24})=(\d{1,7})", pairs)]
    else:
        names = re.findall(rb"'(\w{1,24})'", hit.group("names") or b"")
        sizes = list(zip(names, map(int, re.findall(rb"\d{1,7}", hit.group("sizes") or b"")), strict=False))
    if sizes:
        found: dict[str, Json] = {
            _LAYOUT[name.decode()]: size for name, size in sizes if name.decode() in _LAYOUT
        }
        data = prod(size for name, size in sizes if name.startswith(b"dp"))
        world = prod(size for name, size in sizes if name != b"ep")
        yield from settings(hit, {"gpus": world, "data_parallel": data, **found})


def _batch(hit: Hit) -> Iterator[Record]:
    """What a step consumes: tokens since 2026, sequences before, sequences of one rank in 2024."""
    found = {name: whole(text) for name, text in hit.match.groupdict().items()}
    local, batch, length, tokens = (found.get(name) for name in ("local", "batch", "length", "tokens"))
    ranks = setting(hit, "data_parallel")
    if batch is None and local is not None and ranks is not None:
        batch = local * ranks
    if tokens is None and batch is not None and length is not None:
        tokens = batch * length
    known = {"micro_batch_size": local, "global_batch_size": batch, "sequence_length": length}
    yield from settings(hit, {**known, "tokens_per_step": tokens, "target_steps": found.get("target")})
    if (start := found.get("start")) is not None:
        for event in resumed(hit, max(start - 1, 0)):
            yield event
            yield hit.event(Kind.TRAIN_START)


def _peak(hit: Hit) -> Iterator[Record]:
    """Its own MFU is against a table of BF16 peaks, by the device's name."""
    peak = hit.number("peak")
    if not peak:
        return
    unknown = ", the A100's, as it does not know the device" if process(hit).get("fallback") else ""
    convention = f"{_CONVENTION}; MFU against {peak / 1e12:.4g} TFLOP/s BF16{unknown}"
    yield from settings(hit, {"reported_convention": convention})


_CONVENTION: Final = "6N without embeddings, attention in full, recompute not counted, active experts"


def _fallback(hit: Hit) -> Iterator[Record]:
    process(hit)["fallback"] = True
    return iter(())


def _saves(hit: Hit) -> Iterator[Record]:
    """No step stands in it: the last one printed was executed at least."""
    return begins(hit, Kind.SAVE_START, done(hit))


def _last_save(hit: Hit) -> Iterator[Record]:
    busy = process(hit).get("busy", {})
    if Kind.SAVE_START in busy:
        busy[str(Kind.SAVE_START)] = hit.count(1)
    return iter(())


def _saved(hit: Hit) -> Iterator[Record]:
    """With staging the write goes on in the background; before 2026 the line does not tell."""
    background = hit.match[0].startswith(b"Finished staging") or bool(process(hit).get("background"))
    return ends(hit, Kind.SAVE_END, duration_us=seconds_us(hit.group("s")), background=background)


def _background(hit: Hit) -> Iterator[Record]:
    one = process(hit)
    one["background"] = True
    return durable(hit, one.get(f"last {Kind.SAVE_END}"))


_NAME: Final = "torchtitan"
_INFO: Final = rb"INFO - "
_READER: Final = Reader(
    (
        rule(
            b"step: ", rb"(?P<validate>validate )?\bstep: {1,8}(?P<step>\d{1,18})  +(?P<rest>\S.*)?$", _step
        ),
        rule(b"Starting job: ", _INFO + rb"Starting job: ", lambda hit: launched(hit, "job", _NAME)),
        rule(
            b"torchtitan version: ",
            rb"torchtitan version: (\S{1,40})",
            lambda hit: launched(hit, "version", _NAME, hit.word(1)),
        ),
        rule(
            b"device mesh with",
            rb"Building \d-D device mesh with \[(?P<names>[^\]]{0,300})\], \[(?P<sizes>[\d, ]{1,100})\]"
            rb"|Building device mesh with parallelism: (?P<pairs>.{1,300})$",
            _mesh,
        ),
        rule(
            b" total parameters",
            rb"Model \S{1,60} \S{1,60} size: ([\d,]{1,30}) total parameters",
            lambda hit: settings(hit, {"parameters": hit.count(1)}),
        ),
        rule(
            b" capacity: ",
            _INFO + rb"[A-Z]{2,8} capacity: (.{1,80}?) with [\d.]{1,12}GiB memory",
            lambda hit: settings(hit, {"gpu_name": hit.word(1)}),
        ),
        rule(b"Peak flops undefined", rb"Peak flops undefined for: .{1,80}, fallback to A100", _fallback),
        rule(b"Peak FLOPS used for", rb"Peak FLOPS used for computing MFU: (?P<peak>[\d.e+]{1,20})", _peak),
        rule(
            b"training active",
            rb"Float8 (?:tensorwise scaled )?training active",
            lambda hit: settings(hit, {"precision": "fp8"}),
        ),
        rule(b"training active", rb"\bMX training active", lambda hit: settings(hit, {"precision": "mxfp8"})),
        rule(
            b"Trainer is initialized",
            rb"Trainer is initialized with (?:local batch size (?P<local>\d{1,9}), "
            rb"global batch size (?P<batch>\d{1,9}), |\d{1,15} tokens per DP rank, "
            rb"(?P<tokens>\d{1,15}) tokens per train step, )gradient accumulation steps \d{1,9}, "
            rb"(?:sequence length (?P<length>\d{1,9})|maximum context length \d{1,12}), "
            rb"total steps (?P<target>\d{1,15})",
            _batch,
        ),
        rule(
            b"Training starts at step",
            rb"Training starts at step (?P<start>\d{1,18})(?:, with local batch size:? (?P<local>\d{1,9}), "
            rb"(?:global batch size:? (?P<batch>\d{1,9}), )?sequence length:? (?P<length>\d{1,9}), "
            rb"total steps:? (?P<target>\d{1,15}))?",
            _batch,
        ),
        rule(b"ing the checkpoint", _INFO + rb"(?:Saving|Staging) the checkpoint", _saves),
        rule(
            b" checkpoint ",
            rb"Saving a .{1,60} checkpoint (?:in \S{1,20} )?at last step, step (\d{1,18})\.",
            _last_save,
        ),
        rule(
            b"ing the checkpoint",
            rb"Finished (?:saving|staging) the checkpoint.{0,40}in (?P<s>[\d.]{1,12}) seconds",
            _saved,
        ),
        rule(
            b"Last step checkpoint",
            rb"Last step checkpoint completed in (?P<s>[\d.]{1,12})s",
            _saved,
        ),
        rule(
            b"in the background process",
            rb"Finish saving the checkpoint in the background process",
            _background,
        ),
        rule(b"ing the checkpoint", _INFO + rb"(?:Loading|Finished loading) the checkpoint", sign),
        rule(b"Building ", _INFO + rb"Building (?!\S*\d-D|device)\S", sign),
        rule(b"Training completed", _INFO + rb"Training completed", completed),
        rule(
            b"Ran out of data",
            rb"Ran out of data; last step was canceled",
            lambda hit: iter((hit.event(Kind.NOTE),)),
        ),
        *EVENTS,
    ),
    followers=FOLLOWERS,
    hot=_SWIFT,
)


def detect(head: bytes) -> Evidence | None:
    """Find its logger's prefix, or its step line."""
    text = plain(head)
    if _PREFIXED.search(text):
        return Evidence(score=96, text="the prefix [titan] before a stamp")
    if found := _STEP_LINE.search(text):
        return Evidence(score=95, text=found[0].decode("ascii", "replace")[:60])
    if _START.search(text):
        return Evidence(score=92, text="the start-up lines of torchtitan")
    return None


_PREFIXED: Final = re.compile(rb"\[titan\] \d{4}-\d\d-\d\d ")
_STEP_LINE: Final = re.compile(
    rb"\bstep: {1,8}\d{1,18}  loss: {1,8}\S{1,20}  (?:grad_norm: {1,8}\S{1,20}  )?memory: "
)
_START: Final = re.compile(
    rb"Model \S{1,60} \S{1,60} size: [\d,]{1,30} total parameters|Peak FLOPS used for computing MFU: "
)

COLLECTOR: Final = Collector(
    name=_NAME,
    framework="torchtitan, 2024 (wps) to v0.2 and 2026 (tokens per train step)",
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
    needs=(),
    notes=(
        "Tokens are steps x the batch of the start-up lines: a log without its head needs "
        "model.tokens_per_step and hardware.gpus. tps is of one device. With pipeline parallelism only the "
        "last stage prints the step line (LOG_RANK)."
    ),
)
