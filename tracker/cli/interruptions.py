"""`tracker interruptions`: why attempts ended, by which evidence; and a person's word beside it.

Edge.
"""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracker.cli._options import as_of_option, find_config, json_option

if TYPE_CHECKING:
    from tracker.app import Said

_LATER_CONFIG = click.option(
    "--config",
    "-c",
    "config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="TOML file of the run. Default: $TRACKER_CONFIG, else ./run.toml or ./tracker.toml.",
)


@click.group(invoke_without_command=True)
@_LATER_CONFIG
@as_of_option
@json_option
@click.pass_context
def interruptions(ctx: click.Context, config: Path | None, as_of: int | None, as_json: bool) -> None:
    """Show why attempts ended, and by which evidence.

    `set` corrects one, `clear` takes that back. Reads the store only: run `tracker ingest` or
    `tracker run` first. What a person said after --as-of is not known then.

    \b
    Examples:
      tracker interruptions --config run.toml
      tracker interruptions --config run.toml --json | jq '.[] | [.at, .cause]'
      tracker interruptions set 3 --cause network --note "leaf 12 was rebooted" --config run.toml
    """
    if ctx.invoked_subcommand is not None:
        ctx.obj = config
        return
    from tracker import app
    from tracker.cli._output import print_json, print_table
    from tracker.clock import SystemClock

    loaded = app.load_config(find_config(ctx, config))
    snapshot = app.snapshot_now(
        loaded, as_of_us=loaded.moment_us(as_of if as_of is not None else SystemClock().now_us())
    )
    if as_json:
        from tracker.core.documents import interruptions_document

        print_json(interruptions_document(snapshot))
        return
    from reports.interruptions import interruptions_table

    print_table(interruptions_table(snapshot))


@interruptions.command("set")
@click.argument("number", type=click.IntRange(min=1), metavar="ID")
@click.option("--cause", metavar="NAME", help="Its cause, one of those that `tracker status` counts.")
@click.option(
    "--kind",
    metavar="KIND",
    help="planned or unexpected. Default: as the cause has it.",
)
@click.option("--manual/--no-manual", default=None, help="Whether a person had to act to go on.")
@click.option("--note", required=True, metavar="TEXT", help="Why: it is kept with the correction.")
@click.option("--by", metavar="NAME", help="Who says so. Default: the name you are logged in with.")
@_LATER_CONFIG
@click.pass_context
def correct(
    ctx: click.Context,
    number: int,
    cause: str | None,
    kind: str | None,
    manual: bool | None,
    note: str,
    by: str | None,
    config: Path | None,
) -> None:
    """Say what the cause of interruption ID was, or whether a person had to act.

    The evidence and what it says stay; your word is kept beside it with your name and the time, and counts
    from then on. Said again, the last word counts. ID is that of the list as it is now.

    \b
    Example:
      tracker interruptions set 3 --cause gpu_hbm --manual --note "tray swapped" --config run.toml
    """
    if cause is None and kind is None and manual is None:
        raise click.UsageError("nothing to set: give --cause, --kind, --manual or --no-manual", ctx)
    from tracker.app import Said

    _say(ctx, config, number, Said(cause=cause, kind=kind, manual=manual, note=note, by=by or _user()))


@interruptions.command()
@click.argument("number", type=click.IntRange(min=1), metavar="ID")
@click.option("--note", required=True, metavar="TEXT", help="Why: it is kept too.")
@click.option("--by", metavar="NAME", help="Who says so. Default: the name you are logged in with.")
@_LATER_CONFIG
@click.pass_context
def clear(ctx: click.Context, number: int, note: str, by: str | None, config: Path | None) -> None:
    """Take back what was said of interruption ID: the evidence counts again.

    \b
    Example:
      tracker interruptions clear 3 --note "it was the other node" --config run.toml
    """
    from tracker.app import Said

    _say(ctx, config, number, Said(note=note, by=by or _user()))


def _say(ctx: click.Context, config: Path | None, number: int, said: Said) -> None:
    from tracker import app
    from tracker.cli._output import print_table, talk
    from tracker.clock import SystemClock
    from tracker.core.errors import InvalidValue

    parent = ctx.parent.obj if ctx.parent is not None else None
    loaded = app.load_config(find_config(ctx, config or parent))
    try:
        snapshot = app.correct_interruption(loaded, number, said, clock=SystemClock())
    except InvalidValue as error:
        raise click.UsageError(str(error), ctx) from None
    from reports.interruptions import interruptions_table

    print_table(interruptions_table(snapshot))
    talk(f"kept, as the word of {said.by}")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no name for this user id, as in some containers
        return "unknown"
