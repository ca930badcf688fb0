"""The command `tracker`: which commands there are, and how failures are told.

Edge. A command's module is loaded when it is called, so that `tracker --help` stays quick and the sidecar
small. Exit status: 0 done, 1 our or the world's failure, 2 a wrong call, 130 interrupted.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import click

from tracker import __version__
from tracker.core.errors import TrackerError


@dataclass(frozen=True, slots=True)
class Entry:
    """One command: where it is, and its line in the overview (a test holds it to its own help)."""

    module: str
    summary: str


GROUPS: Final[Mapping[str, Mapping[str, Entry]]] = {
    "A run": {
        "run": Entry("run", "Follow the logs, serve the metrics: the sidecar."),
        "ingest": Entry("ingest", "Read all sources once, to their end."),
        "status": Entry("status", "Show the run now, or as it was at a moment."),
        "ledger": Entry("ledger", "Show where every GPU-hour went, by attempt."),
        "interruptions": Entry("interruptions", "Show why attempts ended, and by which evidence."),
        "forecast": Entry("forecast", "Forecast the finish, GPU-hours, cost and energy, each with a range."),
        "report": Entry("report", "Write the daily report: PDF, HTML and text."),
        "export": Entry(
            "export", "Write the history as OpenMetrics text, or a table as CSV, JSON lines or Parquet."
        ),
        "backfill": Entry(
            "backfill", "Write a run's past into VictoriaMetrics, or any receiver of Prometheus remote write."
        ),
        "check": Entry("check", "Look for what is wrong: config, sources, store, port."),
    },
    "Calculators (no config needed)": {
        "plan": Entry("calculators", "Estimate GPU-hours and days, and check the plan for classic mistakes."),
        "references": Entry("calculators", "List published runs and operating points."),
        "backsolve": Entry("calculators", "Work out delivered FLOP/s and MFU from published GPU-hours."),
        "convert": Entry("calculators", "Convert GPU-hours between GPU types by delivered FLOP/s."),
        "goodput": Entry("calculators", "Goodput from failures, restarts and checkpoints."),
        "mtbf": Entry("calculators", "Mean time between failures, with its interval."),
    },
    "The tracker": {
        "collectors": Entry("collectors", "List the log formats that are read; try one on a file."),
        "db": Entry("db", "Check, back up, restore, compact and migrate a store."),
        "demo": Entry("demo", "Play the main job on a bundled, simulated run."),
    },
}

COMMANDS: Final[Mapping[str, Entry]] = {
    name: entry for entries in GROUPS.values() for name, entry in entries.items()
}


class Root(click.Group):
    """A group whose commands are loaded when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the overview."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command; None where there is none of that name."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"tracker.cli.{entry.module}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is told with the nearest name."""
        name = args[0] if args else ""
        if args and name not in COMMANDS and not name.startswith("-"):
            from tracker.core.errors import nearest

            hint = nearest(name, COMMANDS) or f"see `{ctx.command_path} --help`"
            ctx.fail(f"no command {name[:60]!r}: {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the overview from the table, without loading anything."""
        for title, entries in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.summary) for name, entry in entries.items()])

    def main(  # type: ignore[override]  # its overloads only tell when it returns
        self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        """Run, and turn every failure that is not a bug of ours into a message and a status."""
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **extra)
        try:
            status = super().main(args, standalone_mode=False, **extra)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            _end(130)
        except TrackerError as error:
            click.echo(f"tracker: {printable(str(error))}", err=True)
            sys.exit(1)
        except BrokenPipeError:
            _end(0)
        except OSError as error:
            click.echo(f"tracker: {printable(_told(error))}", err=True)
            sys.exit(1)
        except MemoryError:
            click.echo("tracker: out of memory", err=True)
            sys.exit(1)
        sys.exit(status if isinstance(status, int) else 0)


@click.group(
    "tracker", cls=Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="tracker")
def root() -> None:
    """Live telemetry of a large-model training run, beside the job.

    Reads what the job already writes, and answers what every allocated GPU-hour became: MFU, goodput and
    GPU-hours per 1e12 tokens, against the plan.

    \b
    Examples:
      tracker demo                          a whole run in one minute, simulated
      tracker collectors test train.log     which format is it, what does it hold?
      tracker run --config run.toml         the sidecar
      tracker status --config run.toml      the run now
    """


def main() -> NoReturn:
    """Run the command line; the entry point of the installed script."""
    root.main(prog_name="tracker")
    raise AssertionError("click ends the process")


def printable(text: str) -> str:
    """Return text that may hold a log's words, without anything a terminal would obey."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def _told(error: OSError) -> str:
    """Return an error of the system as a sentence."""
    what = error.strerror or str(error) or type(error).__name__
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        what += ". Make room there, and call it again"
    return f"{error.filename}: {what}" if error.filename else what


def _end(status: int) -> NoReturn:
    """Leave without a word, also where standard output is closed already."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(status)
