"""nanoGPT logs: `iter 1631: loss 4.0863, time 561.94ms, mfu 32.10%`, from rank 0.

Pure. Plain print, without a stamp unless the log's carrier adds one. Traps: `time` is of the last iteration
alone, and in the first line after an evaluation it holds the evaluation and the save; `mfu` is smoothed,
-100 % for the first five iterations of a process, and always against one A100's 312 TFLOP/s; `iter` counts
from 0, and the `step N:` of an evaluation counts steps done.
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
    durable,
    ends,
    launched,
    process,
    progress,
    resolution,
    resumed,
    setting,
    settings,
)
from collectors._swift import Match, Memory, Swift, Taken
from collectors._text import real, scaled, seconds_us
from tracker.core.records import Kind, Reading, Record
from tracker.interfaces import Collector, Evidence

_NAME: Final = "nanoGPT"
_PEAK_FLOP_PER_S: Final = 312e12
_CONVENTION: Final = (
    "6N + 12 L H Q T (attention in full), recompute not counted; MFU against 312 TFLOP/s (A100)"
)


def _iteration(hit: Hit) -> Iterator[Record]:
    """The first line after an evaluation: what it took beyond a usual iteration was the evaluation."""
    iteration, time_us, mfu = hit.count("iter"), seconds_us(hit.group("ms"), 1000), hit.number("mfu")
    if iteration is None or not time_us:
        yield hit.reject("torn iteration line")
        return
    one = process(hit)
    step, at_us = iteration + 1, hit.stamp_us()
    evaluated = one.pop("evaluated", None)
    usual: int | None = one.get("usual")
    if evaluated is None:
        one["usual"] = usual = time_us
    reading = _reading(step, usual, hit.group("loss"), mfu, at_us, hit.offset, one)
    yield from settings(hit, {"reported_convention": _CONVENTION} if reading.reported_flop_per_s else {})
    yield from progress(hit, reading)
    yield from _stopped(hit, one, evaluated, time_us, usual)
    if iteration == setting(hit, "target_steps"):
        yield from completed(hit)


def _reading(
    step: int,
    usual_us: int | None,
    loss: bytes | None,
    mfu: float | None,
    at_us: int | None,
    offset: int,
    one: Memory,
) -> Reading:
    return Reading(
        offset,
        at_us,
        step,
        usual_us,
        flags=resolution(at_us) | (SAMPLE if usual_us else 0) | (NAN if real(loss) is None else 0),
        reported_flop_per_s=mfu / 100 * _PEAK_FLOP_PER_S if mfu is not None and mfu > 0 else None,
        tokens_per_step=one.get("settings", {}).get("tokens_per_step"),
    )


def _taken(found: Match, at_us: int | None, offset: int, one: Memory) -> Taken | None:
    iteration, loss, took, mfu = found.groups()
    known, time_us, share = one.get("settings", {}), seconds_us(took, 1000), real(mfu)
    told = known.get("reported_convention") is not None or not share or share <= 0
    if not time_us or "evaluated" in one or "saved" in one or not told:
        return None
    if int(iteration) == known.get("target_steps"):
        return None
    return _reading(int(iteration) + 1, time_us, loss, share, at_us, offset, one), {"usual": time_us}


_SWIFT: Final = Swift(
    b"iter ",
    rb"",
    rb"iter (\d{1,15}): loss ([\d.]{1,20}), time ([\d.]{1,16})ms, mfu (-?[\d.]{1,12})%\n",
    _taken,
)


def _stopped(
    hit: Hit, one: dict[str, Any], evaluated: int | None, time_us: int, usual: int | None
) -> Iterator[Record]:
    """Training went on, so the file is written; without a clock only this line tells how long it all took."""
    if (saved := one.pop("saved", None)) is not None:
        yield from durable(hit, saved)
    if evaluated is not None and hit.stamp_us() is None and usual and time_us > usual:
        yield hit.event(Kind.EVAL_END, step=evaluated, duration_us=time_us - usual)


def _evaluated(hit: Hit) -> Iterator[Record]:
    """Also the first thing that a process does: the step that it has is the one that it went on from."""
    step = hit.count("step")
    if step is None:
        return
    one = process(hit)
    if one.pop("loaded", None):
        yield from resumed(hit, step)
        one = process(hit)
    one["at"] = one["evaluated"] = step
    if hit.stamp_us() is not None:
        yield from ends(hit, Kind.EVAL_END, step, alone=True)


def _saves(hit: Hit) -> Iterator[Record]:
    step = process(hit).get("at")
    if step is not None:
        process(hit)["saved"] = step
        yield from begins(hit, Kind.SAVE_START, step)


def _loaded(hit: Hit) -> Iterator[Record]:
    process(hit)["loaded"] = True
    return iter(())


def _parameters(hit: Hit) -> Iterator[Record]:
    found = scaled(hit.group("n"))
    yield from settings(hit, {"parameters": found[0] if found else None})


_READER: Final = Reader(
    (
        rule(
            b"iter ",
            rb"iter (?P<iter>\d{1,18}): loss (?P<loss>\S{1,24}), time (?P<ms>[\d.]{1,16})ms"
            rb"(?:, mfu (?P<mfu>-?[\d.]{1,12})%)?",
            _iteration,
        ),
        rule(b": train loss ", rb"step (?P<step>\d{1,18}): train loss \S{1,24}, val loss ", _evaluated),
        rule(b"saving checkpoint to", rb"^saving checkpoint to \S", _saves),
        rule(
            b"tokens per iteration",
            rb"tokens per iteration will be: (?P<n>[\d,]{1,20})",
            lambda hit: _started(hit),
        ),
        rule(b"number of parameters", rb"number of parameters: (?P<n>[\d.,]{1,16}[KMB]?)", _parameters),
        rule(b"max_iters = ", rb"^(?:Overriding: )?max_iters = (?P<n>\d{1,15})\b", lambda hit: _target(hit)),
        rule(b"Resuming training fr", rb"^Resuming training from \S", _loaded),
        rule(
            b"Initializing ", rb"^Initializing (?:a new model from scr|from OpenAI)", lambda h: resumed(h, 0)
        ),
        *EVENTS,
    ),
    followers=FOLLOWERS,
    hot=_SWIFT,
)


def _started(hit: Hit) -> Iterator[Record]:
    """Every rank prints it, before anything else."""
    yield from launched(hit, "tokens", _NAME)
    yield from settings(hit, {"tokens_per_step": hit.count("n")})


def _target(hit: Hit) -> Iterator[Record]:
    """The configuration is printed before the process has said anything of its own."""
    yield from launched(hit, "config", _NAME)
    yield from settings(hit, {"target_steps": hit.count("n")})


def detect(head: bytes) -> Evidence | None:
    """Find its iteration line, or what it prints as it starts."""
    if found := _LINE.search(head):
        return Evidence(score=96, text=found[0].decode("ascii", "replace"))
    if _START.search(head):
        return Evidence(score=90, text="tokens per iteration will be: ...")
    return None


_LINE: Final = re.compile(rb"\biter \d{1,18}: loss \S{1,24}, time [\d.]{1,16}ms")
_START: Final = re.compile(rb"\btokens per iteration will be: [\d,]{1,20}\b")

COLLECTOR: Final = Collector(
    name="nanogpt",
    framework="nanoGPT, 2023 to 2025",
    version=1,
    parse=_READER.parse,
    detect=detect,
    knows=("tokens", "step time", "parameters", "evaluation", "saves", "resume", "reported MFU"),
    needs=(
        "hardware.gpus",
        "source.started_at where neither stamps nor a scheduler tell the time",
    ),
    notes=(
        "The printed time is that of one iteration out of log_interval: without stamps the run's time is its "
        "sum, an estimate. What an evaluation took is known from the line after it."
    ),
)
