"""Certificates, web configs and a server that uses them, for the tests of TLS and logins."""

from __future__ import annotations

import base64
import datetime as dt
import http.client
import ssl
from pathlib import Path

import bcrypt
import trustme

from tracker.clock import SystemClock
from tracker.config import Listen
from tracker.serve import Answer, Server
from tracker.webconfig import WebConfig

LOOPBACK = Listen("127.0.0.1", 0)
PASSWORD = 'open "sesame" ü'
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
USERS = f"basic_auth_users:\n  prometheus: {HASH}\n"
TLS = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"


def certificates(
    folder: Path, *, name: str = "server", authority: trustme.CA | None = None,
    not_before: dt.datetime | None = None, not_after: dt.datetime | None = None,
) -> trustme.CA:  # fmt: skip
    """Write a certificate for localhost with its key, and the authority; return the authority."""
    made = authority or trustme.CA()
    issued = made.issue_cert("localhost", "127.0.0.1", "::1", not_before=not_before, not_after=not_after)
    (folder / f"{name}.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    (folder / f"{name}.key").write_bytes(issued.private_key_pem.bytes())
    (folder / "ca.pem").write_bytes(made.cert_pem.bytes())
    return made


def basic(login: str) -> str:
    """Return the Authorization header of a name and password, as "name:password"."""
    return f"Basic {base64.b64encode(login.encode()).decode()}"


class Served:
    """A server with a web config; asks it as a client would."""

    def __init__(self, folder: Path, text: str, answer: Answer, clock: SystemClock, **options: float) -> None:
        self.folder = folder
        self.path = folder / "web.yml"
        self.path.write_text(text)
        self.web = WebConfig(self.path, clock=clock)
        self.server = Server(LOOPBACK, answer, clock=clock, security=self.web, **options)  # type: ignore[arg-type]
        self.server.start()

    def get(
        self, path: str = "/", *, login: str | None = None, context: ssl.SSLContext | None = None,
        authorization: str | None = None,
    ) -> tuple[int, dict[str, str], bytes]:  # fmt: skip
        place = (self.server.listen.host, self.server.listen.port)
        client: http.client.HTTPConnection
        if self.server.tls:
            client = http.client.HTTPSConnection(*place, timeout=10, context=context or self.trusting())
        else:
            client = http.client.HTTPConnection(*place, timeout=10)
        headers = {}
        if login is not None:
            authorization = basic(login)
        if authorization is not None:
            headers["Authorization"] = authorization
        try:
            client.request("GET", path, headers=headers)
            response = client.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        finally:
            client.close()

    def trusting(self) -> ssl.SSLContext:
        """Return a context that trusts the authority in the folder, and no other."""
        return ssl.create_default_context(cafile=self.folder / "ca.pem")

    def stop(self) -> None:
        self.server.stop()
