"""`tracker backfill`: a run's past into a time-series database.

Edge.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracker.cli._options import Every, Moment, config_option, json_option

if TYPE_CHECKING:
    from tracker.backfill.send import Report
    from tracker.export.history import Span
    from tracker.interfaces import Clock

_TOLD_EVERY_S = 5.0
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@config_option
@click.option(
    "--url",
    required=True,
    metavar="URL",
    help="VictoriaMetrics (http://HOST:8428), or a remote-write address (http://HOST:9090/api/v1/write).",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", "remote-write", "victoriametrics-import"]),
    default="auto",
    show_default=True,
    help="auto: remote-write where the URL ends in /write, /push or /receive.",
)
@click.option("--since", type=Moment(), metavar="MOMENT", help="Default: where the run begins.")
@click.option(
    "--until",
    type=Moment(),
    metavar="MOMENT",
    help="Default: [serve] linger_s after the last that the store knows, at most now.",
)
@click.option(
    "--every",
    "every_s",
    type=Every(),
    default="auto",
    show_default=True,
    metavar="SECONDS",
    help="Step of the grid: that of your scrapes. auto: 60, doubled until the whole has at most 2,000 steps.",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    help="Added to every sample, as a scrape adds job and instance. May be given more than once.",
)
@click.option("--read-url", metavar="URL", help="Where to ask what is there, if that is another address.")
@click.option(
    "--user", metavar="NAME", help="Basic auth; the password from --password-file or the environment."
)
@click.option("--password-file", type=_FILE, metavar="FILE", help="Else $TRACKER_BACKFILL_PASSWORD.")
@click.option("--token-file", type=_FILE, metavar="FILE", help="Bearer token. Else $TRACKER_BACKFILL_TOKEN.")
@click.option("--ca-file", type=_FILE, metavar="FILE", help="Certificates to trust instead of the system's.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0.1, 3600),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="For one request, from its start to its end.",
)
@click.option(
    "--retry-for",
    "patience_s",
    type=click.FloatRange(0, 86_400),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to try again while the server fails.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 1_000_000),
    metavar="SAMPLES",
    help="In one request. Default: 50,000 by remote write, 400,000 by import.",
)
@click.option(
    "--settle",
    "settle_s",
    type=click.FloatRange(0, 600),
    metavar="SECONDS",
    help="How long the server may take to show what it took. Default: 5 for VictoriaMetrics, else 0.",
)
@json_option
def backfill(
    config: Path,
    url: str,
    form: str,
    since: int | None,
    until: int | None,
    every_s: int | None,
    labels: tuple[str, ...],
    read_url: str | None,
    user: str | None,
    password_file: Path | None,
    token_file: Path | None,
    ca_file: Path | None,
    timeout_s: float,
    patience_s: float,
    batch: int | None,
    settle_s: float | None,
    as_json: bool,
) -> None:
    """Write a run's past into VictoriaMetrics, or any receiver of Prometheus remote write.

    Every metric of the run has a sample at each step of a regular grid, and those that a log line moves
    one at each line besides: the values that the metrics page would have shown then. What is there
    already is left out, so the same command may be run again, and goes on where it was stopped.

    \b
    Examples:
      tracker backfill --config run.toml --url http://localhost:8428
      tracker backfill --config run.toml --url https://prom.example.org/api/v1/write \\
          --label job=tracker --label instance=node17:9109 --user ops --password-file prom.password
    """
    from tracker import app
    from tracker.backfill.send import Sender
    from tracker.backfill.server import Server, credentials
    from tracker.backfill.targets import RemoteWrite, Target, Victoria, chosen
    from tracker.cli._output import print_json
    from tracker.clock import SystemClock
    from tracker.export.history import checked_labels
    from tracker.export.source import history

    loaded = app.load_config(config)
    added = checked_labels(labels)
    who = credentials(user=user, password_file=password_file, token_file=token_file)
    server = Server(url, who=who, ca_file=ca_file, timeout_s=timeout_s)
    reader = None
    if read_url is not None:
        reader = Server(read_url, who=who, ca_file=ca_file, timeout_s=timeout_s, option="--read-url")
    target: Target
    if chosen(form, server.path) == "remote-write":
        target = RemoteWrite(server, reader)
    else:
        target = Victoria(server, reader if reader is not None else server)
    target.most_samples = batch if batch is not None else target.most_samples
    target.lag_s = settle_s if settle_s is not None else target.lag_s
    clock = SystemClock()
    try:
        with history(loaded, added) as past:
            span = past.span(
                since_us=since, until_us=until, now_us=loaded.moment_us(clock.now_us()), every_s=every_s
            )
            progress = _progress(span, clock)
            sender = Sender(
                target,
                run=loaded.settings.run,
                labels=added,
                clock=clock,
                patience_s=patience_s,
                told=progress,
            )
            report = sender.run(past.blocks(span) if span is not None else ())
    finally:
        target.close()
    if as_json:
        print_json(_document(report, loaded.settings.run, span))
    else:
        _show(report, span)
    if report.refused or report.missing or report.doubled:
        raise click.exceptions.Exit(1)


def _progress(span: Span | None, clock: Clock) -> Callable[[Report, str], None]:
    """Return what shows how far it is: a line that is written over on a terminal, else one now and then."""
    import sys

    from tracker.cli._output import talk
    from tracker.core.documents import iso

    begun_s = last_s = clock.monotonic_s()
    on_terminal = sys.stderr.isatty()

    def told(report: Report, trouble: str) -> None:
        nonlocal last_s
        now_s = clock.monotonic_s()
        if trouble:
            click.echo("\r\x1b[K" if on_terminal else "", err=True, nl=False)
            talk(trouble)
            return
        if span is None or now_s - last_s < (0.2 if on_terminal else _TOLD_EVERY_S):
            return
        last_s = now_s
        whole = max(1, span.until_us - span.since_us)
        share = min(max((report.end_ms * 1000 - span.since_us) / whole, 0.0), 1.0)
        rate = report.samples / max(now_s - begun_s, 1e-9)
        at = (iso(report.end_ms // 1000 * 1_000_000) or "").removesuffix("Z")
        text = f"{share:4.0%}  {report.samples:,} samples, {rate:,.0f}/s, up to {at} UTC"
        click.echo(f"\r{text}\x1b[K" if on_terminal else text, err=True, nl=not on_terminal)
        if on_terminal and share >= 1.0:
            click.echo("", err=True)

    return told


def _document(report: Report, run: str, span: Span | None) -> dict[str, Any]:
    from tracker.core.documents import iso

    return {
        "schema": 1,
        "run": run,
        "since": iso(span.since_us) if span is not None else None,
        "until": iso(span.until_us) if span is not None else None,
        "every_s": span.every_s if span is not None else None,
        "samples": {
            "sent": report.sent,
            "already_there": report.there,
            "differing": report.differing,
            "refused": report.refused,
            "doubled": report.doubled,
        },
        "refused_reasons": dict(report.reasons),
        "checked": {"samples": report.checked, "missing": report.missing},
        "requests": report.requests,
        "retries": report.retries,
    }


def _show(report: Report, span: Span | None) -> None:
    from tracker.cli._output import talk

    if span is None:
        click.echo("nothing is known of the run yet, so there is nothing to send")
        return
    click.echo(f"{report.sent:,} samples sent, {report.there:,} were there already")
    if report.checked:
        click.echo(f"{report.checked - report.missing:,} of {report.checked:,} read back and compared")
    if report.differing:
        talk(
            f"{report.differing:,} samples are there with another value and were left as they are: the log "
            "or the config has changed since. Delete the run's series in the database, then run this again"
        )
    for reason, samples in report.reasons.most_common():
        talk(f"{samples:,} samples refused: {reason}")
    if report.refused:
        talk(
            "Prometheus takes nothing that is older than the newest hour it holds, unless "
            "storage.tsdb.out_of_order_time_window says so. `tracker export --openmetrics` with "
            "`promtool tsdb create-blocks-from openmetrics` has no such limit"
        )
    if report.doubled:
        talk(
            f"{report.doubled:,} samples are there twice, with the same value: an earlier run was killed, "
            "and the server took in its last request later than we asked. Start VictoriaMetrics with "
            "-dedup.minScrapeInterval=1ms, which hides the second ones; or delete the run's series, then run "
            "this again"
        )
    if report.missing:
        talk(
            f"{report.missing:,} of {report.checked:,} samples read back are not there: the server took "
            "them and dropped them. Its retention is shorter than the run's past (VictoriaMetrics: "
            "-retentionPeriod)"
        )
