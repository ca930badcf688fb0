"""A short cut for step lines that are one line each: a hundred thousand of them a second.

Pure. A collector states how the line looks where nothing unusual is in it, and the function that makes the
reading of its match, the one that its rules use too: so the two ways cannot disagree. Colours, glued records,
a process's first line, a step that was seen before: the rules take them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from collectors._clock import STAMP, minute_of, stamp_us
from tracker.core.records import Reading, problem
from tracker.interfaces import Context

LABEL: Final = rb"[ \t]*(?:\d{1,7}: |\[(?:default|rank)\d{1,7}\]: ?)?"
"""What may stand before a line without making it unusual."""
AT: Final = rb"(?P<at>" + STAMP + rb")"
_REMEMBERED: Final = 8

Memory = dict[str, Any]
Match = re.Match[bytes]
Taken = tuple[Reading | None, Memory]
"""A line's reading (None where it has none), and what to remember of it in `state["process"]`."""
Take = Callable[[Match, int | None, int, Memory], Taken | None]
"""Of (match of the body, time, offset, what is remembered of the process): None where more is to be said.

The reading's time is the one given, or one that the line has by other means."""
Stamp = Callable[[Match, Context], int | None]


class Swift:
    """The `Hot` of a collector with one line a step."""

    def __init__(
        self, gate: bytes, head: bytes, body: bytes, take: Take, *, stamp: Stamp | None = None
    ) -> None:
        r"""Take the line's two parts; the body begins with a literal and ends with `\n`.

        `stamp` reads a time from the head's match (None: unusual). Without it the head's group `at` is the
        stamp; where the head has no such group the line has no time.
        """
        self.gate = gate
        self._head = re.compile(LABEL + head)
        self._body = re.compile(body)
        self._take = take
        self._at = stamp is None and "at" in self._head.groupindex
        self._stamp = stamp

    def sweep(self, block: bytes) -> list[tuple[int, tuple[Match, Match]]]:
        """Return the lines of a block that look as usual."""
        head, swept = self._head.fullmatch, []
        for body in self._body.finditer(block):
            at = body.start()
            start = block.rfind(b"\n", 0, at) + 1
            before = head(block, start, at)
            if before is not None:
                swept.append((start, (before, body)))
        return swept

    def run(
        self, swept: Sequence[tuple[int, tuple[Match, Match]]], place: Callable[[int], int], context: Context
    ) -> Iterator[Reading | int]:
        """Yield the readings of swept lines as the rules and `progress` would; else the line's number."""
        state: Memory = context.state
        take, stamp, stamped = self._take, self._stamp, self._at
        minute, minute_us = b"", None
        for number, (start, (head, body)) in enumerate(swept):
            recent, one = state.get("recent"), state.get("process")
            if not recent or not one or "ran" not in one or "leaving" in one:
                yield number
                continue
            at_us = None
            if stamped:  # as `stamp_us` does
                at = head["at"]
                if at[:17] != minute:
                    minute = at[:17]
                    minute_us = minute_of(minute, context)
                if minute_us is not None and at[17:19] < b"60":
                    at_us = minute_us + int(at[17:19] + at[20:26].ljust(6, b"0"))
                    state["clock"] = at_us
                else:
                    at_us = stamp_us(at, context)
            elif stamp is not None:
                at_us = stamp(head, context)
            if at_us is None and (stamped or stamp is not None):
                yield number
                continue
            taken = take(body, at_us, place(start), one)
            if taken is None:
                yield number
                continue
            reading, memory = taken
            if reading is not None:
                if reading.step <= recent[-1][0] or problem(reading) is not None:
                    yield number
                    continue
                if len(recent) >= _REMEMBERED:
                    del recent[0]
                recent.append([reading.step, reading.at_us, reading.offset])
                state.pop("events", None)
                one["step"], one["free"] = reading.step, reading.at_us
                one.pop("busy", None)
            if memory:
                one.update(memory)
            if reading is not None:
                yield reading


class Sheaf(Swift):
    """The same for a record of several lines: a header, and a metric a line."""

    def __init__(
        self, head: bytes, body: bytes, take: Take, *, metrics: Sequence[str | int], closing: str | int
    ) -> None:
        """`metrics`: groups that stand where lines of other rules begin; `closing`: that of the last."""
        super().__init__(b"", head, body, take)  # no literal is in all lines that are swept
        self._metrics = tuple(metrics)
        self._closing = closing

    def sweep(self, block: bytes) -> list[tuple[int, Any]]:
        """Return the headers, and the lines of their metrics."""
        swept: list[tuple[int, Any]] = []
        for start, (head, body) in super().sweep(block):
            record = [start, head, body, False]
            swept.append((start, record))
            swept += [(body.start(name), record) for name in self._metrics if body.start(name) >= 0]
        return swept

    def run(
        self, swept: Sequence[tuple[int, Any]], place: Callable[[int], int], context: Context
    ) -> Iterator[Reading | int]:
        """Yield a record's reading at its header; a record is the rules' as a whole, or none of it."""
        for number, (start, record) in enumerate(swept):
            if start != record[0]:
                if record[3]:
                    yield number
                continue
            _, head, body, _ = record
            for item in super().run(((body.start(self._closing), (head, body)),), place, context):
                if isinstance(item, Reading):
                    yield item
                else:
                    record[3] = True
                    yield number
