"""Megatron-DeepSpeed's log: BLOOM and bigscience, deepspeedai's, GLM-130B's.

Pure. Iteration lines as in Megatron-LM, but the timer never stops (the step time holds evaluation and saves),
the unit is in the key, and `TFLOPs` counts recomputation. The pipeline engine prints lines of its own
(`steps: N loss: L iter time (s): T samples/sec: S`), which count only where no iteration lines come.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from collectors._events import EVENTS
from collectors._events import FOLLOWERS as EVENT_FOLLOWERS
from collectors._iterations import GATE, ITERATION, WRAPPED, Iterations, Swept
from collectors._lines import Hit, Reader, rule
from collectors._megatron import family
from collectors._megatron_start import ARGUMENTS, argument
from collectors._text import seconds_us
from tracker.core.records import Flag, Kind, Reading, Record
from tracker.interfaces import Collector, Context, Evidence

_ENGINE: Final = "engine"
_PRINTED: Final = 0.0005  # three decimals: what rounding for print may have changed


class _Iterations(Iterations):
    """Iteration lines that make the engine's superfluous."""

    def run(
        self, swept: Sequence[tuple[int, Swept]], place: Callable[[int], int], context: Context
    ) -> Iterator[Reading | int]:
        """Do as usual, and remember that there are such lines."""
        if swept:
            context.state[_ENGINE] = False
        return super().run(swept, place, context)


_ITERATIONS: Final = _Iterations(includes=True)


def _iteration(hit: Hit) -> Iterable[Record]:
    hit.state[_ENGINE] = False  # the engine's lines say the same
    return _ITERATIONS.line(hit)


def _engine(hit: Hit) -> Iterable[Record]:
    """The first line waits for a second one: an iteration line between them makes both superfluous."""
    known: Any = hit.state.get(_ENGINE)
    if known is False:
        return
    step, step_time_us = hit.count("step"), seconds_us(hit.group("time"))
    seconds, rate = hit.number("time"), hit.number("rate")
    if step is None or step_time_us is None or seconds is None or rate is None:
        yield hit.reject("a value is not a number")
        return
    sure = _PRINTED * (seconds + rate) < 0.5  # the product is a whole number of sequences
    reading = Reading(
        offset=hit.offset,
        at_us=None,
        step=step,
        step_time_us=step_time_us,
        batch=round(seconds * rate) if sure else None,
        flags=int(Flag.STEP_TIME_EXCLUDES),
    )
    if known is None:
        hit.state[_ENGINE] = list(reading)
        return
    if isinstance(known, list):
        hit.state[_ENGINE] = True
        yield from hit.reading(Reading(*known))
    yield from hit.reading(reading)


def _parameters(hit: Hit) -> Iterable[Record]:
    """Printed by every rank; a shared embedding is counted once in it."""
    count = hit.count(1)
    if hit.state.get("parameters") != count:
        hit.state["parameters"] = count
        yield hit.event(Kind.SETTING, parameters=count)


READER: Final = Reader(
    (
        rule(GATE, ITERATION, _iteration),
        *family("Megatron-DeepSpeed", "hardware FLOP, recomputation counted"),
        rule(
            b"iter time (s): ",
            rb"steps: (?P<step>\d{1,18}) loss: [-+.\dEeinfa]{1,30} iter time \(s\): (?P<time>[\d.]{1,18})"
            rb" samples/sec: (?P<rate>[\d.]{1,18})",
            _engine,
        ),
        rule(b" UNIQUE_PARAMS=", rb" UNIQUE_PARAMS=(\d{1,18}) ", _parameters),
        *EVENTS,
    ),
    followers={WRAPPED: _ITERATIONS.wrapped, ARGUMENTS: argument, **EVENT_FOLLOWERS},
    hot=_ITERATIONS,
)

_LINE: Final = rb"iteration +\d+/ *\d+ \|"
_OWN: Final = (
    (96, _LINE + rb"[^\n]{0,600}samples per second: ", "`samples per second` in iteration lines"),
    (96, _LINE + rb"[^\n]{0,600}lm-loss: ", "`lm-loss` in iteration lines"),
    (93, rb"steps: \d+ loss: [\d.]+ iter time \(s\): ", "the pipeline engine's lines"),
    (92, rb"(?m)^ *(?:\[\w+\]: *)?deepspeed \.{4,} *True", "a deepspeed argument in the dump"),
    (75, _LINE + rb"[^\n]{0,200}elapsed time per iteration \(s\)", "iteration times in seconds"),
)
_DUMP: Final = re.compile(rb"using world size: \d|" + _LINE)
_MARK: Final = re.compile(
    rb"\[deepspeed\]|DeepSpeed (?:info|general|C\+\+/CUDA)|DeepSpeedEngine|deepspeed_config \.{4,}"
)


def detect(head: bytes) -> Evidence | None:
    """Return why a file looks like a Megatron-DeepSpeed log."""
    for score, pattern, text in _OWN:
        if re.search(pattern, head):
            return Evidence(score=score, text=text)
    if (mark := _MARK.search(head)) and _DUMP.search(head):
        return Evidence(score=91, text=f"`{mark[0].decode()}` in a log of the Megatron family")
    return None


COLLECTOR: Final = Collector(
    name="megatron_deepspeed",
    framework="Megatron-DeepSpeed (bigscience, deepspeedai) and GLM-130B, 2021 to 2024",
    version=1,
    parse=READER.parse,
    detect=detect,
    knows=("step", "samples", "tokens", "step time", "GPUs", "checkpoints", "batch"),
    needs=("model.sequence_length, where the argument dump is not in the log",),
    notes=(
        "No line carries a clock: times come from the scheduler or from started_at. The printed step time "
        "holds evaluation and saves; TFLOPs counts recomputation and never becomes MFU."
    ),
)
