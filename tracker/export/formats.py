"""How rows become bytes: CSV, JSON lines, Parquet.

Edge: writes files. CSV is opened by spreadsheets, and a log's text may pretend to be a formula: a text cell
that begins with = + - @, a tab or a line break gets an apostrophe in front, which a spreadsheet hides. So
does such a sign behind a semicolon, a tab or a line break, where a spreadsheet may begin a cell. Cells of
numbers and moments are ours and stay as they are. JSON lines and Parquet hold the text as it was.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO, Final, Literal

from tracker.core.errors import TrackerError
from tracker.export.tables import Cell, Column, Kind, Row
from tracker.scratch import Scratch

Format = Literal["csv", "jsonl", "parquet"]
FORMATS: Final = ("csv", "jsonl", "parquet")
DANGEROUS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""First characters of a formula, and their full-width twins, which some spreadsheets take too."""
_UNSEEN: Final = (
    r"[\x00-\x08\x0b\x0c\x0e-\x20\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u180b-\u180f\u2000-\u200f"
    r"\u2028-\u202f\u205f-\u206f\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffd]*"
)
"""Blanks, marks without a width, and what stands for a control character: some spreadsheets drop them."""
_SIGN: Final = r"[=+\-@\uff1d\uff0b\uff0d\uff20]"
_BEGINS: Final = re.compile(_UNSEEN + _SIGN)
_BEGINS_LATER: Final = re.compile(f"([;\t\r\n]{_UNSEEN})(?={_SIGN})")
_CONTROLS: Final = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if code not in (9, 10, 13)}
_ROWS: Final = 5_000
_TYPES: Final[dict[Kind, str]] = {
    "text": "VARCHAR",
    "moment": "TIMESTAMP",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
}


class NoParquet(TrackerError):
    """The package that writes Parquet is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "Parquet needs the package duckdb: pip install 'run-telemetry[parquet]'. "
            "CSV and JSON lines do without"
        )


def write(form: Format, columns: Sequence[Column], rows: Iterable[Row], out: BinaryIO) -> int:
    """Write a table; return the number of rows. Raises NoParquet."""
    if form == "csv":
        return _csv(columns, rows, out)
    if form == "jsonl":
        return _json_lines(columns, rows, out)
    return _parquet(columns, rows, out)


def guarded(text: str) -> str:
    """Return text that no spreadsheet takes for a formula.

    >>> guarded("=cmd|' /C calc'!A0"), guarded("loss -1"), guarded("")
    ("'=cmd|' /C calc'!A0", 'loss -1', '')
    >>> guarded("a;=cmd|' /C calc'!A0"), guarded("\\ufeff=1")
    ("a;'=cmd|' /C calc'!A0", "'\\ufeff=1")
    """
    text = _BEGINS_LATER.sub(r"\1'", text)
    return f"'{text}" if text.startswith(DANGEROUS) or _BEGINS.match(text) else text


def _csv(columns: Sequence[Column], rows: Iterable[Row], out: BinaryIO) -> int:
    texts = [place for place, column in enumerate(columns) if column.kind == "text"]
    written = 0
    for some in _by(rows, _ROWS):
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        if not written:
            writer.writerow([column.name for column in columns])
        for row in some:
            cells = _cells(row, texts)
            if any("\r" in str(cells[place]) for place in texts):
                _quoted(buffer, cells)
            else:
                writer.writerow(cells)
        out.write(buffer.getvalue().encode("utf-8", "replace"))
        written += len(some)
    if not written:
        out.write((",".join(column.name for column in columns) + "\n").encode())
    return written


def _quoted(buffer: io.StringIO, cells: list[Cell]) -> None:
    """Write a row with all its text in quotes: the writer leaves a lone carriage return bare."""
    for place, cell in enumerate(cells):
        if place:
            buffer.write(",")
        if isinstance(cell, str):
            buffer.write('"' + cell.replace('"', '""') + '"')
        elif cell is not None:
            buffer.write(str(cell))
    buffer.write("\n")


def _cells(row: Row, texts: Sequence[int]) -> list[Cell]:
    """Return a row's cells: unknown ones empty, booleans in small letters, text guarded, without controls."""
    cells: list[Cell] = [str(cell).lower() if isinstance(cell, bool) else cell for cell in row]
    for place in texts:
        cell = cells[place]
        if isinstance(cell, str):
            cells[place] = guarded(cell.translate(_CONTROLS))
    return cells


def _json_lines(columns: Sequence[Column], rows: Iterable[Row], out: BinaryIO) -> int:
    names = [column.name for column in columns]
    written = 0
    for some in _by(rows, _ROWS):
        lines = [json.dumps(dict(zip(names, row, strict=True)), allow_nan=False) for row in some]
        out.write(("\n".join(lines) + "\n").encode())
        written += len(some)
    return written


def _parquet(columns: Sequence[Column], rows: Iterable[Row], out: BinaryIO) -> int:
    """Let DuckDB turn JSON lines into Parquet: a small package, typed columns, bounded memory."""
    try:
        import duckdb
    except ImportError:
        raise NoParquet from None
    with Scratch("export") as folder:
        lines, made = folder / "rows.jsonl", folder / "rows.parquet"
        with lines.open("wb") as file:
            written = _json_lines(columns, (_plain(row) for row in rows), file)
        types = {column.name: _TYPES[column.kind] for column in columns}
        database: Any = duckdb.connect(":memory:", config={"temp_directory": str(folder), "threads": "2"})
        try:
            database.execute(
                f"COPY (SELECT * FROM read_json(?, format = 'newline_delimited', columns = {types!r})) "
                "TO ? (FORMAT parquet, COMPRESSION zstd)",
                [str(lines), str(made)],
            )
        finally:
            database.close()
        with made.open("rb") as file:
            while block := file.read(1 << 20):
                out.write(block)
    return written


def _plain(row: Row) -> Row:
    """Return a row without NUL and half surrogates, which Parquet's text cannot hold."""
    return tuple(
        cell.replace("\0", "\ufffd").encode("utf-8", "replace").decode() if isinstance(cell, str) else cell
        for cell in row
    )


def _by(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """Yield rows some at a time."""
    rest = iter(rows)
    while some := list(islice(rest, size)):
        yield some
