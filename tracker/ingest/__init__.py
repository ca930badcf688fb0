"""From the bytes that a job writes to rows in the store.

Edge. `Ingest` is given its collectors, its store and its clock; it knows no format.
"""

from __future__ import annotations

from tracker.ingest.health import IngestHealth, Pass, SourceHealth, Unrecognised
from tracker.ingest.run import Ingest, Progress

__all__ = ["Ingest", "IngestHealth", "Pass", "Progress", "SourceHealth", "Unrecognised"]
