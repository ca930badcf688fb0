"""Draws figures for print: a drawing in data units -> SVG, the same bytes for the same drawing.

Edge of the child process that makes a PDF: loads matplotlib, by its object interface. Words stay words in the
SVG; whoever sets the page has the font.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any, Final

from reports.page import Bar, Drawing, Line, Mark, Panel, clean
from reports.palette import PAPER

FONT: Final = "Libertinus Serif"
_STAND_IN: Final = "DejaVu Sans"
"""Measures the words: a little wider than what is printed, so nothing runs into anything."""
_SIZE_PT: Final = 6.6
_PRINTED: Final = 1.22
"""Printed size of a word over the size it was measured with: the printed face is smaller and narrower."""
_FONT_SIZE: Final = re.compile(r"font-size: ([0-9.]+)px")
_MM: Final = 1 / 25.4
_FEW: Final = 60
_ACROSS: Final = ("axes fraction", "data")
_PICTURE_MM: Final = 130.0
"""Width on paper that a picture for mail is laid out for."""
_APART_PT: Final = 8.0
_ROOM_RIGHT: Final = 0.92
"""Left of this share of the width a short word fits to the right of a point."""
_NEAR: Final = 0.13
"""Of the height: a line that near to a rule runs through words beside it."""


def svg(drawing: Drawing, *, width_mm: float, height_mm: float | None = None) -> bytes:
    """Return a drawing as SVG of that width."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    with mpl.rc_context(_settings()):
        tall = height_mm if height_mm is not None else width_mm * drawing.height_ratio
        figure = _figure(drawing, width_mm * _MM, tall * _MM)
        canvas: Any = FigureCanvasSVG(figure)
        out = io.BytesIO()
        canvas.print_svg(out, metadata={"Date": None, "Creator": None})
    return _in_font(out.getvalue())


def png(drawing: Drawing, *, width_px: int) -> bytes:
    """Return a drawing as a picture of that width, for mail."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with mpl.rc_context(_settings()):
        wide = _PICTURE_MM * _MM
        figure = _figure(drawing, wide, wide * drawing.height_ratio)
        figure.set_dpi(width_px / wide)
        canvas: Any = FigureCanvasAgg(figure)
        out = io.BytesIO()
        canvas.print_png(out, metadata={"Software": None})
    return out.getvalue()


def _settings() -> Any:
    return {
        "svg.hashsalt": "run-telemetry",
        "svg.fonttype": "none",
        "font.family": [_STAND_IN],
        "font.size": _SIZE_PT,
        "axes.unicode_minus": False,
        "path.simplify": True,
        "text.parse_math": False,
        "figure.constrained_layout.w_pad": 0.02,
        "figure.constrained_layout.h_pad": 0.02,
        "figure.constrained_layout.wspace": 0.04,
        "figure.constrained_layout.hspace": 0.06,
    }


def _figure(drawing: Drawing, wide_in: float, tall_in: float) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(wide_in, tall_in), layout="constrained")
    count = len(drawing.panels)
    rows, columns = (1, count) if drawing.beside else (count, 1)
    for number, panel in enumerate(drawing.panels, 1):
        _panel(figure.add_subplot(rows, columns, number), panel)
    if drawing.keys:
        _keys(figure, drawing)
    return figure


def _in_font(body: bytes) -> bytes:
    """Return the SVG with its words in the printed face, as large as they look in it."""
    text = body.decode("utf-8").replace(f"'{_STAND_IN}'", f"'{FONT}', '{_STAND_IN}'")
    return _FONT_SIZE.sub(lambda m: f"font-size: {float(m[1]) * _PRINTED:.2f}px", text).encode()


def _panel(axes: Any, panel: Panel) -> None:
    axes.set_xlim(panel.x.low, panel.x.high)
    low, high = panel.y.low, panel.y.high
    axes.set_ylim(*((high, low) if panel.y.flipped else (low, high)))
    axes.set_xticks([tick.at for tick in panel.x.ticks], [clean(tick.text) for tick in panel.x.ticks])
    axes.set_yticks([tick.at for tick in panel.y.ticks], [clean(tick.text) for tick in panel.y.ticks])
    axes.tick_params(length=0, pad=3, labelcolor=PAPER["muted"])
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    rows = panel.y.flipped
    axes.spines["bottom"].set_visible(not rows)
    axes.spines["bottom"].set_color(PAPER["muted"])
    axes.spines["bottom"].set_linewidth(0.5)
    if rows:
        axes.tick_params(axis="y", labelcolor=PAPER["ink"])
    if panel.title:
        axes.set_title(
            clean(panel.title),
            loc="left",
            fontsize=_SIZE_PT + 0.6,
            fontweight="bold",
            color=PAPER["ink"],
            pad=5,
        )
    if panel.x.title:
        axes.set_xlabel(clean(panel.x.title), color=PAPER["muted"], labelpad=2)
    if panel.y.title:
        axes.set_ylabel(clean(panel.y.title), color=PAPER["muted"], labelpad=2)
    axes.set_axisbelow(True)
    for name, ticks in (("x", panel.x.ticks), ("y", panel.y.ticks)):
        if panel.grid in (name, "both") and ticks:
            axes.grid(axis=name, color=PAPER["grid"], linewidth=0.5)
    _fill(axes, panel)
    _ends(axes, panel)


def _fill(axes: Any, panel: Panel) -> None:
    for band in panel.bands:
        x, bottom, top = zip(*band.points, strict=True)
        axes.fill_between(x, bottom, top, color=PAPER[band.role], alpha=0.16, linewidth=0, zorder=1.5)
    _bars(axes, panel.bars)
    crowded = any(line.thin for line in panel.lines)  # a label on them could not be read
    for rule in panel.rules:
        style: dict[str, Any] = {
            "color": PAPER[rule.role], "linewidth": 0.7, "linestyle": (0, (4, 2.5)) if rule.dashed else "-",
            "zorder": 2.0,
        }  # fmt: skip
        if rule.across == "y":
            axes.axhline(rule.at, **style)
            if crowded:
                _beside(axes, rule.label, (1.0, rule.at), _ACROSS, (3, 0), rule.role, va="center")
            else:
                below = _runs_above(panel, rule.at)
                at, va = ((2, -2), "top") if below else ((2, 2), "bottom")
                _beside(axes, rule.label, (0.0, rule.at), _ACROSS, at, rule.role, va=va)
        else:
            axes.axvline(rule.at, **style)
            _beside(axes, rule.label, (rule.at, 1.0), ("data", "axes fraction"), (2, -1), rule.role, va="top")
    for line in panel.lines:
        x, y = zip(*line.points, strict=True)
        axes.plot(
            x,
            y,
            color=PAPER[line.role],
            linewidth=0.7 if line.thin else 1.1,
            linestyle=(0, (4, 2)) if line.dashed else "-",
            solid_joinstyle="round",
            zorder=3.0,
        )
        if len(line.points) == 1:
            axes.plot(x, y, color=PAPER[line.role], marker=".", markersize=1.5, zorder=3.0)
    _marks(axes, panel.marks)
    for words in panel.words:
        axes.text(
            words.x, words.y, clean(words.text), color=PAPER[words.role], va="center", zorder=5,
            ha={"start": "left", "middle": "center", "end": "right"}[words.anchor],
        )  # fmt: skip


def _runs_above(panel: Panel, at: float) -> bool:
    """Tell whether a line runs just above a rule's left end, and none just below it."""
    span, edge = panel.y.high - panel.y.low, panel.x.low + 0.3 * (panel.x.high - panel.x.low)
    off = [(y - at) / span for line in panel.lines for x, y in line.points if x <= edge]
    return any(0 < far < _NEAR for far in off) and not any(-_NEAR < far < 0 for far in off)


def _bars(axes: Any, bars: Sequence[Bar]) -> None:
    from matplotlib.collections import PolyCollection

    for role in dict.fromkeys(bar.role for bar in bars):
        for hollow in (False, True):
            own = [bar for bar in bars if bar.role == role and bar.outline == hollow]
            if own:
                axes.add_collection(
                    PolyCollection(
                        [((b.x0, b.y0), (b.x1, b.y0), (b.x1, b.y1), (b.x0, b.y1)) for b in own],
                        facecolors="none" if hollow else PAPER[role],
                        edgecolors=PAPER[role],
                        linewidths=0.7 if hollow else 0.25,  # the thinnest bar is still seen
                        zorder=2.5,
                    ),
                    autolim=False,
                )
    for bar in bars:
        if bar.label:
            middle = (bar.y0 + bar.y1) / 2
            _beside(
                axes, bar.label, (max(bar.x0, bar.x1), middle), ("data", "data"), (3, 0), "ink", va="center"
            )


_SHAPES: Final = {"dot": "o", "diamond": "D", "up": "^", "down": "v"}


def _marks(axes: Any, marks: Sequence[Mark]) -> None:
    from matplotlib.collections import LineCollection

    ticks = [mark for mark in marks if mark.shape == "tick"]
    if ticks:
        axes.add_collection(
            LineCollection(
                [((m.x, m.y - 0.44), (m.x, m.y + 0.44)) for m in ticks],
                colors=[PAPER[m.role] for m in ticks],
                linewidths=1.5 if len(ticks) <= _FEW else 0.9,
                zorder=4.0,
            ),
            autolim=False,
        )
    for mark in marks:
        if mark.shape in _SHAPES:
            axes.plot(
                [mark.x], [mark.y], marker=_SHAPES[mark.shape], color=PAPER[mark.role], markersize=3.2,
                markeredgecolor="white", markeredgewidth=0.5, clip_on=False, zorder=4.0,
            )  # fmt: skip


def _ends(axes: Any, panel: Panel) -> None:
    """Label lines at their ends and marks beside them, moved apart where they would overlap."""
    found: list[tuple[float, float, str, Line | Mark]] = []
    for line in panel.lines:
        if line.label:
            found.append((*line.points[-1], line.label, line))
    found += [(mark.x, mark.y, mark.label, mark) for mark in panel.marks if mark.label]
    if not found:
        return
    span, tall = panel.y.high - panel.y.low, 72 * axes.figure.get_figheight() * 0.75
    found.sort(key=lambda item: item[1])
    last: float | None = None
    for x, y, label, item in found:
        at = (y - panel.y.low) / span * tall
        near = at if last is None else max(at, last + _APART_PT)
        last = near
        along = (x - panel.x.low) / (panel.x.high - panel.x.low)
        right = along > 0.8
        side = (-4, "right") if right else (5, "left")
        up = 4 if right else 0 if at < _APART_PT else -4 if isinstance(item, Mark) else 0
        if item.role == "run" and right and y < 0.95 * panel.y.ticks[-1].at:
            # below the line, where what it is compared with does not run
            side, up = ((3, "left"), -12) if along < _ROOM_RIGHT else ((0, "right"), -18)
        axes.annotate(
            clean(label), (x, y), xytext=(side[0], near - at + up), textcoords="offset points", ha=side[1],
            va="bottom" if right else "center", color=PAPER[item.role], annotation_clip=False, zorder=6,
        )  # fmt: skip


def _beside(
    axes: Any,
    text: str,
    at: tuple[float, float],
    coordinates: tuple[str, str],
    offset: tuple[float, float],
    role: Any,
    *,
    va: str,
) -> None:
    if text:
        axes.annotate(
            clean(text), at, xycoords=coordinates, xytext=offset, textcoords="offset points",
            color=PAPER[role], va=va, ha="left", annotation_clip=False, zorder=6,
        )  # fmt: skip


def _keys(figure: Any, drawing: Drawing) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Line2D([], [], color=PAPER[key.role], linewidth=0, marker="|", markersize=7, markeredgewidth=1.6)
        if key.role.startswith("cause_")
        else Patch(color=PAPER[key.role], linewidth=0)
        for key in drawing.keys
    ]
    figure.legend(
        handles, [clean(key.text) for key in drawing.keys], loc="outside lower left", ncols=len(handles),
        frameon=False, handlelength=0.9, handleheight=0.9, handletextpad=0.4, columnspacing=1.3,
        borderpad=0.1, labelcolor=PAPER["muted"],
    )  # fmt: skip
