"""A small HTTP server: GET and HEAD, bounded in size, time and threads; what to answer comes from outside.

Edge. One request a connection, one thread a request, and no more threads than `MOST_CONNECTIONS`. A
client that never speaks, speaks too slowly or never reads is cut off after `DEADLINE_S`, and costs
nobody else anything: when all places are taken, who has most of them loses the oldest one that waits.
TLS and logins are somebody else's (`Security`); the handshake is part of the request's own thread and time.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import gzip
import ipaddress
import logging
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, Protocol

from tracker.config.kinds import Listen
from tracker.core.errors import TrackerError
from tracker.interfaces import Clock

MOST_CONNECTIONS: Final = 128
LARGEST_REQUEST: Final = 16 << 10
"""Bytes of request line and headers."""
DEADLINE_S: Final = 10.0
"""From the first byte awaited to the last byte sent."""
HANDSHAKE_S: Final = 5.0
CUT_AFTER_S: Final = 1.0
"""How old a connection that waits must be to be cut off for another one."""
_BLOCK: Final = 1 << 16
_WORTH_PACKING: Final = 1 << 10
_ALWAYS: Final = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Server": "tracker",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_MANY: Final = 8
"""An address with more connections than this may also lose one that is being answered."""
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_log = logging.getLogger(__name__)


class ListenError(TrackerError):
    """The server cannot listen where it was told to."""

    def __init__(self, listen: Listen, error: OSError) -> None:
        if error.errno == errno.EADDRINUSE:
            reason = "another program listens there. Stop it, or take another port (0 takes any free one)"
        elif error.errno == errno.EACCES:
            reason = "this user may not. Take a port above 1023"
        elif error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            reason = "this machine has no such address. Take 127.0.0.1, or an address of this machine"
        else:
            reason = error.strerror or str(error)
        super().__init__(f"serve.listen = {str(listen)!r}: cannot listen, {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client asked."""

    method: str
    """"GET" or "HEAD"."""
    path: str
    """Without the query."""
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case name."""
    address: str = ""
    """IP address of who asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What it gets."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Callable[[Request], Response]


class Security(Protocol):
    """Who may speak to the server, and how; `tracker/webconfig.py` reads it from a file."""

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        ...

    @property
    def has_users(self) -> bool:
        """Whether a name and password are asked for."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers that every answer gets."""
        ...

    def wrap(self, connection: socket.socket) -> socket.socket:
        """Return what to speak over, before any handshake; the connection given is used up."""
        ...

    def admit(self, request: Request) -> Response | None:
        """Return None for a request that may come in, else what it gets instead."""
        ...


class _Caller:
    """One connection while it is open."""

    __slots__ = ("address", "connection", "since_s", "waiting")

    def __init__(self, connection: socket.socket, address: str, since_s: float) -> None:
        self.connection = connection
        self.address = address
        self.since_s = since_s
        self.waiting = True
        """Whether its request is still awaited."""

    def cut(self) -> None:
        """End it from another thread: whoever reads or writes it gets an error or the end."""
        with contextlib.suppress(OSError):
            # Not the method of an encrypted socket: that takes its state away under the reader's feet.
            socket.socket.shutdown(self.connection, socket.SHUT_RDWR)


class Server:
    """Listens until stopped. `answer` is called from many threads at once and must not block long."""

    def __init__(
        self,
        listen: Listen,
        answer: Answer,
        *,
        clock: Clock,
        security: Security | None = None,
        deadline_s: float = DEADLINE_S,
        most_connections: int = MOST_CONNECTIONS,
    ) -> None:
        """Listen, but answer only after `start`. Raises ListenError."""
        self._answer = answer
        self._clock = clock
        self._security = security
        self._deadline_s = deadline_s
        self._slots = threading.BoundedSemaphore(most_connections)
        self._callers: set[_Caller] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._answers: Counter[int] = Counter()
        self._refused: Counter[str] = Counter()
        self._socket = _bind(listen)
        host, port = self._socket.getsockname()[:2]
        self.listen: Final = Listen(host, port)
        """Where it listens in fact."""
        self.tls: Final = security is not None and security.tls
        """Whether it speaks TLS only."""
        self._only_local = self.listen.is_loopback
        self._thread = threading.Thread(target=self._accept, name="http", daemon=True)

    @property
    def url(self) -> str:
        """Where its first page is."""
        return f"{'https' if self.tls else 'http'}://{self.listen}/"

    @property
    def exposure(self) -> str:
        """What is to be said of where it listens; empty where nothing is."""
        login = self._security is not None and self._security.has_users
        return self.listen.exposure(tls=self.tls, login=login)

    def counts(self) -> tuple[dict[int, int], dict[str, int]]:
        """Return how many answers were sent, by status, and how many connections got none, by reason."""
        with self._lock:
            return dict(self._answers), dict(self._refused)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, let answers under way end for half a second, then cut them off."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join(1.0)
        self._socket.close()
        until = self._clock.monotonic_s() + 0.5
        while self._callers and self._clock.monotonic_s() < until:
            threading.Event().wait(0.02)
        with self._lock:
            for caller in self._callers:
                caller.cut()

    # -- places --------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, peer = self._socket.accept()
            except OSError as error:
                if self._closing.is_set():
                    return
                if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                    self._closing.wait(0.1)  # a moment later there may be a handle again
                continue
            if not self._slots.acquire(blocking=False) and not self._make_room():
                self._count_refused("busy")
                _refuse(connection, plainly=not self.tls)
                continue
            with contextlib.suppress(OSError):  # else an answer over TLS waits 40 ms for an acknowledgement
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            caller = _Caller(connection, str(peer[0]), self._clock.monotonic_s())
            with self._lock:
                self._callers.add(caller)
            try:
                threading.Thread(target=self._serve, args=(caller,), name="http-answer", daemon=True).start()
            except RuntimeError:  # no thread to be had
                self._release(caller)

    def _make_room(self) -> bool:
        """Cut off who waits longest among those of the address with most connections; take its place."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            of = Counter(caller.address for caller in self._callers)
            old = [
                caller
                for caller in self._callers
                if now_s - caller.since_s >= CUT_AFTER_S and (caller.waiting or of[caller.address] > _MANY)
            ]
            if old:
                max(old, key=lambda one: (one.waiting, of[one.address], now_s - one.since_s)).cut()
        return bool(old) and self._slots.acquire(timeout=0.2)

    def _release(self, caller: _Caller) -> None:
        with self._lock:
            self._callers.discard(caller)
        caller.connection.close()
        self._slots.release()

    def _count_refused(self, reason: str) -> None:
        with self._lock:
            self._refused[reason] += 1

    # -- one request ---------------------------------------------------------------------------------

    def _serve(self, caller: _Caller) -> None:
        try:
            self._converse(caller)
        except TimeoutError:
            self._count_refused("timeout")
        except (OSError, ValueError):
            pass  # the client went away
        finally:
            self._release(caller)

    def _converse(self, caller: _Caller) -> None:
        until = self._clock.monotonic_s() + self._deadline_s
        security = self._security
        if security is not None:
            caller.connection = security.wrap(caller.connection)
            if self.tls and not self._shakes_hands(caller.connection):
                return
        head = self._head(caller.connection, until)
        if head is None:
            return
        caller.waiting = False
        request = _parse(head, caller.address)
        response = request if isinstance(request, Response) else self._respond(request)
        is_head = isinstance(request, Request) and request.method == "HEAD"
        asked = request.headers if isinstance(request, Request) else {}
        page = _encode(
            response, asked, is_head=is_head, now_us=self._clock.now_us(),
            more=security.headers if security is not None else {},
        )  # fmt: skip
        self._send(caller.connection, page, until)
        with self._lock:
            self._answers[response.status] += 1
        caller.connection.settimeout(0.2)
        if self.tls:
            caller.connection.unwrap()  # type: ignore[attr-defined]  # says that this was all of it
        caller.connection.shutdown(socket.SHUT_WR)
        for _ in range(64):  # what the client still sends is taken, else its kernel drops our answer
            if not caller.connection.recv(LARGEST_REQUEST):
                return

    def _shakes_hands(self, connection: socket.socket) -> bool:
        connection.settimeout(min(self._deadline_s, HANDSHAKE_S))
        try:
            connection.do_handshake()  # type: ignore[attr-defined]
        except (OSError, ValueError):
            self._count_refused("handshake")
            return False
        return True

    def _send(self, connection: socket.socket, page: bytes, until: float) -> None:
        """Send a page before a moment; not `sendall`, whose time starts anew with each block over TLS."""
        left = memoryview(page)
        while left:
            left_s = until - self._clock.monotonic_s()
            if left_s <= 0:
                raise TimeoutError
            connection.settimeout(left_s)
            left = left[connection.send(left[:_BLOCK]) :]

    def _head(self, connection: socket.socket, until: float) -> bytes | None:
        """Return request line and headers; None where the client left; too much gives what was read."""
        head = b""
        while b"\r\n\r\n" not in head and b"\n\n" not in head and len(head) <= LARGEST_REQUEST:
            left_s = until - self._clock.monotonic_s()
            if left_s <= 0:
                raise TimeoutError
            connection.settimeout(left_s)
            more = connection.recv(4096)
            if not more:
                return None
            head += more
        return head

    def _respond(self, request: Request) -> Response:
        if self._only_local and not _is_local(request.headers.get("host", "")):
            return Response(
                status=421,
                body=b"This tracker answers on this machine only: ask for it by IP address or as localhost.\n"
                b"A proxy in front of it must set the Host header to the address it connects to.\n",
            )
        try:
            instead = self._security.admit(request) if self._security is not None else None
            return self._answer(request) if instead is None else instead
        except Exception:
            _log.exception("no answer for %s", request.path[:200])
            return Response(status=500, body=b"The tracker failed to answer; its log says why.\n")


def _bind(listen: Listen) -> socket.socket:
    try:
        found = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, proto, _, address = found[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise ListenError(listen, error) from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ListenError(listen, error) from None
    return listener


def _parse(head: bytes, address: str = "") -> Request | Response:
    """Return the request, or the answer to one that cannot be read."""
    end = min((i for i in (head.find(b"\r\n\r\n"), head.find(b"\n\n")) if i >= 0), default=-1)
    if end < 0 or end > LARGEST_REQUEST:
        return Response(status=431, body=b"The request is too large.\n")
    lines = head[:end].decode("latin-1").replace("\r\n", "\n").split("\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return Response(status=400, body=b"This is no HTTP/1 request.\n")
    method, target, _ = words
    if method not in {"GET", "HEAD"}:
        return Response(status=405, body=b"GET and HEAD only.\n", headers={"Allow": "GET, HEAD"})
    if not target.startswith("/") or not target.isascii() or not target.isprintable():
        return Response(status=400, body=b"The path must begin with a slash.\n")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name) or _CONTROL.search(value):
            return Response(status=400, body=b"A header is malformed.\n")
        key = name.lower()
        headers[key] = f"{headers[key]}, {value.strip()}" if key in headers else value.strip()
    path, _, query = target.partition("?")
    return Request(method=method, path=path, query=query, headers=headers, address=address)


def _encode(
    response: Response,
    asked: Mapping[str, str],
    *,
    is_head: bool,
    now_us: int,
    more: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    body = response.body
    headers = dict(_ALWAYS)
    headers["Content-Type"] = response.content_type
    headers["Date"] = f"{dt.datetime.fromtimestamp(now_us / 1e6, dt.UTC):%a, %d %b %Y %H:%M:%S GMT}"
    headers["Vary"] = "Accept, Accept-Encoding"
    headers.update(more)
    headers.update(response.headers)
    if len(body) >= _WORTH_PACKING and "Content-Encoding" not in headers and takes_gzip(asked):
        body = gzip.compress(body, compresslevel=5, mtime=0)
        headers["Content-Encoding"] = "gzip"
    if response.status == HTTPStatus.NOT_MODIFIED:
        del headers["Content-Type"]  # nothing follows
    else:
        headers["Content-Length"] = str(len(body))
    try:
        phrase = HTTPStatus(response.status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {response.status} {phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (b"" if is_head else body)


def takes_gzip(headers: Mapping[str, str]) -> bool:
    """Tell whether a client accepts gzip.

    >>> takes_gzip({"accept-encoding": "deflate, gzip;q=0.5"}), takes_gzip({"accept-encoding": "gzip;q=0"})
    (True, False)
    """
    weights: dict[str, str] = {}
    for offer in headers.get("accept-encoding", "").split(","):
        name, _, weight = offer.strip().partition(";")
        weights[name.strip().lower()] = weight.strip().removeprefix("q=").strip()
    weight = weights.get("gzip", weights.get("*", "0"))
    return weight not in {"0", "0.", "0.0", "0.00", "0.000"}


def _is_local(host: str) -> bool:
    """Tell whether a Host header names this machine by address, so that no web page can pose as it."""
    name = host.strip().lower()
    name = name[1 : name.find("]")] if name.startswith("[") else name.partition(":")[0]
    if name in {"", "localhost"} or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _refuse(connection: socket.socket, *, plainly: bool) -> None:
    with contextlib.suppress(OSError):
        if plainly:  # a TLS client could not read it
            connection.settimeout(0.05)
            connection.sendall(
                b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
                b"Retry-After: 1\r\nContent-Length: 0\r\n\r\n"
            )
    connection.close()
