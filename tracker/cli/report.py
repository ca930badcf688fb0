"""`tracker report`: the daily report of a run as PDF, HTML and text.

Edge.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import click

from tracker.cli._options import as_of_option, config_option

if TYPE_CHECKING:
    from tracker.config import Config

_DOCUMENTS = (".pdf", ".html", ".txt")


@click.command()
@config_option
@as_of_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE|DIR",
    help="A file .pdf (HTML and text are put beside it), .html or .txt (only that one), or a folder. "
    "Default: report.directory.",
)
@click.option(
    "--paper", type=click.Choice(["a4", "letter"]), help="Paper of the PDF. Default: report.paper, else a4."
)
@click.option("--text", "as_text", is_flag=True, help="Print the text report; write files only with --out.")
@click.option("--preview", is_flag=True, help="Write the mail of it as a .eml file instead.")
@click.option("--send-test", is_flag=True, help="Mail it now, marked as a test, and post to each webhook.")
@click.option("--to", multiple=True, metavar="ADDRESS", help="With --send-test: to this one instead.")
@click.option("--mail", "for_mail", is_flag=True, hidden=True, help="Write the parts of a mail, too.")
def report(
    config: Path,
    as_of: int | None,
    out: Path | None,
    paper: str | None,
    as_text: bool,
    preview: bool,
    send_test: bool,
    to: tuple[str, ...],
    for_mail: bool,
) -> None:
    """Write the daily report: PDF, HTML and text.

    The verdict first, then when it finishes, where the GPU-hours went, how fast it trains, what stopped it,
    and what it costs against the plan: at most four pages. The same store, config and moment give the same
    bytes. Without --send-test it mails nothing, and it never marks a day as done. Reads the store only: run
    `tracker ingest` or `tracker run` first.

    \b
    Examples:
      tracker report --config run.toml --out report.pdf
      tracker report --config run.toml --text
      tracker report --config run.toml --as-of 2026-01-05T07:00:00Z --paper letter --out reports/
      tracker report --config run.toml --send-test --to me@example.org
    """
    from tracker import app, reporting
    from tracker.cli._output import talk
    from tracker.clock import SystemClock

    loaded = app.load_config(config)
    as_of_us = loaded.moment_us(as_of if as_of is not None else SystemClock().now_us())
    if to and not send_test:
        raise click.UsageError("--to goes with --send-test")
    if preview or send_test:
        from tracker.cli._trial import mail_it

        where = _target(loaded, out, as_of_us)[0] if preview else None
        mail_it(loaded, as_of_us=as_of_us, preview=where, send_test=send_test, to=to, paper=paper)
        return
    base, endings = (None, ()) if as_text and out is None else _target(loaded, out, as_of_us)
    page = reporting.page_of(app.daily_now(loaded, as_of_us=as_of_us), loaded)
    if as_text:
        from reports.text import text_of

        click.echo(text_of(page), nl=False)
    if base is None:
        return
    chosen = paper or (loaded.report.paper if loaded.report is not None else "a4")
    for path in reporting.write(
        page, base, endings=endings, paper=cast(Literal["a4", "letter"], chosen), mail=for_mail
    ):
        if as_text:
            talk(str(path))
        else:
            click.echo(str(path))


def _target(config: Config, out: Path | None, as_of_us: int) -> tuple[Path, tuple[str, ...]]:
    """Return the path without an ending, and what is written there."""
    from tracker.post.names import base_name
    from tracker.reporting import ENDINGS

    zone = config.report.zone if config.report is not None else config.zone
    when = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=as_of_us)
    name = base_name(config.settings.run, "daily", when.astimezone(zone).date().isoformat())
    if out is None:
        from tracker.post.folder import made

        folder = config.report.directory if config.report is not None else config.folder / "reports-out"
        return made(folder) / name, ENDINGS
    if out.suffix.lower() in _DOCUMENTS and not out.is_dir():
        if not out.parent.is_dir():
            raise click.UsageError(f"--out {out}: there is no folder {out.parent}. Make it first")
        ending = out.suffix.lower().removeprefix(".")
        return out.with_suffix(""), ENDINGS if ending == "pdf" else (ending,)
    if out.suffix and not out.is_dir():
        raise click.UsageError(f"--out {out}: expected a file .pdf, .html or .txt, or a folder that is there")
    if not out.parent.is_dir():
        raise click.UsageError(f"--out {out}: there is no folder {out.parent}. Make it first")
    if out.exists() and not out.is_dir():
        raise click.UsageError(
            f"--out {out}: expected a folder, or a file .pdf, .html or .txt, and {out} is neither. Name one"
        )
    out.mkdir(exist_ok=True)
    return out / name, ENDINGS
