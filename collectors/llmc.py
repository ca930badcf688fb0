"""llm.c: its `main.log` (`s:19558 trl:3.3148 lr:0.000000 norm:0.22`) and what it prints.

Pure. Both print one line a step, from rank 0. Traps: `main.log` has no time at all, and its steps count from
0; the printed ones from 1; `tok/s` is smoothed, of the cluster; an evaluation stands before the step that
follows it; a fresh start wipes `main.log`, a resume appends to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._process import (
    EXCLUDES,
    NAN,
    begins,
    completed,
    done,
    durable,
    ends,
    launched,
    process,
    progress,
    resolution,
    settings,
)
from collectors._swift import Match, Memory, Swift, Taken
from collectors._text import real, seconds_us
from tracker.core.records import Json, Kind, Reading, Record
from tracker.interfaces import Collector, Evidence

_NAME: Final = "llm.c"
_CONVENTION: Final = "6N + 6 L C T (attention halved), recompute not counted"


def _logged(hit: Hit) -> Iterator[Record]:
    """A line of main.log."""
    step = hit.count("s")
    if step is None or hit.group("loss") is None:
        yield hit.reject("torn step line")
        return
    flags = NAN if hit.number("loss") is None else 0
    yield from progress(hit, Reading(hit.offset, hit.stamp_us(), step + 1, flags=flags))


def _scored(hit: Hit) -> Iterator[Record]:
    """Validation and HellaSwag of one step: one evaluation."""
    yield from ends(hit, Kind.EVAL_END, hit.count("s"), alone=True)


def _step(hit: Hit) -> Iterator[Record]:
    """A printed line. Its time is the step's own: evaluations, samples and saves stand between the steps."""
    step, time_us = hit.count("step"), seconds_us(hit.group("ms"), 1000)
    if step is None or not time_us:
        yield hit.reject("torn step line")
        return
    one = process(hit)
    reading = _reading(step, time_us, hit.group("loss"), hit.number("mfu"), hit.stamp_us(), hit.offset, one)
    reading = reading._replace(skipped=one.pop("skipped", 0))
    yield from settings(hit, {"reported_convention": _CONVENTION} if reading.reported_flop_per_s else {})
    yield from progress(hit, reading)
    if (saved := one.pop("saved", None)) is not None:
        yield from durable(hit, saved)


def _reading(
    step: int,
    time_us: int,
    loss: bytes | None,
    share: float | None,
    at_us: int | None,
    offset: int,
    one: Memory,
) -> Reading:
    peak = one.get("peak")
    return Reading(
        offset,
        at_us,
        step,
        time_us,
        flags=resolution(at_us) | EXCLUDES | (NAN if real(loss) is None else 0),
        reported_flop_per_s=share / 100 * peak if peak and share is not None and share > 0 else None,
        tokens_per_step=one.get("settings", {}).get("tokens_per_step"),
    )


def _taken(found: Match, at_us: int | None, offset: int, one: Memory) -> Taken | None:
    step, loss, took, mfu = found.groups()
    time_us = seconds_us(took, 1000)
    if not time_us or "skipped" in one or "saved" in one:
        return None
    reading = _reading(int(step), time_us, loss, real(mfu), at_us, offset, one)
    if reading.reported_flop_per_s and one.get("settings", {}).get("reported_convention") is None:
        return None
    return reading, {}


_SWIFT: Final = Swift(
    b" | loss ",
    rb"",
    rb"step +(\d{1,15})/\d{1,15} \| loss ([\d.]{1,20}) \([^)\n]{0,20}\)\| norm [^|\n]{1,60}\| lr \S{1,16} "
    rb"\| ([\d.]{1,16}) ms \| (-?[\d.]{1,9})% \w{1,8} MFU \| \d{1,16} tok/s\n",
    _taken,
)


def _skips(hit: Hit) -> Iterator[Record]:
    process(hit)["skipped"] = 1
    return iter(())


def _saves(hit: Hit) -> Iterator[Record]:
    step = hit.count(1)
    process(hit)["saved"] = step
    return begins(hit, Kind.SAVE_START, step)


_COUNTS: Final = {
    "micro batch size B": "micro_batch_size",
    "sequence length T": "sequence_length",
    "total batch size": "tokens_per_step",
    "checkpoint_every": "save_interval",
    "val_loss_every": "eval_interval",
    "vocab_size V": "vocab_size",
    "num_layers L": "layers",
    "num_heads NH": "heads",
    "channels C": "hidden_size",
    "num_parameters": "parameters",
    "train_num_batches": "target_steps",
    "num_processes": "gpus",
}


def _row(hit: Hit) -> Iterator[Record]:
    """The table that it prints as it starts, a value a row."""
    name, value = hit.word("name") or "", hit.count("value")
    word = (hit.word("value") or "")[:80]
    found: dict[str, Json] = {}
    if name in _COUNTS and value:
        found[_COUNTS[name]] = value
    elif name == "device":
        found["gpu_name"] = word
    elif name == "precision":
        found["precision"] = word.lower()
    elif name == "peak TFlops":
        peak = hit.number("value")
        process(hit)["peak"] = peak * 1e12 if peak and peak > 0 else None
    yield from settings(hit, found)


_READER: Final = Reader(
    (
        rule(b" trl:", rb"^s:(?P<s>\d{1,18}) trl:(?:(?P<loss>\S{1,24}) lr:\S{1,16} norm:\S)?", _logged),
        rule(b"s:", rb"^s:(?P<s>\d{1,18}) (?:tel|eval):\S", _scored),
        rule(
            b" | loss ",
            rb"^step +(?P<step>\d{1,18})/\d{1,18} \| loss (?P<loss>\S{1,24}) \([^)]{0,20}\)\| norm "
            rb"(?:[^|]{1,60}\| lr \S{1,16} \| (?P<ms>[\d.]{1,16}) ms \| (?P<mfu>-?[\d.]{1,9})% \w{1,8} MFU)?",
            _step,
        ),
        rule(b"| Parameter  ", rb"^\| Parameter +\| Value +\|", lambda hit: launched(hit, "table", _NAME)),
        rule(b"| ", rb"^\| (?P<name>\w[\w ()]{0,30}?) +\| (?P<value>\S.{0,200}?) *\|$", _row),
        rule(b"val loss ", rb"^val loss \S", lambda hit: ends(hit, Kind.EVAL_END, done(hit), alone=True)),
        rule(b"HellaSwag: ", rb"^HellaSwag: \d", lambda h: ends(h, Kind.EVAL_END, done(h), alone=True)),
        rule(b"skipping update due", rb"^skipping update due to ", _skips),
        rule(b"Writing checkpoint", rb"^Writing checkpoint at step (\d{1,18})\b", _saves),
        rule(b"total average iter", rb"^total average iteration time: ", lambda hit: completed(hit)),
        *EVENTS,
    ),
    followers=FOLLOWERS,
    hot=_SWIFT,
)


def detect(head: bytes) -> Evidence | None:
    """Find a line of main.log, a printed step, or the table."""
    for pattern, score in ((_LOGGED, 97), (_STEP, 96), (_TABLE, 92)):
        if found := pattern.search(head):
            return Evidence(score=score, text=found[0].decode("ascii", "replace")[:60])
    return None


_LOGGED: Final = re.compile(rb"^s:\d{1,18} (?:tel|trl|eval):\S{1,16}", re.M)
_STEP: Final = re.compile(rb"^step +\d{1,18}/\d{1,18} \| loss \S{1,24} \([^)]{0,20}\)\| norm ", re.M)
_TABLE: Final = re.compile(rb"^\| micro batch size B +\| \d", re.M)

COLLECTOR: Final = Collector(
    name="llmc",
    framework="llm.c, 2024 to 2025: main.log and standard output",
    version=1,
    parse=_READER.parse,
    detect=detect,
    knows=("tokens", "step time", "gpus", "parameters", "evaluation", "saves", "completion", "reported MFU"),
    needs=(
        "model.tokens_per_step and hardware.gpus for main.log",
        "source.started_at where neither stamps nor a scheduler tell the time",
    ),
    notes="main.log tells neither time nor tokens: read what the program prints, where it was kept.",
)
