"""A choice that a forecast is asked under: `--what-if`, as numbers.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A choice that a forecast is asked under; None: as it is."""

    gpus: int | None = None
    mfu_factor: float = 1.0
    """New over present rate per GPU."""
    restart_s: float | None = None
    checkpoint_every_s: float | None = None
    mtbf_factor: float = 1.0
