"""Finds the moments at which a level shifted: a two-sided cumulative sum that single outliers cannot move,
and, in a steady run, the median of an hour.

Pure: numbers in, moments out, one number at a time; what comes later never changes what was said.

    x   the value watched, here the logarithm of a step time
    m   its level: the Huber mean of the last day of the same regime
    d   x - m, clipped to +-CLIP (one wild value counts as little as a large one)
    U   max(0, U + w (d - SLACK))        D   max(0, D + w (-d - SLACK))       w: cells that it covers
    v   long-run variance of d, by the differences of successive hours (wiggles of a day drop out)
    a shift is named when U or D exceeds h = max(LIMIT, CALM v) and the median of the values since that sum
    last left zero is off by NAMED; there it began

    M   median of the last hour's values, less the median of the last day
    s   root mean square of the medians of that day's hours about its median
    a shift is named as well when M is off by NAMED and by SURE s, in a run that is steady: s at most STEADY,
    over a whole day

The sum weighs how far every value is off, and slow steps among them make it wait; the median of an hour asks
only on which side most of them lie. Where readings are steady it is the quicker of the two, and it is left
out where they are not: there an hour off by NAMED is nothing special.

SLACK is half the shift worth naming. Noise makes h larger, so that it is found later and not wrongly: the
mean time between false alarms grows as exp(2 SLACK h / v). While a sum is above zero its values wait, so
that a shift under way does not draw the level after it.

Sources. The scheme: Page 1954, Continuous inspection schemes, Biometrika 41, 100-115. Clipped scores and
the demand for several values: Lucas and Crosier 1982, Robust CUSUM, Communications in Statistics - Theory
and Methods 11, 2669-2687. The moment and its range by likelihood: Hinkley 1970, Inference about the
change-point in a sequence of random variables, Biometrika 57, 1-17 (here with absolute deviations).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Final

SLACK: Final = 0.025
"""A level that is off by less than this (2.5 %) is never named."""
CLIP: Final = 0.075
LIMIT: Final = 0.15
"""A shift of 5 % gathers 0.025 a cell: six cells of five minutes."""
NAMED: Final = 0.035
"""The median since must lie off by this much: slow wiggles of 3 % that last for hours are no shift."""
CALM: Final = 600.0
"""h over v: 18 nats where the level is off by a hundredth, as it is at the crest of a day's wiggle."""
LIMIT_MOST: Final = 1.5
STEADY: Final = 0.01
SURE: Final = 4.0
LEAST: Final = 3
"""Values that a shift must have shown itself in."""
LEARN: Final = 12.0
"""Cells before anything is judged, an hour; after a shift AGAIN."""
AGAIN: Final = 4.0
KEPT: Final = 288
"""Values in the level: a day of cells."""
_HEAVIEST: Final = 3.0
_SPREAD_LEAST: Final = 0.002
_HOUR: Final = 12
_HOURS_LEAST: Final = 6
_SURE_LEVEL: Final = 6400.0
"""Cells over v that make a level sure to half of SLACK."""
_VARIANCE_BEGIN: Final = 4e-4
"""Long-run variance until six hours were seen."""
_NATS: Final = 3.0
"""Splits this many nats less likely than the best are still possible: 95 % of them lie inside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """One shift of the level. Numbers are those of the values as they were fed: 0, 1, 2 ..."""

    at: int
    """First value of the new regime."""
    first: int
    """Earliest and latest value that may have been it."""
    last: int
    seen: int
    """Value that made it plain."""
    before: float
    """Level until then."""
    after: float
    """Median of the values since, as far as they were known then."""


@dataclass(slots=True)
class Cusum:
    """The state between two values."""

    fed: int = 0
    up: float = 0.0
    down: float = 0.0
    level: float | None = None
    spread: float = _SPREAD_LEAST
    """Root mean square of the clipped deviations."""
    variance: float = _VARIANCE_BEGIN
    middle: float = 0.0
    """Median of the last day of the same regime."""
    shaken: float | None = None
    """Root mean square of the medians of its hours about that; None until the regime is a day old."""
    _weight: float = 0.0
    _needed: float = LEARN
    _line: deque[tuple[int, float, float]] = field(default_factory=deque)
    _waiting: list[tuple[int, float, float]] = field(default_factory=list)
    _up_since: int = 0
    _down_since: int = 0
    _learnt: int = 0
    _measured: bool = False
    _latest: deque[float] = field(default_factory=deque)
    """The last hour's values, of this regime."""

    def feed(self, x: float, weight: float = 1.0) -> Shift | None:
        """Take the next value; return the shift that it makes plain, if it does."""
        number, self.fed = self.fed, self.fed + 1
        weight = min(weight, _HEAVIEST)
        if self.level is None or self._weight < max(self._needed, _SURE_LEVEL * self.variance):
            self._learn(number, x, weight)
            return None
        limit = min(max(LIMIT, CALM * self.variance), LIMIT_MOST)
        d = min(max(x - self.level, -CLIP), CLIP)
        if self.up <= 0:
            self._up_since = number
        if self.down <= 0:
            self._down_since = number
        self.up = max(0.0, self.up + weight * (d - SLACK))
        self.down = max(0.0, self.down + weight * (-d - SLACK))
        self._waiting.append((number, x, weight))
        for total, since in ((self.up, self._up_since), (self.down, self._down_since)):
            if total > limit and number - since + 1 >= LEAST and self._large(since):
                return self._shift(since, number)
        if self._hour_is_off(x, weight):
            return self._shift(number - len(self._latest) + 1, number)
        if self.up <= 0 and self.down <= 0:
            for waiting in self._waiting:
                self._learn(*waiting)
            self._waiting.clear()
        return None

    def _large(self, since: int) -> bool:
        """Whether the values since then lie off by enough to be named."""
        assert self.level is not None
        values = sorted(x for number, x, _ in self._waiting if number >= since)
        return abs(_median(values) - self.level) >= NAMED

    def _hour_is_off(self, x: float, weight: float) -> bool:
        """Take a value into the last hour; tell whether most of that hour lies elsewhere."""
        size = max(LEAST, round(_HOUR / max(1.0, weight)))
        self._latest.append(x)
        while len(self._latest) > size:
            self._latest.popleft()
        if self.shaken is None or self.shaken > STEADY or len(self._latest) < size:
            return False
        return abs(_median(sorted(self._latest)) - self.middle) >= max(NAMED, SURE * self.shaken)

    def _learn(self, number: int, x: float, weight: float) -> None:
        self._line.append((number, x, weight))
        self._weight += weight
        if len(self._line) > KEPT:
            self._line.popleft()
        self._learnt += 1
        if len(self._line) < 2 * _HOUR or self._learnt % _HOUR == 0:
            self._measure()

    def _measure(self) -> None:
        """Take level, spread and long-run variance of the regime's last day."""
        values = [x for _, x, _ in self._line]
        middle = self.middle = _median(sorted(values))
        self.level = middle + sum(_clipped(values, middle)) / len(values)
        self.shaken = self._shaking(values) if self._weight >= KEPT else None
        scores = _clipped(values, self.level)
        if len(scores) >= _HOUR:
            self.spread = max(_SPREAD_LEAST, math.sqrt(sum([d * d for d in scores]) / len(scores)))
        sums, weights = self._hours(scores)
        if len(sums) >= _HOURS_LEAST:
            steps = sum((b - a) ** 2 for a, b in pairwise(sums)) / (len(sums) - 1)
            self.variance = steps / 2 / (sum(weights) / len(weights))
            self._measured = True
        elif not self._measured:
            self.variance = max(_VARIANCE_BEGIN, 3 * self.spread**2)

    def _shaking(self, values: Sequence[float]) -> float:
        """Return how far the medians of the hours lie off the day's."""
        size = max(1, round(_HOUR * len(values) / max(sum(weight for *_, weight in self._line), 1.0)))
        hours = [_median(sorted(values[n : n + size])) for n in range(0, len(values) - size + 1, size)]
        return math.sqrt(sum((hour - self.middle) ** 2 for hour in hours) / len(hours))

    def _hours(self, scores: Sequence[float]) -> tuple[list[float], list[float]]:
        """Return the sums of the deviations over successive hours, and how many cells each covers."""
        sums, weights = [], []
        total = covered = 0.0
        for d, (_, _, weight) in zip(scores, self._line, strict=True):
            total, covered = total + d * weight, covered + weight
            if covered >= _HOUR:
                sums.append(total)
                weights.append(covered)
                total = covered = 0.0
        return sums, weights

    def _shift(self, since: int, seen: int) -> Shift:
        """Place the shift, and begin the new regime with what came after it."""
        assert self.level is not None
        before = self.level
        held = [*self._line, *self._waiting]
        late = sorted(x for number, x, _ in held if number >= since)
        after = _median(late)
        window = [entry for entry in held if entry[0] >= since - 2 * LEAST]
        at, first, last = _split(window, before, after, self.spread)
        late = sorted(x for number, x, _ in held if number >= at)
        self._begin([entry for entry in held if entry[0] >= at])
        return Shift(at=at, first=first, last=last, seen=seen, before=before, after=_median(late))

    def _begin(self, held: list[tuple[int, float, float]]) -> None:
        self._line.clear()
        self._waiting.clear()
        self._latest.clear()
        self.shaken = None
        self._weight = self.up = self.down = 0.0
        self._needed = AGAIN
        for entry in held:
            self._learn(*entry)


def _split(
    window: list[tuple[int, float, float]], before: float, after: float, spread: float
) -> tuple[int, int, int]:
    """Return the number of the first value that fits `after` better, and the range that may be it."""
    clip = abs(after - before)
    gains = [
        weight * (min(abs(x - before), clip) - min(abs(x - after), clip)) for _, x, weight in reversed(window)
    ]
    sums = list(reversed(list(accumulate(gains))))  # what is gained by splitting before this value
    best = max(sums)
    margin = _NATS * max(spread, _SPREAD_LEAST) / 1.2533  # of a Laplace law with this spread
    near = [i for i, value in enumerate(sums) if value >= best - margin]
    return window[sums.index(best)][0], window[near[0]][0], window[near[-1]][0]


def _clipped(values: Sequence[float], level: float) -> list[float]:
    """Return how far values are off a level, by CLIP at most: quick, as a day of them is told every hour."""
    return [-CLIP if d < -CLIP else CLIP if d > CLIP else d for d in [x - level for x in values]]


def _median(ordered: list[float]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
