"""`tracker forecast`: when the run will finish and what it will have cost.

Edge.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tracker.cli._options import Moment, as_of_option, config_option, json_option


class _Choice(click.ParamType):  # type: ignore[type-arg]  # no generic at run time before click 8.5
    """One `k=v` of --what-if."""

    name = "k=v"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, mark, what = str(value).partition("=")
        if not mark or not key.strip() or not what.strip():
            self.fail(f"{str(value)[:60]!r}: expected k=v, such as gpus=2048", param, ctx)
        return key.strip(), what.strip()


@click.command()
@config_option
@as_of_option
@click.option(
    "--what-if",
    "choices",
    type=_Choice(),
    multiple=True,
    metavar="K=V",
    help="Ask under a choice: gpus, checkpoint_interval_min, restart_min, mfu, mtbf_factor. May be repeated.",
)
@click.option(
    "--since",
    type=Moment(),
    metavar="MOMENT",
    help="Tell why the finish moved since then. Default: a day before.",
)
@click.option(
    "--history",
    is_flag=True,
    help="Show the forecasts that `tracker run` kept: how they moved and why, and, once the run is finished, "
    "how right each was.",
)
@click.option("--backtest", is_flag=True, help="Replay the run, and score what would have been said.")
@click.option(
    "--moments", type=click.IntRange(1, 500), default=20, show_default=True, help="Moments of --backtest."
)
@json_option
def forecast(
    config: Path,
    as_of: int | None,
    choices: tuple[tuple[str, str], ...],
    since: int | None,
    history: bool,
    backtest: bool,
    moments: int,
    as_json: bool,
) -> None:
    """Forecast the finish, GPU-hours, cost and energy, each with a range.

    P10, P50 and P90: the truth is below them with 10, 50 and 90 % probability. Totals are of the whole
    run, later stages included. Reads the store only: run `tracker ingest` or `tracker run` first.

    \b
    Examples:
      tracker forecast --config run.toml
      tracker forecast --config run.toml --what-if gpus=2048 --what-if restart_min=5
      tracker forecast --config run.toml --as-of 2026-01-05T08:00:00Z --json
      tracker forecast --config run.toml --history
      tracker forecast --config run.toml --backtest
    """
    from tracker import app
    from tracker.clock import SystemClock

    if sum((history, backtest, bool(choices))) > 1:
        raise click.UsageError("--history, --backtest and --what-if answer different questions: give one")
    if twice := sorted({key for key, _ in choices if sum(key == other for other, _ in choices) > 1}):
        raise click.UsageError(f"--what-if {twice[0]} is given more than once: give one value for it")
    loaded = app.load_config(config)
    as_of_us = loaded.moment_us(as_of if as_of is not None else SystemClock().now_us())
    if since is not None and since >= as_of_us:
        raise click.UsageError(
            f"--since {_told(since)}: expected a moment before {_told(as_of_us)}, the forecast's own: "
            "it tells what moved from then to there"
        )
    if history:
        _history(loaded, as_of_us, as_json)
    elif backtest:
        _backtest(loaded, as_of_us, moments, as_json)
    else:
        _now(loaded, as_of_us, dict(choices), since, as_json)


def _told(at_us: int) -> str:
    from tracker.core.forecast.section import iso

    return str(iso(at_us))


def _now(loaded: Any, as_of_us: int, choices: dict[str, str], since: int | None, as_json: bool) -> None:
    from tracker import app
    from tracker.cli._output import print_json, print_pairs, print_table, talk
    from tracker.core.errors import InvalidValue
    from tracker.core.forecast.document import forecast_document
    from tracker.forecasting import DAY_US

    asked = app.forecast_now(
        loaded, as_of_us=as_of_us, since_us=since if since is not None else as_of_us - DAY_US
    )
    try:
        other = asked.under(choices) if choices else None
    except InvalidValue as error:
        raise click.UsageError(str(error)) from None
    snapshot, told = asked.snapshot, asked.forecast
    if as_json:
        print_json(
            forecast_document(
                snapshot.run,
                told,
                plan_finish_us=snapshot.plan_finish_us,
                asked=choices,
                otherwise=other.forecast if other is not None else None,
                change=other.change if other is not None else None,
            )
        )
        return
    from reports.forecast import forecast_pairs, what_if_table

    print_pairs(forecast_pairs(snapshot, told))
    if since is not None and told.move is None and told.basis in ("measured", "plan"):
        talk(f"nothing to compare with: at {_told(since)} no finish of this run was in sight yet")
    if other is not None:
        click.echo()
        print_table(what_if_table(told, other.forecast, other.change, choices))
    elif choices:
        click.echo("\nNothing is forecast, so nothing changes with a choice.")


def _history(loaded: Any, as_of_us: int, as_json: bool) -> None:
    from reports.forecast import history_table, kept_score_table
    from tracker import app
    from tracker.cli._output import print_json, print_table, talk
    from tracker.core.forecast.document import history_document
    from tracker.core.forecast.history import ROWS_SHOWN, judged, thinned

    found = app.forecast_judged(loaded, until_us=as_of_us)
    if as_json:
        print_json(history_document(loaded.settings.run, found))
        return
    if not found.kept:
        talk("no forecast was kept yet: `tracker run` keeps one at its start and every quarter of an hour")
        return
    some = thinned([kept.forecast for kept in found.kept], ROWS_SHOWN)
    print_table(history_table(judged(some, found.truth), len(found.kept)))
    if found.score is not None and found.truth is not None:
        click.echo()
        print_table(kept_score_table(found))


def _backtest(loaded: Any, as_of_us: int, moments: int, as_json: bool) -> None:
    from reports.forecast import backtest_table, score_table
    from tracker import app
    from tracker.cli._output import print_json, print_table, talk
    from tracker.core.forecast.backtest import NoTruth
    from tracker.core.forecast.document import backtest_document

    try:
        replay = app.forecast_backtest(loaded, as_of_us=as_of_us, moments=moments)
    except NoTruth as error:
        if as_json:
            print_json({"schema": 1, "run": loaded.settings.run, "moments": [], "reason": str(error)})
        else:
            talk(str(error))
        return
    if as_json:
        print_json(backtest_document(loaded.settings.run, replay))
        return
    print_table(backtest_table(replay))
    click.echo()
    print_table(score_table(replay))
