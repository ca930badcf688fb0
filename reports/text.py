"""A page as plain text: for mail, for a terminal, and as the golden file of tests.

Pure. Text of logs is hostile: what is not printable is a question mark.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from reports.page import Block, Figure, Heading, KeyFigure, KeyFigures, Notes, Page, Paragraph, clean
from reports.tables import Table

WIDTH: Final = 100
_SIGNS: Final = {"plain": "", "good": "", "warning": "! ", "problem": "!! "}
_TOGETHER: Final = re.compile(r"(?<=\d) (?=%|h\b|min\b|s\b)")
_WIDEST: Final = 46
"""Characters of one cell; a longer text is broken into lines."""


def text_of(page: Page) -> str:
    """Return the page as text, lines of at most `WIDTH` where words allow it."""
    return "\n".join(line.rstrip() for line in _lines(page)) + "\n"


def _lines(page: Page) -> Iterator[str]:
    title = _one_line(page.title)
    yield title
    yield "=" * min(len(title), WIDTH)
    yield _one_line(f"as of {page.as_of}" + (f"; changes since {page.compared}" if page.compared else ""))
    if page.subtitle:
        yield _one_line(page.subtitle)
    yield ""
    yield from _wrapped(page.verdict, _SIGNS[page.tone])
    for section in page.sections:
        yield ""
        yield ""
        yield _one_line(section.title)
        yield "-" * len(section.title)
        for number, block in enumerate(section.blocks):
            if number and not (
                isinstance(block, Paragraph) and isinstance(section.blocks[number - 1], Paragraph)
            ):
                yield ""
            yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield _one_line(block.text)
    elif isinstance(block, Paragraph):
        yield from _wrapped(block.text, _SIGNS[block.tone])
    elif isinstance(block, KeyFigures):
        yield from _figures(block.figures)
    elif isinstance(block, Table):
        yield from _table(block)
    elif isinstance(block, Figure):
        yield from _wrapped(block.alt, "[figure] ")
    elif isinstance(block, Notes):
        yield from _notes(block)


def _wrapped(text: str, sign: str = "", hang: str = "") -> list[str]:
    together = _TOGETHER.sub("\N{NO-BREAK SPACE}", _one_line(text))
    lines = textwrap.wrap(
        together,
        WIDTH,
        initial_indent=sign,
        subsequent_indent=hang or " " * len(sign),
        break_long_words=True,
        break_on_hyphens=False,
    )
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _one_line(text: str) -> str:
    return " ".join(clean(text).split())


def _figures(figures: Sequence[KeyFigure]) -> Iterator[str]:
    wide = max(len(figure.name) for figure in figures)
    for figure in figures:
        sign = _SIGNS[figure.tone]
        said = [
            sign + figure.value,
            *(part for part in (figure.change, figure.plan, figure.convention) if part),
        ]
        yield from _wrapped(" | ".join(said), f"{_one_line(figure.name):<{wide}}  ")


def _notes(block: Notes) -> Iterator[str]:
    if block.title:
        yield f"{_one_line(block.title)}:"
    for item in block.items:
        yield from _wrapped(item, "- ")


def _table(table: Table) -> Iterator[str]:
    if table.title:
        yield _one_line(table.title)
    right = [heading.startswith(">") for heading in table.headings]
    head = [_one_line(heading.removeprefix(">")) for heading in table.headings]
    body = [[_one_line(cell) for cell in row] for row in table.rows]
    foot = [_one_line(cell) for cell in table.foot] if table.foot is not None else None
    rows = [head, *body, *([foot] if foot else [])]
    widths = [min(_WIDEST, max(len(row[n]) for row in rows)) for n in range(len(head))]
    for number, row in enumerate(rows):
        if foot is not None and number == len(rows) - 1:
            yield "  ".join("-" * wide for wide in widths)
        cells = [textwrap.wrap(cell, wide or 1) or [""] for cell, wide in zip(row, widths, strict=True)]
        for line in range(max(len(cell) for cell in cells)):
            yield "  ".join(
                f"{part:>{wide}}" if numeric else f"{part:<{wide}}"
                for part, wide, numeric in (
                    (cell[line] if line < len(cell) else "", wide, numeric)
                    for cell, wide, numeric in zip(cells, widths, right, strict=True)
                )
            )
    for note in table.notes:
        yield from _wrapped(note, "- ")
