"""The forecast replayed at many moments of a run's past, each with only what was known then.

Pure, given its Facts. A finished run is scored against its finish. One that goes on is asked, at each
moment, when it would reach the tokens that it has by now: that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tracker.core.book import Book
from tracker.core.facts import Facts
from tracker.core.forecast.answer import forecast
from tracker.core.forecast.prior import DEFAULT, Priors
from tracker.core.forecast.score import Score, Scored, score
from tracker.core.forecast.state import reached_us, state_of
from tracker.core.forecast.value import Forecast
from tracker.core.plan import Plan
from tracker.core.settings import Settings
from tracker.core.snapshot import Snapshot

Summarise = Callable[[Book, Facts, int], Snapshot]
"""(book, facts, as_of_us) -> snapshot; `core/summary.py` has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One moment of the replay."""

    done_ratio: float
    """Of the tokens that were to be reached."""
    forecast: Forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A whole replay."""

    target_tokens: float
    finished: bool
    """Whether the target is the plan's; else it is what the run has reached by now."""
    truth_us: int
    start_us: int
    rows: tuple[Row, ...]
    score: Score | None
    """None where no moment had an answer with a range."""


class NoTruth(Exception):
    """There is nothing to score against; the message says why."""


def backtest(
    settings: Settings,
    facts: Facts,
    summarise: Summarise,
    *,
    as_of_us: int,
    moments: int = 20,
    priors: Priors = DEFAULT,
) -> Replay:
    """Replay a run at so many moments, evenly spaced from its first step to its end.

    Raises NoTruth for a run without progress.
    """
    book = Book(settings)
    whole = summarise(book, facts, as_of_us)
    now = state_of(book, facts, whole)
    if now.start_us is None or not now.done_tokens or not now.blocks:
        raise NoTruth("no step was seen, so there is nothing to replay")
    target = now.done_tokens
    planned = now.target_tokens
    finished = planned is not None and target >= planned
    aim = planned if finished and planned is not None else target
    truth = reached_us(now.blocks, now.inherited_tokens, aim)
    asked = replace(settings, plan=_aimed(settings.plan, aim))
    first = now.blocks[0].end_us
    rows = []
    for number in range(1, moments + 1):
        at = first + (truth - first) * number // (moments + 1)
        rows.append(_row(asked, facts, summarise, at, priors))
    kept = [row for row in rows if row is not None]
    cases = list(_cases(kept, truth, now.start_us))
    return Replay(
        target_tokens=aim,
        finished=finished,
        truth_us=truth,
        start_us=now.start_us,
        rows=tuple(kept),
        score=score(cases),
    )


def _aimed(plan: Plan | None, tokens: float) -> Plan:
    """Return the plan with another target, and nothing after it."""
    if plan is None:
        return Plan(tokens=tokens, later_stages=0.0)
    return replace(plan, tokens=tokens, stages=(), later_stages=0.0)


def _row(settings: Settings, facts: Facts, summarise: Summarise, at_us: int, priors: Priors) -> Row | None:
    book = Book(settings)
    state = state_of(book, facts, summarise(book, facts, at_us))
    made = forecast(state, settings, priors=priors)
    if made.finish_us is None or state.done_tokens is None or not state.target_tokens:
        return None
    return Row(done_ratio=state.done_tokens / state.target_tokens, forecast=made)


def _cases(rows: Sequence[Row], truth_us: int, start_us: int) -> Iterator[Scored]:
    for row in rows:
        levels = dict(row.forecast.levels_us)
        if row.forecast.basis != "measured" or len(levels) < 13:
            continue
        yield Scored(
            made_s=row.forecast.as_of_us / 1e6,
            levels={q: at / 1e6 for q, at in levels.items()},
            truth_s=truth_us / 1e6,
            lines={name: at / 1e6 for name, at in row.forecast.lines_us.items()},
            scale_s=(truth_us - start_us) / 1e6,
        )
