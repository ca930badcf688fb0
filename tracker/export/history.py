"""A run's past as samples: what its metrics page would have shown, moment by moment.

Pure, given its Facts. Every family of a run (`training_*`) has a sample at each moment of a regular grid;
the few that a reading moves have one at each reading too. A sample at t is the figure of a snapshot as of t.
Forecasts are those that were kept: at t the latest one made by then. The tracker's own workings
(`tracker_*`) are no part of a run's past.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from tracker.core.errors import InvalidValue
from tracker.core.facts import Facts
from tracker.core.forecast.value import Forecast
from tracker.core.replay import MS_US, Replay, Stop
from tracker.core.settings import Settings
from tracker.core.snapshot import Snapshot
from tracker.families import FAMILIES, Family, Page

S_US: Final = 1_000_000
RUN_FAMILIES: Final = tuple(family for family in FAMILIES if family.name.startswith("training_"))
STEP_FAMILIES: Final = (
    "training_step", "training_net_tokens", "training_processed_tokens_total", "training_step_time_seconds",
)  # fmt: skip
"""Families that have a sample at every reading besides, in the order of `StepSample` after its moment."""
BLOCK_SAMPLES: Final = 200_000
LEAST_EVERY_S: Final = 60
MOST_MOMENTS: Final = 2_000
"""Of a grid that nobody chose: each costs a whole snapshot."""
_STILL: Final = (
    "training_planned_tokens", "training_attempts_total", "training_running_attempts",
    "training_interruptions", "training_reservation_end_timestamp_seconds",
    "training_last_attempt_start_timestamp_seconds",
    "training_last_interruption_timestamp_seconds", "training_plan_budget", "training_plan_cost",
    "training_plan_deadline_timestamp_seconds", "training_plan_energy_joules",
    "training_plan_finish_timestamp_seconds", "training_plan_goodput_ratio", "training_plan_gpu_seconds",
    "training_plan_mfu_ratio", "training_plan_mtbf_seconds", "training_plan_redone_ratio",
    "training_plan_start_timestamp_seconds",
)  # fmt: skip
"""Families that change only when something besides a reading happens."""

_STANDING: Final = tuple(family for family in RUN_FAMILIES if family.kind == "info" or family.name in _STILL)
_MOVING: Final = tuple(family for family in RUN_FAMILIES if family not in _STANDING)

Labels = tuple[tuple[str, str], ...]


class Line(NamedTuple):
    """One series, or a part of it in time order."""

    family: Family
    labels: Labels
    times_ms: list[int]
    values: list[float | int]


@dataclass(slots=True)
class Block:
    """All samples of a stretch of time: every series' part of it. No two blocks share a moment."""

    start_ms: int
    end_ms: int
    """Both are in it."""
    lines: list[Line]

    @property
    def samples(self) -> int:
        """Return how many samples it holds."""
        return sum(len(line.values) for line in self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Which moments: the grid's are multiples of `every_s` since 1970, from `since_us` to `until_us`."""

    since_us: int
    until_us: int
    every_s: int = 60

    def moments(self) -> range:
        """Return the moments of the grid, microseconds."""
        every = self.every_s * S_US
        return range(-(-self.since_us // every) * every, self.until_us + 1, every)


@dataclass(slots=True)
class History:
    """A run's past, ready to be walked through once."""

    settings: Settings
    facts: Facts
    forecasts: Sequence[Forecast] = ()
    """Those that were kept, in order of time."""
    linger_us: int = 3600 * S_US
    """How long a finished run stays on the page."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Added to every sample: job and instance, as a scrape would."""
    replay: Replay = field(init=False)

    def __post_init__(self) -> None:
        self.replay = Replay(self.settings, self.facts)

    def span(
        self, *, since_us: int | None, until_us: int | None, now_us: int, every_s: int | None = None
    ) -> Span | None:
        """Return the moments that are meant; None where nothing is known of the run.

        Without `every_s` the grid is as `usual_every_s` has it.
        They end the linger time after the last fact: from then on the page itself shows the run.
        """
        first, last = self.replay.begins_us, self.replay.ends_us
        if first is None or last is None:
            return None
        if since_us is not None and until_us is not None and since_us > until_us:
            raise InvalidValue("--since", _iso(since_us), f"a moment before --until = {_iso(until_us)}")
        begin_us = max(first, since_us) if since_us is not None else first
        end_us = until_us if until_us is not None else min(now_us, last + self.linger_us)
        every_s = every_s if every_s is not None else usual_every_s(begin_us, end_us)
        return Span(since_us=begin_us, until_us=end_us, every_s=every_s)

    def blocks(self, span: Span) -> Iterator[Block]:
        """Yield all samples in blocks, in order of time."""
        gather = _Gather(self.settings.run, self.labels)
        waiting = list(reversed(self.forecasts))
        latest: Forecast | None = None
        for stop in self.replay.walk(iter(span.moments()), since_us=span.since_us):
            made = stop.snapshot
            while waiting and waiting[-1].as_of_us <= made.as_of_us:
                latest = waiting.pop()
            if self._gone(made):
                gather.readings(stop)
                break
            gather.add(stop, replace(made, forecast=latest) if latest is not None else made)
            if gather.samples >= BLOCK_SAMPLES:
                yield gather.block()
        if gather.samples:
            yield gather.block()

    def _gone(self, made: Snapshot) -> bool:
        """Tell whether a finished run has left the page."""
        last = self.replay.ends_us or 0
        return made.state == "finished" and made.as_of_us > last + self.linger_us


def usual_every_s(since_us: int, until_us: int) -> int:
    """Return a step of the grid: a minute, doubled until the span has at most 2,000 of them.

    Doubled, so that a wider grid stands on moments of the narrower: a run that has grown since adds few.

    >>> usual_every_s(0, 86_400_000_000), usual_every_s(0, 174 * 86_400_000_000)
    (60, 7680)
    """
    every_s = LEAST_EVERY_S
    while until_us - since_us > every_s * S_US * MOST_MOMENTS:
        every_s *= 2
    return every_s


def checked_labels(words: Sequence[str]) -> dict[str, str]:
    """Return labels given as NAME=VALUE; InvalidValue for a bad one, or one that a family has itself."""
    found: dict[str, str] = {}
    own = {name for family in RUN_FAMILIES for name in ("run", *family.labels)}
    for word in words:
        name, sign, value = word.partition("=")
        plain = name.isascii() and name.isidentifier() and not name.startswith("__")
        if not sign or not plain or not value.isprintable() or len(value) > 200:
            raise InvalidValue("--label", word, "NAME=VALUE, such as instance=node17:9109")
        if name in own:
            raise InvalidValue("--label", word, "a name that no metric of ours uses itself")
        found[name] = value
    return found


class _Gather:
    """Samples of a block by series."""

    def __init__(self, run: str, labels: Mapping[str, str]) -> None:
        self._run = run
        self._common: Labels = (("run", run.encode("utf-8", "replace").decode()), *labels.items())
        self._lines: dict[tuple[str, tuple[str, ...]], Line] = {}
        self._still: list[tuple[Family, tuple[str, ...], float | int]] = []
        self._grid_ms: list[int] = []
        """Moments of the grid at which nothing but what moves was written down."""
        self._first_ms: int | None = None
        self._last_ms = 0
        self.samples = 0
        self._families = {family.name: family for family in RUN_FAMILIES}

    def add(self, stop: Stop, snapshot: Snapshot) -> None:
        """Take a moment of the grid, and the readings before it."""
        last_ms = self.readings(stop)
        at_ms = snapshot.as_of_us // MS_US
        page = Page(self._run, snapshot)
        self._span(at_ms)
        if stop.opened or not self._grid_ms:
            self._settle(page)
        self._grid_ms.append(at_ms)
        self.samples += len(self._still)
        for family in _MOVING:
            if at_ms == last_ms and family.name in STEP_FAMILIES:
                continue  # a reading at this very moment has told it
            samples = family.samples(page)
            for values, value in samples:
                if value is not None and math.isfinite(value):
                    line = self._line(family, values)
                    line.times_ms.append(at_ms)
                    line.values.append(value)
                    self.samples += 1

    def readings(self, stop: Stop) -> int | None:
        """Take the readings of a stop; return the moment of the last one."""
        if not len(stop.samples):
            return None
        at_us, *columns = stop.samples.columns()
        times = [at // MS_US for at in at_us]
        self._span(times[0])
        self._span(times[-1])
        for name, values in zip(STEP_FAMILIES, columns, strict=True):
            line = self._line(self._families[name], ())
            if None in values:
                for at_ms, value in zip(times, values, strict=True):
                    if value is not None:
                        line.times_ms.append(at_ms)
                        line.values.append(value)
                        self.samples += 1
            else:
                line.times_ms.extend(times)
                line.values.extend(values)
                self.samples += len(values)
        return times[-1]

    def block(self) -> Block:
        """Return what was gathered, and begin anew."""
        assert self._first_ms is not None
        self._settle_down()
        lines = [line for line in self._lines.values() if line.values]
        made = Block(self._first_ms, self._last_ms, lines)
        self._lines, self._first_ms, self.samples = {}, None, 0
        return made

    def _settle(self, page: Page) -> None:
        """Write down what stood still on the grid so far, and look at it anew."""
        self._settle_down()
        self._still = [
            (family, values, value)
            for family in _STANDING
            for values, value in family.samples(page)
            if value is not None and math.isfinite(value)
        ]

    def _settle_down(self) -> None:
        for family, values, value in self._still:
            line = self._line(family, values)
            line.times_ms.extend(self._grid_ms)
            line.values.extend([value] * len(self._grid_ms))
        self._grid_ms.clear()

    def _line(self, family: Family, values: tuple[str, ...]) -> Line:
        key = (family.name, values)
        line = self._lines.get(key)
        if line is None:
            labels = (*self._common, *zip(family.labels, values, strict=True))
            line = self._lines[key] = Line(family, labels, [], [])
        return line

    def _span(self, at_ms: int) -> None:
        if self._first_ms is None:
            self._first_ms = at_ms
        self._last_ms = at_ms


def _iso(at_us: int) -> str:
    from tracker.core.documents import iso

    return iso(at_us) or ""
