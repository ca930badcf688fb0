"""A report as one HTML file: everything in it, no script, nothing from outside; and the shell of every page.

Pure.
"""

from __future__ import annotations

from typing import Final

from reports.html_blocks import lines, section, sign, text, together
from reports.html_script import SCRIPT, digest
from reports.html_style import STYLE
from reports.page import Page

_ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect width='16' height='16' rx='3' fill='%231f4e79'/%3E"
    "%3Cpath d='M3 12h2V8H3zM7 12h2V4H7zM11 12h2V6h-2z' fill='white'/%3E%3C/svg%3E"
)
_POLICY: Final = f"default-src 'none'; style-src {digest(STYLE)}; img-src data:"
LIVE_POLICY: Final = (
    f"default-src 'none'; style-src {digest(STYLE)}; script-src {digest(SCRIPT)}; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of a page with its script: own style and script, by what they are."""
RELOAD_S: Final = 30
"""How often a live page reloads where scripts are off."""


def document(page: Page) -> str:
    """Return a report as a file that can be opened, kept and forwarded."""
    inside = (
        header(page.run, page.subtitle, state_of(page))
        + navigation([(part.name, part.title) for part in page.sections])
        + f'<main id="main">{verdict(page)}{"".join(map(section, page.sections))}</main>'
    )
    return shell(
        page.title,
        f'<div class="wrap">{inside}</div>',
        head=f'<meta http-equiv="Content-Security-Policy" content="{text(_POLICY)}">',
        language=page.language,
    )


def live_document(title: str, inside: str, *, every_s: int, version: str) -> str:
    """Return a page that follows what it shows: its script asks for it again every so often."""
    made = text(digest(SCRIPT + STYLE + version).strip("'"))
    return shell(
        title,
        '<div class="wrap"><p id="lost" role="alert" hidden></p>'
        f'<div id="live" data-every="{every_s}">{inside}</div></div><script>{SCRIPT}</script>',
        head=f'<noscript><meta http-equiv="refresh" content="{RELOAD_S}"></noscript>',
        attributes=f' data-version="{made}"',
    )


def shell(title: str, body: str, *, head: str, language: str = "en", attributes: str = "") -> str:
    """Return a whole page around its body."""
    return (
        f'<!DOCTYPE html><html lang="{text(language)}"{attributes}><head><meta charset="utf-8">{head}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{text(title)}</title><link rel="icon" href="{_ICON}"><style>{STYLE}</style></head>'
        f'<body><a class="skip" href="#main">Skip to the report</a>{body}</body></html>\n'
    )


def header(title: str, subtitle: str, state: str, *, home: str = "") -> str:
    """Return the head of a page: what it is about, and how it stands."""
    up = f'<p class="sub"><a href="{text(home)}">All runs</a></p>' if home else ""
    sub = f'<p class="sub">{text(subtitle)}</p>' if subtitle else ""
    return f'<header>{up}<h1>{text(title)}</h1>{sub}<div class="now">{state}</div></header>'


def state_of(page: Page) -> str:
    """Return the state of a run and the moment that all is told of."""
    compared = f"<p>changes since {text(page.compared)}</p>" if page.compared else ""
    return f'<p role="status">{pill(page.state)}</p><p>as of {text(page.as_of)}</p>{compared}'


def pill(state: str) -> str:
    """Return a state with its sign."""
    return f'<span class="pill {text(state)}">{text(state)}</span>'


def verdict(page: Page) -> str:
    """Return the sentence that everything else explains."""
    said = together(lines(page.verdict))
    return f'<p class="verdict {page.tone}" role="status">{sign(page.tone)}{said}</p>'


def navigation(parts: list[tuple[str, str]]) -> str:
    """Return links to the parts of a page: (name, title) each."""
    links = "".join(f'<li><a href="#{text(name)}">{text(words)}</a>' for name, words in parts)
    return f'<nav aria-label="Parts of this page"><ul>{links}</ul></nav>'
