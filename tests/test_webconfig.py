"""The web config file: what is taken, what is refused with which words, and what promtool says of it."""

from __future__ import annotations

import datetime as dt
import os
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.web_help import HASH, TLS, USERS, certificates
from tracker import app
from tracker.webconfig import WebConfigError, load, parse, validity


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("web")
    certificates(folder)
    certificates(folder, name="other")
    (folder / "locked.key").write_bytes(locked((folder / "server.key").read_bytes()))
    (folder / "junk.pem").write_text("this is no certificate")
    return folder


def locked(key: bytes) -> bytes:
    """Return a key behind a password."""
    from cryptography.hazmat.primitives import serialization

    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )


BOTH = TLS + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"
TAKEN = {
    "nothing": "",
    "a comment": "# later\n",
    "logins": USERS,
    "two logins": USERS + f"  'anna b': \"{HASH}\"\n",
    "hash of htpasswd": USERS.replace("$2b$", "$2y$"),
    "tls": TLS,
    "tls and logins": TLS + USERS,
    "tls 1.3": TLS + "  min_version: TLS13\n",
    "both versions": TLS + "  min_version: TLS12\n  max_version: TLS13\n",
    "client certificates": BOTH,
    "client certificates where given": BOTH.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven"),
    "ciphers": TLS + "  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]\n",
    "no preference": TLS + "  prefer_server_cipher_suites: false\n",
    "headers": "http_server_config:\n  headers:\n    X-Frame-Options: sameorigin\n"
    "    Strict-Transport-Security: max-age=31536000\n",
    "http2 is taken and means nothing": TLS + "http_server_config:\n  http2: false\n",
    "empty tables": "tls_server_config:\nbasic_auth_users: {}\nhttp_server_config:\n",
}  # fmt: skip
REFUSED = {
    "no yaml": ("a: [", "not YAML"),
    "a list": ("- 1\n", "expected a mapping"),
    "an unknown table": ("tls_config:\n  x: 1\n", "unknown key, did you mean 'tls_server_config'?"),
    "an unknown key": (TLS + "  cert: x\n", "unknown key, did you mean 'cert_file'?"),
    "a table twice": (USERS + USERS, "stands twice"),
    "a user twice": (USERS + f"  prometheus: {HASH}\n", "stands twice in basic_auth_users"),
    "a plain password": ("basic_auth_users:\n  bob: secret\n", "the password of 'bob' is no bcrypt hash"),
    "another hash": ("basic_auth_users:\n  bob: '$6$abc$" + "x" * 60 + "'\n", "is no bcrypt hash"),
    "cost of 3": ("basic_auth_users:\n  bob: '$2b$03$" + "a" * 53 + "'\n", "has cost 03, expected 4 to 16"),
    "cost of 32": ("basic_auth_users:\n  bob: '$2b$32$" + "a" * 53 + "'\n", "has cost 32"),
    "only a certificate": ("tls_server_config:\n  cert_file: server.pem\n", "key_file: missing"),
    "only a key": ("tls_server_config:\n  key_file: server.key\n", "cert_file: missing"),
    "no such file": (TLS.replace("server.pem", "none.pem"), "none.pem: No such file"),
    "another's key": (TLS.replace("server.key", "other.key"), "does not belong to"),
    "no certificate in it": (TLS.replace("server.pem", "junk.pem"), "not a certificate and its key in PEM"),
    "a locked key": (TLS.replace("server.key", "locked.key"), "is locked by a password"),
    "an unknown version": (TLS + "  min_version: TLS14\n", "expected TLS12 or TLS13"),
    "an unknown policy": (TLS + "  client_auth_type: Always\n", "expected one of NoClientCert"),
    "an authority for nobody": (TLS + "  client_ca_file: ca.pem\n", "no certificate is asked for"),
    "no authority file": (BOTH.replace("ca.pem", "none.pem"), "none.pem: No such file"),
    "an unknown cipher": (TLS + "  cipher_suites: [NULL_MD5]\n", "'NULL_MD5': unknown, or too weak"),
    "ciphers as text": (TLS + "  cipher_suites: {a: b}\n", "expected a list"),
    "an unknown header": ("http_server_config:\n  headers:\n    Server: x\n", "'Server': cannot be set"),
    "a value that a header cannot have": (
        "http_server_config:\n  headers:\n    X-Frame-Options: all\n", "expected deny or sameorigin"),
    "http2 as a number": ("http_server_config:\n  http2: 7\n", "expected true or false"),
    "a table as a text": ("basic_auth_users: bob\n", "expected a mapping"),
    "a file as a list": (TLS.replace("server.pem", "[a]"), "expected a text"),
}  # fmt: skip
STRICTER = {
    "tls 1.0": (TLS + "  min_version: TLS10\n", "too old to be safe"),
    "versions the wrong way round": (
        TLS + "  min_version: TLS13\n  max_version: TLS12\n", "is above max_version"),
    "certificates that nobody verifies": (
        TLS + "  client_auth_type: RequireAnyClientCert\n", "nobody verifies"),
    "certificates by any authority": (
        TLS + "  client_auth_type: RequireAndVerifyClientCert\n", "name the authority"),
    "curves": (TLS + "  curve_preferences: [X25519]\n", "not supported here"),
    "a weak cipher": (TLS + "  cipher_suites: [TLS_RSA_WITH_AES_128_CBC_SHA]\n", "unknown, or too weak"),
    "a hash that takes minutes": ("basic_auth_users:\n  bob: '$2b$20$" + "a" * 53 + "'\n", "has cost 20"),
    "a hash of other letters": ("basic_auth_users:\n  bob: '$2b$10$" + "~" * 53 + "'\n", "no bcrypt hash"),
    "a name that cannot log in": (USERS.replace("prometheus", "'a:b'"), "cannot hold a colon"),
    "a key for nothing": ("tls_server_config:\n  min_version: TLS12\n", "no TLS without them"),
    "a header of two lines": (
        'http_server_config:\n  headers:\n    X-XSS-Protection: "1\\nX: y"\n', "printable ASCII"),
    "a junk authority": (BOTH.replace("ca.pem", "junk.pem"), "not PEM"),
}  # fmt: skip
"""What the exporters' own check lets through, and we do not: it would be unsafe, or never work."""


def promtool_takes(promtool: str, path: Path) -> bool:
    done = subprocess.run([promtool, "check", "web-config", path], capture_output=True, check=False)
    assert done.returncode in (0, 1)
    return done.returncode == 0


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken(name: str, folder: Path, promtool: str) -> None:
    """By us and by promtool."""
    path = folder / "taken.yml"
    path.write_text(TAKEN[name])

    load(path)
    assert promtool_takes(promtool, path)


@pytest.mark.parametrize("name", {**REFUSED, **STRICTER})
def test_what_is_refused(name: str, folder: Path, promtool: str) -> None:
    """With the file, what is wrong and what to do; promtool refuses it too, but for the listed few."""
    path = folder / "refused.yml"
    text, words = {**REFUSED, **STRICTER}[name]
    path.write_text(text)

    with pytest.raises(WebConfigError) as caught:
        load(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert promtool_takes(promtool, path) is (name in STRICTER)


def test_every_fault_is_told_at_once_and_no_hash_is_shown(tmp_path: Path) -> None:
    """A person fixes a file in one go; a hash is a secret."""
    text = (
        "tls_server_config:\n  cert: a\nbasic_auth_users:\n  bob: $2b$99$canary"
        + "a" * 47
        + "\n  al: canary\n"
    )
    with pytest.raises(WebConfigError) as caught:
        parse(text, tmp_path / "web.yml")

    assert len(caught.value.problems) == 3
    assert "line 2:" in str(caught.value)
    assert "canary" not in str(caught.value)
    assert "canary" not in repr(parse(USERS, tmp_path / "web.yml"))
    assert HASH not in repr(parse(USERS, tmp_path / "web.yml"))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: &a [x]\nb: [*a, *a]\n", id="aliases"),
        pytest.param("[" * 5_000, id="deep"),
        pytest.param("{" * 5_000 + "}" * 5_000, id="deep-tables"),
        pytest.param("!!python/object/apply:os.system ['true']\n", id="objects"),
        pytest.param("a: 1\n---\nb: 2\n", id="two-documents"),
        pytest.param("? {a: b}\n: c\n", id="a-table-as-a-key"),
        pytest.param("\0", id="nul"),
        pytest.param("x" * 2_000, id="one-word"),
    ],
)
def test_odd_yaml_is_an_error_and_nothing_else(text: str, tmp_path: Path) -> None:
    """Nothing of it becomes an object, and nothing is too deep."""
    with pytest.raises(WebConfigError):
        parse(text, tmp_path / "web.yml")


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        pytest.param(lambda path: None, "cannot be read: No such file", id="missing"),
        pytest.param(lambda path: path.mkdir(), "cannot be read: Is a directory", id="folder"),
        pytest.param(os.mkfifo, "cannot be read: is a pipe, not a file", id="pipe"),
        pytest.param(lambda path: path.write_bytes(b"\xff\xfe"), "not UTF-8", id="not-utf8"),
        pytest.param(lambda path: path.write_bytes(b"#" * 1_100_000), "larger than", id="huge"),
    ],
)
def test_a_file_that_is_no_web_config(prepare: object, words: str, tmp_path: Path) -> None:
    """Said in one sentence."""
    prepare(tmp_path / "web.yml")  # type: ignore[operator]

    with pytest.raises(WebConfigError, match=words):
        load(tmp_path / "web.yml")


@pytest.mark.parametrize("name", ["server.pem", "server.key", "ca.pem"])
def test_a_pipe_for_a_certificate_is_refused(name: str, tmp_path: Path) -> None:
    """Nobody waits for what may come out of it."""
    certificates(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    (tmp_path / "web.yml").write_text(BOTH)

    with pytest.raises(WebConfigError, match=f"{name}: is a pipe, not a file"):
        load(tmp_path / "web.yml")


@pytest.mark.parametrize(
    ("since_days", "days", "level", "words"),
    [
        pytest.param(-30, -1, "wrong", "server.pem: expired at ", id="expired"),
        pytest.param(1, 90, "wrong", "server.pem: does not count before ", id="not-yet"),
        pytest.param(-30, 13, "note", "server.pem: expires at ", id="soon"),
        pytest.param(-30, 15, None, "", id="good"),
        pytest.param(-30, 365 * 40, None, "", id="good-beyond-2050"),
    ],
)
def test_the_doctor_looks_at_the_certificates_dates(
    since_days: int, days: int, level: str | None, words: str, tmp_path: Path
) -> None:
    """What clients would refuse is wrong, and what they will refuse within two weeks is told."""
    now = dt.datetime.now(dt.UTC)
    start, end = now + dt.timedelta(days=since_days), now + dt.timedelta(days=days)
    certificates(tmp_path, not_before=start, not_after=end)
    (tmp_path / "web.yml").write_text(TLS + USERS)
    (tmp_path / "run.toml").write_text(
        '[run]\nname = "r"\n[serve]\nlisten = "127.0.0.1:0"\nweb_config = "web.yml"\n'
    )
    found = [one for one in app.check(tmp_path / "run.toml") if "server.pem" in one.text]

    assert [one.level for one in found] == ([level] if level else [])
    assert all(words in one.text for one in found)
    dates = validity(tmp_path / "server.pem")
    assert dates is not None
    assert dates.end_us == int(end.timestamp()) * 1_000_000


@pytest.mark.parametrize("size", [0, 1, 40, 200])
def test_dates_that_cannot_be_told_are_not(size: int, tmp_path: Path) -> None:
    """A certificate that is cut off, or none at all."""
    certificates(tmp_path)
    der = ssl.PEM_cert_to_DER_cert((tmp_path / "ca.pem").read_text())
    (tmp_path / "cut.pem").write_text(ssl.DER_cert_to_PEM_cert(der[:size]))

    assert validity(tmp_path / "cut.pem") is None
    assert validity(tmp_path / "none.pem") is None


@pytest.mark.parametrize(
    ("text", "level", "words"),
    [
        pytest.param(TLS + USERS, "ok", "is valid: TLS, 1 logins", id="whole"),
        pytest.param(USERS, "note", "without encryption (TLS)", id="open-to-others"),
        pytest.param("users: 1\n", "wrong", "unknown key", id="broken"),
    ],
)
def test_the_doctor_looks_at_it(text: str, level: str, words: str, folder: Path) -> None:
    """`tracker check` says what would be served, and to whom."""
    (folder / "web.yml").write_text(text)
    (folder / "run.toml").write_text(
        '[run]\nname = "r"\n[[source]]\npath = "*.log"\n'
        '[serve]\nlisten = "0.0.0.0:0"\nweb_config = "web.yml"\n'
    )
    found = [(one.level, one.text) for one in app.check(folder / "run.toml") if one.about == "web config"]

    assert any(one == level and words in said for one, said in found), found
