"""`tracker ingest`: read all sources once.

Edge.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracker.cli._options import config_option, json_option

if TYPE_CHECKING:
    from tracker.ingest import IngestHealth


@click.command()
@config_option
@click.option("--final", is_flag=True, help="The job is over: take unterminated last lines too.")
@json_option
def ingest(config: Path, final: bool, as_json: bool) -> None:
    """Read all sources once, to their end.

    What was read before is not read again. A last line without its end waits for it, unless --final
    says that the job is over. Makes the store where there is none.

    \b
    Examples:
      tracker ingest --config run.toml
      tracker ingest --config run.toml --final
    """
    from tracker import app
    from tracker.cli._output import print_json, reading

    loaded = app.load_config(config)
    with reading() as told:
        health = app.ingest_once(loaded, final=final, told=told)
    commands = {source.number for source in loaded.sources if source.command is not None}
    troubles = _troubles(health, commands)
    if as_json:
        print_json(_document(health, troubles))
    else:
        _show(health, troubles, final=final)
    if any(wrong for wrong, _ in troubles):
        raise click.exceptions.Exit(1)


def _troubles(health: IngestHealth, commands: set[int]) -> list[tuple[bool, str]]:
    """Return what a person should know, each with whether it is a failure. No file yet is none."""
    found = [(False, f"{unknown.path}: {unknown.why}") for unknown in health.unrecognised]
    found += [(True, f"{path}: {why}") for path, why in health.unreadable]
    return found + [
        (source.number in commands, f"source {source.number}: {source.problem}")
        for source in health.sources
        if source.problem is not None
    ]


def _document(health: IngestHealth, troubles: list[tuple[bool, str]]) -> dict[str, Any]:
    return {
        "schema": 1,
        "files": health.files,
        "bytes": health.read_bytes,
        "lines": health.lines,
        "readings": health.readings,
        "rejects": dict(sorted(health.rejects.items())),
        "left_bytes": health.lag_bytes,
        "problems": [text for _, text in troubles],
    }


def _show(health: IngestHealth, troubles: list[tuple[bool, str]], *, final: bool) -> None:
    from reports.numbers import count, size
    from tracker.cli._output import talk

    click.echo(
        f"{count(health.files)} files, {size(health.read_bytes)} and {count(health.lines)} lines new, "
        f"{count(health.readings)} readings"
    )
    if health.rejects:
        parts = ", ".join(f"{number:,} {reason}" for reason, number in sorted(health.rejects.items()))
        click.echo(f"{count(sum(health.rejects.values()))} lines rejected: {parts}")
    if health.lag_bytes:
        nul, other = health.lag_nul_bytes, health.lag_bytes - health.lag_nul_bytes
        why = "not whole, or not to be read" if final else "an unterminated last line waits; --final takes it"
        if other:
            click.echo(f"{size(other)} left: {why}")
        if nul:
            click.echo(f"{size(nul)} left: NUL bytes, in whose place text may still come")
    for _, text in troubles:
        talk(text)
