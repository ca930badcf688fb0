"""Mail: what a letter looks like, and what becomes of it with a real server that takes it or refuses."""

from __future__ import annotations

import email
import os
import re
from collections.abc import Sequence
from email import policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import AuthResult
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mail_server import PASSWORD, USER, Box, Certificates, certificates, mail_server, silent_server
from tracker.config import Mail
from tracker.masking import Masked
from tracker.post.message import (
    SUBJECT_CHARS,
    Documents,
    Envelope,
    file_name,
    list_id,
    message,
    message_id,
    subject,
)
from tracker.post.retry import LONGEST_US, MINUTE_US, Outcome, wait_us
from tracker.post.smtp import MailServer, ServerTrouble, dotted

T_US = 1_767_600_000_000_000  # 2026-01-05T08:00:00Z
PNG = b"\x89PNG\r\n\x1a\nnot really"
HOSTILE = 'a/b "x"\r\nBcc: evil@example.org\n🦙é\u202e<script>'


def a_mail(**changes: Any) -> Mail:
    fields: dict[str, Any] = {
        "host": "127.0.0.1", "port": 25, "sender": "Tracker <tracker@example.org>",
        "to": ("a@example.org", "B <b@example.org>", "c@example.org"), "tls": "none",
        "timeout_s": 5.0, **changes,
    }  # fmt: skip
    return Mail(**fields)


def a_letter(run: str = "llama-13b", **changes: Any) -> bytes:
    documents = Documents(**{
        "subject": f"{run}: finishes 14 March, four days late",
        "text": "Finishes 14 March.\n.a line with a dot\n",
        "html": f'<p>Finishes 14 March – <img src="cid:fan" alt="x"></p>{"long " * 400}',
        "pictures": {"fan": PNG},
        "pdf": b"%PDF-1.7 " + bytes(range(256)),
        "file_name": f"{run}.pdf",
        **changes,
    })
    return message(
        documents,
        Envelope(
            sender="Tracker <tracker@example.org>",
            to=("a@example.org", "Grüße, Team <b@example.org>"),
            reply_to="lead@example.org",
            message_id=message_id([run, "daily", "2026-01-05"], sender="tracker@example.org"),
            list_id=list_id(run, "daily", sender="tracker@example.org"),
            as_of_us=T_US,
        ),
    )


def parsed(body: bytes) -> EmailMessage:
    found = email.message_from_bytes(body, policy=policy.default)
    assert isinstance(found, EmailMessage)
    return found


# -- what a letter looks like -----------------------------------------------------------------------------


def test_a_letter_has_text_html_with_its_picture_and_the_pdf() -> None:
    """mixed(alternative(text, related(html, png)), pdf); the picture is found by its id."""
    mail = parsed(a_letter())
    types = [part.get_content_type() for part in mail.walk()]
    html = mail.get_body(("html",))
    png = next(part for part in mail.walk() if part.get_content_type() == "image/png")

    assert types == [
        "multipart/mixed", "multipart/alternative", "text/plain", "multipart/related", "text/html",
        "image/png", "application/pdf",
    ]  # fmt: skip
    assert html is not None
    assert f"cid:{png['Content-ID'].strip('<>')}" in html.get_content()
    assert "–" in html.get_content()
    assert png.get_content() == PNG
    assert png.get_content_disposition() == "inline"
    (pdf,) = mail.iter_attachments()
    assert pdf.get_content() == b"%PDF-1.7 " + bytes(range(256))
    assert pdf.get_filename() == "llama-13b.pdf"


def test_the_headers_say_that_a_machine_wrote() -> None:
    """So that nobody's vacation answers, and programs can sort."""
    mail = parsed(a_letter())

    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["X-Auto-Response-Suppress"] == "All"
    assert mail["List-Id"] == "<daily.llama-13b.example.org>"
    assert mail["Reply-To"] == "lead@example.org"
    assert mail["Date"] == "Mon, 05 Jan 2026 08:00:00 +0000"
    assert [a.addr_spec for a in mail["To"].addresses] == ["a@example.org", "b@example.org"]
    assert mail["To"].addresses[1].display_name == "Grüße, Team"
    assert mail["Subject"] == "llama-13b: finishes 14 March, four days late"


def test_the_same_report_is_the_same_letter_byte_for_byte() -> None:
    """Boundaries, ids and date follow from the letter; all is ASCII in short lines that end in CRLF."""
    first, second = a_letter(), a_letter()

    assert first == second
    assert first.isascii()
    assert not re.search(rb"[^\r]\n|\r[^\n]", first)
    assert max(map(len, first.split(b"\r\n"))) <= 998


def test_a_hostile_run_name_stays_a_name() -> None:
    """No header of its own, no folder in the attachment, no picture that cannot be found."""
    mail = parsed(a_letter(HOSTILE))

    assert "Bcc" not in mail
    assert mail["Subject"].startswith('a/b "x" Bcc: evil@example.org')
    (pdf,) = mail.iter_attachments()
    assert "/" not in pdf.get_filename()
    assert set(mail.keys()) == set(parsed(a_letter()).keys())


@settings(deadline=None)
@given(run=st.text(max_size=80), verdict=st.text(max_size=200))
def test_any_text_makes_one_ascii_line_of_subject_and_a_plain_file_name(run: str, verdict: str) -> None:
    """Whatever a run is called."""
    made, name = subject(f"{run}: {verdict}"), file_name(run)

    assert 0 < len(made) <= SUBJECT_CHARS < 66
    assert made.isascii()
    assert made.isprintable()
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name)
    assert not name.startswith(".")


@settings(max_examples=40, deadline=None)
@given(run=st.text(min_size=1, max_size=60))
def test_a_letter_of_any_run_can_be_read_back(run: str) -> None:
    """Subject, id and parts survive the way."""
    mail = parsed(a_letter(run, html="", pictures={}))
    ident = message_id([run, "daily", "2026-01-05"], sender="tracker@example.org")

    assert mail["Message-ID"] == ident
    assert re.fullmatch(r"<[A-Za-z0-9._-]+@example\.org>", ident)
    assert mail["Subject"] == subject(f"{run}: finishes 14 March, four days late")
    assert mail.is_multipart()


def test_message_ids_differ_by_every_part() -> None:
    """Run, schedule, day, zone and store."""
    parts = ["r", "daily", "2026-01-05", "UTC", "/a.db"]
    others = [[*parts[:n], f"{parts[n]}x", *parts[n + 1 :]] for n in range(len(parts))]
    ids = {message_id(one, sender="a@b.org") for one in (parts, *others)}

    assert len(ids) == 6


@settings(deadline=None)
@given(attempts=st.integers(1, 10_000), ident=st.text(max_size=20))
def test_the_wait_grows_to_a_day_and_is_the_same_each_time(attempts: int, ident: str) -> None:
    """With up to a quarter of jitter."""
    plain = min(MINUTE_US << min(attempts - 1, 20), LONGEST_US)

    assert plain <= wait_us(ident, attempts) <= min(plain * 5 // 4, LONGEST_US)
    assert wait_us(ident, attempts) == wait_us(ident, attempts)


def test_a_lone_dot_does_not_end_the_letter() -> None:
    """Nor do line ends of another system."""
    assert dotted(b".\n..\r\nx\ry") == b"..\r\n...\r\nx\r\ny\r\n.\r\n"


# -- with a real server -----------------------------------------------------------------------------------

TO = ("a@example.org", "b@example.org", "c@example.org")


@pytest.fixture
def box() -> Box:
    return Box()


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def password(tmp_path: Path) -> Path:
    place = tmp_path / "smtp.password"
    place.write_text(f"{PASSWORD}\nignored\n")
    place.chmod(0o600)
    return place


def send(mail: Mail, to: Sequence[str] = TO, body: bytes | None = None) -> dict[str, Outcome]:
    marked: list[str] = []
    with MailServer(mail) as server:
        found = server.send(
            body or a_letter(), mail.sender, to, uncertain_from_here=lambda taken: marked.extend(taken)
        )
    assert {one for one, how in found.items() if how.kind in ("sent", "uncertain")} <= set(marked)
    return found


def kinds(found: dict[str, Outcome]) -> list[tuple[str, str]]:
    return [(found[one].kind, found[one].reason) for one in TO]


def trouble(mail: Mail) -> Outcome:
    with pytest.raises(ServerTrouble) as caught:
        send(mail)
    return caught.value.outcome


def test_a_letter_arrives_unchanged_for_all(box: Box) -> None:
    """Also lines that begin with a dot."""
    with mail_server(box) as port:
        found = send(a_mail(port=port))

    assert kinds(found) == [("sent", "")] * 3
    ((sender, to, body),) = box.mails
    assert (sender, to) == ("tracker@example.org", list(TO))
    assert body == a_letter()
    text = parsed(body).get_body(("plain",))
    assert text is not None
    assert ".a line with a dot" in text.get_content()


def test_one_bad_recipient_of_three_hurts_nobody_else(box: Box) -> None:
    """A refusal for good, a refusal for now, and one who gets it."""
    box.refuse = {"b@example.org": "550 no such user", "c@example.org": "451 greylisted, try again"}
    with mail_server(box) as port:
        found = send(a_mail(port=port))

    assert kinds(found) == [("sent", ""), ("never", "recipient"), ("later", "busy")]
    assert found["b@example.org"].text == "550 no such user"
    assert [to for _, to, _ in box.mails] == [["a@example.org"]]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param("452 no room", ("later", "busy"), id="452-later"),
        pytest.param("421 shutting down", ("later", "busy"), id="421-later"),
        pytest.param("554 spam", ("never", "message"), id="554-never"),
        pytest.param("552 too big", ("never", "size"), id="552-never"),
        pytest.param("drop", ("uncertain", "uncertain"), id="taken-and-broken-off-is-uncertain"),
        pytest.param("lose", ("uncertain", "uncertain"), id="lost-and-broken-off-is-uncertain"),
    ],
)
def test_what_a_server_says_of_the_content(box: Box, answer: str, expected: tuple[str, str]) -> None:
    """For now, for good, or nothing at all."""
    box.to_data = [answer]
    with mail_server(box) as port:
        assert kinds(send(a_mail(port=port))) == [expected] * 3


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param("552 message size exceeds fixed limit", ("never", "size"), id="552"),
        pytest.param("550 not from you", ("never", "sender"), id="550"),
        pytest.param("452 full", ("later", "busy"), id="452"),
    ],
)
def test_what_a_server_says_of_the_sender(box: Box, answer: str, expected: tuple[str, str]) -> None:
    """Nobody gets it."""
    box.to_mail = answer
    with mail_server(box) as port:
        assert kinds(send(a_mail(port=port))) == [expected] * 3
    assert box.mails == []


def test_a_letter_above_the_servers_limit_is_not_even_sent(box: Box) -> None:
    """Both sizes are told."""
    with mail_server(box, data_size_limit=1_000) as port:
        found = send(a_mail(port=port))

    assert kinds(found) == [("never", "size")] * 3
    assert "and the server takes 1,000" in found["a@example.org"].text


def test_several_letters_go_in_one_conversation_after_a_refusal(box: Box) -> None:
    """A refused one leaves nothing behind."""
    box.to_data = ["554 no", "250 OK"]
    with mail_server(box) as port, MailServer(a_mail(port=port)) as server:
        first = server.send(a_letter("x"), "t@x.org", TO[:1], uncertain_from_here=lambda _: None)
        second = server.send(a_letter("y"), "t@x.org", TO[:1], uncertain_from_here=lambda _: None)

    assert [first[TO[0]].kind, second[TO[0]].kind] == ["never", "sent"]


# -- who is there, and who are we -------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")  # the socket itself is TLS
@pytest.mark.parametrize("tls", ["starttls", "implicit"])
def test_it_goes_encrypted_and_logged_in(box: Box, certs: Certificates, password: Path, tls: str) -> None:
    """With the authority's file, the right name and the right password."""
    options = {"tls_context": certs.good, "require_starttls": True, "auth_required": True}
    if tls == "implicit":
        options = {"ssl_context": certs.good, "auth_required": True, "auth_require_tls": False}
    with mail_server(box, authenticator=box.authenticate, **options) as port:
        found = send(a_mail(port=port, tls=tls, ca_file=certs.ca_file, user=USER, password_file=password))

    assert kinds(found) == [("sent", "")] * 3
    assert box.logins == [USER.encode()]
    assert box.encrypted == [tls == "starttls"]  # of the other, the server itself sees only what is inside


@pytest.mark.parametrize(
    ("name", "trusted", "reason", "said"),
    [
        pytest.param("expired", True, "certificate", "must be renewed", id="expired"),
        pytest.param("other_name", True, "certificate", "for another name", id="another-name"),
        pytest.param(
            "good", False, "certificate", "Name the authority's file in ca_file", id="unknown-authority"
        ),
    ],
)
def test_a_certificate_that_is_not_good_ends_it(
    box: Box, certs: Certificates, name: str, trusted: bool, reason: str, said: str
) -> None:
    """Nothing is sent, and the sentence says what to do."""
    with mail_server(box, tls_context=getattr(certs, name)) as port:
        found = trouble(a_mail(port=port, tls="starttls", ca_file=certs.ca_file if trusted else None))

    assert (found.kind, found.reason) == ("later", reason)
    assert "nothing was sent" in found.text
    assert said in found.text
    assert box.mails == []


def test_without_starttls_nothing_is_sent(box: Box) -> None:
    """Never silently less: not even for a server that would take it in clear."""
    with mail_server(box) as port:
        found = trouble(a_mail(port=port, tls="starttls"))

    assert (found.kind, found.reason) == ("later", "tls")
    assert "offers no STARTTLS: nothing was sent" in found.text


def test_a_wrong_password_is_told_without_the_password(box: Box, certs: Certificates, tmp_path: Path) -> None:
    """It may be mended, so it is tried again later."""
    wrong = tmp_path / "wrong"
    wrong.write_text("hunter2")
    options = {"tls_context": certs.good, "auth_required": True, "authenticator": box.authenticate}
    with mail_server(box, **options) as port:
        mail = a_mail(port=port, tls="starttls", ca_file=certs.ca_file, user=USER, password_file=wrong)
        found = trouble(mail)

    assert (found.kind, found.reason) == ("later", "login")
    assert "refused the login of 'tracker': 535" in found.text
    assert "hunter2" not in found.text
    assert box.mails == []


@pytest.mark.parametrize(
    "echo",
    [
        pytest.param("hunter2 is wrong", id="in clear"),
        pytest.param("no such HUNTER2", id="in capitals"),
        pytest.param("no aHVudGVyMg==", id="as base64"),
        pytest.param("no AHRyYWNrZXIAaHVudGVyMg==", id="as base64 with the user"),
        pytest.param("no dHJhY2tlcjpodW50ZXIy", id="as base64 behind other words"),
        pytest.param("x" * 250 + " hunter2", id="beyond what is told"),
        pytest.param("no such hunte", id="cut off"),
    ],
)
def test_a_server_that_repeats_the_password_is_told_without_it(echo: str, tmp_path: Path) -> None:
    """In no form that it may take, and in no answer of the conversation."""
    held = tmp_path / "held"
    held.write_text("hunter2")
    with mail_server(Box(), auth_require_tls=False, authenticator=lambda *_: AuthResult(
        success=False, handled=False, message=f"535 {echo}"
    )) as port:  # fmt: skip
        found = trouble(a_mail(port=port, user=USER, password_file=held))

    assert "refused the login of 'tracker': 535 " in found.text
    told = found.text.lower()
    assert not [form for form in ("hunte", "aHVudGVyMg", "h1bnRlcj", "odW50ZXIy") if form.lower() in told]


def test_a_mask_takes_out_a_secret_however_it_is_written() -> None:
    """In clear, quoted and coded; words that are no secret stay."""
    hide = Masked('p&ss w"rd/ü+1')

    for form in ("p&ss w\"rd/ü+1", "p%26ss%20w%22rd%2F%C3%BC%2B1", "p%26ss+w%22rd/%c3%bc%2b1",
                 "p&amp;ss w&quot;rd/ü+1", 'p&ss w\\"rd/\\u00fc+1'):  # fmt: skip
        assert hide(f"no {form}!") == "no ***!", form
    assert hide("535 no such user") == "535 no such user"
    assert Masked("")("as it was") == "as it was"
    assert "p&ss" not in repr(hide)


def test_a_password_from_the_environment_beyond_ascii(
    box: Box, certs: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """smtplib would fail on it; the server sees it as UTF-8."""
    monkeypatch.setenv("SMTP_PASSWORD", "pässwörd")
    options = {"tls_context": certs.good, "auth_required": True, "authenticator": box.authenticate}
    with mail_server(box, **options) as port:
        mail = a_mail(
            port=port, tls="starttls", ca_file=certs.ca_file, user=USER, password_env="SMTP_PASSWORD"
        )
        assert trouble(mail).reason == "login"
        monkeypatch.setenv("SMTP_PASSWORD", PASSWORD)
        assert kinds(send(mail)) == [("sent", "")] * 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param(
            {"user": "u", "password_env": "NO_SUCH_VARIABLE"}, "NO_SUCH_VARIABLE is not set", id="variable"
        ),
        pytest.param(
            {"user": "u", "password_file": Path("/nowhere/p")}, "/nowhere/p: No such file", id="file"
        ),
    ],
)
def test_a_missing_password_is_named(box: Box, changes: dict[str, Any], said: str) -> None:
    """By where it should be."""
    with mail_server(box) as port:
        found = trouble(a_mail(port=port, **changes))

    assert found.reason == "secret"
    assert said in found.text


def test_a_pipe_for_a_password_or_certificates_is_refused(box: Box, tmp_path: Path) -> None:
    """Nobody waits for what may come out of it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with mail_server(box) as port:
        no_password = trouble(a_mail(port=port, user="u", password_file=pipe))
        no_authority = trouble(a_mail(port=port, tls="starttls", ca_file=pipe))

    assert no_password.reason == "secret"
    assert no_authority.reason == "certificate"
    assert f"{pipe}: is a pipe, not a file" in no_password.text
    assert f"{pipe}: is a pipe, not a file" in no_authority.text


def test_a_file_of_certificates_that_holds_none(box: Box, tmp_path: Path) -> None:
    """Or that is not there."""
    (tmp_path / "empty.pem").write_text("nothing")
    with mail_server(box) as port:
        empty = trouble(a_mail(port=port, tls="implicit", ca_file=tmp_path / "empty.pem"))
        absent = trouble(a_mail(port=port, tls="implicit", ca_file=tmp_path / "none.pem"))

    assert (empty.reason, absent.reason) == ("certificate", "certificate")
    assert "holds no certificate" in empty.text
    assert "No such file" in absent.text


# -- nobody there -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tls", ["none", "starttls", "implicit"])
@pytest.mark.parametrize("says", [b"", b"220 hello\r\n"], ids=["says-nothing", "greets-and-falls-silent"])
def test_a_silent_server_is_left_after_the_timeout(tls: str, says: bytes) -> None:
    """At the greeting, at a command, in the TLS handshake."""
    with silent_server(says) as port:
        found = trouble(a_mail(port=port, tls=tls, timeout_s=0.2))

    assert found.kind == "later"
    assert found.reason in ("timeout", "tls")


def test_silence_at_the_login_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host and port are right then: nobody is sent to look at them."""
    monkeypatch.setenv("MAIL_WORD", PASSWORD)
    with silent_server(b"220 hello\r\n250-here\r\n250 AUTH PLAIN\r\n") as port:
        found = trouble(a_mail(port=port, timeout_s=0.2, user=USER, password_env="MAIL_WORD"))

    assert (found.kind, found.reason) == ("later", "timeout")
    assert "did not answer the login of" in found.text
    assert "report.mail.port" not in found.text


def test_nobody_listens() -> None:
    """Refused, or no such machine: later."""
    with silent_server() as port:
        pass
    assert trouble(a_mail(port=port)).reason == "network"
    nowhere = trouble(a_mail(host="no-such-host.invalid"))
    assert (nowhere.kind, nowhere.reason) == ("later", "network")


@pytest.mark.slow
def test_something_else_listens() -> None:
    """A web server, a refusing greeting: the words are bounded and printable."""
    with silent_server(b"HTTP/1.1 400 Bad \x1b[31m\r\n" + b"x" * 5_000 + b"\r\n") as port:
        found = trouble(a_mail(port=port, timeout_s=0.3))
    assert found.kind == "later"
    assert len(found.text) < 400
    assert found.text.isprintable()
    with silent_server(b"554 no service for you\r\n") as port:
        refused = trouble(a_mail(port=port, timeout_s=0.3))
    assert (refused.kind, refused.reason) == ("later", "protocol")
    assert "554 no service for you" in refused.text


def test_tests_leave_no_password_in_the_environment() -> None:
    """The variable of the test above is gone."""
    assert "SMTP_PASSWORD" not in os.environ
