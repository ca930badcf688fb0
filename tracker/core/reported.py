"""The framework's own claim of FLOP/s beside ours, and in one sentence why they differ.

Pure. Ours is model FLOP of the attempt's retained tokens over its productive GPU-seconds, by the method
that the snapshot names. The claim is kept as printed, in the framework's convention; it never becomes MFU.
"""

from __future__ import annotations

from typing import Final

from tracker.core.ledger import AttemptLine
from tracker.core.snapshot import Reported

AGREE: Final = 0.03
"""Claims within this share of ours are the same figure: printed step times are rounded and smoothed."""
RECOMPUTED: Final = 4 / 3
"""Hardware over model FLOP where every layer's forward pass runs twice."""


def beside_ours(line: AttemptLine, *, convention: str, flop_method: str | None) -> Reported:
    """Return an attempt's claim with ours beside it, and the sentence that explains the difference."""
    claim = line.reported_flop_per_s
    if claim is None:
        return Reported()
    worked_us = 0 if line.gpu_us is None else line.gpu_us["productive"]
    ours = line.flop / (worked_us / 1e6) if line.flop and worked_us else None
    return Reported(
        flop_per_s=claim,
        hardware=line.reported_hardware,
        convention=convention,
        ours_flop_per_s=ours,
        explained=explain(claim, ours, hardware=line.reported_hardware, flop_method=flop_method),
    )


def explain(claim: float, ours: float | None, *, hardware: bool, flop_method: str | None) -> str:
    """Say why a claimed rate differs from ours, or that it does not.

    >>> explain(150e12, 112.5e12, hardware=True, flop_method="6N")
    'The log counts recomputed activations: 1.33 times ours. That is a hardware rate, no MFU.'
    """
    if ours is None or ours <= 0:
        return "Ours is not known, so the log's claim stands alone."
    ratio = claim / ours
    if hardware:
        return (
            f"The log counts recomputed activations: {ratio:.2f} times ours. That is a hardware rate, no MFU."
        )
    if abs(ratio - 1) <= AGREE:
        return f"They agree ({ratio:.2f} times ours)."
    if abs(ratio / RECOMPUTED - 1) <= AGREE:
        return f"The log's is {ratio:.2f} times ours: as much as recomputed activations add."
    if ratio > 1:
        extra = "attention and logits" if flop_method == "6N" else "more of attention, or logits,"
        if ratio < 1.6:
            return f"The log's is {ratio:.2f} times ours: it counts {extra} beyond our {flop_method}."
        return (
            f"The log's is {ratio:.2f} times ours, more than a convention explains: check "
            f"model.active_params and the sequence length."
        )
    return (
        f"The log's is {ratio:.2f} times ours: it counts less than our {flop_method}, or "
        f"model.active_params holds parameters that do not work on every token (embeddings, idle experts)."
    )
