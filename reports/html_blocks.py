"""A report's blocks as HTML: key figures, paragraphs, tables, figures, notes.

Pure. No outside resource and no style in the markup. Words of logs are hostile: everything is escaped, and
what would reorder or hide text is a question mark. Closing tags that HTML lets one leave out are left out:
a table of 500 rows is half as long.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from reports.page import Block, Figure, Heading, KeyFigure, KeyFigures, Notes, Paragraph, Section, clean
from reports.svg import NARROW, WIDE, svg
from reports.tables import Table

SIGNS: Final = {"good": ("✓", "Good"), "warning": ("!", "Warning"), "problem": ("✕", "Problem")}
"""What stands beside a colour, for those who do not see it, and the word for those who hear the page."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9 ,.:%~+_/()-]{0,200}").fullmatch
"""Most cells of most tables: nothing to escape, nothing to clean."""


def text(value: str) -> str:
    """Return hostile text as HTML text or attribute value.

    >>> text("<b>" + chr(0x202E) + "x")
    '&lt;b&gt;?x'
    """
    return value if _PLAIN(value) else html.escape(clean(value), quote=True)


def sign(tone: str) -> str:
    """Return the sign of a tone; nothing where there is nothing to say."""
    if tone not in SIGNS:
        return ""
    shown, said = SIGNS[tone]
    heard = f'<span class="sr">{said}: </span>'
    return f'<span class="sign {tone}"><span aria-hidden="true">{shown}</span>{heard}</span>'


def section(part: Section, *, level: int = 2, fresh: str = "") -> str:
    """Return a section under its heading; `fresh` is added after it."""
    blocks = "".join(block(one, level=level + 1) for one in part.blocks)
    name = text(part.name)
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">'
        f'<h{level} id="{name}-title">{text(part.title)}</h{level}>{blocks}{fresh}</section>'
    )


def block(one: Block, *, level: int = 3) -> str:
    """Return one block."""
    match one:
        case Heading():
            return f"<h{level}>{text(one.text)}</h{level}>"
        case Paragraph():
            return paragraph(one)
        case KeyFigures():
            return key_figures(one)
        case Table():
            return table(one)
        case Figure():
            return figure(one)
        case Notes():
            return notes(one, level=level)


def paragraph(one: Paragraph) -> str:
    """Return sentences, marked where they are good or bad news."""
    style = "" if one.tone == "plain" else f' class="said {one.tone}"'
    return f"<p{style}>{sign(one.tone)}{together(lines(one.text))}</p>"


def together(markup: str) -> str:
    """Return HTML whose numbers keep their per-cent sign on the same line.

    >>> together("61 % of it")
    '61&nbsp;% of it'
    """
    return markup.replace(" %", "&nbsp;%")


def lines(words: str) -> str:
    """Return text whose line ends stay."""
    return text(words).replace("\n", "<br>")


def key_figures(found: KeyFigures) -> str:
    """Return key figures as a list of cards."""
    return f'<dl class="cards">{"".join(map(_card, found.figures))}</dl>'


def _card(one: KeyFigure) -> str:
    style = "" if one.tone == "plain" else f' class="{one.tone}"'
    more = "".join(
        f'<dd class="{name}">{lines(value)}</dd>'
        for name, value in (("change", one.change), ("plan", one.plan), ("how", one.convention))
        if value
    )
    value = f'<dd class="value">{sign(one.tone)}{text(one.value)}</dd>'
    return f"<div{style}><dt>{text(one.name)}</dt>{value}{more}</div>"


def notes(one: Notes, *, level: int = 3) -> str:
    """Return sentences in small print."""
    if not one.items:
        return ""
    title = f"<h{level}>{text(one.title)}</h{level}>" if one.title else ""
    return f'{title}<ul class="notes">{"".join(f"<li>{lines(item)}" for item in one.items)}</ul>'


def figure(one: Figure) -> str:
    """Return a figure drawn twice, for a desk and for a phone; the style sheet shows one of them."""
    keys = "".join(f'<li><span class="swatch {key.role}"></span>{text(key.text)}' for key in one.drawing.keys)
    legend = f'<ul class="legend" aria-hidden="true">{keys}</ul>' if keys else ""
    caption = f"<figcaption>{text(one.caption)}</figcaption>" if one.caption else ""
    return (
        f'<figure id="figure-{text(one.name)}">{caption}{legend}'
        f'<div class="wide">{svg(one, width=WIDE)}</div><div class="narrow">{svg(one, width=NARROW)}</div>'
        "</figure>"
    )


def without_bars(one: Table) -> Table:
    """Return a table without the columns of nothing but bars: drawn of characters, for a terminal."""
    kept = [
        number
        for number, heading in enumerate(one.headings)
        if heading.strip(">") or any(row[number].strip("█") for row in one.rows)
    ]
    if len(kept) == len(one.headings):
        return one
    return replace(
        one,
        headings=[one.headings[n] for n in kept],
        rows=[[row[n] for n in kept] for row in one.rows],
        foot=None if one.foot is None else [one.foot[n] for n in kept],
    )


def table(one: Table) -> str:
    """Return a table that scrolls in itself where it is too wide; its first column names the row."""
    one = without_bars(one)
    numeric = [number for number, heading in enumerate(one.headings, start=1) if heading.startswith(">")]
    style = " ".join(f"n{number}" for number in numeric)
    names = "".join(map(_heading, one.headings))
    rows = "".join(_row(row) for row in one.rows)
    foot = f"<tfoot>{_row(one.foot)}" if one.foot is not None else ""
    title = text(one.title)
    caption = f"<caption><span>{title}</span></caption>" if title else ""
    below = "".join(f"<p>{lines(note)}" for note in one.notes)
    return (
        f'<div class="scroll" tabindex="0" role="{"region" if title else "group"}" '
        f'aria-label="{title or "Table"}">'
        f'<table class="{style}">{caption}<thead><tr>{names}<tbody>{rows}{foot}</table></div>'
        + (f'<div class="notes">{below}</div>' if below else "")
    )


def _heading(heading: str) -> str:
    name = text(heading.removeprefix(">"))
    return f'<th scope="col">{name}' if name else "<td>"


def _row(cells: Sequence[str]) -> str:
    first, *rest = cells
    head = f'<th scope="row">{lines(first)}' if first else "<td>"
    return f"<tr>{head}" + "".join(f"<td>{lines(cell)}" for cell in rest)
