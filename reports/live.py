"""The status page: the report of a run as a page that follows it.

Pure: finished numbers in, HTML out. One request, no outside resource; the page's own script asks for it
again and changes what is different (`reports/html_script.py`). Without scripts it reloads itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reports import live_parts
from reports.html_blocks import lines, section, sign, text
from reports.html_document import header, live_document, navigation, pill, state_of, verdict
from reports.live_parts import SourceLine
from reports.page import Page
from tracker.core.snapshot import Snapshot

EVERY_S: Final = 5
"""How often an open page asks for what is new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What stands around a report on the page."""

    version: str
    problems: tuple[str, ...] = ()
    """What is wrong with the tracker now, in sentences."""
    sources: tuple[SourceLine, ...] = ()
    home: str = ""
    """Path of the index, where there are several runs."""
    links: tuple[tuple[str, str], ...] = ()
    """(words, path): documents of this run."""
    without: str = ""
    """Why there is no snapshot yet."""


def run_page(run: str, page: Page | None, snapshot: Snapshot | None, frame: Frame) -> str:
    """Return the page of one run; without a page of the report it says what is awaited."""
    if page is None or snapshot is None:
        why = frame.without or "the sources are being read"
        state = f'<p role="status">{pill("waiting")}</p><p>No numbers yet: {text(why)}.</p>'
        inside = header(run, "", state, home=frame.home) + _main(frame, _sources(frame))
        return _live(f"{run}: no numbers yet", inside, frame)
    own = [
        ("all-attempts", "All attempts", live_parts.attempts(snapshot)),
        ("evidence", "Interruptions and their evidence", live_parts.stops(snapshot)),
    ]
    parts = [section(part) for part in page.sections]
    parts += [_part(*one) for one in own]
    names = [(part.name, part.title) for part in page.sections]
    names += [(name, title) for name, title, _ in own]
    inside = (
        header(page.run or run, page.subtitle, state_of(page), home=frame.home)
        + navigation(names)
        + _main(frame, verdict(page) + "".join(parts) + _sources(frame))
    )
    return _live(f"{page.run or run}: {page.state}", inside, frame)


def _main(frame: Frame, inside: str) -> str:
    said = "".join(f"<p>{sign('warning')}{lines(problem)}</p>" for problem in frame.problems)
    trouble = f'<div class="trouble" role="status">{said}</div>' if said else ""
    return f'<main id="main">{trouble}{inside}</main>'


def _sources(frame: Frame) -> str:
    return _part("sources", "Sources", live_parts.sources(frame.sources)) if frame.sources else ""


def _part(name: str, title: str, inside: str) -> str:
    return (
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{text(title)}</h2>'
        f"{inside}</section>"
    )


def _live(title: str, inside: str, frame: Frame) -> str:
    return live_document(title, inside + _footer(frame), every_s=EVERY_S, version=frame.version)


def _footer(frame: Frame) -> str:
    links = "".join(f'<li><a href="{text(path)}">{text(words)}</a>' for words, path in frame.links)
    return f"<footer><ul>{links}</ul><p>run-telemetry {text(frame.version)}</p></footer>"
