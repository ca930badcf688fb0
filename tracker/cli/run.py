"""`tracker run`: the sidecar.

Edge.
"""

from __future__ import annotations

from pathlib import Path

import click

from tracker.cli._options import config_option


@click.command()
@config_option
@click.option("--listen", metavar="HOST:PORT", help="Listen there instead of where [serve] says.")
def run(config: Path, listen: str | None) -> None:
    """Follow the logs, serve the metrics: the sidecar.

    Reads what is new, keeps the numbers fresh, and serves /metrics, /readyz, /healthz, the status page
    at / and the documents at /api/v1/status and /api/v1/ledger. SIGTERM and SIGINT stop it cleanly; on
    an existing store it goes on where it was.

    \b
    Examples:
      tracker run --config run.toml
      tracker run --config run.toml --listen 127.0.0.1:0
    """
    from tracker.lean import without_openssl_hashes

    without_openssl_hashes()  # before anything loads hashlib
    from dataclasses import replace

    from tracker import app
    from tracker.config.kinds import LISTEN
    from tracker.core.errors import InvalidValue

    loaded = app.load_config(config)
    if listen is not None:
        try:
            place = LISTEN.read("--listen", listen)
        except InvalidValue as error:
            raise click.UsageError(str(error)) from None
        loaded = replace(loaded, serve=replace(loaded.serve, listen=place))
    app.run_sidecar(loaded)
