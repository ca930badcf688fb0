"""What the HTTP server says to which path: metrics, health, the status page, the JSON documents.

Pure but for the clock that `/healthz` asks: everything else is a value that the sidecar left here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from tracker.core.documents import ledger_document, status_document
from tracker.core.snapshot import Snapshot
from tracker.exporter import Exporter
from tracker.families import Page
from tracker.interfaces import Clock
from tracker.serve import Request, Response
from tracker.vitals import Vitals

DEAD_AFTER_S: Final = 120.0
"""A loop that did not turn for that long is taken for dead, so that whoever watches restarts it."""
HTML: Final = "text/html; charset=utf-8"
JSON: Final = "application/json"

Render = Callable[[str, Snapshot | None, Vitals], str]
"""(run, snapshot, vitals) -> HTML."""


class Answers:
    """The sidecar leaves what is new; the server's threads take what is there."""

    def __init__(
        self, run: str, exporter: Exporter, render: Render, *, clock: Clock, linger_s: float
    ) -> None:
        self._run = run
        self._exporter = exporter
        self._render = render
        self._clock = clock
        self._linger_s = linger_s
        self._now: tuple[Snapshot | None, Vitals] = (None, Vitals(why_not_ready="starting"))
        self._beat_s = clock.monotonic_s()
        self._finished_s: float | None = None
        self.publish(*self._now)

    def beat(self) -> None:
        """Say that the loop turns."""
        self._beat_s = self._clock.monotonic_s()

    def publish(self, snapshot: Snapshot | None, vitals: Vitals) -> None:
        """Show this from now on. A run that finished stays on the metrics page for its linger time."""
        self.beat()
        self._now = (snapshot, vitals)
        if snapshot is None or snapshot.state != "finished":
            self._finished_s = None
        elif self._finished_s is None:
            self._finished_s = self._beat_s
        gone = self._finished_s is not None and self._beat_s - self._finished_s > self._linger_s
        self._exporter.publish(Page(self._run, None if gone else snapshot, vitals))

    def __call__(self, request: Request) -> Response:
        """Answer one request."""
        answer = _ROUTES.get(request.path)
        if answer is None:
            known = "\n".join(_ROUTES)
            return Response(status=404, body=f"Nothing here. There is:\n{known}\n".encode())
        return answer(self, request)

    def _metrics(self, request: Request) -> Response:
        body, content_type = self._exporter.render(request.headers.get("accept", ""))
        return Response(body=body, content_type=content_type)

    def _healthz(self, request: Request) -> Response:
        silent_s = self._clock.monotonic_s() - self._beat_s
        if silent_s > DEAD_AFTER_S:
            return Response(status=503, body=f"the loop has not turned for {silent_s:.0f} s\n".encode())
        return Response(body=b"ok\n")

    def _readyz(self, request: Request) -> Response:
        snapshot, vitals = self._now
        if vitals.ready and snapshot is not None:
            return Response(body=b"ready\n")
        return Response(status=503, body=f"not ready: {vitals.why_not_ready or 'starting'}\n".encode())

    def _page(self, request: Request) -> Response:
        snapshot, vitals = self._now
        body = self._render(self._run, snapshot, vitals).encode("utf-8", "replace")
        return Response(body=body, content_type=HTML)

    def _status(self, request: Request) -> Response:
        return self._document(status_document)

    def _ledger(self, request: Request) -> Response:
        return self._document(ledger_document)

    def _document(self, make: Callable[[Snapshot], dict[str, Any]]) -> Response:
        snapshot, vitals = self._now
        if snapshot is None:
            problem = {"error": f"no snapshot yet: {vitals.why_not_ready or 'starting'}"}
            return Response(status=503, body=_json(problem), content_type=JSON)
        return Response(body=_json(make(snapshot)), content_type=JSON)


def _json(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()


_ROUTES: Final[dict[str, Callable[[Answers, Request], Response]]] = {
    "/": Answers._page,
    "/metrics": Answers._metrics,
    "/healthz": Answers._healthz,
    "/readyz": Answers._readyz,
    "/api/v1/status": Answers._status,
    "/api/v1/ledger": Answers._ledger,
}
