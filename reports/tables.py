"""A table as text, before anybody draws it.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text under headings."""

    title: str = ""
    headings: Sequence[str] = ()
    """One that begins with ">" stands over a column of numbers."""
    rows: Sequence[Sequence[str]] = ()
    foot: Sequence[str] | None = None
    """A last row, set apart."""
    notes: Sequence[str] = ()
    """Sentences below it."""
