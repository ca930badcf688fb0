"""One attempt's records folded, in file order, into its time by bucket, its steps and its tokens.

Pure. The fold is a small state that takes one reading at a time at a constant cost, can be written down
and taken up again (`to_json`), and never looks back. All times here are wall time of the attempt in
integer microseconds; `core/ledger.py` weighs them with GPUs.

How a window gets its time. A reading's stamp says when its line was written; the printed step time says
how long its steps took. Stamps are late by a little and, with whole seconds, early by up to one: the
true end of a window lies in [stamp - LATE, stamp + resolution). So the end is placed at the previous
end plus the printed duration where that falls inside, else at the interval's near end (at the stamp
itself where the steps fall short: the gap then holds something else). A contiguous
stretch then keeps its whole length, whatever the rounding of single stamps; only true shortfalls are
clipped. What a window's gap holds beyond its printed duration belongs to the saves and evaluations seen
in it, and what they do not explain is `other`.

A clock that is set back. What its stamps lack is added to them from then on: nothing but the step time
tells how long that window was. A later stamp that needs no addition, because it lies at or beyond the
window's end as it is, says that the clock is right again: else its way back would be time unexplained.

A stamp that leapt ahead (`core/leaps.py`). It tells nothing: the window lasts as long as it says, and ends
no later than the line after it.
"""

from __future__ import annotations

import json
import sys
import zlib
from array import array
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from statistics import median_low
from typing import Any, Final

from tracker.core.records import Event, Flag, Kind, Reading

LATE_US: Final = 100_000
"""A line is written at most this much after its steps ended, as far as placing it goes."""
CLOCK_BACK_US: Final = 2_000_000
"""A stamp earlier than the previous end by more than this is a clock that was set back."""
GAPS_KEPT: Final = 20
TYPICAL_KEPT: Final = 9
_MINUTE_US: Final = 60_000_000
_SERIES_SPAN_US: Final = 26 * 3600 * 1_000_000
_SERIES_WORK_US: Final = 2 * 3600 * 1_000_000
SERIES_LONG: Final = 1800
HANG_FACTOR: Final = 10
HANG_LEAST_US: Final = 600 * 1_000_000

EXCLUDES: Final = int(Flag.STEP_TIME_EXCLUDES)
_INCLUDES: Final = int(Flag.STEP_TIME_INCLUDES)
_MEAN: Final = EXCLUDES | _INCLUDES
_EXTRA: Final = int(Flag.EXTRA)
WHOLE: Final = int(Flag.WHOLE_SECOND)
_ROUNDED: Final = int(Flag.ROUNDED)
HARDWARE: Final = int(Flag.REPORTED_HARDWARE)
_ASTRAY: Final = int(Flag.ASTRAY)
UNUSUAL: Final = _ASTRAY | int(
    Flag.EXTRA | Flag.ROUNDED | Flag.NAN | Flag.STEP_TIME_INCLUDES | Flag.STEP_TIME_SAMPLE
)

Stop = list[Any]
"""A save or evaluation since the last reading: [bucket, start_us, end_us, duration_us, step]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What must be known before an attempt's records can be folded."""

    start_us: int
    """Start of its allocation (or process)."""
    resume_step: int
    """R: the step it went on from."""
    cut: int | None = None
    """Steps above it are not in the lineage; None: all are."""
    resume_tokens: int | None = None
    """The token odometer at R, where known."""
    sequence_length: int | None = None
    batch: int | None = None
    """Sequences in a step where no line says it."""
    tokens_per_step: int | None = None


@dataclass(slots=True, kw_only=True)
class Fold:
    """The state. Durations in wall microseconds; `at` and `first_us` are moments (UTC microseconds)."""

    frame: Frame
    piece: int = 0
    """Which of the attempt's files is being read, and from which offset on."""
    offset: int = 0
    first_us: int | None = None
    """Start of the first window."""
    at: int | None = None
    """End of the last span: the last sign of progress."""
    step: int = 0
    sign_us: int | None = None
    """Latest start-up line with a clock."""
    productive_us: int = 0
    lost_us: int = 0
    checkpoint_us: int = 0
    evaluation_us: int = 0
    other_us: int = 0
    steps_net: int = 0
    steps_lost: int = 0
    tokens_net: int = 0
    tokens_lost: int = 0
    dark_since: int | None = None
    """Since which step no line told the tokens, though one did before: the next odometer settles it."""
    dark_net: int = 0
    """Retained steps whose tokens no line tells."""
    dark_lost: int = 0
    odometer: int | None = None
    cut_odometer: int | None = None
    """The token odometer at the last retained step."""
    readings: int = 0
    skew_us: int = 0
    """Added to stamps since the clock was set back."""
    righted_us: int = 0
    """What was added to earlier stamps, until the clock was right again."""
    astray: int = 0
    """Readings whose own stamps leapt ahead and are not used."""
    astray_step: int | None = None
    """Step of the first of them."""
    base_step: int = 0
    base_extra_us: int = 0
    stops: list[Stop] = field(default_factory=list)
    typical: list[int] = field(default_factory=list)
    gaps: list[int] = field(default_factory=list)
    last_batch: int | None = None
    last_step_time_us: int | None = None
    reported_sum: float = 0.0
    reported_us: int = 0
    reported_hardware: bool = False
    nan_lines: int = 0
    skipped: int = 0
    saves: int = 0
    """Saves seen, each step once."""
    saved_step: int | None = None
    hang_us: int = 0
    """Part of `other_us` in which nothing was printed though the process lived on."""
    series: array[int] = field(default_factory=lambda: array("q"))
    """at, productive_us, tokens_net at the last window end of each minute, one after another; recent
    ones only. An array: a hundred ended attempts hold some hundred thousand of them."""

    def __post_init__(self) -> None:
        if not self.readings:
            self.step = self.base_step = self.frame.resume_step
            if self.odometer is None:
                known = self.frame.resume_tokens
                self.odometer = known if known is not None else (0 if self.step == 0 else None)

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain JSON; the frame is not in it."""
        body = asdict(self)
        del body["frame"]
        body["series"] = list(self.series)
        return body

    @classmethod
    def from_json(cls, frame: Frame, body: Mapping[str, Any]) -> Fold:
        """Return the state that `to_json` described."""
        return cls(frame=frame, **{**body, "series": array("q", body["series"])})

    def to_bytes(self) -> bytes:
        """Return the state as bytes: JSON, a line end, and the series in eight bytes a number."""
        body = {name: getattr(self, name) for name in _PLAIN}
        series = self.series
        if sys.byteorder == "big":
            series = array("q", series)
            series.byteswap()
        return zlib.compress(json.dumps(body, separators=(",", ":")).encode() + b"\n" + series.tobytes(), 1)

    @classmethod
    def from_bytes(cls, frame: Frame, body: bytes) -> Fold:
        """Return the state that `to_bytes` described."""
        head, _, packed = zlib.decompress(body).partition(b"\n")
        series = array("q", packed)
        if sys.byteorder == "big":
            series.byteswap()
        return cls(frame=frame, series=series, **json.loads(head))

    # -- records -----------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        """Take an event that stands before the next reading."""
        kind = event.kind
        if kind is Kind.SAVE_START:
            self._saved(event.step)
            self.stops.append(["checkpoint", self._stamp(event), None, None, event.step])
        elif kind is Kind.EVAL_START:
            self.stops.append(["evaluation", self._stamp(event), None, None, event.step])
        elif kind is Kind.SAVE_END:
            self._stop_ends("checkpoint", event)
        elif kind is Kind.EVAL_END:
            self._stop_ends("evaluation", event)
        elif (
            kind in (Kind.LAUNCH, Kind.SIGN, Kind.RESUME, Kind.TRAIN_START, Kind.RESTART)
            and event.at_us is not None
            and self.at is None
        ):
            self.sign_us = event.at_us if self.sign_us is None else max(self.sign_us, event.at_us)

    def _stop_ends(self, bucket: str, event: Event) -> None:
        end_us = self._stamp(event)
        for stop in reversed(self.stops):
            if stop[0] != bucket or (None not in (stop[4], event.step) and stop[4] != event.step):
                continue
            bare = stop[2] is None and stop[3] is None
            if bare or (stop[3] is None and event.duration_us is not None):  # a timer tells it again, finer
                stop[2] = end_us if bare else stop[2]
                stop[3], stop[4] = event.duration_us, event.step if stop[4] is None else stop[4]
                return
        if bucket == "checkpoint":
            self._saved(event.step)
        self.stops.append([bucket, None, end_us, event.duration_us, event.step])

    def _saved(self, step: int | None) -> None:
        """Count a save, unless another line told of it already."""
        if step is None or step != self.saved_step:
            self.saves += 1
        self.saved_step = step

    def _stamp(self, event: Event) -> int | None:
        if event.at_us is None or event.data.get("astray"):
            return None
        return event.at_us + self.skew_us

    def reading(self, reading: Reading, *, until_us: int | None = None) -> bool:
        """Take the next reading. Return False, unchanged, if it lies after `until_us`."""
        if self._plain(reading, until_us):
            return True
        if not self._moved(reading, until_us):
            return False
        if reading.flags & _ASTRAY:
            self.astray += 1
            self.astray_step = reading.step if self.astray_step is None else self.astray_step
        return True

    def _moved(self, reading: Reading, until_us: int | None) -> bool:
        steps = reading.step - self.step
        if steps <= 0:
            if self.at is None and reading.at_us is not None:
                self.sign_us = max(self.sign_us or reading.at_us, reading.at_us)
            if not self.readings and reading.step == self.step:
                self.odometer = self._odometer(reading) or self.odometer
            return True
        claim = self._claim(reading, steps)
        known = sum(min(k, _FAR) for k in map(stop_length_us, self.stops) if k is not None)
        start, end, skew = self._place(reading, steps, claim, known)
        if until_us is not None and end > until_us and (reading.at_us is None or reading.at_us > until_us):
            return False
        if skew < self.skew_us:
            self.righted_us += self.skew_us
        self.skew_us = skew
        if self.first_us is None:
            self.first_us = start
        else:
            self.gaps.append(end - start)
            if len(self.gaps) > GAPS_KEPT:
                del self.gaps[0]
        work = self._divide(end - start, steps, claim, reading.flags)
        self._count(reading, steps, work, self._until_save(start, work))
        self._move_on(reading, claim, end, work)
        return True

    def _until_save(self, begun: int, work: int) -> int | None:
        """Return the work up to the save at the cut, where its beginning has a stamp: windows meet there."""
        stopped = 0
        for stop in self.stops:
            if stop[0] == "checkpoint" and stop[4] == self.frame.cut and stop[1] is not None:
                return min(max(int(stop[1]) - begun - stopped, 0), work)
            stopped += stop_length_us(stop) or 0
        return None

    def _plain(self, reading: Reading, until_us: int | None) -> bool:
        """Take the usual reading in one go: the same sums as the long way, at a third of its cost.

        A stamped mean that excludes stops, none of which was seen, whole on one side of the cut, with a
        token odometer. Return False, unchanged, for anything else.
        """
        _, at_us, step, step_time_us, samples, tokens, batch, skipped, flags, reported, _ = reading
        begun, since, odometer, length = self.at, self.step, self.odometer, self.frame.sequence_length
        cut = self.frame.cut
        steps = step - since
        if (
            flags & UNUSUAL
            or not flags & EXCLUDES
            or begun is None
            or at_us is None
            or step_time_us is None
            or steps <= 0
            or self.stops
            or self.dark_since is not None
            or self.base_step != since
            or odometer is None
            or (cut is not None and step > cut)
            or (until_us is not None and at_us > until_us)
        ):
            return False
        if tokens is None:
            if samples is None or length is None:
                return False
            tokens = samples * length
        stamp = at_us + self.skew_us
        if tokens < odometer or stamp < begun - CLOCK_BACK_US:
            return False
        claim = step_time_us * steps
        end = begun + claim
        if self.skew_us and at_us >= end - (999_999 if flags & WHOLE else LATE_US):
            return False
        if end < stamp - LATE_US:
            end = stamp
            self.other_us += end - begun - claim
            work = claim
        else:
            early = stamp + 999_999 if flags & WHOLE else stamp
            if end > early:
                end = early if early > begun else begun
            work = end - begun
        self.gaps.append(end - begun)
        if len(self.gaps) > GAPS_KEPT:
            del self.gaps[0]
        self.typical.append(work // steps)
        if len(self.typical) > TYPICAL_KEPT:
            del self.typical[0]
        self.productive_us += work
        self.steps_net += steps
        self.tokens_net += tokens - odometer
        self.odometer = self.cut_odometer = tokens
        self.at = end
        self.step = self.base_step = step
        self.readings += 1
        if batch is not None:
            self.last_batch = batch
        self.last_step_time_us = step_time_us
        self.skipped += skipped
        if reported is not None:
            self.reported_sum += reported * work
            self.reported_us += work
            self.reported_hardware = bool(flags & HARDWARE)
        self.sample(end)
        return True

    def _claim(self, reading: Reading, steps: int) -> int | None:
        """Return the printed duration of the window, where the step time is a mean that adds up."""
        if reading.step_time_us is None or not reading.flags & _MEAN:
            return None
        claim = reading.step_time_us * (reading.step - self.base_step) - self.base_extra_us
        return claim if claim > 0 else reading.step_time_us * steps

    def _place(self, reading: Reading, steps: int, claim: int | None, known: int) -> tuple[int, int, int]:
        """Return the moments at which the window begins and ends, and what stamps lack from then on."""
        length = claim
        if length is None:
            step_us = reading.step_time_us or (median_low(self.typical) if self.typical else 0)
            length = step_us * steps
        if claim is None or not reading.flags & _INCLUDES:
            length += known
        begun = self.at
        if reading.at_us is None:
            if begun is None:
                begun = max(self.frame.start_us, self.sign_us or self.frame.start_us)
            return begun, begun + length, self.skew_us
        if reading.flags & _ASTRAY and begun is not None:
            latest = max(reading.at_us + self.skew_us, begun)
            return begun, min(begun + length, latest), self.skew_us
        skew = self.skew_us
        whole = bool(reading.flags & WHOLE)
        if skew and begun is not None and reading.at_us >= begun + length - (999_999 if whole else LATE_US):
            skew = 0
        stamp = reading.at_us + skew
        if begun is None:
            begun = max(self.frame.start_us, stamp - length)
            if claim is None and self.sign_us is not None:
                begun = max(begun, min(self.sign_us, stamp)) if length else min(self.sign_us, stamp)
            return min(begun, max(stamp, self.frame.start_us)), max(stamp, self.frame.start_us), skew
        if stamp < begun - CLOCK_BACK_US:
            skew += begun + length - stamp
            stamp = begun + length
        early = stamp + (999_999 if whole else 0)
        end = stamp if claim is None or begun + length < stamp - LATE_US else min(begun + length, early)
        return begun, max(end, begun), skew

    def _divide(self, gap: int, steps: int, claim: int | None, flags: int) -> int:
        """Give the gap to saves, evaluations and `other`; return what is left for the steps."""
        known = [stop_length_us(stop) for stop in self.stops]
        vague = sum(1 for k in known if k is None)
        stopped = sum(k for k in known if k is not None)
        usual = median_low(self.typical) * steps if self.typical else None
        if claim is None:
            stopped = min(stopped, gap)
            work = gap - stopped
            guess = max(0, work - usual) if vague and usual is not None else 0
            work -= guess
            spare = 0
            if usual and not vague and work - usual > HANG_LEAST_US and work > HANG_FACTOR * usual:
                spare = work - usual
                self.hang_us += spare
                work = usual
        elif flags & _INCLUDES:
            stopped = min(stopped, claim)
            guess = max(0, claim - stopped - usual) if vague and usual is not None else 0
            work = min(claim - stopped - guess, gap)
            stopped = min(stopped, gap - work)
            guess = min(guess, gap - work - stopped)
            spare = gap - work - stopped - guess
        else:
            work = min(claim, gap)
            stopped = min(stopped, gap - work)
            guess = gap - work - stopped if vague else 0
            spare = gap - work - stopped - guess
        self.other_us += spare
        self._give(known, stopped, guess, vague)
        if not self.stops:
            self.typical.append(work // steps)
            if len(self.typical) > TYPICAL_KEPT:
                del self.typical[0]
        return work

    def _give(self, known: list[int | None], stopped: int, guess: int, vague: int) -> None:
        """Hand out the stopped time: to known durations in order, the rest evenly to the vague ones."""
        given = 0
        for stop, duration in zip(self.stops, known, strict=True):
            if duration is None:
                given += 1
                part = guess * given // vague - guess * (given - 1) // vague
            else:
                part = min(duration, stopped)
                stopped -= part
            if stop[0] == "checkpoint":
                self.checkpoint_us += part
            else:
                self.evaluation_us += part

    def _odometer(self, reading: Reading) -> int | None:
        if reading.tokens is not None and not reading.flags & _ROUNDED:
            return reading.tokens
        if reading.samples is not None and self.frame.sequence_length is not None:
            return reading.samples * self.frame.sequence_length
        return None

    def per_step(self, reading: Reading | None) -> int | None:
        """Return tokens in a step: the line's word, else the attempt's, else the config's."""
        frame = self.frame
        if reading is not None and reading.tokens_per_step is not None:
            return reading.tokens_per_step
        batch = reading.batch if reading is not None and reading.batch is not None else self.last_batch
        batch = batch if batch is not None else frame.batch
        if batch is not None and frame.sequence_length is not None:
            return batch * frame.sequence_length
        return frame.tokens_per_step

    def _count(self, reading: Reading, steps: int, work: int, until_save: int | None = None) -> None:
        """Split the window's time, steps and tokens by the cut."""
        now = self._odometer(reading)
        per_step = self.per_step(reading)
        tokens: int | None = None
        if now is not None and self.odometer is not None and now >= self.odometer:
            tokens = now - self.odometer
            if self.readings == 0 and per_step is not None and tokens > 100 * per_step * steps:
                tokens = per_step * steps  # the odometer at R was not what we thought
        elif per_step is not None:
            tokens = per_step * steps
        kept = self.split(self.step, steps, work, until_save)
        if tokens is not None:
            since = self.dark_since if self.dark_since is not None and now is not None else self.step
            kept_tokens = self.count_tokens(since, reading.step - since, tokens)
            if self.odometer is not None and kept_tokens is not None:
                self.cut_odometer = self.odometer + kept_tokens
            if since != self.step or now is not None:
                self.dark_since = None
        elif self.odometer is not None and now is None:
            self.dark_since = self.step if self.dark_since is None else self.dark_since
        else:
            self.dark_net += kept
            self.dark_lost += steps - kept
        if now is not None:
            self.odometer = now
        elif self.odometer is not None and tokens is not None and self.dark_since is None:
            self.odometer += tokens

    def split(self, since: int, steps: int, work: int, until_save: int | None = None) -> int:
        """Add a window (since, since + steps] to what is kept and lost; return how many steps are kept."""
        cut = self.frame.cut
        kept = steps if cut is None else min(max(cut - since, 0), steps)
        kept_us = work * kept // steps if until_save is None or not 0 < kept < steps else until_save
        self.productive_us += kept_us
        self.lost_us += work - kept_us
        self.steps_net += kept
        self.steps_lost += steps - kept
        return kept

    def count_tokens(self, since: int, steps: int, tokens: int) -> int | None:
        """Add the tokens of steps (since, since + steps]; return how many are retained, None for none."""
        cut = self.frame.cut
        kept = steps if cut is None else min(max(cut - since, 0), steps)
        kept_tokens = tokens * kept // steps
        self.tokens_net += kept_tokens
        self.tokens_lost += tokens - kept_tokens
        return kept_tokens if kept else None

    def tokens(self) -> tuple[int, int] | None:
        """Return (retained, lost) tokens; steps that no line told of count as the others' mean.

        None where no line told any and nothing says how many a step holds.
        """
        cut, net, lost = self.frame.cut, self.dark_net, self.dark_lost
        if self.dark_since is not None:
            steps = self.step - self.dark_since
            kept = steps if cut is None else min(max(cut - self.dark_since, 0), steps)
            net, lost = net + kept, lost + steps - kept
        told = self.steps_net + self.steps_lost - net - lost
        if not net and not lost:
            return self.tokens_net, self.tokens_lost
        if told <= 0:
            return None
        mean = self.tokens_net + self.tokens_lost
        return self.tokens_net + mean * net // told, self.tokens_lost + mean * lost // told

    def _move_on(self, reading: Reading, claim: int | None, end: int, work: int) -> None:
        self.at = end
        self.step = reading.step
        self.readings += 1
        self.stops.clear()
        if reading.batch is not None:
            self.last_batch = reading.batch
        if reading.flags & _EXTRA and claim is not None:
            self.base_extra_us += claim
        else:
            self.base_step, self.base_extra_us = reading.step, 0
        if reading.step_time_us is not None:
            self.last_step_time_us = reading.step_time_us
        self.skipped += reading.skipped
        if reading.flags & Flag.NAN:
            self.nan_lines += 1
        if reading.reported_flop_per_s is not None:
            self.reported_sum += reading.reported_flop_per_s * work
            self.reported_us += work
            self.reported_hardware = bool(reading.flags & HARDWARE)
        self.sample(end)

    def sample(self, end: int) -> None:
        """Note the state at the end of a window; of each minute the last one stays."""
        series = self.series
        if series and series[-3] // _MINUTE_US == end // _MINUTE_US:
            del series[-3:]
        try:
            series.extend((end, self.productive_us, self.tokens_net))
        except OverflowError:  # counts that only a broken log can hold
            del series[len(series) // 3 * 3 :]
            series.extend(max(-_MOST, min(v, _MOST)) for v in (end, self.productive_us, self.tokens_net))
        if len(series) > 3 * SERIES_LONG:
            self._prune(end)

    def _prune(self, end: int) -> None:
        series, keep = self.series, 0
        while (
            keep < len(series) - 6
            and series[keep + 3] < end - _SERIES_SPAN_US
            and self.productive_us - series[keep + 4] > _SERIES_WORK_US
        ):
            keep += 3
        del series[:keep]


_MOST: Final = (1 << 63) - 1
_PLAIN: Final = tuple(f.name for f in fields(Fold) if f.name not in ("frame", "series"))
_FAR: Final = 366 * 86400 * 1_000_000


def stop_length_us(stop: Stop) -> int | None:
    """Return how long a save or evaluation took, where its lines say so."""
    _, start, end, duration, _ = stop
    if duration is not None:
        return int(duration)
    if start is not None and end is not None:
        return max(0, int(end - start))
    return None
