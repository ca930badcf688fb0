"""What a person can try: `--preview`, `--send-test`, and what `tracker check` says of the way out."""

from __future__ import annotations

import email
import json
from collections.abc import Callable
from email import policy
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.mail_server import PASSWORD, USER, Box, Certificates, certificates, mail_server, silent_server
from tests.test_sidecar import write
from tests.test_webhook import SECRET, receiver
from tracker import app
from tracker.cli import root
from tracker.post.make import NotMade, documents_by_command, mail_of

RUN = '[run]\nname = "llama/13b"\n[serve]\nlisten = "127.0.0.1:0"\n[[source]]\npath = "*.log"\n'
AS_OF = "2026-01-05T08:00:00Z"
AT_US = 1_767_600_000_000_000


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Write a config and call a command in its folder."""
    monkeypatch.chdir(tmp_path)

    def run(config: str, *arguments: str) -> Result:
        (tmp_path / "run.toml").write_text(RUN + config)
        return CliRunner().invoke(root, [*arguments, "--config", "run.toml"])

    return run


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("certs"))


def mail(port: int, *more: str) -> str:
    lines = (
        "[report.mail]", 'host = "127.0.0.1"', f"port = {port}", 'from = "T <t@x.org>"',
        'to = ["a@x.org", "b@x.org"]', *(more or ('tls = "none"',)),
    )  # fmt: skip
    return "\n".join(lines) + "\n"


def findings(done: Result, about: str) -> list[tuple[str, str]]:
    return [(f["level"], f["text"]) for f in json.loads(done.stdout)["findings"] if f["about"] == about]


# -- try --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_preview_needs_no_mail_server(call: Callable[..., Result], tmp_path: Path) -> None:
    """One .eml file, whole, with made-up addresses; nothing else is written."""
    done = call("", "report", "--preview", "--out", "x.pdf", "--as-of", AS_OF)

    assert (done.exit_code, done.stdout) == (0, "x.eml\n"), done.output
    found = email.message_from_bytes((tmp_path / "x.eml").read_bytes(), policy=policy.default)
    assert found["Subject"].startswith("TEST llama/13b: ")
    assert found["To"] == "you@example.org"
    assert "application/pdf" in [part.get_content_type() for part in found.walk()]
    assert {path.name for path in tmp_path.iterdir()} <= {"run.toml", "x.eml"}


@pytest.mark.slow
def test_a_test_is_sent_at_once_and_told_for_each(call: Callable[..., Result], tmp_path: Path) -> None:
    """Recipients and webhooks; status 1 where one did not go. No address of a webhook is shown."""
    box = Box(refuse={"b@x.org": "550 no such user"})
    with mail_server(box) as port, receiver() as there:
        (tmp_path / "hook").write_text(there.url)
        hook = '[[webhook]]\nname = "oncall"\nurl_file = "hook"\nshape = "slack"\n'
        done = call(mail(port) + hook, "report", "--send-test", "--as-of", AS_OF)
        one = call(mail(port) + hook, "report", "--send-test", "--to", "me@x.org", "--as-of", AS_OF)

    assert done.exit_code == 1
    assert sorted(done.stdout.splitlines()) == [
        "a@x.org: sent", "b@x.org: refused: 550 no such user", "webhook oncall: sent",
    ]  # fmt: skip
    assert (one.exit_code, one.stdout) == (0, "me@x.org: sent\n")
    assert [to for _, to, _ in box.mails] == [["a@x.org"], ["me@x.org"]]
    assert len(set(box.ids())) == 2
    ((_, posted, _),) = there.posts
    assert posted["text"] == "llama/13b: test"
    assert SECRET not in done.output + one.output


@pytest.mark.parametrize(
    ("config", "arguments", "said"),
    [
        pytest.param("", ("--send-test",), "names no mail server and no webhook", id="nothing-to-send-by"),
        pytest.param(
            "", ("--send-test", "--to", "a@x.org"), "names no mail server", id="an-address-and-no-server"
        ),
        pytest.param("", ("--to", "a@x.org"), "--to goes with --send-test", id="an-address-alone"),
        pytest.param(
            mail(1), ("--send-test", "--to", "a@x, b@y"), "expected a mail address", id="no-address"
        ),
    ],
)
def test_wrong_calls(call: Callable[..., Result], config: str, arguments: tuple[str, ...], said: str) -> None:
    """Status 2, before anything is made."""
    done = call(config, "report", *arguments)

    assert done.exit_code == 2
    assert said in done.output


# -- what the sidecar has made ------------------------------------------------------------------------------


def test_making_a_report_has_a_time_limit(call: Callable[..., Result], tmp_path: Path) -> None:
    """The command is ended, and the sentence says after how long."""
    call("[report]\n", "ingest")
    config = app.load_config(tmp_path / "run.toml")

    with pytest.raises(NotMade, match=r"the report took longer than 0\.05 s and was ended"):
        documents_by_command(config, AT_US, "x", 0.05)


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children meet a typst that cannot be loaded."""
    (tmp_path / "broken" / "typst").mkdir(parents=True)
    (tmp_path / "broken" / "typst" / "__init__.py").write_text(
        "raise ImportError('no typst here', name='typst')"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"))


@pytest.mark.slow
@pytest.mark.usefixtures("broken")
def test_without_typst_all_goes_out_that_needs_none(call: Callable[..., Result], tmp_path: Path) -> None:
    """Text, HTML and pictures; and one sentence in both that says what is missing, and why."""
    write(tmp_path / "train.log", range(1, 101))
    call("[hardware]\ngpus = 8\n" + mail(25), "ingest")
    config = app.load_config(tmp_path / "run.toml")
    made = documents_by_command(config, AT_US + 1_200_000_000, "x", 120.0)
    body = mail_of(config, made, name="x", to=("a@x.org",), kind="daily", day="2026-01-05", identity="<a@b>",
                   as_of_us=0)  # fmt: skip
    letter = email.message_from_bytes(body, policy=policy.default)
    text, html = (letter.get_body((kind,)) for kind in ("plain", "html"))
    assert text is not None
    assert html is not None

    assert set(made.files) == {"txt", "html"}
    assert made.pictures
    said = (
        "The PDF is missing: the PDF could not be made: typst cannot be loaded (no typst here): "
        "pip install --force-reinstall typst."
    )
    assert text.get_content().count(said) == html.get_content().count(said) == 1
    kinds = [part.get_content_type() for part in letter.walk()]
    assert kinds.count("image/png") == len(made.pictures)
    assert "application/pdf" not in kinds
    assert made.subject


@pytest.mark.usefixtures("broken")
def test_check_tries_typst(call: Callable[..., Result]) -> None:
    """That it lies there is not enough."""
    done = call("[report]\n", "check", "--json")

    assert [text for level, text in findings(done, "report") if level == "wrong"] == [
        "the PDF could not be made: typst cannot be loaded (no typst here): "
        "pip install --force-reinstall typst. Until then reports and mails go out without it"
    ]


# -- check ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_check_talks_to_the_mail_server_and_sends_nothing(
    call: Callable[..., Result], tmp_path: Path, certs: Certificates
) -> None:
    """Encrypted and logged in, as the sidecar would be; a password that others can read is noted."""
    box = Box()
    (tmp_path / "pw").write_text(PASSWORD)
    (tmp_path / "pw").chmod(0o644)
    options = {"tls_context": certs.good, "auth_required": True, "authenticator": box.authenticate}
    with mail_server(box, **options) as port:
        login = (f'ca_file = "{certs.ca_file}"', f'user = "{USER}"', 'password_file = "pw"')
        done = call(mail(port, *login), "check", "--json")
        (tmp_path / "pw").write_text("hunter2")
        wrong = call(mail(port, *login), "check", "--json")

    assert findings(done, "mail") == [
        ("note", f"{tmp_path}/pw can be read by others: chmod 600 it"),
        ("ok", f"127.0.0.1:{port} answers by STARTTLS, logged in as tracker; nothing was sent"),
    ]
    ((_, told),) = [f for f in findings(wrong, "mail") if f[0] == "wrong"]
    assert "refused the login of 'tracker': 535" in told
    assert "hunter2" not in wrong.output
    assert box.mails == []


def test_check_names_a_mail_server_that_is_not_there(call: Callable[..., Result]) -> None:
    """Quickly."""
    with silent_server() as port:
        pass
    done = call(mail(port), "check", "--json")

    assert findings(done, "mail") == [
        ("wrong", f"127.0.0.1:{port}: Connection refused. See report.mail.host and port")
    ]
    assert done.exit_code == 1


@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        pytest.param(lambda p: p.write_text("x"), "a folder, and {} is no folder. Move {} away", id="a file"),
        pytest.param(
            lambda p: p.symlink_to("gone"), "a folder, and {} leads nowhere. Move {} away", id="link"
        ),
    ],
)
def test_what_cannot_be_the_reports_folder_is_told(
    call: Callable[..., Result], tmp_path: Path, prepare: Callable[[Path], object], expected: str
) -> None:
    """In the same words by check and by whoever makes a report: name, value, expected, remedy."""
    prepare(tmp_path / "out")
    said = f"report.directory = '{tmp_path}/out': expected {expected}, or name another folder"
    said = said.replace("{}", f"{tmp_path}/out")
    done = call('[report]\ndirectory = "out"\n', "check", "--json")
    made = call('[report]\ndirectory = "out"\n', "report")

    assert ("wrong", said) in findings(done, "report")
    assert (made.exit_code, made.stderr) == (1, f"tracker: {said}\n")


def test_a_folder_is_made_as_deep_as_it_is_named(call: Callable[..., Result], tmp_path: Path) -> None:
    """So check finds nothing wrong with one that is not there yet, and makes none."""
    done = call('[report]\ndirectory = "a/b/out"\n', "check", "--json")

    assert ("ok", f"{tmp_path}/a/b/out can be written") in findings(done, "report")
    assert not (tmp_path / "a").exists()


def test_check_looks_at_webhooks_without_posting(call: Callable[..., Result], tmp_path: Path) -> None:
    """And shows no part of their URLs."""
    (tmp_path / "good").write_text(f"https://hooks.example.org/{SECRET}")
    (tmp_path / "good").chmod(0o600)
    (tmp_path / "bad").write_text(f"hooks.example.org/{SECRET}")
    (tmp_path / "bad").chmod(0o600)
    hooks = '[[webhook]]\nname = "g"\nurl_file = "good"\n[[webhook]]\nname = "b"\nurl_file = "bad"\n'
    done = call(hooks, "check", "--json")

    assert findings(done, "webhook g") == [
        ("ok", "its URL can be used (https); nothing was posted. `--send-test` posts")
    ]
    assert findings(done, "webhook b") == [("wrong", "webhook b: its URL must begin with https://")]
    assert not [part for part in SECRET.split("/") if part in done.output]
