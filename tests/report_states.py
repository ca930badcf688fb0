"""The states that a daily report must tell sensibly, each a simulated run: `python -m tests.report_states`
writes their golden texts anew.

Edge when run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from collectors import named
from reports.daily import daily_page
from reports.page import Page
from reports.text import text_of
from tests.factories import ListFacts, facts_from_logs
from tests.simulator import Act, Run, contents, preset, simulate, written
from tests.simulator.configure import COLLECTORS, config
from tracker import app
from tracker.core.book import Book
from tracker.core.daily import Daily
from tracker.core.records import Kind
from tracker.core.settings import Settings
from tracker.reporting import daily_of

GOLDEN: Final = Path(__file__).parent / "golden" / "report"
DAY_S: Final = 86_400.0
_LONG: Final[dict[str, Any]] = {
    "seed": 7, "chatter": 0.0, "slow_share": 0.0, "step_s": 15.2, "batch": 10_240, "log_interval": 10,
    "save_interval": 150, "eval_interval": 500, "total_steps": 47_684,
}  # fmt: skip
"""The demo's run in steps ten times as large: as long in days, and quickly played."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One state: which run, seen when, under which config."""

    name: str
    run: Callable[[], Run]
    as_of_s: float
    """Seconds after the run's start."""
    tokens: float = 4e12
    edits: dict[str, str] = field(default_factory=dict)
    """Lines of the config that are other ones."""
    said: dict[str, Any] = field(default_factory=dict)
    """What the log states besides."""


def _demo(**changes: Any) -> Callable[[], Run]:
    return lambda: simulate(preset("demo", **{**_LONG, **changes}))


STATES: Final = (
    State(name="first-hour", run=_demo(horizon_s=3000.0, acts=(), mtbf_h=None), as_of_s=3000.0),
    State(
        name="on-plan",
        run=_demo(horizon_s=4.2 * DAY_S, acts=(), mtbf_h=14.0),
        as_of_s=4.2 * DAY_S,
        edits={"mfu = 0.42": "mfu = 0.424", "goodput = 0.85": "goodput = 0.955"},
    ),
    State(
        name="behind-plan",
        run=_demo(
            horizon_s=9.1 * DAY_S, mtbf_h=3.0, acts=(Act(step=5_421, what="rollback", to_step=5_000),)
        ),
        as_of_s=9.04 * DAY_S,
        edits={
            "mfu = 0.42": "mfu = 0.46\ndeadline = 2026-01-16T00:00:00Z\nbudget = 450_000",
            "goodput = 0.85": "goodput = 0.93",
        },
    ),
    State(
        name="stalled",
        run=_demo(horizon_s=1.5 * DAY_S, mtbf_h=12.0, acts=(Act(step=7_000, what="stall"),)),
        as_of_s=1.5 * DAY_S,
    ),
    State(
        name="rolled-back",
        run=_demo(
            horizon_s=2.6 * DAY_S, mtbf_h=None, acts=(Act(step=14_000, what="rollback", to_step=9_000),)
        ),
        as_of_s=2.6 * DAY_S,
    ),
    State(
        name="finished",
        run=_demo(total_steps=24_000, horizon_s=6.0 * DAY_S, acts=(), mtbf_h=9.0),
        as_of_s=5.5 * DAY_S,
        tokens=24_000 * 10_240 * 8192.0,
    ),
    State(
        name="ended-short",
        run=_demo(total_steps=6_000, horizon_s=1.5 * DAY_S, acts=(), mtbf_h=9.0),
        as_of_s=1.4 * DAY_S,
        tokens=2e12,
        edits={"mfu = 0.42": "mfu = 0.42\nbudget = 20_000"},
    ),
    State(
        name="no-plan",
        run=_demo(horizon_s=2.2 * DAY_S, acts=(), mtbf_h=8.0),
        as_of_s=2.2 * DAY_S,
        edits={"[plan]": ""},
    ),
    State(
        name="moe-fp8",
        run=_demo(
            horizon_s=3.3 * DAY_S, acts=(), mtbf_h=20.0, active_params=37e9, gpus=2048, batch=15_360,
            sequence_length=4096, step_s=20.5, seed=11,
        ),
        as_of_s=3.3 * DAY_S,
        tokens=14.8e12,
        edits={
            "total_params = 37000000000.0": "total_params = 671e9",
            'gpu = "h100-sxm"': 'gpu = "h800"',
            "goodput = 0.85": "goodput = 0.9",
            "mfu = 0.42": "mfu = 0.35\nfacility_overhead = 1.2\ncarbon_kg_per_mwh = 350",
        },
        said={"precision": "fp8", "expert_parallel": 64},
    ),
)  # fmt: skip


def facts_of(state: State) -> tuple[Run, ListFacts]:
    """Return a state's run, and the facts that the real collectors read from its text."""
    run = state.run()
    until_us = run.parameters.start_us + round(state.as_of_s * 1e6)
    files = contents(run, until_us=until_us)
    logs = {name.removeprefix("logs/"): body for name, body in files.items() if name.startswith("logs/")}
    facts = facts_from_logs(
        logs,
        named(COLLECTORS[run.parameters.style]),
        {name: body for name, body in files.items() if name == "sacct.txt"},
        named("slurm"),
        written_us=written(run, until_us=until_us),
    )
    if state.said:
        _say(facts, state.said)
    return run, facts


def _say(facts: ListFacts, said: dict[str, Any]) -> None:
    """Let the logs state more than the simulator writes."""
    for stream in facts.held:
        for segment in stream.segments:
            segment.settings.update(said)
    for own in facts.kept.values():
        for number, record in enumerate(own):
            if getattr(record, "kind", None) is Kind.SETTING:
                own[number] = replace(record, data={**record.data, **said})  # type: ignore[union-attr,type-var]


def settings_of(state: State, run: Run) -> Settings:
    """Return the settings of a state's config, read as a user's is."""
    text = config(run, name=f"simulated-{state.name}", tokens=state.tokens)
    for old, new in state.edits.items():
        assert old in text, (state.name, old)
        if old == "[plan]":
            text = text[: text.index("[plan]")] + text[text.index("[[source]]") :]
        else:
            text = text.replace(old, new)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.toml"
        path.write_text(text, encoding="utf-8")
        return app.load_config(path).settings


@cache
def daily_in(name: str) -> Daily:
    """Return the report's value in a state."""
    state = next(one for one in STATES if one.name == name)
    run, facts = facts_of(state)
    as_of_us = run.parameters.start_us + round(state.as_of_s * 1e6)
    return daily_of(Book(settings_of(state, run)), facts, as_of_us=as_of_us)


@cache
def page_in(name: str) -> Page:
    """Return the report in a state."""
    return daily_page(daily_in(name))


def main() -> None:
    """Write the golden texts."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for state in STATES:
        (GOLDEN / f"{state.name}.txt").write_text(text_of(page_in(state.name)), encoding="utf-8")


if __name__ == "__main__":
    main()
