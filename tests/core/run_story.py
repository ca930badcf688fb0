"""A small run worked by hand, and any run, for what the calculators make of a snapshot.

The story, on 8 GPUs: job A holds 0..1000 s (start-up 100, fifty steps, a save of 10 s, thirty more steps,
90 s until it is gone); job B holds 1200 s on, starts in 100 s at step 50 and runs eighty steps until 2100.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from hypothesis import strategies as st

from tests.core.story import PEAK, SEQUENCE, Log, facts, row, tell
from tracker.core.hardware import peak_given
from tracker.core.plan import Plan
from tracker.core.records import Kind
from tracker.core.settings import Hardware, Model, Settings
from tracker.core.snapshot import Snapshot

MODEL = Model(active_params=1e9, sequence_length=SEQUENCE)
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ALLOCATED_S, PRODUCTIVE_S = 1900, 1300
H100 = Hardware(gpu="h100-sxm", peak_flop_per_s=PEAK, gpus=8)


def first(**said: Any) -> Log:
    log = Log().launch(resume=0, **said).at(100).event(Kind.TRAIN_START).train(range(10, 51, 10), 0)
    log.event(Kind.SAVE_START, step=50).at(610).event(Kind.SAVE_END, step=50, duration_s=10)
    return log.train([60, 70, 80], 50)


def second(**said: Any) -> Log:
    log = Log(now=1200).launch(resume=50, **said).at(1300).event(Kind.TRAIN_START)
    return log.train(range(60, 131, 10), 50)


def planned(**over: Any) -> Plan:
    values: dict[str, Any] = {
        "active_params": 1e9, "tokens": 1e6, "peak": peak_given(PEAK / 1e12), "gpus": 8, "attn_overhead": 0.0,
        "later_stages": 0.0, "rnd_multiplier": 1.0, "gpu_hour_price": 3.6, "start": START,
    }  # fmt: skip
    return Plan(**{**values, **over})


def story(
    as_of: float = 2100, *, said: tuple[dict[str, Any], dict[str, Any]] = ({}, {}), **more: Any
) -> Snapshot:
    """The story; a plan with 3.6 a GPU-hour (0.001 a GPU-second) unless told otherwise."""
    more.setdefault("plan", planned())
    more.setdefault("hardware", H100)
    rows = [row("A", 0, 1000), row("B", 1200, None)]
    return tell(facts(first(**said[0]), second(**said[1]), rows=rows), as_of, **more)


lengths = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 30), st.integers(0, 500), st.integers(1, 16)),
    min_size=1, max_size=6,
)  # fmt: skip


def any_run(parts: list[tuple[int, int, int, int]], **more: Any) -> Snapshot:
    """Attempts of some steps, resuming some steps back, with gaps and sizes."""
    logs, rows, now, at = [], [], 0.0, 0
    for number, (steps, back, gap, gpus) in enumerate(parts):
        at = max(0, at - back)
        log = Log(now=now + 20).launch(resume=at, gpus=gpus).at(now + 50).event(Kind.TRAIN_START)
        log.train(range(at + 1, at + steps + 1), at)
        at += steps
        logs.append(log)
        end = log.now + 30
        rows.append(row(f"J{number}", now, end, gpus=gpus))
        now = end + gap
    return tell(facts(*logs, rows=rows), now + 5, hardware=Hardware(peak_flop_per_s=PEAK), **more)


def settings_of(snapshot: Snapshot) -> Settings:
    assert snapshot.settings is not None
    return snapshot.settings
