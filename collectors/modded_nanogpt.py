"""modded-nanogpt records: `step:13/20344 train_loss:8.7964 train_time:5086ms step_avg:1695.46ms`.

Pure. Traps: the file begins with the program's whole source, whose print templates look like records;
`train_time` counts up, without validation, and in logs before 2025-02 starts again after step 10, which is
no restart; `step_avg` is `nan` until step 12; the line of a validation repeats its step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Reader, rule
from collectors._process import EXCLUDES, NAN, completed, launched, process, progress, resolution, settings
from collectors._swift import Match, Memory, Swift, Taken
from collectors._text import real, seconds_us
from tracker.core.records import Kind, Reading, Record
from tracker.interfaces import Collector, Evidence

_NAME: Final = "modded-nanogpt"


def _record(hit: Hit) -> Iterator[Record]:
    """Time since the line before, divided by the steps since: so the parts sum to the printed total."""
    step, total_us = hit.count("step"), seconds_us(hit.group("ms"), 1000)
    target = hit.count("target")
    if step is None or target is None or total_us is None:
        yield hit.reject("torn step line")
        return
    one = process(hit)
    before = one.get("total") or [0, 0]
    if step > before[0]:
        one["total"] = [step, total_us]
        yield from progress(
            hit, _reading(step, total_us, before, hit.group("loss"), hit.stamp_us(), hit.offset)
        )
    gpus = one.pop("devices", None)
    yield from settings(hit, {"target_steps": target, "gpus": gpus, "gpu_name": one.get("device")})
    if hit.group("validates"):
        yield hit.event(Kind.EVAL_END, step=step)
        if step == target:
            yield from completed(hit)


def _reading(
    step: int, total_us: int, before: list[int], loss: bytes | None, at_us: int | None, offset: int
) -> Reading:
    took_us = total_us - before[1] if total_us >= before[1] else total_us
    steps = step - before[0]
    broken = loss is not None and real(loss) is None
    return Reading(
        offset,
        at_us,
        step,
        took_us // steps or None,
        flags=resolution(at_us) | (EXCLUDES if took_us >= steps else 0) | (NAN if broken else 0),
    )


def _taken(found: Match, at_us: int | None, offset: int, one: Memory) -> Taken | None:
    step, target, loss, total = int(found[1]), int(found[2]), found[3], int(found[4]) * 1000
    before = one.get("total")
    if not before or step <= before[0] or "devices" in one:
        return None
    if one.get("settings", {}).get("target_steps") != target:
        return None
    return _reading(step, total, before, loss, at_us, offset), {"total": [step, total]}


_SWIFT: Final = Swift(
    b"step:",
    rb"",
    rb"step:(\d{1,15})/(\d{1,15}) (?:train_loss:([\d.]{1,20}) )?train_time:(\d{1,15})ms "
    rb"step_avg:[\d.na]{1,16}ms\n",
    _taken,
)


def _device(hit: Hit) -> Iterator[Record]:
    """The table of nvidia-smi: the last number tells how many; all are on this one node."""
    one, number = process(hit), hit.count("number") or 0
    one["devices"], one["device"] = number + 1, hit.word("name")
    return iter(())


_READER: Final = Reader(
    (
        rule(
            b"step:",
            rb"^step:(?P<step>\d{1,18})/(?P<target>\d{1,18}) (?:train_loss:(?P<loss>\S{1,24}) "
            rb"|(?P<validates>val_loss:\S{1,24}) )?(?:train_time:(?P<ms>\d{1,15})ms\b)?",
            _record,
        ),
        rule(
            b"Running ",
            rb"^Running [Pp]y(?:[Tt]orch|thon) \d[^\n]{0,200}(?:CUDA|GCC|compiled|Clang)",
            lambda hit: launched(hit, "versions", _NAME),
        ),
        rule(b" NVIDIA ", rb"^\| +(?P<number>\d{1,2}) +(?P<name>NVIDIA \S.{0,60}?) +(?:On|Off) +\|", _device),
        *EVENTS,
    ),
    followers=FOLLOWERS,
    hot=_SWIFT,
)


def detect(head: bytes) -> Evidence | None:
    """Find a record, else the template of one in the source that stands before it."""
    if found := _LINE.search(head):
        return Evidence(score=97, text=found[0].decode("ascii", "replace"))
    if found := _TEMPLATE.search(head):
        return Evidence(score=91, text="the program's source with its own record as a template")
    return None


_LINE: Final = re.compile(
    rb"^step:\d{1,18}/\d{1,18} (?:(?:train|val)_loss:\S{1,24} )?train_time:\d{1,15}ms", re.M
)
_TEMPLATE: Final = re.compile(rb"step:\{step[^\n]{0,80}train_time:\{[^\n]{0,80}ms step_avg:")

COLLECTOR: Final = Collector(
    name="modded_nanogpt",
    framework="modded-nanogpt, 2024 to 2026",
    version=1,
    parse=_READER.parse,
    detect=detect,
    knows=("step time", "gpus", "evaluation", "completion"),
    needs=(
        "model.tokens_per_step",
        "source.started_at where neither stamps nor a scheduler tell the time",
    ),
    notes="Its clock counts training only: what validation took is not told.",
)
