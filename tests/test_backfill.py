"""The back-fill into real databases: every value exact, nothing lost, nothing twice, whatever breaks."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import random
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.history_help import page_at, stored
from tests.tsdb_help import flush, prometheus, samples, victoria
from tracker.backfill.send import Sender
from tracker.backfill.server import Credentials, Server
from tracker.backfill.targets import Found, Victoria, series_of
from tracker.cli import root
from tracker.clock import SystemClock
from tracker.config import Config
from tracker.export.history import Line
from tracker.export.source import history

Key = tuple[tuple[str, str], ...]
All = dict[Key, dict[int, float]]
TRACKER = (sys.executable, "-P", "-c", "from tracker.cli import main\nmain()")
CANARY = "s3cret-canary-77"
ALL = '{__name__=~"training_.+"}'


MOST_BYTES_A_LIFE = {"victoria": 600_000, "prometheus": 60_000}
"""Of what is sent in a whole: less than a third, so that the third life is killed in the middle too."""


class Way:
    """A way to a server that counts what goes there."""

    def __init__(self, url: str) -> None:
        place = urllib.parse.urlsplit(url)
        self._server = (str(place.hostname), int(place.port or 0))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.seen = 0
        """Bytes sent to the server so far."""
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                self._open += (client, server)
                threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, to: socket.socket, count: bool) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(1 << 14):
                to.sendall(block)
                self.seen += len(block) if count else 0
        for one in (source, to):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@contextmanager
def counted_way(url: str) -> Iterator[Way]:
    way = Way(url)
    try:
        yield way
    finally:
        way.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return stored(tmp_path_factory.mktemp("run"), "rollback", run_name='odd "run"\\ ü')


@pytest.fixture(scope="module")
def told(run: Config) -> All:
    """All samples of the history."""
    found: All = {}
    with history(run, {}) as past:
        span = past.span(since_us=None, until_us=None, now_us=2**60, every_s=60)
        assert span is not None
        for block in past.blocks(span):
            for line in block.lines:
                own = found.setdefault(series_of(line.family.name, line.labels), {})
                own.update(zip(line.times_ms, map(float, line.values), strict=True))
    return found


def call(*words: str, check: int | None = 0, **environment: str) -> Result:
    done = CliRunner().invoke(root, ["backfill", *words], env=environment)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert check is None or done.exit_code == check, done.output
    assert CANARY not in done.output
    return done


def whole(url: str, told: All) -> All:
    moments = sorted({at for own in told.values() for at in own})
    return samples(url, ALL, moments[0] * 1000 - 5000, moments[-1] * 1000 + 5000)


def stored_samples(url: str) -> int:
    """Return how many samples VictoriaMetrics holds, doubled ones too."""
    words = urllib.parse.urlencode({"match[]": ALL, "reduce_mem_usage": "1"})
    with urllib.request.urlopen(f"{url}/api/v1/export?{words}", timeout=30) as reply:
        return sum(len(json.loads(line)["timestamps"]) for line in reply)


def near(found: All, told: All) -> None:
    """Hold samples to 12 digits: what VictoriaMetrics keeps of a value that is no integer."""
    assert {key: sorted(own) for key, own in found.items()} == {key: sorted(own) for key, own in told.items()}
    for key, own in told.items():
        for at_ms, value in own.items():
            got = found[key][at_ms]
            if value.is_integer() and abs(value) < 1e12:
                assert got == value, (key, at_ms)
            else:
                assert got == pytest.approx(value, rel=1e-11, abs=0), (key, at_ms)


@pytest.mark.slow
def test_victoriametrics_answers_with_the_stores_values(run: Config, told: All, tmp_path: Path) -> None:
    """By PromQL, sample by sample; a second time nothing is sent, and nothing is there twice."""
    count = sum(len(own) for own in told.values())
    with victoria(tmp_path / "vm") as url:
        first = json.loads(call("--config", str(run.path), "--url", url, "--json").stdout)
        flush(url)
        near(whole(url, told), told)
        again = json.loads(call("--config", str(run.path), "--url", f"{url}/", "--json").stdout)
        flush(url)
        there = stored_samples(url)
        moment = sorted({at for own in told.values() for at in own})[99]
        grid = moment // 60_000 * 60_000
        page = page_at(run, grid * 1000)

    assert first["samples"] == {"sent": count, "already_there": 0, "differing": 0, "refused": 0, "doubled": 0}
    assert first["checked"]["missing"] == 0
    assert again["samples"] == {"sent": 0, "already_there": count, "differing": 0, "refused": 0, "doubled": 0}
    assert there == count, "no sample twice"
    assert {key: own[grid] for key, own in told.items() if grid in own} == page


@pytest.mark.slow
@pytest.mark.prometheus
def test_prometheus_answers_with_the_stores_values_to_the_last_bit(
    run: Config, told: All, tmp_path: Path
) -> None:
    """By remote write; a second time nothing is sent."""
    with prometheus(tmp_path) as url:
        write = f"{url}/api/v1/write"
        first = json.loads(call("--config", str(run.path), "--url", write, "--json").stdout)
        found = whole(url, told)
        again = json.loads(call("--config", str(run.path), "--url", write, "--json").stdout)

    assert found == told
    assert first["samples"]["refused"] == first["checked"]["missing"] == 0
    assert again["samples"]["sent"] == 0


@pytest.mark.slow
@pytest.mark.prometheus
def test_what_prometheus_holds_already_newer_is_refused_and_told(
    run: Config, told: All, tmp_path: Path
) -> None:
    """Later samples of the same series first: the earlier ones are counted as refused, with the reason."""
    moments = sorted({at for own in told.values() for at in own})
    middle = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moments[len(moments) // 2] / 1000))
    with prometheus(tmp_path) as url:
        write = f"{url}/api/v1/write"
        call("--config", str(run.path), "--url", write, "--since", middle)
        done = call("--config", str(run.path), "--url", write, check=1)
        found = whole(url, told)

    assert "samples refused: " in done.output
    assert "out of" in done.output
    assert "promtool tsdb create-blocks-from" in done.output
    for key, own in found.items():
        assert set(own.items()) <= set(told[key].items()), "what is there is right"


@pytest.mark.slow
@pytest.mark.prometheus
@pytest.mark.parametrize("kind", ["victoria", "prometheus"])
def test_killed_at_any_moment_and_run_again_nothing_is_lost_and_nothing_is_there_twice(
    kind: str, run: Config, told: All, tmp_path: Path
) -> None:
    """SIGKILL a few times while it sends, then once to the end."""
    chance = random.Random(kind)
    words = ["--config", str(run.path), "--every", "15", "--settle", "2", "--url"]
    is_victoria = kind == "victoria"
    server = victoria(tmp_path / "db") if is_victoria else prometheus(tmp_path / "db")
    with server as url, counted_way(url) as way:
        target = url if is_victoria else f"{url}/api/v1/write"
        through = target.replace(url, way.url)
        for _ in range(3):
            child = subprocess.Popen(
                [*TRACKER, "backfill", *words, through, "--batch", "300"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            enough = way.seen + chance.randrange(1, MOST_BYTES_A_LIFE[kind])
            while way.seen < enough and child.poll() is None:
                time.sleep(0.001)
            child.send_signal(signal.SIGKILL)
            assert child.wait() == -signal.SIGKILL, "killed before its end"
        report = json.loads(call(*words, target, "--json", check=None).stdout)
        again = json.loads(call(*words, target, "--json", check=None).stdout)
        if is_victoria:
            flush(url)
            there = stored_samples(url)
        else:
            moments = sorted({at for own in told.values() for at in own})
            found = samples(url, ALL, moments[0] * 1000 - 60_000_000, moments[-1] * 1000 + 60_000_000)
            there = sum(len(own) for own in found.values())
            grid = {at for at in moments if not at % 60_000}
            assert {k: {at: v for at, v in own.items() if at in grid} for k, own in found.items()} == {
                k: {at: v for at, v in own.items() if at in grid} for k, own in told.items()
            }

    count = sum(report["samples"].values())
    assert 0 < report["samples"]["already_there"] < count, "the kills came in the middle"
    assert again["samples"] == {
        "sent": 0, "already_there": count, "differing": 0, "refused": 0, "doubled": 0,
    }, "nothing lost"  # fmt: skip
    assert there == count, "each sample once"


class Late(Victoria):
    """Takes in a killed sender's last request just after it was asked what is there."""

    late: list[Line]

    def present(self, run: str, labels: Mapping[str, str], start_ms: int, end_ms: int) -> Found:
        found = super().present(run, labels, start_ms, end_ms)
        doubled = self.doubled
        if self.late:
            late, self.late = self.late, []
            self.send(late)
        self.doubled = doubled
        return found


@pytest.mark.slow
def test_a_killed_requests_samples_that_come_too_late_are_told_as_doubled(
    run: Config, told: All, tmp_path: Path
) -> None:
    """By the run that met them, and by every run after it; the values stay right."""
    with victoria(tmp_path / "vm") as url, history(run, {}) as past:
        span = past.span(since_us=None, until_us=None, now_us=2**60, every_s=60)
        assert span is not None
        (block,) = past.blocks(span)
        server = Server(url, who=Credentials())
        late = [line._replace(times_ms=line.times_ms[-5:], values=line.values[-5:]) for line in block.lines]
        target = Late(server, server)
        target.late = []
        target.send([
            line._replace(times_ms=line.times_ms[:1], values=line.values[:1]) for line in block.lines
        ])
        flush(url)
        target.late, target.lag_s = late, 0.5
        report = Sender(target, run=run.settings.run, labels={}, clock=SystemClock()).run([block])
        flush(url)
        there = stored_samples(url)
        near(whole(url, told), told)
        again = call("--config", str(run.path), "--url", url, "--settle", "0.5", check=1)
        target.close()

    twice = there - sum(len(own) for own in told.values())
    assert report.doubled == twice == sum(len(line.values) for line in late)
    assert f"{twice:,} samples are there twice, with the same value" in again.output


def test_what_is_there_is_asked_only_when_the_servers_count_of_rows_stands_still() -> None:
    """While rows come in, or a request is under way, it waits; a server that never rests is asked at last."""

    class Scripted:
        """A server's metrics page, look after look."""

        path = ""

        def __init__(self, pages: Iterable[tuple[int, int]]) -> None:
            self.pages = iter(pages)
            self.seen: list[object] = []

        def get(self, path: str, query: dict[str, str], *, patience: float = 4.0) -> bytes:
            if not path.endswith("/metrics"):
                self.seen.append(path)
                return b""
            busy, rows = next(self.pages)
            self.seen.append((busy, rows))
            return (
                f'vm_concurrent_insert_current {busy}\nvm_rows_inserted_total{{type="vmimport"}} {rows}\n'
                f'vm_rows_inserted_total{{type="promremotewrite"}} {len(self.seen)}\n'
            ).encode()

    def looks(pages: Iterable[tuple[int, int]]) -> list[object]:
        server: Any = Scripted(pages)
        target = Victoria(server, server)
        target.settle(lambda seconds: None)
        assert server.seen[-1] == "/internal/force_flush"
        return list(server.seen[:-1])

    rising = [(0, 5), (0, 6), (1, 6), (1, 6), (0, 9)]
    seen = looks(itertools.chain(rising, itertools.repeat((0, 9))))
    assert seen[:5] == rising
    assert seen[5:] == [(0, 9)] * 10, "a second of standing still"
    assert len(looks((1, n) for n in itertools.count())) == 600


@pytest.mark.slow
def test_a_retention_that_is_too_short_is_noticed(run: Config, tmp_path: Path) -> None:
    """VictoriaMetrics takes old samples and drops them in silence: they are read back and missed."""
    with victoria(tmp_path / "vm", retention="1d") as url:
        done = call("--config", str(run.path), "--url", url, check=1)

    assert "are not there: the server took them and dropped them" in done.output
    assert "-retentionPeriod" in done.output


# -- servers that misbehave -----------------------------------------------------------------------------


class Odd(BaseHTTPRequestHandler):
    """Does to each request what the test's script says; remembers what it saw."""

    protocol_version = "HTTP/1.1"
    script: list[Any]
    seen: list[tuple[str, str, dict[str, str]]]
    context: ssl.SSLContext | None = None

    def setup(self) -> None:
        """Speak TLS where a context is given; who does not trust us gets an empty stream."""
        if self.context is not None:
            self.request.settimeout(5)
            plain = self.request
            self.request = self.context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
            try:
                self.request.do_handshake()
            except OSError:
                self.rfile, self.wfile = io.BytesIO(), io.BytesIO()
                self.connection = self.request
                return
        super().setup()

    def finish(self) -> None:
        super().finish()
        if self.context is not None:
            self.request.close()

    def _do(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        type(self).seen.append((self.command, self.path, dict(self.headers)))
        if self.command == "GET":
            self._say(200, b"")
            return
        act = type(self).script.pop(0) if len(type(self).script) > 1 else type(self).script[0]
        if act == "hang":
            time.sleep(3)
        elif act == "drip":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            for _ in range(30):
                self.wfile.write(b".")
                self.wfile.flush()
                time.sleep(0.1)
        elif act == "drop":
            self.connection.close()
        else:
            status, body, headers = act
            self._say(status, body, headers)

    def _say(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._quietly()

    def do_POST(self) -> None:
        self._quietly()

    def _quietly(self) -> None:
        try:
            self._do()
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def odd(*script: Any) -> Iterator[tuple[str, type[Odd]]]:
    handler = type("Script", (Odd,), {"script": list(script), "seen": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", handler
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


OK = (204, b"", {})
TROUBLE: list[tuple[str, Any, str]] = [
    ("a server error", (503, b"overloaded", {}), "answered 503: overloaded"),
    ("too many requests, with a time", (429, b"slow down", {"Retry-After": "0"}), "answered 429: slow down"),
    ("a connection that breaks", "drop", "again in"),
    ("a server that hangs", "hang", "no answer within 0.5 s"),
    ("a server that drips", "drip", "no answer within 0.5 s"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("act", "said"), [t[1:] for t in TROUBLE], ids=[t[0] for t in TROUBLE])
def test_what_may_pass_is_tried_again(act: Any, said: str, run: Config) -> None:
    """After a wait, having asked anew what is there."""
    with odd(act, OK) as (url, handler):
        done = call(
            "--config", str(run.path), "--url", url, "--timeout", "0.5", "--until", "2026-01-05T08:10:00Z",
            "--settle", "0", "--json", check=1,
        )  # fmt: skip

    report = json.loads(done.stdout)
    assert said in done.stderr
    assert report["retries"] == 1
    kinds = [("POST" if m == "POST" else path.split("?")[0]) for m, path, _ in handler.seen]
    assert kinds[:2] == ["/internal/force_flush", "/api/v1/export"]
    posts = [n for n, kind in enumerate(kinds) if kind == "POST"]
    assert "/api/v1/export" in kinds[posts[0] + 1 : posts[1]], "asked anew before it is sent again"


def test_it_gives_up_in_the_end_and_says_that_it_can_go_on(run: Config) -> None:
    with odd((500, b"<html>broken</html>", {})) as (url, _):
        done = call("--config", str(run.path), "--url", url, "--retry-for", "0", "--settle", "0", check=1)

    assert (
        "answered 500: <html>broken</html>. Gave up after 0 s; the same command goes on from here"
        in done.stderr
    )


REFUSALS: list[tuple[str, Any, str]] = [
    ("credentials are missing", (401, b"", {}), "answered 401. Credentials: --user with --password-file"),
    ("it is forbidden", (403, b"no\x1b[31m", {}), "answered 403: no [31m. Credentials"),
    ("it is the wrong place", (404, b"nothing here", {}), "answered 404: nothing here"),
    ("it points elsewhere", (302, b"", {"Location": "http://elsewhere/"}), "redirects are not followed"),
    ("it repeats our secret", (400, f"bad {CANARY}".encode(), {}), "answered 400: bad ***"),
]


@pytest.mark.parametrize(("act", "said"), [r[1:] for r in REFUSALS], ids=[r[0] for r in REFUSALS])
def test_what_will_not_pass_is_said_at_once(act: Any, said: str, run: Config, tmp_path: Path) -> None:
    """Without a second try, without a control character, without the secret."""
    password = tmp_path / "password"
    password.write_text(CANARY + "\n")
    with odd(act) as (url, handler):
        done = call(
            "--config", str(run.path), "--url", url, "--user", "ana", "--password-file", str(password),
            "--settle", "0", check=1,
        )  # fmt: skip

    assert said in done.stderr
    assert sum(1 for method, _, _ in handler.seen if method == "POST") == 1
    assert all("Basic " in headers["Authorization"] for _, _, headers in handler.seen)


@pytest.mark.parametrize("how", ["file", "environment"])
def test_a_token_comes_from_a_file_or_the_environment(how: str, run: Config, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(CANARY)
    words = ["--token-file", str(tmp_path / "token")] if how == "file" else []
    more = {} if how == "file" else {"TRACKER_BACKFILL_TOKEN": CANARY}
    with odd((403, b"", {})) as (url, handler):
        call("--config", str(run.path), "--url", url, "--settle", "0", *words, check=1, **more)

    assert handler.seen[0][2]["Authorization"] == f"Bearer {CANARY}"


BAD: list[tuple[str, list[str], str]] = [
    ("no address", ["--url", "localhost:8428"], "expected http://HOST:PORT/PATH"),
    ("another protocol", ["--url", "ftp://h/x"], "expected http://HOST:PORT/PATH"),
    ("a password in the address", ["--url", f"http://ana:{CANARY}@h/x"], "without a user and password in it"),
    ("a query in the address", ["--url", f"http://h/x?token={CANARY}"], "expected http://HOST:PORT/PATH"),
    ("a port that is none", ["--url", "http://h:99999/x"], "expected http://HOST:PORT/PATH"),
    ("a user without a password", ["--url", "http://h/x", "--user", "ana"], "a password too"),
    ("a password without a user", ["--url", "http://h/x", "--password-file", "pw"], "a user too"),
    ("a file that is not there", ["--url", "http://h/x", "--token-file", "none"], "a file that can be read"),
    ("an empty file", ["--url", "http://h/x", "--token-file", "empty"], "one secret of 1 to 4,096 bytes"),
    ("two lines in it", ["--url", "http://h/x", "--token-file", "two"], "one line of printable text"),
    ("a secret over plain http", ["--url", "http://h/x", "--token-file", "pw"], "https where"),
    ("no certificates", ["--url", "https://h/x", "--ca-file", "pw"], "a PEM file with certificates"),
    ("a label of ours", ["--url", "http://h/x", "--label", "run=x"], "no metric of ours uses itself"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "said"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_a_wrong_call_is_told_before_anything_is_sent(
    words: list[str], said: str, run: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, body in (("pw", CANARY), ("empty", "\n"), ("two", f"{CANARY}\nmore")):
        (tmp_path / name).write_text(body)

    done = call("--config", str(run.path), *words, check=1)

    assert said in done.stderr


def test_a_certificate_that_nobody_vouches_for_is_not_trusted(run: Config, tmp_path: Path) -> None:
    """https is verified; with --ca-file it goes through."""
    import trustme

    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with odd((403, b"known", {})) as (url, handler):
        server_url = url.replace("http://", "https://")
        handler.context = context
        words = ["--config", str(run.path), "--url", server_url, "--retry-for", "0", "--settle", "0"]
        strange = call(*words, check=1)
        known = call(*words, "--ca-file", str(tmp_path / "ca.pem"), check=1)

    assert "its certificate is not trusted" in strange.stderr
    assert "answered 403: known" in known.stderr


def test_remote_write_without_its_package_says_what_to_install(
    run: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)

    done = call("--config", str(run.path), "--url", "http://127.0.0.1:9/api/v1/write", check=1)

    assert "pip install 'run-telemetry[backfill]'" in done.stderr


def test_nobody_there(run: Config) -> None:
    """A closed port is told, and tried again for as long as was asked."""
    words = ["--config", str(run.path), "--url", "http://127.0.0.1:9"]
    done = call(*words, "--retry-for", "0", "--settle", "0", check=1)

    assert "Connection refused. Gave up" in done.stderr
