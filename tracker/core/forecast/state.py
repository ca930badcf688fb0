"""What was known of a run at a moment, as the few series that a forecast needs.

Pure, given its Facts. Everything comes from what `Book.open` made of the facts of that moment, so nothing
later can leak in. The calendar since the first launch is told as

    first start-up + work of the steps in the model + overhead inside attempts + stops + what is open now

where a stop runs from the end of the last retained step before it to the first step after it: the redone
work, the hang, the queue, failed launches and the start-up are all in it, once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol, runtime_checkable

from tracker.core.book import Book, Entry, Opened
from tracker.core.facts import Facts
from tracker.core.forecast.blocks import Bucket, Walk, bucketed, sampled
from tracker.core.forecast.doubt import Limits, Point, doubtful
from tracker.core.pieces import Piece
from tracker.core.run_plan import ENDED_SHORT
from tracker.core.settings import Settings
from tracker.core.snapshot import Snapshot

US: Final = 1_000_000
_BLOCKS: Final = 64
_SHORTEST_S: Final = 1
_LONGEST_S: Final = 3600
_MOST_BLOCKS: Final = 1500
"""Two months of hours; of a longer run they are longer."""
_DENSE: Final = 64
"""Readings a block, from which on a few of them tell enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A stretch of productive time of one attempt, an hour at most."""

    end_us: int
    work_s: float
    """Wall time of its steps, without evaluation and saves."""
    tokens: float
    """Tokens of all its steps."""
    net_tokens: float
    """Those that are in the model."""
    gpus: int
    """GPUs that trained; 1 where the count is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """One end of progress and what it cost until progress went on."""

    at_us: int
    planned: bool
    wait_s: float
    """Calendar time without a step: hang, queue, failed launches, start-up."""
    redo_s: float
    """Calendar time of the steps that were thrown away."""
    billed_s: float
    """Of both, the part during which GPUs were allocated."""
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """One attempt of the lineage: its work that was kept, and what went on between its steps."""

    end_us: int
    work_s: float
    """Without what was thrown away: that is in the stop that followed."""
    checkpoint_s: float
    evaluation_s: float
    other_s: float
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLeft:
    """What is left of one stage."""

    name: str
    tokens: float
    cost_factor: float
    """Its FLOP per token over those of the stage that was measured."""
    gpus: int | None
    """Where the plan gives it another GPU count."""
    current: bool
    """Whether it is the stage that trains now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything that a forecast may depend on, besides the plan's numbers in `settings`."""

    run: str
    as_of_us: int
    phase: str
    """As `Snapshot.state`."""
    start_us: int | None
    """Start of the first attempt."""
    target_tokens: float | None
    done_tokens: float | None
    """Inherited and net."""
    inherited_tokens: float
    gpus: int | None
    """Billed now."""
    world: int | None
    """Training now."""
    stages: tuple[StageLeft, ...]
    blocks: tuple[Block, ...]
    """Of all attempts, in time order."""
    stretches: tuple[Stretch, ...]
    stops: tuple[Stop, ...]
    quiet_s: float
    """Since the last sign of progress."""
    open_stop: bool
    """Whether the run stands still: down, starting, stalled."""
    resumed: bool
    """Whether the open stop's redone work is already known (a new attempt has loaded its checkpoint)."""
    spent_gpu_hours: float | None
    save_s: float | None
    """Mean blocking time of a save."""
    save_every_s: float | None
    """Mean work between two saves."""
    finished_us: int | None
    """When the last step of a finished run was done."""
    later_ratio: float = 0.0
    """Later stages on top of the target, as a share of it."""
    stage_factor: float = 1.0
    """What a token of the stage that trains now takes, over one of the plan's own MFU and sequence length."""
    planned_us: int | None = None
    """When the planned tokens were trained, where later stages are still to come."""
    attempts: int = 0
    """Launches so far; those that failed before a first step are part of the stop before them."""
    merged: int = 0
    """Launches whose steps were all thrown away, or that made none: each is part of the stop before it."""
    fruitless: int = 0
    """The last launches in a row that ended without a step that is kept, or with none more than before."""
    doubts: tuple[str, ...] = ()
    """Readings that cannot be true, each with why: nothing here rests on them."""

    @property
    def short_ratio(self) -> float | None:
        """Return how much of its target a run trained that is over well below it; None for any other."""
        if self.phase != "finished" or self.done_tokens is None or not self.target_tokens:
            return None
        done = self.done_tokens / self.target_tokens
        return done if done < ENDED_SHORT else None

    @property
    def left_tokens(self) -> float | None:
        """Return the tokens still to train, all stages."""
        return sum(s.tokens for s in self.stages) if self.target_tokens is not None else None

    @property
    def aim_tokens(self) -> float | None:
        """Return the tokens with which the run is through: the target, and the later stages on top of it."""
        return None if self.target_tokens is None else self.target_tokens * (1 + self.later_ratio)

    @property
    def work_s(self) -> float:
        """Return all productive wall time seen."""
        return sum(block.work_s for block in self.blocks)

    def digest(self) -> str:
        """Return a name for exactly these inputs."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]


def state_of(book: Book, facts: Facts, snapshot: Snapshot, opened: Opened | None = None) -> State:
    """Return what was known at the snapshot's moment; `opened` is what the snapshot was made of."""
    if opened is None:
        opened = book.open(facts, as_of_us=snapshot.as_of_us)
    settings = book.settings
    width_us = _width_us(opened)
    tokens = snapshot.tokens
    target = settings.plan.target_tokens if settings.plan is not None else None
    later = settings.plan.later_fraction if settings.plan is not None else 0.0
    done = float(tokens.net + (tokens.inherited or 0)) if tokens.net is not None else None
    path = [opened.entries[i] for i in opened.lineage.path]
    trained = [(i, opened.entries[i]) for i in opened.lineage.path if _first(opened.entries[i]) is not None]
    last = trained[-1][1] if trained else None
    live = last is not None and last.attempt.running and not last.closed.stalled and last is path[-1]
    progress = last.closed.progress_us if last is not None else None
    since = progress if progress is not None else opened.entries[0].attempt.start_us if path else None
    gpus = next((e.attempt.gpus for e in reversed(opened.entries) if e.attempt.gpus), settings.hardware.gpus)
    world = next((e.attempt.world for e in reversed(opened.entries) if e.attempt.world), gpus)
    save_s, save_every_s = _saves(path)
    seen = [_remembered(book, entry, facts, width_us, opened.as_of_us) for entry in opened.entries]
    blocks = tuple(block for s in seen for block in s.blocks)
    if done is not None:
        done -= sum(s.doubted_tokens for s in seen)
    stages, factor = _stages(settings, done or 0.0)
    return State(
        run=settings.run,
        as_of_us=snapshot.as_of_us,
        phase=snapshot.state,
        start_us=min((e.attempt.start_us for e in opened.entries), default=None),
        target_tokens=target,
        done_tokens=done,
        inherited_tokens=float(tokens.inherited or 0),
        gpus=gpus,
        world=world,
        stages=tuple(stages),
        stage_factor=factor,
        blocks=blocks,
        stretches=tuple(_stretch(e) for _, e in trained),
        stops=tuple(_stops(opened, snapshot, trained)),
        quiet_s=max(0, snapshot.as_of_us - since) / US if since is not None else 0.0,
        open_stop=bool(opened.entries) and not live,
        resumed=bool(path) and last is not path[-1],
        spent_gpu_hours=None if snapshot.gpu_us is None else snapshot.gpu_us["allocated"] / 3.6e9,
        save_s=save_s,
        save_every_s=save_every_s,
        finished_us=_finished(snapshot, opened, blocks, target, later, done),
        later_ratio=later,
        planned_us=(
            reached_us(blocks, float(tokens.inherited or 0), target)
            if blocks and target is not None and done is not None and target <= done < target * (1 + later)
            else None
        ),
        attempts=len(opened.entries),
        merged=sum(_ended(e) for i, e in enumerate(opened.entries) if i not in dict(trained)),
        fruitless=_fruitless(opened),
        doubts=tuple(why for s in seen for why in s.doubts.values()),
    )


def _first(entry: Entry) -> int | None:
    return entry.closed.first_us


def _ended(entry: Entry) -> bool:
    return not entry.attempt.running or entry.closed.stalled


def _fruitless(opened: Opened) -> int:
    """Return how many launches in a row, the last ones that ended, brought nothing; 0 once one does."""
    count = 0
    for n, entry in reversed(list(enumerate(opened.entries))):
        if _brought(opened.entries, n):
            break
        count += _ended(entry)  # else it may still bring something
    return count


def _brought(entries: Sequence[Entry], n: int) -> bool:
    """Tell whether steps of a launch are kept: of the last one, more than before it, or what it saved."""
    closed = entries[n].closed
    if not closed.steps_net or not n or n + 1 < len(entries):
        return closed.steps_net > 0
    saved = max((step for piece in entries[n].attempt.pieces for step in piece.segment.saves), default=0)
    return saved > entries[n].fold.frame.resume_step or closed.step > entries[n - 1].closed.step


def _finished(
    snapshot: Snapshot,
    opened: Opened,
    blocks: Sequence[Block],
    target: float | None,
    later: float,
    done: float | None,
) -> int | None:
    """Return when the target was reached, or when the last step of a run that says it is done was.

    The target is through with the later stages on top of it; a run that says it is done, past the planned
    tokens, is done with what it has.
    """
    over = snapshot.state == "finished"
    if target is not None and done is not None and blocks:
        aim = target * (1 + later)
        if done >= aim or (over and done >= target):
            return reached_us(blocks, float(snapshot.tokens.inherited or 0), min(done, aim))
    if not over:
        return None
    ends = [e.closed.progress_us for e in opened.entries if e.closed.progress_us is not None]
    return max(ends, default=None)


def reached_us(blocks: Sequence[Block], inherited: float, tokens: float) -> int:
    """Return when the tokens in the model reached a number, within a block on a straight line."""
    have = inherited
    for block in blocks:
        if block.net_tokens > 0 and have + block.net_tokens >= tokens * (1 - 1e-9):
            share = min(1.0, max(0.0, (tokens - have) / block.net_tokens))
            return round(block.end_us - (1 - share) * block.work_s * US)
        have += block.net_tokens
    return blocks[-1].end_us


def _stages(settings: Settings, done: float) -> tuple[list[StageLeft], float]:
    """Return what is left by stage, in the plan's order, later stages last; and `stage_factor`."""
    plan = settings.plan
    target = plan.target_tokens if plan is not None else None
    unit = 1.0
    if plan is None or target is None:
        return [], unit
    here = plan.flop()
    left: list[StageLeft] = []
    before = 0.0
    cost = 0.0
    for stage in plan.stages:
        rest = stage.tokens - max(0.0, min(stage.tokens, done - before))
        before += stage.tokens
        flop = plan.flop(stage.sequence_length)
        factor = flop.value / here.value if flop is not None and here is not None else 1.0
        if stage.mfu is not None:
            factor *= float(plan.mfu) / stage.mfu
        cost += factor * stage.tokens / target
        if rest > 0:
            left.append(
                StageLeft(name=stage.name, tokens=rest, cost_factor=factor, gpus=stage.gpus, current=not left)
            )
    if left:  # the stage that trains now is the one whose rate is measured
        unit = left[0].cost_factor
        cost /= unit
        left = [
            StageLeft(
                name=s.name,
                tokens=s.tokens,
                cost_factor=s.cost_factor / unit,
                gpus=None if s.current else s.gpus,
                current=s.current,
            )
            for s in left
        ]
    if not plan.stages and target > done:
        left.append(StageLeft(name="main", tokens=target - done, cost_factor=1.0, gpus=None, current=True))
    later = plan.later_fraction * target - max(0.0, done - target)
    if later > 0:  # the plan's date holds them, and costs them like the mean of what came before
        left.append(
            StageLeft(
                name="later stages",
                tokens=later,
                cost_factor=cost if plan.stages and left else 1.0,
                gpus=None,
                current=not left,
            )
        )
    return left, unit


# -- work -------------------------------------------------------------------------------------------


@runtime_checkable
class Bucketed(Protocol):
    """Facts that can sum readings by themselves, much faster than they could be read one by one."""

    def buckets(
        self, stream_id: int, *, start: int, end: int | None, width_us: int, until_us: int
    ) -> Sequence[Bucket]:
        """Return what `bucketed` makes of the same readings."""
        ...


def _width_us(opened: Opened) -> int:
    work_us = sum(e.closed.productive_us + e.closed.lost_us for e in opened.entries)
    width_s = min(max(work_us // US // _BLOCKS, _SHORTEST_S), _LONGEST_S)
    while width_s * _MOST_BLOCKS < work_us // US:  # in jumps, so that old blocks stay as they were
        width_s = width_s * 5 // 4
    return width_s * US


@dataclass(slots=True)
class _Seen:
    """What one attempt's readings tell."""

    blocks: list[Block]
    doubts: dict[int, str]
    doubted_tokens: float = 0.0
    """Net tokens that only a last reading which cannot be true tells of."""


@dataclass(slots=True)
class _Row:
    """The steps between two readings."""

    end_us: int | None
    low: int
    high: int
    seconds: float | None
    """A step's, as printed, in microseconds."""
    tokens: float


def _remembered(book: Book, entry: Entry, facts: Facts, width_us: int, as_of_us: int) -> _Seen:
    """Return what an attempt's readings tell; read again only where the attempt has changed."""
    fold, closed, plan = entry.fold, entry.closed, book.settings.plan
    flop = plan.flop() if plan is not None else None
    peak = book.settings.hardware.peak_flop_per_s
    given = (
        width_us, fold.frame, fold.readings, fold.offset, closed.productive_us, closed.lost_us,
        closed.tokens_net, closed.tokens_lost, closed.progress_us, entry.attempt.world,
    )  # fmt: skip
    held = book.told.get(entry.key)
    if held is not None and held[0] == given and isinstance(held[1], _Seen):
        return held[1]
    token_us = None
    if flop is not None and peak and entry.attempt.world:
        token_us = flop.value / (peak * entry.attempt.world) * US
    made = _seen(entry, facts, width_us, as_of_us, token_us)
    book.told[entry.key] = (given, made)
    return made


def _seen(entry: Entry, facts: Facts, width_us: int, as_of_us: int, peak_us: float | None) -> _Seen:
    attempt, closed, frame = entry.attempt, entry.closed, entry.fold.frame
    work_us = closed.productive_us + closed.lost_us
    steps = closed.steps_net + closed.steps_lost
    if work_us <= 0 or steps <= 0 or closed.tokens_net is None or closed.progress_us is None:
        return _Seen([], {})
    tokens = closed.tokens_net + (closed.tokens_lost or 0)
    world = attempt.world or 1
    rows = list(_rows(entry, facts, width_us, as_of_us))
    told = rows[-1].high if rows else frame.resume_step
    if told < closed.step:  # steps that only a save tells of
        rows.append(
            _Row(
                closed.progress_us, told, closed.step, work_us / steps, tokens / steps * (closed.step - told)
            )
        )
    doubts = _doubts(entry, rows, peak_us)
    believed: list[_Row] = []
    tail: list[_Row] = []
    low, own = frame.resume_step, 0.0
    for n, row in enumerate(rows):  # the steps of a reading that cannot be true end at the next one
        own += row.tokens
        tail.append(row)
        if n not in doubts:
            believed.append(_Row(row.end_us, low, row.high, row.seconds, own))
            low, own = row.high, 0.0
            tail.clear()
    at = closed.first_us
    weighed: list[float] = []
    for row in believed:
        mean = row.seconds
        if row.end_us is not None and at is not None:
            most = (row.end_us - at) / (row.high - row.low)
            # a slow first step has a line of its own, as heavy in the mean as a line of a hundred steps
            if mean is None or 0 < most < mean:
                mean = most
        elif mean is None:
            mean = 1.0
        weighed.append(max(mean, 0.0) * (row.high - row.low))
        at = row.end_us if row.end_us is not None else at
    whole, all_tokens = sum(weighed), sum(r.tokens for r in rows)
    if whole <= 0 or all_tokens <= 0:
        return _Seen([], doubts)
    kept_steps = frame.cut if frame.cut is not None else closed.step

    def net(low: int, high: int) -> float:
        return min(max(kept_steps - low, 0), high - low) / (high - low)

    made = _Seen([], doubts)
    for row, weight in zip(believed, weighed, strict=True):
        share = row.tokens * tokens / all_tokens
        made.blocks.append(
            Block(
                end_us=row.end_us or closed.progress_us,
                work_s=weight / whole * work_us / US,
                tokens=share,
                net_tokens=share * net(row.low, row.high),
                gpus=world,
            )
        )
    for row in tail:
        made.doubted_tokens += row.tokens * tokens / all_tokens * net(row.low, row.high)
    return made


def _rows(entry: Entry, facts: Facts, width_us: int, as_of_us: int) -> Iterator[_Row]:
    """Yield the attempt's steps as its readings, summed by time, tell of them."""
    attempt, closed, frame = entry.attempt, entry.closed, entry.fold.frame
    work_us = closed.productive_us + closed.lost_us
    mean_tokens = ((closed.tokens_net or 0) + (closed.tokens_lost or 0)) / (
        closed.steps_net + closed.steps_lost
    )
    walk = Walk.of(frame, closed.step)
    for piece in attempt.pieces:
        for bucket, low, high, own in walk.over(_buckets(facts, piece, width_us, as_of_us, work_us)):
            mean = bucket.step_time_sum_us / bucket.step_time_count if bucket.step_time_count else None
            tokens = own if own is not None else (high - low) * mean_tokens
            yield _Row(bucket.end_us, low, high, mean, tokens)


def _doubts(entry: Entry, rows: Sequence[_Row], peak_us: float | None) -> dict[int, str]:
    """Return which rows end at a reading that cannot be true; none where the log's own clock was set."""
    first_us, frame = entry.closed.first_us, entry.fold.frame
    if first_us is None or entry.fold.skew_us or any(row.end_us is None for row in rows):
        return {}
    printed = [row.seconds * (row.high - row.low) / row.tokens for row in rows if row.seconds and row.tokens]
    limits = Limits(printed_us=min(printed, default=None), peak_us=peak_us)
    points = [Point(at_us=first_us, step=frame.resume_step, tokens=0.0)]
    for row in rows:
        tokens = points[-1].tokens + row.tokens
        points.append(Point(at_us=row.end_us or 0, step=row.high, tokens=tokens))
    return {n - 1: why for n, why in doubtful(points, limits).items()}


def _buckets(facts: Facts, piece: Piece, width_us: int, until_us: int, work_us: int) -> Sequence[Bucket]:
    """Return a file's readings summed by time; a sample of them where they are very many."""
    segment, stream_id = piece.segment, piece.stream.stream_id
    start, end = segment.first_offset, piece.end_offset
    count = work_us // width_us + 1
    if segment.readings > _DENSE * count:
        return sampled(facts, stream_id, segment, count=count, until_us=until_us)
    if isinstance(facts, Bucketed):
        return facts.buckets(stream_id, start=start, end=end, width_us=width_us, until_us=until_us)
    return bucketed(facts.readings(stream_id, start=start, end=end), width_us=width_us, until_us=until_us)


# -- stops ------------------------------------------------------------------------------------------


def _overhead_us(entry: Entry) -> int:
    closed = entry.closed
    return closed.checkpoint_us + closed.evaluation_us + closed.other_us


def _stretch(entry: Entry) -> Stretch:
    closed = entry.closed
    return Stretch(
        end_us=closed.progress_us or 0,
        work_s=closed.productive_us / US,
        checkpoint_s=closed.checkpoint_us / US,
        evaluation_s=closed.evaluation_us / US,
        other_s=closed.other_us / US,
        gpus=entry.attempt.world or 1,
    )


def _stops(opened: Opened, snapshot: Snapshot, trained: list[tuple[int, Entry]]) -> Iterator[Stop]:
    planned = {stop.attempt for stop in snapshot.interruptions if stop.kind == "planned"}
    for (a, before), (b, after) in pairwise(trained):
        first, resumed = before.closed.first_us, after.closed.first_us
        assert first is not None
        assert resumed is not None
        own = before.closed.productive_us + _overhead_us(before)
        wall = max(0, resumed - first - own)
        between = [opened.entries[i].closed for i in range(a + 1, b)]
        lost = before.closed.lost_us + sum(c.lost_us + c.productive_us for c in between)
        billed = before.closed.allocated_us - (first - before.attempt.start_us) - own
        billed += sum(c.allocated_us for c in between) + (resumed - after.attempt.start_us)
        lost = min(lost, wall)
        yield Stop(
            at_us=before.closed.progress_us or first,
            planned=(a + 1) in planned and lost <= 0.5 * wall,
            wait_s=(wall - lost) / US,
            redo_s=lost / US,
            billed_s=min(max(0, billed), wall) / US,
            gpus=before.attempt.world or 1,
        )


def _saves(path: Sequence[Entry]) -> tuple[float | None, float | None]:
    """Return the mean blocking time of a save, and the work between two."""
    steps: list[int] = []
    for entry in path:
        for piece in entry.attempt.pieces:
            steps += [b - a for a, b in pairwise(piece.segment.saves) if b > a]
    done = sum(e.closed.steps_net + e.closed.steps_lost for e in path)
    work = sum(e.closed.productive_us + e.closed.lost_us for e in path) / US
    if not steps or done <= 0 or work <= 0:
        return None, None
    every = sum(steps) / len(steps) * work / done
    spent = sum(e.closed.checkpoint_us for e in path) / US
    return spent * every / work, every
