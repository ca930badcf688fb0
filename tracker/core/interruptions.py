"""Why an attempt ended, and what the stop cost: cause, evidence, detection, restart, redone steps.

Pure. Every candidate cause keeps the line that proves it. The one nearest the root wins: a stated first
failure over its victims, hardware over what it brings down, anything over a bare watchdog; among equals
the earlier. The scheduler's word decides what kind of stop it was, the log's evidence why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tracker.core.attempts import Attempt
from tracker.core.records import CAUSES, LATEST_US, Event, Kind

PLANNED: Final = frozenset({"time_limit", "operator", "host_maintenance"})
_STATE_CAUSE: Final = {
    "TIMEOUT": "time_limit",
    "DEADLINE": "time_limit",
    "PREEMPTED": "preempted",
    "REQUEUED": "preempted",
    "OUT_OF_MEMORY": "out_of_memory",
    "CANCELLED": "operator",
    "REVOKED": "operator",
    "NODE_FAIL": "unknown",
    "BOOT_FAIL": "unknown",
    "LAUNCH_FAILED": "unknown",
    "FAILED": "unknown",
}
_FAILURE_STATES: Final = frozenset({"NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "FAILED", "OUT_OF_MEMORY"})
_DEPTH: Final = {
    **dict.fromkeys(CAUSES, 5),
    "silent_data_corruption": 8,
    "gpu_hbm": 8,
    "gpu_sram": 8,
    "gpu_thermal": 8,
    "gpu_system_processor": 8,
    **dict.fromkeys(("gpu", "nic", "ssd", "power_supply", "chassis", "io_board", "cpu", "system_memory"), 7),
    "network": 6,
    "out_of_memory": 6,
    "storage": 6,
    "divergence": 6,
    "preempted": 6,
    "software": 4,
    "time_limit": 3,
    "operator": 3,
    "nccl_watchdog": 2,
    "unknown": 0,
}
"""How near the root a cause stands: faults of parts bring the software down, which trips the watchdog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why an attempt ended."""

    kind: str
    """"planned", "unexpected" or "completed"."""
    end_kind: str
    """One of records.END_KINDS."""
    cause: str
    evidence: str = ""
    confidence: float = 0.0
    began_us: int | None = None
    """When the trouble began: when its line was written, less what the line says that it is old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """An attempt's end that was not the end of training."""

    number: int
    attempt: int
    """Number of the attempt that ended."""
    at_us: int
    kind: str
    cause: str
    evidence: str
    confidence: float
    detect_s: float | None
    """From the last sign of progress to the end of the attempt."""
    restart_s: float | None
    """From the end of the attempt to the first step of the next one that trains."""
    redo_steps: int
    """Steps that the next resume took out of the lineage."""
    redo_gpu_hours: float | None
    """What those steps had cost, at the attempt's own pace."""
    manual: bool | None
    """Whether a person had to act; None: not known."""
    began_us: int | None = None
    """When the trouble began, where a clock tells; a hang is as old as the watchdog's time-out."""
    judged: Verdict | None = None
    """What the evidence alone says, where a person has said otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the interruption table needs of an attempt's ledger."""

    first_us: int | None
    progress_us: int | None
    step_gpu_us: float | None
    """GPU-microseconds of one of its steps."""


def verdict(
    attempt: Attempt, events: Iterable[Event], *, quiet_us: int, stall_us: int | None
) -> Verdict | None:
    """Return why an attempt ended; None while it runs.

    `events` are those from its last reading on; `quiet_us` is the time without progress before its end,
    `stall_us` how long counts as a stall.
    """
    if attempt.running:
        return None
    if attempt.completed:
        return Verdict(kind="completed", end_kind="completed", cause="unknown", confidence=1.0)
    kept = list(events)
    best = _best(kept)
    leave = next((e for e in kept if e.kind is Kind.EXIT), None)
    row = attempt.row
    last = row is not None and (row.end_us is None or attempt.end_us == row.end_us)  # of its allocation
    state = row.state if row is not None and last else ""
    if state == "COMPLETED" and best is None and (leave is None or _said(leave) in (None, "completed")):
        return Verdict(
            kind="completed", end_kind="completed", cause="unknown", evidence=state, confidence=0.9
        )
    said = _STATE_CAUSE.get(state)
    if leave is not None and _said(leave) not in (None, "failed", "completed"):
        said = said if said in PLANNED or said == "preempted" else _exit_cause(leave)
    if said in ("time_limit", "operator", "preempted", "host_maintenance") and state not in _FAILURE_STATES:
        text = leave.text if leave is not None else f"scheduler: {state}"
        return _by_order(said, text, best, quiet_us, stall_us, attempt.end_us)
    if best is not None:
        return _from_event(best)
    if said is not None:
        return Verdict(
            kind="unexpected",
            end_kind="failed",
            cause=said,
            evidence=f"scheduler: {state}",
            confidence=0.6 if said != "unknown" else 0.3,
        )
    if leave is not None:
        return _from_event(leave)
    return Verdict(kind="unexpected", end_kind="failed", cause="unknown")


def _said(event: Event) -> str | None:
    kind = event.data.get("end_kind")
    return kind if isinstance(kind, str) else None


def _exit_cause(event: Event) -> str:
    cause = event.data.get("cause")
    return cause if isinstance(cause, str) and cause in CAUSES else (_said(event) or "unknown")


def _by_order(
    said: str, text: str, best: Event | None, quiet_us: int, stall_us: int | None, end_us: int | None
) -> Verdict:
    """Judge a stop that the scheduler or an operator ordered: a hang until the time limit is none."""
    hung = said == "time_limit" and stall_us is not None and quiet_us > stall_us
    troubled = said == "operator" and best is not None and bool(best.data.get("fatal"))
    if hung or troubled:
        if best is not None:
            return _from_event(best)
        return Verdict(
            kind="unexpected",
            end_kind=said,
            cause="unknown",
            evidence=f"{text} after {quiet_us / 6e7:.0f} minutes without progress",
            confidence=0.5,
            began_us=None if end_us is None else end_us - quiet_us,
        )
    kind = "planned" if said in PLANNED else "unexpected"
    return Verdict(kind=kind, end_kind=said, cause=said, evidence=text, confidence=0.9)


def _from_event(event: Event) -> Verdict:
    cause = _exit_cause(event)
    cause = cause if cause in CAUSES else "unknown"
    confidence = event.data.get("confidence")
    back = event.data.get("back_us")
    began = event.at_us - back if event.at_us is not None and isinstance(back, int) else event.at_us
    return Verdict(
        kind="planned" if event.kind is Kind.EXIT and cause in PLANNED else "unexpected",
        end_kind=_said(event) or ("preempted" if cause == "preempted" else "failed"),
        cause=cause,
        evidence=event.text,
        confidence=float(confidence) if isinstance(confidence, int | float) else 0.5,
        began_us=began,
    )


def _best(events: Sequence[Event]) -> Event | None:
    failures = [e for e in events if e.kind is Kind.FAILURE]
    if not failures:
        return None

    def near(event: Event) -> tuple[int, int, float, int]:
        cause = _exit_cause(event)
        confidence = event.data.get("confidence")
        sure = float(confidence) if isinstance(confidence, int | float) else 0.5
        depth = _DEPTH.get(cause, 0)
        late = event.at_us if event.at_us is not None else LATEST_US
        return (depth + (3 if event.data.get("root") else 0), int(bool(event.data.get("fatal"))), sure, -late)

    return max(failures, key=near)  # among equals the earlier; max keeps the first where no clock tells


def interruptions(
    attempts: Sequence[Attempt],
    verdicts: Sequence[Verdict | None],
    costs: Sequence[Cost],
    *,
    judged: Sequence[Verdict | None] | None = None,
    manual: Sequence[bool | None] | None = None,
) -> tuple[Interruption, ...]:
    """Return the interruptions in time order. The sequences go together, one entry an attempt.

    `judged` holds the verdicts before a person corrected them, `manual` what they said of themselves.
    """
    found: list[Interruption] = []
    before = verdicts if judged is None else judged
    for index, (attempt, why, cost) in enumerate(zip(attempts, verdicts, costs, strict=True)):
        if why is None or attempt.end_us is None or why.kind == "completed":
            continue
        restart = next((c.first_us for c in costs[index + 1 :] if c.first_us is not None), None)
        progress = cost.progress_us if cost.progress_us is not None else cost.first_us
        redo = _redone(attempts, index)
        found.append(
            Interruption(
                number=len(found) + 1,
                attempt=index + 1,
                at_us=attempt.end_us,
                kind=why.kind,
                cause=why.cause,
                evidence=why.evidence,
                confidence=why.confidence,
                detect_s=None if progress is None else max(0, attempt.end_us - progress) / 1e6,
                restart_s=None if restart is None else max(0, restart - attempt.end_us) / 1e6,
                redo_steps=redo,
                redo_gpu_hours=None if cost.step_gpu_us is None else redo * cost.step_gpu_us / 3.6e9,
                manual=None if manual is None else manual[index],
                began_us=why.began_us,
                judged=before[index] if before[index] != why else None,
            )
        )
    return tuple(found)


def _redone(attempts: Sequence[Attempt], index: int) -> int:
    """Return how many steps the next resume took out of the lineage."""
    last = attempts[index].last_step
    resumed = next((a.resume_step for a in attempts[index + 1 :] if a.resume_step is not None), None)
    return 0 if last is None or resumed is None else max(0, last - resumed)
