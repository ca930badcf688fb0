"""Which collector reads which source, and what its answers depend on besides the bytes.

Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tracker.config.model import Source
from tracker.interfaces import Collector, Context

AUTO: Final = "auto"


class Verdict(Protocol):
    """Who reads a file, and why; `collectors.detect` returns one."""

    @property
    def collector(self) -> Collector | None:
        """The one that reads it; None where nobody knows it or several claim it equally."""
        ...

    @property
    def text(self) -> str:
        """The evidence, or why there is no answer, for people."""
        ...


Detect = Callable[[bytes], Verdict]
"""Given the first bytes of a file."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One [[source]] with the collector that it names."""

    index: int
    """0, 1, 2 ... in the order of the config."""
    source: Source
    collector: Collector | None
    """None: each file says by its content (`auto`)."""

    @property
    def followed(self) -> bool:
        """Tell whether its files are read on as they grow (else they are read whole)."""
        return self.source.pattern is not None and (self.collector is None or self.collector.followed)

    def context(self, file_name: str) -> Context:
        """Return what a parser may know at the start of a file."""
        return Context(zone=self.source.zone, options=self.source.options, file_name=file_name)

    def inputs(self, collector: Collector) -> str:
        """Return a digest of all that a parse depends on besides the bytes: another one, parse again."""
        zone = getattr(self.source.zone, "key", None) or str(self.source.zone)
        words = json.dumps([collector.version, zone, dict(self.source.options)], sort_keys=True, default=str)
        return hashlib.blake2b(words.encode(), digest_size=8).hexdigest()


def plans(sources: Sequence[Source], collectors: Mapping[str, Collector]) -> tuple[Plan, ...]:
    """Return the plans of a config's sources, in its order."""
    return tuple(
        Plan(index, source, None if source.collector == AUTO else collectors[source.collector])
        for index, source in enumerate(sources)
    )


def source_keys(sources: Sequence[Source]) -> list[str]:
    """Return what each source is called, the same wherever it stands in the config."""
    keys: list[str] = []
    for source in sources:
        words = list(source.command) if source.command is not None else [source.pattern or ""]
        key = json.dumps(words)
        keys.append(f"{key}#{keys.count(key)}" if key in keys else key)
    return keys


def renumbered(before: Sequence[str], now: Sequence[str]) -> dict[int, int]:
    """Return where each source of an earlier config stands now; one that is gone comes after all others.

    >>> renumbered(["a", "b", "c"], ["c", "a"])
    {0: 1, 1: 2, 2: 0}
    """
    numbers = {}
    gone = len(now)
    for old, key in enumerate(before):
        if key in now:
            numbers[old] = now.index(key)
        else:
            numbers[old] = gone
            gone += 1
    return numbers
