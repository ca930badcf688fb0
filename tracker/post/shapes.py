"""Events as the bodies that receivers of webhooks understand: plain JSON, Slack, Teams.

Pure. Text goes only into fields that are shown as they are: words of a log can neither format a message
nor call people in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tracker.core.documents import iso
from tracker.post.events import Event

MOST_SHOWN: Final = 20
"""Events told one by one in a message for people; a generic receiver gets all."""
_TEXT: Final = 2_900
"""Slack takes 3,000 characters in a block."""


def event_json(event: Event) -> dict[str, Any]:
    """Return an event as the outbox keeps it and a generic receiver gets it."""
    return {
        "id": event.id,
        "event": event.name,
        "at": iso(event.at_us),
        "text": event.text,
        "details": dict(event.details),
    }


def body(shape: str, run: str, events: Sequence[Mapping[str, Any]]) -> bytes:
    """Return what is posted; `events` are those of `event_json`, in order of time."""
    if shape == "generic":
        document: dict[str, Any] = {"schema": 1, "run": run, "events": list(events)}
    elif shape == "slack":
        document = _slack(run, events)
    else:
        document = _teams(run, events)
    return json.dumps(document, ensure_ascii=True, allow_nan=False).encode()


def _slack(run: str, events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return plain_text blocks: there neither `*` nor `<!channel>` means anything."""
    lines = _lines(events)
    return {
        "text": _escaped(_title(run, events)),
        "mrkdwn": False,
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": _title(run, events), "emoji": False}},
            *(
                {"type": "section", "text": {"type": "plain_text", "text": line[:_TEXT], "emoji": False}}
                for line in lines
            ),
        ],
    }


def _teams(run: str, events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return an adaptive card of text runs: a text run has no formatting of its own."""

    def block(text: str, **style: Any) -> dict[str, Any]:
        return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **style}]}

    card = {
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [block(_title(run, events), weight="Bolder", size="Medium"), *map(block, _lines(events))],
    }
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": card,
    }
    return {"type": "message", "attachments": [attachment]}


def _title(run: str, events: Sequence[Mapping[str, Any]]) -> str:
    """Return few words: Slack's headers hold 150 characters."""
    what = [str(event["event"]).replace("_", " ") for event in events]
    names = list(dict.fromkeys(what))
    plain = "".join(c if c.isprintable() else " " for c in run)
    short = plain if len(plain) <= 80 else plain[:79] + "…"
    return f"{short}: {', '.join(names[:6])}"[:150]


def _lines(events: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [str(event["text"]) for event in events[-MOST_SHOWN:]]
    if len(events) > MOST_SHOWN:
        lines.insert(0, f"{len(events) - MOST_SHOWN} earlier events are not shown.")
    return lines


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
