"""The HTTP server, over real sockets."""

from __future__ import annotations

import gzip
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tracker.clock import SystemClock
from tracker.config import Listen
from tracker.serve import LARGEST_REQUEST, ListenError, Request, Response, Server

LOOPBACK = Listen("127.0.0.1", 0)
LARGE = b"x" * 5_000


def answer(request: Request) -> Response:
    if request.path == "/hello":
        return Response(body=f"hello {request.query}".encode())
    if request.path == "/large":
        return Response(body=LARGE)
    if request.path == "/bug":
        raise RuntimeError("a bug")
    if request.path == "/slow":
        time.sleep(0.5)
        return Response(body=b"late")
    return Response(status=404, body=b"no\n")


@pytest.fixture
def clock() -> Iterator[SystemClock]:
    clock = SystemClock()
    yield clock
    clock.close()


@pytest.fixture
def server(clock: SystemClock) -> Iterator[Server]:
    server = Server(LOOPBACK, answer, clock=clock, deadline_s=0.4, most_connections=4)
    server.start()
    yield server
    server.stop()


def connect(server: Server) -> socket.socket:
    return socket.create_connection((server.listen.host, server.listen.port), timeout=5)


def ask(server: Server, raw: bytes) -> tuple[int, dict[str, str], bytes]:
    with connect(server) as client:
        client.sendall(raw)
        page = b""
        while more := client.recv(65536):
            page += more
    head, _, body = page.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    return int(lines[0].split()[1]), headers, body


def get(server: Server, path: str, *headers: str) -> tuple[int, dict[str, str], bytes]:
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]
    return ask(server, "\r\n".join(lines).encode())


def test_a_page_is_answered_with_its_length(server: Server) -> None:
    """Status, body and length agree, and the query is given on."""
    status, headers, body = get(server, "/hello?a=1")

    assert (status, body, headers["content-length"]) == (200, b"hello a=1", "9")


def test_every_answer_forbids_what_no_page_needs(server: Server) -> None:
    """Security headers stand on errors too."""
    for path in ("/hello", "/nowhere", "/bug"):
        headers = get(server, path)[1]

        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"
        assert headers["server"] == "tracker"


def test_large_pages_are_packed_for_who_asks(server: Server) -> None:
    """Gzip by Accept-Encoding, and only then."""
    packed = get(server, "/large", "Accept-Encoding: gzip")
    plain = get(server, "/large")
    refused = get(server, "/large", "Accept-Encoding: gzip;q=0, deflate")

    assert gzip.decompress(packed[2]) == LARGE
    assert packed[1]["content-encoding"] == "gzip"
    assert plain[2] == refused[2] == LARGE


def test_head_is_get_without_the_body(server: Server) -> None:
    """HEAD has the length of the page and no page."""
    status, headers, body = ask(server, b"HEAD /large HTTP/1.1\r\nHost: localhost\r\n\r\n")

    assert (status, headers["content-length"], body) == (200, "5000", b"")


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        pytest.param(b"POST /hello HTTP/1.1\r\n\r\n", 405, id="post-is-not-offered"),
        pytest.param(b"garbage\r\n\r\n", 400, id="garbage-is-no-request"),
        pytest.param(b"\x16\x03\x01\x02\x00\r\n\r\n", 400, id="a-tls-hello-is-no-request"),
        pytest.param(b"GET hello HTTP/1.1\r\n\r\n", 400, id="a-path-begins-with-a-slash"),
        pytest.param(b"GET /\xff HTTP/1.1\r\n\r\n", 400, id="a-path-is-ascii"),
        pytest.param(b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400, id="a-header-has-a-colon"),
        pytest.param(b"GET / SPDY/9\r\n\r\n", 400, id="other-protocols-are-refused"),
        pytest.param(
            b"GET / HTTP/1.1\r\nX: " + b"y" * LARGEST_REQUEST + b"\r\n\r\n", 431, id="too-large-is-said"
        ),
        pytest.param(b"GET /bug HTTP/1.1\r\nHost: localhost\r\n\r\n", 500, id="a-bug-of-ours-is-500"),
        pytest.param(b"GET /hello HTTP/1.0\n\n", 200, id="a-bare-newline-will-do"),
        pytest.param(b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", 404, id="a-path-is-never-a-file"),
    ],
)
def test_requests_that_are_not_the_usual_ones(server: Server, raw: bytes, status: int) -> None:
    """Each is answered, and the server lives on."""
    assert ask(server, raw)[0] == status
    assert get(server, "/hello")[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        pytest.param("127.0.0.1:9109", 200, id="by-address"),
        pytest.param("[::1]:9109", 200, id="by-v6-address"),
        pytest.param("localhost", 200, id="by-localhost"),
        pytest.param("evil.example", 421, id="a-name-that-resolves-to-us-is-refused"),
        pytest.param("localhost.evil.example:9109", 421, id="a-name-that-begins-like-ours"),
    ],
)
def test_a_loopback_server_is_not_to_be_posed_as(server: Server, host: str, status: int) -> None:
    """A web page whose name was pointed at 127.0.0.1 gets nothing."""
    raw = f"GET /hello HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()

    assert ask(server, raw)[0] == status


def test_a_client_that_never_speaks_costs_nobody_else_anything(clock: SystemClock) -> None:
    """It holds one place until its deadline; others are answered long before."""
    server = Server(LOOPBACK, answer, clock=clock, deadline_s=20.0)
    server.start()
    try:
        with connect(server) as idle:
            assert get(server, "/hello")[0] == 200
            idle.setblocking(False)
            with pytest.raises(BlockingIOError):  # still waited for, while the other is served
                idle.recv(1)
    finally:
        server.stop()


def test_a_client_that_never_speaks_is_cut_off(server: Server) -> None:
    """At its deadline."""
    with connect(server) as idle:
        assert idle.recv(1) == b""


def test_a_client_that_drips_is_cut_off_too(server: Server) -> None:
    """The deadline is for the whole request, not for each byte."""
    with connect(server) as slow:
        began = time.monotonic()
        cut = False
        while not cut and time.monotonic() - began < 5:
            try:
                slow.sendall(b"G")
            except OSError:
                cut = True
            time.sleep(0.05)

        assert cut


def test_more_clients_than_places_are_told_so(server: Server) -> None:
    """The fifth of four gets 503 at once; when one leaves there is room again."""
    idle = [connect(server) for _ in range(4)]
    time.sleep(0.05)
    try:
        with connect(server) as fifth:
            assert b" 503 " in fifth.recv(200)
    finally:
        for client in idle:
            client.close()
    until = time.monotonic() + 2
    while time.monotonic() < until:
        with connect(server) as client:
            client.sendall(b"GET /hello HTTP/1.1\r\n\r\n")
            if b" 200 " in client.recv(200):
                return
    pytest.fail("no place became free")


def test_a_client_that_leaves_half_way_is_no_error(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is logged, and the next is served."""
    for read in (0, 0, 100, 100):
        client = connect(server)
        client.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        if read:  # in the middle of the page, by a reset
            assert client.recv(read)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()

    assert get(server, "/hello")[0] == 200
    assert not caplog.records


def test_many_ask_at_once(clock: SystemClock) -> None:
    """Fifty clients are all served."""
    server = Server(LOOPBACK, answer, clock=clock)
    server.start()
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(get(server, "/large")[0])) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.stop()

    assert seen == [200] * 50


def test_stopping_is_quick_with_clients_connected(clock: SystemClock) -> None:
    """An idle client does not keep the process alive."""
    server = Server(LOOPBACK, answer, clock=clock)
    server.start()
    with connect(server):
        time.sleep(0.05)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 8  # its deadline is ten seconds
    with pytest.raises(ConnectionRefusedError):
        connect(server)


def test_stopping_lets_an_answer_end(clock: SystemClock) -> None:
    """What is under way for less than half a second is sent."""
    server = Server(LOOPBACK, answer, clock=clock)
    server.start()
    with connect(server) as client:
        client.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
        time.sleep(0.2)
        server.stop()
        assert client.recv(1000).endswith(b"late")


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        pytest.param(lambda s: s.listen, "another program listens there", id="port-in-use"),
        pytest.param(lambda s: Listen("192.0.2.1", 0), "no such address", id="address-of-elsewhere"),
        pytest.param(lambda s: Listen("no.such.host.invalid", 0), "no such address", id="unknown-name"),
    ],
)
def test_where_it_cannot_listen_it_says_why(
    server: Server, clock: SystemClock, listen: Callable[[Server], Listen], words: str
) -> None:
    """The error names the key, the value, the reason and what to do."""
    with pytest.raises(ListenError, match=rf"serve\.listen = '.*': cannot listen, .*{words}"):
        Server(listen(server), answer, clock=clock)


def test_v6_loopback(clock: SystemClock) -> None:
    """[::1] works where the machine has it."""
    try:
        server = Server(Listen("::1", 0), answer, clock=clock)
    except ListenError:
        pytest.skip("this machine has no IPv6 loopback")
    server.start()
    assert get(server, "/hello")[0] == 200
    assert str(server.listen).startswith("[::1]:")
    server.stop()
