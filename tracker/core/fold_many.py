"""Many usual readings folded in one go: the same state as one by one, at a fraction of its cost.

Pure. Usual is what `Fold.reading` takes the short way: a stamped mean that excludes stops, none of which was
seen, whole on one side of the cut, with a token odometer. The first reading that is not ends the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracker.core.fold import (
    CLOCK_BACK_US,
    EXCLUDES,
    GAPS_KEPT,
    HARDWARE,
    LATE_US,
    SERIES_LONG,
    TYPICAL_KEPT,
    UNUSUAL,
    WHOLE,
    Fold,
)
from tracker.core.records import Reading

_MINUTE_US: Final = 60_000_000
_MOST: Final = 1 << 60
"""Numbers beyond it are for the long way, which knows what to do with them."""
_BY: Final = 512


def take(fold: Fold, readings: Sequence[Reading]) -> list[int]:
    """Fold usual readings, as many as there are in a row; return the token odometer at each one taken."""
    odometers: list[int] = []
    for start in range(0, len(readings), _BY):
        some = readings[start : start + _BY]
        taken = _some(fold, some)
        odometers += taken
        if len(taken) < len(some):
            break
    return odometers


def _some(fold: Fold, readings: Sequence[Reading]) -> list[int]:
    begun, odometer, since, series = fold.at, fold.odometer, fold.step, fold.series
    odometers: list[int] = []
    if (
        begun is None
        or odometer is None
        or not series
        or fold.stops
        or fold.dark_since is not None
        or fold.base_step != since
        or max(odometer, begun, fold.tokens_net, fold.productive_us) > _MOST
    ):
        return odometers
    length, skew = fold.frame.sequence_length, fold.skew_us
    cut = fold.frame.cut if fold.frame.cut is not None else _MOST
    productive, other, net = fold.productive_us, fold.other_us, fold.tokens_net - odometer
    minute, crowded = series[-3] // _MINUTE_US, len(series) > 3 * SERIES_LONG
    waits = False
    gaps: list[int] = []
    works: list[int] = []
    for _, at_us, step, step_time_us, samples, tokens, _, _, flags, reported, _ in readings:
        steps = step - since
        if (
            flags & UNUSUAL
            or not flags & EXCLUDES
            or at_us is None
            or step_time_us is None
            or steps <= 0
            or step > cut
        ):
            break
        if tokens is None:
            if samples is None or length is None:
                break
            tokens = samples * length
        stamp = at_us + skew
        if not odometer <= tokens <= _MOST or not begun - CLOCK_BACK_US <= stamp <= _MOST:
            break
        claim = step_time_us * steps
        end = begun + claim
        if skew and at_us >= end - (999_999 if flags & WHOLE else LATE_US):
            break  # the clock is right again
        if end < stamp - LATE_US:
            other += stamp - end
            end, work = stamp, claim
        else:
            early = stamp + 999_999 if flags & WHOLE else stamp
            if end > early:
                end = early if early > begun else begun
            work = end - begun
        if end // _MINUTE_US != minute or crowded:
            if waits:
                fold.productive_us, fold.tokens_net = productive, net + odometer
                fold.sample(begun)
            fold.productive_us, fold.tokens_net = productive + work, net + tokens
            fold.sample(end)
            minute, crowded, waits = end // _MINUTE_US, len(series) > 3 * SERIES_LONG, False
        else:
            waits = True
        gaps.append(end - begun)
        works.append(work // steps)
        odometers.append(tokens)
        productive += work
        begun, since, odometer = end, step, tokens
        if reported is not None:
            fold.reported_sum += reported * work
            fold.reported_us += work
            fold.reported_hardware = bool(flags & HARDWARE)
    if not gaps:
        return odometers
    taken = readings[: len(gaps)]
    fold.productive_us, fold.tokens_net, fold.other_us = productive, net + odometer, other
    if waits:
        fold.sample(begun)
    fold.gaps = [*fold.gaps, *gaps][-GAPS_KEPT:]
    fold.typical = [*fold.typical, *works][-TYPICAL_KEPT:]
    fold.odometer = fold.cut_odometer = odometer
    fold.at = begun
    fold.steps_net += since - fold.step
    fold.step = fold.base_step = since
    fold.readings += len(gaps)
    fold.last_step_time_us = taken[-1].step_time_us
    fold.last_batch = next((r.batch for r in reversed(taken) if r.batch is not None), fold.last_batch)
    fold.skipped += sum([r.skipped for r in taken])
    return odometers
