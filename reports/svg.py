"""A figure's drawing as SVG inside a web page, small and quick: pure Python, so that the sidecar stays light.

Pure. Colours are classes that the page's style sheet defines, light and dark. Texts are escaped. Figures
are made for a width in pixels and drawn at that size, so that words stay readable on a phone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from math import isfinite
from typing import Final

from reports.page import MOST_HINTS, Axis, Band, Bar, Figure, Line, Mark, Panel, Rule, Tick
from reports.svg_words import FAR, Box, escaped, labels, n, width_of, words

WIDE: Final = 960
NARROW: Final = 320
_FLATTER: Final = 0.75
"""A wide figure is not as high as its width would have it."""
_TALLER: Final = 1.55
"""A narrow one is higher."""
_LINE: Final = 15.0
_ROW: Final = 14.0
"""Least height of a row with a name."""
_LABELLED_RIGHT: Final = 0.34
"""Labels at the ends of lines take at most this share of the width."""
_TICK: Final = 160
"""Length of an upright stroke, tenths of a pixel."""
_SHAPES: Final = {
    "dot": "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0",
    "tick": "m-1.7 -8h3.4v16h-3.4z",
    "diamond": "m0 -5l4.5 5l-4.5 5l-4.5 -5z",
    "up": "m0 -5l4.5 8.5h-9z",
    "down": "m0 5l4.5 -8.5h-9z",
}


def svg(figure: Figure, *, width: int = WIDE) -> str:
    """Return a figure's drawing as one <svg> element of that width."""
    drawing = figure.drawing
    narrow = width < WIDE * 0.7
    height = width * drawing.height_ratio * (_TALLER if narrow else _FLATTER)
    beside = drawing.beside and not narrow
    if drawing.beside and narrow:
        height *= len(drawing.panels)
    count = max(1, len(drawing.panels))
    gap = 18.0
    least = max((_least(panel) for panel in drawing.panels), default=0.0)
    height = max(height, least if beside else least * count + gap * (count - 1))
    parts: list[str] = []
    for number, panel in enumerate(drawing.panels):
        if beside:
            each = (width - gap * (count - 1)) / count
            place = (number * (each + gap), 0.0, each, height)
        else:
            each = (height - gap * (count - 1)) / count
            place = (0.0, number * (each + gap), float(width), each)
            panel = _named(panel, drawing.panels[0])
        parts += _panel(panel, place)
    return (
        f'<svg viewBox="0 0 {width} {n(height)}" width="{width}" height="{n(height)}" role="img" '
        f'aria-label="{escaped(figure.alt)}">{"".join(parts)}</svg>'
    )


def _named(panel: Panel, first: Panel) -> Panel:
    """Return a panel whose rows, named once where they stand beside the first one's, have their names."""
    ticks = panel.y.ticks
    if not panel.y.flipped or len(ticks) != len(first.y.ticks) or any(tick.text for tick in ticks):
        return panel
    named = tuple(replace(tick, text=other.text) for tick, other in zip(ticks, first.y.ticks, strict=True))
    return replace(panel, y=replace(panel.y, ticks=named))


def _least(panel: Panel) -> float:
    """Return the height that a panel of rows needs, so that each row can be named."""
    if not panel.y.flipped:
        return 0.0
    rows = panel.y.high - panel.y.low
    return rows * _ROW + _ticks_height(panel.x) + (_LINE + 6 if panel.title else 0.0) + 5.0


def _panel(panel: Panel, place: tuple[float, float, float, float]) -> list[str]:
    left, top, width, height = place
    if not (panel.x.high > panel.x.low and panel.y.high > panel.y.low):
        return []
    right = _right(panel, width)
    above = (_LINE + 6 if panel.title else 0.0) + (_LINE if panel.y.title else 0.0)
    above += _LINE if any(rule.label and rule.across == "x" for rule in panel.rules) else 5.0
    below = _ticks_height(panel.x) + (_LINE if panel.x.title else 0.0)
    gutter = min(max((width_of(tick.text) for tick in panel.y.ticks), default=0.0) + 8, width * 0.4)
    box = Box(
        left + gutter,
        top + above,
        max(width - gutter - right, 10.0),
        max(height - above - below, 10.0),
        panel.x,
        panel.y,
    )
    parts = []
    if panel.title:
        parts.append(words(left, top + 12, panel.title, style="t"))
    if panel.y.title:
        at = top + (_LINE + 6 if panel.title else 0.0) + 11
        parts.append(words(left, at, panel.y.title, role="muted"))
    parts += _grid(panel, box)
    parts += _inside(panel, box)
    parts += _marks(panel.marks, box)
    parts += labels(panel, box, end=left + width)
    parts += _axes(panel, box)
    return parts


def _ticks_height(axis: Axis) -> float:
    if not axis.ticks:
        return 4.0
    return 6 + _LINE * max(tick.text.count("\n") + 1 for tick in axis.ticks)


def _right(panel: Panel, width: float) -> float:
    """Return the room that labels at the ends of lines need."""
    ends = [(line.points[-1][0], width_of(line.label)) for line in panel.lines if line.label and line.points]
    ends += [(mark.x, width_of(mark.label) + 4) for mark in panel.marks if mark.label]
    span = panel.x.high - panel.x.low
    need = max((size - (panel.x.high - x) / span * width * 0.8 for x, size in ends), default=0.0)
    last = max((width_of(tick.text) / 2 for tick in panel.x.ticks if tick.at >= panel.x.high - span * 0.02),
               default=0.0)  # fmt: skip
    return max(6.0, last, min(need + 8, width * _LABELLED_RIGHT))


def _grid(panel: Panel, box: Box) -> list[str]:
    path = ""
    if panel.grid in ("x", "both"):
        path += "".join(f"M{n(box.at_x(t.at))} {n(box.top)}v{n(box.height)}" for t in _within(panel.x))
    if panel.grid in ("y", "both"):
        path += "".join(f"M{n(box.left)} {n(box.at_y(t.at))}h{n(box.width)}" for t in _within(panel.y))
    return [f'<path class="s grid" d="{path}"/>'] if path else []


def _inside(panel: Panel, box: Box) -> list[str]:
    """Return what is cut off at the edges of the plot."""
    parts = [_band(band, box) for band in panel.bands]
    parts += _bars([bar for bar in panel.bars if all(map(isfinite, (bar.x0, bar.x1, bar.y0, bar.y1)))], box)
    parts += [_rule(rule, box) for rule in panel.rules]
    parts += [_line(line, box) for line in panel.lines]
    inner = "".join(parts)
    if not inner:
        return []
    view = f"{n(box.left)} {n(box.top)} {n(box.width)} {n(box.height)}"
    return [
        f'<svg x="{n(box.left)}" y="{n(box.top)}" width="{n(box.width)}" height="{n(box.height)}" '
        f'viewBox="{view}">{inner}</svg>'
    ]


def _band(band: Band, box: Box) -> str:
    points = [p for p in band.points if all(map(isfinite, p))]
    if not points:
        return ""
    upper = [(x, high) for x, _, high in points]
    lower = [(x, low) for x, low, _ in reversed(points)]
    return f'<path class="f band {band.role}" d="{_path([*upper, *lower], box)}z"/>'


def _bars(bars: Sequence[Bar], box: Box) -> list[str]:
    """Return the bars; many of them are drawn as a few paths, each of one kind."""
    if len(bars) > MOST_HINTS:
        return _many(bars, box)
    parts = []
    for bar in bars:
        x, y, width, height = _rectangle(bar, box)
        style = f"{'s hollow' if bar.outline else 'f'} {bar.role}"
        hint = f"<title>{escaped(bar.hint)}</title>" if bar.hint else ""
        parts.append(
            f'<path class="{style}" d="M{n(x)} {n(y)}h{n(width)}v{n(height)}h{n(-width)}z">{hint}</path>'
        )
    return parts


def _many(bars: Sequence[Bar], box: Box) -> list[str]:
    """Return bars as thick level strokes in tenths of a pixel, each begun from the end of the one before."""
    paths: dict[tuple[str, int], list[str]] = {}
    pens: dict[tuple[str, int], tuple[int, int]] = {}
    a, b, c, d = box.lines(10.0)
    low, high = round(10 * box.left) - 20, round(10 * (box.left + box.width)) + 20
    for bar in bars:
        y0, y1 = round(c * bar.y0 + d), round(c * bar.y1 + d)
        x, end = a * bar.x0 + b, a * bar.x1 + b
        if end < x:
            x, end = end, x
        if end < low or x > high:
            continue
        x, end = round(x) if x > low else low, round(end) if end < high else high
        width, height = end - x if end - x > 6 else 6, abs(y1 - y0) or 6
        kind, middle = (bar.role, height), (y0 + y1) // 2
        at_x, at_y = pens.get(kind, (0, 0))
        if middle == at_y and x + width <= at_x:
            continue  # on the same pixel as the one before
        pens[kind] = (x + width, middle)
        step = f"m{x - at_x} {middle - at_y}h{width}"
        if kind in paths:
            paths[kind].append(step)
        else:
            paths[kind] = [step]
    inner = "".join(
        f'<path class="s {role}" stroke-width="{height}" d="{"".join(pieces)}"/>'
        for (role, height), pieces in paths.items()
    )
    return [f'<g transform="scale(.1)">{inner}</g>']


def _rectangle(bar: Bar, box: Box) -> tuple[float, float, float, float]:
    """Return left, top, width and height of a bar, at least a visible sliver."""
    x0, x1 = sorted((_clamp(box.at_x(bar.x0), box, 0), _clamp(box.at_x(bar.x1), box, 0)))
    y0, y1 = sorted((_clamp(box.at_y(bar.y0), box, 1), _clamp(box.at_y(bar.y1), box, 1)))
    return x0, y0, max(x1 - x0, 0.6), max(y1 - y0, 0.6)


def _clamp(value: float, box: Box, axis: int) -> float:
    """Keep a number near the plot: what lies far outside is cut off anyway."""
    low, size = (box.left, box.width) if axis == 0 else (box.top, box.height)
    return min(max(value, low - 2), low + size + 2)


def _rule(rule: Rule, box: Box) -> str:
    if not isfinite(rule.at):
        return ""
    if rule.across == "x":
        path = f"M{n(box.at_x(rule.at))} {n(box.top)}v{n(box.height)}"
    else:
        path = f"M{n(box.left)} {n(box.at_y(rule.at))}h{n(box.width)}"
    return f'<path class="s rule{" dash" if rule.dashed else ""} {rule.role}" d="{path}"/>'


def _line(line: Line, box: Box) -> str:
    points = [p for p in line.points if isfinite(p[0]) and isfinite(p[1])]
    if not points:
        return ""
    style = f"s line{' dash' if line.dashed else ''}{' thin' if line.thin else ''} {line.role}"
    return f'<path class="{style}" d="{_path(_fewer(points, box.width), box)}"/>'


def _fewer(points: Sequence[tuple[float, float]], width: float) -> Sequence[tuple[float, float]]:
    """Keep the lowest and the highest of many points on one pixel."""
    most = int(width) * 2
    if len(points) <= most:
        return points
    size = -(-len(points) * 2 // most)
    kept = [points[0]]
    for start in range(0, len(points), size):
        block = points[start : start + size]
        kept += sorted({min(block, key=lambda p: p[1]), max(block, key=lambda p: p[1])})
    return [*kept, points[-1]]


def _path(points: Iterable[tuple[float, float]], box: Box) -> str:
    a, b, c, d = box.lines()
    placed = [(a * x + b, c * y + d) for x, y in points]
    if any(not (-FAR < x < FAR and -FAR < y < FAR) for x, y in placed):
        return "M" + "L".join([f"{n(x)} {n(y)}" for x, y in placed])
    said = "M" + "L".join([f"{x:.1f} {y:.1f}" for x, y in placed]) + "L"
    return said.replace("-0.0", "0.0").replace(".0 ", " ").replace(".0L", "L")[:-1]


def _marks(marks: Sequence[Mark], box: Box) -> list[str]:
    """Return the signs; many of them are one path for each role."""
    shown = [m for m in marks if isfinite(m.x) and isfinite(m.y) and box.has(m.x, m.y)]
    if len(shown) > MOST_HINTS and all(mark.shape == "tick" for mark in shown):
        return _many_ticks(shown, box)
    paths: dict[str, list[str]] = {}
    parts = []
    for mark in shown:
        shape = f"M{n(box.at_x(mark.x))} {n(box.at_y(mark.y))}{_SHAPES[mark.shape]}"
        if mark.hint and len(shown) <= MOST_HINTS:
            title = f"<title>{escaped(mark.hint)}</title>"
            parts.append(f'<path class="f mark {mark.role}" d="{shape}">{title}</path>')
        else:
            paths.setdefault(mark.role, []).append(shape)
    parts += [f'<path class="f mark {role}" d="{"".join(all_)}"/>' for role, all_ in paths.items()]
    return parts


def _many_ticks(marks: Sequence[Mark], box: Box) -> list[str]:
    """Return upright strokes as one path for each role."""
    paths: dict[str, list[str]] = {}
    pens: dict[str, tuple[int, int]] = {}
    a, b, c, d = box.lines(10.0)
    for mark in marks:
        x, y = round(a * mark.x + b), round(c * mark.y + d) + _TICK // 2
        at = pens.get(mark.role, (0, 0))
        paths.setdefault(mark.role, []).append(f"m{x - at[0]} {y - at[1]}v-{_TICK}")
        pens[mark.role] = (x, y - _TICK)
    inner = "".join(
        f'<path class="s {role}" stroke-width="25" d="{"".join(pieces)}"/>' for role, pieces in paths.items()
    )
    return [f'<g transform="scale(.1)">{inner}</g>']


def _axes(panel: Panel, box: Box) -> list[str]:
    parts = []
    bottom = box.top + box.height
    for tick in _spaced(panel.x, box):
        half = width_of(tick.text) / 2
        at = max(box.at_x(tick.at), half)
        for number, line in enumerate(tick.text.split("\n")):
            parts.append(words(at, bottom + 15 + number * _LINE, line, role="muted", anchor="middle"))
    before = float("inf")
    for tick in sorted(_within(panel.y), key=lambda t: -box.at_y(t.at)):
        at = box.at_y(tick.at)
        if before - at >= 11:
            before = at
            parts.append(words(box.left - 7, at + 4, tick.text, role="muted", anchor="end"))
    if panel.x.title:
        parts.append(
            words(box.left + box.width, bottom + _ticks_height(panel.x) + 9, panel.x.title, role="muted",
                   anchor="end")
        )  # fmt: skip
    if panel.x.ticks and panel.grid in ("none", "y"):
        parts.append(f'<path class="s axis" d="M{n(box.left)} {n(bottom)}h{n(box.width)}"/>')
    return parts


def _within(axis: Axis) -> list[Tick]:
    slack = (axis.high - axis.low) * 1e-6
    return [tick for tick in axis.ticks if axis.low - slack <= tick.at <= axis.high + slack]


def _spaced(axis: Axis, box: Box) -> list[Tick]:
    """Return every tick, or every second, third ... one: as many as have room."""
    ticks = sorted(_within(axis), key=lambda tick: tick.at)
    for step in range(1, max(len(ticks), 1) + 1):
        kept = ticks[::step]
        gaps = (
            abs(box.at_x(b.at) - box.at_x(a.at)) - (width_of(a.text) + width_of(b.text)) / 2
            for a, b in pairwise(kept)
        )
        if all(gap >= 8 for gap in gaps):
            return kept
    return ticks[:1]
