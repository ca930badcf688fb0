"""What a report of a run needs beside the present snapshot: earlier moments, and the run over time.

Pure. It costs seconds to make, so a child process makes it now and then; `with_snapshot` puts it together
with a snapshot of now. As JSON it goes from one process to the other.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import types
import typing
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from tracker.core.changes import Changes
from tracker.core.daily import Daily, Health, daily
from tracker.core.forecast.value import Forecast
from tracker.core.series import Series
from tracker.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The past of one run, as of a moment not long ago."""

    before: Snapshot | None = None
    """A day before."""
    earlier: Snapshot | None = None
    """Two days before."""
    history: tuple[Forecast, ...] = ()
    series: Series = field(default_factory=Series)
    changes: Changes = field(default_factory=Changes)
    files: int = 0
    unrecognised: tuple[str, ...] = ()

    @classmethod
    def of(cls, made: Daily) -> Beside:
        """Return the past that a report was made with."""
        return cls(
            before=made.before and replace(made.before, settings=None),
            earlier=made.earlier and replace(made.earlier, settings=None),
            history=made.history,
            series=made.series,
            changes=made.changes,
            files=made.health.files,
            unrecognised=made.health.unrecognised,
        )

    def with_snapshot(self, now: Snapshot, *, health: Health) -> Daily:
        """Return the report's value of now."""

        def then(snapshot: Snapshot | None) -> Snapshot | None:
            return snapshot and replace(snapshot, settings=now.settings)

        return daily(
            now,
            before=then(self.before),
            earlier=then(self.earlier),
            history=self.history,
            series=self.series,
            changes=self.changes,
            health=replace(health, files=self.files or health.files, unrecognised=self.unrecognised),
        )

    def sharing(self, now: Snapshot) -> Beside:
        """Return the same with the attempts that are as they were taken from `now`: half the memory."""
        known = {line.number: line for line in now.attempts}

        def then(snapshot: Snapshot | None) -> Snapshot | None:
            if snapshot is None:
                return None
            lines = [known.setdefault(line.number, line) for line in snapshot.attempts]
            same = zip(snapshot.attempts, lines, strict=True)
            return replace(snapshot, attempts=tuple(other if line == other else line for line, other in same))

        return replace(self, before=then(self.before), earlier=then(self.earlier))

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON; `from_json` is its inverse."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Beside:
        """Return what `to_json` described; ValueError, TypeError or KeyError where it is something else."""
        made = _made(cls, body)
        assert isinstance(made, cls)
        return made


@cache
def _fields(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {one.name: hints[one.name] for one in dataclasses.fields(kind)}


def _made(kind: Any, body: Any) -> Any:
    """Return plain JSON as a value of a type; what holds no dataclass is taken as it is."""
    if body is None:
        return None
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return kind(**{name: _made(hint, body[name]) for name, hint in _fields(kind).items()})
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        choices = [one for one in inner if one is not type(None)]
        return _made(choices[0], body) if len(choices) == 1 else body
    if origin is tuple:
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(_made(inner[0], one) for one in body)
        return tuple(_made(one, part) for one, part in zip(inner, body, strict=True))
    if origin is collections.abc.Mapping:
        whole = inner[0] is int
        return {int(name) if whole else name: _made(inner[1], one) for name, one in body.items()}
    return body
