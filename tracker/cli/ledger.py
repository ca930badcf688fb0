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
@click.option("--by-day", is_flag=True, help="Show what each day cost, too (UTC).")
@json_option
def ledger(config: Path, as_of: int | None, by_day: bool, as_json: bool) -> None:
    """Show where every GPU-hour went, by attempt.

    The buckets of each attempt sum to its allocation, and the attempts to the total, exactly.
    With a price in [plan] each attempt has its cost. Reads the store only: run `tracker ingest` or
    `tracker run` first.

    \b
    Examples:
      tracker ledger --config run.toml
      tracker ledger --config run.toml --json | jq .total
    """
    from tracker import app
    from tracker.cli._output import print_json, print_table
    from tracker.clock import SystemClock

    loaded = app.load_config(config)
    snapshot = app.snapshot_now(
        loaded, as_of_us=loaded.moment_us(as_of if as_of is not None else SystemClock().now_us())
    )
    if as_json:
        from tracker.core.documents import ledger_document

        print_json(ledger_document(snapshot))
        return
    from reports.ledger import attempts_table, days_table, total_table

    print_table(total_table(snapshot))
    click.echo()
    print_table(attempts_table(snapshot))
    if by_day:
        click.echo()
        print_table(days_table(snapshot))
