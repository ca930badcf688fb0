"""One message to a webhook: posted once, answered or not.

Edge. Loads `ssl` and `http.client`: only child processes import this. The URL is a secret: no text that
leaves here holds any part of it beyond the config's own name for it. A redirect is not followed: the secret
would go wherever somebody points.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
from collections.abc import Callable
from typing import Final
from urllib.parse import SplitResult, urlsplit

from tracker.config import Webhook
from tracker.core.errors import TrackerError
from tracker.masking import Masked
from tracker.post.retry import LONGEST_US, SENT, Outcome
from tracker.post.secrets import read_secret
from tracker.post.tls import BadCertificates, certificate_trouble, trusting

_ANSWER: Final = 4_096
_LATER: Final = (401, 403, 404, 407, 408, 423, 425, 429)
"""Refusals that a person may mend, or that pass."""


class BadHook(TrackerError):
    """The URL of a webhook cannot be used; the message does not show it."""


def target(hook: Webhook) -> SplitResult:
    """Return where a webhook points; raises BadHook or SecretMissing, neither shows the URL."""
    text = read_secret(f"URL of webhook {hook.name}", file=hook.url_file, variable=hook.url_env)
    where = f"webhook {hook.name}: its URL"
    if not text.isascii() or not text.isprintable() or " " in text:
        raise BadHook(f"{where} holds characters that no URL has. Copy it again")
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        raise BadHook(f"{where} cannot be read. It must look like https://host/path") from None
    if url.scheme not in ("http", "https") or not url.hostname:
        raise BadHook(f"{where} must begin with https://")
    if url.username is not None:
        raise BadHook(f"{where} holds a user name: that is not supported")
    if url.scheme == "http" and not hook.plain_http and not _on_this_machine(url.hostname):
        raise BadHook(
            f"{where} is http://, which anybody on the way can read. Take https://, or set plain_http"
        )
    return url


def post(hook: Webhook, body: bytes, *, identity: str, uncertain_from_here: Callable[[], None]) -> Outcome:
    """Post a body; return how it went. `identity` lets a receiver know one that comes twice.

    `uncertain_from_here` is called once the receiver is there, before anything is sent.
    """
    try:
        url = target(hook)
    except TrackerError as error:
        return Outcome(kind="later", reason="secret", text=str(error))
    assert url.hostname is not None
    sent = False
    connection: http.client.HTTPConnection | None = None
    try:
        if url.scheme == "https":
            connection = http.client.HTTPSConnection(
                url.hostname, url.port, timeout=hook.timeout_s, context=trusting(hook.ca_file)
            )
        else:
            connection = http.client.HTTPConnection(url.hostname, url.port, timeout=hook.timeout_s)
        connection.connect()
        uncertain_from_here()
        sent = True
        connection.request("POST", _path(url), body, {
            "Content-Type": "application/json",
            "User-Agent": "run-telemetry",
            "Idempotency-Key": identity,
            "Connection": "close",
        })  # fmt: skip
        answer = connection.getresponse()
        said = answer.read(_ANSWER)
        return _answered(hook, answer.status, answer.getheader("Retry-After"), said, url)
    except (OSError, http.client.HTTPException, ValueError) as error:
        trouble = _trouble(hook, error)
        if sent:
            text = f"the message was sent, and then: {trouble.text}"
            return Outcome(kind="uncertain", reason="uncertain", text=text)
        return trouble
    finally:
        if connection is not None:
            connection.close()


def _answered(hook: Webhook, status: int, retry_after: str | None, said: bytes, url: SplitResult) -> Outcome:
    if 200 <= status < 300:
        return SENT
    text = f"webhook {hook.name} answered {status}"
    if 300 <= status < 400:
        return Outcome(kind="later", reason="protocol", text=f"{text}, a redirect: it is not followed")
    words = _printable(said.decode("utf-8", "replace"), url)
    text = f"{text}: {words}" if words else text
    if status in (401, 403, 404, 407):
        return Outcome(kind="later", reason="login", text=text)
    if status in _LATER or status >= 500:
        return Outcome(kind="later", reason="busy", text=text, wait_us=_wait_us(retry_after))
    return Outcome(kind="never", reason="size" if status == 413 else "message", text=text)


def _trouble(hook: Webhook, error: Exception) -> Outcome:
    name = f"webhook {hook.name}"
    if isinstance(error, BadCertificates):
        return Outcome(kind="later", reason="certificate", text=str(error))
    if isinstance(error, ssl.SSLCertVerificationError):
        return Outcome(kind="later", reason="certificate", text=f"{name}: {certificate_trouble(error)}")
    if isinstance(error, ssl.SSLError):
        return Outcome(kind="later", reason="tls", text=f"{name}: no TLS with it ({error.reason})")
    if isinstance(error, TimeoutError):
        return Outcome(kind="later", reason="timeout", text=f"{name} did not answer in time")
    if isinstance(error, socket.gaierror):
        return Outcome(kind="later", reason="network", text=f"{name}: no such machine is known")
    if isinstance(error, OSError):
        said = error.strerror or type(error).__name__
        return Outcome(kind="later", reason="network", text=f"{name}: {said}")
    return Outcome(kind="later", reason="protocol", text=f"{name}: {type(error).__name__}, no HTTP answer")


def _path(url: SplitResult) -> str:
    return (url.path or "/") + (f"?{url.query}" if url.query else "")


def _printable(text: str, url: SplitResult) -> str:
    """Return a receiver's words: one bounded line, and nothing of the URL that it might repeat."""
    parts = {url.path, url.query, *re.split(r"[/?&=]", f"{url.path}?{url.query}")}
    line = " ".join(Masked(*(part for part in parts if len(part) >= 6))(text).split())[:120]
    return "".join(c if c.isprintable() else "?" for c in line)


def _wait_us(retry_after: str | None) -> int | None:
    """Return what Retry-After asks for, where it says seconds; a date is by the other side's clock."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit() and len(text) <= 9:
        return min(int(text) * 1_000_000, LONGEST_US)
    return None


def _on_this_machine(host: str) -> bool:
    return host in {"localhost", "::1"} or host.startswith("127.")
