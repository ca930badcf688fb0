"""How good forecasts were, once the truth is known: coverage, pinball loss, bias, beside straight lines.

Pure: lists in, numbers out.

    pinball(q) = max(q (y - f), (q - 1) (y - f))       of truth y and the forecast f of level q
    the mean over the nine deciles; for a bare line every level is the line itself: half its error

A proper score: it is least, in the mean, for the true distribution (Gneiting and Raftery 2007).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

DECILES: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One forecast and what came of it. Moments in seconds from any common zero."""

    made_s: float
    levels: Mapping[float, float]
    """The moment at each level."""
    truth_s: float
    lines: Mapping[str, float]
    """What straight lines said."""
    scale_s: float = 1.0
    """Errors are told as shares of this: the calendar of the whole run, say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineScore:
    """One straight line."""

    count: int
    """Moments at which it could be drawn."""
    pinball: float
    """As a bare line."""
    pinball_with_range: float
    """With the fixed relative range that would have been best for these very moments, in hindsight."""
    median_error: float
    """Of the absolute error."""
    bias: float
    """Median of forecast minus truth: negative is early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """All forecasts of a set. Errors in units of `scale_s`."""

    count: int
    coverage_80: float
    """Share of truths between P10 and P90."""
    coverage_50: float
    """Between P25 and P75."""
    below: Mapping[float, float]
    """Share of truths at or below each decile: the decile itself where calibrated."""
    pinball: float
    median_error: float
    bias: float
    lines: Mapping[str, LineScore]

    @property
    def worst_decile(self) -> float:
        """Return the largest distance of a decile from its share."""
        return max(abs(share - level) for level, share in self.below.items())


def pinball(level: float, forecast: float, truth: float) -> float:
    """Return the loss of one quantile.

    >>> pinball(0.9, 10.0, 12.0), round(pinball(0.9, 12.0, 10.0), 3)
    (1.8, 0.2)
    """
    return max(level * (truth - forecast), (level - 1) * (truth - forecast))


def score(cases: Sequence[Scored]) -> Score | None:
    """Return the score of a set; None for an empty one."""
    if not cases:
        return None
    names = sorted({name for case in cases for name in case.lines})
    return Score(
        count=len(cases),
        coverage_80=_share([c.levels[0.1] <= c.truth_s <= c.levels[0.9] for c in cases]),
        coverage_50=_share([c.levels[0.25] <= c.truth_s <= c.levels[0.75] for c in cases]),
        below={q: _share([c.truth_s <= c.levels[q] for c in cases]) for q in DECILES},
        pinball=statistics.fmean(
            pinball(q, c.levels[q], c.truth_s) / c.scale_s for c in cases for q in DECILES
        ),
        median_error=statistics.median(abs(c.levels[0.5] - c.truth_s) / c.scale_s for c in cases),
        bias=statistics.median((c.levels[0.5] - c.truth_s) / c.scale_s for c in cases),
        lines={name: _line(name, [c for c in cases if name in c.lines]) for name in names},
    )


def _share(hits: Sequence[bool]) -> float:
    return sum(hits) / len(hits)


def _line(name: str, cases: Sequence[Scored]) -> LineScore:
    errors = [(c.lines[name] - c.truth_s) / c.scale_s for c in cases]
    ranged = 0.0
    for level in DECILES:
        factor = best_factor(
            level,
            [c.lines[name] - c.made_s for c in cases],
            [c.truth_s - c.made_s for c in cases],
            [c.scale_s for c in cases],
        )
        ranged += statistics.fmean(
            pinball(level, factor * (c.lines[name] - c.made_s), c.truth_s - c.made_s) / c.scale_s
            for c in cases
        )
    return LineScore(
        count=len(cases),
        pinball=statistics.fmean(abs(e) / 2 for e in errors),
        pinball_with_range=ranged / len(DECILES),
        median_error=statistics.median(abs(e) for e in errors),
        bias=statistics.median(errors),
    )


def best_factor(
    level: float, ahead: Sequence[float], truth: Sequence[float], scale: Sequence[float]
) -> float:
    """Return the factor on what a line has ahead of it that has the least pinball loss at a level.

    A weighted quantile of truth / ahead, weights ahead / scale.
    """
    pairs = sorted((t / a, a / s) for a, t, s in zip(ahead, truth, scale, strict=True) if a > 0)
    whole, reached = sum(weight for _, weight in pairs), 0.0
    for ratio, weight in pairs:
        reached += weight
        if reached >= level * whole:
            return ratio
    return 1.0
