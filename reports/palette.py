"""Colours of the printed report: told apart by colour-blind readers, and dark enough on paper.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reports.page import Role, Tone

PAPER: Final[Mapping[Role, str]] = {
    "ink": "#1c2530",
    "muted": "#5d6875",
    "grid": "#e4e8ec",
    "run": "#1f4e79",
    "plan": "#6f7a86",
    "forecast": "#2b7bba",
    "good": "#1d7a5f",
    "warning": "#9a6200",
    "problem": "#ad2e24",
    "productive": "#2f6f9f",
    "lost": "#c8553d",
    "startup": "#e3a857",
    "checkpoint": "#7b8fa8",
    "evaluation": "#7fb3c8",
    "tail": "#96603c",
    "pending": "#c6ced8",
    "idle": "#a9b3bf",
    "other": "#6a4c93",
    "cause_gpu": "#d1440c",
    "cause_network": "#0b5cab",
    "cause_host": "#b0307a",
    "cause_software": "#e09f00",
    "cause_storage": "#008a6b",
    "cause_planned": "#5d6875",
    "cause_unknown": "#111111",
}
TONES: Final[Mapping[Tone, str]] = {
    "plain": PAPER["ink"],
    "good": PAPER["good"],
    "warning": PAPER["warning"],
    "problem": PAPER["problem"],
}
