"""InternLM and InternEvo logs: `... record_current_batch_training_metrics -- tflops=189.83,step=1,...`.

Pure. Values stand behind known keys, separated by commas in 2023 and by blanks since. Traps: steps count from
0; a key may hold blanks and a value braces, so the line is not split; `tgs` counts padding; tokens consumed
are exact and of the whole run; an update that was dropped prints no line, only the count of dropped ones
goes up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._process import (
    NAN,
    begins,
    ends,
    launched,
    process,
    progress,
    resumed,
    settings,
)
from collectors._swift import AT, Match, Memory, Swift, Taken
from collectors._text import real, seconds_us, whole
from tracker.core.records import Flag, Kind, Reading, Record
from tracker.interfaces import Collector, Evidence

_NAME: Final = "InternEvo"
_FIELD: Final = re.compile(
    rb"(?:^|[ ,])(tflops|step|loss|num_consumed_tokens|inf_nan_skip_batches)=([^\s,{]{1,32})"
)
_CONVENTION: Final = "Megatron's formula: attention in full, recompute counted where checkpointing is on"


def _step(hit: Hit) -> Iterator[Record]:
    """Its rate is of this step alone: stamps make the windows."""
    found = dict(_FIELD.findall(hit.group("rest") or b""))
    step, tokens = whole(found.get(b"step")), whole(found.get(b"num_consumed_tokens"))
    if step is None or tokens is None or b"loss" not in found:
        yield hit.reject("torn step line")
        return
    one, skips = process(hit), whole(found.get(b"inf_nan_skip_batches"))
    reading = _reading(
        step, tokens, found[b"loss"], found.get(b"tflops"), skips, hit.stamp_us(), hit.offset, one
    )
    yield from settings(hit, {"reported_convention": _CONVENTION} if reading.reported_flop_per_s else {})
    yield from progress(hit, reading)
    process(hit)["skips"] = skips


def _reading(
    step: int,
    tokens: int,
    loss: bytes,
    printed: bytes | None,
    skips: int | None,
    at_us: int | None,
    offset: int,
    one: Memory,
) -> Reading:
    tflop, known = real(printed), one.get("skips")
    return Reading(
        offset,
        at_us,
        step + 1,
        tokens=tokens,
        skipped=skips - known if skips is not None and known is not None and skips > known else 0,
        flags=(NAN if real(loss) is None else 0) | (int(Flag.REPORTED_HARDWARE) if tflop else 0),
        reported_flop_per_s=tflop * 1e12 if tflop else None,
    )


def _taken(found: Match, at_us: int | None, offset: int, one: Memory) -> Taken | None:
    tflop, step, loss, tokens, skips = found.groups()
    if one.get("settings", {}).get("reported_convention") is None:
        return None
    count = int(skips)
    return _reading(int(step), int(tokens), loss, tflop, count, at_us, offset, one), {"skips": count}


_SWIFT: Final = Swift(
    b"record_current_batch",
    AT + rb"\t[A-Z]{4,8} \w{1,40}\.py:\d{1,6} in ",
    rb"record_current_batch_training_metrics -- tflops=([\d.]{1,16})[ ,]step=(\d{1,15})[ ,]loss=([\d.]{1,20})"
    rb"[ ,][^\n]{1,1500}?[ ,]num_consumed_tokens=(\d{1,18})[ ,]inf_nan_skip_batches=(\d{1,15})[ ,]"
    rb"[^\n\r]{0,2000}\n",
    _taken,
)


def _new_run(hit: Hit) -> Iterator[Record]:
    """Every rank prints it in 2023, one since; it is said of a run that goes on too: the first step tells."""
    yield from launched(hit, "run", _NAME)


def _goes_on(hit: Hit) -> Iterator[Record]:
    """The folder of a checkpoint is its step; a snapshot's is 0 or 1, and tells nothing."""
    yield from launched(hit, "run", _NAME)
    step = hit.count("step")
    if step is not None and not hit.group("snapshot"):
        yield from resumed(hit, step)


def _saved(hit: Hit) -> Iterator[Record]:
    yield from ends(hit, Kind.SAVE_END, hit.count(1), duration_us=seconds_us(hit.group(2)), alone=True)


_READER: Final = Reader(
    (
        rule(
            b"record_current_batch",
            rb"in record_current_batch_training_metrics -- (?P<rest>.*)$",
            _step,
        ),
        rule(b"New Run ", rb"=====New Run \S{1,40} on host:", _new_run),
        rule(
            b"Resume training from",
            rb"=====Resume training from `[^`]{0,400}?(?P<snapshot>snapshot/)?"
            rb"(?:(?<=/)(?P<step>\d{1,15}))?/?`",
            _goes_on,
        ),
        rule(
            b"at batch count:",
            rb"Saving checkpoint to \S{1,400} at batch count:(\d{1,15})\b",
            lambda hit: begins(hit, Kind.SAVE_START, hit.count(1)),
        ),
        rule(b" save ckpt use ", rb"Step: (\d{1,15}), rank \d{1,7} save ckpt use ([\d.]{1,12}) s", _saved),
        *EVENTS,
    ),
    followers=FOLLOWERS,
    hot=_SWIFT,
)


def detect(head: bytes) -> Evidence | None:
    """Find its step line, or the line with which it starts."""
    if _LINE.search(head):
        return Evidence(score=96, text="in record_current_batch_training_metrics -- tflops=...")
    if found := _START.search(head):
        return Evidence(score=91, text=found[0].decode("ascii", "replace"))
    return None


_LINE: Final = re.compile(rb"in record_current_batch_training_metrics -- tflops=")
_START: Final = re.compile(rb"===========(?:New Run [A-Z][a-z]{2}\d\d_|Resume training from `)")

COLLECTOR: Final = Collector(
    name="internevo",
    framework="InternLM 2023, InternEvo 2024 to 2025",
    version=1,
    parse=_READER.parse,
    detect=detect,
    knows=("tokens", "time", "saves", "resume", "reported TFLOP/s"),
    needs=("hardware.gpus",),
    notes="tgs and tokens count padding. Whether its TFLOP/s hold recomputation depends on model.checkpoint.",
)
