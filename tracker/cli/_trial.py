"""`tracker report --preview` and `--send-test`: the mail of a report, written or sent now.

Edge.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, cast

import click

from tracker.config import Config


def mail_it(
    config: Config,
    *,
    as_of_us: int,
    preview: Path | None,
    send_test: bool,
    to: tuple[str, ...],
    paper: str | None,
) -> None:
    """Make the mail; write it to `preview` with the ending .eml, or send it. Exits 1 where one did not go."""
    from tracker import app, daily, reporting
    from tracker.atomic import replacing
    from tracker.cli import printable
    from tracker.cli._output import talk
    from tracker.clock import SystemClock
    from tracker.core.errors import InvalidValue
    from tracker.post import trial
    from tracker.post.names import base_name

    mails = config.report is not None and config.report.mail is not None
    if send_test and not mails and (to or not config.webhooks):
        raise click.UsageError(
            f"{config.path} names no mail server and no webhook. Add [report.mail] with host, from and to"
        )
    try:
        for_whom = trial.recipients(config, to)
    except InvalidValue as error:
        raise click.UsageError(str(error)) from None
    zone = config.report.zone if config.report is not None else config.zone
    day, now_us = daily.date_of(as_of_us, zone).isoformat(), SystemClock().now_us()
    failed = False
    if mails or preview is not None:
        page = reporting.page_of(app.daily_now(config, as_of_us=as_of_us), config)
        chosen = paper or (config.report.paper if config.report is not None else "a4")

        def write(base: Path) -> None:
            for _ in reporting.write(page, base, paper=cast(Literal["a4", "letter"], chosen), mail=True):
                pass

        made = trial.rendered(write)
        if made.problem:
            talk(printable(made.problem))
        name = base_name(config.settings.run, "daily", day)
        body = trial.letter(config, made, name=name, day=day, as_of_us=as_of_us, now_us=now_us, to=for_whom)
        if preview is not None:
            place = preview.with_name(f"{preview.name}.eml")
            with replacing(place) as file:
                file.write(body)
            click.echo(str(place))
        if send_test:
            for who, outcome in trial.send(config, body, for_whom):
                failed |= _told(who, outcome.kind, outcome.text)
    if send_test and not to:
        for who, outcome in trial.post_all(config, now_us=now_us):
            failed |= _told(who, outcome.kind, outcome.text)
    if failed:
        raise click.exceptions.Exit(1)


def _told(who: str, kind: str, text: str) -> bool:
    """Print what came of it for one; tell whether it failed."""
    from tracker.cli import printable

    words = {"sent": "sent", "later": "not sent", "never": "refused", "uncertain": "perhaps sent"}
    click.echo(printable(f"{who}: {words[kind]}" + (f": {text}" if text else "")))
    return kind != "sent"
