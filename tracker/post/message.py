"""A report as one mail: text, HTML with its pictures inside, and the PDF; the same input, the same bytes.

Pure. Only the child that makes reports loads this: `email` is too much for the sidecar. Names of runs are
hostile here: what goes into a header is one line of ASCII.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email import policy
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Final

from tracker.post.names import ascii_of, file_name, run_name

SUBJECT_CHARS: Final = 65
"""Longer ones are folded, and some programs fold them wrongly."""
_POLICY: Final = policy.SMTP.clone(cte_type="7bit", max_line_length=998)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """A report, rendered."""

    subject: str
    """What it says, in a few words; any text."""
    text: str
    html: str = ""
    """With `cid:NAME` where a picture is meant; empty: no HTML."""
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    """PNG by name."""
    pdf: bytes = b""
    """Empty: no PDF."""
    file_name: str = "report.pdf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """From whom, to whom, and which letter it is."""

    sender: str
    to: tuple[str, ...]
    reply_to: str | None
    message_id: str
    list_id: str
    """What programs sort by: the same for all mails of a schedule of a run."""
    as_of_us: int
    """The mail's date."""


def message(documents: Documents, envelope: Envelope) -> bytes:
    """Return the mail, ready to be sent: lines end in CRLF and all is ASCII."""
    mail = EmailMessage(policy=_POLICY)
    mail["From"] = _address(envelope.sender)
    mail["To"] = [_address(one) for one in envelope.to]
    if envelope.reply_to is not None:
        mail["Reply-To"] = _address(envelope.reply_to)
    mail["Subject"] = subject(documents.subject)
    mail["Date"] = format_datetime(_EPOCH + dt.timedelta(microseconds=envelope.as_of_us))
    mail["Message-ID"] = envelope.message_id
    mail["List-Id"] = envelope.list_id
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Auto-Response-Suppress"] = "All"
    mail.set_content(_whole(documents.text))
    if documents.html:
        _add_html(mail, documents, envelope)
    if documents.pdf:
        mail.add_attachment(
            documents.pdf, maintype="application", subtype="pdf", filename=file_name(documents.file_name)
        )
    _fix_boundaries(mail, envelope.message_id)
    return mail.as_bytes()


def _add_html(mail: EmailMessage, documents: Documents, envelope: Envelope) -> None:
    host = envelope.message_id.strip("<>").rpartition("@")[2]
    html = documents.html
    ids = {
        name: f"{_digest(name)[:12]}.{_digest(envelope.message_id)[:12]}@{host}"
        for name in documents.pictures
    }
    for name, identity in ids.items():
        html = re.sub(rf"cid:{re.escape(name)}(?![\w.-])", f"cid:{identity}", html)
    mail.add_alternative(_whole(html), subtype="html")
    part = mail.get_payload()[1]  # type: ignore[index]  # an alternative has two parts
    assert isinstance(part, EmailMessage)
    for name, picture in documents.pictures.items():
        part.add_related(
            picture,
            maintype="image",
            subtype="png",
            cid=f"<{ids[name]}>",
            disposition="inline",
            filename=file_name(f"{name}.png"),
        )


def subject(text: str) -> str:
    """Return text as a subject: one line of ASCII below 66 characters.

    >>> subject("llama–13b 🦙: finishes 14 March, four days late" + chr(10) + "Bcc: x@y.z")
    'llama-13b ?: finishes 14 March, four days late Bcc: x@y.z'
    """
    plain = " ".join(ascii_of(text).split())
    if len(plain) <= SUBJECT_CHARS:
        return plain or "report"
    return plain[: SUBJECT_CHARS - 3].rstrip(" ,;:") + "..."


def message_id(parts: Sequence[str], *, sender: str) -> str:
    """Return the Message-ID of a letter: what it is about decides it, so a second try has the same.

    >>> message_id(["a-run", "daily", "2026-01-05"], sender="Ops <ops@example.org>")
    '<a-run.daily.2026-01-05.369e21f0891292ed@example.org>'
    """
    host = bare(sender).rpartition("@")[2] or "localhost"
    words = ".".join(file_name(part)[:30] for part in parts[:3])
    return f"<{words}.{_digest(chr(0).join(parts))[:16]}@{host}>"


def list_id(run: str, kind: str, *, sender: str) -> str:
    """Return the List-Id of a schedule of a run.

    >>> list_id("a/b", "daily", sender="ops@example.org")
    '<daily.a-b.example.org>'
    """
    host = bare(sender).rpartition("@")[2]
    return f"<{file_name(kind)}.{run_name(run).strip('.')[-60:]}.{host}>".lower()


def bare(address: str) -> str:
    """Return an address without the name before it.

    >>> bare("Ops, night <ops@example.org>")
    'ops@example.org'
    """
    return _split(address)[1]


def _address(text: str) -> Address:
    name, spec = _split(text)
    local, _, host = spec.rpartition("@")
    return Address(" ".join(name.split()), username=local, domain=host)


def _split(address: str) -> tuple[str, str]:
    """Return name and address; a name may hold commas, which `email.utils` would take for a list."""
    name, found, spec = address.strip().rpartition("<")
    if not found:
        return "", address.strip()
    return name.strip().strip('"'), spec.rstrip("> ").strip()


def _whole(text: str) -> str:
    """Return text that UTF-8 can hold, its lines ended one way."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "?")
    return plain.encode("utf-8", "replace").decode("utf-8")


def _fix_boundaries(mail: EmailMessage, message_id: str) -> None:
    """Name the parts' boundaries by the letter instead of by chance."""
    for number, part in enumerate(mail.walk()):
        if part.is_multipart():
            part.set_boundary(f"=={_digest(message_id)[:24]}.{number}==")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
