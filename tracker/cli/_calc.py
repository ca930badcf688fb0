"""What the calculators share on the command line: big numbers, and bad values told as usage errors.

Edge.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from reports.tables import Table
from tracker.cli import _output
from tracker.core.errors import InvalidValue, TrackerError
from tracker.core.failures import CauseTable

if TYPE_CHECKING:
    from tracker.core.settings import Settings
    from tracker.core.snapshot import Snapshot

_P = ParamSpec("_P")
_R = TypeVar("_R")

_NOT_FINITE = "a result is not finite: an input is too large or too small. Check the units"
_SUFFIX = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?([eE][+-]?\d+)?")
_COMMA = "A comma only parts groups of three digits, as in 1,024: write a fraction with a point"


class Quantity(click.ParamType):  # type: ignore[type-arg]  # no generic at run time before click 8.5
    """A number as people write big ones: 13e9, 13B, 4T, 1,024 or 1_024."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; its range is checked by what takes it."""
        if isinstance(value, (int, float)):
            return float(value)
        text = str(value).strip()
        scale = _SUFFIX.get(text[-1:].lower(), 1.0)
        try:
            return _number(text if scale == 1.0 else text[:-1]) * scale
        except ValueError:
            remedy = _COMMA if "," in text else "Write it as 13e9, 13B or 4T"
            self.fail(f"{str(value)[:60]!r} is no number. {remedy}.", param, ctx)


class Real(click.ParamType):  # type: ignore[type-arg]  # as above
    """A number: 0.35, 1e3, 1,979 or 1_979."""

    name = "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; its range is checked by what takes it."""
        if isinstance(value, (int, float)):
            return float(value)
        try:
            return _number(str(value).strip())
        except ValueError:
            remedy = f" {_COMMA}." if "," in str(value) else ""
            self.fail(f"{str(value)[:60]!r} is not a valid float.{remedy}", param, ctx)


class Whole(click.ParamType):  # type: ignore[type-arg]  # as above
    """A whole number: 1024, 1,024, 1_024 or 1e3."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; its range is checked by what takes it."""
        if isinstance(value, int):
            return value
        text = str(value).strip()
        try:
            return int(text)
        except ValueError:
            pass
        try:
            number = _number(text)
        except ValueError:
            number = math.nan
        if not number.is_integer():
            remedy = f" {_COMMA}." if "," in text else ""
            self.fail(f"{text[:60]!r} is not a valid integer.{remedy}", param, ctx)
        return int(number)


def _number(text: str) -> float:
    """Return a number in Python's writing, or with commas between groups of three digits.

    Raises ValueError for any other comma: in 1,3e9 it would be a fraction to some.
    """
    if "," in text:
        if not _GROUPED.fullmatch(text):
            raise ValueError(text)
        text = text.replace(",", "")
    return float(text)


QUANTITY = Quantity()
REAL = Real()
WHOLE = Whole()


def not_empty(**flags: str | None) -> None:
    """Refuse flags that were given with no text in them.

    Raises InvalidValue, with the flag's name.
    """
    for name, value in flags.items():
        if value is not None and not value.strip():
            raise InvalidValue(
                f"--{name.replace('_', '-')}", value, "some text", "Leave the flag out instead"
            )


def run_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --config where a calculator may take a run's figures; the command gets `config: Path | None`."""
    return click.option(
        "--config",
        "-c",
        "config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help=text,
    )


def run_of(config: Path, as_of_us: int | None) -> tuple[Settings, Snapshot]:
    """Return a config's settings, and its run as the store has it."""
    from tracker import app
    from tracker.clock import SystemClock

    loaded = app.load_config(config)
    moment = loaded.moment_us(as_of_us if as_of_us is not None else SystemClock().now_us())
    return loaded.settings, app.snapshot_now(loaded, as_of_us=moment)


def only_with(flag: str, given: object, *others: tuple[str, object]) -> None:
    """Refuse flags that mean something only beside another one."""
    if given:
        return
    for name, value in others:
        if value:
            raise click.UsageError(f"{name} needs {flag}")


def causes_document(table: CauseTable) -> dict[str, Any]:
    """Return root causes beside the published ones as JSON."""
    p = table.published
    return {
        "rows": [asdict(row) for row in table.rows],
        "total": table.total,
        "gpu_share": table.gpu_share,
        "manual": table.manual,
        "manual_share": table.manual_share,
        "published": {
            "total": p.total,
            "manual": p.manual,
            "gpu_share_by_count": p.gpu_share,
            "gpu_share_stated": p.stated_gpu_share,
            "caveat": p.caveat,
        },
    }


def usage(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """Turn a bad value into a usage error: exit status 2, a sentence, no traceback."""

    @wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return command(*args, **kwargs)
        except TrackerError as error:
            raise click.UsageError(str(error)) from None
        except (OverflowError, ZeroDivisionError):
            raise click.UsageError(_NOT_FINITE) from None

    return run


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document; a result that is not finite is a usage error, never NaN."""
    try:
        _output.print_json({"schema": 1, **document})
    except ValueError:
        raise click.UsageError(_NOT_FINITE) from None


def print_tables(tables: Iterable[Table]) -> None:
    """Print tables with a blank line between them."""
    for i, table in enumerate(tables):
        if i:
            click.echo()
        _output.print_table(table)
