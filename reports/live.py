"""The status page: the report of a run as a page that follows it, and the index of several runs.

Pure: finished numbers in, HTML out. One request, no outside resource; the page's own script asks for it
again and changes what is different (`reports/html_script.py`). Without scripts it reloads itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from reports import live_parts
from reports.html_blocks import lines, section, sign, text
from reports.html_script import SCRIPT, digest
from reports.html_style import STYLE
from reports.live_parts import SourceLine
from reports.page import Page
from tracker.core.snapshot import Snapshot

EVERY_S: Final = 5
"""How often an open page asks for what is new."""
RELOAD_S: Final = 30
"""How often it reloads where scripts are off."""
POLICY: Final = (
    f"default-src 'none'; style-src {digest(STYLE)}; script-src {digest(SCRIPT)}; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of these pages: their own style and script, by what they are; nothing else."""
_ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect width='16' height='16' rx='3' fill='%231f5fbf'/%3E"
    "%3Cpath d='M3 12h2V8H3zM7 12h2V4H7zM11 12h2V6h-2z' fill='white'/%3E%3C/svg%3E"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What stands around a report on the page."""

    version: str
    problems: tuple[str, ...] = ()
    """What is wrong with the tracker now, in sentences."""
    sources: tuple[SourceLine, ...] = ()
    home: str = ""
    """Path of the index, where there are several runs."""
    links: tuple[tuple[str, str], ...] = field(default=())
    """(words, path): documents of this run."""
    without: str = ""
    """Why there is no snapshot yet."""


def run_page(run: str, page: Page | None, snapshot: Snapshot | None, frame: Frame) -> str:
    """Return the page of one run; without a page of the report it says what is awaited."""
    if page is None or snapshot is None:
        why = frame.without or "the sources are being read"
        body = _header(run, "", _pill("waiting") + f"<p>No numbers yet: {text(why)}.</p>", frame)
        main = f'<main id="main">{_problems(frame)}</main>'
        return _document(f"{run}: no numbers yet", body + main + _footer(frame), frame)
    state = f"{_pill(page.state)}<p>as of {text(page.as_of)}</p>"
    if page.compared:
        state += f"<p>changes since {text(page.compared)}</p>"
    title = page.run or run
    parts = [section(part) for part in page.sections]
    parts += [
        _part("attempts", "All attempts", live_parts.attempts(snapshot)),
        _part("interruptions", "Interruptions and their evidence", live_parts.stops(snapshot)),
    ]
    if frame.sources:
        parts.append(_part("sources", "Sources", live_parts.sources(frame.sources)))
    names = [(part.name, part.title) for part in page.sections]
    names += [("attempts", "All attempts"), ("interruptions", "Interruptions")]
    nav = "".join(f'<li><a href="#{text(name)}">{text(words)}</a>' for name, words in names)
    main = (
        f'<main id="main">{_problems(frame)}'
        f'<p class="verdict {page.tone}" role="status">{sign(page.tone)}{lines(page.verdict)}</p>'
        f"{''.join(parts)}</main>"
    )
    head = _header(title, page.subtitle, state, frame)
    around = f'<nav aria-label="Parts of this page"><ul>{nav}</ul></nav>'
    return _document(f"{title}: {page.state}", head + around + main + _footer(frame), frame)


def _part(name: str, title: str, inside: str) -> str:
    return (
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{text(title)}</h2>'
        f"{inside}</section>"
    )


def _pill(state: str) -> str:
    return f'<p role="status"><span class="pill {text(state)}">{text(state)}</span></p>'


def _header(title: str, subtitle: str, state: str, frame: Frame) -> str:
    home = f'<p class="sub"><a href="{text(frame.home)}">All runs</a></p>' if frame.home else ""
    sub = f'<p class="sub">{text(subtitle)}</p>' if subtitle else ""
    return f'<header>{home}<h1>{text(title)}</h1>{sub}<div class="now">{state}</div></header>'


def _problems(frame: Frame) -> str:
    if not frame.problems:
        return ""
    said = "".join(f"<p>{sign('warning')}{lines(problem)}</p>" for problem in frame.problems)
    return f'<div class="trouble" role="status">{said}</div>'


def _footer(frame: Frame) -> str:
    links = "".join(f'<li><a href="{text(path)}">{text(words)}</a>' for words, path in frame.links)
    return f"<footer><ul>{links}</ul><p>run-telemetry {text(frame.version)}</p></footer>"


def _document(title: str, inside: str, frame: Frame) -> str:
    version = digest(SCRIPT + STYLE + frame.version).strip("'")
    return (
        f'<!DOCTYPE html><html lang="en" data-version="{text(version)}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<noscript><meta http-equiv="refresh" content="{RELOAD_S}"></noscript>'
        f'<title>{text(title)}</title><link rel="icon" href="{_ICON}"><style>{STYLE}</style></head><body>'
        '<a class="skip" href="#main">Skip to the report</a>'
        '<div class="wrap"><p id="lost" role="alert" hidden></p>'
        f'<div id="live" data-every="{EVERY_S}">{inside}</div></div>'
        f"<script>{SCRIPT}</script></body></html>\n"
    )
