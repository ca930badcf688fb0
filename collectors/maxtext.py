"""MaxText logs: `completed step: 9, seconds: 5.667, TFLOP/s/device: .., Tokens/s/device: .., loss: ..`.

Pure. Plain print, without a stamp unless the log's carrier adds one (absl's has no year). Traps: steps count
from 0; a line is printed when the next step has been dispatched, so the last step of a crash is never told;
`total_weights` is target tokens in the loss, not parameters; every process prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._options import YEAR, checked
from collectors._process import (
    INCLUDES,
    NAN,
    ROUNDED,
    SAMPLE,
    begins,
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
    with_year,
)
from collectors._swift import Match, Memory, Swift, Taken
from collectors._text import real, seconds_us
from collectors._trouble import trouble
from tracker.core.records import LARGEST, Kind, Reading, Record
from tracker.interfaces import Collector, Context, Evidence

_NAME: Final = "MaxText"
_GATE: Final = b" step: "
_FIELD: Final = re.compile(
    rb"(?:^|, )(seconds|TFLOP/s/device|Tokens/s/device|total_weights|loss): ([^,\s]{1,24})"
)
_NAMES: Final = (b"seconds", b"TFLOP/s/device", b"Tokens/s/device", b"loss")
_CONVENTION: Final = "model FLOP, attention causal (halved), recompute not counted, active experts"


def _step(hit: Hit) -> Iterator[Record]:
    """One line a step. `seconds` is from dispatch to dispatch: it jitters, but adds up, saves and all.

    Where lines have stamps these are better; `seconds` is then only for charts.
    """
    found = dict(_FIELD.findall(hit.group("rest") or b""))
    step = hit.count("step")
    seconds = seconds_us(found.get(b"seconds"))
    if step is None or b"loss" not in found or (seconds is None and not hit.group("hidden")):
        yield hit.reject("torn step line")
        return
    values = [found.get(name) for name in _NAMES]
    weights = found.get(b"total_weights", b"0") if hit.group("rampup") else None
    reading = _reading(step, values, weights, hit.stamp_us(), hit.offset, process(hit))
    if reading.reported_flop_per_s is not None:
        yield from settings(hit, {"reported_convention": _CONVENTION})
    yield from progress(hit, reading)
    if step + 1 == setting(hit, "target_steps"):
        yield from completed(hit)


def _reading(
    step: int,
    values: Sequence[bytes | None],
    weights: bytes | None,
    at_us: int | None,
    offset: int,
    one: Memory,
) -> Reading:
    """Return the reading of a step; while the batch grows only `weights` are told."""
    printed, flop, rate, loss = values
    known: dict[str, Any] = one.get("settings", {})
    seconds, batch = seconds_us(printed), known.get("global_batch_size")
    flags = resolution(at_us)
    if seconds:
        flags |= INCLUDES if at_us is None else SAMPLE
    flags |= NAN if real(loss) is None else 0
    tokens = batch * known["sequence_length"] if batch and "sequence_length" in known else None
    if weights is not None:
        batch, tokens = None, round(real(weights) or 0) or None
        flags |= ROUNDED
    elif tokens is None:  # the rate of a device, where the log says how many there are
        tps, devices = real(rate), known.get("gpus")
        tokens = round(tps * seconds * devices / 1e6) or None if tps and seconds and devices else None
        flags |= ROUNDED if tokens else 0
    tflop = real(flop)
    return Reading(
        offset,
        at_us,
        step + 1,
        seconds or None,
        batch=batch,
        flags=flags,
        reported_flop_per_s=None if tflop is None else tflop * 1e12,
        tokens_per_step=tokens,
    )


def _taken(found: Match, at_us: int | None, offset: int, one: Memory) -> Taken | None:
    known, (done, *values) = one.get("settings", {}), found.groups()
    step = int(done)
    if known.get("reported_convention") is None or step + 1 >= known.get("target_steps", LARGEST):
        return None
    return _reading(step, values, None, at_us, offset, one), {}


_SWIFT: Final = Swift(
    _GATE,
    rb"",
    rb"completed step: (\d{1,18}), seconds: ([\d.]{1,12}), TFLOP/s/device: ([\d.]{1,12}), "
    rb"Tokens/s/device: ([\d.]{1,16}), (?:total_weights: [\d.]{1,16}, )?loss: ([\d.na]{1,24})"
    rb"(?:, [a-z][\w ]{1,30}: [\d.e+-]{1,24}){0,12}\n",
    _taken,
)
"""The step line as it is printed; where its carrier adds a stamp the rules take it."""


_COUNTS: Final = {
    "global_batch_size_to_train_on": "global_batch_size",
    "max_target_length": "sequence_length",
    "steps": "target_steps",
    "emb_dim": "hidden_size",
    "mlp_dim": "ffn_hidden_size",
    "num_decoder_layers": "layers",
    "num_query_heads": "heads",
    "num_kv_heads": "kv_heads",
    "head_dim": "head_dim",
    "vocab_size": "vocab_size",
    "num_experts": "experts",
    "num_experts_per_tok": "experts_per_token",
    "checkpoint_period": "save_interval",
    "eval_interval": "eval_interval",
}
_WORDS: Final = {"dtype": "precision", "remat_policy": "recompute", "run_name": "job_name"}

_SHORT: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def _config(hit: Hit) -> Iterator[Record]:
    """The whole configuration, a key a line, from every process; `quantization` outdoes `dtype`."""
    yield from launched(hit, "config", _NAME)
    name, value = hit.word("name") or "", hit.count("value")
    if name in _COUNTS and value:
        yield from settings(hit, {_COUNTS[name]: value})
    elif name in _WORDS and (word := hit.word("value")):
        yield from settings(hit, {_WORDS[name]: _SHORT.get(word, word[:120])})
    elif name == "quantization" and (word := hit.word("value")):
        yield from settings(hit, {"precision": word[:120]})


def _parameters(hit: Hit) -> Iterator[Record]:
    billions = hit.number(1)
    yield from settings(hit, {"parameters": round(billions * 1e9) if billions else None})


def _from(hit: Hit) -> Iterator[Record]:
    """A checkpoint of step N holds N + 1 steps."""
    step = hit.count("step") if hit.group("step") else None
    yield from resumed(hit, 0 if step is None else step + 1)


def _saves(hit: Hit) -> Iterator[Record]:
    step = hit.count(1)
    yield from begins(hit, Kind.SAVE_START, None if step is None else step + 1)


def _saved(hit: Hit) -> Iterator[Record]:
    step = hit.count("step")
    if step is not None:
        yield from ends(hit, Kind.SAVE_END, step + 1, alone=True, background=bool(hit.group("background")))


def _evaluates(hit: Hit) -> Iterator[Record]:
    step = hit.count(1)
    yield from begins(hit, Kind.EVAL_START, None if step is None else step + 1)


def _evaluated(hit: Hit) -> Iterator[Record]:
    step = hit.count(1)
    yield from ends(hit, Kind.EVAL_END, None if step is None else step + 1, alone=True)


def _stopped(hit: Hit) -> Iterator[Record]:
    why = (hit.word(1) or "").lower()
    if "preempt" in why:
        return exits(hit, "preempted")
    if "target" in why:
        return completed(hit)
    return exits(hit, "failed", "software")


_READER: Final = Reader(
    (
        rule(
            _GATE,
            rb"(?P<rampup>\[Rampup Batch Size Phase\], )?completed "
            rb"(?:(?P<hidden>profiler activation/deactivation) )?step: (?P<step>\d{1,18}), (?P<rest>.*)$",
            _step,
        ),
        rule(b"Config param ", rb"Config param (?P<name>\w{1,60}): ?(?P<value>.{0,200})$", _config),
        rule(
            b"Num_devices: ",
            rb"Num_devices: (\d{1,9}), shape",
            lambda hit: settings(hit, {"gpus": hit.count(1)}),
        ),
        rule(b"number parameters: ", rb"number parameters: ([\d.]{1,16}) billion", _parameters),
        rule(
            b"restor",
            rb"restoring from this run's directory (?:latest )?step (?P<step>\d{1,18})"
            rb"|No existing checkpoints found, not restoring",
            _from,
        ),
        rule(
            b"before starting checkp",
            rb"seconds for step (\d{1,18}) to finish before starting checkpointing",
            _saves,
        ),
        rule(
            b" checkpoint ",
            rb"(?:(?P<background>Started an asynchronous) checkpoint save for|[Ss]aved a checkpoint at) "
            rb"step (?P<step>\d{1,18})\b",
            _saved,
        ),
        rule(b"Starting eval after", rb"Starting eval after train step (\d{1,18})\b", _evaluates),
        rule(b"after train step ", rb"Completed eval after train step (\d{1,18})\b", _evaluated),
        rule(b"eval metrics after step", rb"eval metrics after step: (\d{1,18})\b", _evaluated),
        rule(b"Training stopped: ", rb"Training stopped: (.{0,200})$", _stopped),
        trouble(b"due to NaN loss", rb"Aborting training due to NaN loss", "divergence", 0.8, fatal=True),
        trouble(b"due to Inf loss", rb"Aborting training due to Inf loss", "divergence", 0.8, fatal=True),
        *EVENTS,
    ),
    followers=FOLLOWERS,
    hot=_SWIFT,
)


def parse(block: bytes, context: Context) -> Iterable[Record]:
    """Yield the records of a block; the option `year` dates stamps that have none."""
    with_year(context)
    return _READER.parse(block, context)


_LINE: Final = re.compile(rb"completed step: \d{1,18}, seconds: [\d.]{1,12}, ")
_PARAM: Final = re.compile(
    rb"Config param (?:per_device_batch_size|base_output_directory|dcn_data_parallelism): "
)


def detect(head: bytes) -> Evidence | None:
    """Find its step line, or its configuration."""
    if found := _LINE.search(head):
        return Evidence(score=96, text=found[0].decode("ascii", "replace"))
    if found := _PARAM.search(head):
        return Evidence(score=95, text=found[0].decode("ascii", "replace"))
    return None


COLLECTOR: Final = Collector(
    name="maxtext",
    framework="MaxText, 2023 to v0.2 (2026), on GPUs and TPUs",
    version=1,
    parse=parse,
    detect=detect,
    knows=(
        "tokens",
        "step time",
        "gpus",
        "parameters",
        "resume",
        "saves",
        "evaluation",
        "completion",
        "reported TFLOP/s",
        "time where the carrier stamps the lines",
    ),
    needs=(
        "source.started_at where neither stamps nor a scheduler tell the time",
        "source.year where stamps have none (absl)",
    ),
    options=("year",),
    check=checked(year=YEAR),
    notes=(
        "gpus counts devices, TPU chips too. While the batch ramps up, tokens are those in the loss. Without "
        "the configuration in the log tokens are rate x time x devices (rounded)."
    ),
)
