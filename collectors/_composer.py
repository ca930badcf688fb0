r"""A record of Composer's: the metrics that count, the reading they make, and a short cut to it.

Pure. The rules of `composer` take a record line by line; where it stands in one piece with nothing unusual in
it, it is taken as a whole. Both make the reading here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from collectors._lines import fresh
from collectors._process import INCLUDES, NAN, ROUNDED
from collectors._text import real, whole
from tracker.core.records import Json, Reading, problem
from tracker.interfaces import Context

UNIT: Final = "unit"
_UNITS_US: Final = {"seconds": 1e6, "minutes": 6e7, "hours": 3.6e9, "days": 8.64e10}

_NEW_LINE: Final = 10
_CONVENTION: Final = (
    "flops_per_batch of the model: in LLM Foundry 6N + 12 L d s (attention in full), recompute not counted"
)
_RATES: Final = ("tokens_per_sec", "flops_per_sec", "samples_per_sec")
_REALS: Final = {
    b"time/total": "total",
    **{f"throughput/{name}".encode(): name for name in _RATES},
    **{f"throughput/device/{name}".encode(): f"device/{name}" for name in _RATES},
}


def noted(record: dict[str, Any], key: bytes, value: bytes) -> None:
    """Remember a metric of the open record."""
    if (name := _REALS.get(key)) is not None:
        record[name] = real(value)
    elif key == b"loss/train/total":
        record["nan"] = real(value) is None
    else:
        record[key[5:].decode()] = whole(value)


def of_record(
    offset: int,
    record: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    head: Sequence[Any] | None,
    unit: object,
) -> Reading | None:
    """Return the reading of a record; None where its clock has not moved: it is left to the next one.

    The clock is that of the run, so the step time is what passed since the record before, evaluation and
    saves inside.
    """
    batch, step_time_us = record["batch"], None
    if before is not None and batch <= before["batch"]:
        before = None
    if record.get("total") is not None:
        length, steps = record["total"] if batch == 0 else None, 0
        if before is not None and before.get("total") is not None:
            length, steps = record["total"] - before["total"], batch - before["batch"]
        unit_us = _UNITS_US.get(str(unit), 3.6e9)
        if length is not None and 0 <= length * unit_us < 2.0**60:
            step_time_us = round(length * unit_us / max(steps, 1)) or None
            if step_time_us is None and before is not None and not record.get("nan"):
                return None
    tokens_per_step, tokens_exact = _of_a_batch("token", record, before)
    samples_per_step, samples_exact = _of_a_batch("sample", record, before)
    return Reading(
        offset,
        None,
        batch + 1,
        step_time_us,
        samples=_done("sample", record, head, samples_per_step if samples_exact else None),
        tokens=_done("token", record, head, tokens_per_step),
        batch=samples_per_step if samples_exact else None,
        flags=(INCLUDES if step_time_us else 0)
        | (NAN if record.get("nan") else 0)
        | (0 if tokens_exact or tokens_per_step is None else ROUNDED),
        reported_flop_per_s=record.get("device/flops_per_sec"),
        tokens_per_step=tokens_per_step,
    )


def _of_a_batch(
    name: str, record: Mapping[str, Any], before: Mapping[str, Any] | None
) -> tuple[int | None, bool]:
    """Return how many of a thing a batch holds, by two records or the run so far, and whether exactly."""
    now, batches = record.get(name), record["batch"]
    then = 0
    if before is not None and before.get(name) is not None:
        then, batches = before[name], batches - before["batch"]
    if now is None or batches <= 0 or now <= then:
        return None, True
    each, rest = divmod(now - then, batches)
    return int(each), rest == 0


def _done(name: str, record: Mapping[str, Any], head: Sequence[Any] | None, each: int | None) -> int | None:
    """Return the count with this batch: the header's own, else the one at its start and the batch's."""
    if head is not None and head[0] == name:
        count = head[1]
        return count if isinstance(count, int) else None
    at_start = record.get(name)
    return None if at_start is None or each is None else at_start + each


def derived(record: Mapping[str, Any]) -> dict[str, Json]:
    """Rates of a device are the cluster's divided by the world size."""
    found: dict[str, Json] = {}
    if record.get("device/flops_per_sec") is not None:
        found["reported_convention"] = _CONVENTION
    for name in ("tokens_per_sec", "flops_per_sec", "samples_per_sec"):
        whole_rate, rate = record.get(name), record.get(f"device/{name}")
        if whole_rate and rate and whole_rate >= 100:
            world = whole_rate / rate
            if 0 < round(world) < 1e7 and abs(world / round(world) - 1) < 1e-4:
                return found | {"gpus": round(world)}
    return found


_RECORD: Final = re.compile(
    rb"\[batch=(\d{1,18})/(\d{1,18})\]:\n(?:[ \t]{1,10}Train [\w./-]{1,99}: [-+\w.]{1,24}\n){2,99}"
)
_ENTRY: Final = re.compile(
    rb"^[ \t]{1,10}Train (?:(time/(?:batch|sample|token|total)|time_(?:seconds|minutes|hours|days)/total"
    rb"|loss/train/total|throughput/(?:device/)?(?:tokens|flops|samples)_per_sec): (\S+)"
    rb"|time[/_]|loss/train/total: |throughput/)",
    re.M,
)
"""Every line that a rule would look at; with groups where it counts."""


class _Item:
    """A record in one piece."""

    __slots__ = ("entries", "left", "n", "start", "total")

    def __init__(self, start: int, n: bytes, total: bytes) -> None:
        self.start, self.n, self.total = start, int(n), int(total)
        self.entries: list[tuple[int, bytes, bytes]] = []
        """(where the line begins, metric, value)"""
        self.left = False
        """The rules must take it."""


class Records:
    """The `Hot` of records that stand in one piece: the rules take them, or this does, as a whole."""

    gate: Final = b""  # no literal is in all their lines

    def sweep(self, block: bytes) -> list[tuple[int, _Item]]:
        """Return the headers, and the lines of their metrics that a rule would look at."""
        swept: list[tuple[int, _Item]] = []
        for found in _RECORD.finditer(block):
            start = found.start()
            if start and block[start - 1] != _NEW_LINE:
                continue
            item = _Item(start, *found.groups())
            swept.append((start, item))
            for entry in _ENTRY.finditer(block, found.end(2), found.end()):
                at = entry.start()
                swept.append((at, item))
                if entry[1] is not None:
                    item.entries.append((at, entry[1], entry[2]))
        return swept

    def run(
        self, swept: Sequence[tuple[int, _Item]], place: Callable[[int], int], context: Context
    ) -> Iterator[Reading | int]:
        """Yield a record's reading at its header."""
        for number, (start, item) in enumerate(swept):
            if start != item.start:
                if item.left:
                    yield number
                continue
            reading = _usual(item, place, context)
            if reading is None:
                item.left = True
                yield number
            elif fresh(context.state, reading):
                one: Any = context.state["process"]
                one["step"], one["free"] = reading.step, None
                one.pop("busy", None)
                yield reading


def _usual(item: _Item, place: Callable[[int], int], context: Context) -> Reading | None:
    """Return the reading of a record, and remember it; None, and nothing done, if there is more to say."""
    one: Any = context.state.get("process")
    if not one or "ran" not in one or "record" in one or "leaving" in one or UNIT not in context.state:
        return None
    known, unit = one.get("settings", {}), context.state[UNIT]
    if item.n == item.total or known.get("target_steps") != item.total:
        return None
    record: dict[str, Any] = {}
    closed = None
    for at, key, value in item.entries:
        if key == b"time/batch":
            if record or not value.isdigit() or len(value) > 18:
                return None
            record["batch"] = int(value)
        elif key.startswith(b"time_"):
            if key[5:-6].decode() != unit:
                return None
        elif record and closed is None:
            noted(record, key, value)
            closed = at if key == b"time/total" else None
    if closed is None:
        return None
    found = of_record(place(closed), record, one.get("before"), ("batch", item.n, item.total, False), unit)
    if found is None or problem(found) is not None:
        return None
    if any(known.get(name) != value for name, value in derived(record).items()):
        return None
    one["before"] = record
    one.pop("head", None)
    return found
