"""A report as the HTML of a mail: tables and inline styles, no script, at most 640 pixels wide.

Pure. Mail programs know little of HTML: layout is by tables, every style is inline, colours are those of
the light page, pictures are named by the content id that the mail gives them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from reports.html_blocks import SIGNS, lines, text, without_bars
from reports.html_style import COLOURS
from reports.page import Block, Figure, Heading, KeyFigure, KeyFigures, Notes, Page, Paragraph, Section
from reports.tables import Table

WIDTH: Final = 640
MOST_COLUMNS: Final = 6
"""A table of more columns is left to the document that goes with the mail."""
MOST_ROWS: Final = 30
_INNER: Final = WIDTH - 48
_PLACE: Final = "<!-- notice -->"
_C: Final[dict[str, str]] = {name: pair[0] for name, pair in COLOURS.items()}
_FONT: Final = "font-family:-apple-system,'Segoe UI',Roboto,Arial,sans-serif"
_TEXT: Final = f"{_FONT};font-size:15px;line-height:1.5;color:{_C['ink']}"
_SMALL: Final = f"{_FONT};font-size:13px;line-height:1.45;color:{_C['muted']}"


def mail_html(
    page: Page,
    *,
    images: Mapping[str, str],
    sections: Collection[str] | None = None,
    link: str = "",
) -> str:
    """Return the HTML part of a mail.

    `images` has the content id (without "cid:") of the picture of a figure, by the figure's name; a figure
    without a picture is told in words. `sections` are the names of those to show; None shows all. `link` is
    the address of the status page.
    """
    shown = [part for part in page.sections if sections is None or part.name in sections]
    body = _head(page) + "".join(_section(part, images) for part in shown) + _foot(page, link)
    return (
        f'<!DOCTYPE html><html lang="{text(page.language)}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light"><meta name="supported-color-schemes" content="light">'
        f"<title>{text(page.title)}</title></head>"
        f'<body style="margin:0;padding:0;background-color:{_C["back"]}">'
        f'<table role="presentation" width="100%" cellpadding="0" cellspacing="0" border="0" '
        f'style="background-color:{_C["back"]}"><tr><td align="center" style="padding:16px 8px">'
        f'<table role="presentation" width="{WIDTH}" cellpadding="0" cellspacing="0" border="0" '
        f'style="width:100%;max-width:{WIDTH}px;background-color:{_C["paper"]};border:1px solid {_C["grid"]};'
        f'border-radius:6px"><tr><td style="padding:22px 24px 20px 24px;{_TEXT}">{body}</td></tr></table>'
        "</td></tr></table></body></html>\n"
    )


def _head(page: Page) -> str:
    colour = _C[page.tone if page.tone != "plain" else "muted"]
    sub = f'<div style="{_SMALL}">{text(page.subtitle)}</div>' if page.subtitle else ""
    compared = f", changes since {text(page.compared)}" if page.compared else ""
    return (
        f'<h1 style="{_FONT};font-size:22px;line-height:1.25;margin:0 0 4px 0;color:{_C["ink"]}">'
        f"{text(page.run)}</h1>{sub}"
        f'<div style="{_SMALL}"><b style="color:{_C["ink"]}">{text(page.state)}</b>, as of '
        f"{text(page.as_of)}{compared}</div>"
        '<table role="presentation" width="100%" cellpadding="0" cellspacing="0" border="0" '
        f'style="margin:16px 0 4px 0"><tr><td style="border-left:5px solid {colour};padding:4px 0 4px 14px;'
        f'{_FONT};font-size:18px;line-height:1.4;color:{_C["ink"]}">{_sign(page.tone)}'
        f"{lines(page.verdict)}</td></tr></table>{_PLACE}"
    )


def with_notice(html: str, notice: str) -> str:
    """Return the HTML of a mail with a sentence about the mail itself under its verdict."""
    said = f'<p style="{_TEXT};margin:12px 0">{_sign("warning")}{lines(notice)}</p>' if notice else ""
    return html.replace(_PLACE, said, 1)


def _foot(page: Page, link: str) -> str:
    more = (
        f'<a href="{text(link)}" style="color:{_C["link"]}">The status page</a> has it live. ' if link else ""
    )
    return (
        f'<p style="{_SMALL};border-top:1px solid {_C["grid"]};padding-top:12px;margin:22px 0 0 0">{more}'
        f"{text(page.title)}.</p>"
    )


def _section(part: Section, images: Mapping[str, str]) -> str:
    title = (
        f'<h2 style="{_FONT};font-size:16px;line-height:1.3;margin:24px 0 8px 0;padding-top:14px;'
        f'border-top:1px solid {_C["grid"]};color:{_C["ink"]}">{text(part.title)}</h2>'
    )
    return title + "".join(_block(one, images) for one in part.blocks)


def _block(one: Block, images: Mapping[str, str]) -> str:
    match one:
        case Heading():
            return f'<h3 style="{_FONT};font-size:14px;margin:16px 0 6px 0">{text(one.text)}</h3>'
        case Paragraph():
            return f'<p style="{_TEXT};margin:8px 0">{_sign(one.tone)}{lines(one.text)}</p>'
        case KeyFigures():
            return _key_figures(one.figures)
        case Table():
            return _table(one)
        case Figure():
            return _figure(one, images)
        case Notes():
            title = f"<b>{text(one.title)}</b><br>" if one.title else ""
            said = "<br>".join(lines(item) for item in one.items)
            return f'<p style="{_SMALL};margin:8px 0">{title}{said}</p>'


def _sign(tone: str) -> str:
    """Return the sign of a tone as a character: mail has no shapes."""
    if tone not in SIGNS:
        return ""
    shown, said = SIGNS[tone]
    return (
        f'<span style="color:{_C[tone]};font-weight:bold" title="{said}" role="img" aria-label="{said}">'
        f"{shown}&nbsp;</span>"
    )


def _key_figures(figures: Sequence[KeyFigure]) -> str:
    """Return two to a row: what fits a phone."""
    rows = ""
    for start in range(0, len(figures), 2):
        cells = "".join(_card(one) for one in figures[start : start + 2])
        rows += f"<tr>{cells}{'<td></td>' if len(figures) == start + 1 else ''}</tr>"
    return (
        '<table role="presentation" width="100%" cellpadding="0" cellspacing="0" border="0" '
        f'style="margin:4px 0">{rows}</table>'
    )


def _card(one: KeyFigure) -> str:
    more = "<br>".join(lines(value) for value in (one.change, one.plan, one.convention) if value)
    colour = _C[one.tone] if one.tone != "plain" else _C["grid"]
    return (
        f'<td width="50%" valign="top" style="padding:8px 14px 10px 0"><div style="border-top:2px solid '
        f'{colour};padding-top:6px"><div style="{_SMALL}">{text(one.name)}</div>'
        f'<div style="{_FONT};font-size:19px;line-height:1.35;font-weight:bold;color:{_C["ink"]}">'
        f'{_sign(one.tone)}{text(one.value)}</div><div style="{_SMALL}">{more}</div></div></td>'
    )


def _figure(one: Figure, images: Mapping[str, str]) -> str:
    """Return a picture under its caption; without a picture, what it would say."""
    if one.name not in images:
        return f'<p style="{_SMALL};margin:4px 0 10px 0">{lines(one.alt)}</p>'
    return (
        f'<div style="{_TEXT};font-weight:bold;margin:12px 0 6px 0">{text(one.caption)}</div>'
        f'<img src="cid:{text(images[one.name])}" width="{_INNER}" alt="{text(one.alt)}" '
        f'style="display:block;width:100%;max-width:{_INNER}px;height:auto;border:0;{_SMALL}">'
    )


def _table(one: Table) -> str:
    one = without_bars(one)
    title = f'<div style="{_TEXT};font-weight:bold;margin:12px 0 4px 0">{text(one.title)}</div>'
    if len(one.headings) > MOST_COLUMNS or len(one.rows) > MOST_ROWS:
        left = f"{text(one.title) or 'A table'}: see the document that comes with this mail."
        return f'<p style="{_SMALL};margin:8px 0">{left}</p>'
    right = [heading.startswith(">") for heading in one.headings]
    names = [heading.removeprefix(">") for heading in one.headings]
    last = f"border-top:1px solid {_C['muted']};font-weight:bold"
    rows = _row(names, right, f"color:{_C['muted']};border-bottom:1px solid {_C['muted']}", head=True)
    rows += "".join(_row(row, right, f"border-bottom:1px solid {_C['grid']}") for row in one.rows)
    rows += _row(one.foot, right, last) if one.foot is not None else ""
    notes = "".join(f'<p style="{_SMALL};margin:4px 0">{lines(note)}</p>' for note in one.notes)
    return (
        f'{title if one.title else ""}<table cellpadding="0" cellspacing="0" border="0" width="100%" '
        f'style="border-collapse:collapse;margin:4px 0 8px 0">{rows}</table>{notes}'
    )


def _row(cells: Sequence[str], right: Sequence[bool], style: str, *, head: bool = False) -> str:
    made = ""
    for number, (cell, numeric) in enumerate(zip(cells, right, strict=True)):
        tag = "th" if head or number == 0 else "td"
        scope = f' scope="{"col" if head else "row"}"' if tag == "th" else ""
        align, wrap = ("right", "white-space:nowrap;") if numeric else ("left", "")
        made += (
            f'<{tag}{scope} align="{align}" valign="top" style="{_FONT};font-size:13px;line-height:1.4;'
            f'font-weight:normal;padding:4px 10px 4px 0;{wrap}{style}">{lines(cell)}</{tag}>'
        )
    return f"<tr>{made}</tr>"
