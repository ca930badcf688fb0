"""Options that several commands share: where the config is, which moment is meant.

Edge.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from tracker.core.records import EARLIEST_US, LATEST_US

Function = TypeVar("Function", bound=Callable[..., Any])
DEFAULT_FILES: Final = ("run.toml", "tracker.toml")


class Moment(click.ParamType):  # type: ignore[type-arg]  # no generic at run time before click 8.5
    """A moment on the command line, as microseconds since 1970 UTC."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read ISO 8601; a moment without an offset is UTC."""
        if isinstance(value, int):
            return value
        try:
            when = dt.datetime.fromisoformat(str(value).strip())
        except ValueError:
            self.fail(
                f"{str(value)[:60]!r}: expected ISO 8601, such as 2026-01-05T08:00:00Z or 2026-01-05 "
                "(without an offset it is UTC)",
                param,
                ctx,
            )
        aware = when if when.tzinfo is not None else when.replace(tzinfo=dt.UTC)
        epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        at_us = (aware - epoch) // dt.timedelta(microseconds=1)
        if not EARLIEST_US <= at_us < LATEST_US:
            self.fail(f"{str(value)[:60]!r}: expected a moment between 2000 and 2100", param, ctx)
        return at_us


class Every(click.ParamType):  # type: ignore[type-arg]  # as above
    """Seconds between two moments of a grid; `auto` is None: as wide as the span asks for."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """Read whole seconds of at most a day, or `auto`."""
        text = str(value).strip()
        if text == "auto":
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 86_400):
            self.fail(f"{text[:60]!r}: expected auto, or whole seconds from 1 to 86400", param, ctx)
        return int(text)


def _find(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Return the config that is meant: --config, else TRACKER_CONFIG, else a usual name here."""
    if value is not None or ctx.resilient_parsing:
        return value
    named = os.environ.get("TRACKER_CONFIG")
    if named:
        path = Path(named)
        if not path.exists():
            raise click.UsageError(f"TRACKER_CONFIG = {named!r}: no such file", ctx)
        return path
    for name in DEFAULT_FILES:
        if Path(name).is_file():
            return Path(name)
    raise click.UsageError(
        "no config: give --config FILE, set TRACKER_CONFIG, or go to a folder with run.toml. "
        "`tracker demo` works without one.",
        ctx,
    )


def find_config(ctx: click.Context, value: Path | None) -> Path:
    """Return the config that is meant, for a command that asks late; UsageError where there is none."""
    found = _find(ctx, click.Option(["--config"]), value)
    assert found is not None
    return found


def config_option(function: Function) -> Function:
    """Add --config; the command gets `config: Path`."""
    return click.option(
        "--config",
        "-c",
        "config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        callback=_find,
        metavar="FILE",
        help="TOML file of the run. Default: $TRACKER_CONFIG, else ./run.toml or ./tracker.toml.",
    )(function)


def json_option(function: Function) -> Function:
    """Add --json; the command gets `as_json: bool`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead.")(function)


def as_of_option(function: Function) -> Function:
    """Add --as-of; the command gets `as_of: int | None`, microseconds since 1970 UTC."""
    return click.option(
        "--as-of",
        type=Moment(),
        metavar="MOMENT",
        help="Answer as of this moment (ISO 8601; UTC where it has no offset). Default: now.",
    )(function)
