"""Webhooks: what happened is told once, in three shapes, to a real server; the URL stays a secret."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hands import Hands
from tests.mail_server import Certificates, certificates, silent_server
from tests.store_help import make_store
from tests.test_exporter import FULL, H_US, NOON_US, attempt, stop
from tracker.config import Webhook
from tracker.core.forecast.value import Forecast, Quantiles
from tracker.core.snapshot import STATES, Snapshot
from tracker.post.events import Event, Told, look
from tracker.post.hook import BadHook, post, target
from tracker.post.retry import Outcome
from tracker.post.send import send_events, webhook_channel
from tracker.post.shapes import body, event_json
from tracker.store import Address, Letter, Outbox, Reader, Store, outbox_state

SECRET = "T0123456/B7654321/s3cretS3cretS3cret"

# -- what happened ----------------------------------------------------------------------------------------


def run(state: str = "running", attempts: int = 1, **changes: Any) -> Snapshot:
    """A run in a state, with some attempts, the last of them running unless it is down or finished."""
    over = state in ("down", "finished")
    lines = [
        replace(
            attempt(n), name=f"log {n}", running=n == attempts and not over, progress_us=NOON_US,
            start_us=NOON_US + n * H_US,
            end_us=None if n == attempts and not over else NOON_US + n * H_US + 1,
        )
        for n in range(1, attempts + 1)
    ]  # fmt: skip
    stops = tuple(replace(stop(n, "unexpected", "gpu_hbm"), attempt=n) for n in range(1, attempts + over))
    fields = {
        "state": state, "attempts": tuple(lines), "interruptions": stops, "forecast": None,
        "as_of_us": NOON_US + 24 * H_US, **changes,
    }  # fmt: skip
    return replace(FULL, **fields)


def silent(seconds: int) -> Snapshot:
    """A run that is stalled, for so long beyond its limit."""
    made = run("stalled")
    limit_us = made.attempts[-1].stall_limit_us or 0
    return replace(made, as_of_us=NOON_US + limit_us + seconds * 1_000_000)


def late(days: float) -> Forecast:
    return Forecast(
        as_of_us=NOON_US + int(days * H_US), basis="measured", days_behind_plan=days,
        finish_us=Quantiles(p10=1.0, p50=NOON_US + 5.0, p90=3.0),
        sentences=("Even odds.", f"{days:.1f} days behind."),
    )  # fmt: skip


def story(*snapshots: Snapshot, told: Told | None = None) -> list[list[str]]:
    """The names of the events at each look."""
    found = []
    for snapshot in snapshots:
        told, events = look(told, snapshot, behind_plan_days=1.0)
        told = Told.from_json(json.loads(json.dumps(told.to_json())))  # as the store gives it back
        found.append([event.name for event in events])
    return found


BEGUN = run("starting", 1)


@pytest.mark.parametrize(
    ("snapshots", "expected"),
    [
        pytest.param([run("waiting", 0), BEGUN, run(), run()], [[], [], [], []], id="a-quiet-start"),
        pytest.param([run(), run("stalled"), run("stalled"), run()], [[], ["stalled"], [], ["recovered"]],
                     id="stalled-once-and-recovered"),
        pytest.param([run("stalled"), run("stalled")], [["stalled"], []], id="stalled-at-the-first-look"),
        pytest.param([run(), silent(0), silent(119), run()], [[], [], [], []], id="a-save-is-no-stall"),
        pytest.param([run(), silent(119), silent(120), run()], [[], [], ["stalled"], ["recovered"]],
                     id="a-stall-that-lasts-is-told"),
        pytest.param([run(), run("down"), run("down"), run("starting", 2), run("running", 2)],
                     [[], ["down"], [], ["restarted"], []], id="down-and-restarted"),
        pytest.param([run(), run("running", 2)], [[], ["restarted"]], id="restarted-between-two-looks"),
        pytest.param([run(), run("down", 3)], [[], ["restarted", "down"]], id="restarted-and-down-again"),
        pytest.param([run(), run("running", 466)], [[], ["restarted"]], id="many-restarts-are-one-event"),
        pytest.param([run("running", 5)], [[]], id="the-history-of-a-new-run-is-not-told"),
        pytest.param([run("finished", 5), run("finished", 5)], [[], []], id="nor-a-finish-of-long-ago"),
        pytest.param([run(), run("finished"), run("finished")], [[], ["finished"], []], id="finished-once"),
        pytest.param([run("down"), run("running", 2), run("stalled", 2)],
                     [["down"], ["restarted"], ["stalled"]], id="one-after-the-other"),
        pytest.param(
            [run(forecast=late(d)) for d in (0.0, 0.9, 1.2, 3.0, 0.8, 1.5, 0.4, 1.1)],
            [[], [], ["behind_plan"], [], [], [], [], ["behind_plan"]],
            id="behind-plan-is-told-once-until-it-was-half-as-late",
        ),
        pytest.param([run(forecast=late(9)), run(), run(forecast=late(9))], [["behind_plan"], [], []],
                     id="no-forecast-changes-nothing"),
    ],
)  # fmt: skip
def test_what_is_told(snapshots: list[Snapshot], expected: list[list[str]]) -> None:
    """Each thing once."""
    assert story(*snapshots) == expected


def alike(state: str, attempts: int) -> Snapshot:
    """A run whose logs begin with the same words, so that its attempts have one name."""
    made = run(state, attempts)
    return replace(made, attempts=tuple(replace(line, name="log") for line in made.attempts))


def test_logs_that_begin_alike_are_attempts_of_their_own() -> None:
    """A job that is queued again prints the same banner: no old restart is told, and no new one is lost."""
    told, first = look(None, alike("running", 3), behind_plan_days=1.0)
    told, fourth = look(told, alike("running", 4), behind_plan_days=1.0)
    told, fifth = look(told, alike("running", 5), behind_plan_days=1.0)

    assert [[e.name for e in events] for events in (first, fourth, fifth)] == [
        [],
        ["restarted"],
        ["restarted"],
    ]
    assert fourth[0].details["attempt"] == 4
    assert fifth[0].details == {**fifth[0].details, "attempt": 5, "restarts": 1}
    assert fourth[0].id != fifth[0].id


def test_an_event_says_what_and_why() -> None:
    """With the words that prove it, and the same id whoever finds it."""
    told, _ = look(None, run(), behind_plan_days=1.0)
    (first,) = look(told, run("down"), behind_plan_days=1.0)[1]
    (again,) = look(told, run("down", as_of_us=NOON_US + 99), behind_plan_days=1.0)[1]

    assert first.id == again.id
    assert first.text.startswith("llama-13b is down: attempt 1 ended 2026-01-05T13:00:00.000001Z.")
    assert "cause gpu_hbm" in first.text
    assert first.details["cause"] == "gpu_hbm"


HOSTILE = st.text(max_size=400) | st.just("<!channel> *x* `y` [a](http://b) @here \x1b[31m\u202e" * 20)


@settings(deadline=None, max_examples=30)
@given(words=HOSTILE, name=st.text(min_size=1, max_size=300))
def test_words_of_a_log_are_bounded_and_change_no_shape(words: str, name: str) -> None:
    """In all three; no line break, no escape, nothing that formats."""
    told, _ = look(None, run(run=name), behind_plan_days=1.0)
    hostile = run("down", run=name)
    hostile = replace(hostile, interruptions=(replace(hostile.interruptions[0], evidence=words),))
    _, events = look(told, hostile, behind_plan_days=1.0)
    told_events = [event_json(event) for event in events]

    for event in events:
        assert len(event.text) <= 1000
        assert event.text.isprintable()
    slack = json.loads(body("slack", name, told_events))
    assert {block["text"]["type"] for block in slack["blocks"]} == {"plain_text"}
    assert not set("<>") & set(slack["text"].replace("&lt;", "").replace("&gt;", ""))
    assert len(slack["blocks"][0]["text"]["text"]) <= 150
    teams = json.loads(body("teams", name, told_events))
    (card,) = teams["attachments"]
    assert {part["type"] for part in card["content"]["body"]} == {"RichTextBlock"}
    generic = json.loads(body("generic", name, told_events))
    assert generic["run"] == name
    assert generic["events"] == told_events


def test_more_events_than_anybody_reads_are_counted() -> None:
    """A generic receiver gets all of them."""
    events = [
        {"id": str(n), "event": "restarted", "at": "", "text": f"no {n}", "details": {}} for n in range(50)
    ]
    slack = json.loads(body("slack", "r", events))

    assert len(slack["blocks"]) == 22
    assert slack["blocks"][1]["text"]["text"] == "30 earlier events are not shown."
    assert len(json.loads(body("generic", "r", events))["events"]) == 50


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(STATES), st.integers(0, 3)), min_size=1, max_size=12))
def test_a_restart_of_the_tracker_at_any_moment_changes_nothing(moves: list[tuple[str, int]]) -> None:
    """What was told is all that it needs: the same snapshot again tells nothing."""
    attempts, told = 1, None
    for state, more in moves:
        attempts += more
        snapshot = run(state, attempts)
        told, _ = look(told, snapshot, behind_plan_days=1.0)
        same, events = look(Told.from_json(told.to_json()), snapshot, behind_plan_days=1.0)
        assert events == ()
        assert same == told


# -- to a real server -------------------------------------------------------------------------------------


@dataclass
class Receiver:
    """What came, and how to answer."""

    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    posts: list[tuple[str, dict[str, Any], dict[str, str]]] = field(default_factory=list)
    says: str = "no"
    url: str = ""


@contextmanager
def receiver(context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Serve on 127.0.0.1."""
    kept = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            kept.posts.append((self.path, json.loads(self.rfile.read(length)), dict(self.headers)))
            status, headers = kept.answers.pop(0) if kept.answers else (200, {})
            if status == 0:  # break off
                self.connection.close()
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(f"{kept.says} {self.path}".encode())

        def log_message(self, *_: Any) -> None:
            pass

        def finish(self) -> None:
            with suppress(OSError):
                super().finish()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    scheme = "http"
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=True)
        scheme = "https"
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that hangs up is meant
    kept.url = f"{scheme}://127.0.0.1:{server.server_address[1]}/services/{SECRET}"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("certs"))


def a_hook(folder: Path, url: str, **changes: Any) -> Webhook:
    place = folder / "hook.url"
    place.write_text(f"{url}\n")
    return Webhook(**{"name": "oncall", "url_file": place, "timeout_s": 2.0, **changes})


def send_one(hook: Webhook, text: bytes = b"{}") -> Outcome:
    return post(hook, text, identity="id-1", uncertain_from_here=lambda: None)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(200, ("sent", ""), id="200"),
        pytest.param(202, ("sent", ""), id="202"),
        pytest.param(302, ("later", "protocol"), id="redirect"),
        pytest.param(400, ("never", "message"), id="400"),
        pytest.param(403, ("later", "login"), id="403"),
        pytest.param(404, ("later", "login"), id="404"),
        pytest.param(410, ("never", "message"), id="410"),
        pytest.param(413, ("never", "size"), id="413"),
        pytest.param(429, ("later", "busy"), id="429"),
        pytest.param(500, ("later", "busy"), id="500"),
        pytest.param(0, ("uncertain", "uncertain"), id="broken-off"),
    ],
)
def test_what_a_receiver_says(tmp_path: Path, status: int, expected: tuple[str, str]) -> None:
    """For now, for good, or nothing; never a word of the URL, even where the receiver repeats it."""
    with receiver() as there, receiver() as elsewhere:
        there.answers = [(status, {"Location": elsewhere.url} if status == 302 else {"Retry-After": "90"})]
        found = send_one(a_hook(tmp_path, there.url))

    assert (found.kind, found.reason) == expected
    assert elsewhere.posts == []
    for part in SECRET.split("/"):
        assert part not in found.text
    assert found.wait_us == (90_000_000 if status in (429, 500) else None)
    (path, _, headers) = there.posts[0]
    assert path == f"/services/{SECRET}"
    assert headers["Idempotency-Key"] == "id-1"


def test_https_with_a_known_authority_only(tmp_path: Path, certs: Certificates) -> None:
    """And the right name, in time."""
    with receiver(certs.good) as there:
        known = send_one(a_hook(tmp_path, there.url, ca_file=certs.ca_file))
        unknown = send_one(a_hook(tmp_path, there.url))
    with receiver(certs.expired) as there:
        expired = send_one(a_hook(tmp_path, there.url, ca_file=certs.ca_file))

    assert known.kind == "sent"
    assert (unknown.kind, unknown.reason) == ("later", "certificate")
    assert (expired.kind, expired.reason) == ("later", "certificate")
    assert "must be renewed" in expired.text


def test_a_silent_receiver_and_none_at_all(tmp_path: Path) -> None:
    """The first may have read it."""
    with silent_server() as port:
        silent = send_one(a_hook(tmp_path, f"http://127.0.0.1:{port}/x", timeout_s=0.2))
    nobody = send_one(a_hook(tmp_path, f"http://127.0.0.1:{port}/x"))

    assert (silent.kind, nobody.kind) == ("uncertain", "later")
    assert nobody.reason == "network"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        pytest.param("", "is empty", id="empty"),
        pytest.param("hooks.example.org/s3cretS3cret", "must begin with https://", id="no-scheme"),
        pytest.param("ftp://h/s3cretS3cret", "must begin with https://", id="another-scheme"),
        pytest.param("http://hooks.example.org/s3cretS3cret", "anybody on the way can read", id="in-clear"),
        pytest.param("https://u:s3cretS3cret@h/", "user name", id="a-login-in-it"),
        pytest.param("https://h:99999999/s3cretS3cret", "cannot be read", id="a-port-that-is-none"),
        pytest.param("https://h/\x01s3cretS3cret", "characters that no URL has", id="control-characters"),
        pytest.param("https://h/s3cret S3cret", "characters that no URL has", id="a-blank"),
    ],
)
def test_a_url_that_cannot_be_used_is_not_shown(tmp_path: Path, url: str, said: str) -> None:
    """What is wrong, without what it is; later, for somebody may mend it."""
    hook = a_hook(tmp_path, url)
    found = send_one(hook)

    assert (found.kind, found.reason) == ("later", "secret")
    assert said in found.text
    assert "s3cret" not in found.text
    assert "oncall" in found.text


def test_a_url_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of a file; plain http only where the config says so."""
    monkeypatch.setenv("ONCALL_URL", "http://hooks.internal:8080/x?y=1")
    hook = Webhook(name="oncall", url_env="ONCALL_URL")
    with pytest.raises(BadHook):
        target(hook)

    assert target(replace(hook, plain_http=True)).port == 8080


# -- out of the outbox ------------------------------------------------------------------------------------


def queue(outbox: Outbox, hook: Webhook, number: int, now_us: int) -> None:
    event = Event(name="restarted", id=f"e{number}", at_us=now_us, text=f"no {number}")
    outbox.queue(
        [(
            Letter(message_id=f"e{number} {hook.name}", channel=webhook_channel(hook.name), subject="x",
                   made_us=now_us, body=json.dumps(event_json(event)).encode()),
            Address(kind="event restarted", day=event.id, recipient=hook.name),
        )],
        now_us=now_us,
    )  # fmt: skip


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    with Store.open_writer(make_store(tmp_path), durable=True) as writer:
        yield Outbox(writer)


def state_of(folder: Path) -> Any:
    with Reader(folder / "tracker.db") as reader:
        (found,) = outbox_state(reader, lately_us=0)
        return found


def test_a_crash_loop_is_told_in_few_messages_and_nothing_is_lost(tmp_path: Path, outbox: Outbox) -> None:
    """At most three an hour here: what comes beyond them is told together."""
    clock = Hands(NOON_US)
    with receiver() as there:
        hook = a_hook(tmp_path, there.url, most_per_hour=3)
        for number in range(180):  # one a minute, for three hours
            queue(outbox, hook, number, clock.us)
            send_events(outbox, [hook], run="r", clock=clock)
            clock.us += H_US // 60
        clock.us += 2 * H_US
        send_events(outbox, [hook], run="r", clock=clock)

    assert len(there.posts) <= 11
    told = [event["id"] for _, document, _ in there.posts for event in document["events"]]
    assert told == [f"e{number}" for number in range(180)]
    assert state_of(tmp_path).sent == 180


def test_an_outage_delays_and_a_receiver_that_is_back_gets_all(tmp_path: Path, outbox: Outbox) -> None:
    """In one message, and the failures are counted by reason."""
    clock = Hands(NOON_US)
    with receiver() as there:
        hook = a_hook(tmp_path, there.url)
        there.answers = [(503, {})] * 3
        for number in range(3):
            queue(outbox, hook, number, clock.us)
            send_events(outbox, [hook], run="r", clock=clock)
            clock.us += H_US
        assert state_of(tmp_path).queued == 3
        send_events(outbox, [hook], run="r", clock=clock)

    found = state_of(tmp_path)
    assert (found.queued, found.sent, found.dead) == (0, 3, 0)
    assert [e["id"] for e in there.posts[-1][1]["events"]] == ["e0", "e1", "e2"]
    assert found.failures["busy"] >= 3


@pytest.mark.parametrize(("policy", "dead"), [("resend", 0), ("hold", 1)])
def test_an_uncertain_message_is_sent_again_or_held(
    tmp_path: Path, outbox: Outbox, policy: str, dead: int
) -> None:
    """As the config says."""
    clock = Hands(NOON_US)
    with receiver() as there:
        hook = a_hook(tmp_path, there.url, on_uncertain=policy)
        there.answers = [(0, {})]
        queue(outbox, hook, 1, clock.us)
        send_events(outbox, [hook], run="r", clock=clock)
        clock.us += H_US
        send_events(outbox, [hook], run="r", clock=clock)

    found = state_of(tmp_path)
    assert (found.dead, found.sent, len(there.posts)) == (dead, 1 - dead, 2 - dead)


def test_one_receiver_that_is_down_does_not_keep_up_another(tmp_path: Path, outbox: Outbox) -> None:
    """Each has its own channel."""
    clock = Hands(NOON_US)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    (tmp_path / "b").mkdir()
    with receiver() as there:
        down = a_hook(tmp_path, f"http://127.0.0.1:{port}/", name="down")
        up = a_hook(tmp_path / "b", there.url, name="up")
        for hook in (down, up):
            queue(outbox, hook, 1 if hook is up else 2, clock.us)
        done = send_events(outbox, [down, up], run="r", clock=clock)

    assert (done.sent, done.failed) == (1, 1)
