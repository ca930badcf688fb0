"""How samples are written, and how those that are there already are read back: one class a format.

Edge: talks to a server. Both formats take samples of any age as far as the server does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from secrets import token_hex
from typing import Any, Final, Protocol

import msgspec

from tracker.backfill.server import Refused, Server
from tracker.core.errors import InvalidValue, TrackerError
from tracker.export.history import Labels, Line

Series = tuple[tuple[str, str], ...]
"""Name and labels of a series, sorted; `__name__` among them."""
Found = dict[Series, dict[int, float]]
"""Samples that are there, by series and millisecond."""
FORMATS: Final = ("auto", "remote-write", "victoriametrics-import")
_LOOK_S: Final = 0.25
_STILL_LOOKS: Final = 10
_MOST_LOOKS: Final = 600
"""Still for two and a half seconds; asked for a few minutes at most: somebody else may import for days."""
_WRITES: Final = ("/write", "/push", "/receive")


class Target(Protocol):
    """Where samples go."""

    most_samples: int
    """In one request."""
    atomic: bool
    """Whether a request that is refused leaves nothing behind."""
    lag_s: float
    """How long it may take until what was sent can be read."""
    doubled: int
    """How many samples the last answer of `present` held a second time."""

    def settle(self, pause: Callable[[float], object]) -> None:
        """Let what was sent before become readable, as far as the server can be asked to; `pause` waits."""
        ...

    def present(self, run: str, labels: Mapping[str, str], start_ms: int, end_ms: int) -> Found:
        """Return what is there between two moments, both included."""
        ...

    def send(self, lines: Iterable[Line]) -> None:
        """Write samples; raises NoAnswer, Broken or Refused."""
        ...

    def close(self) -> None:
        """Give the connections back."""
        ...


def series_of(name: str, labels: Labels) -> Series:
    """Return the series of a name and labels; an empty label is none."""
    return tuple(sorted((("__name__", name), *((key, value) for key, value in labels if value))))


def selector(run: str, labels: Mapping[str, str], *, asked: str = "") -> str:
    r"""Return what selects the samples of a run; `asked` makes it unlike any other, and selects the same.

    >>> selector('a "b"', {"job": "x"})
    '{__name__=~"training_.+",run="a \\"b\\"",job="x"}'
    >>> selector("a", {}, asked="7")
    '{__name__=~"training_.+",run="a",tracker_question!="7"}'
    """
    known = {"run": run.encode("utf-8", "replace").decode(), **labels}
    quoted = [f'{name}="{_escaped(value)}"' for name, value in known.items()]
    new = [f'tracker_question!="{asked}"'] if asked else []
    return "{" + ",".join(['__name__=~"training_.+"', *quoted, *new]) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def chosen(form: str, path: str) -> str:
    """Return the format that is meant for an address with this path."""
    if form != "auto":
        return form
    return "remote-write" if path.endswith(_WRITES) else "victoriametrics-import"


class Victoria:
    """VictoriaMetrics by its own import and export, JSON lines."""

    most_samples = 400_000
    atomic = False
    lag_s = 5.0
    doubled = 0

    def __init__(self, server: Server, reader: Server) -> None:
        """`reader` is where to ask: the same server, or a cluster's vmselect."""
        self._server, self._reader = server, reader
        self._base = server.path.removesuffix("/api/v1/import")
        self._read = reader.path.removesuffix("/api/v1/export").removesuffix("/api/v1/import")
        self._question = token_hex(8)

    def settle(self, pause: Callable[[float], object]) -> None:
        """Wait until the server has taken in what was sent, then make it flush what it holds in memory.

        A request whose sender was killed is still read and taken in, line by line. So the count of imported
        rows must stand still, with nothing under way, for a while: longer than twice the second for which
        VictoriaMetrics shows the same metrics page (seen in 1.79), else the page stands still by itself.

        It also keeps, for ten seconds, which series a selector had: one that found none would find none of
        the series that came since. What is asked after this is a new selector.
        """
        self._question = token_hex(8)
        try:
            before, still, looks = None, 0, 0
            while self.lag_s > 0 and still < _STILL_LOOKS and looks < _MOST_LOOKS:
                now = _taken(self._server.get(f"{self._base}/metrics", {}, patience=1.0))
                still = still + 1 if now == before and not now[0] else 0
                before, looks = now, looks + 1
                pause(_LOOK_S)
            self._server.get(f"{self._base}/internal/force_flush", {}, patience=1.0)
        except Refused:
            return  # a cluster, or a proxy that hides it

    def present(self, run: str, labels: Mapping[str, str], start_ms: int, end_ms: int) -> Found:
        """Return what is there between two moments, both included."""
        query = {
            "match[]": selector(run, labels, asked=self._question),
            "start": f"{(start_ms - 1) / 1000:.3f}",
            "end": f"{(end_ms + 1) / 1000:.3f}",
        }
        found: Found = {}
        read = 0
        for text in self._reader.get(f"{self._read}/api/v1/export", query).splitlines():
            row = _decoded(text, self._reader)
            own = found.setdefault(tuple(sorted(row["metric"].items())), {})
            for at_ms, value in zip(row["timestamps"], row["values"], strict=True):
                if value is not None and start_ms <= at_ms <= end_ms:
                    own[at_ms] = value
                    read += 1
        self.doubled = read - sum(map(len, found.values()))
        return found

    def send(self, lines: Iterable[Line]) -> None:
        """Write samples."""
        encode = msgspec.json.encode
        body = b"\n".join(
            encode({
                "metric": {"__name__": line.family.name, **dict(line.labels)},
                "values": line.values,
                "timestamps": line.times_ms,
            })
            for line in lines
        )
        self._server.post(f"{self._base}/api/v1/import", body, {"Content-Type": "application/json"})

    def close(self) -> None:
        """Give the connections back."""
        self._server.close()
        self._reader.close()


def _taken(page: bytes) -> tuple[float, float]:
    """Return what VictoriaMetrics is taking in at this moment, and how many rows were imported so far."""
    busy = rows = 0.0
    for line in page.decode("utf-8", "replace").splitlines():
        if line.startswith("vm_concurrent_insert_current"):
            busy += float(line.split()[-1])
        elif line.startswith("vm_rows_inserted_total") and 'type="vmimport"' in line:
            rows += float(line.split()[-1])
    return busy, rows


class RemoteWrite:
    """Any receiver of Prometheus remote write 1.0, read back through its PromQL interface."""

    most_samples = 50_000
    atomic = True
    lag_s = 0.0
    doubled = 0
    """A receiver of remote write refuses, or passes over, what it has."""

    def __init__(self, server: Server, reader: Server | None) -> None:
        """`reader` is the base of the query interface, without /api/v1; None: beside the write address."""
        self._compress = _snappy()
        self._server = server
        self._reader = reader if reader is not None else server
        path = self._reader.path
        self._read = path.removesuffix("/api/v1") if reader is not None else _beside(path)

    def settle(self, pause: Callable[[float], object]) -> None:
        """Do nothing: what was acknowledged can be read."""

    def present(self, run: str, labels: Mapping[str, str], start_ms: int, end_ms: int) -> Found:
        """Return what is there between two moments, both included."""
        query = {
            "query": f"{selector(run, labels)}[{end_ms - start_ms + 1}ms]",
            "time": f"{end_ms / 1000:.3f}",
        }
        body = _decoded(self._reader.get(f"{self._read}/api/v1/query", query), self._reader)
        found: Found = {}
        for row in body["data"]["result"]:
            own = found.setdefault(tuple(sorted(row["metric"].items())), {})
            for at_s, value in row["values"]:
                at_ms = round(at_s * 1000)
                if start_ms <= at_ms <= end_ms:
                    own[at_ms] = float(value)
        return found

    def send(self, lines: Iterable[Line]) -> None:
        """Write samples."""
        headers = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "snappy",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        }
        self._server.post(self._server.path, self._compress(write_request(lines)), headers)

    def close(self) -> None:
        """Give the connections back."""
        self._server.close()
        self._reader.close()


def write_request(lines: Iterable[Line]) -> bytes:
    """Return a protobuf WriteRequest: repeated TimeSeries (1) of Label (1: name, value) and Sample (2).

    A Sample is a double (1) and a varint of milliseconds (2).
    """
    parts: list[bytes] = []
    for line in lines:
        body = b"".join(
            _field(1, _field(1, name.encode()) + _field(2, value.encode()))
            for name, value in series_of(line.family.name, line.labels)
        ) + _samples(line)
        parts.append(_field(1, body))
    return b"".join(parts)


def _samples(line: Line) -> bytes:
    """Return the samples of a series, all at once: each is 18 bytes where its moment takes six."""
    import numpy as np  # noqa: TID251 - never in the sidecar: nothing there imports this

    times = np.asarray(line.times_ms, dtype=np.uint64)
    values = np.asarray(line.values, dtype="<f8")
    if len(times) and not 1 << 35 <= int(times.min()) <= int(times.max()) < 1 << 42:
        raise InvalidValue("a sample's moment", line.times_ms[0], "one between 1971 and 2109")
    rows = np.empty((len(times), 18), dtype=np.uint8)
    rows[:, 0:3] = (0x12, 0x10, 0x09)
    rows[:, 3:11] = values.view(np.uint8).reshape(-1, 8)
    rows[:, 11] = 0x10
    for place in range(6):
        group = (times >> np.uint64(7 * place)) & np.uint64(0x7F)
        rows[:, 12 + place] = group | np.uint64(0x80 if place < 5 else 0)
    return rows.tobytes()


def _field(number: int, body: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _beside(path: str) -> str:
    """Return where the query interface usually is, from the path of the write address."""
    if path.endswith("/api/v1/push"):  # Mimir, Cortex
        return path.removesuffix("/api/v1/push") + "/prometheus"
    return path.removesuffix("/write").removesuffix("/receive").removesuffix("/api/v1")


def _snappy() -> Any:
    try:
        from cramjam import snappy
    except ImportError:
        raise TrackerError(
            "remote write needs the package cramjam: pip install 'run-telemetry[backfill]'. "
            "VictoriaMetrics can do without: --format victoriametrics-import"
        ) from None

    def compress(body: bytes) -> bytes:
        return bytes(snappy.compress_raw(body))

    return compress


def _decoded(text: bytes, server: Server) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise TrackerError(
            f"{server.shown} answered a query with something that is no JSON. Is --read-url right?"
        ) from None
