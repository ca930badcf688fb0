"""People's corrections laid over the verdicts: which attempt each belongs to, and what then holds.

Pure. `core/corrections.py` says what a correction is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tracker.core.attempts import Attempt
from tracker.core.corrections import Correction
from tracker.core.interruptions import PLANNED, Verdict
from tracker.core.records import END_KINDS

NEAR_US: Final = 60_000_000
"""An attempt whose name has changed is still meant if it ended within this much of what was corrected."""


def name_of(attempt: Attempt) -> str:
    """Return a name of an attempt that does not depend on who reads the logs, or in which order."""
    if attempt.pieces:
        piece = attempt.pieces[0]
        return f"log {piece.stream.identity} {piece.segment.first_offset}"
    assert attempt.row is not None
    return f"job {attempt.row.job_id} {attempt.row.start_us}"


def assigned(
    attempts: Sequence[Attempt], corrections: Sequence[Correction], *, as_of_us: int
) -> tuple[list[Correction | None], list[str]]:
    """Return what holds for each attempt as of a moment, and which corrections belong to none."""
    found: list[Correction | None] = [None] * len(attempts)
    lost = []
    names = [name_of(attempt) for attempt in attempts]
    for one in corrections:
        if one.made_us > as_of_us:
            continue
        ended = [n for n, attempt in enumerate(attempts) if attempt.end_us is not None]
        same = [n for n in ended if names[n] == one.attempt]
        near = same or [n for n in ended if abs((attempts[n].end_us or 0) - one.at_us) <= NEAR_US]
        if not near:
            if not one.withdraws:
                lost.append(f"the correction {one.note[:80]!r} by {one.by} belongs to no known interruption")
            continue
        best = min(near, key=lambda n: abs((attempts[n].end_us or 0) - one.at_us))
        found[best] = None if one.withdraws else one
    return found, lost


def corrected(verdict: Verdict | None, correction: Correction | None) -> Verdict | None:
    """Return a verdict as a person sees it; its evidence stays. Training that was completed stays so.

    >>> judged = Verdict(kind="unexpected", end_kind="failed", cause="nccl_watchdog", confidence=0.5)
    >>> said = Correction(attempt="x", at_us=0, made_us=0, by="ana", note="cable swapped", cause="network")
    >>> corrected(judged, said).cause, corrected(judged, said).kind
    ('network', 'unexpected')
    """
    if verdict is None or correction is None or verdict.kind == "completed":
        return verdict
    cause = correction.cause if correction.cause is not None else verdict.cause
    kind = correction.kind
    if kind is None:
        by_cause = "planned" if cause in PLANNED else "unexpected"
        kind = by_cause if correction.cause is not None else verdict.kind
    end_kind = verdict.end_kind
    if (cause, kind) != (verdict.cause, verdict.kind):
        fits = cause in END_KINDS and (kind == "planned" or cause == "preempted")
        end_kind = cause if fits else "failed"
    sure = 1.0 if correction.cause is not None else verdict.confidence
    return replace(verdict, cause=cause, kind=kind, end_kind=end_kind, confidence=sure)
