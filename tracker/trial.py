"""What a collector makes of one file, without a store: the answer of `tracker collectors test FILE`.

Edge: reads the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tracker.core.errors import TrackerError
from tracker.core.records import Event, Json, Kind, Reading, Reject, SchedulerRow, problem
from tracker.core.segments import Segmenter
from tracker.follow import Chunk, Follower
from tracker.interfaces import Collector, Context

REJECTS_SHOWN: Final = 10
ROWS_SHOWN: Final = 5
LARGEST_DOCUMENT: Final = 512 << 20
_HEAD_BYTES: Final = 256 << 10

Told = Callable[[int], None]
"""Called with the bytes of each block that was read."""


class CannotRead(TrackerError):
    """The file is not there, or not to be read."""


@dataclass(slots=True, kw_only=True)
class Trial:
    """What came out."""

    collector: Collector | None
    """None: nobody recognises the file."""
    evidence: str
    read_bytes: int = 0
    lines: int = 0
    readings: int = 0
    first: Reading | None = None
    last: Reading | None = None
    stamped: int = 0
    """Readings with a clock."""
    events: Counter[str] = field(default_factory=Counter)
    """By kind."""
    causes: Counter[str] = field(default_factory=Counter)
    """Of failures."""
    processes: int = 0
    """Segments: stretches of one process each."""
    settings: dict[str, Json] = field(default_factory=dict)
    rows: list[SchedulerRow] = field(default_factory=list)
    """The first few."""
    row_count: int = 0
    rejects: Counter[str] = field(default_factory=Counter)
    """By reason."""
    rejected: list[Reject] = field(default_factory=list)
    """The first few."""
    skipped_bytes: int = 0


def head_of(path: Path) -> bytes:
    """Return the first bytes of a file, decompressed; CannotRead says why not."""
    head = b""
    for chunk in _chunks(path, max_bytes=4 * _HEAD_BYTES):
        head += chunk.data
        if len(head) >= _HEAD_BYTES:
            break
    return head[:_HEAD_BYTES]


def run(
    path: Path, collector: Collector, *, context: Context, evidence: str, told: Told | None = None
) -> Trial:
    """Read a whole file by one collector."""
    trial = Trial(collector=collector, evidence=evidence)
    segmenter = Segmenter()
    document: list[bytes] = []
    for chunk in _chunks(path):
        trial.read_bytes += len(chunk.data)
        trial.lines += chunk.lines
        trial.skipped_bytes += chunk.too_long_bytes + chunk.nul_bytes
        if told is not None:
            told(len(chunk.data))
        if collector.followed:
            context.offset = chunk.offset
            _take(trial, segmenter, collector, chunk.data, context)
        else:
            document.append(chunk.data)
            if trial.read_bytes > LARGEST_DOCUMENT:
                raise CannotRead(f"{path}: larger than {LARGEST_DOCUMENT >> 20} MiB, which {collector.name} "
                                 "would have to hold at once")  # fmt: skip
    if document:
        _take(trial, segmenter, collector, b"".join(document), context)
    trial.processes = len(segmenter.segments)
    return trial


def _chunks(path: Path, *, max_bytes: int = 1 << 62) -> Iterator[Chunk]:
    if not path.exists():
        raise CannotRead(f"{path}: no such file")
    if path.is_dir():
        raise CannotRead(f"{path}: is a folder. Give a file of it")
    follower = Follower([path.name], root=path.absolute().parent, rotated=False)
    try:
        yield from follower.poll(now_us=0, final=True, max_bytes=max_bytes)
        unreadable = follower.health().unreadable
        if unreadable:
            raise CannotRead(f"{path}: {unreadable[0].reason}")
    finally:
        follower.close()


def _take(trial: Trial, segmenter: Segmenter, collector: Collector, block: bytes, context: Context) -> None:
    for record in collector.parse(block, context):
        if isinstance(record, Reading):
            reason = problem(record)
            if reason is not None:
                _reject(trial, Reject(record.offset, _line_at(block, record.offset - context.offset), reason))
                continue
            segmenter.feed([record])
            trial.readings += 1
            trial.first = trial.first or record
            trial.last = record
            trial.stamped += record.at_us is not None
        elif isinstance(record, Event):
            segmenter.feed([record])
            trial.events[record.kind.value] += 1
            if record.kind is Kind.FAILURE:
                trial.causes[str(record.data.get("cause", "unknown"))] += 1
            if record.kind is Kind.SETTING:
                trial.settings.update(record.data)
        elif isinstance(record, SchedulerRow):
            trial.row_count += 1
            if len(trial.rows) < ROWS_SHOWN:
                trial.rows.append(record)
        else:
            _reject(trial, record)


def _reject(trial: Trial, reject: Reject) -> None:
    trial.rejects[reject.reason] += 1
    if len(trial.rejected) < REJECTS_SHOWN:
        trial.rejected.append(reject)


def _line_at(block: bytes, place: int) -> bytes:
    start = block.rfind(b"\n", 0, max(place, 0)) + 1
    return block[start : start + 500].split(b"\n", 1)[0]
