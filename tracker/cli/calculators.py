"""The calculators' commands in one place, for the root command to load by name.

Edge.
"""

from __future__ import annotations

from tracker.cli.plan import plan
from tracker.cli.references import backsolve, convert, references
from tracker.cli.reliability import goodput, mtbf

__all__ = ["backsolve", "convert", "goodput", "mtbf", "plan", "references"]
