"""`tracker check`: the doctor.

Edge.
"""

from __future__ import annotations

from pathlib import Path

import click

from tracker.cli._options import config_option, json_option


@click.command()
@config_option
@json_option
def check(config: Path, as_json: bool) -> None:
    """Look for what is wrong: config, sources, store, port.

    Reads all that the sidecar would read, and writes nothing. Exits 1 when something is wrong.

    \b
    Examples:
      tracker check --config run.toml
      tracker check --config run.toml --json | jq '.findings[] | select(.level == "wrong")'
    """
    from tracker import app
    from tracker.cli._output import print_findings, print_json

    findings = app.check(config)
    wrong = sum(1 for finding in findings if finding.level == "wrong")
    if as_json:
        rows = [{"level": f.level, "about": f.about, "text": f.text} for f in findings]
        print_json({"schema": 1, "wrong": wrong, "findings": rows})
    else:
        print_findings(findings)
    if wrong:
        raise click.exceptions.Exit(1)
