"""What a web config file says: TLS, logins and headers, with every fault that can be seen in its text.

Edge: reads the file; certificates are not looked at. The form is that of `--web.config.file` of the
Prometheus exporters; whatever is taken here, `promtool check web-config` takes too.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tracker import smallfile
from tracker.core.errors import TrackerError, nearest, shown

if TYPE_CHECKING:
    pass

LARGEST_FILE: Final = 1 << 20
MOST_COST: Final = 16
"""A bcrypt hash of a higher cost takes more than four seconds to compare with."""
_BCRYPT: Final = re.compile(r"\$2[abxy]\$(\d\d)\$[./A-Za-z0-9]{53}")
VERSIONS: Final = {"TLS12": "TLSv1_2", "TLS13": "TLSv1_3"}
"""Versions of TLS by their names in the file, and by those of the standard library."""
_OLD: Final = ("TLS10", "TLS11")
CLIENT_AUTH: Final = {
    "": "CERT_NONE",
    "NoClientCert": "CERT_NONE",
    "VerifyClientCertIfGiven": "CERT_OPTIONAL",
    "RequireAndVerifyClientCert": "CERT_REQUIRED",
}
"""Likewise what is asked of clients."""
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


def text_of(path: Path) -> str:
    """Return the text of the file; raises WebConfigError where there is none."""
    try:
        body = smallfile.read(path, limit=LARGEST_FILE)
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
    elif auth not in CLIENT_AUTH:
        known = ", ".join(name for name in CLIENT_AUTH if name)
        problems.append(f"tls_server_config.client_auth_type = {shown(auth)}: expected one of {known}")
    verifies = CLIENT_AUTH.get(auth, "CERT_NONE") != "CERT_NONE"
    if texts.get("client_ca_file") and not verifies and auth in CLIENT_AUTH:
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
    elif text not in VERSIONS:
        problems.append(f"tls_server_config.{key} = {shown(text)}: expected TLS12 or TLS13")
    return text if text in VERSIONS else ""


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
