"""Real runs as facts, for the forecast's scores: each told with no more than its source tells.

Edge: reads a folder of real logs and chronicles that is not part of this project. Between two dated
points of a chronicle nothing is known, so nothing is made up: a reading at each point, with the step
time where the source states one.

    glm130b        22 restarts with their step; once with the batch ramp-up that its paper states (as a log
                   with a sample odometer would have it), once with a constant batch (as if nobody knew)
    bloom          dated iterations, the pair marked trust=no among them: the core has to find it
    opt175b        five dated percentages; the step rate from the stated 33 days
    mlperf         every step of 24 runs, as logged
    modded-nanogpt 756 complete runs, time at 5 to 95 % of their steps
"""

from __future__ import annotations

import csv
import datetime as dt
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.factories import ListFacts, facts_from
from tracker.core.records import Event, Flag, Kind, Reading

S = 1_000_000
EXCLUDES = int(Flag.STEP_TIME_EXCLUDES)
DAY_US = 86_400 * S


@dataclass(slots=True)
class RealRun:
    """One run, the moments to ask at, and the truth."""

    name: str
    facts: ListFacts
    target_tokens: int
    truth_us: int
    start_us: int
    moments: list[tuple[str, int]]


def _us(text: str, form: str = "%Y.%m.%d-%H:%M:%S") -> int:
    moment = dt.datetime.strptime(text, form).replace(tzinfo=dt.UTC)
    return int(moment.timestamp()) * S


def _event(log: list[Reading | Event], kind: Kind, at: int, step: int | None = None, **data: int) -> None:
    log.append(Event(offset=100 * len(log), kind=kind, at_us=at, step=step, data=data))


def _reading(
    log: list[Reading | Event], at: int, step: int, tokens: int, step_s: float | None = None
) -> None:
    time_us = None if step_s is None else round(step_s * S)
    log.append(Reading(100 * len(log), at, step, time_us, tokens=tokens, flags=EXCLUDES if step_s else 0))


# -- GLM-130B ---------------------------------------------------------------------------------------

GLM_RAMP = (192, 4224, 4_883_000)
"""Batch from, to, over so many samples: 2.5 % of 400e9 tokens of 2,048 (the paper's warm-up)."""


def glm_tokens(step: int, *, ramp: bool) -> int:
    """Return the tokens after so many steps, the batch growing evenly with the samples."""
    import math

    low, high, over = GLM_RAMP
    if not ramp:
        return step * high * 2048
    k = (high - low) / over
    steps = math.log(high / low) / k
    samples = low / k * (math.exp(k * min(step, steps)) - 1) + max(0.0, step - steps) * high
    return round(samples) * 2048


def glm(folder: Path, *, ramp: bool) -> RealRun:
    """GLM-130B, 96 nodes of 8, 2022-05-05 to 06-29."""
    with (folder / "glm130b" / "attempts.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    files: dict[str, list[Reading | Event]] = {}
    for number, row in enumerate(rows):
        log: list[Reading | Event] = []
        begun, low, high, end = _us(row["frm"]), int(row["step0"]), int(row["step1"]), _us(row["to"])
        _event(log, Kind.LAUNCH, begun)
        _event(log, Kind.SETTING, begun, gpus=768)
        _event(log, Kind.RESUME, begun, low, tokens=glm_tokens(low, ramp=ramp))
        if high > low:
            _reading(log, end, high, glm_tokens(high, ramp=ramp))
        files[f"glm-{number:02}.log"] = log
    with (folder / "glm130b" / "backtest.csv").open(encoding="utf-8") as file:
        asked = [row["asof"] for row in csv.DictReader(file)]
    return RealRun(
        name="GLM-130B" + ("" if ramp else ", constant batch assumed"),
        facts=facts_from(files),
        target_tokens=glm_tokens(48_100, ramp=ramp),
        truth_us=_us("2022.06.29-13:53:21"),
        start_us=_us(rows[0]["frm"]),
        moments=[(text[:10].replace(".", "-"), _us(text)) for text in asked],
    )


# -- BLOOM ------------------------------------------------------------------------------------------

BLOOM_STEP_S = 105.22
BLOOM_TOKENS = 2048 * 2048
BLOOM_RAMP_END = (12_695, 20_155_564_032)


def bloom(folder: Path) -> RealRun:
    """BLOOM-176B, 48 nodes of 8, 2022-03-11 to 07-04."""
    with (folder / "bloom" / "progress.csv").open(encoding="utf-8") as file:
        rows = [(r["date"], int(r["iteration"])) for r in csv.DictReader(file)]
    log: list[Reading | Event] = []
    start = _us(rows[0][0], "%Y-%m-%d") + 19 * 3600 * S
    _event(log, Kind.LAUNCH, start)
    _event(log, Kind.SETTING, start, gpus=384)
    _event(log, Kind.RESUME, start, 0)
    _reading(log, start + 1200 * S, 1, 192 * 2048)
    ramp_end, ramp_tokens = BLOOM_RAMP_END
    kept = [rows[0]]
    for date, step in rows[1:]:
        at = _us(date, "%Y-%m-%d") + 12 * 3600 * S
        since = _us(kept[-1][0], "%Y-%m-%d") + 12 * 3600 * S
        tokens = ramp_tokens + (step - ramp_end) * BLOOM_TOKENS
        if step == ramp_end:  # the line of that day prints 104.7 s a step
            _reading(log, at - 2100 * S, step - 20, tokens - 20 * BLOOM_TOKENS)
            _reading(log, at, step, tokens, 104.7)
        else:
            fits = (step - kept[-1][1]) * BLOOM_STEP_S <= (at - since) / S
            _reading(log, at, step, tokens, BLOOM_STEP_S if fits else None)
        kept.append((date, step))
    with (folder / "bloom" / "backtest.csv").open(encoding="utf-8") as file:
        asked = [row["asof"] for row in csv.DictReader(file)]
    return RealRun(
        name="BLOOM-176B",
        facts=facts_from({"bloom.log": log}),
        target_tokens=364_390_481_920,
        truth_us=_us("2022-07-04", "%Y-%m-%d") + 12 * 3600 * S,
        start_us=start,
        moments=[(day, _us(day, "%Y-%m-%d") + 12 * 3600 * S + S) for day in asked],
    )


# -- OPT-175B ---------------------------------------------------------------------------------------


def opt(folder: Path) -> RealRun:
    """OPT-175B, 128 nodes of 8, 2021-11-11 to 2022-01-06."""
    with (folder / "opt175b" / "progress.csv").open(encoding="utf-8") as file:
        rows = [(r["date"], int(r["percent_of_300B"])) for r in csv.DictReader(file)]
    log: list[Reading | Event] = []
    start = _us(rows[0][0], "%Y-%m-%d")
    _event(log, Kind.LAUNCH, start)
    _event(log, Kind.SETTING, start, gpus=1024)
    _event(log, Kind.RESUME, start, 0)
    step_s = 33 * 86_400 / 143_000  # 300e9 tokens of 2^21 a step in the stated 33 days
    _reading(log, start + 1200 * S, 1, 2_097_902, step_s)
    for date, percent in rows[1:]:
        step = round(143_000 * percent / 100)
        _reading(log, _us(date, "%Y-%m-%d"), step, step * 2_097_902, step_s)
    return RealRun(
        name="OPT-175B",
        facts=facts_from({"opt.log": log}),
        target_tokens=143_000 * 2_097_902,
        truth_us=_us(rows[-1][0], "%Y-%m-%d"),
        start_us=start,
        moments=[(d, _us(d, "%Y-%m-%d") + S) for d, p in rows if 0 < p < 100],
    )


# -- MLPerf 405B ------------------------------------------------------------------------------------

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)


def mlperf(folder: Path) -> Iterator[RealRun]:
    """Llama 3.1 405B of MLPerf v5.1: minutes to hours, every step told."""
    runs: dict[str, list[tuple[int, int, float]]] = {}
    with gzip.open(folder / "mlperf" / "steps_405b.csv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            runs.setdefault(row["file"], []).append((
                int(row["time_ms"]) * 1000,
                int(row["samples_done"]),
                float(row["step_s"]),
            ))
    for name, rows in runs.items():
        start = rows[0][0] - round(rows[0][2] * S)
        log: list[Reading | Event] = []
        _event(log, Kind.LAUNCH, start)
        _event(log, Kind.SETTING, start, gpus=512)
        _event(log, Kind.RESUME, start, 0)
        for step, (at, samples, step_s) in enumerate(rows, 1):
            _reading(log, at, step, samples * 8192, step_s)
        target = rows[-1][1] * 8192
        moments = []
        for share in SHARES:
            at = next(a for a, samples, _ in rows if samples * 8192 >= share * target)
            moments.append((f"{share:.0%}", at + 1))
        yield RealRun(name, facts_from({"mllog.txt": log}), target, rows[-1][0], start, moments)


# -- modded-nanogpt ---------------------------------------------------------------------------------

_AT = (5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95)


def nanogpt(folder: Path) -> Iterator[RealRun]:
    """Speed runs on 8 GPUs: minutes; steps get slower as windows and batches grow."""
    with gzip.open(folder / "modded-nanogpt" / "runs.csv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["steps_done"] != row["steps_total"] or not row["t_s_at_100pct"] or not row["t_s_at_5pct"]:
                continue
            times = [(p, float(row[f"t_s_at_{p}pct"])) for p in _AT if row[f"t_s_at_{p}pct"]]
            whole, steps = float(row["t_s_at_100pct"]), int(row["steps_total"])
            increasing = all(a < b for (_, a), (_, b) in pairwise(times))
            if not increasing or times[-1][1] >= whole or steps < 100:
                continue
            start = 1_700_000_000 * S
            log: list[Reading | Event] = []
            _event(log, Kind.LAUNCH, start)
            _event(log, Kind.SETTING, start, gpus=8)
            _event(log, Kind.RESUME, start, 0)
            moments = []
            for percent, seconds in times:
                at = start + round(seconds * S)
                step = steps * percent // 100
                _reading(log, at, step, step * 524_288)
                if percent in (10, 50, 70, 90):
                    moments.append((f"{percent}%", at + 1))
            truth = start + round(whole * S)
            files = {"speedrun.log": log}
            yield RealRun(row["path"], facts_from(files), steps * 524_288, truth, start, moments)
