"""`tracker db`: look after the store.

Edge. The one command group that loads sqlite-utils, and only where something is migrated.
"""

from __future__ import annotations

from pathlib import Path

import click

from reports.tables import Table
from tracker.cli._options import json_option
from tracker.cli._output import print_json, print_pairs, print_table, talk

_STORE = click.argument("store", type=click.Path(path_type=Path), metavar="STORE")


@click.group()
def db() -> None:
    """Check, back up, restore, compact and migrate a store.

    STORE is the SQLite file of [store] path. All but `restore` may be used while the sidecar runs.
    """


@db.command()
@_STORE
@json_option
def info(store: Path, as_json: bool) -> None:
    """Show a store in figures.

    \b
    Example:
      tracker db info tracker.db
    """
    from tracker.store import health

    found = health.info(store)
    readings = found.rows["reading"]
    if as_json:
        print_json({
            "schema": 1,
            "schema_version": found.schema_version,
            "file_bytes": found.file_bytes,
            "wal_bytes": found.log_bytes,
            "free_bytes": found.free_bytes,
            "bytes_per_reading": round(found.file_bytes / readings, 1) if readings else None,
            "journal": found.journal,
            "file_system": found.file_system or None,
            "revision": found.revision,
            "rows": found.rows,
            "running": None if found.owner is None else str(found.owner),
        })
        return
    each = f" ({found.file_bytes / readings:.1f} bytes per reading)" if readings else ""
    print_pairs([
        ("store", str(found.path)),
        ("schema version", str(found.schema_version)),
        ("size", f"{found.file_bytes:,} bytes{each}"),
        ("write-ahead log", f"{found.log_bytes:,} bytes"),
        ("can be freed", f"{found.free_bytes:,} bytes"),
        ("journal", f"{found.journal} on {found.file_system or 'an unknown file system'}"),
        ("sidecar", "none" if found.owner is None else str(found.owner)),
    ])
    print_table(
        Table(headings=("table", ">rows"), rows=[(name, f"{rows:,}") for name, rows in found.rows.items()])
    )


@db.command()
@_STORE
@click.option("--quick", is_flag=True, help="Leave out what takes long on a large store.")
@click.pass_context
def check(ctx: click.Context, store: Path, quick: bool) -> None:
    """Look for damage and contradictions; exit status 1 if there are any.

    \b
    Example:
      tracker db check tracker.db
    """
    from tracker.store import health

    faults = health.check(store, quick=quick)
    for fault in faults:
        click.echo(fault)
    if faults:
        talk(f"Restore a backup: tracker db restore {store} BACKUP. Or move {store} away: the logs that are "
             "still there are read again.")  # fmt: skip
        ctx.exit(1)
    click.echo(f"{store}: whole")


@db.command()
@_STORE
@click.argument("target", type=click.Path(path_type=Path), metavar="FILE")
def backup(store: Path, target: Path) -> None:
    """Copy the store as it stands to a new FILE, in one step.

    \b
    Example:
      tracker db backup tracker.db /backup/tracker-2026-01-05.db
    """
    from tracker.store import health

    copy = health.backup(store, target)
    click.echo(f"{copy}: {copy.stat().st_size:,} bytes")


@db.command()
@_STORE
@click.argument("source", type=click.Path(path_type=Path), metavar="BACKUP")
def restore(store: Path, source: Path) -> None:
    """Put BACKUP in the place of the store; the old one is moved aside.

    No sidecar may run. Afterwards `tracker ingest` or `tracker run` reads the logs on from where the
    backup was made.

    \b
    Example:
      tracker db restore tracker.db /backup/tracker-2026-01-05.db
    """
    from tracker.store import health

    aside = health.restore(store, source)
    click.echo(f"{store}: restored from {source}")
    if aside is not None:
        click.echo(f"the store that was there: {aside}")


@db.command()
@_STORE
def compact(store: Path) -> None:
    """Give unused space back to the disk. Needs as much free space as the store is large.

    \b
    Example:
      tracker db compact tracker.db
    """
    from tracker.store import health

    before, after = health.compact(store)
    click.echo(f"{store}: {before:,} -> {after:,} bytes")


@db.command()
@_STORE
def migrate(store: Path) -> None:
    """Bring a store to the schema of this version, keeping a copy; make it where there is none.

    `tracker run` and `tracker ingest` do this by themselves.

    \b
    Example:
      tracker db migrate tracker.db
    """
    from tracker.store.migrate import migrate as bring_up
    from tracker.store.schema import SCHEMA_VERSION, stored_version

    before = stored_version(store)
    kept = bring_up(store)
    if before == SCHEMA_VERSION:
        click.echo(f"{store}: schema version {SCHEMA_VERSION} already")
        return
    click.echo(f"{store}: schema version {before} -> {SCHEMA_VERSION}" if before else f"{store}: made")
    if kept is not None:
        click.echo(f"the store as it was: {kept}")
