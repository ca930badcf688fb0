"""Forecasts that were kept, one after another: how the middle moved and why, and how right each was.

Pure; loads nothing but values. A forecast is judged only once the truth is
known, and only where it was for the tokens that the run really ended with: one made for another target
was an answer to another question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tracker.core.forecast.move import move_since
from tracker.core.forecast.score import DECILES, Score, Scored, pinball, score
from tracker.core.forecast.value import LEVELS, Forecast, Move, Part

ROWS_SHOWN: Final = 40
"""Forecasts that a table shows; one is kept every quarter of an hour."""
_SAME_TARGET: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """When a run really finished, and with how many tokens."""

    finish_us: int
    tokens: float
    start_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One kept forecast beside what came."""

    forecast: Forecast
    move: Move | None
    """Of the middle, since the one before it in the list."""
    error_us: int | None = None
    """P50 minus truth: negative was too early. None while the truth is unknown, or of another target."""
    inside: bool | None = None
    """Whether the truth lay from P10 to P90."""
    pinball_us: float | None = None
    """Mean loss of the nine deciles."""
    other_target: bool = False
    """Whether it was made for another number of tokens than the run ended with."""

    @property
    def most(self) -> Part | None:
        """Return the largest part of the move."""
        if self.move is None or not self.move.us:
            return None
        return max(self.move.parts, key=lambda part: abs(part.us), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All of a run's kept forecasts."""

    kept: tuple[Kept, ...]
    truth: Truth | None
    score: Score | None
    """Of those that were judged; None while none is."""


def thinned(forecasts: Sequence[Forecast], most: int) -> list[Forecast]:
    """Return at most so many of them, evenly over their order, the first and the last among them."""
    count = len(forecasts)
    if count <= most:
        return list(forecasts)
    if most < 2:
        return list(forecasts[-most:]) if most else []
    return [forecasts[n * (count - 1) // (most - 1)] for n in range(most)]


def judged(forecasts: Sequence[Forecast], truth: Truth | None) -> History:
    """Return the forecasts in order of time, each with its move and, where the truth is known, its score."""
    ordered = sorted(forecasts, key=lambda f: f.as_of_us)
    rows: list[Kept] = []
    cases: list[Scored] = []
    for n, made in enumerate(ordered):
        move = move_since(ordered[n - 1], made) if n else None
        case = _case(made, truth)
        if truth is None or case is None:
            rows.append(Kept(forecast=made, move=move, other_target=_other_target(made, truth)))
            continue
        cases.append(case)
        rows.append(
            Kept(
                forecast=made,
                move=move,
                error_us=round(case.levels[0.5] * 1e6) - truth.finish_us,
                inside=case.levels[0.1] <= case.truth_s <= case.levels[0.9],
                pinball_us=1e6
                * sum(pinball(q, case.levels[q], case.truth_s) for q in DECILES)
                / len(DECILES),
            )
        )
    return History(kept=tuple(rows), truth=truth, score=score(cases))


def _other_target(made: Forecast, truth: Truth | None) -> bool:
    if truth is None or made.inputs is None:
        return False
    return abs(made.inputs.target_tokens / truth.tokens - 1) > _SAME_TARGET


def _case(made: Forecast, truth: Truth | None) -> Scored | None:
    """Return what can be scored: a whole range, made before the finish, for the tokens that came."""
    levels = dict(made.levels_us)
    if truth is None or made.basis not in ("measured", "plan") or len(levels) < len(LEVELS):
        return None
    if made.as_of_us >= truth.finish_us or _other_target(made, truth):
        return None
    return Scored(
        made_s=made.as_of_us / 1e6,
        levels={q: at / 1e6 for q, at in levels.items()},
        truth_s=truth.finish_us / 1e6,
        lines={name: at / 1e6 for name, at in made.lines_us.items()},
        scale_s=max(1.0, (truth.finish_us - truth.start_us) / 1e6),
    )
