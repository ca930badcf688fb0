"""`tracker status`: the run now, or as it was at a moment.

Edge.
"""

from __future__ import annotations

from pathlib import Path

import click

from tracker.cli._options import as_of_option, config_option, json_option


@click.command()
@config_option
@as_of_option
@json_option
def status(config: Path, as_of: int | None, as_json: bool) -> None:
    """Show the run now, or as it was at a moment.

    Reads the store only: run `tracker ingest` or `tracker run` first.

    \b
    Examples:
      tracker status --config run.toml
      tracker status --config run.toml --as-of 2026-01-05T08:00:00Z --json
    """
    from tracker import app
    from tracker.cli._output import print_json, print_pairs
    from tracker.clock import SystemClock

    loaded = app.load_config(config)
    as_of_us = loaded.moment_us(as_of if as_of is not None else SystemClock().now_us())
    snapshot = app.forecast_now(loaded, as_of_us=as_of_us).snapshot
    if as_json:
        from tracker.core.documents import status_document

        print_json(status_document(snapshot))
        return
    from reports.status import status_pairs

    print_pairs(status_pairs(snapshot))
    if as_of is None:
        if full := app.store_full(loaded):
            click.echo(f"note: {full}", err=True)
        for sentence in app.clocks_ahead(loaded, now_us=as_of_us):
            click.echo(f"note: {sentence}", err=True)
