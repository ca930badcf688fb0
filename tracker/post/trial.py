"""A test of the way out: one report as a mail, sent or only written; one message to each webhook.

Edge. Nothing is queued and nothing is marked as done: what comes out is told at once, for each recipient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tracker.config import Config, Mail, Report
from tracker.config.kinds import ADDRESS
from tracker.core.errors import TrackerError
from tracker.post.events import Event
from tracker.post.hook import post
from tracker.post.make import Rendered, collected, mail_of
from tracker.post.message import message_id
from tracker.post.retry import Outcome
from tracker.post.shapes import body, event_json
from tracker.post.smtp import MailServer, ServerTrouble
from tracker.scratch import Scratch

_MARK: Final = "TEST "
_NOBODY: Final = Mail(host="localhost", port=25, sender="tracker@localhost", to=("you@example.org",))
Write = Callable[[Path], None]
"""Writes a report's documents, those of a mail too, under a path without an ending."""


def rendered(write: Write) -> Rendered:
    """Have a report written, and return it; what could not be made is its problem."""
    with Scratch("report") as folder:
        base, problem = folder / "report", ""
        try:
            write(base)
        except TrackerError as error:
            problem = str(error)
        return collected(base.parent, base.name, problem)


def letter(
    config: Config, made: Rendered, *, name: str, day: str, as_of_us: int, now_us: int, to: Sequence[str] = ()
) -> bytes:
    """Return the mail of a report, marked as a test; without [report.mail] its addresses are made up."""
    report = config.report if config.report is not None else Report()
    mail = report.mail if report.mail is not None else _NOBODY
    whole = replace(config, report=replace(report, mail=mail))
    identity = message_id([config.settings.run, "test", day, str(as_of_us), str(now_us)], sender=mail.sender)
    return mail_of(
        whole,
        made,
        name=name,
        to=tuple(to) or mail.to,
        kind="test",
        day=day,
        identity=identity,
        as_of_us=as_of_us,
        mark=_MARK,
    )


def recipients(config: Config, given: Sequence[str]) -> tuple[str, ...]:
    """Return whom a test is for: the addresses given, else those of the config. Raises InvalidValue."""
    if given:
        return tuple(ADDRESS.read("--to", one) for one in given)
    return config.report.mail.to if config.report is not None and config.report.mail is not None else ()


def send(config: Config, mail_body: bytes, to: Sequence[str]) -> Iterator[tuple[str, Outcome]]:
    """Send a mail now, and yield what came of it for each recipient."""
    mail = config.report.mail if config.report is not None else None
    if mail is None:
        return
    try:
        with MailServer(mail) as server:
            found = server.send(mail_body, mail.sender, to, uncertain_from_here=lambda _: None)
    except ServerTrouble as trouble:
        found = dict.fromkeys(to, trouble.outcome)
    yield from found.items()


def post_all(config: Config, *, now_us: int) -> Iterator[tuple[str, Outcome]]:
    """Post a test message to each webhook, and yield what came of it."""
    run = config.settings.run
    for hook in config.webhooks:
        text = f"{run}: a test of webhook {hook.name}. It will be told: {', '.join(hook.events)}."
        event = Event(name="test", id=f"test-{now_us}", at_us=now_us, text=text)
        sent = body(hook.shape, run, [event_json(event)])
        yield f"webhook {hook.name}", post(hook, sent, identity=event.id, uncertain_from_here=lambda: None)
