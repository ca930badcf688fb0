"""`tracker demo`: the main job on a bundled run, from raw logs and an empty store.

Edge: copies the bundled files into a folder of its own.
"""

from __future__ import annotations

import tempfile
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import click


@click.command()
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Play in this folder and leave it there. Default: a new temporary one.",
)
def demo(directory: Path | None) -> None:
    """Play the main job on a bundled, simulated run.

    Copies raw logs into a folder, reads them into an empty store, and shows what came out. Called again
    with the same folder it takes the logs as they are there by then: change one and see the numbers move.

    \b
    Examples:
      tracker demo
      tracker demo --directory demo && tracker status --config demo/run.toml
    """
    from reports.ledger import attempts_table, total_table
    from reports.status import status_pairs
    from tracker import app
    from tracker.cli._output import print_pairs, print_table, talk
    from tracker.clock import SystemClock

    folder = directory if directory is not None else Path(tempfile.mkdtemp(prefix="tracker-demo-"))
    _prepare(folder)
    config = app.load_config(folder / "run.toml")
    talk(f"A SIMULATED run: no GPU ran for it. Its raw logs are in {folder}, the store begins empty.")
    health = app.ingest_once(config, final=True)
    talk(f"{health.files} files read: {health.lines:,} lines, {health.readings:,} readings.\n")
    snapshot = app.forecast_now(config, as_of_us=config.moment_us(SystemClock().now_us())).snapshot
    print_pairs(status_pairs(snapshot))
    click.echo()
    print_table(total_table(snapshot))
    click.echo()
    print_table(attempts_table(snapshot))
    talk(
        f"\nGo on from here:\n"
        f"  tracker ledger --config {folder}/run.toml --json\n"
        f"  tracker report --config {folder}/run.toml      a PDF, as finance would get it\n"
        f"  tracker collectors test {folder}/logs/*-01.log\n"
        f"  tracker run --config {folder}/run.toml      then open http://127.0.0.1:9109/"
    )


def _prepare(folder: Path) -> None:
    """Put the bundled run into a folder, or empty the store of one that is there."""
    bundled = resources.files("tracker") / "demo"
    text = (bundled / "run.toml").read_text(encoding="utf-8")
    config = folder / "run.toml"
    if config.exists():
        if config.read_text(encoding="utf-8", errors="replace") != text:
            raise click.UsageError(f"{config} is not the demo's. Give another folder")
        for tail in ("", "-wal", "-shm"):
            (folder / f"tracker.db{tail}").unlink(missing_ok=True)
    else:
        if folder.exists() and any(folder.iterdir()):
            raise click.UsageError(f"{folder} is not empty. Give a new folder")
        _copy(bundled, folder)


def _copy(source: Traversable, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for item in source.iterdir():
        if item.name.startswith("__") or item.name.endswith(".py"):
            continue
        if item.is_dir():
            _copy(item, target / item.name)
        else:
            (target / item.name).write_bytes(item.read_bytes())
