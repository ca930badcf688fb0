r"""A short cut for lines of bar states that end in a dict: redrawn state, states, blanks, `{'loss': ...}`.

Pure. Such lines are nearly all that a trainer's console has; text between their parts, another total, a
state that goes back, a process's first dict, what a save or an engine's line has left to be told: the rules
take them. The states are told by `_bars` on both ways.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from collectors._bars import STATE, remember, sample, soon
from collectors._lines import fresh
from collectors._process import elapsed_s
from collectors._swift import LABEL
from tracker.core.records import Json, Reading, problem
from tracker.interfaces import Context

_VALUE: Final = rb"(?:'[-+\w.]{1,40}'|[-+\w.]{1,40})"
_DICT: Final = re.compile(rb"\{'loss': " + _VALUE + rb"(?:, '[\w/(). -]{1,60}': " + _VALUE + rb"){1,60}\}\n")
_STATE: Final = rb"[ \t]{0,40}\d{1,3}%\|[^|\[\x1b\n]{0,120}\| {1,4}" + STATE + rb"\][ \t]{0,400}"
_PIECE: Final = re.compile(_STATE)
_LABELLED: Final = re.compile(LABEL + _STATE)
_HEAD_BYTES: Final = 8192
_BLANK_BYTES: Final = 500
"""Between the last state and the dict: behind more than that, the rules look whether they belong together."""

_TO_BE_TOLD: Final = frozenset(("leaving", "other", "saved"))

Content = Callable[[dict[str, str]], tuple[Json, int | None, int] | None]
"""Of a dict: (what it is known again by, tokens so far, flags); None where it is not a usual one."""


class _Drawn(NamedTuple):
    """A line of states and their dict."""

    states: list[tuple[int, int, int]]
    """(offset in the line, steps, seconds)"""
    total: int
    place: int
    """Where in the line the dict's segment begins."""
    found: dict[str, str]
    """What the dict holds."""


class Drawn:
    """The `Hot` of a collector whose records stand behind a bar."""

    gate: Final = b"%|"

    def __init__(self, content: Content) -> None:
        """`content` reads the dict as the rule does."""
        self._content = content

    def sweep(self, block: bytes) -> list[tuple[int, _Drawn]]:
        """Return the lines that look as usual."""
        swept: list[tuple[int, _Drawn]] = []
        for found in _DICT.finditer(block):
            at = found.start()
            start = block.rfind(b"\n", 0, at) + 1
            if at - start <= _HEAD_BYTES and (drawn := _drawn(block, start, found)) is not None:
                swept.append((start, drawn))
        return swept

    def run(
        self, swept: Sequence[tuple[int, _Drawn]], place: Callable[[int], int], context: Context
    ) -> Iterator[Reading | int]:
        """Yield what the rules would make of swept lines; a line's number where more is to be said."""
        state = context.state
        for number, (start, drawn) in enumerate(swept):
            readings = self._readings(drawn, place(start), state.get("process"))
            if readings is None:
                yield number
                continue
            one: Any = state["process"]
            for reading in readings:
                if fresh(state, reading):
                    one["step"], one["free"] = reading.step, reading.at_us
                    one.pop("busy", None)
                    yield reading

    def _readings(self, drawn: _Drawn, begin: int, one: Any) -> list[Reading] | None:
        """Return the readings of a line and remember what it says; None, and nothing done, if unusual."""
        bar = one.get("bar") if one else None
        if (
            not bar
            or "kept" not in bar
            or "zeroed" in bar
            or "ran" not in one
            or not _TO_BE_TOLD.isdisjoint(one)
            or ("engine" in one and "anchor" not in one)
            or one.get("settings", {}).get("target_steps") != drawn.total
        ):
            return None
        content = self._content(drawn.found)
        last, kept, anchor = bar["last"], bar["kept"], one.get("anchor")
        new = drawn.states[1:] if drawn.states[0][1] == last[0] else drawn.states
        if content is None or not new or drawn.states[0][2] < last[1]:
            return None
        readings: list[Reading] = []
        end = len(new) - 1
        for number, (at, step, s) in enumerate(new):
            if step <= last[0] or s < last[1]:
                return None
            last = [step, s]
            if number == end:
                reading = sample(begin + drawn.place, last, kept, anchor, tokens=content[1], flags=content[2])
            elif soon(last, kept, drawn.total):
                reading = sample(begin + at, last, kept, anchor)
            else:
                continue
            if reading is not None:
                if problem(reading) is not None:
                    return None
                readings.append(reading)
                kept = last
        for _, step, s in new:
            remember(bar, step, s)
        bar["kept"], one["dict"] = kept, content[0]
        bar.pop("fresh", None)
        return readings


def _drawn(block: bytes, start: int, found: re.Match[bytes]) -> _Drawn | None:
    r"""Take the text before a dict apart: states, each with its `\r`, and blanks."""
    pieces = block[start : found.start()].split(b"\r")
    states, known, at, behind = [], b"", 0, -1
    for piece in pieces:
        if piece.strip(b" "):
            state = _PIECE.fullmatch(piece)
            if state is None and not at:
                state = _LABELLED.fullmatch(piece)
            if state is None:
                return None
            n, total, elapsed = state.groups()
            if total != (known or total):
                return None
            known = total
            states.append((at, int(n), elapsed_s(elapsed)))
            behind = at + len(piece)
        at += len(piece) + 1
    at -= len(pieces[-1]) + 1
    if not states or not behind < at <= behind + _BLANK_BYTES:
        return None
    return _Drawn(states, int(known), at, _fields(found[0]))


def _fields(text: bytes) -> dict[str, str]:
    """Return a dict's entries, without quotes: no name and no value has a comma or a colon."""
    found = {}
    for item in text[2:-2].decode("ascii").split(", '"):
        name, _, value = item.partition("': ")
        found[name] = value.strip("'")
    return found
