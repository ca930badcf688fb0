"""Any other log: regular expressions of the config, with named groups.

Pure. The groups' names say what they are, by the names that `jsonl` knows: `step`, `at`, `tokens`,
`samples`, `global_batch_size`, `tokens_per_step`, `skipped`, `loss`, and a step time with its unit:
`step_time_s`, `step_time_ms`. `tflops` is what the program itself claims, of one GPU. Examples in the
config must match before anything is read. Traps: user patterns may take for ever in Python's own engine
(see `_patterns`); a step may count from 0 (`first_step = 0`); a rate must be said to be of what.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from collectors._aliases import FIELDS, plan
from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Reader
from collectors._odometer import Memory, reading
from collectors._options import FIRST_STEP, RATE, STEP_TIME, checked, fault
from collectors._patterns import Pattern, Unfit
from collectors._process import begins, completed, ends, launched, process, resumed
from collectors._text import clean, real, scaled, seconds_us, segments, whole
from tracker.core.errors import nearest, shown
from tracker.core.records import Flag, Json, Kind, Reading, Record, Reject
from tracker.interfaces import Collector, Context

_EVENTS: Final = Reader(EVENTS, followers=FOLLOWERS)
EVENT_NAMES: Final = ("launch", "resume", "save_start", "save_end", "eval_start", "eval_end", "completed")
_UNITS: Final = ("s", "ms", "us", "min")
_COUNTS: Final = frozenset({"tokens", "samples", "global_batch_size", "tokens_per_step", "skipped"})


class Plan(NamedTuple):
    """The options of one source, compiled."""

    readings: tuple[Pattern, ...]
    events: tuple[tuple[str, Pattern], ...]
    names: Mapping[str, str]
    """Group -> key with its unit."""
    base: int
    """Added to a printed step."""


def parse(block: bytes, context: Context) -> Iterator[Record]:
    """Yield the records of a block of lines."""
    try:
        made = _made(msgspec.json.encode(context.options, order="sorted"))
    except Unfit:
        return  # told when the config was read
    memory, state = msgspec.convert(context.state.get("pattern", {}), Memory), context.state
    begin = text_from = 0
    while begin < len(block):
        here, end = begin, block.find(b"\n", begin)
        end = len(block) if end < 0 else end
        line, begin = block[here:end], end + 1
        if not _worth(line, made):
            continue
        found = list(_line(line, context.offset + here, made, memory, context))
        if not found:
            continue
        if text_from < here:
            yield from _around(block[text_from:here], context.offset + text_from, context)
        text_from = begin
        yield from found
    if text_from < len(block):
        yield from _around(block[text_from:], context.offset + text_from, context)
    state["pattern"] = msgspec.to_builtins(memory)


def _worth(line: bytes, made: Plan) -> bool:
    if b"\x1b" in line:  # a colour may stand within the words
        return True
    return any(one.literal in line for one in (*made.readings, *(one for _, one in made.events)))


def _around(text: bytes, offset: int, context: Context) -> Iterator[Record]:
    """Yield what the lines between say: they are the program's own words, or the scheduler's."""
    yield from _EVENTS.parse(
        text,
        Context(
            zone=context.zone,
            file_name=context.file_name,
            options=context.options,
            offset=offset,
            state=context.state,
        ),
    )


def _line(line: bytes, offset: int, made: Plan, memory: Memory, context: Context) -> Iterator[Record]:
    for at, piece in segments(line, offset):
        cleaned = clean(piece, at)
        for one in made.readings:
            groups = one.search(cleaned.text)
            if groups is not None:
                yield from _reading(groups, Hit(cleaned, context), made, memory)
                break
        else:
            for name, one in made.events:
                groups = one.search(cleaned.text)
                if groups is not None:
                    yield from _event(name, groups, Hit(cleaned, context), made)
                    memory.last = None if name in ("launch", "resume") else memory.last
                    break


def _reading(groups: Mapping[str, bytes], hit: Hit, made: Plan, memory: Memory) -> Iterator[Record]:
    body: dict[str, Any] = {}
    rounded = False
    for group, value in groups.items():
        text = value.decode("utf-8", "replace").strip()
        if group in _COUNTS and (count := scaled(value)) is not None:
            body[group] = count[0]
            rounded |= group == "tokens" and count[1]
        elif group not in ("tflops",):
            body[made.names.get(group, group)] = text
    step = whole(groups.get("step"))
    if step is None:
        yield hit.reject("step is not a whole number")
        return
    body["step"] = step + made.base
    if "at" not in body and (at_us := hit.stamp_us()) is not None:
        body["at"] = at_us / 1e6
    for record in reading(body, hit.text, hit.offset, memory, hit.context, ()):
        if isinstance(record, Reading):
            tflop = real(groups.get("tflops"))
            record = record._replace(
                reported_flop_per_s=tflop * 1e12 if tflop and tflop > 0 else None,
                flags=record.flags | (int(Flag.ROUNDED) if rounded else 0),
            )
            process(hit)["ran"] = True
        yield record


def _event(name: str, groups: Mapping[str, bytes], hit: Hit, made: Plan) -> Iterator[Record]:
    step = whole(groups.get("step"))
    length = next(
        (seconds_us(groups[key], unit) for key, unit in (("s", 10**6), ("ms", 10**3)) if key in groups), None
    )
    if name == "launch":
        yield from (one for one in launched(hit, "launch", "") if one.kind is Kind.LAUNCH)
    elif name == "resume":
        yield from resumed(hit, step)
    elif name == "completed":
        yield from completed(hit)
    elif name.endswith("_start"):
        yield from begins(hit, Kind(name), step)
    else:
        yield from ends(hit, Kind(name), step, duration_us=length, alone=True)


# -- options -----------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _made(options: bytes) -> Plan:
    """Return the options compiled; raises Unfit."""
    given: dict[str, Any] = msgspec.json.decode(options)
    events = given.get("events")
    return Plan(
        readings=tuple(Pattern(text) for text in _texts(given.get("pattern"))),
        events=tuple((name, Pattern(str(text))) for name, text in events.items() if name in EVENT_NAMES)
        if isinstance(events, dict)
        else (),
        names={group: f"{group}_{unit}" for group, unit in units.items() if unit in _UNITS}
        if isinstance(units := given.get("units"), dict)
        else {},
        base=1 if given.get("first_step") == 0 else 0,
    )


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def check(options: Mapping[str, Json]) -> Iterator[str]:
    """Yield what is wrong with the options; the examples must be read."""
    patterns = _texts(options.get("pattern"))
    for name in ("pattern", "examples"):
        value = options.get(name)
        if value is not None and not (isinstance(value, str) or _texts(value) == value):
            yield fault(name, value, "a text, or a list of texts", f"Write {name} = '...', in single quotes")
    if not patterns and not options.get("pattern"):
        yield "pattern: missing. Give a regular expression with a group for the step: it (?P<step>[0-9]+)"
    examples = _texts(options.get("examples"))
    if not examples and not options.get("examples"):
        yield "examples: missing. Give at least one line of the log that pattern must match"
    yield from _check_values(options)
    good = True
    for one in patterns:
        try:
            yield from _check_groups(Pattern(one))
        except Unfit as error:
            good = False
            yield f"pattern = {one[:120]!r}: {error}"
    events = options.get("events")
    for name, text in (events if isinstance(events, dict) else {}).items():
        if name not in EVENT_NAMES:
            hint = nearest(name, EVENT_NAMES)
            hint = hint[:1].upper() + hint[1:]
            yield fault(f"events.{shown(name)[1:-1]}", text, f"one of {', '.join(EVENT_NAMES)}", hint)
            continue
        if not isinstance(text, str):
            yield fault(f"events.{name}", text, "a regular expression, as text")
            continue
        try:
            Pattern(text)
        except Unfit as error:
            good = False
            yield f"events.{name} = {str(text)[:120]!r}: {error}"
    if not good or not patterns:
        return
    for number, example in enumerate(examples, 1):
        records = list(parse(example.encode() + b"\n", Context(options=options)))
        if not any(isinstance(one, Reading) for one in records):
            why = next((one.reason for one in records if isinstance(one, Reject)), "no pattern matches it")
            yield f"examples[{number}] = {example[:120]!r}: {why}"


def _check_groups(pattern: Pattern) -> Iterator[str]:
    if "step" not in pattern.groups:
        yield "pattern: no group is called step. Write (?P<step>\\d+) where the step stands"
    known = {*(name for names in FIELDS.values() for name in names), "tflops"}
    for group in pattern.groups:
        where = plan((group,))
        if group not in known and not any((where.step_time, where.at, where.tokens, where.samples)):
            hint = nearest(group, known)
            yield f"pattern: the group {group} means nothing here" + (f": {hint}" if hint else "")


def _check_values(options: Mapping[str, Json]) -> Iterator[str]:
    for name, example in _TABLES.items():
        if name in options and not isinstance(options[name], dict):
            yield fault(name, options[name], "a table", f"Write {name} = {example}")
    units = options.get("units")
    for group, unit in (units if isinstance(units, dict) else {}).items():
        if unit not in _UNITS:
            yield fault(f"units.{group}", unit, f"one of {', '.join(_UNITS)}")
    yield from _SIMPLE(options)


_TABLES: Final = {"units": '{ step_time = "ms" }', "events": "{ completed = 'Training done' }"}
_SIMPLE: Final = checked(first_step=FIRST_STEP, step_time=STEP_TIME, rate=RATE)


COLLECTOR: Final = Collector(
    name="pattern",
    framework="any text, by regular expressions of the config",
    version=1,
    parse=parse,
    detect=lambda head: None,
    knows=("step", "time", "step time", "tokens", "samples", "events: what the patterns name"),
    needs=("source.pattern", "source.examples"),
    options=("pattern", "examples", "units", "events", "first_step", "step_time", "rate"),
    check=check,
    notes=(
        "Never chosen by itself. With the extra `patterns` (google-re2) every pattern takes linear time; "
        "without it nested and many open repetitions are refused, and 512 bytes of a line are looked at."
    ),
)
