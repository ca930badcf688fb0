"""The Prometheus page: the families of `tracker/families.py` in the formats that scrapers ask for.

Edge: the only module that knows prometheus_client. A scrape touches neither store nor files. Every family
has HELP and TYPE even without a sample. No sample carries a time stamp, so that a series that goes turns
stale at once, and no counter a `_created` twin.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Iterator
from typing import Final

from tracker.families import FAMILIES, Family, Page
from tracker.lean import without

with without("http.server", "ssl", "urllib.error", "urllib.request", "wsgiref", "wsgiref.simple_server"):
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, generate_latest
    from prometheus_client.metrics_core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        InfoMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector

BUILD_INFO: Final = "tracker_build_info"


class Exporter:
    """Shows one page per run. `publish` swaps a run's page whole; scrapes may come at any time."""

    def __init__(self, *, version: str) -> None:
        self._pages: dict[str, Page] = {}
        self._version = version
        self._registry = CollectorRegistry()
        self._registry.register(_Families(self))
        ProcessCollector(registry=self._registry)

    def publish(self, page: Page) -> None:
        """Show this from now on for its run."""
        self._pages = {**self._pages, page.run: page}

    def forget(self, run: str) -> None:
        """Show a run no longer."""
        self._pages = {name: page for name, page in self._pages.items() if name != run}

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the page and its content type, in the format that an Accept header asks for."""
        try:
            encoder, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is no number
            encoder, content_type = generate_latest, CONTENT_TYPE_PLAIN_0_0_4
        return encoder(self._registry), content_type

    def families(self) -> Iterator[Metric]:
        """Yield every family, filled from the pages as they are now."""
        pages = list(self._pages.values())
        for family in FAMILIES:
            yield _fill(family, pages)
        build = InfoMetricFamily(BUILD_INFO.removesuffix("_info"), "Versions of the tracker and of Python.")
        build.add_metric([], {"version": self._version, "python": platform.python_version()})
        yield build


class _Families(Collector):
    """prometheus_client's side of the exporter."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        return self._exporter.families()

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: names are not looked up at registration."""
        return iter(())


def _fill(family: Family, pages: Iterable[Page]) -> Metric:
    names = ("run", *family.labels)
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


def _utf8(text: str) -> str:
    """Return text without lone surrogates, which no page can hold."""
    return text.encode("utf-8", "replace").decode()
