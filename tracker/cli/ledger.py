"""`tracker ledger`: where every GPU-hour went, by attempt and in total.

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
def ledger(config: Path, as_of: int | None, as_json: bool) -> None:
    """Show where every GPU-hour went, by attempt.

    The buckets of each attempt sum to its allocation, and the attempts to the total, exactly.
    Reads the store only: run `tracker ingest` or `tracker run` first.

    \b
    Examples:
      tracker ledger --config run.toml
      tracker ledger --config run.toml --json | jq .total
    """
    from tracker import app
    from tracker.cli._output import print_json, print_table
    from tracker.clock import SystemClock

    loaded = app.load_config(config)
    snapshot = app.snapshot_now(loaded, as_of_us=as_of if as_of is not None else SystemClock().now_us())
    if as_json:
        from tracker.core.documents import ledger_document

        print_json(ledger_document(snapshot))
        return
    from reports.ledger import attempts_table, total_table

    print_table(total_table(snapshot))
    click.echo()
    print_table(attempts_table(snapshot))
