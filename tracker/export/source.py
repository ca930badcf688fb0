"""A store opened for export: one committed state of it, for as long as the export takes.

Edge: reads the store. The write-ahead log of a running sidecar grows meanwhile, and shrinks again after.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tracker.config import Config
from tracker.core.errors import TrackerError
from tracker.core.forecast.value import Forecast
from tracker.core.records import LATEST_US
from tracker.export.history import S_US, History
from tracker.store import Reader, stored_version


class NothingStored(TrackerError):
    """There is no store to export from."""

    def __init__(self, config: Config) -> None:
        super().__init__(
            f"{config.store}: no store there yet. Run `tracker ingest --config {config.path}` first"
        )


@contextmanager
def opened(config: Config) -> Iterator[Reader]:
    """Open the store of a config at one committed state; raises NothingStored."""
    if not stored_version(config.store):
        raise NothingStored(config)
    with Reader(config.store) as reader, reader.snapshot():
        yield reader


@contextmanager
def history(config: Config, labels: Mapping[str, str]) -> Iterator[History]:
    """Open the past of a config's run."""
    with opened(config) as reader:
        kept = [Forecast.from_json(json.loads(body)) for body in reader.kept_forecasts(until_us=LATEST_US)]
        yield History(
            settings=config.settings,
            facts=reader,
            forecasts=kept,
            linger_us=round(config.serve.linger_s * S_US),
            labels=labels,
        )
