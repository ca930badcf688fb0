"""The run as one frozen Snapshot: totals, efficiency, interruptions, state, and what is not known.

Pure. `Book.open` has folded the facts; everything a face shows is computed here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from tracker.core.attempts import Attempt
from tracker.core.book import Book, Entry, Opened
from tracker.core.corrections import Correction
from tracker.core.facts import Facts
from tracker.core.failures import mtbf
from tracker.core.flop import FlopPerToken, flop_per_token
from tracker.core.interruptions import Cost, Interruption, Verdict, interruptions, verdict
from tracker.core.ledger import BUCKETS, AttemptLine, total, weigh
from tracker.core.metrics import goodput, gpu_hours_per_trillion_tokens, mfu
from tracker.core.overlay import assigned, corrected, name_of
from tracker.core.pieces import Piece
from tracker.core.recent import Track, recent_hours_per_trillion, recent_mfu
from tracker.core.records import Event, Kind
from tracker.core.reported import beside_ours
from tracker.core.run_plan import anchored
from tracker.core.settings import Settings
from tracker.core.silent import silent
from tracker.core.snapshot import Mfu, Mtbf, PerTrillion, Reported, Snapshot, Steps, Tokens

_WALL = tuple(name for name in BUCKETS if name != "idle")
_POINT = (
    "gpu_name", "framework", "framework_version", "precision", "tensor_parallel", "pipeline_parallel",
    "data_parallel", "context_parallel", "expert_parallel", "global_batch_size", "micro_batch_size",
    "sequence_length", "recompute",
)  # fmt: skip
_EVIDENCE_BACK_US = 60 * 1_000_000
_EVIDENCE_AFTER_US = 300 * 1_000_000


def snapshot(book: Book, facts: Facts, *, as_of_us: int, rejects: int = 0) -> Snapshot:
    """Return the run as of a moment."""
    return summed(judge(book, facts, book.open(facts, as_of_us=as_of_us)), rejects=rejects)


@dataclass(slots=True, kw_only=True)
class Judged:
    """The opened run with the line of every attempt and why it ended: what `summed` adds up."""

    opened: Opened
    settings: Settings
    flops: list[FlopPerToken | None]
    lines: tuple[AttemptLine, ...]
    stops: tuple[Interruption, ...]
    said: dict[int, Correction]
    """What holds of people's corrections, by the number of the attempt."""
    unplaced: list[str]


def judge(book: Book, facts: Facts, opened: Opened) -> Judged:
    """Return the lines of an opened run, and its interruptions."""
    settings = book.settings
    flops = [_flop(settings, entry.attempt) for entry in opened.entries]
    judged = [_remembered(book, facts, entry, opened) for entry in opened.entries]
    attempts = [entry.attempt for entry in opened.entries]
    said, unplaced = assigned(attempts, facts.corrections(), as_of_us=opened.as_of_us)
    verdicts = [corrected(why, one) for why, one in zip(judged, said, strict=True)]
    lines = tuple(
        line_of(number, entry, why, flop)
        for number, (entry, why, flop) in enumerate(zip(opened.entries, verdicts, flops, strict=True), 1)
    )
    stops = interruptions(
        attempts,
        verdicts,
        [_cost(line) for line in lines],
        judged=judged,
        manual=[None if one is None else one.manual for one in said],
    )
    return Judged(
        opened=opened,
        settings=settings,
        flops=flops,
        lines=lines,
        stops=stops,
        said={n: one for n, one in enumerate(said, 1) if one is not None},
        unplaced=unplaced,
    )


def summed(run: Judged, *, rejects: int = 0) -> Snapshot:
    """Return the snapshot that the lines add up to."""
    opened, settings, flops, lines, stops = run.opened, run.settings, run.flops, run.lines, run.stops
    as_of_us = opened.as_of_us
    sums, warnings = total(lines, settings, as_of_us)
    counted = any(line.gpu_us is not None for line in lines)
    steps = _steps(opened, lines)
    tokens = _tokens(opened, lines, steps, settings)
    allocated = sums["allocated"] - sums["pending"]
    efficiency = _efficiency(lines, flops, sums, allocated if counted else 0, tokens, settings, opened)
    return Snapshot(
        run=settings.run,
        as_of_us=as_of_us,
        state=_state(lines, opened, tokens),
        attempts=lines,
        interruptions=stops,
        corrections=run.said,
        gpu_us=sums if counted else None,
        wall_us={name: sum(line.wall_us[name] for line in lines) for name in ("allocated", *_WALL)},
        goodput_ratio=_goodput(lines, sums, allocated, counted),
        steps=steps,
        tokens=tokens,
        mfu=efficiency,
        per_trillion=_per_trillion(lines, opened, flops, allocated if counted else 0, tokens, settings),
        mtbf=_mtbf(lines, stops, sums, counted, as_of_us),
        reported=_reported(opened, lines, efficiency.flop_method),
        step_time_s=step_time(opened.entries),
        last_reading_us=max(
            (line.progress_us for line in lines if line.progress_us is not None), default=None
        ),
        plan_finish_us=_plan_finish(settings, lines),
        operating_point=_operating_point(opened, settings),
        said=dict(opened.entries[-1].attempt.settings) if opened.entries else {},
        settings=settings,
        unmatched_jobs=tuple(opened.unmatched),
        rejects=rejects,
        warnings=tuple(
            dict.fromkeys([
                *silent(lines, as_of_us),
                *opened.warnings,
                *warnings,
                *run.unplaced,
                *_above_one(efficiency),
            ])
        ),
        unknown=tuple(_unknown(lines, tokens, efficiency, settings)),
    )


def _flop(settings: Settings, attempt: Attempt) -> FlopPerToken | None:
    """Return FLOP per token at the attempt's own sequence length; the log's word wins."""
    stated = attempt.settings.get("sequence_length")
    model = settings.model
    length = stated if isinstance(stated, int) and stated > 0 else model.sequence_length
    if model.active_params is None:
        return None
    return flop_per_token(
        active_params=model.active_params,
        attn_overhead=settings.plan.attn_overhead if settings.plan is not None else None,
        layers=model.layers if length is not None else None,
        hidden_size=model.hidden_size,
        heads=model.heads,
        head_dim=model.head_dim,
        sequence_length=length,
        causal=model.causal,
    )


def _remembered(book: Book, facts: Facts, entry: Entry, opened: Opened) -> Verdict | None:
    """Return why an attempt ended, judged anew only where something was added to what tells of it."""
    attempt, row = entry.attempt, entry.attempt.row
    premises = (
        attempt.end_us,
        None if row is None else row.state,
        attempt.completed,
        entry.closed.progress_us,
        [piece.segment.last_offset for piece in [*attempt.pieces, *attempt.extra]],
        [(piece.stream.identity, piece.segment.last_offset) for piece in opened.evidence],
    )
    held = book.verdicts.get(entry.key)
    if held is None or held[0] != premises:
        held = (premises, _verdict(facts, entry, opened))
        book.verdicts[entry.key] = held
    return held[1]


def _verdict(facts: Facts, entry: Entry, opened: Opened) -> Verdict | None:
    attempt = entry.attempt
    if attempt.running or attempt.end_us is None:
        return None
    progress = entry.closed.progress_us
    quiet = attempt.end_us - (progress if progress is not None else attempt.start_us)
    usual = sorted(entry.fold.gaps)[(len(entry.fold.gaps) - 1) // 2] if entry.fold.gaps else None
    events = _last_events(facts, attempt, opened)
    return verdict(attempt, events, quiet_us=quiet, stall_us=3 * usual if usual is not None else None)


def _last_events(facts: Facts, attempt: Attempt, opened: Opened) -> list[Event]:
    """Return what was said from the last reading on, in all files that speak of the attempt."""
    events: list[Event] = []
    read = [n for n, piece in enumerate(attempt.pieces) if piece.segment.readings]
    for piece in [*attempt.pieces[read[-1] if read else 0 :], *attempt.extra]:
        last = piece.segment.last_reading
        start = last.offset if last is not None else piece.segment.first_offset
        events += _telling(facts, piece, start, opened.as_of_us)
    last_us = attempt.last.at_us if attempt.last is not None else attempt.start_us
    since = (last_us if last_us is not None else attempt.start_us) - _EVIDENCE_BACK_US
    until = (attempt.end_us or opened.as_of_us) + _EVIDENCE_AFTER_US
    for piece in opened.evidence:
        own_job = piece.row is not None and piece.row is attempt.row
        if own_job or (piece.at_us <= until and piece.seen_us >= since):
            found = _telling(facts, piece, piece.segment.first_offset, opened.as_of_us)
            events += [e for e in found if (own_job if e.at_us is None else since <= e.at_us <= until)]
    return [e for e in events if e.at_us is None or e.at_us <= opened.as_of_us]


def _telling(facts: Facts, piece: Piece, start: int, as_of_us: int) -> list[Event]:
    """Return what tells of an end; what stands after the first later stamp was not written yet.

    Nor was what stands after the piece's last record: without a stamp it belongs to who comes next.
    """
    found = facts.events(piece.stream.stream_id, start=start, end=piece.segment.last_offset + 1)
    then = takewhile(lambda e: e.at_us is None or e.at_us <= as_of_us, found)
    return [e for e in then if e.kind in (Kind.FAILURE, Kind.EXIT)]


def line_of(number: int, entry: Entry, why: Verdict | None, flop: FlopPerToken | None) -> AttemptLine:
    """Return an attempt's line of the ledger."""
    attempt, closed, fold = entry.attempt, entry.closed, entry.fold
    processed = None
    if closed.tokens_net is not None and closed.tokens_lost is not None:
        processed = closed.tokens_net + closed.tokens_lost
    known = flop is not None and closed.tokens_net is not None
    wall = {name: getattr(closed, f"{name}_us") for name in _WALL}
    wall["allocated"] = closed.allocated_us
    power = attempt.settings.get("gpu_power_w")
    return AttemptLine(
        number=number,
        job_id=attempt.job_id,
        start_us=attempt.start_us,
        end_us=attempt.end_us,
        start_from=attempt.start_from,
        gpus=attempt.gpus,
        world=attempt.world,
        resumed_from=attempt.resume_step,
        last_step=attempt.last_step,
        end_kind=None if why is None else why.end_kind,
        cause=None if why is None or why.kind == "completed" else why.cause,
        running=attempt.running,
        stalled=closed.stalled,
        estimated=attempt.estimated,
        steps_net=closed.steps_net,
        steps_lost=closed.steps_lost,
        tokens_net=closed.tokens_net,
        tokens_processed=processed,
        work_us=closed.productive_us + closed.lost_us,
        flop=(closed.tokens_net or 0) * flop.value if flop is not None and known else None,
        gpu_us=weigh(attempt, closed),
        wall_us=wall,
        first_us=closed.first_us,
        progress_us=closed.progress_us,
        reported_flop_per_s=fold.reported_sum / fold.reported_us if fold.reported_us else None,
        reported_hardware=fold.reported_hardware,
        saves=fold.saves,
        stall_limit_us=closed.stall_limit_us,
        name=name_of(attempt),
        power_w=float(power) if isinstance(power, int | float) and power > 0 else None,
    )


def _cost(line: AttemptLine) -> Cost:
    steps = line.steps_net + line.steps_lost
    worked = None if line.gpu_us is None else line.gpu_us["productive"] + line.gpu_us["lost"]
    return Cost(
        first_us=line.first_us,
        progress_us=line.progress_us,
        step_gpu_us=worked / steps if worked is not None and steps else None,
    )


def _steps(opened: Opened, lines: Sequence[AttemptLine]) -> Steps:
    lineage = opened.lineage
    at_risk = None
    if lineage.path:
        kept = [(opened.entries[i].attempt, opened.entries[i].attempt.cut) for i in lineage.path]
        saves = [(s, cut) for a, cut in kept for p in a.pieces for s in p.segment.saves]
        safe = [s for s, cut in saves if s <= (lineage.end_step if cut is None else cut)]
        resumed = [opened.entries[i].attempt.resume_step or 0 for i in lineage.path]
        at_risk = lineage.end_step - max([*safe, *resumed], default=0)
    return Steps(
        net=max(0, lineage.end_step - lineage.inherited_steps) if lineage.path else 0,
        processed=sum(line.steps_net + line.steps_lost for line in lines),
        last=lineage.end_step if lineage.path else None,
        at_risk=at_risk,
        unseen=lineage.unseen_steps,
        inherited=lineage.inherited_steps,
    )


def _tokens(opened: Opened, lines: Sequence[AttemptLine], steps: Steps, settings: Settings) -> Tokens:
    planned = settings.plan.target_tokens if settings.plan is not None else None
    seen = [line.tokens_net for line in lines]
    done = [line.tokens_processed for line in lines]
    per_step = next(
        (p for e in reversed(opened.entries) if (p := e.fold.per_step(None)) is not None and e.fold.readings),
        None,
    )
    inherited: int | None = 0
    if steps.inherited and opened.lineage.path:
        root = opened.entries[opened.lineage.path[0]]
        stated = root.fold.frame.resume_tokens
        inherited = stated
        if stated is None and root.fold.odometer is not None and root.closed.tokens_net is not None:
            inherited = root.fold.odometer - root.closed.tokens_net - (root.closed.tokens_lost or 0)
        elif stated is None and per_step is not None:
            inherited = per_step * steps.inherited
    unseen = 0 if not steps.unseen else None if per_step is None else per_step * steps.unseen
    total_seen = None if any(t is None for t in seen) else sum(t or 0 for t in seen)
    known = total_seen is not None and unseen is not None
    return Tokens(
        net=(total_seen or 0) + (unseen or 0) if known else None,
        seen=total_seen,
        processed=None if any(t is None for t in done) else sum(t or 0 for t in done),
        inherited=inherited,
        planned=None if planned is None else round(planned),
    )


def _goodput(
    lines: Sequence[AttemptLine], sums: dict[str, int], allocated: int, counted: bool
) -> float | None:
    if counted:
        return goodput(productive_us=sums["productive"], allocated_us=allocated)
    wall = {
        name: sum(line.wall_us[name] for line in lines) for name in ("productive", "allocated", "pending")
    }
    return goodput(productive_us=wall["productive"], allocated_us=wall["allocated"] - wall["pending"])


def _efficiency(
    lines: Sequence[AttemptLine],
    flops: Sequence[FlopPerToken | None],
    sums: dict[str, int],
    allocated: int,
    tokens: Tokens,
    settings: Settings,
    opened: Opened,
) -> Mfu:
    hardware = settings.hardware
    known = next((f for f in reversed(flops) if f is not None), None) or _flop_alone(settings)
    peak = hardware.peak_flop_per_s
    flop = [line.flop for line in lines]
    done = None if any(f is None for f in flop) or not flop else sum(f or 0.0 for f in flop)
    seen = tokens.seen or 0
    blank = Mfu(
        reference_precision=hardware.precision,
        peak_flop_per_s=peak,
        peak_source=hardware.peak_source,
        flop_per_token=done / seen if done and seen else None if known is None else known.value,
        flop_method=None if known is None else known.method,
    )
    if peak is None or done is None or not seen or not allocated:
        return blank
    six_n = 6 * (settings.model.active_params or 0) * seen
    return Mfu(
        productive_ratio=mfu(flop=done, gpu_us=sums["productive"], peak_flop_per_s=peak),
        allocated_ratio=mfu(flop=done, gpu_us=allocated, peak_flop_per_s=peak),
        recent_ratio=recent_mfu(_Tracks(lines, flops, opened), peak),
        six_n_productive_ratio=mfu(flop=six_n, gpu_us=sums["productive"], peak_flop_per_s=peak),
        reference_precision=blank.reference_precision,
        peak_flop_per_s=peak,
        peak_source=blank.peak_source,
        flop_per_token=blank.flop_per_token,
        flop_method=blank.flop_method,
    )


def _flop_alone(settings: Settings) -> FlopPerToken | None:
    return settings.plan.flop() if settings.plan is not None else None


class _Tracks:
    """The tracks of a run, the latest first: whoever walks back stops early, and the rest is never made."""

    def __init__(
        self, lines: Sequence[AttemptLine], flops: Sequence[FlopPerToken | None], opened: Opened
    ) -> None:
        self._rows = (lines, flops, opened.entries)

    def __reversed__(self) -> Iterator[Track]:
        lines, flops, entries = self._rows
        for place in range(len(lines) - 1, -1, -1):
            line, flop = lines[place], flops[place]
            yield Track(
                series=entries[place].fold.series,
                first_us=line.first_us,
                start_us=line.start_us,
                end_us=line.start_us + line.wall_us["allocated"] - line.wall_us["pending"],
                gpus=line.gpus or 0,
                world=line.world or 0,
                flop_per_token=None if flop is None else flop.value,
            )


def _per_trillion(
    lines: Sequence[AttemptLine],
    opened: Opened,
    flops: Sequence[FlopPerToken | None],
    allocated: int,
    tokens: Tokens,
    settings: Settings,
) -> PerTrillion:
    plan = settings.plan.gpu_hours_per_trillion_tokens() if settings.plan is not None else None
    if not allocated or not tokens.seen:
        return PerTrillion(plan=plan)
    return PerTrillion(
        realised=gpu_hours_per_trillion_tokens(tokens=tokens.seen, gpu_us=allocated),
        recent=recent_hours_per_trillion(_Tracks(lines, flops, opened)),
        plan=plan,
    )


def _mtbf(
    lines: Sequence[AttemptLine],
    stops: Sequence[Interruption],
    sums: dict[str, int],
    counted: bool,
    as_of_us: int,
) -> Mtbf:
    """MTBF over the attempts' own time: reserved time that no attempt held is not exposure."""
    unexpected = sum(1 for stop in stops if stop.kind == "unexpected")
    hours = sum(line.wall_us["allocated"] for line in lines) / 3.6e9
    device = sum(line.gpu_us["allocated"] for line in lines if line.gpu_us is not None) / 3.6e9
    if not counted or device <= 0:
        return Mtbf(job_hours=hours / unexpected if unexpected else None)
    rate = mtbf(device_hours=device, job_hours=hours, interruptions=unexpected)
    return Mtbf(
        job_hours=hours / unexpected if unexpected else None,
        device_hours=rate.device_hours,
        device_hours_ci90=rate.device_hours_interval,
    )


def _reported(opened: Opened, lines: Sequence[AttemptLine], method: str | None) -> Reported:
    for entry, line in zip(reversed(opened.entries), reversed(lines), strict=True):
        if line.reported_flop_per_s is not None:
            said = entry.attempt.settings.get("reported_convention")
            return beside_ours(line, convention=said if isinstance(said, str) else "", flop_method=method)
    return Reported()


def step_time(entries: Sequence[Entry]) -> float | None:
    """Return the wall time of a step in the last window, seconds."""
    for entry in reversed(entries):
        if entry.fold.last_step_time_us is not None:
            return entry.fold.last_step_time_us / 1e6
        if entry.fold.typical and entry.fold.typical[-1]:
            return entry.fold.typical[-1] / 1e6
    return None


def _plan_finish(settings: Settings, lines: Sequence[AttemptLine]) -> int | None:
    finish = anchored(settings.plan, lines).finish_at() if settings.plan is not None else None
    return None if finish is None else round(finish.timestamp() * 1e6)


def _operating_point(opened: Opened, settings: Settings) -> dict[str, str]:
    point: dict[str, str] = {}
    for entry in opened.entries[-1:]:
        said = entry.attempt.settings
        point = {name: str(said[name]) for name in _POINT if said.get(name) is not None}
        if entry.attempt.gpus is not None:
            point["gpus"] = str(entry.attempt.gpus)
    if settings.hardware.gpu is not None:
        point["gpu"] = settings.hardware.gpu
    point.setdefault("precision", settings.hardware.precision)
    if settings.model.sequence_length is not None:
        point.setdefault("sequence_length", str(settings.model.sequence_length))
    return point


def _state(lines: Sequence[AttemptLine], opened: Opened, tokens: Tokens) -> str:
    have = (tokens.net or 0) + (tokens.inherited or 0)
    live = [line for line in lines if line.running]
    reached = tokens.planned is not None and tokens.net is not None and have >= tokens.planned
    if reached and all(line.stalled for line in live):
        return "finished"
    if live:
        if any(line.stalled for line in live):
            return "stalled"
        return "running" if any(line.first_us is not None for line in live) else "starting"
    if not lines:
        return "waiting"
    return "finished" if opened.entries[-1].attempt.completed else "down"


def _above_one(efficiency: Mfu) -> list[str]:
    ratio = efficiency.productive_ratio
    if ratio is None or ratio <= 1 or efficiency.peak_flop_per_s is None:
        return []
    return [
        f"MFU {ratio:.3f} is above 1 of the dense {efficiency.reference_precision} peak "
        f"({efficiency.peak_flop_per_s / 1e12:g} TFLOP/s): the run computes in a lower precision than the "
        f"reference, or the peak or the parameter count is wrong; shown as it is"
    ]


def _unknown(lines: Sequence[AttemptLine], tokens: Tokens, efficiency: Mfu, settings: Settings) -> list[str]:
    """Return which one fact would make each missing figure known."""
    if not lines:
        return ["no attempt seen yet: no source holds a launch, a reading or a matching scheduler row"]
    found = []
    if any(line.gpus is None for line in lines):
        found.append("GPU count: neither scheduler nor log says it; set hardware.gpus")
    if tokens.net is None:
        found.append("tokens: the log does not say them; set model.sequence_length and global_batch_size")
    if settings.model.active_params is None:
        found.append("MFU: set model.active_params")
    if efficiency.peak_flop_per_s is None:
        found.append("MFU: set hardware.gpu (a row of the hardware table) or hardware.peak_tflops")
    return found
