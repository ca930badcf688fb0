"""What is wrong with the way out: the folder, what reports are made with, the mail server, the webhooks.

Edge: looks at files, reads the store, and talks to the mail server for some seconds without sending anything.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from tracker import daily, smallfile
from tracker.config import Config, Mail, Report, Webhook
from tracker.core.documents import iso
from tracker.core.errors import TrackerError
from tracker.interfaces import Clock
from tracker.post import folder
from tracker.store import Reader, outbox_state, report_rows, stored_version

TALK_S: Final = 5.0
_DAY_US: Final = 86_400_000_000

Said = Iterator[tuple[Literal["ok", "note", "wrong"], str, str]]
"""(level, what it is about, a sentence)."""


def look(config: Config, *, clock: Clock) -> Said:
    """Yield what is found; nothing for a config that sends nothing."""
    report = config.report
    if report is not None:
        yield from _documents(report, clock)
        if report.mail is not None:
            yield from _mail(report.mail)
    for hook in config.webhooks:
        yield from _webhook(hook)
    if report is not None or config.webhooks:
        yield from _stored(config, clock)


def _documents(report: Report, clock: Clock) -> Said:
    wrong = folder.trouble(report.directory)
    yield "wrong" if wrong else "ok", "report", wrong or f"{report.directory} can be written"
    now_us = clock.now_us()
    for schedule in report.schedules:
        yield "ok", "report", f"{schedule.name}: next due {iso(daily.following(schedule, now_us))}"


def _mail(mail: Mail) -> Said:
    if mail.password_file is not None:
        faults = list(_private(mail.password_file, "mail", "password"))
        yield from faults
        if any(level == "wrong" for level, *_ in faults):
            return
    from tracker.post.smtp import MailServer, ServerTrouble  # loads TLS: only where there is mail

    short = replace(mail, timeout_s=min(mail.timeout_s, TALK_S))
    try:
        with MailServer(short):
            how = {"none": "without encryption", "starttls": "by STARTTLS", "implicit": "by TLS"}[mail.tls]
            login = f", logged in as {mail.user}" if mail.user is not None else ""
            yield "ok", "mail", f"{mail.host}:{mail.port} answers {how}{login}; nothing was sent"
    except ServerTrouble as trouble:
        yield "wrong", "mail", str(trouble)


def _webhook(hook: Webhook) -> Said:
    about = f"webhook {hook.name}"
    if hook.url_file is not None:
        faults = list(_private(hook.url_file, about, "URL"))
        yield from faults
        if any(level == "wrong" for level, *_ in faults):
            return
    from tracker.post.hook import target

    try:
        url = target(hook)
    except TrackerError as error:
        yield "wrong", about, str(error)
        return
    yield "ok", about, f"its URL can be used ({url.scheme}); nothing was posted. `--send-test` posts"


def _private(file: Path, about: str, what: str) -> Said:
    """Yield what is wrong with a file that holds a secret."""
    try:
        status = file.stat()
        smallfile.read(file, limit=0)
    except OSError as error:
        yield "wrong", about, f"{file}: {error.strerror}. It must hold the {what}"
        return
    if status.st_mode & (stat.S_IRGRP | stat.S_IROTH) and stat.S_ISREG(status.st_mode):
        yield "note", about, f"{file} can be read by others: chmod 600 it"


def _stored(config: Config, clock: Clock) -> Said:
    """Yield what the store says of reports and letters."""
    now_us = clock.now_us()
    try:
        if not stored_version(config.store):
            return
        with Reader(config.store) as reader:
            rows = report_rows(reader, since_day=daily.date_of(now_us - 2 * _DAY_US).isoformat())
            channels = outbox_state(reader, lately_us=now_us - 2 * _DAY_US)
    except TrackerError:
        return  # told by whoever looks at the store
    for row in rows:
        if row.state != "made":
            yield (
                "wrong",
                "report",
                f"the {row.kind} report of {row.day} is not made: {row.problem or 'begun'}",
            )
        elif row.problem:
            yield "note", "report", f"the {row.kind} report of {row.day} is not whole: {row.problem}"
    for one in channels:
        counts = f"{one.sent:,} sent, {one.queued:,} waiting, {one.dead:,} given up"
        level: Literal["ok", "wrong"] = "wrong" if one.problem else "ok"
        yield level, one.channel, counts + (f". The latest failure: {one.problem}" if one.problem else "")
