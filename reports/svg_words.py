"""The words in a figure drawn as SVG: names of lines, bars, rules and marks, each where it hides no other.

Pure.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Final

from reports.page import Axis, Bar, Line, Mark, Panel, Rule, clean

_FONT: Final = 12.0
_EM: Final = 0.59
"""Mean width of a character, in ems."""
FAR: Final = 1e5
"""Pixels; whatever is farther away is out of sight as well there."""
_HIGH: Final = 13.0
_ASIDE: Final = (0.0, _HIGH, -_HIGH, 2 * _HIGH, -2 * _HIGH, 3 * _HIGH)
"""How far a name may stand below or above its point, best first."""


@dataclass(frozen=True, slots=True)
class Box:
    """Where a panel's data go, in pixels."""

    left: float
    top: float
    width: float
    height: float
    x: Axis
    y: Axis

    def at_x(self, value: float) -> float:
        """Return where a value of the x axis stands."""
        share = (value - self.x.low) / (self.x.high - self.x.low)
        return self.left + self.width * (1 - share if self.x.flipped else share)

    def at_y(self, value: float) -> float:
        """Return where a value of the y axis stands."""
        share = (value - self.y.low) / (self.y.high - self.y.low)
        return self.top + self.height * (share if self.y.flipped else 1 - share)

    def lines(self, factor: float = 1.0) -> tuple[float, float, float, float]:
        """Return a, b, c, d: x stands at a * x + b, y at c * y + d, in pixels times a factor."""
        x, y = self.x, self.y
        a = (self.at_x(x.high) - self.at_x(x.low)) / (x.high - x.low) * factor
        c = (self.at_y(y.high) - self.at_y(y.low)) / (y.high - y.low) * factor
        return a, self.at_x(x.low) * factor - a * x.low, c, self.at_y(y.low) * factor - c * y.low

    def has(self, x: float, y: float) -> bool:
        """Tell whether a point is inside."""
        return self.x.low <= x <= self.x.high and self.y.low <= y <= self.y.high


class _Labels:
    """Keeps the places that are taken."""

    def __init__(self, box: Box, end: float) -> None:
        self._box = box
        self._end = end
        self._taken: list[tuple[float, float, float, float]] = []

    def free(self, x: float, y: float, width: float) -> bool:
        """Tell whether words that begin at x on the base line y hide no others."""
        return all(
            x >= right or x + width <= left or y - _HIGH + 2 >= bottom or y + 2 <= top
            for left, top, right, bottom in self._taken
        )

    def take(self, x: float, y: float, width: float) -> None:
        """Keep a place."""
        self._taken.append((x, y - _HIGH + 2, x + width, y + 2))

    def near(self, x: float, y: float, text: str, role: str, style: str) -> str:
        """Write beside a point, right of it where there is room, else left; higher or lower if need be."""
        width = width_of(text)
        places = [(x + 7, "start", x + 7), (x - 7, "end", x - 7 - width)]
        places = [p for p in places if p[2] + width <= self._end + 2 and p[2] >= 0] or places[1:]
        low, high = self._box.top + 4, self._box.top + self._box.height + 4
        for aside in _ASIDE:
            for at, anchor, left in places:
                line = min(max(y + 4 + aside, low), high)
                if self.free(left, line, width):
                    self.take(left, line, width)
                    return words(at, line, text, role=role, anchor=anchor, style=style)
        return ""


def labels(panel: Panel, box: Box, *, end: float) -> list[str]:
    """Return all words of a panel but those of its axes; `end` is where its room ends at the right."""
    kept = _Labels(box, end)
    parts = []
    for one in panel.words:
        if isfinite(one.x) and isfinite(one.y):
            x, y, width = box.at_x(one.x), box.at_y(one.y) + 4, width_of(one.text)
            kept.take(x - {"start": 0.0, "middle": width / 2, "end": width}[one.anchor], y, width)
            parts.append(words(x, y, one.text, role=one.role, anchor=one.anchor))
    parts += _of_bars(panel.bars, box, end, kept)
    parts += _of_rules(panel.rules, box, end, kept)
    parts += _of_marks(panel.marks, box, kept)
    parts += _of_lines(panel.lines, box, kept)
    return parts


def _of_rules(rules: tuple[Rule, ...], box: Box, end: float, kept: _Labels) -> Iterator[str]:
    """Write names of upright rules above the plot, those of level ones over their right end."""
    for rule in rules:
        if not rule.label or not isfinite(rule.at):
            continue
        size = width_of(rule.label)
        if rule.across == "y":
            if box.y.low <= rule.at <= box.y.high:
                right = box.left + box.width - 2
                for at in (box.at_y(rule.at) - 4, box.at_y(rule.at) + 13):
                    if at >= box.top + 8 and kept.free(right - size, at, size):
                        kept.take(right - size, at, size)
                        yield words(right, at, rule.label, role=rule.role, anchor="end")
                        break
            continue
        start = min(max(box.at_x(rule.at) - size / 2, box.left), max(end - size, box.left))
        if box.x.low <= rule.at <= box.x.high and kept.free(start - 3, box.top - 4, size + 6):
            kept.take(start, box.top - 4, size)
            yield words(start, box.top - 4, rule.label, role=rule.role)


def _of_lines(lines: tuple[Line, ...], box: Box, kept: _Labels) -> Iterator[str]:
    """Write names at the ends of lines, the highest first."""
    ends = [
        (box.at_y(y), box.at_x(x), line)
        for line in lines
        if line.label and line.points
        for x, y in [line.points[-1]]
        if isfinite(x) and isfinite(y)
    ]
    for y, x, line in sorted(ends, key=lambda end: end[:2]):
        yield kept.near(min(x, box.left + box.width), y, line.label, line.role, "b")


def _of_marks(marks: tuple[Mark, ...], box: Box, kept: _Labels) -> Iterator[str]:
    for mark in marks:
        if mark.label and isfinite(mark.x) and isfinite(mark.y) and box.has(mark.x, mark.y):
            yield kept.near(box.at_x(mark.x), box.at_y(mark.y), mark.label, mark.role, "b")


def _of_bars(bars: tuple[Bar, ...], box: Box, end: float, kept: _Labels) -> Iterator[str]:
    """Write names beside bars that are rows, over bars that are columns, where there is room."""
    for bar in bars:
        if not bar.label or not all(map(isfinite, (bar.x0, bar.x1, bar.y0, bar.y1))):
            continue
        x0, x1 = sorted((box.at_x(bar.x0), box.at_x(bar.x1)))
        y0, y1 = sorted((box.at_y(bar.y0), box.at_y(bar.y1)))
        size = width_of(bar.label)
        if box.y.flipped:
            middle = (y0 + y1) / 2 + 4
            if x1 + 5 + size <= end:
                place = (x1 + 5, x1 + 5, "start", "ink")
            elif x0 - 5 - size >= box.left:
                place = (x0 - 5, x0 - 5 - size, "end", "ink")
            elif x1 - x0 >= size + 12:
                place = (x1 - 6, x1 - 6 - size, "end", "ink" if bar.outline else "paper")
            else:
                place = (end, end - size, "end", "ink")
            at, left, anchor, role = place
            if kept.free(left, middle, size):
                kept.take(left, middle, size)
                yield words(at, middle, bar.label, role=role, anchor=anchor)
        elif size <= (x1 - x0) * 1.6 + 6:
            at = y0 - 4 if y0 - 14 >= box.top - 2 else y0 + 13
            kept.take((x0 + x1 - size) / 2, at, size)
            yield words((x0 + x1) / 2, at, bar.label, anchor="middle")


def words(x: float, y: float, text: str, *, role: str = "ink", anchor: str = "start", style: str = "") -> str:
    """Return one line of text."""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return (
        f'<text x="{n(x)}" y="{n(y)}"{where} class="f {role}{" " + style if style else ""}">'
        f"{escaped(text)}</text>"
    )


def width_of(text: str) -> float:
    """Guess how wide a text is drawn."""
    return max(map(len, text.split("\n"))) * _FONT * _EM


def escaped(value: str) -> str:
    """Return hostile text for an SVG element or attribute."""
    return html.escape(clean(value).replace("\n", " "), quote=True)


def n(value: float) -> str:
    """Return a coordinate with one decimal at most.

    >>> n(12.0), n(3.14159), n(-0.01)
    ('12', '3.1', '0')
    """
    said = f"{value if -FAR < value < FAR else FAR if value > 0 else -FAR:.1f}".removesuffix(".0")
    return "0" if said == "-0" else said
