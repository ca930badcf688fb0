"""Keeps forecasts that were made, so that they can be shown as a fan and scored later.

Edge. One row a moment and digest of inputs; a forecast never changes once made.
"""

from __future__ import annotations

from typing import Final

from tracker.store.writer import Writer

MOST_KEPT: Final = 20_000
"""Rows; the oldest beyond them go (208 days at one in 15 minutes)."""


def keep_forecast(writer: Writer, as_of_us: int, digest: str, body: str) -> None:
    """Keep a forecast, as JSON, under its moment and its inputs' digest."""
    with writer.transaction() as connection:
        connection.execute(
            "INSERT OR REPLACE INTO forecast (as_of_us, digest, body) VALUES (?, ?, ?)",
            (as_of_us, digest, body),
        )
        connection.execute(
            """
            DELETE FROM forecast
             WHERE as_of_us < (SELECT as_of_us FROM forecast ORDER BY as_of_us DESC LIMIT 1 OFFSET ?)
            """,
            (MOST_KEPT,),
        )
