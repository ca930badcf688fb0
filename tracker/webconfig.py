"""The web config file of the Prometheus exporters: TLS, logins and headers of the HTTP server.

Edge: reads the file and the certificates that it names, again whenever one of them changed. One that
cannot be used leaves what was before, is told in the log, and shows in a metric; at the start it is an
error. The form is that of `--web.config.file` of the exporters; whatever is taken here, `promtool check
web-config` takes too.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tracker.core.errors import TrackerError, nearest, shown
from tracker.interfaces import Clock
from tracker.serve import Request, Response

if TYPE_CHECKING:
    import ssl

    from tracker.logins import Logins

LARGEST_FILE: Final = 1 << 20
MOST_COST: Final = 16
"""A bcrypt hash of a higher cost takes more than four seconds to compare with."""
_BCRYPT: Final = re.compile(r"\$2[abxy]\$(\d\d)\$[./A-Za-z0-9]{53}")
_VERSIONS: Final = {"TLS12": "TLSv1_2", "TLS13": "TLSv1_3"}
_OLD: Final = ("TLS10", "TLS11")
_CLIENT_AUTH: Final = {
    "": "CERT_NONE",
    "NoClientCert": "CERT_NONE",
    "VerifyClientCertIfGiven": "CERT_OPTIONAL",
    "RequireAndVerifyClientCert": "CERT_REQUIRED",
}
_UNVERIFIED: Final = ("RequestClientCert", "RequireClientCert", "RequireAnyClientCert")
_CIPHERS: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
"""Ciphers by the names of the exporters' library, and by OpenSSL's."""
_HEADERS: Final[Mapping[str, tuple[str, ...]]] = {
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("tls_server_config", "http_server_config", "basic_auth_users"),
    "tls_server_config": (
        "cert_file", "key_file", "client_auth_type", "client_ca_file", "min_version", "max_version",
        "cipher_suites", "prefer_server_cipher_suites",
    ),
    "http_server_config": ("http2", "headers"),
}  # fmt: skip
_UNSUPPORTED: Final = ("curve_preferences",)
_log = logging.getLogger(__name__)


class WebConfigError(TrackerError):
    """A web config cannot be used; the message lists every fault found."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        self.problems = tuple(problems)
        if len(problems) == 1:
            text = f"{path}: {problems[0]}"
        else:
            text = "\n  ".join([f"{path}: {len(problems)} problems", *problems])
        super().__init__(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The table tls_server_config."""

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None
    client_auth_type: str = ""
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    """OpenSSL's names; empty: its own choice. TLS 1.3 has a fixed list."""
    prefer_server_cipher_suites: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """A whole web config file, checked."""

    tls: Tls | None = None
    users: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """bcrypt hashes by name."""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def files(self) -> tuple[Path, ...]:
        """Other files that it is made of."""
        if self.tls is None:
            return ()
        also = (self.tls.client_ca_file,) if self.tls.client_ca_file is not None else ()
        return (self.tls.cert_file, self.tls.key_file, *also)


# -- reading the file -----------------------------------------------------------------------------------


def load(path: Path) -> WebSettings:
    """Read and check a web config file and the certificates it names; raises WebConfigError."""
    settings = parse(_text_of(path), path)
    if settings.tls is not None:
        tls_context(settings.tls, path)
    return settings


def parse(text: str, path: Path) -> WebSettings:
    """Return what a YAML text says, as if it stood in `path`. Certificates are not looked at."""
    import yaml

    problems: list[str] = []
    try:
        # Only the syntax tree is made: nothing of the text becomes an object.
        root = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise WebConfigError(path, [f"not YAML: {' '.join(str(error).split())[:300]}"]) from None
    except RecursionError:
        raise WebConfigError(path, ["not usable YAML: nested too deep"]) from None
    top = _table(root, "", problems)
    tls = _tls(_table(top.get("tls_server_config"), "tls_server_config", problems), path, problems)
    served = _table(top.get("http_server_config"), "http_server_config", problems)
    headers = _headers(served.get("headers"), problems)
    if "http2" in served:
        _boolean(served["http2"], "http_server_config.http2", problems)  # taken for the exporters' sake
    users = _users(top.get("basic_auth_users"), problems)
    if problems:
        raise WebConfigError(path, problems)
    return WebSettings(tls=tls, users=users, headers=headers)


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            body = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise WebConfigError(path, [f"cannot be read: {error.strerror or error}"]) from None
    if len(body) > LARGEST_FILE:
        raise WebConfigError(path, [f"larger than {LARGEST_FILE} bytes: this is no web config"])
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise WebConfigError(path, ["not UTF-8 text"]) from None


def _table(node: Any, name: str, problems: list[str]) -> dict[str, Any]:
    """Return the known keys of a YAML mapping with their nodes; nothing there is an empty one."""
    found: dict[str, Any] = {}
    for key, value, line in _pairs(node, name or "the file", problems):
        where = f"{name}.{key}" if name else key
        known = _KEYS[name]
        if key in _UNSUPPORTED and name == "tls_server_config":
            problems.append(
                f"line {line}: {where}: not supported here. Leave it out: good curves are the default"
            )
        elif key not in known:
            hint = nearest(key, known)
            hint = f", {hint}" if hint else ""
            problems.append(f"line {line}: {shown(where)}: unknown key{hint}. Known: {', '.join(known)}")
        else:
            found[key] = value
    return found


def _pairs(node: Any, name: str, problems: list[str]) -> Iterator[tuple[str, Any, int]]:
    """Yield key, node and line of a YAML mapping; a key that stands twice is a fault."""
    if node is None or _is_null(node):
        return
    if node.id != "mapping":
        problems.append(f"line {_line(node)}: {name}: expected a mapping (key: value)")
        return
    seen: set[str] = set()
    for key, value in node.value:
        if key.id != "scalar":
            problems.append(f"line {_line(key)}: {name}: a key must be a text")
        elif key.value in seen:
            problems.append(f"line {_line(key)}: {shown(key.value)} stands twice in {name}")
        else:
            seen.add(key.value)
            yield key.value, value, _line(key)


def _tls(found: Mapping[str, Any], path: Path, problems: list[str]) -> Tls | None:
    texts = {key: _text(node, f"tls_server_config.{key}", problems) for key, node in found.items()
             if key not in {"cipher_suites", "prefer_server_cipher_suites"}}  # fmt: skip
    names = ("cert_file", "key_file", "client_auth_type", "client_ca_file")
    if not any(texts.get(name) for name in names):
        if found and not problems:
            problems.append("tls_server_config: neither cert_file nor key_file: there is no TLS without them")
        return None
    for name in ("cert_file", "key_file"):
        if not texts.get(name):
            problems.append(f"tls_server_config.{name}: missing. TLS needs both cert_file and key_file")
    auth = texts.get("client_auth_type", "")
    if auth in _UNVERIFIED:
        problems.append(
            f"tls_server_config.client_auth_type = {shown(auth)}: asks for certificates that nobody "
            "verifies, which keeps nobody out. Take RequireAndVerifyClientCert"
        )
    elif auth not in _CLIENT_AUTH:
        known = ", ".join(name for name in _CLIENT_AUTH if name)
        problems.append(f"tls_server_config.client_auth_type = {shown(auth)}: expected one of {known}")
    verifies = _CLIENT_AUTH.get(auth, "CERT_NONE") != "CERT_NONE"
    if texts.get("client_ca_file") and not verifies and auth in _CLIENT_AUTH:
        problems.append(
            "tls_server_config.client_ca_file: without client_auth_type no certificate is asked for. Add "
            "client_auth_type: RequireAndVerifyClientCert"
        )
    if verifies and not texts.get("client_ca_file"):
        problems.append(
            f"tls_server_config.client_ca_file: missing, because client_auth_type is {auth}: name the "
            "authority whose clients may come in"
        )
    least, most = (_version(texts.get(key), key, problems) for key in ("min_version", "max_version"))
    if least == "TLS13" and most == "TLS12":
        problems.append("tls_server_config.min_version = 'TLS13': is above max_version")
    ciphers = _ciphers(found.get("cipher_suites"), problems)
    prefer = True
    if "prefer_server_cipher_suites" in found:
        key = "prefer_server_cipher_suites"
        prefer = _boolean(found[key], f"tls_server_config.{key}", problems)
    return Tls(
        cert_file=path.parent / texts.get("cert_file", ""),
        key_file=path.parent / texts.get("key_file", ""),
        client_ca_file=path.parent / texts["client_ca_file"] if texts.get("client_ca_file") else None,
        client_auth_type=auth,
        min_version=least or "TLS12",
        max_version=most or "TLS13",
        cipher_suites=ciphers,
        prefer_server_cipher_suites=prefer,
    )


def _version(text: str | None, key: str, problems: list[str]) -> str:
    if not text:
        return ""
    if text in _OLD:
        problems.append(f"tls_server_config.{key} = {shown(text)}: too old to be safe. Take TLS12 or TLS13")
    elif text not in _VERSIONS:
        problems.append(f"tls_server_config.{key} = {shown(text)}: expected TLS12 or TLS13")
    return text if text in _VERSIONS else ""


def _ciphers(node: Any, problems: list[str]) -> tuple[str, ...]:
    if node is None or _is_null(node):
        return ()
    if node.id != "sequence":
        problems.append(f"line {_line(node)}: tls_server_config.cipher_suites: expected a list")
        return ()
    found = []
    for item in node.value:
        name = _text(item, "tls_server_config.cipher_suites", problems)
        if name in _CIPHERS:
            found.append(_CIPHERS[name])
        elif not name.startswith(("TLS_AES_", "TLS_CHACHA20_")):  # those of TLS 1.3 are always on
            problems.append(
                f"line {_line(item)}: tls_server_config.cipher_suites: {shown(name)}: unknown, or too weak. "
                f"Known: {', '.join(_CIPHERS)}"
            )
    return tuple(found)


def _headers(node: Any, problems: list[str]) -> dict[str, str]:
    found = {}
    for name, value, line in _pairs(node, "http_server_config.headers", problems):
        text = _text(value, f"http_server_config.headers.{name}", problems)
        if name not in _HEADERS:
            problems.append(f"line {line}: header {shown(name)}: cannot be set. Known: {', '.join(_HEADERS)}")
        elif _HEADERS[name] and text not in _HEADERS[name]:
            problems.append(
                f"line {line}: header {name} = {shown(text)}: expected {' or '.join(_HEADERS[name])}"
            )
        elif not text.isascii() or not text.isprintable():
            problems.append(f"line {line}: header {name}: expected printable ASCII on one line")
        else:
            found[name] = text
    return found


def _users(node: Any, problems: list[str]) -> dict[str, bytes]:
    """Return the hashes by name; no message shows one."""
    found = {}
    for name, value, line in _pairs(node, "basic_auth_users", problems):
        hashed = _text(value, f"basic_auth_users.{name}", problems)
        match = _BCRYPT.fullmatch(hashed)
        if ":" in name:
            problems.append(f"line {line}: basic_auth_users: {shown(name)}: a name cannot hold a colon")
        elif match is None:
            problems.append(
                f"line {line}: basic_auth_users: the password of {shown(name)} is no bcrypt hash. Make one: "
                "htpasswd -nBC 10 NAME"
            )
        elif not 4 <= int(match[1]) <= MOST_COST:
            problems.append(
                f"line {line}: basic_auth_users: the hash of {shown(name)} has cost {match[1]}, expected 4 "
                f"to {MOST_COST}: each step doubles the time of a login; 10 takes a tenth of a second"
            )
        else:
            found[name] = hashed.encode()
    return found


def _text(node: Any, name: str, problems: list[str]) -> str:
    if _is_null(node):
        return ""
    if node.id != "scalar":
        problems.append(f"line {_line(node)}: {name}: expected a text")
        return ""
    return str(node.value)


def _boolean(node: Any, name: str, problems: list[str]) -> bool:
    if _is_null(node):
        return False
    if node.id != "scalar" or not node.tag.endswith(":bool"):
        problems.append(f"line {_line(node)}: {name}: expected true or false")
        return False
    return str(node.value).lower() in {"true", "yes", "on"}


def _is_null(node: Any) -> bool:
    return node.id == "scalar" and str(node.tag).endswith(":null")


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


# -- certificates ---------------------------------------------------------------------------------------


def tls_context(tls: Tls, path: Path) -> ssl.SSLContext:
    """Return what OpenSSL needs for handshakes; raises WebConfigError where a certificate is unusable."""
    import ssl

    try:
        return _context(tls, path)
    except ssl.SSLError as error:
        raise WebConfigError(path, [f"tls_server_config: OpenSSL refuses it ({error.reason})"]) from None


def _context(tls: Tls, path: Path) -> ssl.SSLContext:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = getattr(ssl.TLSVersion, _VERSIONS[tls.min_version])
    context.maximum_version = getattr(ssl.TLSVersion, _VERSIONS[tls.max_version])
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0  # a connection is one request, and scrapers do not come back to a session
    if not tls.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if tls.cipher_suites:
        context.set_ciphers(":".join(tls.cipher_suites))
    context.set_alpn_protocols(["http/1.1"])
    _load_pair(context, tls, path)
    if tls.client_ca_file is not None:
        try:
            context.load_verify_locations(cafile=tls.client_ca_file)
        except (OSError, ssl.SSLError) as error:
            raise WebConfigError(path, [f"client_ca_file {_said(tls.client_ca_file, error)}"]) from None
        context.verify_mode = getattr(ssl, _CLIENT_AUTH[tls.client_auth_type])
    return context


def _load_pair(context: ssl.SSLContext, tls: Tls, path: Path) -> None:
    import ssl

    def locked() -> str:
        raise _Locked

    for name, file in (("cert_file", tls.cert_file), ("key_file", tls.key_file)):
        try:
            with file.open("rb"):
                pass
        except OSError as error:
            raise WebConfigError(path, [f"{name} {_said(file, error)}"]) from None
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file, password=locked)
    except _Locked:
        raise WebConfigError(
            path, [f"key_file {tls.key_file}: is locked by a password. Give one without: openssl pkey"]
        ) from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            said = f"key_file {tls.key_file}: does not belong to {tls.cert_file}"
        else:
            said = (
                f"{tls.cert_file} and {tls.key_file}: not a certificate and its key in PEM ({error.reason})"
            )
        raise WebConfigError(path, [said]) from None
    except OSError as error:
        raise WebConfigError(path, [_said(tls.cert_file, error)]) from None


class _Locked(Exception):
    """A key needs a password, and nobody is there to give it."""


def _said(file: Path, error: OSError) -> str:
    reason = getattr(error, "reason", None)
    return f"{file}: {f'not PEM ({reason})' if reason else error.strerror or error}"


# -- what the server asks -------------------------------------------------------------------------------


class WebConfig:
    """A web config in use. Its methods are called from many threads at once."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        """Load the file; raises WebConfigError."""
        self._path = path.absolute()
        self._clock = clock
        self._loading = threading.Lock()
        self._counting = threading.Lock()
        self._failed: Counter[str] = Counter()
        self.problem = ""
        """Why what stands in the file now is not what counts; empty where it is."""
        self.loaded_us = 0
        """When it was last taken."""
        self._now: _InUse | None = None
        self._watched: dict[Path, tuple[int, ...]] = {}
        """The files that it is made of, as they were when they were last read."""
        self._read()
        self.tls: Final = self._in_use.context is not None
        """Whether connections are encrypted: that never changes without a restart."""

    @property
    def has_users(self) -> bool:
        """Whether a name and password are asked for."""
        return bool(self._in_use.settings.users)

    @property
    def _in_use(self) -> _InUse:
        assert self._now is not None
        return self._now

    def refresh(self) -> None:
        """Take what changed in the files; what cannot be used leaves what was before. Never raises."""
        if self._is_unchanged() or not self._loading.acquire(blocking=False):
            return
        try:
            if self._is_unchanged():
                return
            self._read()
        except Exception as error:
            self.problem = str(error)
            if not isinstance(error, TrackerError):
                self.problem = f"internal error, see the log: {type(error).__name__}"
                _log.exception("the web config could not be read")
            _log.warning("the web config was not taken, what was before still counts: %s", self.problem)
        else:
            self.problem = ""
            _log.info("the web config was read again: %s", self._path)
        finally:
            self._loading.release()

    def _is_unchanged(self) -> bool:
        return all(_stamp(path) == stamp for path, stamp in self._watched.items())

    def _read(self) -> None:
        """Read everything, and remember as what files it was read: each is looked at before it is opened."""
        before = self._now
        watched = {path: _stamp(path) for path in (self._path, *(before.settings.files if before else ()))}
        self._watched = watched
        settings = parse(_text_of(self._path), self._path)
        watched |= {path: _stamp(path) for path in settings.files}
        context = tls_context(settings.tls, self._path) if settings.tls is not None else None
        if before is not None and (context is not None) is not self.tls:
            change = "TLS is gone from it" if self.tls else "TLS is new in it"
            raise WebConfigError(self._path, [f"{change}: that takes a restart"])
        self._take(settings, context)
        self._watched = {path: watched[path] for path in (self._path, *settings.files)}

    def wrap(self, connection: socket.socket) -> socket.socket:
        """Return what to speak over: encrypted where there is TLS, with the certificate of now."""
        self.refresh()
        context = self._in_use.context
        if context is None:
            return connection
        return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def admit(self, request: Request) -> Response | None:
        """Return None for a request that may come in, else what it gets instead."""
        logins = self._in_use.logins
        if logins is None:
            return None
        verdict = logins.admit(request.headers.get("authorization"), request.address)
        if not verdict.why:
            return None
        with self._counting:
            self._failed[verdict.why] += 1
        if verdict.why in {"none", "wrong"}:
            return Response(
                status=401,
                body=b"Name and password, please.\n",
                headers={"WWW-Authenticate": 'Basic realm="tracker", charset="UTF-8"'},
            )
        return Response(
            status=429 if verdict.why == "limited" else 503,
            body=b"Too many logins at once: try again later.\n",
            headers={"Retry-After": str(max(1, round(verdict.retry_s + 0.5)))},
        )

    @property
    def logins_failed(self) -> dict[str, int]:
        """How many requests were not let in, by reason."""
        with self._counting:
            return dict(self._failed)

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers that every answer gets."""
        return self._in_use.settings.headers

    def _take(self, settings: WebSettings, context: ssl.SSLContext | None) -> None:
        before = self._now
        logins = None
        if settings.users:
            from tracker.logins import Logins

            same = before is not None and before.settings.users == settings.users
            logins = before.logins if same and before is not None else None
            logins = logins or Logins(settings.users, clock=self._clock)
        elif before is not None and before.settings.users:
            _log.warning("%s: there are no users any more: everybody is let in", self._path)
        self._now = _InUse(settings, context, logins)
        self.loaded_us = self._clock.now_us()


@dataclass(frozen=True, slots=True)
class _InUse:
    settings: WebSettings
    context: ssl.SSLContext | None
    logins: Logins | None


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError as error:
        return (-(error.errno or 1),)
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
