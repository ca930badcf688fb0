"""A real mail server on a free port, that can refuse, break off, or say nothing; certificates for it."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

USER, PASSWORD = "tracker", "s3cret-Passw0rd"


@dataclass
class Box:
    """What came, and how to answer."""

    mails: list[tuple[str, list[str], bytes]] = field(default_factory=list)
    refuse: dict[str, str] = field(default_factory=dict)
    """Answer to RCPT, by address."""
    to_mail: str = ""
    to_data: list[str] = field(default_factory=list)
    """Answers to the next contents; "drop" keeps the mail and breaks off, "lose" breaks off."""
    logins: list[bytes] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)

    async def handle_MAIL(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.to_mail:
            return self.to_mail
        envelope.mail_from = address
        return "250 OK"

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refuse:
            return self.refuse[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        answer = self.to_data.pop(0) if self.to_data else "250 OK"
        self.encrypted.append(session.ssl is not None)
        if answer in ("250 OK", "drop"):
            assert isinstance(envelope.content, bytes)
            self.mails.append((str(envelope.mail_from), list(envelope.rcpt_tos), envelope.content))
        if answer in ("drop", "lose"):
            assert server.transport is not None
            server.transport.abort()
        return answer if answer[:1].isdigit() else "250 OK"

    def authenticate(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.logins.append(data.login)
        good = (data.login, data.password) == (USER.encode(), PASSWORD.encode())
        return AuthResult(success=good, handled=False)

    def parsed(self) -> list[EmailMessage]:
        return [
            message
            for *_, body in self.mails
            if isinstance(message := BytesParser(policy=policy.default).parsebytes(body), EmailMessage)
        ]

    def ids(self) -> list[str]:
        return [str(message["Message-ID"]) for message in self.parsed()]


class _Bound(Controller):
    """A controller whose port is bound before it starts: nobody else can take it meanwhile."""

    def __init__(self, box: Box, **options: Any) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        port = self.listener.getsockname()[1]
        super().__init__(box, hostname="127.0.0.1", port=port, ready_timeout=20, **options)

    def _create_server(self) -> Any:
        return self.loop.create_server(self._factory_invoker, sock=self.listener, ssl=self.ssl_context)


@contextmanager
def mail_server(box: Box, **options: Any) -> Iterator[int]:
    """Serve on 127.0.0.1; yield the port."""
    controller = _Bound(box, **options)
    controller.start()
    try:
        yield controller.port
    finally:
        controller.stop()


@contextmanager
def silent_server(says: bytes = b"") -> Iterator[int]:
    """Accept connections, say these bytes, and then nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kept: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connection.sendall(says)
                kept.append(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)
            for connection in kept:
                connection.close()


@dataclass(frozen=True)
class Certificates:
    """An authority, and contexts of servers that it vouches for, or not."""

    ca_file: Path
    good: ssl.SSLContext
    expired: ssl.SSLContext
    other_name: ssl.SSLContext


def certificates(folder: Path) -> Certificates:
    """Make them in a folder."""
    ca = trustme.CA()
    ca_file = folder / "ca.pem"
    ca.cert_pem.write_to_path(str(ca_file))

    def context(*names: str, **dates: Any) -> ssl.SSLContext:
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        ca.issue_cert(*names, **dates).configure_cert(made)
        return made

    long_ago = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    return Certificates(
        ca_file=ca_file,
        good=context("127.0.0.1", "localhost"),
        expired=context("127.0.0.1", not_before=long_ago, not_after=long_ago + dt.timedelta(days=30)),
        other_name=context("mail.example.org"),
    )
