"""Megatron-Bridge's log: Megatron-LM's lines, and the rate: `GPU utilization: 58.2MODEL_TFLOP/s/GPU`.

Pure. Iteration lines as in Megatron-LM (the timer stops around evaluation and saves), mostly without the
throughput, which rank 0 prints on the line before; it is TFLOP/s, no utilisation, and 0 for models whose FLOP
it does not know. The argument dump is replaced by a summary of the configuration, which does not state the
world size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from operator import itemgetter
from typing import Any, Final

from collectors._events import EVENTS
from collectors._events import FOLLOWERS as EVENT_FOLLOWERS
from collectors._iterations import GATE, ITERATION, WRAPPED, Iterations
from collectors._lines import Hit, Reader, rule
from collectors._megatron import family, resume
from collectors._megatron_start import ARGUMENTS, argument, banner
from collectors._megatron_start import settings as dumped
from collectors._text import real
from tracker.core.records import Json, Kind, Reading, Record
from tracker.interfaces import Collector, Context, Evidence

_NAME: Final = "Megatron-Bridge"
_CONVENTION: Final = "model FLOP, attention causal (halved), recomputation not counted, routed experts"
_SUMMARY: Final = "summary"
_SUMMARY_LINES: Final = 600
_RATE: Final = "rate"


class _Iterations(Iterations):
    """Iteration lines that take the throughput from the line before, where they have none."""

    gate = b""  # two kinds of lines are swept: no literal is in all of them

    def sweep(self, block: bytes) -> list[tuple[int, Any]]:
        """Return the iteration lines, and the lines of the rate: with a number in place of fields."""
        swept: list[tuple[int, Any]] = list(super().sweep(block))
        if swept:
            swept += [(found.start() + 1, float(found[1])) for found in _ALONE.finditer(block)]
            swept.sort(key=itemgetter(0))
        return swept

    def run(
        self, swept: Sequence[tuple[int, Any]], place: Callable[[int], int], context: Context
    ) -> Iterator[Reading | int]:
        """Do as usual, with the rate put in."""
        for number, one in enumerate(swept):
            if isinstance(one[1], float):
                _keep(context.state, one[1])
                continue
            for item in super().run((one,), place, context):
                yield _rated(context.state, item) if isinstance(item, Reading) else number


_ALONE: Final = re.compile(
    rb"\n *Step Time : [\d.]{1,12}s GPU utilization: (\d{1,9}(?:\.\d{1,9})?)MODEL_TFLOP/s/GPU(?=\n)"
)


def _keep(state: dict[str, Any], rate: float | None) -> None:
    state.pop(_RATE, None)
    if rate:
        state[_RATE] = rate * 1e12


def _rated(state: dict[str, Any], reading: Reading) -> Reading:
    rate = state.pop(_RATE, None)
    if rate is None or reading.reported_flop_per_s is not None:
        return reading
    return reading._replace(reported_flop_per_s=rate)


_ITERATIONS: Final = _Iterations(includes=False)


def _iteration(hit: Hit) -> Iterator[Record]:
    for record in _ITERATIONS.line(hit):
        yield _rated(hit.state, record) if isinstance(record, Reading) else record


def _wrapped(hit: Hit) -> Iterator[Record]:
    for record in _ITERATIONS.wrapped(hit):
        yield _rated(hit.state, record) if isinstance(record, Reading) else record


def _step_time(hit: Hit) -> Iterable[Record]:
    """The time has two decimals, the iteration line has the same with more: only the rate is taken."""
    _keep(hit.state, real(hit.group(1)))
    return ()


def _initialised(hit: Hit) -> Iterable[Record]:
    return banner(hit, "initialised")


def _configured(hit: Hit) -> Iterator[Record]:
    yield from banner(hit, _SUMMARY)
    hit.state[_SUMMARY] = {}
    hit.open(_SUMMARY, _SUMMARY_LINES)


_KEY: Final = re.compile(rb"^ {2}([a-z]\w{1,60}): ('?[\w.:-]{1,40}'?)(?: +\(Mcore default: .{1,200}\))?$")
_HEAD: Final = re.compile(
    rb"^(?:={20,}|-{20,}|\[\w{1,30}\].{0,100}:|Configuration Summary .*|Other Config.*| *)$"
)


def _configuration(hit: Hit) -> Iterator[Record]:
    """Take a line of the summary; the settings come with the rule that ends it."""
    kept: Any = hit.state.get(_SUMMARY)
    found = _KEY.match(hit.text)
    if found is not None and isinstance(kept, dict):
        kept.setdefault(found[1].decode(), found[2].decode().strip("'"))
        return
    if _HEAD.match(hit.text) and not (kept and hit.text.startswith(b"=")):
        return
    hit.close(_SUMMARY)
    hit.state.pop(_SUMMARY, None)
    if kept:
        data = dumped(kept)
        if data.get("log_interval"):
            hit.state["log_interval"] = data["log_interval"]
        names: dict[str, Json] = {"framework": _NAME, "reported_convention": _CONVENTION}
        yield hit.event_of(Kind.SETTING, data | names)


def _grid(hit: Hit) -> Iterator[Record]:
    """The layout where process groups are made by its own grid; its sizes multiply to the world."""
    tensor, pipeline, context, data = (hit.count(name) or 1 for name in ("tp", "pp", "cp", "dp"))
    yield from banner(hit, "grid")
    yield hit.event(
        Kind.SETTING,
        gpus=prod((tensor, pipeline, context, data)),
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        context_parallel=context,
        data_parallel=data,
    )


def _loop(hit: Hit) -> Iterator[Record]:
    step = hit.count(1)
    if step is not None:
        yield from resume(hit, step)
        yield hit.event(Kind.TRAIN_START)


READER: Final = Reader(
    (
        rule(
            b"GPU utilization: ",
            rb"Step Time : [\d.]{1,12}s GPU utilization: ([\d.]{1,12}) ?(?:MODEL_)?TFLOP/s/GPU",
            _step_time,
        ),
        rule(GATE, ITERATION, _iteration),
        rule(b"initialize megatron (s", rb"time to initialize megatron \(seconds\): \d", _initialised),
        rule(b"Configuration Summary", rb"^Configuration Summary \(Non-Default Values", _configured),
        rule(
            b"HyperCommGrid with",
            rb"initialized HyperCommGrid with tp=(?P<tp>\d{1,6}), pp=(?P<pp>\d{1,6}), cp=(?P<cp>\d{1,6}), "
            rb"dp=(?P<dp>\d{1,6})",
            _grid,
        ),
        rule(b"training loop at iter", rb"Starting training loop at iteration (\d{1,18})\b", _loop),
        *family(_NAME, _CONVENTION),
        *EVENTS,
    ),
    followers={WRAPPED: _wrapped, ARGUMENTS: argument, _SUMMARY: _configuration, **EVENT_FOLLOWERS},
    hot=_ITERATIONS,
)

_MARKS: Final = (
    (97, re.compile(rb"Step Time : [\d.]{1,12}s GPU utilization: [\d.]{1,12} ?(?:MODEL_)?TFLOP/s/GPU"), ""),
    (97, re.compile(rb"Configuration Summary \(Non-Default Values vs Megatron Core\)"), ""),
    (96, re.compile(rb"Starting training loop at iteration \d{1,18}\b"), ""),
    (
        96,
        re.compile(rb"\(after \d{1,18} iterations\) memory \(GB\)"),
        "memory in GB after the first iterations",
    ),
)


def detect(head: bytes) -> Evidence | None:
    """Find what it prints beyond Megatron-LM's lines."""
    for score, pattern, text in _MARKS:
        if found := pattern.search(head):
            return Evidence(score=score, text=text or found[0].decode("ascii", "replace"))
    return None


COLLECTOR: Final = Collector(
    name="megatron_bridge",
    framework="Megatron-Bridge v0.1 to v0.6",
    version=1,
    parse=READER.parse,
    detect=detect,
    knows=(
        "step",
        "samples",
        "step time",
        "time",
        "batch",
        "checkpoints",
        "evaluation",
        "restarts",
        "completion",
        "reported TFLOP/s",
    ),
    needs=(
        "hardware.gpus where no scheduler tells it: the log does not print the world size",
        "model.sequence_length where the configuration summary is not in the log (before v0.2)",
    ),
    notes=(
        "`GPU utilization` is model TFLOP/s of a GPU; 0 for hybrid models, which is read as unknown. Times "
        "are local, without a zone ([run] timezone)."
    ),
)
