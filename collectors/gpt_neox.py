"""GPT-NeoX logs: ` samples/sec: 7.799 | iteration 34/ 10000 | elapsed time per iteration (ms): 4103.1 | ...`.

Pure. Rank 0 prints, over DeepSpeed, whose lines stand between (`_deepspeed`). Traps: no line of its own has a
clock, so the engine's line of the same step lends its stamp; neither batch nor sequence length is in the
line, both are in the argument dump; the unit of `approx flops per GPU` is part of its value, and they hold
recomputation where activations are checkpointed; the printed time holds evaluation and saves, and divides by
the whole log interval also after a resume within one; the folder's log files are cut to nothing by a restart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from collectors._clock import STAMP, stamp_us
from collectors._deepspeed import rules, step_of
from collectors._events import EVENTS
from collectors._events import FOLLOWERS as EVENT_FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._own import first_sign
from collectors._process import (
    INCLUDES,
    NAN,
    completed,
    ends,
    exits,
    launched,
    process,
    progress,
    resolution,
    resumed,
    setting,
    settings,
)
from collectors._swift import Match, Memory, Swift, Taken
from collectors._text import real, whole
from tracker.core.records import Flag, Json, Kind, Reading, Record
from tracker.interfaces import Collector, Evidence

_NAME: Final = "GPT-NeoX"
_ARGUMENTS: Final = "arguments"
_ARGUMENT_LINES: Final = 3000
_HARDWARE: Final = int(Flag.REPORTED_HARDWARE)
_FLOPS: Final = re.compile(rb"([\d.]{1,12}) ?([KMGTPEZ]?)FLOPS")
_SCALE: Final = {b"": 1.0, b"K": 1e3, b"M": 1e6, b"G": 1e9, b"T": 1e12, b"P": 1e15, b"E": 1e18, b"Z": 1e21}


def _iteration(hit: Hit) -> Iterator[Record]:
    """One line a log interval; its fields by name, whatever their order."""
    pieces = (piece.rpartition(b": ") for piece in (hit.group("rest") or b"").split(b"|"))
    found = {key.strip(): value.strip() for key, colon, value in pieces if colon}
    step, total = hit.count("step"), hit.count("total")
    ms, skipped = real(found.get(b"elapsed time per iteration (ms)")), found.get(_SKIPPED)
    if step is None or not ms or ms <= 0:
        yield hit.reject("torn iteration line")
        return
    losses = [value for key, value in found.items() if b"loss" in key and key != b"loss scale"]
    nan = any(real(loss) is None for loss in losses) or found.get(_NANS, b"0") != b"0"
    flop = _flop_per_s(found.get(b"approx flops per GPU", b""))
    one, share = process(hit), _share(hit, step)
    reading = _reading(hit.offset, step, ms * share, whole(skipped) or 0, nan, flop and flop / share, one)
    yield from settings(hit, {"target_steps": total})
    yield from progress(hit, reading)
    if step == total:
        yield from completed(hit)


def _reading(
    offset: int, step: int, ms: float, skipped: int, nan: bool, flop: float | None, one: Memory
) -> Reading:
    """The engine may have said when the step was done; batch and length are in the arguments."""
    lent, known = one.get("engine") or [None, None], one.get("settings", {})
    at_us = lent[1] if lent[0] == step else None
    length, batch = known.get("sequence_length"), known.get("global_batch_size")
    return Reading(
        offset,
        at_us,
        step,
        round(ms * 1000),
        batch=batch,
        skipped=skipped,
        flags=INCLUDES
        | resolution(at_us)
        | (NAN if nan else 0)
        | (_HARDWARE if flop is not None and one.get("recompute", True) else 0),
        reported_flop_per_s=flop,
        tokens_per_step=batch * length if batch and length else None,
    )


def _taken(match: Match, _: int | None, offset: int, one: Memory) -> Taken | None:
    """The same of a usual line: no loss scale or with one, no loss that is none, not the last."""
    step, total, ms, flop, unit, skipped, nans = match.groups()
    if step == total or nans != b"0" or one.get("settings", {}).get("target_steps") != int(total):
        return None
    reading = _reading(offset, int(step), float(ms), int(skipped), False, float(flop) * _SCALE[unit], one)
    return (reading, {}) if reading.step_time_us else None


_SWIFT: Final = Swift(
    b"iteration ",
    rb" *",
    rb"samples/sec: [\d.]{1,20} \| iteration +(\d{1,18})/ *(\d{1,18}) \| "
    rb"elapsed time per iteration \(ms\): (\d{1,12}\.\d) \| learning rate: \S{1,24} \| "
    rb"approx flops per GPU: (\d{1,4}\.\d)([KMGTPEZ]?)FLOPS \| lm_loss: [-\d.E+]{1,24} \|"
    rb"(?: loss scale: [\d.]{1,24} \|)? number of skipped iterations: +(\d{1,9}) \| "
    rb"number of nan iterations: +(\d{1,9}) \|\n",
    _taken,
)

_SKIPPED: Final = b"number of skipped iterations"
_NANS: Final = b"number of nan iterations"


def _share(hit: Hit, step: int) -> float:
    """Return by what to multiply the printed mean: it divides by the interval, however few steps ran.

    Only the first line after a resume within an interval is concerned.
    """
    one = process(hit)
    interval, began = setting(hit, "log_interval"), one.get("resumed")
    if one.get("ran") or not interval or not began or began[0] is None:
        return 1.0
    ran = step - began[0]
    return interval / ran if 0 < ran < interval else 1.0


def _flop_per_s(text: bytes) -> float | None:
    found = _FLOPS.fullmatch(text)
    value = None if found is None else real(found[1])
    return None if found is None or value is None else value * _SCALE[found[2]]


def _engine(hit: Hit) -> Iterator[Record]:
    """The engine has done the step that the iteration line is about to tell."""
    process(hit)["engine"] = [hit.count("step"), hit.stamp_us()]
    return iter(())


# -- start -----------------------------------------------------------------------------------------------

_WORDS: Final = {"precision": "precision"}
_COUNTS: Final = {
    "global_num_gpus": "gpus",
    "seq_length": "sequence_length",
    "train_batch_size": "global_batch_size",
    "train_micro_batch_size_per_gpu": "micro_batch_size",
    "num_layers": "layers",
    "hidden_size": "hidden_size",
    "intermediate_size": "ffn_hidden_size",
    "num_attention_heads": "heads",
    "num_kv_heads": "kv_heads",
    "padded_vocab_size": "vocab_size",
    "model_parallel_size": "tensor_parallel",
    "pipe_parallel_size": "pipeline_parallel",
    "moe_num_experts": "experts",
    "moe_top_k": "experts_per_token",
    "log_interval": "log_interval",
    "checkpoint_factor": "save_interval",
    "eval_interval": "eval_interval",
    "train_iters": "target_steps",
}
_ARGUMENT: Final = re.compile(
    rb"\s{0,8}(?P<name>[a-z]\w{1,63}) \.{2,60} ?(?P<value>[^\n]{0,200}?)\.{2,60}(?:updated|default)\s{0,4}$"
)


def _dump(hit: Hit) -> Iterator[Record]:
    """The argument dump opens, or closes: then it is told as one setting."""
    one = process(hit)
    if not hit.group("end"):
        yield from launched(hit, "arguments", _NAME)
        process(hit)[_ARGUMENTS] = {}
        hit.open(_ARGUMENTS, _ARGUMENT_LINES)
        return
    hit.close(_ARGUMENTS)
    kept: dict[str, str] | None = one.pop(_ARGUMENTS, None)
    if kept:
        yield from settings(hit, _settings(one, kept))


def _argument(hit: Hit) -> Iterator[Record]:
    found = _ARGUMENT.match(hit.text)
    kept = process(hit).get(_ARGUMENTS)
    if found is not None and isinstance(kept, dict):
        name = found["name"].decode()
        if name in _COUNTS or name in _WORDS or name == "checkpoint_activations":
            kept[name] = found["value"].decode("utf-8", "replace").strip()[:64]
    return iter(())


def _settings(one: dict[str, Any], kept: dict[str, str]) -> dict[str, Json]:
    data: dict[str, Json] = {}
    for name, word in kept.items():
        if name in _COUNTS:
            data[_COUNTS[name]] = whole(word.encode()) or None
        elif name in _WORDS and word not in ("None", ""):
            data[_WORDS[name]] = {"bfloat16": "bf16"}.get(word, word)
    if data.get("experts") == 1:  # the default: a dense model
        data["experts"] = data["experts_per_token"] = None
    recompute = kept.get("checkpoint_activations")
    if recompute in ("True", "False"):
        one["recompute"] = recompute == "True"
        data["recompute"] = "full" if recompute == "True" else "none"
    counted = "hardware FLOP, recomputation counted" if one.get("recompute", True) else "model FLOP"
    data["reported_convention"] = f"{counted}, attention in full"
    return data


def _world(hit: Hit) -> Iterator[Record]:
    yield from launched(hit, "world", _NAME)
    yield from settings(hit, {"gpus": hit.count("gpus"), "tensor_parallel": hit.count("tensor")})


def _loaded(hit: Hit) -> Iterator[Record]:
    step = step_of(hit.text)
    if step is not None:
        yield from resumed(hit, step)


# -- evaluation and ends -----------------------------------------------------------------------------------


def _evaluated(hit: Hit) -> Iterator[Record]:
    yield from ends(hit, Kind.EVAL_END, hit.count("step"), alone=True)


def _leaves(hit: Hit) -> Iterator[Record]:
    """exit_interval: the end of a phase, planned by whoever set it."""
    for event in exits(hit, "operator"):
        yield hit.event_of(
            event.kind, event.data, at_us=stamp_us(hit.match["at"], hit.context), step=hit.count("step")
        )


READER: Final = Reader(
    (
        rule(
            b"iteration ",
            rb"(?:samples/sec: [\d.]{1,20} \| {1,4})?iteration {1,20}(?P<step>\d{1,18})/ *(?P<total>\d{1,18})"
            rb" \|(?P<rest>[^\n]{0,4000})",
            _iteration,
        ),
        rule(
            b"NeoXArgs.",
            rb"NeoXArgs\.configure_distributed_args\(\) using world size: (?P<gpus>\d{1,7}) "
            rb"and model-parallel size: (?P<tensor>\d{1,5})",
            _world,
        ),
        rule(b"arguments ---", rb"-{8,}(?P<end> end of)? arguments -{8,}", _dump),
        rule(
            b" total params: ",
            rb"> total params: ([\d,]{1,26})",
            lambda hit: settings(hit, {"parameters": hit.count(1)}),
        ),
        rule(b"successfully loaded", rb"successfully loaded \S{1,400}global_step\d", _loaded),
        rule(b"Unable to load checkp", rb"^Unable to load checkpoint\.", lambda hit: resumed(hit, 0)),
        rule(
            b" results at ",
            rb" (?:validation|test) results at (?:iteration (?P<step>\d{1,18})|the end of training)",
            _evaluated,
        ),
        rule(
            b"exiting the program",
            rb"time: (?P<at>" + STAMP + rb") \| exiting the program at iteration (?P<step>\d{1,18})",
            _leaves,
        ),
        *rules(_NAME, _engine),
        *EVENTS,
    ),
    followers={_ARGUMENTS: _argument, **EVENT_FOLLOWERS},
    hot=_SWIFT,
)

_OWN: Final = (
    (
        97,
        rb"\| approx flops per GPU: [\d.]{1,12} ?[KMGTPE]?FLOPS",
        "`approx flops per GPU` in iteration lines",
    ),
    (97, rb"samples/sec: [\d.]{1,20} \| +iteration +\d+/ *\d+ \|[^\n]{0,600}\| lm_loss: ", "`lm_loss`"),
    (96, rb"NeoXArgs\.", "`NeoXArgs`"),
    (95, rb"\.{3}(?:updated|default) *\n", "an argument dump that says what was updated"),
)


def detect(head: bytes) -> Evidence | None:
    """Find its iteration lines, its arguments' name or its dump."""
    return first_sign(head, _OWN)


COLLECTOR: Final = Collector(
    name="gpt_neox",
    framework="GPT-NeoX v1 (2021) to v2 (2024), over DeepSpeed",
    version=1,
    parse=READER.parse,
    detect=detect,
    knows=(
        "step",
        "step time",
        "tokens",
        "batch",
        "gpus",
        "parameters",
        "resume",
        "saves",
        "evaluation",
        "completion",
        "skipped updates",
        "reported FLOP/s",
        "time, where steps_per_print fits log_interval",
    ),
    needs=("model.sequence_length and global_batch_size where the argument dump is not in the log",),
    notes=(
        "Iteration lines have no clock: DeepSpeed's line of the same step lends its stamp (local, no zone). "
        "The printed time holds evaluation and saves. Files in log_dir begin anew with each process: capture "
        "stdout, or keep them apart."
    ),
)
