"""JSON lines: the documented generic record, and what most training code writes by other names.

Pure. One object a line, of a kind: reading (also where no kind is said), attempt, restart, event, end,
setting. `_aliases` knows the names of a reading's numbers, `_facts` what the other kinds mean. Traps: NaN
and Infinity are no JSON but stand in logs; a crash tears a line and the next process writes on behind it;
several ranks or several calls write one step twice; a counter named `_step` or `batch` may count
something else; a rate named `tps` may be of the cluster or of one device.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from collectors._aliases import FIELDS, LOOPS, Plan, plan
from collectors._events import EVENTS, FOLLOWERS
from collectors._facts import KINDS, Unusable, facts, settings_of, time_of
from collectors._lines import Reader, started
from collectors._numbers import integer, number
from collectors._text import clean
from tracker.core.records import Event, Flag, Json, Kind, Reading, Record, Reject, evidence, problem
from tracker.interfaces import Collector, Context, Evidence

_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
_LOOSE: Final = json.JSONDecoder()
_READINGS: Final = ("reading", "train", "training")
_OTHER_LOOPS: Final = frozenset({"eval", "evaluation", "val", "valid", "validation", "test"})
_PIECES: Final = 8
"""How many objects, or beginnings of one, are looked for in a line that is no single object."""
_LONGEST: Final = 1 << 16
_PREFIX: Final = 256
"""An object begins within so many bytes of its line: rank labels and stamps may stand before it."""
_EVENTS: Final = Reader(EVENTS, followers=FOLLOWERS)
_STEP_TIMES: Final = {
    "excludes": int(Flag.STEP_TIME_EXCLUDES),
    "includes": int(Flag.STEP_TIME_INCLUDES),
    "sample": int(Flag.STEP_TIME_SAMPLE),
}


class Memory(msgspec.Struct):
    """What is remembered between lines."""

    last: int | None = None
    """Step of the last reading of this attempt."""
    said: dict[str, Any] = {}
    """Settings that readings have stated in this attempt."""
    asked: bool = False
    """The user was told about an ambiguous rate."""
    end: dict[str, Any] | None = None
    """The end that an attempt's own record declared, to be said again after its readings."""


def parse(block: bytes, context: Context) -> Iterator[Record]:
    """Yield the records of a block of lines."""
    memory, state = msgspec.convert(context.state.get("jsonl", {}), Memory), context.state
    own = _own_names(context.options.get("keys"))
    covers = _STEP_TIMES.get(str(context.options.get("step_time", "")))
    begin = text_from = 0
    while begin < len(block):
        here, end = begin, block.find(b"\n", begin)
        end = len(block) if end < 0 else end
        line, offset = block[here:end], context.offset + here
        begin = end + 1
        body = _decoded(line) if line[:1] == b"{" else None
        if body is None and b'{"' not in line[:_PREFIX]:
            continue  # text between the objects
        if text_from < here:
            yield from _events(block[text_from:here], context.offset + text_from, context)
        text_from = begin
        if body is not None and (where := plan(tuple(body), own)).plain:
            reading = _quick(body, where, offset, context, covers)
            if reading is not None:
                if reading.step != memory.last:
                    memory.last = reading.step
                    state.pop("events", None)
                    yield reading
                continue
        pieces = [(offset, line, body)] if body is not None else _pieces(line, offset)
        for at, text, found in pieces:
            if isinstance(found, str):
                yield Reject(at, text[:200], found)
            else:
                yield from _object(found, text, at, memory, context, own)
    if text_from < len(block):
        yield from _events(block[text_from:], context.offset + text_from, context)
    state["jsonl"] = msgspec.to_builtins(memory)


def _decoded(line: bytes) -> dict[str, Any] | None:
    try:
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _events(text: bytes, offset: int, context: Context) -> Iterator[Record]:
    """Yield what the lines between the objects say: they are the program's own words, or the scheduler's."""
    inner = Context(
        zone=context.zone,
        file_name=context.file_name,
        options=context.options,
        offset=offset,
        state=context.state,
    )
    yield from _EVENTS.parse(text, inner)


def _pieces(line: bytes, offset: int) -> Iterator[tuple[int, bytes, dict[str, Any] | str]]:
    """Yield the objects of a line that is not one: NaN, a prefix, a torn one with the next behind it."""
    text = line.lstrip(b"\xef\xbb\xbf \t\r")
    if text[:1] != b"{":
        text = clean(line).text.lstrip()
        if text[:1] != b"{":
            return
    words = text[:_LONGEST].decode("utf-8", "replace")
    at = 0
    for _ in range(_PIECES):
        try:
            found, end = _LOOSE.raw_decode(words, at)
        except (ValueError, RecursionError):
            found, end = None, words.find('{"', at + 1)
        here = words[at : end if end >= 0 else None].encode()
        yield offset + at, here, found if isinstance(found, dict) else "torn JSON line"
        at = words.find("{", end) if end >= 0 else -1
        if at < 0:
            return


def _object(
    body: Mapping[str, Any],
    line: bytes,
    offset: int,
    memory: Memory,
    context: Context,
    own: tuple[tuple[str, str], ...],
) -> Iterable[Record]:
    kind = body.get("kind")
    if kind is None or kind in _READINGS:
        return _reading(body, line, offset, memory, context, own)
    if kind not in KINDS:
        theirs = not isinstance(kind, str) or kind in _OTHER_LOOPS
        return [] if theirs else [Reject(offset, line[:200], "unknown kind")]
    try:
        found = facts(kind, body, line, offset, context)
    except Unusable as reason:
        return [Reject(offset, line[:200], str(reason))]
    if kind in ("attempt", "restart"):
        started(context.state)
    return _around(kind, found, offset, memory)


def _around(kind: str, found: list[Event], offset: int, memory: Memory) -> list[Record]:
    """Put the declared end of the attempt before a new one, and note what begins anew."""
    out: list[Record] = []
    if kind in ("attempt", "restart"):
        if memory.end is not None and memory.last is not None and kind == "attempt":
            out.append(_end_event(memory.end, offset))
        memory.last, memory.said, memory.end = None, {}, None
    elif kind == "end":
        memory.end = None
    for event in found:
        if kind == "attempt" and event.kind is Kind.EXIT:
            memory.end = {"at_us": event.at_us, "data": dict(event.data)}
        if event.kind is Kind.RESUME:
            memory.last = None
    return out + list(found)


def _end_event(end: Mapping[str, Any], offset: int) -> Event:
    return Event(offset=offset, kind=Kind.EXIT, at_us=end["at_us"], data=end["data"])


# -- readings ----------------------------------------------------------------------------------------


def _reading(
    body: Mapping[str, Any],
    line: bytes,
    offset: int,
    memory: Memory,
    context: Context,
    own: tuple[tuple[str, str], ...],
) -> Iterable[Record]:
    where = plan(tuple(body), own)
    if where.step is None and any(isinstance(value, dict) for value in body.values()):
        body = _flat(body)
        where = plan(tuple(body), own)
    if where.step is None or where.other_loop or _of_other_loop(body):
        stated = body.get("kind") == "reading" and where.step is None
        return [Reject(offset, line[:200], "reading without a step")] if stated else []
    try:
        reading = _numbers(body, where, offset, context)
    except Unusable as reason:
        return [Reject(offset, line[:200], str(reason))]
    wrong = problem(reading)
    if wrong is not None:
        return [Reject(offset, line[:200], wrong)]
    out: list[Record] = []
    if where.gpus is not None or where.sequence is not None:
        out += _stated(body, where, line, offset, memory)
    if where.rate is not None:
        reading, note = _rate(body, where, reading, line, memory, context)
        out += note
    if reading.step != memory.last:
        memory.last = reading.step
        context.state.pop("events", None)
        out.append(reading)
    return out


_INT: Final = frozenset({int, type(None)})


def _quick(
    body: Mapping[str, Any], where: Plan, offset: int, context: Context, covers: int | None
) -> Reading | None:
    """Take a record whose numbers are written as numbers: the same reading as the long way, or None."""
    step = body[where.step]  # type: ignore[index]
    at_us, flags, step_time_us = None, 0, None
    tokens = None if where.tokens is None else body[where.tokens]
    samples = None if where.samples is None else body[where.samples]
    if type(step) is not int or type(tokens) not in _INT or type(samples) not in _INT:
        return None
    batch = skipped = per_step = None
    if where.counts:
        batch, skipped, per_step = (None if key is None else body[key] for key in where.counts)
        if not _INT.issuperset(map(type, (batch, skipped, per_step))):
            return None
    if where.at is not None:
        try:
            at_us, whole_s = time_of(body[where.at], context, sure=where.sure)
        except Unusable:
            return None
        flags = 1 if whole_s else 0
    if where.step_time is not None:
        length = body[where.step_time]
        if type(length) is not float or not 0 < length < 1e9:
            return None
        step_time_us = round(length * where.step_time_us)
        flags |= _covers(where, covers, at_us)
    if where.loss is not None and type(body[where.loss]) is not float:
        return None
    reading = Reading(
        offset, at_us, step, step_time_us, samples, tokens, batch, skipped or 0, flags, None, per_step
    )
    return None if problem(reading) is not None else reading


def _numbers(body: Mapping[str, Any], where: Plan, offset: int, context: Context) -> Reading:
    step = integer(body[where.step]) if where.step is not None else None
    if step is None:
        raise Unusable("step is not a whole number")
    at_us, flags = None, 0
    if where.at is not None:
        at_us, whole_second = time_of(body[where.at], context, sure=where.sure)
        flags = int(Flag.WHOLE_SECOND) if whole_second else 0
    step_time_us = None
    if where.step_time is not None and (length := number(body[where.step_time])) is not None:
        step_time_us = _us(length * where.step_time_us)
        flags |= _covers(where, _STEP_TIMES.get(str(context.options.get("step_time", ""))), at_us)
    if where.loss is not None and body[where.loss] is not None and number(body[where.loss]) is None:
        flags |= int(Flag.NAN)
    return Reading(
        offset,
        at_us,
        step,
        step_time_us,
        _count(body, where.samples),
        _count(body, where.tokens),
        _count(body, where.batch),
        _count(body, where.skipped) or 0,
        flags,
        None,
        _count(body, where.tokens_per_step),
    )


def _covers(where: Plan, stated: int | None, at_us: int | None) -> int:
    """Tell what a step time covers: the user's word, else our own name, else a sample where a clock is."""
    if stated is not None:
        return stated
    return _STEP_TIMES["excludes" if where.ours or at_us is None else "sample"]


def _us(value: float) -> int:
    return round(value) if abs(value) < 2.0**62 else 2**62


def _count(body: Mapping[str, Any], key: str | None) -> int | None:
    if key is None or (value := body[key]) is None:
        return None
    found = integer(value)
    if found is None and (real := number(value)) is not None:
        found = round(real)
    if found is None:
        raise Unusable("a count that is no number")
    return found


def _stated(body: Mapping[str, Any], where: Plan, line: bytes, offset: int, memory: Memory) -> list[Record]:
    """Return a setting where a reading states one that it did not state before."""
    pairs = (("gpus", where.gpus), ("sequence_length", where.sequence))
    found = settings_of({ours: body[key] for ours, key in pairs if key is not None})
    new: dict[str, Json] = {name: value for name, value in found.items() if memory.said.get(name) != value}
    if not new:
        return []
    memory.said.update(new)
    return [Event(offset=offset, kind=Kind.SETTING, data=new, text=evidence(line))]


def _rate(
    body: Mapping[str, Any], where: Plan, reading: Reading, line: bytes, memory: Memory, context: Context
) -> tuple[Reading, list[Record]]:
    """Turn tokens a second into a step time, if the source says of what; else ask for that once."""
    covers = context.options.get("rate")
    if covers not in ("cluster", "device"):
        if memory.asked or reading.step_time_us is not None:
            return reading, []
        memory.asked = True
        told: dict[str, Json] = {
            "message": "a rate of the cluster or of one device: set rate of the [[source]]"
        }
        return reading, [
            Event(offset=reading.offset, kind=Kind.NOTE, at_us=reading.at_us, data=told, text=evidence(line))
        ]
    rate = number(body[where.rate]) if where.rate is not None else None
    gpus = memory.said.get("gpus", 0) if covers == "device" else 1
    tokens = reading.tokens_per_step or (reading.batch or 0) * memory.said.get("sequence_length", 0)
    if reading.step_time_us is not None or rate is None or rate <= 0 or not gpus or not tokens:
        return reading, []
    step_us = _us(tokens / (rate * gpus) * 1e6)
    if not 0 < step_us < 2**62:
        return reading, []
    return reading._replace(step_time_us=step_us, flags=reading.flags | Flag.STEP_TIME_SAMPLE), []


def _of_other_loop(body: Mapping[str, Any]) -> bool:
    words = (body.get(key) for key in LOOPS)
    return any(isinstance(word, str) and word in _OTHER_LOOPS for word in words)


def _flat(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with one level of objects unfolded: {"train": {"step": 1}} has train/step."""
    out: dict[str, Any] = {}
    for key, value in body.items():
        if isinstance(value, dict):
            out |= {f"{key}/{name}": inner for name, inner in value.items()}
        else:
            out[key] = value
    return out


def _own_names(option: object) -> tuple[tuple[str, str], ...]:
    """Return the user's own names: `keys = { step = "opt/updates", tokens = "data/seen" }`."""
    if not isinstance(option, dict):
        return ()
    pairs = [(field, key) for field, key in option.items() if field in FIELDS and isinstance(key, str)]
    return tuple(sorted(pairs))


# -- detection ---------------------------------------------------------------------------------------


def detect(head: bytes) -> Evidence | None:
    """Find objects of our kinds, else objects with a step, on most lines of the head."""
    lines = [line for line in head.split(b"\n")[:200] if line.strip()][:50]
    ours = steps = 0
    for line in lines:
        try:
            body = _DECODER.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            bodies = [found for _, _, found in _pieces(line, 0) if isinstance(found, dict)]
            if not bodies:
                continue
            body = bodies[-1]
        ours += body.get("kind") in KINDS or body.get("kind") == "reading"
        steps += plan(tuple(body)).step is not None
    if ours:
        return Evidence(score=92, text=f'JSON lines with "kind" ({ours} of the first {len(lines)} lines)')
    if steps * 2 >= max(len(lines), 1):
        return Evidence(score=40, text=f"JSON lines with a step ({steps} of the first {len(lines)} lines)")
    return None


COLLECTOR: Final = Collector(
    name="jsonl",
    framework="JSON lines: the documented record, wandb history, and loggers of many names",
    version=1,
    parse=parse,
    detect=detect,
    knows=("tokens", "samples", "time", "step time", "gpus", "attempts", "restarts", "events"),
    options=("keys", "rate", "step_time"),
    notes=(
        "docs/jsonl.md has the record. A step time without a unit in its name is seconds. Rates such as tps "
        'are used only with rate = "cluster" or "device".'
    ),
)
