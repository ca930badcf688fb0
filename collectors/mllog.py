"""MLPerf `:::MLLOG` lines, wherever they stand among other text: readings, start-up, evaluation, end.

Pure. This module finds the lines; `_mllog.Run` knows what they mean. Of the text between them only event
lines, what the launcher prints, and srun's labels are looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from collectors._events import EVENTS, FOLLOWERS
from collectors._lines import Hit, Reader, rule, started
from collectors._mllog import KEYS, Line, Place, Run
from collectors._numbers import count, number
from tracker.core.records import EARLIEST_US, LATEST_US, Event, Kind, Reading, Record, Reject
from tracker.interfaces import Collector, Context, Evidence

_MARK: Final = b":::MLLOG"
_LABEL: Final = re.compile(rb"\n *([0-9]{1,6}): ")
_FIRST_LABEL: Final = re.compile(rb" *([0-9]{1,6}): ")

_DECODER: Final = msgspec.json.Decoder(Line)
_LOOSE: Final = json.JSONDecoder()


@dataclass(slots=True, kw_only=True)
class _Block(Context):
    """The caller's context with the block at hand and the memory unpacked."""

    block: bytes = b""
    seen: int = 0
    """srun labels were counted up to here."""
    run: Run = field(default_factory=Run)


def parse(block: bytes, context: Context) -> Iterator[Record]:
    """Yield the records of the MLLOG lines in a block, and of what surrounds them."""
    inner = _Block(
        zone=context.zone,
        file_name=context.file_name,
        options=context.options,
        offset=context.offset,
        state=context.state,
        block=block,
        run=msgspec.convert(context.state.get("mllog", {}), Run),
    )
    yield from _READER.parse(block, inner)
    _see_labels(inner, len(block))
    context.state["mllog"] = msgspec.to_builtins(inner.run)


def _see_labels(context: _Block, end: int) -> None:
    """Count the srun labels up to a place, while the processes start: one for each GPU, or for each node."""
    begin, context.seen = context.seen, max(context.seen, end)
    if context.run.phase == "run" or end <= begin:
        return
    labels = set(_LABEL.findall(context.block, max(begin - 1, 0), end))  # from the newline before on
    if begin == 0 and (label := _FIRST_LABEL.match(context.block, 0, end)):
        labels.add(label[1])
    if labels:
        context.run.see_labels(labels)


def _of(hit: Hit) -> Run:
    """Return the memory, brought up to the place of a line."""
    context = hit.context
    assert isinstance(context, _Block)
    _see_labels(context, hit.offset - context.offset)
    return context.run


def _mllog(hit: Hit) -> Iterator[Record]:
    """Read every object of a line: two writers may have glued theirs."""
    run, text = _of(hit), hit.text
    hit.done = True  # whatever a value holds, it is no event line
    if text.startswith(b"+"):  # the shell shows what it is about to run
        return
    at = text.find(_MARK)
    while at >= 0:
        after = text.find(_MARK, at + len(_MARK))
        place = Place(hit.offset + at, text[at : after if after >= 0 else None])
        for record in _object(run, place):
            if isinstance(record, Reading):
                yield from hit.reading(record)
                continue
            if isinstance(record, Event) and record.kind is Kind.LAUNCH:
                started(hit.state)
                hit.state["job"] = record.data.get("job_id")
            yield record
        at = after


def _object(run: Run, place: Place) -> list[Record]:
    raw = place.line[len(_MARK) :]
    try:
        line = _DECODER.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        body = _json(raw)  # NaN, or other text after the object
        if not isinstance(body, dict):
            return [Reject(place.offset, place.line[:200], "torn MLLOG line")]
        line = Line(**{name: body.get(name) for name in ("time_ms", "key", "value", "metadata")})
    if not isinstance(line.key, str):
        return [Reject(place.offset, place.line[:200], "MLLOG line without a key")]
    if line.key not in KEYS:
        return []
    at_ms = number(line.time_ms)
    if at_ms is None:
        return [Reject(place.offset, place.line[:200], "MLLOG line without a time")]
    if not EARLIEST_US <= at_ms * 1000 < LATEST_US:
        return [Reject(place.offset, place.line[:200], "time stamp outside 2000..2100")]
    return run.take(line, int(at_ms), place)


def _json(raw: bytes) -> Any:
    """Return the first JSON value in a text, whatever follows it; None where there is none."""
    try:
        return _LOOSE.raw_decode(raw.decode("utf-8", "replace").lstrip())[0]
    except (ValueError, RecursionError):
        return None


def _system(hit: Hit) -> Iterable[Record]:
    run, body = _of(hit), _json(hit.text[hit.match.end() :])
    if isinstance(body, dict) and not hit.text.startswith(b"+"):
        run.see_system(body)
    return ()


def _job(hit: Hit) -> Iterable[Record]:
    run, nodes = _of(hit), count(hit.word(2))
    if nodes and not hit.text.startswith(b"+"):
        run.see_job(hit.word(1) or "", nodes)
    return ()


def _world(hit: Hit) -> Iterable[Record]:
    run, size = _of(hit), count(hit.word(1))
    return run.see_world(size, Place(hit.offset, hit.text)) if size else ()


def _trial(hit: Hit) -> Iterable[Record]:
    run, stop = _of(hit), count(hit.word(1))
    if hit.text.startswith(b"+"):
        return ()
    if stop is None or not EARLIEST_US <= stop * 1_000_000 < LATEST_US:
        run.fresh = True
        return ()
    return run.launcher_stops(stop * 1_000_000, Place(hit.offset, hit.text))


_READER: Final = Reader(
    (
        rule(_MARK, _MARK, _mllog),
        rule(b":::SYSJSON", rb":::SYSJSON +(?=\{)", _system),
        rule(b":::DLPAL", rb":::DLPAL \S+ ([0-9]{1,18}) ([0-9]{1,6}) ", _job),
        rule(b"MEMBER: ", rb"GLOBAL_RANK: [0-9]+, MEMBER: [0-9]+/([0-9]{1,8})\b", _world),
        rule(b"RUNANDTIME_ST", rb"RUNANDTIME_ST(?:ART|OP ([0-9]{9,11})\b)", _trial),
        rule(b"Beginning trial", rb"Beginning trial()", _trial),
        *EVENTS,
    ),
    followers=FOLLOWERS,
)


def detect(head: bytes) -> Evidence | None:
    """Find the marker, which no other logger prints."""
    lines = head.count(b':::MLLOG {"')
    return Evidence(score=97, text=f":::MLLOG ({lines} lines)") if lines else None


COLLECTOR: Final = Collector(
    name="mllog",
    framework="MLPerf Training result logs (mlperf_logging), v4.0 to v5.1",
    version=1,
    parse=parse,
    detect=detect,
    knows=("tokens", "samples", "time", "gpus", "step time", "start-up", "evaluation", "completion"),
    notes=(
        "samples_count, step and epoch_num mean different things with different loggers; they are told "
        "apart by what divides them. submission_platform is no GPU count."
    ),
)
