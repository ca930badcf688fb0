"""What a JSON record of kind attempt, restart, event, end or setting states.

Pure. Each gives events in the order in which they happened. Where one record ends an attempt and begins
the next, what ends it stands at the record's first byte and what begins it one byte later, so that each
falls to its own attempt.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any, Final

from collectors._aliases import GPUS, SEQUENCE, SURE_TIMES, first
from collectors._clock import STAMP, ZONE, local_us, stamp_us, whole_second
from collectors._numbers import count, integer, number, storable
from tracker.core.records import (
    CAUSES,
    EARLIEST_US,
    END_KINDS,
    EVIDENCE_CHARS,
    LATEST_US,
    SETTINGS,
    Event,
    Json,
    Kind,
    evidence,
)
from tracker.interfaces import Context

_EARLIEST_S: Final = EARLIEST_US / 1e6
_LATEST_S: Final = LATEST_US / 1e6
KINDS: Final = ("attempt", "restart", "event", "end", "setting")
PLANNED: Final = ("time_limit", "operator", "preempted", "host_maintenance")
"""Causes that are also ways to end."""
_ISO: Final = re.compile(STAMP + rb"(?: ?" + ZONE + rb")?")
_WORDS: Final = frozenset(
    {
        "job_id", "job_name", "framework", "framework_version", "gpu_name", "precision", "recompute",
        "reported_convention",
    }
)  # fmt: skip
"""Settings that are text; all others are counts."""


class Unusable(ValueError):
    """A record that is ours and cannot be used; its text is the reason."""


def facts(kind: str, body: Mapping[str, Any], line: bytes, offset: int, context: Context) -> list[Event]:
    """Return the events of a record; raises Unusable."""
    record = _Record(body, line, offset, context)
    if kind == "attempt":
        return record.attempt()
    if kind == "restart":
        return record.restart()
    if kind == "end":
        return [record.end(record.moment("at"))]
    if kind == "setting":
        return record.settings(record.moment("at"))
    return record.event()


class _Record:
    """One record, and how its fields are read."""

    def __init__(self, body: Mapping[str, Any], line: bytes, offset: int, context: Context) -> None:
        self.body, self.context, self.offset = body, context, offset
        text = body.get("text")
        self.text = storable(text, EVIDENCE_CHARS) if isinstance(text, str) else evidence(line)

    def attempt(self) -> list[Event]:
        """Return launch, settings, resume, and the end where it is stated."""
        start_us, end_us = self.moment("start", "at"), self.moment("end")
        if start_us is not None and end_us is not None and end_us < start_us:
            raise Unusable("end before start")
        data: dict[str, Json] = {}
        if (job_id := self.body.get("job_id")) is not None:
            data["job_id"] = storable(str(job_id))
        self.offset += 1
        out = [self.make(Kind.LAUNCH, start_us, data=data), *self.settings(start_us)]
        out += self.resume(at_us=start_us)  # one line, one moment
        if end_us is not None or any(self.body.get(key) is not None for key in ("end_kind", "cause")):
            out.append(self.end(end_us))
        return out

    def restart(self) -> list[Event]:
        """Return why the process before ended, the restart, and where training goes on."""
        at_us = self.moment("at")
        out = []
        cause, said = self.cause()
        if self.body.get("end_kind") is not None or cause in PLANNED:
            out.append(self.end(at_us))
        elif cause is not None:
            out.append(self.failure(at_us, cause, said, fatal=True))
        self.offset += 1
        began = [self.make(Kind.RESTART, at_us), *self.settings(at_us)]
        return [*out, *began, *self.resume("step", at_us=at_us)]

    def end(self, at_us: int | None) -> Event:
        """Return the end of a process: how (`end_kind`), and why (`cause`)."""
        cause, said = self.cause()
        end_kind = self.body.get("end_kind")
        if end_kind is None:
            end_kind = cause if cause in PLANNED else "failed"
        if end_kind not in END_KINDS:
            raise Unusable("unknown end_kind")
        data: dict[str, Json] = {"end_kind": end_kind, **said}
        if cause is not None:
            data["cause"] = cause
        return self.make(Kind.EXIT, at_us, step=self.step(), data=data)

    def event(self) -> list[Event]:
        """Return what happened, by the word of `event`."""
        word = self.body.get("event")
        at_us, step, length = self.moment("at"), self.step(), self.duration()
        began = at_us - length if at_us is not None and length is not None else at_us
        if began is not None and began < EARLIEST_US:
            raise Unusable("a duration that cannot be")
        data: dict[str, Json] = {"async": True} if self.body.get("async") is True else {}
        match word:
            case "checkpoint":
                start = self.make(Kind.SAVE_START, began, step=step)
                return [start, self.make(Kind.SAVE_END, at_us, step=step, duration_us=length, data=data)]
            case "checkpoint_end":
                return [self.make(Kind.SAVE_END, at_us, step=step, duration_us=length, data=data)]
            case "evaluation":
                start = self.make(Kind.EVAL_START, began, step=step)
                return [start, self.make(Kind.EVAL_END, at_us, step=step, duration_us=length)]
            case "failure":
                cause, said = self.cause()
                return [self.failure(at_us, cause or "unknown", said, fatal=self.body.get("fatal") is True)]
            case "resume":
                return self.resume("step", at_us=at_us)
            case str() if word in PLAIN:
                return [self.make(PLAIN[word], at_us, step=step, duration_us=length)]
        raise Unusable("unknown event")

    def resume(self, *names: str, at_us: int | None = None) -> list[Event]:
        """Return where training goes on, if the record says it."""
        keys = ("resumed_from", *names)
        if all(self.body.get(key) is None for key in keys):
            return []
        step = count(first({k: v for k, v in self.body.items() if v is not None}, keys))
        if step is None or step >= 2**62:
            raise Unusable("step is not a whole number")
        data: dict[str, Json] = {
            name: found for name in ("samples", "tokens") if (found := count(self.body.get(name))) is not None
        }
        return [self.make(Kind.RESUME, at_us, step=step, data=data)]

    def settings(self, at_us: int | None = None) -> list[Event]:
        """Return the operating point, as far as the record states it."""
        found: dict[str, Any] = {name: self.body[name] for name in SETTINGS if name in self.body}
        for name, others in (("gpus", GPUS), ("sequence_length", SEQUENCE)):
            if (value := first(self.body, others)) is not None:
                found.setdefault(name, value)
        known = settings_of(found)
        return [self.make(Kind.SETTING, at_us, data=known)] if known else []

    def failure(self, at_us: int | None, cause: str, said: Mapping[str, Json], *, fatal: bool) -> Event:
        """Return evidence of a failure, as sure as whoever wrote the record."""
        data: dict[str, Json] = {"cause": cause, "confidence": 1.0, **said}
        if fatal:
            data["fatal"] = True
        for name in ("rank", "host"):
            if isinstance(value := self.body.get(name), (int, str)):
                data[name] = value if isinstance(value, int) else storable(value)
        return self.make(Kind.FAILURE, at_us, step=self.step(), data=data)

    def cause(self) -> tuple[str | None, dict[str, Json]]:
        """Return the cause, and the record's own word where it is none of ours."""
        word = self.body.get("cause")
        if word is None:
            return None, {}
        if not isinstance(word, str):
            raise Unusable("cause is not a word")
        return (word, {}) if word in CAUSES else ("unknown", {"said": storable(word)})

    def moment(self, *names: str) -> int | None:
        """Return a time: under one of the names, or under one that can mean nothing else."""
        names = names if "at" not in names else (*names, *sorted(SURE_TIMES))
        value = first(self.body, names)
        return None if value is None else time_of(value, self.context, sure=True)[0]

    def duration(self) -> int | None:
        """Return duration_s or duration_ms in microseconds."""
        for name, unit in (("duration_s", 1e6), ("duration_ms", 1e3)):
            if (value := self.body.get(name)) is not None:
                length = number(value)
                if length is None or not 0 <= length < 1e10:
                    raise Unusable("a duration that cannot be")
                return round(length * unit)
        return None

    def step(self) -> int | None:
        """Return the step at which it happened, None where it is not stated; a restart's is the next one."""
        if self.body.get("kind") == "restart" or (value := self.body.get("step")) is None:
            return None
        if (found := count(value)) is None or found >= 2**62:
            raise Unusable("step is not a whole number")
        return found

    def make(
        self,
        kind: Kind,
        at_us: int | None,
        *,
        step: int | None = None,
        duration_us: int | None = None,
        data: Mapping[str, Json] | None = None,
    ) -> Event:
        """Return an event proved by this record."""
        return Event(
            offset=self.offset,
            kind=kind,
            at_us=at_us,
            step=step,
            duration_us=duration_us,
            data=data or {},
            text=self.text,
        )


WORDS: Final = ("checkpoint", "checkpoint_end", "evaluation", "failure", "resume")
"""Words of `event` that are more than one kind of event by another name."""
PLAIN: Final = {
    "checkpoint_start": Kind.SAVE_START,
    "checkpoint_durable": Kind.SAVE_DURABLE,
    "evaluation_start": Kind.EVAL_START,
    "evaluation_end": Kind.EVAL_END,
    "train_start": Kind.TRAIN_START,
    "sign": Kind.SIGN,
    "completed": Kind.COMPLETED,
    "note": Kind.NOTE,
}


def settings_of(found: Mapping[str, Any]) -> dict[str, Json]:
    """Return settings with values of their type; what has none is left out."""
    out: dict[str, Json] = {}
    for name in sorted(found):
        value = found[name]
        if name in _WORDS:
            if isinstance(value, (str, int)) and not isinstance(value, bool):
                out[name] = storable(str(value))
        elif (size := integer(value)) is not None and 0 < size < 2**62:
            out[name] = size
    return out


def time_of(value: object, context: Context, *, sure: bool) -> tuple[int | None, bool]:
    """Return a moment and whether it has whole seconds only.

    Numbers are seconds, milliseconds, microseconds or nanoseconds since 1970: their size tells. Text is
    ISO 8601, local to the context's zone where it has none. If not `sure`, what can be no moment is none.
    """
    if type(value) is float and _EARLIEST_S <= value < _LATEST_S:
        return round(value * 1_000_000), False
    found = number(value)
    if isinstance(value, str) and found is None:
        text = value.strip().encode("ascii", "replace")
        at_us = stamp_us(text.replace(b" Z", b"Z"), context) if _ISO.fullmatch(text) else _day(text, context)
        if at_us is not None:
            return at_us, whole_second(text)
    elif found is not None:
        for scale in (1_000_000, 1_000, 1):
            if EARLIEST_US <= found * scale < LATEST_US:
                whole_s = scale == 1_000_000 and not isinstance(value, float) and found == int(found)
                return _exact(value, found, scale), whole_s
        if EARLIEST_US <= found / 1000 < LATEST_US:
            return int(found / 1000), False
    if not sure or value is None:
        return None, False
    raise Unusable("a time that cannot be read, or outside 2000..2100")


def _exact(value: object, found: float, scale: int) -> int:
    return value * scale if isinstance(value, int) else round(found * scale)


def _day(text: bytes, context: Context) -> int | None:
    """Return a moment written another way that ISO 8601 allows, such as without seconds."""
    try:
        moment = dt.datetime.fromisoformat(text.decode())
    except ValueError:
        return None
    if moment.tzinfo is None:
        wall = (moment.replace(tzinfo=dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1)
        return local_us(wall, context)
    at_us = (moment - _EPOCH) // dt.timedelta(microseconds=1)
    return at_us if EARLIEST_US <= at_us < LATEST_US else None


_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
