"""Tables of metrics: Lightning's and LitGPT's `metrics.csv`, and what others write with commas or tabs.

Pure. The header says which column is which, by the names that `jsonl` knows. Traps: rows of training and of
validation are interleaved, with empty cells; a new process may write its header again; a row may be torn;
of `tokens` and `total_tokens` the first is of one device; DeepSpeed's monitor counts samples, not steps.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from collectors._aliases import FIELDS, plan
from collectors._numbers import number
from collectors._odometer import Memory, reading
from collectors._options import RATE, STEP_TIME, checked, keys_of_a_record
from tracker.core.records import Event, Json, Kind, Record, Reject, evidence
from tracker.interfaces import Collector, Context, Evidence

_DELIMITERS: Final = (",", "\t", ";")
_COLUMNS: Final = 512
_HEADER_BYTES: Final = 16_384
_SAMPLES: Final = re.compile(r"(?:^|/)Samples/")


def parse(block: bytes, context: Context) -> Iterator[Record]:
    """Yield the records of a block of rows."""
    state = context.state
    memory = msgspec.convert(state.get("rows", {}), Memory)
    own = _own(context)
    begin = 0
    while begin < len(block):
        here, end = begin, block.find(b"\n", begin)
        end = len(block) if end < 0 else end
        line, begin = block[here:end].rstrip(b"\r"), end + 1
        if line.strip():
            yield from _row(line, context.offset + here, memory, context, own)
    state["rows"] = msgspec.to_builtins(memory)


def _row(
    line: bytes, offset: int, memory: Memory, context: Context, own: tuple[tuple[str, str], ...]
) -> Iterator[Record]:
    state = context.state
    header: Any = state.get("header")
    delimiter: Any = state.get("delimiter")
    if header is None or not isinstance(delimiter, str):
        found = _header(line)
        if found is not None:
            state["delimiter"], state["header"] = found[0], list[Json](found[1])
            yield from _told(found[1], line, offset)
        return
    cells = _cells(line, delimiter)
    if cells == header:
        return
    if (again := _header(line)) is not None:
        state["delimiter"], state["header"] = again[0], list[Json](again[1])
        return
    if len(cells) != len(header):
        yield Reject(offset, line[:200], "a row of another width than the header")
        return
    if any(_SAMPLES.search(name) for name in header):
        return
    skipped = {"iter_time"} if {"iter", "step", "iter_time"} <= set(header) else set()  # of a micro step
    body = {
        name: text
        for name, text in zip(header, cells, strict=True)
        if name and text and text.lower() != "nan" and name not in skipped
    }
    losses = [name for name, text in zip(header, cells, strict=True) if text.lower() == "nan"]
    if plan(tuple(body)).step is not None and (kept := [n for n in losses if plan((n,)).loss]):
        body[kept[0]] = "nan"
    yield from reading(body, line, offset, memory, context, _total(header, own))


def _told(header: list[str], line: bytes, offset: int) -> Iterator[Record]:
    """Say once what is not read."""
    if any(_SAMPLES.search(name) for name in header):
        told: dict[str, Any] = {"message": "its steps are samples, so it is not read"}
        yield Event(offset=offset, kind=Kind.NOTE, data=told, text=evidence(line))


def _total(header: list[str], own: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Of both, `total_tokens` is of all devices; the user's word comes first."""
    if {"tokens", "total_tokens"} <= set(header) and not any(field == "tokens" for field, _ in own):
        return (*own, ("tokens", "total_tokens"))
    return own


def _header(line: bytes) -> tuple[str, list[str]] | None:
    """Return the delimiter and the names of a header; None where the line is none."""
    if len(line) > _HEADER_BYTES:
        return None
    best: tuple[str, list[str]] | None = None
    for delimiter in _DELIMITERS:
        names = _cells(line, delimiter)
        if 1 < len(names) <= _COLUMNS and (best is None or len(names) > len(best[1])):
            best = delimiter, names
    if best is None or any(number(name) is not None for name in best[1] if name):
        return None
    return best if plan(tuple(best[1])).step is not None else None


def _cells(line: bytes, delimiter: str) -> list[str]:
    text = line.decode("utf-8", "replace").removeprefix("\ufeff").replace("\0", "")
    if '"' not in text:
        return [cell.strip() for cell in text.split(delimiter)]
    try:
        return [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter), [])]
    except csv.Error:
        return []


def _own(context: Context) -> tuple[tuple[str, str], ...]:
    """Return the user's own names: `keys = { step = "updates" }`."""
    option = context.options.get("keys")
    if not isinstance(option, dict):
        return ()
    return tuple(sorted((f, key) for f, key in option.items() if f in FIELDS and isinstance(key, str)))


def detect(head: bytes) -> Evidence | None:
    """Find a header with a step, and a row that fits under it."""
    lines = [line.rstrip(b"\r") for line in head[:65_536].split(b"\n") if line.strip()][:20]
    if len(lines) < 2 or (found := _header(lines[0])) is None:
        return None
    delimiter, names = found
    step = plan(tuple(names)).step
    for line in lines[1:]:
        cells = _cells(line, delimiter)
        if len(cells) == len(names) and step is not None and number(cells[names.index(step)]) is not None:
            return Evidence(score=45, text=f"a table with the column {step}")
    return None


COLLECTOR: Final = Collector(
    name="csv",
    framework="CSV and tab-separated tables of metrics (Lightning, LitGPT, loggers of many names)",
    version=1,
    parse=parse,
    detect=detect,
    knows=("what its columns name: tokens, samples, time, step time, gpus",),
    needs=("source.started_at where no column is a time",),
    options=("keys", "rate", "step_time"),
    check=checked(keys=keys_of_a_record, rate=RATE, step_time=STEP_TIME),
    notes=(
        "Columns are known by the names of jsonl's keys; `keys` names others. A step time without a unit in "
        "its name is seconds. A column `_step` or `batch` counts only where no better one is there."
    ),
)
