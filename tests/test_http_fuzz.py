"""A fuzzer for the HTTP server: seeded bytes over raw sockets, whole, in pieces, cut off; also over TLS.

Long form: HTTP_FUZZ_INPUTS=100000 HTTP_FUZZ_SEED=7 pytest tests/test_http_fuzz.py
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import random
import re
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.test_exporter import FULL, VITALS
from tests.test_sidecar import Plain
from tests.web_help import LOOPBACK, PASSWORD, TLS, USERS, Served, basic, certificates
from tracker.answers import Answers, Shown
from tracker.clock import SystemClock
from tracker.exporter import Exporter
from tracker.serve import LARGEST_REQUEST, Server

INPUTS = int(os.environ.get("HTTP_FUZZ_INPUTS", "2500"))
SEED = int(os.environ.get("HTTP_FUZZ_SEED", "20261130"))
ALLOWED = {200, 304, 400, 401, 404, 405, 421, 429, 431, 503}
PATHS = (
    "/", "/metrics", "/healthz", "/readyz", "/api/v1/runs", "/api/v1/status?run=a", "/api/v1/ledger?run=%00",
    "/runs/a", "/runs/%FF%fe", "/runs/..%2f..%2fetc%2fpasswd", "/../../etc/passwd", "//", "/?run=", "/%",
    "/%zz", "/?run=a&run=b", "/metrics?name[]=x", "/runs/" + "a" * 3000, "/;x", "/#x",
    "/api/v1/status?" + "run=&" * 500,
)  # fmt: skip
HEADERS = (
    "Host: localhost", "Host: evil.example", "Host: [::1]:9", "Host: [", "Host: localhost\r\n folded",
    "Accept: */*", "Accept: ;;q=,,=", "Accept: application/openmetrics-text; version=1.0.0",
    "Accept-Encoding: gzip", "Accept-Encoding: gzip;q=x", "Accept-Encoding: *;q=0",
    "Authorization: Basic ====", "Authorization: Basic OjpbOl0=", "Authorization: x",
    "Content-Length: 99999999999999", "Transfer-Encoding: chunked", "Connection: keep-alive",
    "Expect: 100-continue", "If-None-Match: *", 'If-None-Match: "x", W/"y"', "Range: bytes=0-",
    "X: " + "y" * 5000, ": x", " x: y", "x : y", "x:y\rz: 1", "x\0: y", "Cookie: " + "a=b; " * 900,
)  # fmt: skip
METHODS = (
    "GET",
    "GET",
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "OPTIONS",
    "CONNECT",
    "get",
    "G\0T",
    "GET ",
    "\x16\x03\x01",
)
VERSIONS = ("HTTP/1.1", "HTTP/1.0", "HTTP/2", "")
ENDS = ("\r\n\r\n", "\r\n\r\n", "\r\n\r\n", "\n\n", "\r\n", "", "\r\n\r\n" + "x" * 9000)


class Fuzz:
    """Requests that were nearly right once."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self) -> bytes:
        dice = self.random
        kind = dice.random()
        if kind < 0.08:
            return dice.randbytes(dice.choice((0, 1, 7, 100, 5000, LARGEST_REQUEST + 9)))
        first = f"{dice.choice(METHODS)} {dice.choice(PATHS)} {dice.choice(VERSIONS)}"
        lines = [first, *dice.choices(HEADERS, k=dice.choice((0, 1, 2, 5, 40)))]
        made = bytearray(("\r\n".join(lines) + dice.choice(ENDS)).encode("latin-1"))
        if kind < 0.5:
            return bytes(made)
        for _ in range(dice.choice((1, 1, 3, 20))):
            if not made:
                break
            place = dice.randrange(len(made))
            change = dice.random()
            if change < 0.4:
                made[place] = dice.randrange(256)
            elif change < 0.6:
                del made[place : place + dice.choice((1, 5, 50))]
            elif change < 0.8:
                made[place:place] = dice.randbytes(dice.choice((1, 4, 200)))
            else:
                made[place:place] = made[: dice.choice((1, 30, 400))]
        return bytes(made)

    def pieces(self, raw: bytes) -> list[bytes]:
        if self.random.random() < 0.8 or len(raw) < 2:
            return [raw]
        cut = self.random.randrange(1, len(raw))
        return [raw[:cut], raw[cut:]]


@pytest.fixture
def answers() -> Iterator[Answers]:
    clock = SystemClock()
    made = Answers(Exporter(version="0", clock=clock), Plain(), clock=clock)
    for run in ("a", 'b"c/ü'):
        made.publish(Shown(run=run, snapshot=replace(FULL, run=run), vitals=replace(VITALS, ready=True)))
    yield made
    clock.close()


def send(server: Server, pieces: list[bytes], *, leave: str, context: ssl.SSLContext | None = None) -> bytes:
    """Send something as one client; return what came back. `leave`: read, half, or reset."""
    got = b""
    raw = socket.create_connection((server.listen.host, server.listen.port), timeout=20)
    client: socket.socket = raw
    try:
        if context is not None:
            client = context.wrap_socket(raw, server_hostname="127.0.0.1")
        for piece in pieces:
            client.sendall(piece)
        if leave == "reset":  # gone without a word, in the middle of the answer
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            return b""
        if context is None:
            client.shutdown(socket.SHUT_WR)
        if leave == "half":
            return client.recv(10)
        while more := client.recv(1 << 16):
            got += more
    except TimeoutError:
        raise  # it hangs
    except OSError:
        pass  # a server may hang up on nonsense
    finally:
        client.close()
    return got


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))


def settled(read: object, most: int) -> bool:
    """Wait until a number is down again."""
    ends = time.monotonic() + 20
    while read() > most:  # type: ignore[operator]
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True


def check(answer: bytes, raw: bytes) -> int:
    """Return the status of an answer, which must be whole HTTP of an allowed status; 0 for none."""
    if not answer:
        return 0
    head, blank, body = answer.partition(b"\r\n\r\n")
    found = re.fullmatch(rb"HTTP/1\.1 (\d{3}) [A-Za-z -]+", head.split(b"\r\n")[0])
    assert found, (answer[:200], raw)
    status = int(found[1])
    assert status in ALLOWED, (status, raw)
    assert blank
    assert all(re.fullmatch(rb"[A-Za-z-]+: [\x20-\x7e]+", line) for line in head.split(b"\r\n")[1:]), (
        head,
        raw,
    )
    length = re.search(rb"Content-Length: (\d+)", head)
    if length is not None and not raw.startswith(b"HEAD"):
        assert int(length[1]) == len(body), raw
    return status


def test_nothing_breaks_it(answers: Answers, caplog: pytest.LogCaptureFixture) -> None:
    """No crash, no 500, no hang, no word in the log; threads and handles are what they were."""
    caplog.set_level(logging.WARNING)
    clock = SystemClock()
    server = Server(LOOPBACK, answers, clock=clock, deadline_s=1.0, most_connections=16)
    server.start()
    gc.collect()
    before = (threading.active_count(), handles())
    fuzz, seen = Fuzz(SEED), Counter[int]()
    for _ in range(INPUTS):
        raw = fuzz.one()
        leave = fuzz.random.choices(("read", "half", "reset"), (8, 1, 1))[0]
        answer = send(server, fuzz.pieces(raw), leave=leave)
        seen[check(answer, raw) if leave == "read" else -1] += 1
    assert (
        check(send(server, [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"], leave="read"), b"") == 200
    )
    assert {200, 400, 404, 405} <= seen.keys(), seen  # it met more than the first hurdle
    assert settled(threading.active_count, before[0])
    assert settled(handles, before[1])
    assert not server._callers
    server.stop()
    clock.close()
    assert not caplog.records


@pytest.mark.slow
def test_nothing_breaks_it_over_tls_with_logins(
    answers: Answers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken handshakes, guesses, and requests inside TLS."""
    caplog.set_level(logging.WARNING)
    certificates(tmp_path)
    clock = SystemClock()
    served = Served(tmp_path, TLS + USERS, answers, clock, deadline_s=5.0, most_connections=16)
    header = f"Authorization: {basic(f'prometheus:{PASSWORD}')}"
    right = f"GET /metrics HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n"
    context = served.trusting()
    served.get("/")
    gc.collect()
    before = (threading.active_count(), handles())
    fuzz, seen = Fuzz(SEED + 1), Counter[int]()
    hello = client_hello(context)
    for number in range(INPUTS // 10):
        raw = fuzz.one()
        if number % 3 == 0:
            broken = bytearray(hello)
            for _ in range(fuzz.random.choice((0, 1, 5))):
                broken[fuzz.random.randrange(len(broken))] = fuzz.random.randrange(256)
            raw = bytes(broken[: fuzz.random.choice((5, 60, len(broken)))]) + raw[:50]
            send(served.server, [raw], leave=fuzz.random.choice(("half", "reset")))
            continue
        pieces = [*fuzz.pieces(raw), b"\r\n\r\n"]  # a TLS client cannot say that nothing more comes
        seen[check(send(served.server, pieces, leave="read", context=context), raw)] += 1
    assert check(send(served.server, [right.encode()], leave="read", context=context), b"") == 200
    assert seen[401] > 0, seen
    assert settled(threading.active_count, before[0])
    assert settled(handles, before[1])
    served.stop()
    clock.close()
    assert not caplog.records


def client_hello(context: ssl.SSLContext) -> bytes:
    """Return the first bytes that a TLS client sends."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1").do_handshake()
    return outgoing.read()
