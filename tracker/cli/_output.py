"""How answers are printed: JSON, tables on a terminal, aligned text everywhere else.

Edge: writes to standard output. Text of logs is hostile: nothing that a terminal would obey gets through.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from reports.tables import Table
from tracker.cli import printable

if TYPE_CHECKING:
    from tracker.doctor import Finding

_ON_ONE_LINE: Final = 24
"""Characters; a column of longer texts may be broken into lines."""
_BAR: Final = 40
_WORTH_A_BAR: Final = 8 << 20
"""Bytes; what is smaller is over before a bar could be read."""


def print_json(document: Any) -> None:
    """Print one JSON document; ASCII only, so that any terminal and any pipe can take it."""
    click.echo(json.dumps(document, indent=2, allow_nan=False))


def print_pairs(pairs: Sequence[tuple[str, str]], *, title: str = "") -> None:
    """Print names and values, one a line; a value of several lines is indented."""
    width = max((len(name) for name, _ in pairs), default=0)
    rich = on_terminal()
    if title:
        _line(title, bold=rich)
    for name, value in pairs:
        lines = printable(value).split("\n")
        head = f"{name:<{width}}"
        click.echo(f"{click.style(head, fg='cyan') if rich else head}  {lines[0]}")
        for line in lines[1:]:
            click.echo(f"{'':<{width}}  {line}")


def print_table(table: Table) -> None:
    """Print a table: with lines and colours on a terminal, else aligned with two blanks between columns."""
    if on_terminal():
        _rich(table)
    else:
        _plain(table)


def on_terminal() -> bool:
    """Tell whether standard output is a terminal that wants colours."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def talk(text: str) -> None:
    """Say something beside the answer, on standard error."""
    click.echo(printable(text), err=True)


def _line(text: str, *, bold: bool = False) -> None:
    click.echo(click.style(printable(text), bold=True) if bold else printable(text))


def _plain(table: Table) -> None:
    if table.title:
        _line(table.title)
    numeric = [heading.startswith(">") for heading in table.headings]
    names = [heading.removeprefix(">") for heading in table.headings]
    rows = [[printable(cell).replace("\n", " ") for cell in row] for row in table.rows]
    foot = [printable(cell) for cell in table.foot] if table.foot is not None else None
    everything = [names, *rows, *([foot] if foot is not None else [])]
    widths = [max(len(row[column]) for row in everything) for column in range(len(names))]

    def written(row: Sequence[str]) -> str:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        return "  ".join(cells).rstrip()

    click.echo(written(names))
    for row in rows:
        click.echo(written(row))
    if foot is not None:
        click.echo("  ".join("-" * width for width in widths))
        click.echo(written(foot))
    for note in table.notes:
        _line(note)


def _rich(table: Table) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(
        title=Text(printable(table.title), style="bold") if table.title else None,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        padding=(0, 1, 0, 0),
        show_footer=table.foot is not None,
        pad_edge=False,
    )
    for column, heading in enumerate(table.headings):
        foot = printable(table.foot[column]) if table.foot is not None else ""
        drawn.add_column(
            Text(heading.removeprefix(">")),
            footer=Text(foot, style="bold"),
            justify="right" if heading.startswith(">") else "left",
            no_wrap=all(len(row[column]) <= _ON_ONE_LINE for row in table.rows),
        )
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    console = Console(highlight=False)
    console.print(drawn)
    for note in table.notes:
        console.print(Text(printable(note), style="dim"))


@contextmanager
def bar(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """Show progress on standard error while something long goes on, if that is a terminal.

    Gives a function to call with the amount done since the last call.
    """
    if not sys.stderr.isatty() or length < _WORTH_A_BAR:
        yield lambda done: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as shown:
        yield shown.update


def print_findings(findings: Sequence[Finding]) -> None:
    """Print what the doctor found, one a line, and a verdict."""
    signs = {"ok": ("ok   ", "green"), "note": ("note ", "yellow"), "wrong": ("WRONG", "red")}
    colours = on_terminal()
    width = max((len(finding.about) for finding in findings), default=0)
    for finding in findings:
        sign, colour = signs[finding.level]
        head = click.style(sign, fg=colour) if colours else sign
        click.echo(f"{head}  {finding.about:<{width}}  {printable(finding.text).replace(chr(10), ' ')}")
    wrong = sum(1 for finding in findings if finding.level == "wrong")
    click.echo(f"{wrong} wrong" if wrong else "nothing wrong")


@contextmanager
def reading() -> Iterator[Callable[[int, int], None]]:
    """Show how far a reading is on standard error, if that is a terminal.

    Gives a function to call with the bytes done and the bytes known to be left.
    """
    from reports.numbers import size

    if not sys.stderr.isatty():
        yield lambda done, left: None
        return
    shown = 0

    def told(done: int, left: int) -> None:
        nonlocal shown
        if done + left >= _WORTH_A_BAR:
            shown = done
            share = done / (done + left)
            filled = "#" * round(share * _BAR)
            text = f"[{filled:<{_BAR}}] {share:4.0%}  {size(done)} of {size(done + left)}"
            click.echo(f"\r{text}\x1b[K", err=True, nl=False)

    yield told
    if shown:
        click.echo("\r\x1b[K", err=True, nl=False)
