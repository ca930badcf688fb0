"""Iteration lines of the Megatron family: `iteration N/ T | key: value | key: value | ...`.

Pure. Neither the order nor the number of fields is fixed; units stand in the keys. What a line's fields are
is worked out once for each layout and kept as one expression, which then reads the lines of that layout; any
other line is split. Both ways end in `Iterations._take`, so they cannot disagree.

Traps: a loss that is not a number leaves its field out; two records glued on one line; a record wrapped over
several lines, even inside a word; a torn one; the extra line after a process's first step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from collectors._clock import STAMP, minute_of, stamp_us, whole_second
from collectors._lines import Hit, fresh
from collectors._text import scaled
from tracker.core.records import Flag, Reading, Record, Reject, problem
from tracker.interfaces import Context

GATE: Final = b"iteration "
"""Every iteration line holds it, and so do the lines that say where a checkpoint was saved or loaded."""

_ANCHOR: Final = re.compile(
    rb"(?:\[(?P<at>" + STAMP + rb")\] *)?(?:samples/sec: [\d.]{1,20} \| )?"
    rb"iteration +(?P<step>\d{1,30})/ *\d{1,30} *\|"
)
ITERATION: Final = rb"iteration +\d{1,30}/ *\d{1,30} *\|"
"""Finds an iteration line."""
_COMPLETE: Final = b"number of nan iterations:"
WRAPPED: Final = "wrapped"
"""Name of the follower that takes the other lines of a wrapped record."""
_WRAPPED_LINES: Final = 6
_LONGEST: Final = 4096
_LAYOUTS: Final = 8


class Fields(NamedTuple):
    """The values of one line as printed; None where a field is absent."""

    step: bytes | None = None
    samples: bytes | None = None
    tokens: bytes | None = None
    elapsed_ms: bytes | None = None
    elapsed_s: bytes | None = None
    model_tflop: bytes | None = None
    hardware_tflop: bytes | None = None
    batch: bytes | None = None
    sequence: bytes | None = None
    skipped: bytes | None = None
    nan: bytes | None = None


_KEYS: Final = {
    b"consumed samples": "samples",
    b"consumed tokens": "tokens",
    b"elapsed time per iteration (ms)": "elapsed_ms",
    b"elapsed time per iteration (s)": "elapsed_s",
    b"iteration time": "elapsed_s",
    b"throughput per GPU (TFLOP/s/GPU)": "model_tflop",
    b"TFLOPs": "hardware_tflop",
    b"global batch size": "batch",
    b"gloabl batch size": "batch",  # a fork prints it so
    b"curriculum seqlen": "sequence",
    b"actual seqlen": "sequence",
    b"number of skipped iterations": "skipped",
    b"number of skippediterations": "skipped",  # wrapped between the words
    b"number of nan iterations": "nan",
}
_SHAPE: Final = {
    "tokens": rb"([\d.]{1,18}[KMBGT]?)",
    "elapsed_ms": rb"(\d{1,12}(?:\.\d{1,9})?)",
    "elapsed_s": rb"(\d{1,9}(?:\.\d{1,9})?)",
    "model_tflop": rb"(\d{1,9}(?:\.\d{1,9})?)",
    "hardware_tflop": rb"(\d{1,9}(?:\.\d{1,9})?)",
}
"""What a layout's expression takes as a value; any other value goes the long way."""
_COUNT_SHAPE: Final = rb"(\d{1,18})"


@dataclass(frozen=True, slots=True)
class _Layout:
    expression: re.Pattern[bytes]
    order: tuple[int, ...]
    """The group of each of `Fields`; that of an absent one takes part in no match."""


class Iterations:
    """Reads the iteration lines of one collector; it is also the `Hot` of its reader."""

    gate = GATE

    def __init__(self, *, includes: bool | None) -> None:
        """`includes`: the printed time holds evaluation and saves; None: the shape of the line tells."""
        self._includes = includes
        self._layouts: list[_Layout] = []  # a memory of shapes: it changes the speed and no answer

    def sweep(self, block: bytes) -> list[tuple[int, Swept]]:
        """Return the lines of the first known layout that occurs in a block."""
        for number, layout in enumerate(self._layouts):
            swept: list[tuple[int, Swept]] = []
            order = layout.order
            for found in layout.expression.finditer(block):
                at = found.start()
                start = block.rfind(b"\n", 0, at) + 1
                head = block[start:at]
                if head[:2] == b" [" and head[-2:] == b"] ":
                    swept.append((start, (head[2:-2], found.group(*order))))
                elif (labelled := _HEAD.fullmatch(head)) is not None:
                    swept.append((start, (labelled["at"], found.group(*order))))
            if swept:
                if number:
                    self._layouts.insert(0, self._layouts.pop(number))
                return swept
        return []

    def run(
        self, swept: Sequence[tuple[int, Swept]], place: Callable[[int], int], context: Context
    ) -> Iterator[Reading | int]:
        """Yield the readings of swept lines, one after another; a number for one that needs the long way."""
        state: dict[str, Any] = context.state
        recent: list[Any] = state.get("recent", [])
        minute, minute_us, covers = b"", 0, _EXCLUDES if self._includes is not True else _INCLUDES
        for number, (start, (at, fields)) in enumerate(swept):
            step, samples, tokens, ms, _, model, hardware, batch, sequence, skipped, nan = fields
            at_us: int | None = None
            if at is not None:
                digits = at[17:19] + at[20:]
                if at[:17] != minute:
                    known = minute_of(at[:17], context)
                    if known is None:
                        yield number
                        continue
                    minute, minute_us = at[:17], known
                if (
                    not digits.isdigit()
                    or digits >= b"60"
                    or (len(at) != 19 and (len(at) != 26 or at[19] != 46))
                ):
                    yield number
                    continue
                at_us = minute_us + (int(digits) if len(at) == 26 else int(digits) * 1_000_000)
                state["clock"] = at_us
            if (
                ms is not None
                and (model is not None or at is not None)
                and tokens is hardware is sequence is None
                and nan == b"0"
                and samples is not None
                and batch is not None
                and "start" not in state
                and "events" not in state
                and recent
            ):
                done, step_time_us = int(step or b""), round(float(ms) * 1000)
                if step_time_us > 0 and done > recent[-1][0]:
                    if len(recent) > _REMEMBERED:
                        del recent[0]
                    offset = place(start)
                    recent.append([done, at_us, offset])
                    yield _new(
                        Reading,
                        (
                            offset,
                            at_us,
                            done,
                            step_time_us,
                            int(samples),
                            None,
                            int(batch),
                            0 if skipped is None or skipped == b"0" else int(skipped),
                            covers | _WHOLE if at is not None and len(at) == 19 else covers,
                            None if model is None else float(model) * 1e12,
                            None,
                        ),
                    )
                    continue
            reading = self._take(fields, at, at_us, place(start), context, None)
            if isinstance(reading, str):
                yield number
                continue
            state.pop("start", None)
            if fresh(state, reading):
                yield reading
            recent = state.get("recent", [])

    def line(self, hit: Hit) -> Iterator[Record]:
        """Yield the readings of a line; an incomplete last one waits for the lines that follow."""
        anchors = list(_ANCHOR.finditer(hit.text))
        for number, anchor in enumerate(anchors):
            last = number + 1 == len(anchors)
            text = hit.text[anchor.start() : None if last else anchors[number + 1].start()]
            if last and not _is_complete(text):
                text = text[:_LONGEST]
                hit.state[WRAPPED] = [hit.offset, hit.line.stamp.decode(), text.decode("latin-1")]
                hit.open(WRAPPED, _WRAPPED_LINES)
                continue
            learn = len(anchors) == 1 and hit.marks == (GATE,) and not hit.line.stamp
            yield from self._text(text, hit.line.stamp, hit.offset, hit.context, learn=learn)

    def wrapped(self, hit: Hit) -> Iterator[Record]:
        """Take the next line of a record that was not complete; give up where it is none of its."""
        kept: Any = hit.state[WRAPPED]
        left: Any = hit.state["open"]
        offset, stamp, text = kept[0], kept[1].encode(), kept[2].encode("latin-1")
        ours = b"|" in hit.text and _OTHER.search(hit.text) is None
        if ours:
            text += hit.text
            if not _is_complete(text) and len(text) <= _LONGEST and left[WRAPPED] > 0:
                kept[2] = text.decode("latin-1")
                return
        del hit.state[WRAPPED]
        hit.close(WRAPPED)
        yield from self._text(text, stamp, offset, hit.context)

    def _text(
        self, text: bytes, stamp: bytes, offset: int, context: Context, *, learn: bool = False
    ) -> Iterator[Record]:
        anchor = _ANCHOR.match(text)
        if anchor is None:
            return
        values = {"step": anchor["step"]}
        keys: list[tuple[bytes, str]] = []
        losses: list[bytes] = []
        for piece in text[anchor.end() :].split(b"|")[:-1]:
            key, _, value = piece.rpartition(b": ")
            if piece.startswith(_TWO_IN_ONE):
                key, value = _TWO_IN_ONE[:-2], piece[len(_TWO_IN_ONE) :].partition(b" ")[0]
            name = _KEYS.get(key.strip(), "")
            if name:
                values[name] = value.strip().partition(b"/")[0]
            elif b"loss" in key and not key.endswith(b"loss scale"):
                losses.append(value.strip().lower())
                name = _LOSS
            keys.append((key, name))
        complete = _is_complete(text)
        if not complete and "elapsed_ms" not in values and "elapsed_s" not in values:
            yield Reject(offset, text[:_REJECTED], "torn iteration line")
            return
        no_loss = True if any(b"n" in loss for loss in losses) else False if complete and not losses else None
        at = anchor["at"]
        clock = stamp or at
        at_us = stamp_us(clock, context) if clock else None
        if clock and at_us is None:
            yield Reject(offset, text[:_REJECTED], "time stamp outside 2000..2100")
            return
        reading = self._take(
            Fields(**values), at, at_us, offset, context, no_loss, whole_second(clock or b".")
        )
        wrong = reading if isinstance(reading, str) else problem(reading)
        if isinstance(reading, str) or wrong is not None:
            yield Reject(offset, text[:_REJECTED], str(wrong))
            return
        if learn and losses:
            self._learn(text, anchor, keys)
        context.state.pop("start", None)
        if fresh(context.state, reading):
            yield reading

    def _take(
        self,
        fields: tuple[bytes | None, ...],
        at: bytes | None,
        at_us: int | None,
        offset: int,
        context: Context,
        no_loss: bool | None,
        rounded_clock: bool | None = None,
    ) -> Reading | str:
        """Return the reading of a line with these `Fields`, or why there is none. Changes no state.

        `at` is the line's own stamp and `at_us` its time, which a container's stamp may tell better;
        `no_loss`: True where a printed loss is not a number, False where the line is whole and printed none.
        """
        step, samples, tokens, ms, s, model, hardware, batch, sequence, skipped, nan = fields
        state: dict[str, Any] = context.state
        flags = 0
        if at is not None and (len(at) == 19 if rounded_clock is None else rounded_clock):
            flags = _WHOLE
        try:
            steps = int(step or b"")
            step_time_us = None
            if ms is not None:
                step_time_us = round(float(ms) * 1000)
            elif s is not None:
                step_time_us = round(float(s) * 1_000_000)
            if step_time_us is not None:
                if self._includes is None and (at is not None or model is not None):
                    flags |= _EXCLUDES
                else:
                    flags |= self._covers(state)
            sequences = None if batch is None else int(batch)
            dropped = 0 if skipped is None else int(skipped)
            per_step = None if sequence is None or sequences is None else int(sequence) * sequences
            flop_per_s = consumed = None
            if model is not None:
                flop_per_s = float(model) * 1e12
            elif hardware is not None:
                flop_per_s = float(hardware) * 1e12
                flags |= _HARDWARE
            if tokens is not None:
                consumed, rounded = scaled(tokens) or (-1, False)
                flags |= _ROUNDED if rounded else 0
            if no_loss is not None or (nan is not None and nan != b"0" and int(nan)):
                flags |= _not_a_number(state, steps, dropped, bool(no_loss or int(nan or b"0")))
            if "start" in state and at is not None:
                flags |= _extra(state, steps, at)
            counted = None if samples is None else int(samples)
        except (ValueError, OverflowError):
            return "a value is not a number"
        if step_time_us is not None and step_time_us <= 0:
            return "step time is not above zero"
        return _new(
            Reading,
            (
                offset,
                at_us,
                steps,
                step_time_us,
                counted,
                consumed,
                sequences,
                dropped,
                flags,
                flop_per_s,
                per_step,
            ),
        )

    def _covers(self, state: dict[str, Any]) -> int:
        """Return whether the printed time holds evaluation and saves, where the line does not show it.

        Megatron-LM stops its timer around both since core_v0.5.0. A line shows that it is not older by its
        stamp (since core_v0.8.0) or its throughput (since core_v0.5.0); else the start-up lines may have
        (`excludes`: the argument log_throughput, the context-parallel size).
        """
        if self._includes is None:
            return _EXCLUDES if state.get("excludes") else _INCLUDES
        return _INCLUDES if self._includes else _EXCLUDES

    def _learn(self, text: bytes, anchor: re.Match[bytes], keys: list[tuple[bytes, str]]) -> None:
        """Keep an expression that reads lines of this layout, unless it is unusual in any way."""
        names = [name for _, name in keys if name and name != _LOSS]
        unusual = not text.rstrip(b" ").endswith(b"|") or not anchor[0].startswith((b"[", b"iteration"))
        if unusual or len(names) != len(set(names)) or not all(_PLAIN_KEY.fullmatch(key) for key, _ in keys):
            return
        parts = [rb"iteration +(\d{1,18})/ *\d{1,18} *\|"]
        groups = {"step": 1}
        for key, name in keys:
            parts.append(re.escape(key) + rb": *")
            if name in ("", _LOSS):
                parts.append(rb"[-+.:\d eE%KMGBT]{1,40}\|" if not name else rb"[-+.\deE]{1,40} *\|")
                continue
            groups[name] = len(groups) + 1
            parts.append(_SHAPE.get(name, _COUNT_SHAPE))
            parts.append(rb" s samples/sec: [\d.]{1,20} *\|" if key == _TWO_IN_ONE[:-2] else rb" *\|")
        absent = len(groups) + 1
        parts.append(rb"(?:(?!)())? *\n")
        order = tuple(groups.get(name, absent) for name in Fields._fields)
        layout = _Layout(re.compile(b"".join(parts)), order)
        if layout not in self._layouts:
            self._layouts.insert(0, layout)
            del self._layouts[_LAYOUTS:]


_TWO_IN_ONE: Final = b" iteration time: "
_LOSS: Final = "loss"
_PLAIN_KEY: Final = re.compile(rb" (?![\w ]*checkpoint)[\w ()/.-]{1,60}")
_HEAD: Final = re.compile(
    rb"[ \t]*(?:\d{1,7}: |\[(?:default|rank)\d{1,7}\]: ?)? *(?:\[(?P<at>" + STAMP + rb")\] *)?"
)
Swept = tuple[bytes | None, tuple[bytes | None, ...]]
"""A line's own stamp and its `Fields`."""
_REMEMBERED: Final = 7
_OTHER: Final = re.compile(rb"iteration  *\d|time \(ms\)|memory \(|[Cc]heckpoint|NCCL")
_REJECTED: Final = 500
_ROUNDED: Final = int(Flag.ROUNDED)
_new: Final = tuple.__new__  # half the time of a call of the class
_WHOLE: Final = int(Flag.WHOLE_SECOND)
_INCLUDES: Final = int(Flag.STEP_TIME_INCLUDES)
_EXCLUDES: Final = int(Flag.STEP_TIME_EXCLUDES)
_HARDWARE: Final = int(Flag.REPORTED_HARDWARE)


def _is_complete(text: bytes) -> bool:
    if _COMPLETE in text:
        return True
    return text.rstrip().endswith(b"|") and (b"elapsed time per iteration" in text or _TWO_IN_ONE in text)


def _not_a_number(state: dict[str, Any], step: int, skipped: int, stated: bool) -> int:
    """Return Flag.NAN where the loss is none: printed or counted so, or left out though steps were made."""
    recent = state.get("recent")
    steps = step - recent[-1][0] if recent and recent[-1][0] < step else None
    all_skipped = skipped > 0 and (steps is None or skipped >= steps)
    return int(Flag.NAN) if stated or not all_skipped else 0


def _extra(state: dict[str, Any], step: int, at: bytes) -> int:
    """Return Flag.EXTRA for the line after a process's first step that no log interval asked for.

    Printed since core_v0.16, which is known by its microseconds; it does not reset the accumulators.
    """
    interval = state.get("log_interval")
    if "first" not in state["start"] or whole_second(at) or not isinstance(interval, int) or interval < 2:
        return 0
    return int(Flag.EXTRA) if step % interval else 0
