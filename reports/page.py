"""A report as one value: verdict, sections, tables, figures in data units; text, HTML and PDF come from it.

Pure. Every number is already text here, but for the coordinates of figures. Texts may hold words of a log:
a rendering shows them as text, through `clean`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from reports.tables import Table

Tone: TypeAlias = Literal["plain", "good", "warning", "problem"]
"""How a reader should take it. A rendering never shows it by colour alone."""

Role: TypeAlias = Literal[
    "ink", "muted", "grid", "run", "plan", "forecast", "good", "warning", "problem",
    "productive", "lost", "startup", "checkpoint", "evaluation", "tail", "pending", "idle", "other",
    "cause_gpu", "cause_network", "cause_host", "cause_software", "cause_storage", "cause_planned",
    "cause_unknown",
]  # fmt: skip
"""What a thing in a figure stands for; a rendering has a colour for each, light and dark."""


# -- what a page is made of -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """A heading inside a section."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """One or a few sentences."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFigure:
    """One figure that a reader looks at first."""

    name: str
    value: str
    change: str = ""
    """Since the moment the report compares with; empty where there is none to compare with."""
    plan: str = ""
    """Against the plan; empty without one."""
    convention: str = ""
    """What makes it comparable: of which peak, by which definition."""
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFigures:
    """Key figures that stand together."""

    figures: tuple[KeyFigure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """Short sentences in small print, under a title where there is one."""

    items: tuple[str, ...]
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A drawing with what it says in words."""

    name: str
    """Of letters, digits and "-"; one of its kind on a page."""
    alt: str
    """What a reader who cannot see it needs to know; plain sentences with the numbers."""
    caption: str
    drawing: Drawing


Block: TypeAlias = Heading | Paragraph | KeyFigures | Table | Figure | Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page under a title of its own."""

    name: str
    """Of letters, digits and "-"; one of its kind on a page: an anchor."""
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One report."""

    title: str
    run: str
    as_of_us: int
    as_of: str
    """The moment in words, with its zone."""
    state: str
    """One of `snapshot.STATES`."""
    verdict: str
    """One or two sentences that a tired reader understands."""
    tone: Tone
    """Of the verdict."""
    sections: tuple[Section, ...]
    subtitle: str = ""
    """What the run is: model, GPUs, precision."""
    compared: str = ""
    """The moment that changes are told against, in words; empty where there is none."""
    language: str = "en"

    def figures(self) -> Iterator[Figure]:
        """Yield the figures in order."""
        for section in self.sections:
            for block in section.blocks:
                if isinstance(block, Figure):
                    yield block


# -- what a figure is made of -----------------------------------------------------------------------

MOST_HINTS: Final = 150
"""Shapes of one panel that stand alone, each with its hint; of more, all of one kind are one shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A place on an axis that is written out."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """From where to where, in data units; low is below high."""

    low: float
    high: float
    ticks: tuple[Tick, ...] = ()
    title: str = ""
    flipped: bool = False
    """Whether low is at the top (y): rows that are read downwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The area between two lines."""

    points: tuple[tuple[float, float, float], ...]
    """(x, low, high), x ascending."""
    role: Role
    label: str = ""


class Bar(NamedTuple):
    """A filled box; a tuple, as one page may hold thousands of them."""

    x0: float
    x1: float
    y0: float
    y1: float
    role: Role
    label: str = ""
    """Written beside or in it where there is room."""
    hint: str = ""
    """What a pointer over it may show; never needed to understand the figure."""
    outline: bool = False
    """Drawn hollow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A straight line across the whole panel."""

    at: float
    across: Literal["x", "y"]
    """Which axis `at` is on: "x" is an upright line."""
    role: Role
    label: str = ""
    dashed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line through points; a gap is two lines."""

    points: tuple[tuple[float, float], ...]
    """(x, y), x ascending."""
    role: Role
    label: str = ""
    """Written at its end, in its colour."""
    dashed: bool = False
    thin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A sign at a point."""

    x: float
    y: float
    role: Role
    shape: Literal["dot", "tick", "diamond", "up", "down"] = "dot"
    """"tick" is a short upright stroke; "up" and "down" are triangles."""
    label: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Words at a point."""

    x: float
    y: float
    text: str
    role: Role = "ink"
    anchor: Literal["start", "middle", "end"] = "start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One pair of axes. Drawn in this order: bands, bars, rules, lines, marks, words."""

    x: Axis
    y: Axis
    title: str = ""
    bands: tuple[Band, ...] = ()
    bars: tuple[Bar, ...] = ()
    rules: tuple[Rule, ...] = ()
    lines: tuple[Line, ...] = ()
    marks: tuple[Mark, ...] = ()
    words: tuple[Words, ...] = ()
    grid: Literal["none", "x", "y", "both"] = "y"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What a colour means, where things cannot be labelled one by one."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Panels one below the other, or side by side. Pure data; whoever draws it adds size and colour."""

    panels: tuple[Panel, ...]
    beside: bool = False
    """Whether panels stand side by side."""
    height_ratio: float = 0.4
    """Height of the whole over its width."""
    keys: tuple[Key, ...] = ()


# -- text that others wrote -------------------------------------------------------------------------

_LONGEST: Final = 10_000


def clean(text: str) -> str:
    """Return text without anything that would hide, reorder or control: what is not printable is "?".

    >>> clean("<b>" + chr(0x202E) + "x" + chr(27) + "[1m")
    '<b>?x?[1m'
    """
    kept = text[:_LONGEST]
    if kept.isprintable():
        return kept
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in kept)


def shortened(text: str, most: int) -> str:
    """Return at most that many characters, on one line.

    >>> shortened("CUDA error: an illegal memory access", 14)
    'CUDA error: a…'
    """
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most else line[: most - 1] + "…"
