"""One process in a text log: where it begins, which of its facts were said, what it is busy with.

Pure. Hundreds of ranks print one banner, one setting, one "saving": each is an event once. What is kept here
lives in `context.state["process"]` and goes when the next process begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from collectors._clock import STAMP
from collectors._lines import Hit, started
from tracker.core.records import LARGEST, Event, Flag, Json, Kind, Reading, Record
from tracker.interfaces import Context

_SAME_START_US: Final = 60_000_000
_SAME_START_BYTES: Final = 1 << 20  # without a clock: a thousand ranks print a banner within this much
_TROUBLE: Final = ("events", "ends", "cancelled")
SAMPLE: Final = int(Flag.STEP_TIME_SAMPLE)
EXCLUDES: Final = int(Flag.STEP_TIME_EXCLUDES)
INCLUDES: Final = int(Flag.STEP_TIME_INCLUDES)
ROUNDED: Final = int(Flag.ROUNDED)
NAN: Final = int(Flag.NAN)
WHOLE_SECOND: Final = int(Flag.WHOLE_SECOND)
_STAMP: Final = re.compile(STAMP)
_STAMP_WITHIN: Final = 80
_COLOUR: Final = re.compile(rb"(?:\x1b)?\[\d{1,3}(?:;\d{1,3}){0,4}m")


def process(hit: Hit) -> dict[str, Any]:
    """Return what is remembered of the process that wrote this line."""
    one = hit.state.setdefault("process", {})
    assert isinstance(one, dict)
    return one


def launched(
    hit: Hit, mark: str, framework: str, version: str | None = None, *, at_us: int | None = None
) -> Iterator[Event]:
    """Yield a launch, and of what, at the first of the marks that a process prints as it starts.

    The same mark again is another rank's, unless the process has trained since, or had trouble, or the mark
    came much later. `mark` names the kind of line.
    """
    one = process(hit)
    marks: dict[str, list[int | None]] = one.setdefault("marks", {})
    at_us, before = hit.stamp_us() if at_us is None else at_us, marks.get(mark)
    fresh = not marks
    if before is not None:
        since_us = None if at_us is None or before[0] is None else at_us - before[0]
        late = (
            hit.offset - (before[1] or 0) > _SAME_START_BYTES
            if since_us is None
            else since_us > _SAME_START_US
        )
        fresh = late or any(hit.state.get(key) for key in _TROUBLE)
    if fresh or one.get("ran"):
        started(hit.state)
        hit.state["process"] = one = {"marks": {}}
        yield hit.event(Kind.LAUNCH, at_us=at_us)
        yield from settings(hit, {"framework": framework, "framework_version": version}, at_us=at_us)
    one["marks"][mark] = [at_us, hit.offset]


def once(hit: Hit, key: str) -> bool:
    """Return whether this process says a thing for the first time."""
    said: list[str] = process(hit).setdefault("said", [])
    if key in said:
        return False
    said.append(key)
    return True


def settings(hit: Hit, found: Mapping[str, Json], *, at_us: int | None = None) -> Iterator[Event]:
    """Yield what is new among facts of the operating point; None is not known, and no count is that large."""
    known: dict[str, Json] = process(hit).setdefault("settings", {})
    new = {
        name: value
        for name, value in found.items()
        if value is not None and known.get(name) != value and not (type(value) is int and value >= LARGEST)
    }
    if new:
        known.update(new)
        yield hit.event_of(Kind.SETTING, new, at_us=at_us)


def setting(hit: Hit, name: str) -> int | None:
    """Return a count that the process stated; None where it did not."""
    value = process(hit).get("settings", {}).get(name)
    return value if isinstance(value, int) else None


def resumed(hit: Hit, step: int | None, *, at_us: int | None = None, **data: Json) -> Iterator[Event]:
    """Yield where training goes on, once; said again much later, a process that printed no banner did it."""
    one = process(hit)
    now_us = hit.stamp_us() if at_us is None else at_us
    before = one.get("resumed")
    if before is not None and before[0] == step:
        near = now_us is None or before[1] is None or now_us - before[1] <= _SAME_START_US
        if near or not one.get("ran"):
            return
    started(hit.state)
    if one.get("ran"):
        hit.state["process"] = one = {"marks": one.get("marks", {})}
    one["resumed"] = [step, now_us]
    yield hit.event_of(Kind.RESUME, data, at_us=at_us, step=step)


def progress(hit: Hit, reading: Reading) -> Iterator[Record]:
    """Yield a reading, unless another rank has said it; the start-up is over, and so is any save."""
    if reading.at_us is None and _STAMP.search(hit.text, 0, _STAMP_WITHIN):
        yield hit.reject("time stamp that cannot be")
        return
    for record in hit.reading(reading):
        if isinstance(record, Reading):
            one = process(hit)
            one["ran"], one["step"], one["free"] = True, record.step, record.at_us
            one.pop("busy", None)
        yield record
        if isinstance(record, Reading) and (end := process(hit).get("leaving")):
            yield hit.event(Kind.EXIT, at_us=record.at_us, end_kind=end[0], cause=end[1])


def free_us(hit: Hit, step: int | None) -> int | None:
    """Return when the process was last known to have finished what it was at, with that step done."""
    one = process(hit)
    at_us = one.get("free") if one.get("step") == step else None
    return at_us if isinstance(at_us, int) else None


def done(hit: Hit) -> int | None:
    """Return the last step that the process is known to have executed."""
    step = process(hit).get("step")
    return step if isinstance(step, int) else None


_ENDS: Final = {Kind.SAVE_END: Kind.SAVE_START, Kind.EVAL_END: Kind.EVAL_START}


def begins(hit: Hit, kind: Kind, step: int | None = None, *, at_us: int | None = None) -> Iterator[Event]:
    """Yield the start of a save or evaluation, unless the process is at it already."""
    busy: dict[str, int | None] = process(hit).setdefault("busy", {})
    if kind not in busy:
        busy[str(kind)] = step
        yield hit.event_of(kind, {}, at_us=at_us, step=step)


def ends(
    hit: Hit,
    kind: Kind,
    step: int | None = None,
    *,
    at_us: int | None = None,
    duration_us: int | None = None,
    alone: bool = False,
    background: bool = False,
) -> Iterator[Event]:
    """Yield the end of a save or evaluation that the process is at; `alone`: even where no start was seen.

    `background`: the write itself goes on. The step of the start stands where the end's line has none.
    """
    one = process(hit)
    busy: dict[str, int | None] = one.setdefault("busy", {})
    start = str(_ENDS[kind])
    if start in busy:
        begun = busy.pop(start)
        step = begun if step is None else step
    elif not alone or one.get(f"last {kind}") == step:
        return
    one[f"last {kind}"] = step
    data: dict[str, Json] = {"async": background or None}
    event = hit.event_of(kind, data, at_us=at_us, step=step, duration_us=duration_us)
    one["free"] = event.at_us
    yield event


def durable(hit: Hit, step: int | None, *, at_us: int | None = None) -> Iterator[Event]:
    """Yield that the background write of a step is complete, once for each step."""
    one = process(hit)
    if one.get("durable", -1) != step:
        one["durable"] = step
        yield hit.event_of(Kind.SAVE_DURABLE, {}, at_us=at_us, step=step)


def completed(hit: Hit, *, at_us: int | None = None) -> Iterator[Event]:
    """Yield that training is done, once."""
    if once(hit, "completed"):
        yield hit.event(Kind.COMPLETED, at_us=at_us)


def exits(hit: Hit, end_kind: str, cause: str | None = None) -> Iterator[Event]:
    """Yield how the process ends, once; without a cause the kind is the cause too.

    It may do a last step or two before it goes: their readings are followed by the end again.
    """
    if once(hit, f"exit {end_kind}"):
        process(hit)["leaving"] = [end_kind, end_kind if cause is None else cause]
        yield hit.event(Kind.EXIT, end_kind=end_kind, cause=end_kind if cause is None else cause)


def sign(hit: Hit) -> Iterator[Event]:
    """Yield a sign of life of a start-up line."""
    at_us = hit.stamp_us()
    if at_us is not None and not process(hit).get("ran"):
        yield hit.event(Kind.SIGN, at_us=at_us)


def resolution(at_us: int | None) -> int:
    """Return Flag.WHOLE_SECOND for a stamp without a fraction (one in a thousand has .000: no harm)."""
    return WHOLE_SECOND if at_us is not None and at_us % 1_000_000 == 0 else 0


def with_year(context: Context) -> None:
    """Let stamps without a year be read: the option `year` of the source says the first one's."""
    year = context.options.get("year")
    if isinstance(year, int) and 2000 <= year < 2100:
        context.state.setdefault("year", year)


def plain(head: bytes) -> bytes:
    r"""Return the head of a file without colours, for `detect`.

    >>> plain(b"\x1b[31mstep:  1  [32mloss: 2.0\x1b[39m")
    b'step:  1  loss: 2.0'
    """
    return _COLOUR.sub(b"", head) if b"m" in head else head


def elapsed_s(text: bytes) -> int:
    """Return a progress bar's `[[h:]mm:]ss` in seconds.

    >>> elapsed_s(b"9:07:58"), elapsed_s(b"00:04")
    (32878, 4)
    """
    seconds = 0
    for part in text.split(b":"):
        seconds = seconds * 60 + int(part)
    return seconds
