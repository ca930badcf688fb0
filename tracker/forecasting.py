"""The forecast of a store: opened, read, asked, kept.

Edge: reads the store. numpy is loaded only when something is asked: the sidecar's own process imports
nothing of this module.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tracker.config import Config
from tracker.core.book import Book
from tracker.core.facts import Facts
from tracker.core.forecast.answer import forecast, spent_money
from tracker.core.forecast.choices import WhatIf, mfu_expected, parse, what_if
from tracker.core.forecast.state import State, state_of
from tracker.core.forecast.value import Forecast
from tracker.core.settings import Settings
from tracker.core.snapshot import Snapshot
from tracker.core.summary import judge, summed
from tracker.marks import StoredMarks
from tracker.store import Reader, Writer, keep_forecast

if TYPE_CHECKING:
    from tracker.core.forecast.history import History, Truth

DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A run's forecast with what it was made of."""

    snapshot: Snapshot
    """With the forecast in it."""
    state: State
    settings: Settings
    spent: float | None

    @property
    def forecast(self) -> Forecast:
        """Return the forecast."""
        assert self.snapshot.forecast is not None
        return self.snapshot.forecast

    def under(self, choices: Mapping[str, str]) -> WhatIf | None:
        """Return the forecast under choices; InvalidValue names a bad one."""
        change = parse(choices, mfu_now=mfu_expected(self.state, self.settings))
        return what_if(
            self.state,
            self.settings,
            change,
            spent=self.spent,
            plan_finish_us=self.snapshot.plan_finish_us,
        )


def ask(
    book: Book,
    facts: Facts,
    *,
    as_of_us: int,
    since_us: int | None = None,
    rejects: int = 0,
    earlier: Forecast | None = None,
) -> Asked:
    """Return the run and its forecast as of a moment, told against the forecast of an earlier moment.

    The earlier one is made again from the facts of then, never looked up: so the answer follows from
    the facts, the settings and the two moments alone. Who has just asked that moment gives `earlier`.
    """
    if since_us is not None and since_us < as_of_us:
        earlier = _ask(book, facts, since_us, None, 0).forecast  # the book goes on from there
    return _ask(book, facts, as_of_us, earlier, rejects)


def _ask(book: Book, facts: Facts, as_of_us: int, earlier: Forecast | None, rejects: int) -> Asked:
    opened = book.open(facts, as_of_us=as_of_us)
    made = summed(judge(book, facts, opened), rejects=rejects)
    state = state_of(book, facts, made, opened)
    settings = book.settings
    hours = made.gpu_us["allocated"] / 3.6e9 if made.gpu_us is not None else None
    spent = spent_money(settings.plan, _spans(made), hours)
    if state.finished_us is not None and not state.stages and made.state != "finished":
        # the target is passed and the run goes on: what it took is what it had taken by then
        then = summed(judge(book, facts, book.open(facts, as_of_us=state.finished_us)))
        hours = then.gpu_us["allocated"] / 3.6e9 if then.gpu_us is not None else None
        state = replace(state, spent_gpu_hours=hours)
        spent = spent_money(settings.plan, _spans(then), hours)
    told = forecast(state, settings, spent=spent, plan_finish_us=made.plan_finish_us, earlier=earlier)
    doubts = [f"the forecast does not use a reading: {why}" for why in state.doubts]
    warnings = (*made.warnings, *([told.warning] if told.warning else []), *doubts)
    made = replace(made, forecast=told, warnings=warnings)
    return Asked(snapshot=made, state=state, settings=settings, spent=spent)


def _spans(made: Snapshot) -> list[tuple[int, int, float]]:
    """Return when GPU-hours were allocated: start, end and hours of each attempt."""
    return [
        (line.start_us, line.end_us or made.as_of_us, (line.gpu_us or {}).get("allocated", 0) / 3.6e9)
        for line in made.attempts
    ]


def ask_store(config: Config, *, as_of_us: int, since_us: int | None = None) -> Asked:
    """Ask an existing store."""
    with Reader(config.store) as reader, reader.snapshot():
        rejects = sum(reader.reject_counts().values())
        book = Book(config.settings, marks=StoredMarks(reader))
        return ask(book, reader, as_of_us=as_of_us, since_us=since_us, rejects=rejects)


def history(config: Config, *, until_us: int) -> list[Forecast]:
    """Return the forecasts that were kept, up to a moment, in order of time."""
    with Reader(config.store) as reader:
        return [Forecast.from_json(json.loads(body)) for body in reader.kept_forecasts(until_us=until_us)]


def judged_history(config: Config, *, until_us: int) -> History:
    """Return the kept forecasts with how they moved and, once the run is finished, how right each was."""
    from tracker.core.forecast.history import judged

    made = history(config, until_us=until_us)
    return judged(made, _truth(ask_store(config, as_of_us=until_us)) if made else None)


def _truth(asked: Asked) -> Truth | None:
    from tracker.core.forecast.history import Truth

    told, state = asked.forecast, asked.state
    if told.basis != "exact" or told.finish_us is None or told.finish_us.p50 is None:
        return None
    if not state.done_tokens or state.start_us is None:
        return None
    aim = state.aim_tokens
    tokens = min(state.done_tokens, aim) if aim is not None else state.done_tokens
    return Truth(finish_us=round(told.finish_us.p50), tokens=tokens, start_us=state.start_us)


def keep(config: Config, made: Forecast) -> None:
    """Keep a forecast in the store, under its moment and its inputs' digest."""
    with Writer(config.store) as writer:
        keep_forecast(writer, made.as_of_us, made.digest, json.dumps(made.to_json()))
