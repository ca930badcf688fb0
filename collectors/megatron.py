"""Megatron-LM's log, of every version and its forks, and its `progress.txt`.

Pure. The iteration lines are read by `_iterations`, the start-up, checkpoint and exit lines by `_megatron`.
`progress.txt` (--log-progress) is one file for all attempts: a line for each start and each checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from collectors._clock import STAMP, stamp_us
from collectors._events import EVENTS
from collectors._events import FOLLOWERS as EVENT_FOLLOWERS
from collectors._iterations import GATE, ITERATION, WRAPPED, Iterations
from collectors._lines import Hit, Reader, rule, started
from collectors._megatron import family
from collectors._megatron_start import ARGUMENTS, argument
from collectors._text import real
from tracker.core.records import Flag, Kind, Reading, Record
from tracker.interfaces import Collector, Evidence

_TOKENS: Final = re.compile(rb"\tTokens \(in billions\): ([\d.]{1,18})")
_STEP: Final = re.compile(rb"\tIteration: (\d{1,18})\b")


def _progress(hit: Hit) -> Iterable[Record]:
    """`time, job, GPUs, what`: tokens are printed with two decimals of a billion, steps exactly."""
    at_us = stamp_us(hit.match["at"], hit.context)
    if at_us is None:
        yield hit.reject("time stamp outside 2000..2100")
        return
    what = hit.word("what")
    if what == "Starting job":
        started(hit.state)
        yield hit.event(Kind.LAUNCH, at_us=at_us, job_id=hit.word("job") or None)
        yield hit.event(Kind.SETTING, at_us=at_us, gpus=hit.count("gpus"), framework="Megatron-LM")
        return
    found = _STEP.search(hit.text)
    if found is None:
        yield hit.reject("torn progress line")
        return
    step = int(found[1])
    if what == "Saved async checkpoint":
        yield hit.event(Kind.SAVE_DURABLE, at_us=at_us, step=step)
        return
    tokens = _TOKENS.search(hit.text)
    billions = real(tokens[1]) if tokens else None
    yield from hit.reading(
        Reading(
            offset=hit.offset,
            at_us=at_us,
            step=step,
            tokens=None if billions is None else round(billions * 1e9),
            flags=int(Flag.WHOLE_SECOND | (Flag.ROUNDED if billions is not None else 0)),
        )
    )
    asynchronous = True if what == "Saving async checkpoint" else None
    yield hit.event(Kind.SAVE_END, at_us=at_us, step=step, **{"async": asynchronous})


_ITERATIONS: Final = Iterations(includes=None)

READER: Final = Reader(
    (
        rule(GATE, ITERATION, _ITERATIONS.line),
        *family("Megatron-LM", "model FLOP, recomputation not counted"),
        rule(
            b"\t# GPUs: ",
            rb"(?P<at>" + STAMP + rb")\tJob ID: (?P<job>\S{0,40})\t# GPUs: (?P<gpus>\d{1,7})"
            rb"\t(?P<what>Starting job|Sav(?:ed|ing)(?: async)? checkpoint)",
            _progress,
        ),
        *EVENTS,
    ),
    followers={WRAPPED: _ITERATIONS.wrapped, ARGUMENTS: argument, **EVENT_FOLLOWERS},
    hot=_ITERATIONS,
)

_LINE: Final = rb"iteration +\d+/ *\d+ \|"
_FORK: Final = re.compile(rb"samples per second: [\d.]+ \| TFLOPs|lm-loss: |DeepSpeed|deepspeed|\blm_loss: ")
_OWN: Final = (
    (97, rb"\tJob ID: \S{0,40}\t# GPUs: \d", "progress.txt lines with a job id and GPUs"),
    (82, rb"\[" + STAMP + rb"\] " + _LINE, "iteration lines that begin with a stamp"),
    (80, _LINE + rb"[^\n]{0,300}throughput per GPU \(TFLOP/s/GPU\)", "throughput per GPU in iteration lines"),
    (60, _LINE + rb"[^\n]{0,60}?elapsed time per iteration", "iteration lines"),
    (55, rb"using world size: \d+.{0,200}model-parallel size: \d", "the world size banner"),
    (50, rb"after megatron is initialized\] datetime: ", "the line `after megatron is initialized`"),
)


def detect(head: bytes) -> Evidence | None:
    """Return why a file looks like Megatron-LM's own log; a fork's marks leave little of the claim."""
    for score, pattern, text in _OWN:
        if re.search(pattern, head):
            if score <= 82 and (mark := _FORK.search(head)):
                return Evidence(
                    score=30, text=f"{text}, but a fork's `{mark[0].decode('utf-8', 'replace')}` too"
                )
            return Evidence(score=score, text=text)
    return None


COLLECTOR: Final = Collector(
    name="megatron",
    framework="Megatron-LM v1.0 to core_v0.19 and progress.txt; swiss-ai, Primus, FlagPerf, MindSpeed",
    version=1,
    parse=READER.parse,
    detect=detect,
    knows=(
        "step",
        "samples",
        "step time",
        "time (since core_v0.8.0)",
        "GPUs",
        "checkpoints",
        "restarts",
        "batch",
    ),
    needs=("model.sequence_length, where the argument dump is not in the log",),
    notes=(
        "Times are local without a zone ([run] timezone). Before core_v0.8.0 lines carry no clock, and "
        "before core_v0.5.0 the printed step time holds evaluation and saves. Give either the log or "
        "progress.txt of a run, not both."
    ),
)
