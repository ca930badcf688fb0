"""A page as a PDF: the page as plain data, its figures drawn, both set by typst.

Pure but for what it loads: typst and matplotlib, in the child process that makes a PDF. The same page gives
the same bytes: no clock, no font of the machine, no random number.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from reports.page import Block, Drawing, Figure, Heading, KeyFigures, Page, Paragraph, clean
from reports.palette import PAPER, TONES
from reports.tables import Table

Paper: TypeAlias = Literal["a4", "letter"]
_WIDTH_MM: Final = {"a4": 210.0 - 34.0, "letter": 215.9 - 34.0}
_PAPERS: Final = {"a4": "a4", "letter": "us-letter"}
_GUTTER_MM: Final = 8.0
_TALL: Final = 0.5
"""Figures taller than this share of their width stand two in a row."""
_NARROW: Final = 88
_WIDE_CELL: Final = 26
_LONG_CELL: Final = 56
"""Rows with such a cell take two lines: their table may go on on the next page."""
_TOGETHER: Final = re.compile(r"(?<=\d) (?=(?:%|h|min|s|days?|hours?|points|MWh|GPU|TFLOP/s|[A-Z]{3})\b|%)")
_MISSING: Final = "\N{WHITE SQUARE}"
_BOXES: Final = (
    f"{_MISSING} stands for a character that the fonts of this PDF do not have; HTML and text hold it."
)


def document(page: Page, *, paper: Paper) -> dict[str, Any]:
    """Return the page as plain data, figures as drawings."""
    as_of = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=page.as_of_us)
    width = _WIDTH_MM[paper]
    return {
        "title": page.title,
        "author": "run-telemetry",
        "kind": "Daily report",
        "run": page.run,
        "subtitle": page.subtitle,
        "as_of": page.as_of,
        "verdict": page.verdict,
        "tone": page.tone,
        "language": page.language,
        "paper": _PAPERS[paper],
        "date": {
            "year": as_of.year, "month": as_of.month, "day": as_of.day, "hour": as_of.hour,
            "minute": as_of.minute, "second": as_of.second,
        },
        "colours": dict(PAPER),
        "tones": dict(TONES),
        "sections": [
            {
                "title": section.title,
                "titled": not all(isinstance(block, KeyFigures) for block in section.blocks),
                "blocks": _blocks(section.blocks, width),
            }
            for section in page.sections
        ],
    }  # fmt: skip


def _blocks(blocks: Sequence[Block], width_mm: float) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    waiting: list[Figure] = []
    for block in blocks:
        if isinstance(block, Figure) and block.drawing.height_ratio >= _TALL:
            waiting.append(block)
            continue
        found += _paired(waiting, width_mm)
        waiting = []
        made = _block(block, width_mm)
        if isinstance(block, Table) and _narrow(block) and found and found[-1]["kind"] == "paragraph":
            found = _beside(found, made)
        else:
            found.append(made)
    return found + _paired(waiting, width_mm)


def _narrow(table: Table) -> bool:
    """Whether a table leaves room for words beside it."""
    rows = [table.headings, *table.rows]
    widths = [max(len(row[n]) for row in rows) for n in range(len(table.headings))]
    return sum(widths) + 2 * len(widths) <= _NARROW


def _beside(found: list[dict[str, Any]], table: dict[str, Any]) -> list[dict[str, Any]]:
    """Put a table beside the paragraphs before it."""
    first = len(found)
    while first and found[first - 1]["kind"] == "paragraph":
        first -= 1
    return [*found[:first], {"kind": "beside", "words": found[first:], "table": table}]


def _paired(figures: Sequence[Figure], width_mm: float) -> list[dict[str, Any]]:
    half = (width_mm - _GUTTER_MM) / 2
    if len(figures) == 1:
        return [_figure(figures[0], width_mm, height_mm=half * figures[0].drawing.height_ratio)]
    return [
        {"kind": "pair", "figures": [_figure(figure, half) for figure in figures[n : n + 2]]}
        for n in range(0, len(figures), 2)
    ]


def _figure(figure: Figure, width_mm: float, *, height_mm: float | None = None) -> dict[str, Any]:
    return {
        "kind": "figure",
        "alt": figure.alt,
        "caption": figure.caption,
        "drawing": figure.drawing,
        "width_mm": width_mm,
        "height_mm": height_mm,
    }


def figures(page: Page, names: Sequence[str]) -> dict[str, Drawing]:
    """Return the drawings of those figures of a page that it has, by name."""
    return {figure.name: figure.drawing for figure in page.figures() if figure.name in names}


def each_drawing(data: Any, read: Callable[[Any], Drawing]) -> Any:
    """Return the data of a page with its drawings, which came as plain data, read."""
    if isinstance(data, list):
        return [each_drawing(item, read) for item in data]
    if isinstance(data, dict):
        return {k: read(v) if k == "drawing" else each_drawing(v, read) for k, v in data.items()}
    return data


def _block(block: Block, width_mm: float) -> dict[str, Any]:
    if isinstance(block, Heading):
        return {"kind": "heading", "text": block.text}
    if isinstance(block, Paragraph):
        return {"kind": "paragraph", "text": block.text, "tone": block.tone}
    if isinstance(block, KeyFigures):
        return {
            "kind": "key-figures",
            "figures": [
                {
                    "name": f.name, "value": f.value, "change": f.change, "plan": f.plan,
                    "convention": f.convention, "tone": f.tone,
                }
                for f in block.figures
            ],
        }  # fmt: skip
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Figure):
        return _figure(block, width_mm)
    return {"kind": "notes", "title": block.title, "items": list(block.items)}


def _table(table: Table) -> dict[str, Any]:
    right = [heading.startswith(">") for heading in table.headings]
    longest = [
        max((len(row[n]) for row in table.rows), default=0) if not numeric else 0
        for n, numeric in enumerate(right)
    ]
    return {
        "kind": "table",
        "title": table.title,
        "headings": [heading.removeprefix(">") for heading in table.headings],
        "right": right,
        "columns": [1 if size > _WIDE_CELL else 0 for size in longest],
        "breaks": max(longest, default=0) > _LONG_CELL,
        "rows": [list(row) for row in table.rows],
        "foot": list(table.foot) if table.foot is not None else None,
        "notes": list(table.notes),
        "size": 8.4 if len(table.headings) < 8 else 7.8,
    }


def pdf(data: dict[str, Any]) -> bytes:
    """Return the PDF of a `document`: tagged (PDF/UA-1), its fonts embedded."""
    made: bytes = _set(
        data,
        format="pdf",
        pdf_standards="ua-1",
        timestamp=dt.datetime(**data["date"], tzinfo=dt.UTC),
    )
    return made


def first_page(data: dict[str, Any], *, dots_per_inch: float) -> bytes:
    """Return the first page of a `document` as PNG."""
    made: bytes | list[bytes] = _set(data, format="png", ppi=dots_per_inch)
    return made[0] if isinstance(made, list) else made


def _set(data: dict[str, Any], **more: Any) -> Any:
    import typst

    fonts = _fonts()
    missed: set[str] = set()
    ready = _each(_drawn(data), _printable(fonts / "DejaVuSans.ttf", missed))
    ready |= {"title": clean(data["title"]), "boxes": _BOXES if missed else ""}
    return typst.compile(
        resources.files("reports").joinpath("page.typ").read_bytes(),
        sys_inputs={"page": json.dumps(ready)},
        font_paths=[str(fonts)],
        ignore_system_fonts=True,
        **more,
    )


def _fonts() -> Path:
    import matplotlib as mpl

    return Path(mpl.get_data_path()) / "fonts" / "ttf"


def _drawn(data: Any) -> Any:
    """Return the data with every drawing as SVG."""
    from reports.draw import svg

    if isinstance(data, list):
        return [_drawn(item) for item in data]
    if not isinstance(data, dict):
        return data
    made = {
        key: _drawn(value) for key, value in data.items() if key not in ("drawing", "width_mm", "height_mm")
    }
    if "drawing" in data:
        drawing = data["drawing"]
        assert isinstance(drawing, Drawing)
        made["svg"] = svg(drawing, width_mm=data["width_mm"], height_mm=data["height_mm"]).decode()
    return made


def _printable(font: Path, missed: set[str]) -> Callable[[str], str]:
    """Return what makes text printable: no control, no character without a glyph, no unit on its own line.

    Characters without a glyph are added to `missed`.
    """
    from matplotlib.ft2font import FT2Font

    known = frozenset(FT2Font(str(font)).get_charmap()) | {ord("\n")}

    def boxed(text: str) -> str:
        lacking = {c for c in text if ord(c) not in known}
        missed.update(lacking)
        return "".join(_MISSING if c in lacking else c for c in text) if lacking else text

    def printable(text: str) -> str:
        if text.startswith("<?xml"):
            head, _, rest = text.partition("<svg")
            return head + "<svg" + boxed(rest)
        return _TOGETHER.sub("\N{NO-BREAK SPACE}", boxed(clean(text)))

    return printable


def _each(data: Any, change: Callable[[str], str]) -> Any:
    if isinstance(data, str):
        return change(data)
    if isinstance(data, list):
        return [_each(item, change) for item in data]
    if isinstance(data, dict):
        return {key: _each(value, change) for key, value in data.items()}
    return data
