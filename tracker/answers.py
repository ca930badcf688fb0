"""What the HTTP server says to which path: metrics, health, pages, JSON documents; of one run or of many.

Pure but for the clock that `/healthz` asks: everything else is a value that the sidecar left here.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, quote, unquote

from tracker.core.documents import interruptions_document, ledger_document, status_document
from tracker.core.forecast.document import forecast_document
from tracker.core.snapshot import Snapshot
from tracker.exporter import Exporter
from tracker.families import Page
from tracker.interfaces import Clock
from tracker.serve import Request, Response, takes_gzip
from tracker.vitals import Vitals

DEAD_AFTER_S: Final = 120.0
"""A loop that did not turn for that long is taken for dead, so that whoever watches restarts it."""
HTML: Final = "text/html; charset=utf-8"
JSON: Final = "application/json"
_MOST_NAMED: Final = 20
_MOST_PACKED: Final = 16
"""Pages kept compressed, for whoever asks next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is to be shown of one run from now on."""

    run: str
    snapshot: Snapshot | None = None
    vitals: Vitals = field(default_factory=Vitals)
    lingers: bool = True
    """Whether its own numbers stand on the metrics page; a run that finished long ago has left it."""


class Pages(Protocol):
    """Draws the pages for people."""

    policy: str
    """Their Content-Security-Policy."""

    def run(self, shown: Shown, *, alone: bool) -> str:
        """Return the page of one run, as HTML; the same object as long as it says the same."""
        ...

    def index(self, shown: Sequence[Shown]) -> str:
        """Return the page of several runs, as HTML; `run_path` tells where each one's page is."""
        ...

    def report(self, run: str) -> tuple[str, bytes] | None:
        """Return file name and content of the latest printed report of a run; None where there is none."""
        ...


def run_path(run: str) -> str:
    """Return the path of a run's page.

    >>> run_path("a/b c")
    '/runs/a%2Fb%20c'
    """
    return f"/runs/{quote(run, safe='', errors='replace')}"


class Answers:
    """The sidecar leaves what is new; the server's threads take what is there."""

    def __init__(self, exporter: Exporter, pages: Pages, *, clock: Clock) -> None:
        self._exporter = exporter
        self._pages = pages
        self._clock = clock
        self._runs: Mapping[str, Shown] = {}
        self._packed: OrderedDict[str, _Packed] = OrderedDict()
        self._lock = threading.Lock()
        self._beat_s = clock.monotonic_s()

    def beat(self) -> None:
        """Say that the loop turns."""
        self._beat_s = self._clock.monotonic_s()

    def publish(self, shown: Shown) -> None:
        """Show this from now on of its run."""
        self.beat()
        if shown.run in self._runs:
            self._runs[shown.run] = shown  # type: ignore[index]  # replaced whole, never half
        else:
            self._runs = {**self._runs, shown.run: shown}
        self._exporter.publish(Page(shown.run, shown.snapshot if shown.lingers else None, shown.vitals))

    def forget(self, run: str) -> None:
        """Show a run no longer."""
        self._runs = {name: shown for name, shown in self._runs.items() if name != run}
        self._exporter.forget(run)

    def __call__(self, request: Request) -> Response:
        """Answer one request."""
        if request.path.startswith("/runs/"):
            run = unquote(request.path.removeprefix("/runs/"))
            return self._of(run, lambda shown: self._page(shown, request))
        answer = _ROUTES.get(request.path)
        if answer is None and request.path.startswith("/api/"):
            return _error(
                404, f"nothing here. There is: {', '.join(r for r in _ROUTES if r.startswith('/api/'))}"
            )
        if answer is None:
            known = "\n".join([*_ROUTES, run_path("NAME")])
            return Response(status=404, body=f"Nothing here. There is:\n{known}\n".encode())
        return answer(self, request)

    # -- which run -----------------------------------------------------------------------------------

    def _asked(self, request: Request, answer: Callable[[Shown], Response]) -> Response:
        """Answer for the run that `?run=` names, or for the only one."""
        named = parse_qs(request.query, keep_blank_values=True).get("run", [])
        if named:
            return self._of(named[-1], answer)
        runs = self._runs
        if len(runs) == 1:
            return answer(next(iter(runs.values())))
        return _problem(400, "there are several runs: name one, as in ?run=NAME", runs)

    def _of(self, run: str, answer: Callable[[Shown], Response]) -> Response:
        shown = self._runs.get(run)
        return _problem(404, "there is no run of that name", self._runs) if shown is None else answer(shown)

    # -- the answers ---------------------------------------------------------------------------------

    def _metrics(self, request: Request) -> Response:
        packed = takes_gzip(request.headers)
        body, content_type = self._exporter.render(request.headers.get("accept", ""), packed=packed)
        headers = {"Content-Encoding": "gzip"} if packed else {}
        return Response(body=body, content_type=content_type, headers=headers)

    def _healthz(self, request: Request) -> Response:
        silent_s = self._clock.monotonic_s() - self._beat_s
        if silent_s > DEAD_AFTER_S:
            return Response(status=503, body=f"the loop has not turned for {silent_s:.0f} s\n".encode())
        return Response(body=b"ok\n")

    def _readyz(self, request: Request) -> Response:
        """Of several runs all must be ready, but for those whose store fails: they would hold up the rest."""
        runs = self._runs
        named = parse_qs(request.query, keep_blank_values=True).get("run", [])
        if named:
            runs = {run: shown for run, shown in runs.items() if run == named[-1]}
        waiting = [shown for shown in runs.values() if not _is_ready(shown)]
        if named and not runs:
            return Response(status=503, body=b"not ready: there is no run of that name\n")
        if len(runs) == 1 and waiting:
            return Response(status=503, body=f"not ready: {_why(waiting[0])}\n".encode("utf-8", "replace"))
        failing = [shown for shown in waiting if shown.vitals.store_up is False]
        if not runs or len(waiting) > len(failing) or len(failing) == len(runs):
            lines = [f"not ready: {len(waiting)} of {len(runs)} runs"]
            lines += [f"{shown.run}: {_why(shown)}" for shown in waiting[:_MOST_NAMED]]
            return Response(
                status=503, body="".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
            )
        lines = ["ready", *(f"but {shown.run}: {_why(shown)}" for shown in failing[:_MOST_NAMED])]
        return Response(body="".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))

    def _front(self, request: Request) -> Response:
        if "run=" in request.query or len(self._runs) == 1:
            return self._asked(request, lambda shown: self._page(shown, request))
        return self._html("", self._pages.index(list(self._runs.values())), request)

    def _page(self, shown: Shown, request: Request) -> Response:
        page = self._pages.run(shown, alone=len(self._runs) == 1)
        return self._html(run_path(shown.run), page, request)

    def _html(self, name: str, page: str, request: Request) -> Response:
        """Return a page, compressed once for all who ask while it says the same."""
        with self._lock:
            kept = self._packed.get(name)
            if kept is None or kept.page is not page:
                kept = self._packed[name] = _Packed.of(page)
            self._packed.move_to_end(name)
            while len(self._packed) > _MOST_PACKED:
                self._packed.popitem(last=False)
        headers = {"Content-Security-Policy": self._pages.policy, "ETag": kept.tag}
        if _has(request, kept.tag):
            return Response(status=304, body=b"", content_type=HTML, headers=headers)
        if takes_gzip(request.headers):
            headers["Content-Encoding"] = "gzip"
            return Response(body=kept.packed, content_type=HTML, headers=headers)
        return Response(body=kept.page.encode("utf-8", "replace"), content_type=HTML, headers=headers)

    def _report(self, request: Request) -> Response:
        return self._asked(request, self._printed)

    def _printed(self, shown: Shown) -> Response:
        try:
            found = self._pages.report(shown.run)
        except OSError as error:
            return Response(status=503, body=f"The report cannot be read: {error.strerror}.\n".encode())
        if found is None:
            return Response(status=404, body=b"There is no printed report of this run yet.\n")
        name, body = found
        headers = {"Content-Disposition": f'inline; filename="{name}"'}
        return Response(body=body, content_type="application/pdf", headers=headers)

    def _list(self, request: Request) -> Response:
        runs = [
            {
                "run": shown.run,
                "state": shown.snapshot.state if shown.snapshot is not None else None,
                "ready": _is_ready(shown),
                "problems": list(shown.vitals.problems),
            }
            for shown in self._runs.values()
        ]
        return Response(body=_json({"schema": 1, "runs": runs}), content_type=JSON)

    def _status(self, request: Request) -> Response:
        return self._asked(request, lambda shown: _document(shown, request, status_document))

    def _ledger(self, request: Request) -> Response:
        return self._asked(request, lambda shown: _document(shown, request, ledger_document))

    def _interruptions(self, request: Request) -> Response:
        return self._asked(request, lambda shown: _document(shown, request, interruptions_document))

    def _forecast(self, request: Request) -> Response:
        return self._asked(request, lambda shown: _document(shown, request, _foreseen))


@dataclass(frozen=True, slots=True)
class _Packed:
    """A page as it is sent."""

    page: str
    packed: bytes
    tag: str

    @classmethod
    def of(cls, page: str) -> _Packed:
        """Compress a page."""
        body = page.encode("utf-8", "replace")
        return cls(page, gzip.compress(body, compresslevel=6, mtime=0), _tag(body))


def _tag(body: bytes) -> str:
    """Return a name for what is sent: weak, as the bytes differ with compression."""
    return f'W/"{hashlib.sha256(body).hexdigest()[:24]}"'


def _has(request: Request, tag: str) -> bool:
    """Tell whether the client says that it has this already."""
    said = request.headers.get("if-none-match", "")
    return said == "*" or tag.removeprefix("W/") in {
        one.strip().removeprefix("W/") for one in said.split(",") if one.strip()
    }


def _is_ready(shown: Shown) -> bool:
    return shown.vitals.ready and shown.snapshot is not None


def _why(shown: Shown) -> str:
    return shown.vitals.why_not_ready or "starting"


def _problem(status: int, what: str, runs: Mapping[str, Shown]) -> Response:
    return Response(status=status, body=_json({"error": what, "runs": list(runs)}), content_type=JSON)


def _error(status: int, what: str) -> Response:
    return Response(status=status, body=_json({"error": what}), content_type=JSON)


def _document(shown: Shown, request: Request, make: Callable[[Snapshot], Any]) -> Response:
    """Return what `--json` prints of the same moment, byte for byte."""
    if shown.snapshot is None:
        return _error(503, f"no snapshot yet: {_why(shown)}")
    made = make(shown.snapshot)
    if made is None:
        return _error(503, f"no forecast yet: {_why(shown)}")
    body = _json(made)
    tag = _tag(body)
    if _has(request, tag):
        return Response(status=304, body=b"", content_type=JSON, headers={"ETag": tag})
    return Response(body=body, content_type=JSON, headers={"ETag": tag})


def _foreseen(snapshot: Snapshot) -> dict[str, Any] | None:
    if snapshot.forecast is None:
        return None
    return forecast_document(snapshot.run, snapshot.forecast, plan_finish_us=snapshot.plan_finish_us)


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()


_ROUTES: Final[dict[str, Callable[[Answers, Request], Response]]] = {
    "/": Answers._front,
    "/report.pdf": Answers._report,
    "/metrics": Answers._metrics,
    "/healthz": Answers._healthz,
    "/readyz": Answers._readyz,
    "/api/v1/runs": Answers._list,
    "/api/v1/status": Answers._status,
    "/api/v1/ledger": Answers._ledger,
    "/api/v1/interruptions": Answers._interruptions,
    "/api/v1/forecast": Answers._forecast,
}
