"""The records of OLMo-core's log: a header with the step, and a metric a line.

Pure. Traps: metrics come late and in bursts (a header a step, all at one moment), so of a burst only its last
step is a reading; from 1e9 on tokens are printed with four digits, and steps x tokens per step replace them;
`TPS` is of one device, of the last step, evaluation included, so windows are taken from stamps; rich leaves a
time out where it did not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from collectors._lines import Hit
from collectors._process import NAN, ROUNDED, SAMPLE, process, progress, resolution, settings
from collectors._swift import AT, Match, Memory, Sheaf, Taken
from collectors._text import real, scaled
from tracker.core.records import Reading, Record

CONVENTION: Final = "model FLOP, recompute not counted, active experts"
"""What its own FLOP/s count."""
_BURST_US: Final = 200_000


def header(hit: Hit) -> Iterator[Record]:
    """Open a record. One that is still open is done, unless it belongs to the same burst."""
    step, one = hit.count("step"), process(hit)
    at_us = hit.stamp_us()
    if at_us is None:
        clock = hit.state.get("clock")
        at_us = clock if isinstance(clock, int) else None
    record: dict[str, Any] | None = one.get("record")
    if step is None or (record is not None and record["step"] == step):
        return
    skipped = 0
    if record is not None:
        if _one_burst(record["at"], at_us):
            skipped = _skipped(record)
        else:
            yield from closed(hit)
    if hit.count("total"):
        yield from settings(hit, {"target_steps": hit.count("total")}, at_us=at_us)
    process(hit)["record"] = {"step": step, "at": at_us, "flags": resolution(at_us), "skipped": skipped}
    if not hit.group("eta"):  # a bare header, in time and without metrics
        yield from closed(hit)


def _one_burst(before_us: int | None, at_us: int | None) -> bool:
    return before_us is not None and at_us is not None and abs(at_us - before_us) <= _BURST_US


def metric(hit: Hit) -> Iterator[Record]:
    """Keep a metric of the open record; the reading comes with the last metric that it needs.

    The last record of a burst is known by the longest burst before; else the next burst's header tells.
    """
    one = process(hit)
    record: dict[str, Any] | None = one.get("record")
    if record is None:
        return
    record[hit.word("name") or ""] = hit.word("value")
    if _is_last(record, one):
        yield from closed(hit)


def _is_last(record: dict[str, Any], one: Memory) -> bool:
    longest = one.get("longest")
    if longest is None or "total tokens" not in record or "device/BPS" not in record:
        return False
    base = one["base"] if _one_burst(one["burst at"], record["at"]) else one["last"]
    return bool(record["step"] - base >= longest)


def closed(hit: Hit) -> Iterator[Record]:
    """Yield the reading of the open record, at the line that completes it."""
    one = process(hit)
    record: dict[str, Any] | None = one.pop("record", None)
    if record is None:
        return
    reading = _reading(record, hit.offset, one)
    if reading.reported_flop_per_s is not None:
        convention = one.get("settings", {}).get("reported_convention", CONVENTION)
        yield from settings(hit, {"reported_convention": convention}, at_us=reading.at_us)
    yield from progress(hit, reading)


def _reading(record: dict[str, Any], offset: int, one: Memory) -> Reading:
    """Return the reading of a record; how long bursts are, and a step's tokens, are remembered."""
    step, at_us, flags = record["step"], record["at"], record["flags"]
    if "last" in one:
        if not _one_burst(one["burst at"], at_us):
            one["base"] = one["last"]
        one["longest"] = max(step - one["base"], one.get("longest", 1))
        one["gap"] = max(step - one["last"], 1)
    one["last"], one["burst at"] = step, at_us
    one.setdefault("base", step)
    rate = real(str(record.get("device/BPS", "")).encode())
    tokens, rounded = scaled(str(record.get("total tokens", "")).encode()) or (None, False)
    flop = scaled(str(record.get("device/flopsPS", "")).encode())
    flags |= ROUNDED if rounded else 0
    flags |= SAMPLE if rate else 0
    flags |= NAN if real(str(record.get("CE loss", "0")).encode()) is None else 0
    if tokens is not None and not rounded:
        _learn(one, step, tokens)
    return Reading(
        offset,
        at_us,
        step,
        round(1e6 / rate) if rate and rate > 1e-9 else None,
        tokens=tokens,
        skipped=_skipped(record),
        flags=flags,
        reported_flop_per_s=float(flop[0]) if flop else None,
        tokens_per_step=one.get("settings", {}).get("tokens_per_step"),
    )


def _skipped(record: dict[str, Any]) -> int:
    """Return the updates that were dropped in this step and in those of its burst before it."""
    now = real(str(record.get("step skipped", "0")).encode()) or 0.0
    return int(record["skipped"]) + (now > 0)


def _learn(one: Memory, step: int, tokens: int) -> None:
    """Take the tokens of a step from two exact odometers: they are needed once print rounds them."""
    before, one["exact"] = one.get("exact"), [step, tokens]
    if before is not None and step > before[0] and (tokens - before[1]) % (step - before[0]) == 0:
        per_step = (tokens - before[1]) // (step - before[0])
        if per_step > 0:
            one.setdefault("settings", {})["tokens_per_step"] = per_step


def _taken(found: Match, at_us: int | None, offset: int, one: Memory) -> Taken | None:
    step, target, *values = found.groups()
    known, before = one.get("settings", {}), one.get("record")
    if known.get("target_steps") != int(target) or "reported_convention" not in known:
        return None
    if int(step) <= one["step"] or "longest" not in one:
        return None
    if before is not None and (before["step"] == int(step) or not _one_burst(before["at"], at_us)):
        return None
    skipped = 0 if before is None else _skipped(before)
    flags = resolution(at_us)
    record: dict[str, Any] = {"step": int(step), "at": at_us, "flags": flags, "skipped": skipped}
    record |= {name: value.decode() for name, value in zip(_VALUES, values[1::2], strict=True) if value}
    if not _is_last(record, one):
        return None, {"record": record}
    one.pop("record", None)
    return _reading(record, offset, one), {}


_VALUES: Final = ("CE loss", "step skipped", "total tokens", "device/flopsPS", "device/BPS")
_METRICS: Final = (
    rb"(?: {4}(?!train/CE loss=|optim/step skipped=|throughput/(?:total tokens|device/BPS|device/flopsPS)=)"
    rb"[^\n\r=]{1,80}=[!-~]{1,24}\n){0,40}"
)
SHEAF: Final = Sheaf(
    AT + rb"\t[\w.-]{1,60}:\d{1,7}\tolmo_core[\w.]{1,60}:\d{1,6}\tINFO\t",
    rb"\[step=(\d{1,18})/(\d{1,18}),epoch=\d{1,9},eta=[^\]\n\r]{0,60}\]\n"
    rb"(?:@() {4}train/CE loss=([!-~]{1,24})\n)?(?:@() {4}optim/step skipped=([!-~]{1,24})\n)?"
    rb"@() {4}throughput/total tokens=([!-~]{1,24})\n(?:@() {4}throughput/device/flopsPS=([!-~]{1,24})\n)?"
    rb"@() {4}throughput/device/BPS=(\d{1,5}(?:\.\d{1,9})?)\n".replace(b"@", _METRICS),
    _taken,
    metrics=(3, 5, 7, 9, 11),
    closing=11,
)
"""A record with metrics, of rank 0, in the order in which they are printed."""
