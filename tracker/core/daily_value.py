"""What a daily report shows, as one frozen value of finished numbers; `core/daily.py` makes it.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tracker.core.chain import Chain
from tracker.core.changes import Change, Changes
from tracker.core.definitions import GoodputByDefinition
from tracker.core.failures import CauseTable
from tracker.core.forecast.value import Forecast
from tracker.core.interruptions import Interruption
from tracker.core.run_failures import (
    RunAdvice,
    RunCheckpoints,
    RunFailures,
)
from tracker.core.run_money import Costs, Drawn, Loss
from tracker.core.run_standing import ended_short, late_days
from tracker.core.series import Series
from tracker.core.snapshot import Snapshot
from tracker.core.variance import Variance

DAY_US: Final = 86_400_000_000
_MOST: Final = 0.6
_EXPLAINS: Final = 0.2
_WHOLE: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A figure now, a day before, and as planned; what is unknown is None."""

    now: float | None
    before: float | None = None
    plan: float | None = None

    @property
    def since(self) -> float | None:
        """Return now minus before."""
        return self.now - self.before if self.now is not None and self.before is not None else None

    @property
    def against_plan(self) -> float | None:
        """Return now minus plan."""
        return self.now - self.plan if self.now is not None and self.plan is not None else None

    @property
    def ratio_to_plan(self) -> float | None:
        """Return now over plan."""
        return self.now / self.plan if self.now is not None and self.plan else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopGroup:
    """Interruptions of one cause."""

    cause: str
    kind: str
    """"unexpected" or "planned"."""
    count: int
    gpu_hours: float | None
    """Detection, restart and redone steps of all of them; None where no GPU count is known."""
    redo_steps: int = 0
    """Steps that they threw away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """What happened between two moments."""

    start_us: int
    end_us: int
    gpu_us: Mapping[str, int]
    """GPU-microseconds: `allocated` and every bucket; they sum to it."""
    goodput_ratio: float | None
    """Below zero where more was thrown away than made; None where nothing was allocated."""
    restated_us: Mapping[str, int]
    """GPU-microseconds that a later line of the log moved between buckets, of time before the period: in
    no bucket of it. With them the buckets are the exact difference of two snapshots."""
    shares: Mapping[str, float]
    """Each bucket over the allocation without what is pending; empty where nothing was allocated."""
    mfu_ratio: float | None
    tokens_net: float | None
    hours_per_trillion: float | None
    cost: float | None
    energy_mwh: float | None
    stops: tuple[StopGroup, ...]
    """By kind and cause, the dearest first."""
    interruptions: tuple[Interruption, ...]
    """All of it, planned ones too."""

    @property
    def dearest(self) -> tuple[StopGroup, bool] | None:
        """Return the dearest group, and whether it stands for nearly all that stops cost.

        None where stops explain little of what was lost.
        """
        if not self.stops:
            return None
        top = self.stops[0]
        lost = sum(self.gpu_us[name] for name in ("lost", "startup", "tail")) / 3.6e9
        if top.gpu_hours is not None and top.gpu_hours < _EXPLAINS * lost:
            return None
        whole = math.fsum(group.gpu_hours or 0.0 for group in self.stops)
        alone = len(self.stops) == 1 or (whole > 0 and (top.gpu_hours or 0.0) >= _MOST * whole)
        return top, alone

    @property
    def unexpected(self) -> int:
        """Return how many unexpected interruptions there were."""
        return sum(group.count for group in self.stops if group.kind == "unexpected")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSide:
    """What the plan says of the same things; what it does not say is None."""

    start_us: int | None = None
    finish_us: int | None = None
    """Of all its tokens, later stages included; of a run that is done, for the tokens that it trained."""
    target_tokens: float | None = None
    """Later stages come on top."""
    later_ratio: float = 0.0
    """Later stages over the target."""
    is_staged: bool = False
    """Whether the plan lists its stages."""
    tokens_due: float | None = None
    """By now, stage after stage, each at its own pace."""
    line: tuple[tuple[int, float], ...] = ()
    """Moments and tokens between which the plan's way to its target is straight."""
    gpu_hours: float | None = None
    """As `finish_us`: of the whole plan; of a run that is done, for the tokens that it trained."""
    cost: float | None = None
    energy_mwh: float | None = None
    mfu_ratio: float | None = None
    """Of stages that differ, of those gone through so far, weighted by their planned hours."""
    goodput_ratio: float | None = None
    """The same."""
    hours_per_trillion: float | None = None
    assumed: tuple[str, ...] = ()
    """Keys of it that nobody gave."""

    @property
    def all_tokens(self) -> float | None:
        """Return the target with later stages: what the finish is the finish of."""
        return None if self.target_tokens is None else self.target_tokens * (1 + self.later_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How well the tracker could see, as of the moment of the report."""

    files: int = 0
    """Files that hold a record."""
    unrecognised: tuple[str, ...] = ()
    """Files that no collector reads."""
    rejects: Mapping[str, int] = field(default_factory=dict)
    """Lines that looked like ours and could not be used, by reason."""
    quiet_s: float | None = None
    """Since the last sign of progress."""
    problems: tuple[str, ...] = ()
    """In sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures that a reader looks at first."""

    finish_us: Compared
    """Of the median; the plan's finish beside it."""
    gpu_hours: Compared
    """Whole run, at the finish."""
    cost: Compared
    energy_mwh: Compared
    tokens: Compared
    """In the model; the plan's side is what was due by now."""
    goodput: Compared
    """Whole run."""
    goodput_day: Compared
    """Last day beside the day before it."""
    mfu: Compared
    """Over productive time."""
    mfu_day: Compared
    hours_per_trillion: Compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Daily:
    """Everything that one daily report shows."""

    snapshot: Snapshot
    """Now, with its forecast."""
    before: Snapshot | None
    """A day before; None where the run had not begun."""
    earlier: Snapshot | None
    """Two days before; None where nobody asked."""
    day: Period | None
    """The last day; None where the run is younger, or ended before it."""
    grown: str
    """The bucket whose share grew most from the day before to the last day; "" without a day."""
    day_before: Period | None
    """The day before that; None where the run is younger."""
    figures: Figures
    plan: PlanSide | None
    """None without a plan."""
    pace: str
    """"ahead", "on plan", "behind", "far behind", or "" where it cannot be told."""
    shorter_target: float | None
    """Tokens at which the run's own log ends it, where that is well below the plan's target."""
    history: tuple[Forecast, ...]
    """Forecasts of earlier moments, in order of time."""
    losses: tuple[Loss | None, ...]
    """By interruption of the snapshot."""
    variance: Variance | None
    failures: RunFailures | None
    causes: CauseTable
    checkpoints: RunCheckpoints | None
    advice: RunAdvice | None
    chains: tuple[Chain, ...]
    """Plan and run, then the published runs that stand nearest, in the order of their file."""
    differs: Mapping[str, tuple[str, ...]]
    """What stands between the run and each published run, by its name."""
    sizes: Mapping[str, float]
    """Active parameters by the name of a chain, as far as known."""
    definitions: tuple[GoodputByDefinition, ...]
    series: Series
    """Tokens, step time and MFU over time."""
    changes: Changes
    """When it became slower or faster."""
    money: Costs | None
    energy: Drawn | None
    health: Health

    @property
    def shifts(self) -> tuple[Change, ...]:
        """Return the changes without those that only end a slow-down, which says how long it lasted."""
        ends = {c.ended_us for c in self.changes.changes if c.sort == "slower"}
        return tuple(c for c in self.changes.changes if c.sort != "faster" or c.at_us not in ends)

    @property
    def late_days(self) -> float | None:
        """Return how late the median is; of a run that is done, against the plan for its tokens."""
        return late_days(self.snapshot)

    @property
    def done_ratio(self) -> float | None:
        """Return the tokens in the model over the plan's target."""
        target = self.plan.target_tokens if self.plan is not None else None
        return Compared(now=self.figures.tokens.now, plan=target).ratio_to_plan

    @property
    def for_these_tokens(self) -> bool:
        """Return whether the plan's side is for other tokens than the whole plan: those of a done run."""
        if self.forecast is None or self.forecast.basis != "exact" or self.plan is None:
            return False
        return self.plan.later_ratio > 0 or abs((self.done_ratio or 1.0) - 1) > _WHOLE

    @property
    def shorter_ratio(self) -> float | None:
        """Return the target that the log states over the plan's, where it is well below it."""
        target = self.plan.target_tokens if self.plan is not None else None
        return Compared(now=self.shorter_target, plan=target).ratio_to_plan

    @property
    def ended_short(self) -> bool:
        """Return whether the run ended before its target."""
        return ended_short(self.snapshot)

    @property
    def length_days(self) -> float | None:
        """Return how long the run takes, from its first attempt to the median of its finish."""
        first, last = self.snapshot.attempts[:1], self.figures.finish_us.now
        return None if not first or last is None else (last - first[0].start_us) / DAY_US

    @property
    def slowed(self) -> Change | None:
        """Return the dearest slow-down of the last day that lasts."""
        since = self.snapshot.as_of_us - DAY_US
        lasting = [
            c for c in self.changes.changes if c.sort == "slower" and c.ended_us is None and c.at_us >= since
        ]
        return max(lasting, key=lambda c: c.gpu_hours or 0.0, default=None)

    @property
    def forecast(self) -> Forecast | None:
        """Return the forecast of the moment."""
        return self.snapshot.forecast
