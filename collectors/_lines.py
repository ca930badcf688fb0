r"""How a text log is read: find the lines that matter, clean them, hand each to the rules that ask for it.

Pure. A collector states `Rule`s (a gate to find the line by, a pattern, a function that makes records) and
gets a `parse` for its `Collector`. Lines are taken one after another in file order with `context.state` as
the only memory, so the records cannot depend on where blocks are cut.

What a collector need not care about: prefixes and colours, `\r` segments, container files whose long lines
are split, records of several lines (`Hit.open`), equal records of many ranks (`fresh`), stamps
(`Hit.stamp_us`), event lines of GPUs, network and scheduler (`_events`).

A collector in short:

    def _step(hit: Hit) -> Iterable[Record]:
        step = hit.count("step")
        if step is None:
            return (hit.reject("torn step line"),)
        return hit.reading(Reading(hit.offset, hit.stamp_us(), step))

    READER = Reader(
        (rule(b"step: ", rb"step: (?P<step>\d{1,18})\b", _step), *EVENTS), followers=FOLLOWERS
    )
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from collectors._clock import STAMP, short_us, stamp_us
from collectors._container import CONTAINER, joined
from collectors._scan import Scanner
from collectors._text import Line, clean, real, segments, whole
from tracker.core.records import Event, Json, Kind, Reading, Record, Reject, evidence, problem
from tracker.interfaces import Context

_STAMP: Final = re.compile(STAMP)
_SHORT_STAMP: Final = re.compile(rb"\[?[EWIF](\d{1,2})(\d\d) (\d\d:\d\d:\d\d(?:\.\d{1,9})?)\b")
_STAMP_WITHIN: Final = 80  # a stamp further to the right is part of the message
_SAME_RECORD_US: Final = 5_000_000
_SAME_RECORD_BYTES: Final = 16_384
_REMEMBERED: Final = 8
_REJECTED_BYTES: Final = 500


class Hit:
    """A line that a rule asked for, with what a rule needs to make records of it."""

    __slots__ = ("after", "context", "done", "line", "marks", "match", "state")

    def __init__(self, line: Line, context: Context, marks: tuple[bytes, ...] = ()) -> None:
        self.line = line
        """The cleaned line."""
        self.marks = marks
        """Which of the reader's `within` literals it holds."""
        self.context = context
        self.state: dict[str, Json] = context.state
        """The parser's memory: plain JSON."""
        self.done = False
        """Set by a rule that settled the line: the rules after it do not see it."""
        self.after: tuple[bytes, int] = (b"", 0)
        """Of a line with several segments: the line as written, and where in it the next one begins."""
        self.match: re.Match[bytes] = _ANYTHING.match(line.text)  # type: ignore[assignment]
        """What the rule's pattern matched."""

    @property
    def text(self) -> bytes:
        """The cleaned line's text."""
        return self.line.text

    @property
    def offset(self) -> int:
        """Where the line stands in the file."""
        return self.line.offset

    def group(self, name: str | int) -> bytes | None:
        """Return a group of the pattern, None where it took no part."""
        found: bytes | None = self.match[name]
        return found

    def word(self, name: str | int) -> str | None:
        """Return a group as text."""
        found = self.match[name]
        return None if found is None else found.decode("utf-8", "replace").strip()

    def count(self, name: str | int) -> int | None:
        """Return a group as a whole number, None where it is none."""
        return whole(self.match[name])

    def number(self, name: str | int) -> float | None:
        """Return a group as a finite number, None where it is none."""
        return real(self.match[name])

    def stamp_us(self) -> int | None:
        """Return when the line was written, UTC: by the container's stamp, else by its own; else None."""
        if self.line.stamp:
            return stamp_us(self.line.stamp, self.context)
        found = _STAMP.search(self.line.text, 0, _STAMP_WITHIN)
        if found is not None:
            return stamp_us(found[0], self.context)
        short = _SHORT_STAMP.match(self.line.text)
        return None if short is None else short_us(int(short[1]), int(short[2]), short[3], self.context)

    def event(
        self,
        kind: Kind,
        *,
        at_us: int | None = None,
        step: int | None = None,
        duration_us: int | None = None,
        **data: Json,
    ) -> Event:
        """Return an event that this line proves; its time is the line's own unless `at_us` is given."""
        return self.event_of(kind, data, at_us=at_us, step=step, duration_us=duration_us)

    def event_of(
        self,
        kind: Kind,
        data: Mapping[str, Json],
        *,
        at_us: int | None = None,
        step: int | None = None,
        duration_us: int | None = None,
    ) -> Event:
        """Return an event as `event` does; entries of `data` that are None are left out."""
        return Event(
            offset=self.line.offset,
            kind=kind,
            at_us=self.stamp_us() if at_us is None else at_us,
            step=step,
            duration_us=duration_us,
            data={key: value for key, value in data.items() if value is not None},
            text=evidence(self.line.text),
        )

    def reject(self, reason: str) -> Reject:
        """Return this line as one that looked like ours and could not be used."""
        return Reject(self.line.offset, self.line.text[:_REJECTED_BYTES], reason)

    def reading(self, reading: Reading) -> Iterator[Record]:
        """Yield a reading, or why it cannot be kept, or nothing where another rank has just printed it."""
        wrong = problem(reading)
        if wrong is not None:
            yield self.reject(wrong)
        elif fresh(self.state, reading):
            yield reading

    def open(self, name: str, lines: int) -> None:
        """Ask for the next lines too, up to that many: they go to the reader's follower of that name."""
        followed = self.state.setdefault("open", {})
        if isinstance(followed, dict):
            followed[name] = lines

    def close(self, name: str) -> None:
        """Take no more lines for that follower."""
        followed = self.state.get("open")
        if isinstance(followed, dict):
            followed.pop(name, None)
            if not followed:
                del self.state["open"]


_ANYTHING: Final = re.compile(rb"")


def fresh(state: dict[str, Any], reading: Reading) -> bool:
    """Return whether a reading is news: of equal records of many ranks, within seconds, the first is kept.

    The others are counted in `state["copies"]`. The memory goes when a process starts (`started`), so
    that a step done again after a restart is news.
    """
    recent = state.setdefault("recent", [])
    assert isinstance(recent, list)
    if recent and reading.step <= recent[-1][0]:
        for step, at_us, offset in recent:
            if step != reading.step:
                continue
            if reading.at_us is not None and at_us is not None:
                same = abs(reading.at_us - at_us) <= _SAME_RECORD_US
            else:
                same = reading.offset - offset <= _SAME_RECORD_BYTES
            if same:
                count = state.get("copies", 0)
                state["copies"] = count + 1 if isinstance(count, int) else 1
                return False
    if len(recent) >= _REMEMBERED:
        del recent[0]
    recent.append([reading.step, reading.at_us, reading.offset])
    state.pop("events", None)  # what was said before this progress may be said again
    return True


def started(state: dict[str, Json]) -> None:
    """Forget what belongs to the process before: call it where a process starts or a checkpoint is loaded."""
    for key in ("recent", "events", "ends", "cancelled", "benign", "report"):
        state.pop(key, None)


Make = Callable[[Hit], Iterable[Record]]


class Rule(NamedTuple):
    """Which lines to look at, and what to make of them."""

    gate: bytes
    """A literal that each such line holds as written: the longer and rarer, the faster."""
    pattern: re.Pattern[bytes]
    """Searched for in the cleaned line; no match is silence."""
    make: Make
    """Returns the records of the line; none is fine."""
    within: bytes
    """A literal that the lines of many rules share, `gate` included: the block is searched for it."""


def rule(gate: bytes, pattern: bytes, make: Make, *, within: bytes | None = None) -> Rule:
    """Return a rule; the pattern is compiled here, and must take linear time."""
    return Rule(gate, re.compile(pattern), make, gate if within is None else within)


class Hot(Protocol):
    """A short cut for the commonest line of a log: takes a line as the rules would, or leaves it to them."""

    @property
    def gate(self) -> bytes:
        """The literal that all its lines hold."""
        ...

    def sweep(self, block: bytes) -> list[tuple[int, Any]]:
        """Return (start, something of its own) of the lines that it would take, in order."""
        ...

    def run(
        self, swept: Sequence[tuple[int, Any]], place: Callable[[int], int], context: Context
    ) -> Iterator[Record | int]:
        """Yield the records of such lines, one after another; a line's index where the rules must read it."""
        ...


_PLANS: Final = 512


class Reader:
    """A text log's `parse`, made of rules."""

    def __init__(
        self,
        rules: Sequence[Rule],
        *,
        followers: Mapping[str, Make] | None = None,
        hot: Hot | None = None,
    ) -> None:
        """Take the rules in the order in which they see a line."""
        self.rules = tuple(rules)
        self.followers = dict(followers or {})
        self._hot = hot
        self._marks = tuple(dict.fromkeys(one.within for one in self.rules))
        self._scanner = Scanner(self._marks, b"" if hot is None else hot.gate)
        self._plans: dict[tuple[bytes, ...], tuple[Rule, ...]] = {}

    def parse(self, block: bytes, context: Context) -> Iterator[Record]:
        """Yield the records of a block of whole lines, in file order."""
        state = context.state
        if "container" not in state and block:
            state["container"] = CONTAINER.match(block) is not None
        if state.get("container"):
            block, places = joined(block, context)
            yield from self._lines(block, places.at, context)
        else:
            yield from self._lines(block, context.offset.__add__, context)

    def _lines(self, block: bytes, place: Callable[[int], int], context: Context) -> Iterator[Record]:
        hot = self._hot
        swept = hot.sweep(block) if hot is not None and "open" not in context.state else []
        found = self._scanner.lines(block, {start for start, _ in swept}, len(swept))
        if hot is not None and not found and "open" not in context.state:
            for record in hot.run(swept, place, context):
                if isinstance(record, int):
                    yield from self._long_way(block, swept[record][0], place, context)
                else:
                    yield record
        else:
            yield from self._merged(block, dict(swept), found, place, context)

    def _merged(
        self,
        block: bytes,
        swept: dict[int, Any],
        found: dict[int, tuple[bytes, ...]],
        place: Callable[[int], int],
        context: Context,
    ) -> Iterator[Record]:
        """Yield the records of swept lines and of all others of interest, in file order."""
        state, hot = context.state, self._hot
        starts = [*sorted({*swept, *found}), len(block)]
        end, number = -1, 0
        while number < len(starts):
            start = starts[number]
            number += 1
            while (
                "open" in state and end + 1 < start
            ):  # a record of several lines goes on, whatever they hold
                begin, end = end + 1, _line_end(block, end + 1)
                yield from self._slow(block[begin:end], place(begin), (), context)
            if start <= end or start == len(block):
                continue
            if start in found:
                yield from self._slow(
                    block[start : _line_end(block, start)], place(start), found[start], context
                )
            elif hot is None or "open" in state:
                yield from self._long_way(block, start, place, context)
            else:
                first = number - 1
                while starts[number] in swept and starts[number] not in found:
                    number += 1
                some = [(at, swept[at]) for at in starts[first:number]]
                for record in hot.run(some, place, context):
                    if not isinstance(record, int):
                        yield record
                        continue
                    yield from self._long_way(block, some[record][0], place, context)
                    if "open" in state:  # the lines after it are looked at one by one
                        number -= len(some) - 1 - record
                        break
                start = starts[number - 1]
            end = _line_end(block, start)

    def _long_way(
        self, block: bytes, start: int, place: Callable[[int], int], context: Context
    ) -> Iterator[Record]:
        """Yield what the rules make of a line that the short cut left to them."""
        line = block[start : _line_end(block, start)]
        marks = tuple(mark for mark in self._marks if mark in line)
        yield from self._slow(line, place(start), marks, context)

    def _slow(self, line: bytes, offset: int, marks: tuple[bytes, ...], context: Context) -> Iterator[Record]:
        state = context.state
        if b"\r" not in line[:-1]:
            pieces: Iterable[tuple[int, bytes, tuple[bytes, ...]]] = ((offset, line, marks),)
        else:
            pieces = (
                (at, piece, tuple(mark for mark in marks if mark in piece))
                for at, piece in segments(line, offset)
            )
        for at, piece, held in pieces:
            if not held and "open" not in state:
                continue
            hit = Hit(clean(piece, at), context, held)
            hit.after = (line, at - offset + len(piece))
            if "open" in state:
                yield from self._follow(hit)
            for one in self._plan(held):
                if one.gate in hit.line.text:
                    found = one.pattern.search(hit.line.text)
                    if found is not None:
                        hit.match = found
                        yield from one.make(hit)
                        if hit.done:
                            break

    def _plan(self, marks: tuple[bytes, ...]) -> tuple[Rule, ...]:
        """Return the rules for lines with those marks, in order."""
        plan = self._plans.get(marks)
        if plan is None:
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            plan = self._plans[marks] = tuple(one for one in self.rules if one.within in marks)
        return plan

    def _follow(self, hit: Hit) -> Iterator[Record]:
        followed = hit.state["open"]
        if not isinstance(followed, dict):
            return
        for name in list(followed):
            left = followed[name]
            follower = self.followers.get(name)
            if follower is None or not isinstance(left, int) or left <= 0:
                hit.close(name)
                continue
            followed[name] = left - 1
            yield from follower(hit)


def _line_end(block: bytes, start: int) -> int:
    end = block.find(b"\n", start)
    return len(block) if end < 0 else end
