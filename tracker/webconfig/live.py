"""The web config in use: read again whenever it or a certificate changed, asked at every connection.

Edge. One that cannot be used leaves what was before, is told in the log, and shows in a metric; at the
start it is an error.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracker.core.errors import TrackerError
from tracker.interfaces import Clock
from tracker.serve import Request, Response
from tracker.webconfig.certificates import tls_context
from tracker.webconfig.parse import WebConfigError, WebSettings, parse, text_of
from tracker.webconfig.validity import Validity, validity

if TYPE_CHECKING:
    import ssl

    from tracker.logins import Logins

_log = logging.getLogger(__name__)


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
        self._told_of_end = ""
        self._read()
        self._tell_of_end()
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

    def _tell_of_end(self) -> None:
        """Warn once of a certificate that has expired or soon will: only clients notice, by refusing it."""
        dates = self._in_use.dates
        said = dates.said(self._clock.now_us()) if dates is not None else None
        text = said[1] if said is not None else ""
        with self._counting:
            known, self._told_of_end = self._told_of_end, text
        if text and text != known:
            _log.warning("the certificate of the web config: %s", text)

    def _is_unchanged(self) -> bool:
        return all(_stamp(path) == stamp for path, stamp in self._watched.items())

    def _read(self) -> None:
        """Read everything, and remember as what files it was read: each is looked at before it is opened."""
        before = self._now
        watched = {path: _stamp(path) for path in (self._path, *(before.settings.files if before else ()))}
        self._watched = watched
        settings = parse(text_of(self._path), self._path)
        watched |= {path: _stamp(path) for path in settings.files}
        context = tls_context(settings.tls, self._path) if settings.tls is not None else None
        if before is not None and (context is not None) is not self.tls:
            change = "TLS is gone from it" if self.tls else "TLS is new in it"
            raise WebConfigError(self._path, [f"{change}: that takes a restart"])
        dates = validity(settings.tls.cert_file) if settings.tls is not None else None
        self._take(settings, context, dates)
        self._watched = {path: watched[path] for path in (self._path, *settings.files)}

    def wrap(self, connection: socket.socket) -> socket.socket:
        """Return what to speak over: encrypted where there is TLS, with the certificate of now."""
        self.refresh()
        self._tell_of_end()
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
    def certificate_end_us(self) -> int | None:
        """When the server's certificate expires; None without one."""
        dates = self._in_use.dates
        return dates.end_us if dates is not None else None

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers that every answer gets."""
        return self._in_use.settings.headers

    def _take(self, settings: WebSettings, context: ssl.SSLContext | None, dates: Validity | None) -> None:
        before = self._now
        logins = None
        if settings.users:
            from tracker.logins import Logins

            same = before is not None and before.settings.users == settings.users
            logins = before.logins if same and before is not None else None
            logins = logins or Logins(settings.users, clock=self._clock)
        elif before is not None and before.settings.users:
            _log.warning("%s: there are no users any more: everybody is let in", self._path)
        self._now = _InUse(settings, context, logins, dates)
        self.loaded_us = self._clock.now_us()


@dataclass(frozen=True, slots=True)
class _InUse:
    settings: WebSettings
    context: ssl.SSLContext | None
    logins: Logins | None
    dates: Validity | None
    """When the server's certificate counts; None where there is none, or its dates cannot be told."""


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError as error:
        return (-(error.errno or 1),)
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
