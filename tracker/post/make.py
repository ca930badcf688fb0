"""One report that is due: documents made by a child, put in the folder, and queued as a mail.

Edge: only a child process runs this. The report and its letter are recorded in one transaction. What fails
is recorded too: the page and the next report say so. What cannot be made is left out, and the mail says so.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from reports.html_mail import with_notice
from tracker import daily
from tracker.atomic import replacing
from tracker.child import ended
from tracker.config import Config, Report
from tracker.core.documents import iso
from tracker.core.errors import InvalidValue, TrackerError
from tracker.interfaces import Clock
from tracker.leash import Leash
from tracker.post import folder
from tracker.post.message import Documents, Envelope, list_id, message, message_id
from tracker.post.names import base_name
from tracker.scratch import Scratch
from tracker.store import Letter, Outbox, ReportRow

ENDINGS: Final = ("pdf", "html", "txt")
"""Documents that go to the folder."""
_COMMAND: Final = (sys.executable, "-P", "-c", "from tracker.cli import main\nmain()", "report")
_SAID: Final = 400


class NotMade(TrackerError):
    """A report could not be made; the message says why, and when it is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A report's documents as they came out."""

    files: Mapping[str, bytes]
    """By ending: pdf, html, txt."""
    subject: str = ""
    """What it says, in a few words; empty where nobody said."""
    mail_html: str = ""
    """For mail: no drawing but pictures named `cid:NAME`; empty: no HTML."""
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    problem: str = ""
    """What could not be made; empty where all was."""
    unkept: str = ""
    """Why it is not in its folder; empty where it is."""


Render = Callable[[Config, int, str, float], Rendered]
"""(config, as_of_us, base name, time limit in s) -> documents; raises NotMade."""


def make(
    outbox: Outbox,
    config: Config,
    *,
    kind: str,
    day: str,
    zone: str,
    as_of_us: int,
    clock: Clock,
    render: Render,
) -> str:
    """Make the report of a day, unless it is made; return what was left out, empty where nothing."""
    report = config.report
    schedule = next((one for one in report.schedules if one.name == kind), None) if report else None
    if report is None or schedule is None:
        raise NotMade(f"the config has no schedule {kind!r} any more")
    row = outbox.claim(kind, day, zone, as_of_us=as_of_us, now_us=clock.now_us(), retry_us=daily.retry_us)
    if row.state == "made":
        return ""
    try:
        name = base_name(config.settings.run, kind, day)
        made = render(config, row.as_of_us, name, report.time_limit_s)
        mails = report.mail is not None and bool(schedule.to)
        nowhere = _deliver(report, name, made)
        if nowhere and not mails:
            raise NotMade(nowhere)
        problem = "; ".join(text for text in (made.problem, nowhere) if text)
        made = replace(made, unkept=nowhere)
        letter = _letter(config, report, schedule, row, name, made) if mails else None
        outbox.made(
            row,
            letter=letter,
            recipients=schedule.to,
            files=[f"{name}.{ending}" for ending in ENDINGS if ending in made.files and not nowhere],
            now_us=clock.now_us(),
            problem=problem,
        )
    except (TrackerError, OSError) as error:
        wait_us = daily.retry_us(row.attempts)
        outbox.failed(row, str(error), not_before_us=clock.now_us() + wait_us)
        raise NotMade(f"{error}; tried again in {wait_us // 60_000_000} min") from error
    return problem


def documents_by_command(config: Config, as_of_us: int, name: str, limit_s: float) -> Rendered:
    """Have `tracker report` make the documents; where it fails, at least the text."""
    with Scratch("report") as place:
        problem = _report(config, as_of_us, place / f"{name}.pdf", limit_s, mail=True)
        if problem and not (place / f"{name}.txt").exists():
            again = _report(config, as_of_us, place / f"{name}.txt", limit_s, mail=False)
            if again:
                raise NotMade(again)
            problem = f"only the text could be made: {problem}"
        return collected(place, name, problem)


def collected(place: Path, name: str, problem: str = "") -> Rendered:
    """Return the documents that lie in a folder under a base name."""
    files = {}
    for ending in ENDINGS:
        with contextlib.suppress(FileNotFoundError):
            files[ending] = (place / f"{name}.{ending}").read_bytes()
    if "txt" not in files:
        raise NotMade(problem or f"{name}.txt is missing: the report was made without its text")
    said: dict[str, str] = {}
    with contextlib.suppress(FileNotFoundError):
        said = json.loads((place / f"{name}.mail.json").read_text("utf-8"))
    html = ""
    with contextlib.suppress(FileNotFoundError):
        html = (place / f"{name}.mail.html").read_text("utf-8")
    pictures = {
        path.name.removeprefix(f"{name}.").removesuffix(".png"): path.read_bytes()
        for path in sorted(place.glob(f"{name}.*.png"))
    }
    return Rendered(
        files=files, subject=said.get("subject", ""), mail_html=html, pictures=pictures, problem=problem
    )


def mail_of(
    config: Config,
    made: Rendered,
    *,
    name: str,
    to: tuple[str, ...],
    kind: str,
    day: str,
    identity: str,
    as_of_us: int,
    mark: str = "",
) -> bytes:
    """Return a report as a mail."""
    report = config.report
    assert report is not None
    assert report.mail is not None
    run = config.settings.run
    text, notice = made.files["txt"].decode("utf-8", "replace"), _notice(made)
    if notice:
        text = f"{text.rstrip()}\n\n{notice}\n"
    documents = Documents(
        subject=mark + (made.subject or f"{run}: {kind} report of {day}"),
        text=text,
        html=with_notice(made.mail_html, notice),
        pictures=made.pictures,
        pdf=made.files.get("pdf", b""),
        file_name=f"{name}.pdf",
    )
    envelope = Envelope(
        sender=report.mail.sender,
        to=to,
        reply_to=report.mail.reply_to,
        message_id=identity,
        list_id=list_id(run, kind, sender=report.mail.sender),
        as_of_us=as_of_us,
    )
    return message(documents, envelope)


def _notice(made: Rendered) -> str:
    """Return a sentence for whoever gets a report that is not whole, or that is nowhere else."""
    about = "This report is not whole" if "pdf" in made.files else "The PDF is missing"
    told = ((about, made.problem), ("This report is not in its folder", made.unkept))
    return " ".join(f"{what}: {why.rstrip('.')}." for what, why in told if why)


def _letter(
    config: Config, report: Report, schedule: daily.Schedule, row: ReportRow, name: str, made: Rendered
) -> Letter:
    assert report.mail is not None
    run = config.settings.run
    identity = message_id([run, row.kind, row.day, row.zone, str(config.store)], sender=report.mail.sender)
    body = mail_of(
        config, made, name=name, to=schedule.to, kind=row.kind, day=row.day, identity=identity,
        as_of_us=row.as_of_us,
    )  # fmt: skip
    return Letter(
        message_id=identity, channel="mail", subject=made.subject or name, made_us=row.as_of_us, body=body
    )


def _report(config: Config, as_of_us: int, out: Path, limit_s: float, *, mail: bool) -> str:
    """Run `tracker report`; return why it failed, empty where it did not."""
    moment = iso(as_of_us) or ""
    arguments = [*_COMMAND, "--config", str(config.path), "--as-of", moment, "--out", str(out)]
    with Leash() as leash:
        child = subprocess.Popen(
            arguments + (["--mail"] if mail else []),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=config.folder,
            pass_fds=leash.fds,
        )
        leash.hold(child)
        try:
            _, said = child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            return f"the report took longer than {limit_s:g} s and was ended"
    if child.returncode == 0:
        return ""
    lines = said.decode("utf-8", "replace").strip().splitlines()
    last = lines[-1].removeprefix("tracker: ") if lines else f"it {ended(child.returncode)} and said nothing"
    return "".join(c if c.isprintable() else "?" for c in last[:_SAID])


def _deliver(report: Report, name: str, made: Rendered) -> str:
    """Put the documents in the folder, each whole or not at all; return what could not be put there."""
    try:
        place = folder.made(report.directory)
        for ending in ENDINGS:
            if ending in made.files:
                with replacing(place / f"{name}.{ending}") as file:
                    file.write(made.files[ending])
    except InvalidValue as error:
        return str(error)
    except OSError as error:
        return folder.refused(report.directory, error)
    return ""
