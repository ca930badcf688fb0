"""One HTTP server to write to and read from: time limits, verified TLS, credentials that are never shown.

Edge: the network. Redirects are not followed; an answer is bounded in size and in time, however it drips.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import socket
import ssl
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

from tracker.core.errors import InvalidValue, TrackerError
from tracker.masking import Masked

MOST_BYTES: Final = 512 << 20
"""Of an answer."""
_TOLD_CHARS: Final = 200
_LOOKED_AT: Final = 4_096
"""Bytes of an answer that says no."""
PASSWORD_ENV: Final = "TRACKER_BACKFILL_PASSWORD"
TOKEN_ENV: Final = "TRACKER_BACKFILL_TOKEN"


class NoAnswer(TrackerError):
    """The server could not be reached, or did not answer in time: worth another try."""


class Broken(TrackerError):
    """The server says that it cannot now (5xx, 429): worth another try."""

    def __init__(self, text: str, after_s: float | None) -> None:
        super().__init__(text)
        self.after_s = after_s


class Refused(TrackerError):
    """The server does not take this (4xx), and will not take it later."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we are. `repr` shows nothing of it."""

    header: str = field(default="", repr=False)
    """The Authorization header; empty: none."""
    secret: str = field(default="", repr=False)


def credentials(
    *,
    user: str | None,
    password_file: Path | None,
    token_file: Path | None,
    environment: dict[str, str] | None = None,
) -> Credentials:
    """Read credentials from files, else from the environment; InvalidValue where they make no sense."""
    known = dict(os.environ) if environment is None else environment
    token = _secret("--token-file", token_file) if token_file is not None else known.get(TOKEN_ENV, "")
    if user is not None:
        password = (
            _secret("--password-file", password_file)
            if password_file is not None
            else known.get(PASSWORD_ENV)
        )
        if password is None:
            raise InvalidValue(
                "--user", user, "a password too", f"Give --password-file, or set {PASSWORD_ENV}"
            )
        if token_file is not None:
            raise InvalidValue("--user", user, "a user or a token, not both")
        if ":" in user or not user.isprintable():
            raise InvalidValue("--user", user, "a name without a colon")
        coded = base64.b64encode(f"{user}:{_checked(PASSWORD_ENV, password)}".encode()).decode()
        return Credentials(f"Basic {coded}", password)
    if password_file is not None:
        raise InvalidValue("--password-file", str(password_file), "a user too", "Give --user NAME")
    if token:
        return Credentials(f"Bearer {_checked(TOKEN_ENV, token)}", token)
    return Credentials()


def _secret(option: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            body = file.read(4097)
    except OSError as error:
        raise InvalidValue(option, str(path), "a file that can be read", error.strerror or "") from None
    text = body.decode("utf-8", "replace").rstrip("\r\n")
    if not text or len(body) > 4096:
        raise InvalidValue(option, str(path), "a file with one secret of 1 to 4,096 bytes")
    return _checked(option, text)


def _checked(source: str, secret: str) -> str:
    if not secret.isprintable():
        raise InvalidValue(source, "(not shown)", "one line of printable text")
    return secret


class Server:
    """A connection that is kept open; for one thread."""

    def __init__(
        self,
        url: str,
        *,
        who: Credentials,
        ca_file: Path | None = None,
        timeout_s: float = 30.0,
        option: str = "--url",
    ) -> None:
        """Check the address; nothing is sent yet. Raises InvalidValue."""
        parts = _parts(url, option)
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            try:
                self._tls = ssl.create_default_context(cafile=str(ca_file) if ca_file is not None else None)
            except (OSError, ssl.SSLError) as error:
                raise InvalidValue(
                    "--ca-file", str(ca_file), "a PEM file with certificates", str(error)
                ) from None
        elif who.header and not _is_here(parts.hostname or ""):
            raise InvalidValue(option, _bare(url), "https where credentials are sent to another host")
        self._host, self._port = parts.hostname or "", parts.port
        self.path = parts.path.rstrip("/")
        self.shown = _bare(url)
        self._who = who
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def post(self, path: str, body: bytes, headers: dict[str, str], *, patience: float = 1.0) -> bytes:
        """Send a body; return the answer's. Raises NoAnswer, Broken or Refused."""
        return self._ask("POST", path, body, headers, patience)

    def get(self, path: str, query: dict[str, str], *, patience: float = 4.0) -> bytes:
        """Ask; return the answer's body. `patience` multiplies the time limit."""
        return self._ask("GET", f"{path}?{urlencode(query)}", None, {}, patience)

    def _ask(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], patience: float
    ) -> bytes:
        limit_s = self._timeout_s * patience
        sent = {"Host": self._netloc(), "User-Agent": "run-telemetry-backfill", **headers}
        if self._who.header:
            sent["Authorization"] = self._who.header
        connection = self._connect(limit_s)
        with _deadline(connection, limit_s) as late:
            try:
                connection.request(method, path, body=body, headers=sent)
                reply = connection.getresponse()
                text = reply.read(MOST_BYTES + 1)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                raise NoAnswer(f"{self.shown}: {self._why(error, late.is_set(), limit_s)}") from None
        if late.is_set():
            self.close()
            raise NoAnswer(f"{self.shown}: no answer within {limit_s:g} s")
        if reply.will_close or len(text) > MOST_BYTES:
            self.close()
        return self._judged(reply, text)

    def _judged(self, reply: http.client.HTTPResponse, text: bytes) -> bytes:
        status = reply.status
        if 200 <= status < 300 and len(text) <= MOST_BYTES:
            return text
        said = self._clean(text[:_LOOKED_AT].decode("utf-8", "replace"))
        told = f"{self.shown} answered {status}{f': {said}' if said else ''}"
        if status >= 500 or status in (408, 425, 429):
            raise Broken(told, _seconds(reply.headers.get("Retry-After")))
        if status in (401, 403):
            told += f". Credentials: --user with --password-file, --token-file, {PASSWORD_ENV} or {TOKEN_ENV}"
        elif 300 <= status < 400:
            told += ". Give the address it points to: redirects are not followed"
        raise Refused(status, told)

    def _connect(self, limit_s: float) -> http.client.HTTPConnection:
        if self._connection is None:
            if self._tls is not None:
                self._connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=limit_s, context=self._tls
                )
            else:
                self._connection = http.client.HTTPConnection(self._host, self._port, timeout=limit_s)
        self._connection.timeout = limit_s
        if self._connection.sock is not None:
            self._connection.sock.settimeout(limit_s)
        return self._connection

    def _netloc(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return host if self._port is None else f"{host}:{self._port}"

    def _why(self, error: Exception, late: bool, limit_s: float) -> str:
        if late or isinstance(error, TimeoutError):
            return f"no answer within {limit_s:g} s"
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({self._clean(error.verify_message)}). Give --ca-file"
        if isinstance(error, socket.gaierror):
            return f"its name is not known ({error.strerror})"
        told = (getattr(error, "strerror", None) or str(error)) or type(error).__name__
        return self._clean(told)

    def _clean(self, text: str) -> str:
        """Return text of the server: one line, printable, bounded, without our secret."""
        text = Masked(self._who.header.partition(" ")[2], self._who.secret)(text)
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return line if len(line) <= _TOLD_CHARS else f"{line[: _TOLD_CHARS - 1]}…"


@contextlib.contextmanager
def _deadline(connection: http.client.HTTPConnection, limit_s: float):  # type: ignore[no-untyped-def]
    """Cut the connection when the whole exchange takes too long, however it drips."""
    late = threading.Event()

    def cut() -> None:
        late.set()
        sock = connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(limit_s, cut)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


def _parts(url: str, option: str):  # type: ignore[no-untyped-def]
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidValue(option, "(not an address)", "http://HOST:PORT/PATH or https://...") from None
    if "@" in parts.netloc:
        raise InvalidValue(
            option, _bare(url), "an address without a user and password in it",
            f"Give --user with --password-file, or set {PASSWORD_ENV}",
        )  # fmt: skip
    clean = url.isprintable() and " " not in url and not parts.query and not parts.fragment
    if parts.scheme not in ("http", "https") or not parts.hostname or not clean or port == 0:
        raise InvalidValue(option, _bare(url), "http://HOST:PORT/PATH or https://...")
    return parts


def _bare(url: str) -> str:
    """Return an address without what may be secret in it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(not an address)"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _is_here(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _seconds(text: str | None) -> float | None:
    try:
        return min(max(float(text), 0.0), 300.0) if text is not None else None
    except ValueError:
        return None
