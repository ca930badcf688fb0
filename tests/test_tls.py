"""TLS and logins, over real sockets: who comes in, who does not, what a changed file does, who is slow."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import bcrypt
import pytest

from tests.test_sidecar import CONFIG, Running, eventually, until, write
from tests.web_help import HASH, PASSWORD, TLS, USERS, Served, basic, certificates
from tracker import logins
from tracker.clock import SystemClock
from tracker.logins import GUESS_S, MOST_GUESSES, MOST_GUESSES_OF_ALL, Logins, cost_of
from tracker.serve import Request, Response
from tracker.webconfig import WebConfig, WebConfigError

LOGIN = f"prometheus:{PASSWORD}"
LARGE = b"x" * 3_000_000


def answer(request: Request) -> Response:
    return Response(body=LARGE if request.path == "/large" else b"in")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Start servers with a web config; certificates are in the folder."""
    certificates(tmp_path)
    made: list[Served] = []
    clock = SystemClock()

    def one(text: str, **options: float) -> Served:
        made.append(Served(tmp_path, text, answer, clock, **options))
        return made[-1]

    yield one
    for served in made:
        served.stop()
    clock.close()


def renew(served: Served, text: str) -> None:
    """Write the web config anew, as something other than it was, however coarse the clock of the disk is."""
    served.path.write_text(text + f"# {time.monotonic_ns()}\n")


# -- TLS ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_a_client_that_trusts_the_authority_is_served(
    version: ssl.TLSVersion, serve: Callable[..., Served]
) -> None:
    """By TLS 1.2 and 1.3, a large page too; the address is https."""
    served = serve(TLS)
    context = served.trusting()
    context.minimum_version = context.maximum_version = version

    assert served.server.url.startswith("https://127.0.0.1:")
    assert served.get("/", context=context)[::2] == (200, b"in")
    assert served.get("/large", context=context)[2] == LARGE


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1")
def test_who_is_not_served(serve: Callable[..., Served]) -> None:
    """No old TLS, no stranger's trust, no plain HTTP; and the next one is served."""
    served = serve(TLS)
    old = served.trusting()
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        served.get("/", context=old)
    with pytest.raises(ssl.SSLCertVerificationError):
        served.get("/", context=ssl.create_default_context())
    with socket.create_connection((served.server.listen.host, served.server.listen.port), timeout=5) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b"in" not in plain.recv(100)

    assert served.get("/")[0] == 200
    assert served.server.counts()[1]["handshake"] == 3


def test_clients_show_their_own_certificates_where_they_must(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    """One of the authority named comes in; none, and one of another authority, do not."""
    folder = tmp_path / "clients"
    folder.mkdir()
    certificates(folder, name="client")
    (tmp_path / "clients.pem").write_bytes((folder / "ca.pem").read_bytes())
    served = serve(TLS + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: clients.pem\n")
    known, stranger = served.trusting(), served.trusting()
    known.load_cert_chain(folder / "client.pem", folder / "client.key")
    stranger.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")

    assert served.get("/", context=known)[0] == 200
    for context in (None, stranger):
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            served.get("/", context=context)


def test_idle_tls_clients_cost_nobody_else_anything(serve: Callable[..., Served]) -> None:
    """Twenty that never speak: the handshake waits in their own threads; then their time is up."""
    served = serve(TLS, deadline_s=1.0)
    place = (served.server.listen.host, served.server.listen.port)
    idle = [socket.create_connection(place, timeout=5) for _ in range(20)]
    try:
        for _ in range(5):
            assert served.get("/")[0] == 200
        assert all(client.recv(1) == b"" for client in idle)
    finally:
        for client in idle:
            client.close()
    assert served.server.counts()[1]["handshake"] == 20


def test_idle_tls_clients_are_cut_off_when_places_run_out(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even in the middle of their handshake: who comes later is served."""
    monkeypatch.setattr("tracker.serve.CUT_AFTER_S", 0.0)
    served = serve(TLS, most_connections=4, deadline_s=60)
    place = (served.server.listen.host, served.server.listen.port)
    with contextlib.ExitStack() as open_ones:
        for _ in range(4):
            open_ones.enter_context(socket.create_connection(place, timeout=5))
        assert served.get("/")[0] == 200


def test_a_reader_that_drips_is_cut_off(serve: Callable[..., Served]) -> None:
    """The deadline holds for the whole page, over TLS too, where each block has a time of its own."""
    served = serve(TLS, deadline_s=1.0)
    raw = socket.create_connection((served.server.listen.host, served.server.listen.port), timeout=10)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with served.trusting().wrap_socket(raw, server_hostname="127.0.0.1") as client:
        client.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while client.recv(1000) and not served.server.counts()[1] and time.monotonic() - began < 30:
                time.sleep(0.05)
    until_counted(served, "timeout")


def until_counted(served: Served, reason: str) -> None:
    ends = time.monotonic() + 20
    while not served.server.counts()[1].get(reason):
        assert time.monotonic() < ends, f"{reason} was never counted: {served.server.counts()}"
        time.sleep(0.02)


# -- logins ---------------------------------------------------------------------------------------------


def test_only_the_right_name_and_password_come_in(serve: Callable[..., Served]) -> None:
    """On every path, health too; what is asked for is said."""
    served = serve(USERS)
    for path in ("/", "/metrics", "/healthz", "/nowhere"):
        status, headers, body = served.get(path)
        assert (status, b"in" in body) == (401, False)
        assert headers["www-authenticate"] == 'Basic realm="tracker", charset="UTF-8"'
        assert served.get(path, login=LOGIN)[::2] == (200, b"in")

    for login in ("prometheus:wrong", "somebody:" + PASSWORD, "prometheus:", ":", "prometheus"):
        assert served.get("/", login=login)[0] == 401
    for header in ("Basic", "Basic ====", "Basic \xff", f"Bearer {HASH}", "basic " + "A" * 9_000):
        assert served.get("/", authorization=header)[0] == 401
    assert served.get("/", authorization="bASIC cHJvbWV0aGV1czp4")[0] == 401
    assert served.web.logins_failed["wrong"] == 5  # "prometheus" without a colon is no try
    assert served.web.logins_failed["none"] == 4 + 1 + 5


def test_a_guesser_is_stopped_and_nobody_else_is(serve: Callable[..., Served]) -> None:
    """After so many guesses the answer is 429; who has the password, at the same address, still comes in."""
    served = serve(USERS)
    assert served.get("/", login=LOGIN)[0] == 200

    found = [served.get("/", login=f"prometheus:guess {number}") for number in range(MOST_GUESSES + 3)]

    assert [status for status, _, _ in found] == [401] * MOST_GUESSES + [429] * 3
    assert 1 <= int(found[-1][1]["retry-after"]) <= GUESS_S + 1
    assert served.get("/", login=LOGIN)[0] == 200
    assert served.get("/", login="prometheus:guess 0")[0] == 401  # known to be wrong: no guess


def test_headers_of_the_file_are_on_every_answer(serve: Callable[..., Served]) -> None:
    """And replace ours."""
    served = serve(
        USERS + "http_server_config:\n  headers:\n    X-Frame-Options: sameorigin\n"
        "    Strict-Transport-Security: max-age=600\n"
    )
    headers = served.get("/")[1]

    assert headers["x-frame-options"] == "sameorigin"
    assert headers["strict-transport-security"] == "max-age=600"
    assert headers["x-content-type-options"] == "nosniff"


class Steps:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.moment_s = 0.0

    def now_us(self) -> int:
        return int(self.moment_s * 1e6)

    def monotonic_s(self) -> float:
        return self.moment_s

    def wait(self, seconds: float) -> bool:
        self.moment_s += seconds
        return False


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> tuple[Logins, Steps, list[bytes]]:
    """Logins with a list of the hashes that were computed."""
    computed: list[bytes] = []
    real = bcrypt.checkpw

    def counting(password: bytes, hashed: bytes) -> bool:
        computed.append(hashed)
        return real(password, hashed)

    monkeypatch.setattr(logins.bcrypt, "checkpw", counting)
    clock = Steps()
    return Logins({"prometheus": HASH.encode()}, clock=clock), clock, computed


def test_a_header_costs_one_hash_however_often_it_comes(door: tuple[Logins, Steps, list[bytes]]) -> None:
    """Right or wrong; without a try at all none is computed."""
    made, _, computed = door
    for _ in range(50):
        assert made.admit(basic(LOGIN), "10.0.0.1").why == ""
        assert made.admit(basic("prometheus:old"), "10.0.0.2").why == "wrong"
        assert made.admit(None, "10.0.0.3").why == "none"
        assert made.admit("Bearer x", "10.0.0.3").why == "none"

    assert len(computed) == 2


def test_an_unknown_name_takes_as_long_as_a_known_one(door: tuple[Logins, Steps, list[bytes]]) -> None:
    """A hash of the same cost is computed, and nothing matches it."""
    made, _, computed = door
    assert made.admit(basic("nobody:x"), "10.0.0.1").why == "wrong"
    assert made.admit(basic("prometheus:x"), "10.0.0.1").why == "wrong"

    assert [cost_of(one) for one in computed] == [4, 4]
    assert computed[0] != computed[1]


def test_guesses_come_back_with_time(door: tuple[Logins, Steps, list[bytes]]) -> None:
    """One each so many seconds; another address has its own; a /64 of v6 is one address."""
    made, clock, _ = door
    number = iter(range(10**6))

    def guess(address: str) -> str:
        return made.admit(basic(f"prometheus:{next(number)}"), address).why

    assert [guess("10.0.0.1") for _ in range(MOST_GUESSES + 1)] == ["wrong"] * MOST_GUESSES + ["limited"]
    assert guess("10.0.0.2") == "wrong"
    clock.moment_s += GUESS_S
    assert [guess("10.0.0.1"), guess("10.0.0.1")] == ["wrong", "limited"]
    assert guess("::ffff:10.0.0.1") == "limited"

    assert [guess(f"2001:db8::{n:x}") for n in range(MOST_GUESSES + 1)][-1] == "limited"
    assert guess("2001:db8:0:1::1") == "wrong"


def test_many_addresses_together_are_limited_and_known_ones_are_not(
    door: tuple[Logins, Steps, list[bytes]],
) -> None:
    """A thousand guessers cost a bounded number of hashes; who came in once changes its password freely."""
    made, clock, computed = door
    assert made.admit(basic(LOGIN), "10.9.9.9").why == ""
    seen = [
        made.admit(basic(f"prometheus:{number}"), f"10.1.{number // 250}.{number % 250}").why
        for number in range(1000)
    ]

    assert seen.count("wrong") == MOST_GUESSES_OF_ALL == len(computed) - 1
    assert set(seen[MOST_GUESSES_OF_ALL:]) == {"limited"}
    assert made.admit(basic(LOGIN), "10.2.0.1").why == ""  # the right header comes in from anywhere
    assert made.admit(basic("prometheus:new"), "10.9.9.9").why == "wrong"  # a known address is looked at
    clock.moment_s += 3600
    assert made.admit(basic("prometheus:later"), "10.3.0.1").why == "wrong"


def test_many_scrapers_at_once_cost_one_hash(door: tuple[Logins, Steps, list[bytes]]) -> None:
    """All of them wait for the first one's."""
    made, _, computed = door
    seen: list[str] = []
    threads = [
        threading.Thread(target=lambda: seen.append(made.admit(basic(LOGIN), "10.0.0.1").why))
        for _ in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seen == [""] * 40
    assert len(computed) == 1


def test_passwords_longer_than_bcrypt_reads_and_with_nul() -> None:
    """Compared by their first 72 bytes, as the exporters do; never an error."""
    long = "x" * 100
    made = Logins({"a": bcrypt.hashpw(long[:72].encode(), bcrypt.gensalt(4))}, clock=Steps())

    assert made.admit(basic(f"a:{long}"), "10.0.0.1").why == ""
    assert made.admit(basic("a:x\0y"), "10.0.0.1").why == "wrong"


# -- read again when it changes -------------------------------------------------------------------------


def test_a_changed_file_counts_from_the_next_request_on(serve: Callable[..., Served]) -> None:
    """A new password replaces the old one; removing all users is told in the log."""
    served = serve(USERS)
    assert served.get("/", login=LOGIN)[0] == 200

    renew(served, USERS.replace(HASH, bcrypt.hashpw(b"new", bcrypt.gensalt(4)).decode()))
    assert served.get("/", login=LOGIN)[0] == 401
    assert served.get("/", login="prometheus:new")[0] == 200
    assert not served.web.problem


def test_a_broken_change_leaves_what_was_before(
    serve: Callable[..., Served], caplog: pytest.LogCaptureFixture
) -> None:
    """Said once in the log, not at every request; a file that is mended counts again."""
    served = serve(TLS + USERS)
    loaded_us = served.web.loaded_us
    for text, words in (
        (USERS, "TLS is gone from it"),
        ("nonsense: 1\n", "unknown key"),
        (TLS.replace("server.key", "late.key") + USERS, "late.key: No such file"),
    ):
        caplog.clear()
        renew(served, text)
        for _ in range(3):
            assert served.get("/", login=LOGIN)[0] == 200
            assert served.get("/")[0] == 401
        assert words in served.web.problem
        assert len(caplog.records) == 1
    assert served.web.loaded_us == loaded_us

    (served.folder / "late.key").write_bytes((served.folder / "server.key").read_bytes())
    assert served.get("/", login=LOGIN)[0] == 200
    assert not served.web.problem  # the file that was missing came
    served.path.unlink()
    assert served.get("/", login=LOGIN)[0] == 200
    assert "No such file" in served.web.problem
    os.mkfifo(served.path)
    assert served.get("/", login=LOGIN)[0] == 200
    assert "is a pipe" in served.web.problem
    served.path.unlink()
    served.path.write_text(TLS + USERS)
    assert served.get("/", login=LOGIN)[0] == 200
    assert not served.web.problem


def test_a_new_certificate_is_used_at_once(serve: Callable[..., Served]) -> None:
    """Also where certificate and key come one after the other: in between the old pair serves."""
    served = serve(TLS)
    place = (served.server.listen.host, served.server.listen.port)

    def serial() -> str:
        with (
            socket.create_connection(place, timeout=5) as raw,
            served.trusting().wrap_socket(raw, server_hostname="127.0.0.1") as client,
        ):
            return str(client.getpeercert()["serialNumber"])  # type: ignore[index]

    before = serial()
    fresh = served.folder / "fresh"
    fresh.mkdir()
    certificates(fresh)
    old = served.trusting()
    os.replace(fresh / "server.pem", served.folder / "server.pem")
    with (
        socket.create_connection(place, timeout=5) as raw,
        old.wrap_socket(raw, server_hostname="127.0.0.1") as client,
    ):
        assert client.getpeercert()["serialNumber"] == before  # type: ignore[index]
    assert "does not belong to" in served.web.problem
    os.replace(fresh / "server.key", served.folder / "server.key")
    os.replace(fresh / "ca.pem", served.folder / "ca.pem")

    assert serial() != before
    assert not served.web.problem


def test_an_expired_certificate_is_used_and_told_once(
    serve: Callable[..., Served], caplog: pytest.LogCaptureFixture
) -> None:
    """Clients refuse it; the log says so, at the start and whenever it comes."""
    served = serve(TLS)
    before_us = served.web.certificate_end_us
    past = dt.datetime(2026, 1, 5, tzinfo=dt.UTC)
    certificates(served.folder, not_before=past - dt.timedelta(days=1), not_after=past)
    for _ in range(2):
        with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
            served.get("/")

    told = [
        record.message for record in caplog.records if "expired at 2026-01-05T00:00:00Z" in record.message
    ]
    assert len(told) == 1
    assert served.web.certificate_end_us == int(past.timestamp()) * 1_000_000
    assert served.web.certificate_end_us != before_us
    WebConfig(served.path, clock=SystemClock())
    assert len([1 for record in caplog.records if "expired at" in record.message]) == 2


def test_a_broken_file_at_the_start_is_an_error(tmp_path: Path) -> None:
    """Nothing is served less safely than was asked for."""
    (tmp_path / "web.yml").write_text("basic_auth_users:\n  bob: x\n")

    with pytest.raises(WebConfigError, match="is no bcrypt hash"):
        WebConfig(tmp_path / "web.yml", clock=SystemClock())


def test_removing_all_users_is_told(serve: Callable[..., Served], caplog: pytest.LogCaptureFixture) -> None:
    """It was asked for, so it is done."""
    served = serve(USERS)
    renew(served, "")

    assert served.get("/")[0] == 200
    assert "everybody is let in" in caplog.text
    assert not served.web.has_users


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "encryption (TLS) or password", id="an-empty-file"),
        pytest.param(TLS, "without password", id="tls-alone"),
        pytest.param(USERS, "without encryption (TLS)", id="logins-alone"),
        pytest.param(TLS + USERS, "", id="both"),
    ],
)
def test_what_is_open_to_others_is_named(text: str, said: str, serve: Callable[..., Served]) -> None:
    """On an address that other machines reach; on this machine alone nothing is."""
    served = serve(text)
    lacks = served.server.listen.exposure(tls=served.server.tls, login=served.web.has_users)
    assert not lacks
    far = type(served.server.listen)("0.0.0.0", 9109)
    lacks = far.exposure(tls=served.server.tls, login=served.web.has_users)

    assert bool(lacks) is bool(said)
    assert said in lacks


@pytest.mark.slow
def test_the_sidecar_itself_with_tls_and_logins_is_light_too(tmp_path: Path) -> None:
    """Below 40 MB with OpenSSL, bcrypt and YAML loaded; a new password counts at once."""
    certificates(tmp_path)
    (tmp_path / "web.yml").write_text(TLS + USERS)
    (tmp_path / "run.toml").write_text(
        CONFIG.replace('listen = "127.0.0.1:0"', 'listen = "127.0.0.1:0"\nweb_config = "web.yml"')
    )
    write(tmp_path / "train.log", range(1, 2_001))
    running = Running(tmp_path)
    try:
        url = re.search(r"listening on (https://\S+)/\n", eventually(lambda: running.said, "listening on"))
        assert url is not None
        context = ssl.create_default_context(cafile=tmp_path / "ca.pem")

        def get(path: str, login: str) -> tuple[int, str]:
            request = urllib.request.Request(url[1] + path, headers={"Authorization": basic(login)})
            try:
                with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        until(lambda: "training_step{" in get("/metrics", LOGIN)[1], f"not read: {running.said}")
        assert get("/healthz", "prometheus:wrong")[0] == 401
        for path in ("/", "/api/v1/status", "/metrics"):
            assert get(path, LOGIN)[0] == 200
        rollup = Path(f"/proc/{running.process.pid}/smaps_rollup").read_text()
        found = re.search(r"^Pss: +(\d+) kB", rollup, re.MULTILINE)
        assert found is not None
        assert int(found[1]) < 40_000
        fresh = bcrypt.hashpw(b"fresh", bcrypt.gensalt(4)).decode()
        (tmp_path / "web.yml").write_text(TLS + f"basic_auth_users: {{prometheus: {fresh}}}\n")
        assert get("/healthz", LOGIN)[0] == 401
        assert get("/healthz", "prometheus:fresh")[0] == 200
        assert HASH not in running.said
        running.stop()
        assert running.process.returncode == 0
    finally:
        running.process.kill()
        running.process.wait()
        running._out.close()
