"""The back-fill itself: stretch after stretch is asked for, sent, tried again, told.

Edge: waits, and talks to a server through a target.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isclose
from typing import Final

from tracker.backfill.server import Broken, NoAnswer, Refused
from tracker.backfill.targets import Found, Target, series_of
from tracker.core.errors import TrackerError
from tracker.export.history import Block, Line
from tracker.interfaces import Clock

FIRST_WAIT_S: Final = 1.0
MOST_WAIT_S: Final = 60.0
_CLOSE: Final = 1e-9
"""Values nearer than this, relative, are the same: a server may keep 12 digits only."""
_GIVE_UP_AFTER: Final = 3
"""Moments of a stretch refused whole, one after another, after which the rest of it is refused too."""


class GaveUp(TrackerError):
    """The server failed for too long."""


@dataclass(slots=True)
class Report:
    """What became of the samples."""

    sent: int = 0
    there: int = 0
    """Already there, and the same."""
    differing: int = 0
    """Already there with another value: left as they are."""
    refused: int = 0
    """Taken by nobody: the server said no."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why, in the server's words, with how many samples."""
    requests: int = 0
    retries: int = 0
    missing: int = 0
    """Of those checked at the end, not found again."""
    checked: int = 0
    doubled: int = 0
    """There a second time: a request whose sender was killed was taken in after we had asked."""
    end_ms: int = 0

    @property
    def samples(self) -> int:
        """Return how many were dealt with."""
        return self.sent + self.there + self.differing + self.refused


class Sender:
    """Sends blocks to a target."""

    def __init__(
        self,
        target: Target,
        *,
        run: str,
        labels: Mapping[str, str],
        clock: Clock,
        patience_s: float = 300.0,
        told: Callable[[Report, str], None] | None = None,
    ) -> None:
        """`patience_s`: how long a server may fail without a break; `told` hears of progress and trouble."""
        self.report = Report()
        self._target = target
        self._run, self._labels = run, labels
        self._clock = clock
        self._patience_s = patience_s
        self._told = told or (lambda report, trouble: None)
        self._chance = random.Random()
        self._ends: list[Block] = []
        self._written: list[tuple[int, int, int]] = []
        """Stretches that something was sent for: first and last moment, and samples doubled before."""

    def run(self, blocks: Iterable[Block]) -> Report:
        """Send all; raises GaveUp, or Refused where the server takes nothing from us at all."""
        begun_s = self._clock.monotonic_s()
        for block in blocks:
            if not self._ends:  # whoever sent before us may have been killed a moment ago
                self._pause(self._target.lag_s - (self._clock.monotonic_s() - begun_s))
                self._patiently(self._settle)
            for part in _parts(block, self._target.most_samples):
                self._part(part)
                self.report.end_ms = part.end_ms
                self._told(self.report, "")
            self._ends = [*self._ends[:1], block]
        if self.report.sent:
            self._check()
            if self.report.there or self.report.retries:
                self._look_for_doubles()
        return self.report

    def _part(self, part: Block) -> None:
        """Send what is not there yet of a stretch of time. After a failure what is there is asked anew."""
        begun, wait = self._clock.monotonic_s(), FIRST_WAIT_S
        before: int | None = None
        doubled = 0
        while True:
            try:
                if before is not None:
                    self._pause(self._target.lag_s)
                    self._settle()
                found = self._present(part)
                if before is None:
                    doubled = self._target.doubled
                    self.report.doubled += doubled
                left = _without(part, found, self.report if before is None else None)
                open_ = sum(len(line.values) for line in left)
                if before is not None:  # what a request without an answer has left behind is sent
                    self.report.sent += max(0, before - open_)
                before = open_
                if left:
                    self._written.append((part.start_ms, part.end_ms, doubled))
                    self._send(left)
                return
            except (NoAnswer, Broken) as error:
                wait = self._wait(error, begun, wait)

    def _present(self, part: Block) -> Found:
        return self._target.present(self._run, self._labels, part.start_ms, part.end_ms)

    def _send(self, lines: list[Line]) -> None:
        samples = sum(len(line.values) for line in lines)
        self.report.requests += 1
        try:
            self._target.send(lines)
        except Refused as error:
            if error.status != 400 or not self._target.atomic:
                raise
            self._by_moment(lines)
        else:
            self.report.sent += samples

    def _by_moment(self, lines: list[Line]) -> None:
        """Send moment by moment, in order, what was refused as a whole; count what nobody takes."""
        moments = sorted({at_ms for line in lines for at_ms in line.times_ms})
        in_a_row = taken_in_a_row = 0
        for place, at_ms in enumerate(moments):
            if in_a_row >= _GIVE_UP_AFTER and place < len(moments) - _GIVE_UP_AFTER:
                self._count(_cut(lines, at_ms, at_ms), self._last_reason)
                continue
            if taken_in_a_row >= _GIVE_UP_AFTER:  # past what was refused: the rest in one go
                self._send(_cut(lines, at_ms, moments[-1]))
                return
            taken = self._one_moment(_cut(lines, at_ms, at_ms))
            in_a_row, taken_in_a_row = (0, taken_in_a_row + 1) if taken else (in_a_row + 1, 0)

    _last_reason = ""

    def _one_moment(self, lines: list[Line]) -> bool:
        """Send one moment, series by series where it is refused; tell whether anything was taken."""
        self.report.requests += 1
        try:
            self._target.send(lines)
        except Refused as error:
            if error.status != 400:
                raise
            self._last_reason = str(error)
            if len(lines) == 1:
                self._count(lines, str(error))
                return False
            half = len(lines) // 2
            first = self._one_moment(lines[:half])
            return self._one_moment(lines[half:]) or first
        self.report.sent += sum(len(line.values) for line in lines)
        return True

    def _count(self, lines: list[Line], reason: str) -> None:
        samples = sum(len(line.values) for line in lines)
        self.report.refused += samples
        if len(self.report.reasons) < 20 or reason in self.report.reasons:
            self.report.reasons[reason] += samples

    def _check(self) -> None:
        """Read the first and the last block back: a server may drop in silence what is too old for it."""
        wait_s = 0.25
        while True:
            self._patiently(self._settle)
            checked = missing = 0
            for block in self._ends:
                for part in _parts(block, self._target.most_samples):
                    found: Found = {}

                    def ask(part: Block = part, found: Found = found) -> None:
                        found.update(self._present(part))

                    self._patiently(ask)
                    checked += part.samples
                    missing += sum(len(line.values) for line in _without(part, found, None))
            self.report.checked = checked
            self.report.missing = max(0, missing - self.report.refused)
            if not self.report.missing or wait_s > self._target.lag_s:
                return
            self._pause(wait_s)
            wait_s *= 2

    def _look_for_doubles(self) -> None:
        """Ask again for what was sent: what somebody else's last request brought meanwhile is there twice."""
        for start_ms, end_ms, before in dict.fromkeys(self._written):
            part = Block(start_ms, end_ms, [])
            self._patiently(lambda part=part: self._present(part))  # type: ignore[misc]
            self.report.doubled += max(0, self._target.doubled - before)

    def _settle(self) -> None:
        self._target.settle(self._pause)

    def _pause(self, seconds: float) -> None:
        if seconds > 0 and self._clock.wait(seconds):
            raise GaveUp("stopped; the same command goes on from here")

    # -- patience -----------------------------------------------------------------------------------

    def _patiently(self, act: Callable[[], object]) -> None:
        begun, wait = self._clock.monotonic_s(), FIRST_WAIT_S
        while True:
            try:
                act()
                return
            except (NoAnswer, Broken) as error:
                wait = self._wait(error, begun, wait)

    def _wait(self, error: NoAnswer | Broken, begun_s: float, wait_s: float) -> float:
        """Wait before another try; return the next wait. Raises GaveUp when it took too long."""
        left = self._patience_s - (self._clock.monotonic_s() - begun_s)
        asked = error.after_s if isinstance(error, Broken) else None
        pause = (asked if asked is not None else wait_s) * self._chance.uniform(1.0, 1.25)
        if pause > left:
            raise GaveUp(f"{error}. Gave up after {self._patience_s:g} s; the same command goes on from here")
        self.report.retries += 1
        self._told(self.report, f"{error}; again in {pause:.0f} s")
        if self._clock.wait(pause):
            raise GaveUp("stopped; the same command goes on from here")
        return min(wait_s * 2, MOST_WAIT_S)


def _parts(block: Block, most: int) -> Iterator[Block]:
    """Yield a block in stretches of time of at most so many samples, in order."""
    count = -(-block.samples // most)
    if count <= 1:
        yield block
        return
    moments = sorted({at_ms for line in block.lines for at_ms in line.times_ms})
    for number in range(count):
        own = moments[len(moments) * number // count : len(moments) * (number + 1) // count]
        if own:
            yield Block(own[0], own[-1], _cut(block.lines, own[0], own[-1]))


def _cut(lines: Iterable[Line], start_ms: int, end_ms: int) -> list[Line]:
    """Return what lies between two moments, both included."""
    kept = []
    for line in lines:
        low, high = bisect_right(line.times_ms, start_ms - 1), bisect_right(line.times_ms, end_ms)
        if low < high:
            kept.append(line._replace(times_ms=line.times_ms[low:high], values=line.values[low:high]))
    return kept


def _without(part: Block, found: Found, report: Report | None) -> list[Line]:
    """Return the samples of a block that are not there; count those that are."""
    if not found:
        return part.lines
    left = []
    for line in part.lines:
        known = found.get(series_of(line.family.name, line.labels))
        if known is None:
            left.append(line)
            continue
        times, values = [], []
        for at_ms, value in zip(line.times_ms, line.values, strict=True):
            there = known.get(at_ms)
            if there is None:
                times.append(at_ms)
                values.append(value)
            elif report is not None:
                same = there == value or isclose(there, value, rel_tol=_CLOSE)
                report.there += same
                report.differing += not same
        if times:
            left.append(line._replace(times_ms=times, values=values))
    return left
