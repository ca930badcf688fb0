"""What a reading record states: step, time, tokens, step time, and what it covers.

Pure. `_aliases.plan` says under which keys the numbers stand; here they become a Reading. The usual
record, whose numbers are written as numbers, takes a short cut that reads the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from collectors._aliases import LOOPS, Plan, plan
from collectors._facts import Unusable, settings_of, time_of
from collectors._numbers import integer, number
from tracker.core.records import Event, Flag, Json, Kind, Reading, Record, Reject, evidence, problem
from tracker.interfaces import Context

OTHER_LOOPS: Final = frozenset({"eval", "evaluation", "val", "valid", "validation", "test"})
STEP_TIMES: Final = {
    "excludes": int(Flag.STEP_TIME_EXCLUDES),
    "includes": int(Flag.STEP_TIME_INCLUDES),
    "sample": int(Flag.STEP_TIME_SAMPLE),
}
"""What the source's option `step_time` may say."""


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


def reading(
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
        found = _numbers(body, where, offset, context)
    except Unusable as reason:
        return [Reject(offset, line[:200], str(reason))]
    wrong = problem(found)
    if wrong is not None:
        return [Reject(offset, line[:200], wrong)]
    out: list[Record] = []
    if where.gpus is not None or where.sequence is not None:
        out += _stated(body, where, line, offset, memory)
    if where.rate is not None:
        found, note = _rate(body, where, found, line, memory, context)
        out += note
    if found.step != memory.last:
        memory.last = found.step
        context.state.pop("events", None)
        out.append(found)
    return out


_INT: Final = frozenset({int, type(None)})


def quick(
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
        flags |= _covers(where, STEP_TIMES.get(str(context.options.get("step_time", ""))), at_us)
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
    return STEP_TIMES["excludes" if where.ours or at_us is None else "sample"]


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
    return any(isinstance(word, str) and word in OTHER_LOOPS for word in words)


def _flat(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with one level of objects unfolded: {"train": {"step": 1}} has train/step."""
    out: dict[str, Any] = {}
    for key, value in body.items():
        if isinstance(value, dict):
            out |= {f"{key}/{name}": inner for name, inner in value.items()}
        else:
            out[key] = value
    return out
