"""What a correct ledger says of a simulated run at a moment: the design's words, applied to what happened.

Pure. Everything comes from the state machine (`machine.py`) and from what the format can tell
(`sight.py`); no text is read. The rules, each with the design's word for it:

 1. *Attempt*: a new allocation begins and ends where the scheduler says; a process inside the same job
    begins at its first stamped line, and there the one before ends. No time lies between.
 2. *Reading*: a training line, and the start of a save. *Window*: the steps between two readings; its
    time is the time of these steps, without evaluations and saves. The first window begins with the
    first step. Compilation inside the first step belongs to it: it is not start-up.
 3. *Lineage*: a resume at R (known once the checkpoint is loaded) cuts what lies above R. A resume above
    the lineage's end returns to the latest earlier attempt whose readings reach R, with all that this one
    had below it. Where no attempt reached R, the steps between are unseen.
 4. *productive* and *lost*: a window's time, by the share of its steps that lie in the lineage; where a
    save's start is stamped it is a reading, so the windows meet there and nothing is shared out.
 5. *startup*: the beginning to the first step. Without a window: to the last stamped start-up line, and
    tail from there; nothing but tail where there is no such line. Running without a window: all of it is
    startup for 3 x the usual start-up (the median of those before; without any, no limit), and after that
    as if it had ended.
 6. *checkpoint*: blocking parts of saves that ended; *evaluation*: evaluations that ended. One that was cut
    off, or has not ended, is what follows the last sign of progress.
 7. *tail* and *pending*: after the last sign of progress (reading, end of a save's blocking part, end of
    an evaluation). A background write that becomes durable is no sign. Pending holds up to 3 x the
    median of the last 20 intervals between training lines; with fewer than 3 intervals, that of the latest
    attempt before that has them; where none has, no limit.
 8. *idle*: GPUs beyond the world size, for the whole attempt; every other bucket is the world size x time.
 9. *at risk*: lineage steps above its highest checkpoint that is durable by then.
10. *inherited* steps and tokens come before the first attempt and are in no other figure.
11. An attempt whose end lies after `as_of` is running, and what happens later is not known.

`other` is 0 in truth: a simulated attempt does nothing besides. A format that does not say how long an
evaluation took (see `sight.py`) cannot show it: it stays inside its window.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from statistics import median_low
from typing import Any, Final

from tests.simulator.machine import Attempt, Run
from tests.simulator.sight import SIGHTS, Mark, Sight, begin, marks, signs_of_start

BUCKETS: Final = (
    "productive", "lost", "startup", "checkpoint", "evaluation", "tail", "pending", "idle", "other",
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class AttemptTruth:
    """What the ledger must say of one attempt. Moments are UTC microseconds, buckets GPU-microseconds."""

    attempt: int
    job_id: str
    start_us: int
    end_us: int | None
    """None: running at the moment."""
    gpus: int
    """As billed, hot spares included."""
    world: int
    resumed_from: int | None
    """None: not known yet."""
    last_step: int | None
    """By the last reading; None without one."""
    end_kind: str | None = None
    cause: str | None = None
    stalled: bool = False
    windows: int = 0
    guessed_us: int = 0
    """Wall time of steps whose end only a save without a stamp tells: nobody can know it but by their usual
    pace."""
    buckets: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BUCKETS, 0))
    net_steps: int = 0
    processed_steps: int = 0
    net_tokens: int = 0
    processed_tokens: int = 0
    allocated: int = 0
    """GPU-microseconds; the buckets sum to it."""
    last_sign_us: int | None = None
    patience_us: int | None = None
    """How long without a sign counts as a stall: 3 x the usual interval; None: not known."""


@dataclass(slots=True, kw_only=True)
class Interruption:
    """An attempt's end that was not the end of training."""

    attempt: int
    at_us: int
    kind: str
    """How it ended, by `records.END_KINDS`."""
    planned: bool
    """A limit, a maintenance or an operator's stop; a limit that ended a hang is none."""
    cause: str | None
    detect_us: int
    """Last sign of progress to the attempt's end."""
    restart_us: int | None
    """The attempt's end to the first step of the next one that trains; None: not there yet."""
    redo_steps: int
    """Its steps above where the next attempt that loads a checkpoint resumes, by the last reading."""


@dataclass(slots=True, kw_only=True)
class Truth:
    """What a correct tracker answers at a moment."""

    as_of_us: int
    state: str
    """waiting, starting, running, stalled, down, finished."""
    attempts: list[AttemptTruth]
    interruptions: list[Interruption]
    net_steps: int
    processed_steps: int
    at_risk_steps: int
    unseen_steps: int
    inherited_steps: int
    last_step: int | None
    net_tokens: int
    processed_tokens: int
    inherited_tokens: int
    total: dict[str, int]
    allocated: int

    @property
    def goodput(self) -> float | None:
        """Return productive / (allocated - pending); None where nothing is allocated."""
        billed = self.allocated - self.total["pending"]
        return self.total["productive"] / billed if billed else None

    def mfu(self, run: Run) -> float | None:
        """Return 6 N x net tokens / (productive GPU-seconds x peak); None without productive time."""
        p, productive = run.parameters, self.total["productive"]
        if not productive:
            return None
        return 6 * p.active_params * self.net_tokens / (productive / 1e6 * p.peak_flop_per_s)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, for a person or another program."""
        from dataclasses import asdict

        return {**asdict(self), "goodput_ratio": self.goodput}


@dataclass(slots=True)
class _Piece:
    attempt: int
    """0: unseen."""
    low: int
    high: int


@dataclass(slots=True)
class _Seen:
    """One attempt as it could be seen at the moment."""

    attempt: Attempt
    start_us: int
    end_us: int | None
    marks: list[Mark]
    loaded: bool

    @property
    def last(self) -> int:
        return self.marks[-1].step if self.marks else self.attempt.resume_step


def truth(run: Run, *, as_of_us: int | None = None, sight: Sight | None = None) -> Truth:
    """Return what a correct tracker says at a moment (the end of the observation where None)."""
    now = run.now_us if as_of_us is None else as_of_us
    look = SIGHTS[run.parameters.style] if sight is None else sight
    seen = _see(run, look, now)
    lineage = _lineage(run, seen)
    rows: list[AttemptTruth] = []
    start_ups: list[int] = []
    gaps_before: list[int] = []
    for view in seen:
        row = _row(run, view, look, lineage, now, gaps_before, start_ups)
        rows.append(row)
        gaps = _gaps(view.marks)
        gaps_before = gaps if len(gaps) >= 3 else gaps_before
        if view.marks and view.attempt.train_us is not None:
            start_ups.append(view.attempt.train_us - view.start_us)
    inherited = run.parameters.inherited_steps
    end = lineage[-1].high if lineage else inherited
    total = {name: sum(row.buckets[name] for row in rows) for name in BUCKETS}
    return Truth(
        as_of_us=now,
        state=_state(rows, seen),
        attempts=rows,
        interruptions=_interruptions(rows, seen, now),
        net_steps=sum(piece.high - piece.low for piece in lineage),
        processed_steps=sum(row.processed_steps for row in rows),
        at_risk_steps=end - _durable(run, seen, lineage, now),
        unseen_steps=sum(piece.high - piece.low for piece in lineage if not piece.attempt),
        inherited_steps=inherited,
        last_step=next((row.last_step for row in reversed(rows) if row.last_step is not None), None),
        net_tokens=sum(row.net_tokens for row in rows),
        processed_tokens=sum(row.processed_tokens for row in rows),
        inherited_tokens=run.inherited_samples * run.parameters.sequence_length,
        total=total,
        allocated=sum(row.allocated for row in rows),
    )


def _see(run: Run, look: Sight, now: int) -> list[_Seen]:
    """Return the attempts that could be known, with their bounds as they could be known."""
    scheduler = run.parameters.scheduler
    seen: list[_Seen] = []
    for attempt in run.attempts:
        start = begin(attempt, look, scheduler=scheduler)
        if start is None or start > now:
            continue
        if seen and (attempt.in_job or not scheduler) and seen[-1].end_us is None:
            seen[-1].end_us = start
        end = attempt.end_us
        if attempt.gone_us is None or (end is not None and end > now):
            end = None
        if not scheduler:
            end = _end_line(attempt, look, now)
        elif _goes_on(run, attempt):
            end = None  # the next process's first line ends it
        seen.append(
            _Seen(
                attempt,
                start,
                end,
                marks(run.parameters, attempt, look, until_us=now),
                attempt.load_us is not None and attempt.load_us <= now,
            )
        )
    return seen


def _goes_on(run: Run, attempt: Attempt) -> bool:
    following = run.attempts[attempt.number] if attempt.number < len(run.attempts) else None
    return following is not None and following.in_job


def _end_line(attempt: Attempt, look: Sight, now: int) -> int | None:
    """Return the stamp of the line that ends an attempt, where no scheduler tells its end."""
    stamped = {"done", "exit_duration", "preempt_saved", "cancel_saved", "cancel", "limit", "preempt"}
    if look.event_us is None or attempt.how not in stamped or attempt.gone_us is None:
        return None
    return attempt.gone_us if attempt.gone_us <= now else None


def _lineage(run: Run, seen: list[_Seen]) -> list[_Piece]:
    pieces: list[_Piece] = []
    below: dict[int, list[_Piece]] = {}
    by_number = {view.attempt.number: view for view in seen}
    base = run.parameters.inherited_steps
    for view in seen:
        if not view.loaded:
            continue
        resume, number = view.attempt.resume_step, view.attempt.number
        end = pieces[-1].high if pieces else base
        if resume > end:
            earlier = [n for n in below if by_number[n].attempt.resume_step < resume <= by_number[n].last]
            if earlier:
                origin = max(earlier)
                pieces = [*below[origin], _Piece(origin, by_number[origin].attempt.resume_step, resume)]
            else:
                pieces = [*pieces, _Piece(0, end, resume)]
        else:
            pieces = [_Piece(p.attempt, p.low, min(p.high, resume)) for p in pieces if p.low < resume]
        below[number] = pieces
        if view.last > resume:
            pieces = [*pieces, _Piece(number, resume, view.last)]
    return pieces


def _durable(run: Run, seen: list[_Seen], lineage: list[_Piece], now: int) -> int:
    """Return the lineage's highest step that could be loaded again at the moment."""
    best = run.parameters.inherited_steps
    by_number = {view.attempt.number: view.attempt for view in seen}
    for piece in lineage:
        best = max(best, piece.low)  # what was resumed from was durable
        for block in by_number[piece.attempt].blocks if piece.attempt else ():
            if (
                block.kind == "save"
                and piece.low < block.step <= piece.high
                and block.durable_us is not None
                and block.durable_us <= now
            ):
                best = max(best, block.step)
    return best


def _gaps(found: list[Mark]) -> list[int]:
    times = [mark.at_us for mark in found if not mark.save]
    return [b - a for a, b in pairwise(times)][-20:]


def _row(
    run: Run,
    view: _Seen,
    look: Sight,
    lineage: list[_Piece],
    now: int,
    gaps_before: list[int],
    start_ups: list[int],
) -> AttemptTruth:
    a, p = view.attempt, run.parameters
    until = view.end_us if view.end_us is not None else now
    known_world = a.first_line_us is not None and a.first_line_us <= now
    world = a.world
    gpus = a.job.gpus if p.scheduler else a.world
    row = AttemptTruth(
        attempt=a.number,
        job_id=a.job.job_id,
        start_us=view.start_us,
        end_us=view.end_us,
        gpus=gpus,
        world=world,
        resumed_from=a.resume_step if view.loaded else None,
        last_step=view.last if view.marks else None,
        allocated=gpus * (until - view.start_us),
    )
    if not known_world:
        world = gpus
    if view.end_us is not None:
        row.end_kind, row.cause = a.end_kind, a.cause
    us = dict.fromkeys(BUCKETS, 0)
    if view.marks:
        assert a.train_us is not None
        us["startup"] = a.train_us - view.start_us
        sign = _work(view, look, lineage, now, until, us, row, p.sequence_length)
        row.last_sign_us = sign
        rest = until - sign
        gaps = _gaps(view.marks)
        gaps = gaps if len(gaps) >= 3 else gaps_before
        limit = row.patience_us = 3 * median_low(gaps) if gaps else None
        row.stalled = view.end_us is None and limit is not None and rest > limit
        if view.end_us is not None:
            us["tail"] = rest
        elif row.stalled:
            assert limit is not None
            us["pending"], us["tail"] = 0, rest
        else:
            us["pending"] = rest
    else:
        waited = until - view.start_us
        limit = 3 * median_low(start_ups) if start_ups else waited
        row.stalled = view.end_us is None and waited > limit
        if view.end_us is not None or row.stalled:
            signs = [s for s in signs_of_start(a, look) if view.start_us <= s <= min(now, until)]
            us["startup"] = signs[-1] - view.start_us if signs else 0
        else:
            us["startup"] = waited
        us["tail"] = waited - us["startup"]
    row.buckets = {name: world * us[name] for name in BUCKETS}
    row.buckets["idle"] = (gpus - world) * (until - view.start_us)
    assert sum(row.buckets.values()) == row.allocated, "the truth itself must close"
    assert all(value >= 0 for value in row.buckets.values())
    return row


def _work(
    view: _Seen,
    look: Sight,
    lineage: list[_Piece],
    now: int,
    until: int,
    us: dict[str, int],
    row: AttemptTruth,
    sequence_length: int,
) -> int:
    """Add an attempt's windows, saves and evaluations; return its last sign of progress."""
    a = view.attempt
    total = [0, *accumulate(a.durations)]
    samples = [a.resume_samples, *a.samples]
    base = a.resume_step
    kept = [piece for piece in lineage if piece.attempt == a.number]
    retained = kept[-1].high if kept else base  # an attempt's part of the lineage is its lower end
    sign, low = a.train_us or 0, base
    unknown = [b for b in a.blocks if b.kind == "eval" and not look.evaluation_timed]
    for mark in view.marks:
        span = total[mark.step - base] - total[low - base]
        span += sum(b.end_us - b.start_us for b in unknown if b.end_us and sign <= b.start_us < mark.at_us)
        steps = mark.step - low
        good = span * min(max(retained - low, 0), steps) // steps
        us["productive"] += good
        us["lost"] += span - good
        if mark.save and not look.saves_timed:
            row.guessed_us += span
        sign, low = mark.at_us, mark.step
    row.windows = len(view.marks)
    for block in a.blocks:
        if block.end_us is None or block.end_us > min(now, until):
            continue
        if block.kind == "save":
            us["checkpoint"] += block.end_us - block.start_us
            sign = max(sign, block.end_us)
        elif look.evaluation_timed:
            us["evaluation"] += block.end_us - block.start_us
            sign = max(sign, block.end_us)
    row.processed_steps = view.last - base
    row.net_steps = retained - base
    row.processed_tokens = (samples[view.last - base] - samples[0]) * sequence_length
    row.net_tokens = (samples[retained - base] - samples[0]) * sequence_length
    return sign


def _interruptions(rows: list[AttemptTruth], seen: list[_Seen], now: int) -> list[Interruption]:
    found = []
    for index, (row, view) in enumerate(zip(rows, seen, strict=True)):
        if row.end_us is None or row.end_kind == "completed":
            continue
        following = next((later for later in seen[index + 1 :] if later.loaded), None)
        trains = next((later for later in seen[index + 1 :] if later.marks), None)
        restart = trains.attempt.train_us if trains is not None else None
        quiet = row.end_us - (row.last_sign_us if row.last_sign_us is not None else row.start_us)
        hung = row.patience_us is not None and quiet > row.patience_us and row.end_kind == "time_limit"
        found.append(
            Interruption(
                attempt=row.attempt,
                at_us=row.end_us,
                kind=row.end_kind or "failed",
                planned=row.end_kind in ("time_limit", "operator", "host_maintenance") and not hung,
                cause=row.cause,
                detect_us=quiet,
                restart_us=restart - row.end_us if restart is not None else None,
                redo_steps=max(view.last - following.attempt.resume_step, 0) if following is not None else 0,
            )
        )
    return found


def _state(rows: list[AttemptTruth], seen: list[_Seen]) -> str:
    if not rows:
        return "waiting"
    row = rows[-1]
    if row.end_us is not None:
        return "finished" if row.end_kind == "completed" else "down"
    if row.stalled:
        return "stalled"
    return "running" if seen[-1].marks else "starting"


def moments(run: Run, count: int, *, margin_us: int = 5_000_000) -> list[int]:
    """Return moments to ask at, spread over the run, none where lines without a stamp decide what was known.

    Such lines lie somewhere between two stamps: those of a start-up until the first training lines, and
    saves and evaluations where the format does not stamp them. No moment falls there.
    """
    look = SIGHTS[run.parameters.style]
    avoid: list[tuple[int, int]] = []
    for a in run.attempts:
        begun = a.first_line_us or a.start_us
        trained = a.ends[min(len(a.ends), 12) - 1] if a.ends else a.gone_us or run.now_us
        avoid.append((begun, trained))
        for block in a.blocks:
            if look.build_timed or (block.kind == "save" and look.saves_timed):
                continue
            after = block.step + run.parameters.log_interval - a.resume_step
            until = a.ends[after - 1] if after <= len(a.ends) else a.end_us or run.now_us
            avoid.append((block.start_us, until))
    found: list[int] = []
    first, last = run.parameters.start_us, run.now_us
    for number in range(1, count + 1):
        moment = first + (last - first) * number // count
        if not any(low - margin_us <= moment <= high + margin_us for low, high in avoid):
            found.append(moment)
    return found
