"""JSON lines: the documented generic record, and what most training code writes by other names.

Pure. One object a line, of a kind: reading (also where no kind is said), attempt, restart, event, end,
setting. `_odometer` reads a reading, `_facts` knows what the other kinds mean. Traps: NaN
and Infinity are no JSON but stand in logs; a crash tears a line and the next process writes on behind it;
several ranks or several calls write one step twice; a counter named `_step` or `batch` may count
something else; a rate named `tps` may be of the cluster or of one device.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from collectors._aliases import FIELDS, plan
from collectors._events import EVENTS, FOLLOWERS
from collectors._facts import KINDS, Unusable, facts
from collectors._lines import Reader, started
from collectors._odometer import OTHER_LOOPS, STEP_TIMES, Memory, quick, reading
from collectors._options import RATE, STEP_TIME, checked, keys_of_a_record
from collectors._text import clean
from tracker.core.records import Event, Kind, Record, Reject
from tracker.interfaces import Collector, Context, Evidence

_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
_LOOSE: Final = json.JSONDecoder()
_READINGS: Final = ("reading", "train", "training")
_PIECES: Final = 8
"""How many objects, or beginnings of one, are looked for in a line that is no single object."""
_LONGEST: Final = 1 << 16
_PREFIX: Final = 256
"""An object begins within so many bytes of its line: rank labels and stamps may stand before it."""
_EVENTS: Final = Reader(EVENTS, followers=FOLLOWERS)


def parse(block: bytes, context: Context) -> Iterator[Record]:
    """Yield the records of a block of lines."""
    memory, state = msgspec.convert(context.state.get("jsonl", {}), Memory), context.state
    own = _own_names(context.options.get("keys"))
    covers = STEP_TIMES.get(str(context.options.get("step_time", "")))
    begin = text_from = 0
    while begin < len(block):
        here, end = begin, block.find(b"\n", begin)
        end = len(block) if end < 0 else end
        line, offset = block[here:end], context.offset + here
        begin = end + 1
        body = _decoded(line) if line[:1] == b"{" else None
        if body is None and b'{"' not in line[:_PREFIX] and not (line[:1] == b"{" and b'"' in line):
            continue  # text between the objects
        if text_from < here:
            yield from _events(block[text_from:here], context.offset + text_from, context)
        text_from = begin
        if body is not None and (where := plan(tuple(body), own)).plain:
            plain = quick(body, where, offset, context, covers)
            if plain is not None:
                if plain.step != memory.last:
                    memory.last = plain.step
                    state.pop("events", None)
                    yield plain
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
        return reading(body, line, offset, memory, context, own)
    if kind not in KINDS:
        theirs = not isinstance(kind, str) or kind in OTHER_LOOPS
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
    check=checked(keys=keys_of_a_record, rate=RATE, step_time=STEP_TIME),
    notes=(
        "docs/jsonl.md has the record. A step time without a unit in its name is seconds. Rates such as tps "
        'are used only with rate = "cluster" or "device".'
    ),
)
