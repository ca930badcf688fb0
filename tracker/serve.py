"""A small HTTP server: GET and HEAD, bounded in size, time and threads; what to answer comes from outside.

Edge. One request a connection, one thread a request, and no more threads than `MOST_CONNECTIONS`. A
client that never speaks, speaks too slowly or never reads is cut off after `DEADLINE_S`, and costs
nobody else anything.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import gzip
import ipaddress
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from tracker.config.kinds import Listen
from tracker.core.errors import TrackerError
from tracker.interfaces import Clock

MOST_CONNECTIONS: Final = 64
LARGEST_REQUEST: Final = 16 << 10
"""Bytes of request line and headers."""
DEADLINE_S: Final = 10.0
"""From the first byte awaited to the last byte sent."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What it gets."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Callable[[Request], Response]


class Server:
    """Listens until stopped. `answer` is called from many threads at once and must not block long."""

    def __init__(
        self,
        listen: Listen,
        answer: Answer,
        *,
        clock: Clock,
        deadline_s: float = DEADLINE_S,
        most_connections: int = MOST_CONNECTIONS,
    ) -> None:
        self._answer = answer
        self._clock = clock
        self._deadline_s = deadline_s
        self._slots = threading.BoundedSemaphore(most_connections)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._socket = _bind(listen)
        host, port = self._socket.getsockname()[:2]
        self.listen: Final = Listen(host, port)
        """Where it listens in fact."""
        self.tls: Final = False
        """Whether it speaks TLS only."""
        self._only_local = self.listen.is_loopback
        self._thread = threading.Thread(target=self._accept, name="http", daemon=True)

    @property
    def url(self) -> str:
        """Where its first page is."""
        return f"{'https' if self.tls else 'http'}://{self.listen}/"

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
        while self._open and self._clock.monotonic_s() < until:
            threading.Event().wait(0.02)
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if self._closing.is_set():
                    return
                if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                    self._closing.wait(0.1)  # a moment later there may be a handle again
                continue
            if not self._slots.acquire(blocking=False):
                _refuse(connection)
                continue
            with self._lock:
                self._open.add(connection)
            try:
                threading.Thread(
                    target=self._serve, args=(connection,), name="http-answer", daemon=True
                ).start()
            except RuntimeError:  # no thread to be had
                self._release(connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            self._converse(connection)
        except (OSError, ValueError):
            pass  # the client went away, or took too long
        finally:
            self._release(connection)

    def _release(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.close()
        self._slots.release()

    def _converse(self, connection: socket.socket) -> None:
        until = self._clock.monotonic_s() + self._deadline_s
        head = self._head(connection, until)
        if head is None:
            return
        request = _parse(head)
        response = request if isinstance(request, Response) else self._respond(request)
        is_head = isinstance(request, Request) and request.method == "HEAD"
        headers = request.headers if isinstance(request, Request) else {}
        page = _encode(response, headers, is_head=is_head, now_us=self._clock.now_us())
        connection.settimeout(max(until - self._clock.monotonic_s(), 0.001))
        connection.sendall(page)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(0.2)  # what the client still sends is taken, else its kernel drops our answer
        for _ in range(64):
            if not connection.recv(LARGEST_REQUEST):
                return

    def _head(self, connection: socket.socket, until: float) -> bytes | None:
        """Return request line and headers; None where the client left; too much gives what was read."""
        head = b""
        while b"\r\n\r\n" not in head and b"\n\n" not in head and len(head) <= LARGEST_REQUEST:
            left_s = until - self._clock.monotonic_s()
            if left_s <= 0:
                return None
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
            return self._answer(request)
        except Exception:
            _log.exception("no answer for %s", request.path[:200])
            if request.path.startswith("/api/"):
                failed = b'{"error": "the tracker failed to answer; its log says why"}\n'
                return Response(status=500, body=failed, content_type="application/json")
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


def _parse(head: bytes) -> Request | Response:
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
        if not colon or not name or name != name.strip():
            return Response(status=400, body=b"A header is malformed.\n")
        key = name.lower()
        headers[key] = f"{headers[key]}, {value.strip()}" if key in headers else value.strip()
    path, _, query = target.partition("?")
    return Request(method=method, path=path, query=query, headers=headers)


def _encode(response: Response, asked: Mapping[str, str], *, is_head: bool, now_us: int) -> bytes:
    body = response.body
    headers = dict(_ALWAYS)
    headers["Content-Type"] = response.content_type
    headers["Date"] = f"{dt.datetime.fromtimestamp(now_us / 1e6, dt.UTC):%a, %d %b %Y %H:%M:%S GMT}"
    headers["Vary"] = "Accept, Accept-Encoding"
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
    for offer in headers.get("accept-encoding", "").split(","):
        name, _, weight = offer.strip().partition(";")
        if name.strip() in {"gzip", "*"}:
            value = weight.strip().removeprefix("q=").strip()
            return value not in {"0", "0.0", "0.00", "0.000"}
    return False


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


def _refuse(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.settimeout(0.05)
        connection.sendall(
            b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
            b"Retry-After: 1\r\nContent-Length: 0\r\n\r\n"
        )
    connection.close()
