"""Readings summed by time: a run of a million lines as a few thousand rows.

Pure. The store sums the same in SQL; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from tracker.core.facts import Facts
from tracker.core.fold import Frame
from tracker.core.records import Reading
from tracker.core.segments import Segment

_AT_ONCE: Final = 4


class Bucket(NamedTuple):
    """The readings of one stretch of time of one process. Counters are the highest seen."""

    end_us: int | None
    """Stamp of its last reading; None for readings without a clock."""
    step: int
    samples: int | None
    tokens: int | None
    batch: int | None
    tokens_per_step: int | None
    step_time_sum_us: int
    step_time_count: int

    def odometer(self, frame: Frame) -> int | None:
        """Return the tokens so far, by tokens or by samples; None where its lines tell neither."""
        if self.tokens is None and self.samples is not None and frame.sequence_length is not None:
            return self.samples * frame.sequence_length
        return self.tokens

    def tokens_of_a_step(self, frame: Frame) -> int | None:
        """Return what one of its steps trains, by its own lines, else by what is known of the attempt."""
        if self.tokens_per_step is not None:
            return self.tokens_per_step
        batch = self.batch if self.batch is not None else frame.batch
        if batch is not None and frame.sequence_length is not None:
            return batch * frame.sequence_length
        return frame.tokens_per_step


class Told(NamedTuple):
    """The steps that a bucket tells of: those since what was told before it."""

    bucket: Bucket
    low: int
    high: int
    tokens: float | None
    """By the odometer, else by the size of its steps; None where nothing tells."""


@dataclass(slots=True)
class Walk:
    """An attempt's steps, told bucket after bucket, file after file."""

    frame: Frame
    last: int
    """Step that the attempt is known to have done: lines without a clock may say more."""
    step: int
    """Told so far."""
    odometer: int | None
    """Tokens so far; None while unknown."""

    @classmethod
    def of(cls, frame: Frame, last: int) -> Walk:
        """Return a walk that begins where the attempt did."""
        odometer, step = frame.resume_tokens, frame.resume_step
        return cls(frame, last, step, 0 if odometer is None and step == 0 else odometer)

    def over(self, buckets: Iterable[Bucket]) -> Iterator[Told]:
        """Yield what each bucket adds; one that adds no step is left out."""
        for bucket in buckets:
            low, high = self.step, min(bucket.step, self.last)
            if high <= low:
                continue
            now, own = bucket.odometer(self.frame), None
            if now is not None and self.odometer is not None and now > self.odometer:
                own = float(now - self.odometer)
            elif size := bucket.tokens_of_a_step(self.frame):
                own = float(size * (high - low))
            self.step = high
            if now is not None:
                self.odometer = now
            elif self.odometer is not None:
                self.odometer = None if own is None else self.odometer + round(own)
            yield Told(bucket, low, high, own)


def bucketed(readings: Iterable[Reading], *, width_us: int, until_us: int) -> list[Bucket]:
    """Return the readings up to a moment, summed by at_us // width_us, in order of time."""
    found: dict[int | None, Bucket] = {}
    for r in readings:
        if r.at_us is not None and r.at_us > until_us:
            continue
        key = None if r.at_us is None else r.at_us // width_us
        b = found.get(key) or Bucket(None, 0, None, None, None, None, 0, 0)
        timed = r.step_time_us is not None
        found[key] = Bucket(
            _most(b.end_us, r.at_us),
            max(b.step, r.step),
            _most(b.samples, r.samples),
            _most(b.tokens, r.tokens),
            _most(b.batch, r.batch),
            _most(b.tokens_per_step, r.tokens_per_step),
            b.step_time_sum_us + (r.step_time_us or 0),
            b.step_time_count + timed,
        )
    return [found[key] for key in sorted(found, key=lambda k: -1 if k is None else k)]


def sampled(facts: Facts, stream_id: int, segment: Segment, *, count: int, until_us: int) -> list[Bucket]:
    """Return a process's readings at `count` places evenly spread over its lines, each with a few step times.

    Costs the same however many readings lie between. What the ledger says of the whole attempt scales
    it afterwards, so the sample only says how the pace varied.
    """
    first, last = segment.first_offset, segment.last_offset
    found: list[Bucket] = []
    for number in range(1, count + 1):
        place = first + (last - first) * number // count
        some = bucketed(
            islice(facts.readings(stream_id, start=place, end=last + 1), _AT_ONCE),
            width_us=1 << 62,
            until_us=until_us,
        )
        if number == count and segment.last is not None:
            end = segment.last_reading
            if end is not None and (end.at_us is None or end.at_us <= until_us):
                some = bucketed([end], width_us=1 << 62, until_us=until_us)
        if some and (not found or some[-1].step > found[-1].step):
            found.append(some[-1])
    return found


def _most(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)
