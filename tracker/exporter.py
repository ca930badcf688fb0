"""The Prometheus page: the families of `tracker/families.py` in the formats that scrapers ask for.

Edge: the only module that knows prometheus_client. A scrape touches neither store nor files. Every family
has HELP and TYPE even without a sample. No sample carries a time stamp, so that a series that goes turns
stale at once, and no counter a `_created` twin.

The registry can be collected by prometheus_client's own encoders, and a page is byte for byte what they
would write; but a run's lines are made once, when it is published, and only put together at a scrape: a
thousand runs are a hundred thousand lines.
"""

from __future__ import annotations

import gzip
import math
import platform
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tracker.families import FAMILIES, Family, Page
from tracker.interfaces import Clock
from tracker.lean import without
from tracker.workings import PROCESS_FAMILIES, ProcessFamily, Workings

with without("http.server", "ssl", "urllib.error", "urllib.request", "wsgiref", "wsgiref.simple_server"):
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
    from prometheus_client.metrics_core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        InfoMetricFamily,
        Metric,
    )
    from prometheus_client.openmetrics import exposition as openmetrics
    from prometheus_client.registry import Collector
    from prometheus_client.utils import floatToGoString

BUILD_INFO: Final = "tracker_build_info"
TEXT: Final = CONTENT_TYPE_PLAIN_0_0_4
OPENMETRICS: Final = openmetrics.CONTENT_TYPE_LATEST
_SHARED: Final = 5.0
_DEAR_S: Final = 0.005
"""A page that took longer than this to make is given to everybody who asks within five times as long."""
_RUN: Final = "run"


class Exporter:
    """Shows one page per run. `publish` swaps a run's page whole; scrapes may come at any time."""

    def __init__(
        self, *, version: str, clock: Clock | None = None, workings: Callable[[], Workings] = Workings
    ) -> None:
        """`workings` tells of the process; without a clock no page is ever shared."""
        self._version = version
        self._clock = clock
        self._workings = workings
        self._runs: dict[str, _Lines] = {}
        self._state = 0
        """Changes whenever what is shown does."""
        self._of_process = CollectorRegistry()
        self._of_process.register(_Given(self.process_families))
        ProcessCollector(registry=self._of_process)
        self._making = threading.Lock()
        self._made: dict[tuple[bool, bool], _Made] = {}

    def publish(self, page: Page) -> None:
        """Show this from now on for its run."""
        known = self._runs.get(page.run)
        lines = _Lines(page, known)
        if known is not None:
            self._runs[page.run] = lines  # one swap: whoever is reading has the old page or the new one
        else:
            self._runs = {**self._runs, page.run: lines}
        self._state += 1

    def forget(self, run: str) -> None:
        """Show a run no longer."""
        self._runs = {name: lines for name, lines in self._runs.items() if name != run}
        self._state += 1

    def render(self, accept: str = "", *, packed: bool = False) -> tuple[bytes, str]:
        """Return the page, in the format that an Accept header asks for, and its content type."""
        modern = wants_openmetrics(accept)
        key = (modern, packed)
        made = self._made.get(key)
        if made is None or not self._is_fresh(made):
            with self._making:  # many scrapers at once make one page, not many
                made = self._made.get(key)
                if made is None or not self._is_fresh(made):
                    made = self._make(modern=modern, packed=packed)
                    self._made[key] = made
        return made.body, OPENMETRICS if modern else TEXT

    def registry(self) -> CollectorRegistry:
        """Return all that is shown, for prometheus_client's encoders: slower, and the same page."""
        made = CollectorRegistry()
        made.register(_Given(lambda: (_fill(family, self._pages()) for family in FAMILIES)))
        made.register(self._of_process)
        return made

    def process_families(self) -> Iterator[Metric]:
        """Yield the families of the process itself, as it is now."""
        now = self._workings()
        for family in PROCESS_FAMILIES:
            yield _fill_process(family, now)
        build = InfoMetricFamily(BUILD_INFO.removesuffix("_info"), "Versions of the tracker and of Python.")
        build.add_metric([], {"version": self._version, "python": platform.python_version()})
        yield build

    def _pages(self) -> list[Page]:
        return [lines.page for lines in self._runs.values()]

    def _is_fresh(self, made: _Made) -> bool:
        if self._clock is None:
            return False
        age_s = self._clock.monotonic_s() - made.at_s
        return made.took_s > _DEAR_S and age_s <= _SHARED * made.took_s

    def _make(self, *, modern: bool, packed: bool) -> _Made:
        began_s = self._clock.monotonic_s() if self._clock is not None else 0.0
        runs = list(self._runs.values())
        parts: list[bytes] = []
        for place, head in enumerate(_MODERN_HEADS if modern else _HEADS):
            parts.append(head)
            parts += [lines.of[place] for lines in runs]
        encode = openmetrics.generate_latest if modern else generate_latest
        parts.append(encode(self._of_process))
        body = b"".join(parts)
        if packed:
            body = gzip.compress(body, compresslevel=1, mtime=0)  # a tenth more bytes in half the time
        at_s = self._clock.monotonic_s() if self._clock is not None else 0.0
        return _Made(body, at_s, at_s - began_s)


@dataclass(frozen=True, slots=True)
class _Made:
    """One finished page."""

    body: bytes
    at_s: float
    took_s: float


class _Given(Collector):
    """prometheus_client's side of what is collected elsewhere."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        return iter(self._families())

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: names are not looked up at registration."""
        return iter(())


# -- lines ----------------------------------------------------------------------------------------------


class _Lines:
    """The sample lines of one run's page, family by family."""

    __slots__ = ("of", "page")

    def __init__(self, page: Page, before: _Lines | None) -> None:
        """Take over from `before` what its snapshot alone says, where that is the same one."""
        self.page = page
        run = f'run="{_escaped(_utf8(page.run))}"'
        same = before is not None and before.page.snapshot is page.snapshot
        self.of: tuple[bytes, ...] = tuple(
            before.of[place]
            if same and before is not None and family.name.startswith("training_")
            else _lines(family, page, run)
            for place, family in enumerate(FAMILIES)
        )


def _lines(family: Family, page: Page, run: str) -> bytes:
    text = ""
    for values, value in family.samples(page):
        if value is not None and math.isfinite(value):
            if values:
                pairs = [f'{n}="{_escaped(v)}"' for n, v in zip(family.labels, values, strict=True)]
                labels = ",".join(sorted([run, *pairs]))
            else:
                labels = run
            text += f"{family.name}{{{labels}}} {_go(value)}\n"
    return text.encode()


def _go(value: float) -> str:
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _head(family: Family, *, modern: bool) -> bytes:
    """Return HELP and TYPE of a family; OpenMetrics names a family without its samples' suffix."""
    name, kind = family.name, family.kind
    if modern:
        name = name.removesuffix("_total" if kind == "counter" else "_info" if kind == "info" else "")
        said = _escaped(family.help)
    else:
        kind = "gauge" if kind == "info" else kind
        said = family.help.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {said}\n# TYPE {name} {kind}\n".encode()


_HEADS: Final = tuple(_head(family, modern=False) for family in FAMILIES)
_MODERN_HEADS: Final = tuple(_head(family, modern=True) for family in FAMILIES)


# -- prometheus_client's families -----------------------------------------------------------------------


def _fill(family: Family, pages: Iterable[Page]) -> Metric:
    names = (_RUN, *family.labels)
    metric: Metric
    if family.kind == "counter":
        metric = CounterMetricFamily(family.name.removesuffix("_total"), family.help, labels=names)
    elif family.kind == "info":
        metric = InfoMetricFamily(family.name.removesuffix("_info"), family.help)
    else:
        metric = GaugeMetricFamily(family.name, family.help, labels=names)
    for page in pages:
        for values, value in family.samples(page):
            if value is not None and math.isfinite(value):
                labels = dict(zip(names, (_utf8(page.run), *values), strict=True))
                metric.add_sample(family.name, labels, value)
    return metric


def _fill_process(family: ProcessFamily, now: Workings) -> Metric:
    metric: Metric
    if family.kind == "counter":
        metric = CounterMetricFamily(family.name.removesuffix("_total"), family.help, labels=family.labels)
    else:
        metric = GaugeMetricFamily(family.name, family.help, labels=family.labels)
    for values, value in family.samples(now):
        if value is not None:
            metric.add_sample(family.name, dict(zip(family.labels, values, strict=True)), value)
    return metric


def _utf8(text: str) -> str:
    """Return text without lone surrogates, which no page can hold."""
    return text.encode("utf-8", "replace").decode()


# -- which format ---------------------------------------------------------------------------------------


def wants_openmetrics(accept: str) -> bool:
    """Tell whether an Accept header prefers OpenMetrics to plain text; what nobody can read prefers nothing.

    >>> wants_openmetrics("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3")
    True
    >>> wants_openmetrics("text/html,*/*;q=0.8")
    False
    """
    best = {True: 0.0, False: 0.0}
    for offer in accept[:4096].split(","):
        kind, *parameters = (part.strip().lower() for part in offer.split(";"))
        given = dict(part.split("=", 1) for part in parameters if "=" in part)
        modern = kind == "application/openmetrics-text"
        if not modern and kind not in {"text/plain", "text/*", "*/*"}:
            continue
        if modern and given.get("version", "1.0.0") != "1.0.0":
            continue
        best[modern] = max(best[modern], _weight(given.get("q", "1")))
    return best[True] > 0 and best[True] >= best[False]


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0
