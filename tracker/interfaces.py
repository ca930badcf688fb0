"""What a replacement must provide, on one page: Collector and Clock.

Edge types without any edge in them: no I/O happens here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from tracker.core.records import Json, Record


@dataclass(slots=True, kw_only=True)
class Context:
    """What a parser may know besides the bytes. One for each stream (file), kept as long as the file.

    `state` is the parser's memory between blocks. It is stored with the read position in one
    transaction, so it must be plain JSON, small, and all that the parser remembers: killed at any
    moment and restarted, or given the same file in other pieces, a parser yields the same records.
    """

    zone: dt.tzinfo = dt.UTC
    """Zone of stamps that carry none (`[run] timezone`, or the source's own)."""
    file_name: str = ""
    """Base name of the file, without a rotation suffix; no folder."""
    options: Mapping[str, Json] = field(default_factory=dict)
    """Extra keys of the `[[source]]` table, such as a pattern or column names."""
    offset: int = 0
    """Bytes from the start of the file to the first byte of the block; the caller sets it."""
    state: dict[str, Json] = field(default_factory=dict)
    """The parser's memory; empty at the start of a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Why a collector thinks that a file is its own."""

    score: int
    """Higher wins; equal scores of two collectors are a tie, which is refused. 1..100: 90 and more
    for text that only this framework prints, around 50 for text that its forks print too."""
    text: str
    """The words found, for people."""


Parse = Callable[[bytes, Context], Iterable[Record]]
Detect = Callable[[bytes], Evidence | None]
Check = Callable[[Mapping[str, Json]], Iterable[str]]
"""(options) -> what is wrong with them, each a sentence that begins with the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """How one format is read. `parse` is pure: no I/O, no clock, no memory but `context.state`.

    `kind` says what a block is:
    - "log": whole lines, each ending in a newline (the file's last one perhaps not), in file order;
    - "records": whole records of an event file (length, checksum, data, checksum), in file order;
    - "document": the whole file, read again when it changes (a JSON array, a state file);
    - "scheduler": likewise, and it yields SchedulerRow.
    Blocks cut a log anywhere between two lines (records), and what is yielded must not depend on where.
    Records come in file order; of one line, the Reading before its Events. What is not ours is passed over
    in silence; what looks like ours and cannot be used is a Reject; parse raises for nothing that a file
    may hold.
    """

    name: str
    """As in `[[source]] collector`; also the module's and the fixture folder's name."""
    framework: str
    """For people, with the versions read: "Megatron-LM v1.0 to core_v0.19"."""
    version: int
    """Raised when the same bytes yield other records; stored with the rows."""
    parse: Parse
    detect: Detect
    """Given the first up to 256 KiB of a file."""
    kind: Literal["log", "records", "document", "scheduler"] = "log"
    knows: tuple[str, ...] = ()
    """What the format can tell: "tokens", "time", "gpus", "step time" ..."""
    needs: tuple[str, ...] = ()
    """Config keys that must be set because the format does not say it: "model.sequence_length" ..."""
    options: tuple[str, ...] = ()
    """Extra keys that its `[[source]]` table may hold."""
    notes: str = ""
    """One or two sentences: the traps that a user should know."""
    check: Check | None = None
    """Looks at the options of its `[[source]]` before anything is read."""

    @property
    def followed(self) -> bool:
        """Tell whether its files are read on as they grow; else they are read whole."""
        return self.kind in ("log", "records")


class Clock(Protocol):
    """The only way to the time. tracker/clock.py has the real one, tests have their own."""

    def now_us(self) -> int:
        """Return wall time, microseconds since 1970, UTC."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds that never go back."""
        ...

    def wait(self, seconds: float) -> bool:
        """Sleep, or return True at once when the process has been told to stop."""
        ...
