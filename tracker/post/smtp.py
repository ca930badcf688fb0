"""One conversation with a mail server: connect, prove who is there, log in, hand over letters.

Edge. Loads `ssl` and `smtplib`: only child processes import this. Encryption is never silently less than the
config says. Between the recipients and the content the caller is told: from there on, until the server's
answer is recorded, nobody can know whether a letter arrived.
"""

from __future__ import annotations

import base64
import contextlib
import re
import smtplib
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final

from tracker.config import Mail
from tracker.masking import Masked
from tracker.post.message import bare
from tracker.post.retry import SENT, Outcome
from tracker.post.secrets import SecretMissing, read_secret
from tracker.post.tls import BadCertificates, certificate_trouble, trusting

CONNECT_S: Final = 10.0
_SAID: Final = 200


class ServerTrouble(Exception):
    """The server cannot be used now: the outcome is that of every letter."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.outcome = Outcome(kind="later", reason=reason, text=text)


class MailServer:
    """An open conversation; use it as a context manager. Entering raises ServerTrouble."""

    def __init__(self, mail: Mail) -> None:
        self._mail = mail
        self._server: smtplib.SMTP | None = None
        self._hide = Masked()

    def __enter__(self) -> MailServer:
        mail = self._mail
        place = f"{mail.host}:{mail.port}"
        try:
            self._connect(place)
            self._log_in(place)
        except ServerTrouble:
            self.close()
            raise
        except (OSError, smtplib.SMTPException, ValueError) as error:
            self.close()
            raise _trouble(place, error, self._hide) from None
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Say goodbye, where the server still listens."""
        server, self._server = self._server, None
        if server is not None:
            with contextlib.suppress(OSError, smtplib.SMTPException):
                if server.sock is not None:
                    server.sock.settimeout(2.0)
                    server.quit()
            server.close()

    @property
    def open(self) -> bool:
        """Whether another letter can be handed over."""
        return self._server is not None and self._server.sock is not None

    def send(
        self,
        body: bytes,
        sender: str,
        recipients: Sequence[str],
        *,
        uncertain_from_here: Callable[[Sequence[str]], None],
    ) -> dict[str, Outcome]:
        """Hand over a letter; return how it went for each recipient.

        `uncertain_from_here` gets the recipients that the server took, before the content is sent.
        """
        server = self._server
        assert server is not None
        done: dict[str, Outcome] = {}
        taken: list[str] = []
        sending = False
        try:
            if (refused := self._begin(server, sender, body)) is not None:
                return dict.fromkeys(recipients, refused)
            for one in recipients:
                code, said = server.rcpt(bare(one))
                if code in (250, 251):
                    taken.append(one)
                else:
                    done[one] = self._refused(code, said, "recipient")
                    if code == 421:
                        self._drop()
                        break
            if not taken or not self.open:
                self._reset()
                later = Outcome(kind="later", reason="busy", text="the server closed the conversation")
                return {one: done.get(one, later) for one in recipients}
            code, said = server.docmd("DATA")
            if code != 354:
                self._reset()
                return done | dict.fromkeys(taken, self._refused(code, said, "message"))
            uncertain_from_here(taken)
            sending = True
            server.send(dotted(body))
            code, said = server.getreply()
            result = SENT if code == 250 else self._refused(code, said, "message")
            if code == 421:
                self._drop()
            return done | dict.fromkeys(taken, result)
        except (OSError, smtplib.SMTPException) as error:
            self._drop()
            trouble = _trouble(f"{self._mail.host}:{self._mail.port}", error, self._hide).outcome
            if sending:
                text = f"the content was sent, and then: {trouble.text}"
                trouble = Outcome(kind="uncertain", reason="uncertain", text=text)
                return done | dict.fromkeys(taken, trouble)
            return {one: done.get(one, trouble) for one in recipients}

    def _begin(self, server: smtplib.SMTP, sender: str, body: bytes) -> Outcome | None:
        """Announce a letter; return why not, where the server refuses it."""
        options = [f"size={len(body)}"] if server.has_extn("size") else []
        most = server.esmtp_features.get("size", "")
        if most.isdigit() and 0 < int(most) < len(body):
            text = f"the mail has {len(body):,} bytes, and the server takes {int(most):,}"
            return Outcome(kind="never", reason="size", text=text)
        code, said = server.mail(bare(sender), options)
        if code == 250:
            return None
        if code == 421:
            self._drop()
        else:
            self._reset()
        return self._refused(code, said, "size" if code == 552 else "sender")

    def _connect(self, place: str) -> None:
        mail = self._mail
        context = trusting(mail.ca_file) if mail.tls != "none" else None
        name = _own_name()
        first_s = min(CONNECT_S, mail.timeout_s)
        if mail.tls == "implicit":
            self._server = smtplib.SMTP_SSL(local_hostname=name, timeout=first_s, context=context)
        else:
            self._server = smtplib.SMTP(local_hostname=name, timeout=first_s)
        server = self._server
        server._host = mail.host  # type: ignore[attr-defined]  # the name that its certificate must have
        code, said = server.connect(mail.host, mail.port)
        if code != 220:
            text = f"{place}: {_text(code, said, self._hide)}"
            raise ServerTrouble("busy" if code < 500 else "protocol", text)
        if server.sock is not None:
            server.sock.settimeout(mail.timeout_s)
        server.ehlo_or_helo_if_needed()
        if mail.tls == "starttls":
            if not server.has_extn("starttls"):
                raise ServerTrouble(
                    "tls",
                    f'{place} offers no STARTTLS: nothing was sent. Take report.mail.tls = "implicit" '
                    "(port 465) if it speaks TLS from the first byte",
                )
            server.starttls(context=context)
            server.ehlo_or_helo_if_needed()

    def _log_in(self, place: str) -> None:
        mail = self._mail
        if mail.user is None:
            return
        try:
            password = read_secret("mail password", file=mail.password_file, variable=mail.password_env)
        except SecretMissing as error:
            raise ServerTrouble("secret", str(error)) from None
        self._hide = Masked(f"\0{mail.user}\0{password}", password)
        server = self._server
        assert server is not None
        if not server.has_extn("auth"):
            raise ServerTrouble(
                "login",
                f"{place} takes no login. Leave out report.mail.user and its password, or see its port",
            )
        try:
            if (mail.user + password).isascii():
                server.login(mail.user, password)
            else:
                _log_in_plain(server, mail.user, password)
        except smtplib.SMTPAuthenticationError as error:
            said = _text(error.smtp_code, error.smtp_error, self._hide)
            held = mail.password_file or f"the environment's {mail.password_env}"
            raise ServerTrouble(
                "login",
                f"{place} refused the login of {mail.user!r}: {said}. Mend report.mail.user, or the password "
                f"in {held}",
            ) from None
        except (TimeoutError, smtplib.SMTPException) as error:
            if _is_late(error):
                raise ServerTrouble(
                    "timeout",
                    f"{place} did not answer the login of {mail.user!r} in time. See "
                    "report.mail.timeout_s, or ask whoever runs it",
                ) from None
            if isinstance(error, smtplib.SMTPServerDisconnected):
                raise
            raise ServerTrouble("login", f"{place}: no way to log in that both know") from None

    def _refused(self, code: int, said: bytes, what: str) -> Outcome:
        text = _text(code, said, self._hide)
        if 400 <= code < 500:
            return Outcome(kind="later", reason="busy", text=text)
        if 500 <= code < 600:
            reason = "size" if code == 552 and what == "message" else what
            return Outcome(kind="never", reason=reason, text=text)
        return Outcome(kind="later", reason="protocol", text=text)

    def _reset(self) -> None:
        server = self._server
        if server is not None:
            try:
                server.rset()
            except (OSError, smtplib.SMTPException):
                self._drop()

    def _drop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()


def dotted(body: bytes) -> bytes:
    """Return content as it goes over the wire: lines end in CRLF, none is a lone dot but the last.

    >>> dotted(b"a" + bytes([10]) + b".b")
    b'a\\r\\n..b\\r\\n.\\r\\n'
    """
    lines = re.sub(rb"\r\n|\r|\n", b"\r\n", body)
    stuffed = re.sub(rb"(?m)^\.", b"..", lines)
    return stuffed + (b"" if stuffed.endswith(b"\r\n") else b"\r\n") + b".\r\n"


def _log_in_plain(server: smtplib.SMTP, user: str, password: str) -> None:
    """Log in with a name or password beyond ASCII, which smtplib cannot."""
    word = base64.b64encode(f"\0{user}\0{password}".encode()).decode("ascii")
    code, said = server.docmd("AUTH", f"PLAIN {word}")
    if code not in (235, 503):
        raise smtplib.SMTPAuthenticationError(code, said)


def _is_late(error: Exception) -> bool:
    """Tell whether a time limit ran out; smtplib tells some of them as a closed connection."""
    return isinstance(error, TimeoutError) or "timed out" in str(error)


def _trouble(place: str, error: Exception, hide: Masked) -> ServerTrouble:
    """Return an error of the connection in words."""
    if isinstance(error, BadCertificates):
        return ServerTrouble("certificate", str(error))
    if isinstance(error, ssl.SSLCertVerificationError):
        return ServerTrouble("certificate", f"{place}: {certificate_trouble(error)}")
    if isinstance(error, ssl.SSLError):
        return ServerTrouble("tls", f"{place}: no TLS with it ({error.reason or 'see its port'})")
    if _is_late(error):
        return ServerTrouble("timeout", f"{place}: it did not answer in time. See report.mail.port")
    if isinstance(error, smtplib.SMTPConnectError | smtplib.SMTPHeloError | smtplib.SMTPResponseException):
        return ServerTrouble("protocol", f"{place}: {_text(error.smtp_code, error.smtp_error, hide)}")
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return ServerTrouble("network", f"{place}: it closed the connection")
    if isinstance(error, socket.gaierror):
        return ServerTrouble(
            "network", f"{place}: no such machine is known ({error.strerror}). See report.mail.host"
        )
    if isinstance(error, OSError):
        said = error.strerror or type(error).__name__
        return ServerTrouble("network", f"{place}: {said}. See report.mail.host and port")
    return ServerTrouble("protocol", f"{place}: {type(error).__name__}: {hide(str(error))[:_SAID]}")


def _text(code: int, said: bytes | str, hide: Masked) -> str:
    """Return a server's answer, bounded and printable, without the password that it may repeat."""
    words = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    line = " ".join(hide(words).split())[:_SAID]
    return f"{code} " + "".join(c if c.isprintable() else "?" for c in line)


def _own_name() -> str:
    """Return how we greet: smtplib would ask the name service, which can take minutes."""
    name = socket.gethostname()
    plain = re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9-]+)*", name)
    return name if plain else "[127.0.0.1]"
