"""NeMo 1 and 2: the progress bar of one and the progress lines of the other.

Pure. What stands around the progress is in `_nemo`. Traps of the bar: many states on one line between
carriage returns; consumed_samples has three digits, and so has global_step where it has an exponent (then the
bar's own count, shifted, is the step); the count may begin at 0 after a resume. Traps of the lines: every
number but global_step is a mean over the log interval, and the first line after a resume divides by the
whole interval although fewer steps ran; val_loss is repeated. Neither has a clock: the bar has one of its
own, which starts anew with each process. "failed with: Traceback" at start-up is no failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from collectors._clock import stamp_us
from collectors._events import EVENTS
from collectors._events import FOLLOWERS as EVENT_FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._nemo import FOLLOWERS, RULES
from collectors._own import first_sign
from collectors._process import (
    EXCLUDES,
    INCLUDES,
    NAN,
    SAMPLE,
    begins,
    done,
    elapsed_s,
    ends,
    process,
    progress,
    resolution,
    setting,
    settings,
)
from collectors._swift import Match, Memory, Swift, Taken
from collectors._text import real
from tracker.core.records import Json, Kind, Reading, Record
from tracker.interfaces import Collector, Evidence

_CONVENTION: Final = "model FLOP by NeMo's formulas, attention causal (halved), recompute not counted"


def _fields(text: bytes, apart: bytes, between: bytes) -> dict[bytes, bytes]:
    pieces = (piece.partition(between) for piece in text.split(apart))
    return {key.strip(): value.strip() for key, found, value in pieces if found}


# -- NeMo 2: a line every log interval ---------------------------------------------------------------------


def _line(hit: Hit) -> Iterator[Record]:
    """`Training epoch E, iteration N/T | name: value | ...`; global_step is that of the last step, from 0."""
    found = _fields(hit.group("rest") or b"", b" | ", b":")
    step = real(found.get(b"global_step", hit.group("n")))
    if step is None or (b"reduced_train_loss" not in found and b"train_step_timing in s" not in found):
        yield hit.reject("torn progress line")
        return
    one = process(hit)
    first = not one.get("ran") and one.get("resumed", [0])[0] != 0
    batch, seconds = real(found.get(b"global_batch_size")), real(found.get(b"train_step_timing in s"))
    known = setting(hit, "global_batch_size") or hit.state.get("batch")
    if (
        first and batch is not None and isinstance(known, int)
    ):  # fewer steps than it divides by: the batch shows how many
        seconds = seconds * known / batch if seconds and 0 < batch < known else seconds
        batch = float(known)
    elif first:
        batch = seconds = None
    whole_batch = _whole(batch)
    if whole_batch is not None:
        hit.state["batch"] = one["batch"] = whole_batch
    yield from _made(
        hit, _reading(int(step) + 1, found, seconds, EXCLUDES, whole_batch, hit.stamp_us(), hit.offset)
    )


def _whole(batch: float | None) -> int | None:
    return int(batch) if batch is not None and batch == int(batch) and batch > 0 else None


def _taken(found: Match, at_us: int | None, offset: int, one: Memory) -> Taken | None:
    """Take a line that is not the first of a process."""
    fields, known = _fields(found[2], b" | ", b":"), one.get("settings", {})
    step, batch = real(fields.get(b"global_step", found[1])), _whole(real(fields.get(b"global_batch_size")))
    if step is None or b"reduced_train_loss" not in fields:
        return None
    if batch is not None and not (known.get("global_batch_size") == one.get("batch") == batch):
        return None
    seconds = real(fields.get(b"train_step_timing in s"))
    reading = _reading(int(step) + 1, fields, seconds, EXCLUDES, batch, at_us, offset)
    if reading.reported_flop_per_s is not None and "reported_convention" not in known:
        return None
    return reading, {}


_SWIFT: Final = Swift(
    b"Training epoch ",
    rb"",
    rb"Training epoch \d{1,9}, iteration (\d{1,15})/\d{1,15}"
    rb"((?: \| [A-Za-z][\w /-]{1,60}: [\d.einfa+-]{1,24}){1,20})\n",
    _taken,
)


def _reading(
    step: int,
    found: dict[bytes, bytes],
    seconds: float | None,
    covers: int,
    batch: int | None,
    at_us: int | None,
    offset: int,
) -> Reading:
    tflop, loss = real(found.get(b"TFLOPS_per_GPU")), found.get(b"reduced_train_loss", b"0")
    flags = resolution(at_us) | (NAN if real(loss) is None else 0)
    flags |= covers if seconds else 0
    if tflop is not None and tflop <= 0:  # -1: its model is not supported
        tflop = None
    return Reading(
        offset,
        at_us,
        step,
        round(seconds * 1e6) or None if seconds and seconds < 1e9 else None,
        batch=batch,
        flags=flags,
        reported_flop_per_s=None if tflop is None else tflop * 1e12,
    )


def _made(hit: Hit, reading: Reading) -> Iterator[Record]:
    told = reading.reported_flop_per_s is not None
    known: dict[str, Json] = {"reported_convention": _CONVENTION if told else None}
    known["global_batch_size"] = reading.batch
    yield from settings(hit, known, at_us=reading.at_us)
    yield from progress(hit, reading)


def _validation(hit: Hit) -> Iterator[Record]:
    """Neither start nor end of a validation has a time; the sanity check before training is none."""
    n, total = hit.count("n"), hit.count("total")
    if hit.group("sanity") is None:
        yield from begins(hit, Kind.EVAL_START, done(hit))
        if n is not None and n == total:
            yield from ends(hit, Kind.EVAL_END)


# -- the bar: NeMo 1, and NeMo 2 with tqdm -----------------------------------------------------------------

_BAR: Final = (
    rb"Epoch (?P<epoch>\d{1,9}): [^\n]{0,600}?\b(?P<n>\d{1,15})(?:/(?P<total>\d{1,15}|\?))?(?:it)? "
    rb"\[(?P<elapsed>\d{1,6}(?::\d\d){1,2})(?:<[^,\]]{1,24})?"
    rb"(?:, {1,8}(?P<rate>[\d.]{1,12})(?P<unit>s/it|it/s))?"
    rb"(?P<rest>[^\]\n]{0,1200})"
)


def _bar(hit: Hit) -> Iterator[Record]:
    """One state of the bar. Of those of one second the first is kept: they come several a second."""
    found = _fields(hit.group("rest") or b"", b",", b"=")
    step, n = _step_of_bar(hit, found.get(b"global_step", b"")), hit.count("n")
    if step is None or n is None:
        yield hit.reject("global_step is rounded and the resume is not in the log")
        return
    one = process(hit)
    elapsed = elapsed_s(hit.group("elapsed") or b"0")
    kept = one.get("bar")
    start, before_s = kept or (_bar_began(hit, step, n), 0)
    if kept and elapsed < before_s:  # a new epoch draws a new bar
        before_s = 0
    if elapsed <= before_s or (start is not None and step <= start):
        return
    one["bar"] = [step, elapsed]
    at_us = stamp_us(hit.line.stamp, hit.context) if hit.line.stamp else None
    timing, rate = real(found.get(b"train_step_timing in s")), real(hit.group("rate"))
    if at_us is None and start is not None:
        seconds, covers = (elapsed - before_s) / (step - start), INCLUDES
    else:
        covers = SAMPLE
        seconds = timing or (rate if not rate or hit.group("unit") == b"s/it" else 1 / rate) or 0.0
    batch = _whole(real(found.get(b"global_batch_size")))
    yield from _made(hit, _reading(step, found, seconds, covers, batch, at_us, hit.offset))


def _step_of_bar(hit: Hit, printed: bytes) -> int | None:
    """Return the steps done: global_step + 1 where it is exact, else the bar's count with its last shift."""
    one, n, epoch = process(hit), hit.count("n"), hit.group("epoch")
    value = real(printed)
    if value is None or n is None or epoch is None:
        return None
    if b"e" not in printed:
        step = int(value) + 1
        one["shift"] = [int(epoch), step - n]
        return step
    shift: Any = one.get("shift")
    if shift is not None and shift[0] == int(epoch):
        return int(n + shift[1])
    if shift is not None:  # the bar begins anew with an epoch
        one["shift"] = [int(epoch), done(hit) or 0]
        return n + (done(hit) or 0)
    since = one.get("resumed", [None])[0]
    for candidate in (0, since):  # the bar's count is of the run, or of the process
        if candidate is not None and abs(n + candidate - 1 - value) <= max(0.006 * value, 1):
            one["shift"] = [int(epoch), candidate]
            return int(n + candidate)
    return None


def _bar_began(hit: Hit, step: int, n: int) -> int | None:
    """Return the step at which the bar's clock began: the resume's, else where its own count began."""
    one = process(hit)
    resume: Any = one.get("resumed")
    if resume is not None and resume[0] is not None and resume[0] < step:
        return int(resume[0])
    return step - n if step != n or "marks" in one else None


_READER: Final = Reader(
    (
        rule(
            b"Training epoch ",
            rb"Training epoch \d{1,9}, iteration (?P<n>\d{1,15})/\d{1,15}(?P<rest>.*)$",
            _line,
        ),
        rule(b", global_step=", _BAR, _bar),
        rule(
            b"Validation: iteration ",
            rb"(?P<sanity>Sanity checking )?Validation: iteration (?P<n>\d{1,9})/(?P<total>\d{1,9})",
            _validation,
        ),
        *RULES,
        *EVENTS,
    ),
    followers={**FOLLOWERS, **EVENT_FOLLOWERS},
    hot=_SWIFT,
)

_MARKS: Final = (
    (
        95,
        re.compile(
            rb"Training epoch \d{1,9}, iteration \d{1,15}/\d{1,15} \| "
            rb"[^\n]{0,400}\b(?:global_step|reduced_train_loss): "
        ),
        "progress lines of NeMo 2",
    ),
    (
        95,
        re.compile(rb"Epoch \d{1,9}: [^\n]{0,600}, global_step=[\d.e+]{1,12}, consumed_samples="),
        "a progress bar of NeMo",
    ),
    (80, re.compile(rb"\[NeMo [IW] \d{4}-\d\d-\d\d \d\d:\d\d:\d\d "), "its logger's prefix"),
)


def detect(head: bytes) -> Evidence | None:
    """Find its progress lines or bar; its logger's prefix alone is also in logs of other formats."""
    return first_sign(head, _MARKS)


COLLECTOR: Final = Collector(
    name="nemo",
    framework="NeMo 1.x (progress bar) and 2.x (progress lines or bar)",
    version=1,
    parse=_READER.parse,
    detect=detect,
    knows=("step time", "gpus", "batch (NeMo 2)", "saves", "resume", "completion", "reported TFLOP/s"),
    needs=(
        "model.sequence_length (NeMo 2 does not print it)",
        "model.global_batch_size where neither the configuration nor the lines have it (NeMo 1)",
        "source.started_at where no scheduler tells the time",
    ),
    notes=(
        "Progress has no clock. A bar is one long line until a newline ends it, so a live view of it lags. "
        "Means of the first line after a resume are corrected by the batch."
    ),
)
