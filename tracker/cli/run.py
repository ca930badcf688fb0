"""`tracker run`: the sidecar.

Edge.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from tracker.cli._options import find_config


@click.command()
@click.option(
    "--config",
    "-c",
    "configs",
    multiple=True,
    metavar="FILE",
    help="TOML file of a run, a folder of *.toml, or a pattern in quotes; any number of times. "
    "Default: $TRACKER_CONFIG, else ./run.toml or ./tracker.toml.",
)
@click.option("--listen", metavar="HOST:PORT", help="Listen there instead of where [serve] says.")
@click.option(
    "--web-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="TLS and logins, in the form of the exporters' --web.config.file, instead of what [serve] says.",
)
@click.argument("more", nargs=-1, metavar="[FILE]...")
@click.pass_context
def run(
    ctx: click.Context,
    configs: tuple[str, ...],
    listen: str | None,
    web_config: Path | None,
    more: tuple[str, ...],
) -> None:
    """Follow the logs, serve the metrics: the sidecar.

    For one run, or for many in one process. Reads what is new, keeps the numbers fresh, and serves
    /metrics, /readyz, /healthz, the pages at / and /runs/NAME, the latest report at /report.pdf, and the
    documents at /api/v1/runs, /api/v1/status, /api/v1/ledger, /api/v1/interruptions and /api/v1/forecast
    (?run=NAME where there are several). SIGTERM and SIGINT stop it cleanly; on an existing store it goes on
    where it was. SIGHUP reads the configs again; a file that comes into a folder or pattern is found within
    a minute.

    \b
    Examples:
      tracker run --config run.toml
      tracker run --config run.toml --listen 127.0.0.1:0
      tracker run -c 'runs/*.toml' --listen 0.0.0.0:9109 --web-config web.yml
    """
    places = [*configs, *more]
    for place in places:
        if not os.path.exists(place) and not any(sign in place for sign in "*?["):
            raise click.UsageError(f"--config = {place!r}: no such file or folder", ctx)
    from tracker.lean import without_openssl_hashes

    without_openssl_hashes()  # before anything loads hashlib
    from tracker import app
    from tracker.config.kinds import LISTEN
    from tracker.core.errors import InvalidValue

    where = None
    if listen is not None:
        try:
            where = LISTEN.read("--listen", listen)
        except InvalidValue as error:
            raise click.UsageError(str(error)) from None
    app.run_sidecar(places or [str(find_config(ctx, None))], listen=where, web_config=web_config)
