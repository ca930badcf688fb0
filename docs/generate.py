"""Writes the reference pages from the code that they describe: `make docs`; a test compares.

Edge: writes docs/configuration.md, docs/metrics.md and docs/cli.md.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
GENERATED: Final = "<!-- Written by docs/generate.py from the code. Do not edit: run `make docs`. -->\n"


CONFIGURATION: Final = """\
# Configuration

One TOML file describes one run; [configs/run.example.toml](../configs/run.example.toml) shows all of it.
Relative paths start at the folder of the file.
A fault stops the tracker at start, with the key, the value, what was expected and what to do.
All faults are told at once.
An unknown key is a fault, and the nearest known one is named.
A time without an offset is in the zone of `run.timezone`.
The file is found by `--config`, else by the environment's `TRACKER_CONFIG`, else as `run.toml` or
`tracker.toml` in the present folder.
A secret never stands in it: `password_file` names a file.
"""
METRICS: Final = """\
# Metrics

`tracker run` serves them at `/metrics`, as Prometheus text or OpenMetrics by the `Accept` header, packed
with gzip for who asks.
Base units: seconds, bytes, ratios from 0 to 1.
What cannot shrink is a counter, what can is a gauge.
Compute with the gauges, not with `increase()`: they are exact.
Every family has HELP and TYPE from the first scrape on; a value that is not known has no sample, never 0.
No sample carries a time stamp.
A stalled run never leaves the page; a finished one stays for `serve.linger_s`, then its `training_*` series
go.

The unit of {exceptions} is the plan's, GPU-hours: `promtool check metrics` asks for seconds, and that is the
one recorded exception.
"""
CLI: Final = """\
# Commands

`--config FILE` where a run is meant; `--json` prints one JSON document to standard output; progress and talk
go to standard error.
Commands whose answer depends on time take `--as-of`.
Exit status: 0 done (no data yet is 0, with nulls), 1 our or the world's failure, 2 a wrong call,
130 interrupted; `tracker check` exits 1 when something is wrong.
"""


def configuration() -> str:
    """Return the page of config keys."""
    from tracker.config.keys import SECTIONS

    parts = [GENERATED, CONFIGURATION]
    for section in SECTIONS.values():
        often = " (any number of times)" if section.many else ""
        parts += [f"## `{section.header}`{often}\n", section.doc + "\n"]
        parts += ["| key | value | left out | meaning |", "|---|---|---|---|"]
        for key in section.keys:
            left_out = "**needed**" if key.needed else key.default
            value = f"{key.kind.expected}, such as `{key.example}`"
            parts.append(
                "| " + " | ".join(_cell(t) for t in (f"`{key.name}`", value, left_out, key.doc)) + " |"
            )
        parts.append("")
    return "\n".join(parts)


def metrics() -> str:
    """Return the page of metric families."""
    from tracker.exporter import BUILD_INFO
    from tracker.families import FAMILIES, UNIT_EXCEPTIONS
    from tracker.workings import PROCESS_FAMILIES

    exceptions = " and ".join(f"`{name}`" for name in UNIT_EXCEPTIONS)
    parts = [GENERATED, METRICS.format(exceptions=exceptions)]
    for title, prefix in (("The run", "training_"), ("The tracker's own workings", "tracker_")):
        parts += [f"## {title}\n", "| family | type | labels | meaning |", "|---|---|---|---|"]
        for family in FAMILIES:
            if family.name.startswith(prefix):
                labels = ", ".join(f"`{name}`" for name in ("run", *family.labels))
                labels += f" ({family.values})" if family.values else ""
                cells = (f"`{family.name}`", family.kind, labels, family.help)
                parts.append("| " + " | ".join(_cell(text) for text in cells) + " |")
        parts.append("")
    parts += ["## The process\n", "These have no label `run`.\n"]
    parts += ["| family | type | labels | meaning |", "|---|---|---|---|"]
    for one in PROCESS_FAMILIES:
        labels = ", ".join(f"`{name}`" for name in one.labels) + (f" ({one.values})" if one.values else "")
        parts.append(
            "| " + " | ".join(_cell(t) for t in (f"`{one.name}`", one.kind, labels, one.help)) + " |"
        )
    parts.append("")
    parts.append(
        f"Besides, `{BUILD_INFO}` (labels `version`, `python`) and the usual `process_*` families.\n"
    )
    return "\n".join(parts)


def cli() -> str:
    """Return the page of commands: the help of each, as it prints."""
    import click

    from tracker.cli import COMMANDS, root

    os.environ["COLUMNS"] = "100"
    parts = [GENERATED, CLI]

    def add(name: str, command: click.Command, parent: click.Context | None) -> None:
        if hasattr(command, "_help_option"):
            command._help_option = None  # click keeps the first one made, by whatever context
        context = click.Context(
            command, info_name=name, parent=parent, max_content_width=100, terminal_width=100,
            help_option_names=["-h", "--help"],
        )  # fmt: skip
        parts.extend([f"## `{context.command_path}`\n", "```text", command.get_help(context), "```\n"])
        if isinstance(command, click.Group) and parent is not None:
            for inner in command.list_commands(context):
                found = command.get_command(context, inner)
                if found is not None:
                    add(inner, found, context)

    add("tracker", root, None)
    top = click.Context(
        root, info_name="tracker", max_content_width=100, terminal_width=100,
        help_option_names=["-h", "--help"],
    )  # fmt: skip
    for name in COMMANDS:
        command = root.get_command(top, name)
        assert command is not None
        add(name, command, top)
    return "\n".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


PAGES: Final[dict[str, Callable[[], str]]] = {
    "configuration.md": configuration,
    "metrics.md": metrics,
    "cli.md": cli,
}


def main() -> int:
    """Write every page; say which ones changed."""
    for name, make in PAGES.items():
        path, text = HERE / name, make()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"docs/{name} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
