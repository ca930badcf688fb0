"""`tracker export`: the history as OpenMetrics text, or a table as CSV, JSON lines or Parquet.

Edge.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import click

from tracker.cli._options import Every, Moment, as_of_option, config_option

if TYPE_CHECKING:
    from tracker.config import Config
    from tracker.export.formats import Format

TABLES = ("readings", "windows", "attempts", "ledger", "interruptions")
_FILE = click.Path(dir_okay=False, path_type=Path, allow_dash=True)


@click.command()
@config_option
@click.option(
    "--openmetrics",
    type=_FILE,
    metavar="FILE",
    help="Write the history as OpenMetrics text with time stamps; - is standard output.",
)
@click.option("--table", type=click.Choice(TABLES), help="Write this table.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "jsonl", "parquet"]),
    help="Of the table. Default: by the end of FILE's name, else csv.",
)
@click.option(
    "--out", type=_FILE, metavar="FILE", help="Where the table goes; - is standard output (the default)."
)
@as_of_option
@click.option(
    "--since", type=Moment(), metavar="MOMENT", help="History: first moment. Default: the run's start."
)
@click.option(
    "--until",
    type=Moment(),
    metavar="MOMENT",
    help="History: last moment. Default: [serve] linger_s after the last that the store knows, at most now.",
)
@click.option(
    "--every",
    "every_s",
    type=Every(),
    default="auto",
    show_default=True,
    metavar="SECONDS",
    help="History: step of the grid. auto: 60, doubled until the whole has at most 2,000 steps.",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    help="History: added to every sample, as a scrape adds job and instance. May be given more than once.",
)
def export(
    config: Path,
    openmetrics: Path | None,
    table: str | None,
    form: str | None,
    out: Path | None,
    as_of: int | None,
    since: int | None,
    until: int | None,
    every_s: int | None,
    labels: tuple[str, ...],
) -> None:
    """Write the history as OpenMetrics text, or a table as CSV, JSON lines or Parquet.

    Reads the store only. A file appears whole or not at all.

    \b
    Examples:
      tracker export --config run.toml --openmetrics run.om
      promtool tsdb create-blocks-from openmetrics run.om /var/lib/prometheus
      tracker export --config run.toml --table ledger --out ledger.csv
      tracker export --config run.toml --table readings --format jsonl | head
    """
    from tracker import app

    if (openmetrics is None) == (table is None):
        raise click.UsageError("give --openmetrics FILE, or --table NAME")
    if openmetrics is not None and (form is not None or out is not None or as_of is not None):
        raise click.UsageError(
            "--format, --out and --as-of go with --table; the history takes --since and --until"
        )
    if table is not None and (since is not None or until is not None or labels):
        raise click.UsageError("--since, --until and --label go with --openmetrics; a table takes --as-of")
    loaded = app.load_config(config)
    if openmetrics is not None:
        _history(loaded, openmetrics, since, until, every_s, labels)
    elif table is not None:
        _table(loaded, table, form, out if out is not None else Path("-"), as_of)


def _history(
    config: Config,
    path: Path,
    since: int | None,
    until: int | None,
    every_s: int | None,
    labels: tuple[str, ...],
) -> None:
    from tracker.cli._output import talk
    from tracker.clock import SystemClock
    from tracker.core.documents import iso
    from tracker.export import openmetrics
    from tracker.export.history import checked_labels
    from tracker.export.source import history

    def told(samples: int, at_ms: int) -> None:
        if sys.stderr.isatty():
            moment = iso(at_ms // 1000 * 1_000_000)
            click.echo(f"\r{samples:,} samples, up to {moment}\x1b[K", err=True, nl=False)

    added = checked_labels(labels)
    with history(config, added) as past:
        span = past.span(
            since_us=since, until_us=until, now_us=config.moment_us(SystemClock().now_us()), every_s=every_s
        )
        with _out(path) as file:
            samples = openmetrics.write(past.blocks(span) if span is not None else (), file, told=told)
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", err=True, nl=False)
    first, last = (iso(span.since_us), iso(span.until_us)) if span is not None else (None, None)
    talk(
        f"{samples:,} samples" + (f", {first} to {last}" if samples else ": nothing is known of the run yet")
    )


def _table(config: Config, name: str, form: str | None, path: Path, as_of: int | None) -> None:
    from tracker.cli._output import talk
    from tracker.clock import SystemClock
    from tracker.export import formats
    from tracker.export.source import opened
    from tracker.export.tables import TABLES as KNOWN
    from tracker.export.tables import seen

    if form is None:
        ending = path.suffix.removeprefix(".").lower()
        form = ending if ending in formats.FORMATS else "csv"
    if form == "parquet" and str(path) == "-" and sys.stdout.isatty():
        raise click.UsageError("Parquet is no text: give --out FILE")
    table = KNOWN[name]
    as_of_us = config.moment_us(as_of if as_of is not None else SystemClock().now_us())
    with opened(config) as reader, _out(path) as file:
        made = seen(config.settings, reader, as_of_us=as_of_us)
        rows = formats.write(cast("Format", form), table.columns, table.rows(made), file)
    if str(path) != "-":
        talk(f"{path}: {rows:,} rows")


@contextmanager
def _out(path: Path) -> Iterator[BinaryIO]:
    """Give the file to write to: standard output, or one that takes its place when all is written."""
    if str(path) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    from tracker.atomic import replacing

    with replacing(path) as file:
        yield file
